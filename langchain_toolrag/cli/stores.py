"""Arguments in -> where ingested tools are, a directory or a database, out."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.store import ToolStore
from langchain_toolrag.errors import DatabaseError, SourceError

if TYPE_CHECKING:
    from langchain_toolrag.postgres.stored_tools import DatabaseTools

_DATABASE = "TOOLRAG_DATABASE"
_TENANT = "TOOLRAG_TENANT"


def add_store_arguments(
    command: argparse.ArgumentParser,
    option: str = "--data",
    help: str = "what `toolrag ingest` wrote",
) -> argparse._MutuallyExclusiveGroup:
    """Add where ingested tools are.

    Args:
        command: The command's parser.
        option: The option that names a directory.
        help: What that directory is.

    Returns:
        The group of which one has to be given, unless TOOLRAG_DATABASE is set.
    """
    is_set = bool(os.environ.get(_DATABASE))
    where = command.add_mutually_exclusive_group(required=not is_set)
    where.add_argument(option, dest="data", type=Path, metavar="DIR", help=help)
    where.add_argument(
        "--database",
        metavar="DSN",
        help=f"a PostgreSQL database instead, postgresql://USER@HOST/NAME (default: {_DATABASE})",
    )
    command.add_argument(
        "--tenant", metavar="NAME", help=f"whose tools of the database (default: {_TENANT})"
    )
    return where


@contextmanager
def opened_store(
    arguments: argparse.Namespace, *, may_be_empty: bool = False
) -> Iterator[ToolStore]:
    """Open what the arguments of `add_store_arguments` name.

    Args:
        arguments: The parsed arguments.
        may_be_empty: Whether a database may have nothing for this tenant, who may be mistyped.

    Yields:
        The directory, or the database, which is closed at the end.

    Raises:
        DatabaseError: If the database cannot be reached, has not the tables that are needed, or
            nothing for this tenant.
        SourceError: If a tenant is given for a directory, or a part for databases is not installed.
    """
    if arguments.data is not None:
        refuse_tenant(arguments)
        yield ToolDirectory(arguments.data)
        return
    with closing(_opened_database(arguments)) as tools:
        if not may_be_empty and not tools.sources():
            raise DatabaseError(
                tools.name,
                f"holds no ingested tools of the tenant {tools.tenant!r}; ingest some with "
                "`toolrag ingest ... --database DSN --tenant NAME`",
            )
        yield tools


def refuse_tenant(arguments: argparse.Namespace) -> None:
    """Raise a SourceError where a tenant is given, and no database is meant."""
    if arguments.tenant is not None:
        raise SourceError(
            "--tenant", "only a database has tenants: give --database DSN instead, or no tenant"
        )


def database_of(arguments: argparse.Namespace, where: str) -> str:
    """Return the DSN that is given, or that TOOLRAG_DATABASE has.

    Args:
        arguments: The parsed arguments, `--database` among them.
        where: The command, for the message.

    Returns:
        The DSN.

    Raises:
        SourceError: If there is none.
    """
    dsn: str | None = arguments.database
    if dsn is None:
        dsn = os.environ.get(_DATABASE, "")
    if not dsn:
        raise SourceError(where, f"which database? give --database DSN, or set {_DATABASE}")
    return dsn


def _opened_database(arguments: argparse.Namespace) -> DatabaseTools:
    dsn = database_of(arguments, "--database")
    tenant = arguments.tenant if arguments.tenant is not None else os.environ.get(_TENANT, "")
    try:
        from langchain_toolrag.postgres.stored_tools import open_database_tools
    except ModuleNotFoundError as missing:
        raise SourceError("--database", str(missing)) from missing
    try:
        return open_database_tools(dsn, tenant)
    except ValueError as error:
        raise SourceError("--tenant", str(error)) from error
