"""psycopg's errors in -> ours, which say what to do, out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors
from psycopg_pool import PoolTimeout

from langchain_toolrag.errors import DatabaseError

FOR_USE = (
    "grant it toolrag_writer, or toolrag_reader to search only; `toolrag db upgrade --roles` makes "
    "these roles"
)
"""What a user needs who may not read or write tools."""

_NOT_SET_UP = (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn)


@contextmanager
def translated(database: str, *, lacking: str = FOR_USE) -> Iterator[None]:
    """Raise psycopg's errors as ours.

    Args:
        database: Which database, without its password.
        lacking: What to do where the user may not do what is asked.

    Yields:
        Nothing.

    Raises:
        DatabaseError: In place of an error of psycopg.
    """
    try:
        yield
    except psycopg.Error as error:
        raise DatabaseError(database, problem_of(error, lacking)) from error


def problem_of(error: psycopg.Error, lacking: str = FOR_USE) -> str:
    """Return what an error means for somebody who runs this, and what to do.

    Args:
        error: The error.
        lacking: What to do where the user may not do what is asked.

    Returns:
        What follows "the database (...)" in a DatabaseError.
    """
    said = " ".join(str(error).split()) or type(error).__name__
    # pgvector's library has no code for it: without the tables the extension is missing, too.
    if isinstance(error, _NOT_SET_UP) or "vector type not found" in said:
        return f"is not set up ({said}): run `toolrag db upgrade --database DSN`"
    if isinstance(error, errors.InsufficientPrivilege):
        return f"does not let this user do that ({said}): {lacking}"
    if isinstance(error, PoolTimeout):  # Raised only where connecting past the pool succeeds.
        return (
            f"is there, but all connections that this process may have are in use ({said}): give "
            "more by `pool_size`, or more time by `timeout`"
        )
    # One without a code is the connection's; the server's own answer is quoted in it.
    if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
        is_answer = "FATAL:" in said
        return f"{'refuses the connection' if is_answer else 'cannot be reached'}: {said}"
    return f"failed: {said}"
