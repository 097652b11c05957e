"""A database in -> the same database with the tables that this version needs out."""

from __future__ import annotations

import functools
from importlib import resources
from typing import NamedTuple

from psycopg import Connection

from langchain_toolrag.errors import DatabaseError
from langchain_toolrag.postgres.connection import Database, SyncConnection
from langchain_toolrag.postgres.dsn import parameters_of, shown
from langchain_toolrag.postgres.faults import translated

_FOLDER = resources.files("langchain_toolrag.postgres") / "migrations"
_ROLES = ("roles.sql", "search_owner.sql")
_TIMEOUT = 5.0
_LACKING = (
    "upgrade as the owner of the database and of the schema toolrag; `--roles` needs the right to "
    "create roles, too"
)
_ONE_AT_A_TIME = "select pg_advisory_xact_lock(hashtextextended('toolrag.migrations', 0))"
_BEGINNING = """
    create schema if not exists toolrag;
    create table if not exists toolrag.migrations (
        number int primary key,
        name text not null,
        applied_at timestamptz not null default now()
    )
"""


class Migration(NamedTuple):
    """One step of the tables' history.

    Attributes:
        number: From 1, without gaps.
        name: What it is for.
        statements: Its SQL.
    """

    number: int
    name: str
    statements: str


@functools.cache
def migrations() -> tuple[Migration, ...]:
    """Return what this version knows, oldest first."""
    files = sorted(file.name for file in _FOLDER.iterdir() if file.name[:4].isdecimal())
    return tuple(
        Migration(int(name[:4]), name[5:].removesuffix(".sql"), (_FOLDER / name).read_text("utf-8"))
        for name in files
    )


def required_version() -> int:
    """Return the number of the newest migration: what this version reads and writes."""
    return migrations()[-1].number


def upgrade(dsn: str, *, roles: bool = False) -> list[int]:
    """Make the tables, or bring them up to this version; done twice it is harmless.

    All happens or nothing, and one at a time. It needs a user who may create a schema, the
    extension `vector` unless that is there, and roles if these are to be made.

    Args:
        dsn: How the database is reached.
        roles: Whether to make `toolrag_reader` and `toolrag_writer` too, and let them do what
            each has to.

    Returns:
        The numbers of the migrations that were applied.

    Raises:
        DatabaseError: If it cannot be reached, its tables are a newer version's, or the user may
            not change them.
    """
    parameters = parameters_of(dsn, _TIMEOUT)
    name = shown(parameters)
    with translated(name, lacking=_LACKING), Connection.connect(**parameters) as connection:
        connection.execute(_ONE_AT_A_TIME)
        found = _found(connection)
        _refuse_newer(found, name)
        if not found:
            connection.execute(_BEGINNING)
        missing = [each for each in migrations() if each.number > found]
        for migration in missing:
            _apply(migration, connection)
        for file in _ROLES if roles else ():
            connection.execute((_FOLDER / file).read_bytes())
    return [migration.number for migration in missing]


def refuse_old(database: Database) -> None:
    """Raise unless the tables are those that this version reads and writes.

    Args:
        database: The database.

    Raises:
        DatabaseError: If it has no tables, an older or a newer version's, or cannot be reached.
    """
    with database.read() as connection:
        found = _found(connection)
    _refuse_newer(found, database.name)
    if found < required_version():
        raise DatabaseError(
            database.name,
            f"has tables of version {found or 'none'}, this langchain-toolrag needs version "
            f"{required_version()}: run `toolrag db upgrade --database DSN`",
        )


def _found(connection: SyncConnection) -> int:
    """Return the number of the newest migration that was applied; 0 for none."""
    row = connection.execute("select to_regclass('toolrag.migrations') is not null").fetchone()
    if row is None or not row[0]:
        return 0
    newest = connection.execute("select max(number) from toolrag.migrations").fetchone()
    return int(newest[0] or 0) if newest else 0


def _refuse_newer(found: int, database: str) -> None:
    if found > required_version():
        raise DatabaseError(
            database,
            f"has tables of version {found}, this langchain-toolrag knows up to "
            f"{required_version()}: upgrade langchain-toolrag",
        )


def _apply(migration: Migration, connection: SyncConnection) -> None:
    connection.execute(migration.statements.encode())
    connection.execute(
        "insert into toolrag.migrations (number, name) values (%s, %s)",
        [migration.number, migration.name],
    )
