"""`toolrag db`: a database in -> the same database, with the tables that are needed, out."""

from __future__ import annotations

import argparse

from langchain_toolrag.cli.arguments import Commands
from langchain_toolrag.cli.stores import database_of
from langchain_toolrag.errors import SourceError


def register(commands: Commands) -> None:
    """Add the command to the parser."""
    command = commands.add_parser("db", help="set up a PostgreSQL database for shared catalogues")
    actions = command.add_subparsers(required=True, metavar="ACTION")
    upgrade = actions.add_parser("upgrade", help="make the tables, or bring them up to date")
    upgrade.set_defaults(run=_upgrade)
    upgrade.add_argument(
        "--database",
        metavar="DSN",
        help="postgresql://USER@HOST/NAME, as a user who may create a schema, and the extension "
        "vector unless it is there (default: TOOLRAG_DATABASE)",
    )
    upgrade.add_argument(
        "--roles",
        action="store_true",
        help="make the roles toolrag_reader and toolrag_writer too, to be granted to the users "
        "that processes connect as",
    )


def _upgrade(arguments: argparse.Namespace) -> int:
    dsn = database_of(arguments, "toolrag db upgrade")
    try:
        from langchain_toolrag.postgres.upgrade import required_version, upgrade
    except ModuleNotFoundError as missing:
        raise SourceError("toolrag db upgrade", str(missing)) from missing
    applied = upgrade(dsn, roles=arguments.roles)
    done = f"applied {', '.join(map(str, applied))}" if applied else "nothing to do"
    print(f"tables of version {required_version()}: {done}")
    if arguments.roles:
        print("roles toolrag_reader, toolrag_writer: grant one of them to each user")
    return 0
