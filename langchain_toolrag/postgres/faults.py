"""psycopg's errors in -> ours, which say what to do, out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from langchain_toolrag.errors import DatabaseError

_NOT_SET_UP = (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn)


@contextmanager
def translated(database: str) -> Iterator[None]:
    """Raise psycopg's errors as ours.

    Args:
        database: Which database, without its password.

    Yields:
        Nothing.

    Raises:
        DatabaseError: In place of an error of psycopg.
    """
    try:
        yield
    except psycopg.Error as error:
        raise DatabaseError(database, problem_of(error)) from error


def problem_of(error: psycopg.Error) -> str:
    """Return what an error means for somebody who runs this, and what to do."""
    said = " ".join(str(error).split()) or type(error).__name__
    # pgvector's library has no code for it: without the tables the extension is missing, too.
    if isinstance(error, _NOT_SET_UP) or "vector type not found" in said:
        return f"is not set up ({said}): run `toolrag db upgrade --database DSN`"
    if isinstance(error, errors.InsufficientPrivilege):
        return (
            f"does not let this user do that ({said}): grant it toolrag_writer, or toolrag_reader "
            "to search only; `toolrag db upgrade --roles` makes these roles"
        )
    # One without a code is the connection's, not the server's answer.
    if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
        return f"cannot be reached: {said}"
    return f"failed: {said}"
