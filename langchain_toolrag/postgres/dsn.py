"""A DSN in -> what psycopg connects with, and what may be shown of it, out."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from langchain_toolrag.errors import DatabaseError

_SHOWN = ("service", "host", "hostaddr", "port", "dbname", "user")
_URI = re.compile(r"postgres(ql)?://", re.ASCII)
_LEAST_SECONDS = 2  # What libpq takes a shorter time for.


def parameters_of(dsn: str, timeout: float) -> dict[str, Any]:
    """Return what to connect with.

    A server that is gone without a word is noticed after the time-out, or after a minute of
    silence; what the DSN says itself counts.

    Args:
        dsn: `postgresql://user@host/name`, or `key=value` pairs.
        timeout: How long connecting may take, in seconds; at least 2 are given.

    Returns:
        Keyword arguments of psycopg's `connect`.

    Raises:
        DatabaseError: If the DSN cannot be read.
    """
    given = _given(dsn)
    if given is None:  # What is wrong is not quoted: it may be a part of the password.
        raise DatabaseError(
            "unknown",
            "cannot be connected to: its DSN cannot be read; wanted "
            "postgresql://USER@HOST:PORT/NAME, with what is not a letter or digit in a password "
            "written as %XX, or key=value pairs",
        )
    return {
        "application_name": "langchain-toolrag",
        "connect_timeout": max(_LEAST_SECONDS, math.ceil(timeout)),
        "tcp_user_timeout": math.ceil(timeout * 1000),
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        **given,
        "client_encoding": "utf8",
    }


def shown(parameters: Mapping[str, Any]) -> str:
    """Return which database it is, as whom: `host=... dbname=... user=...`, without secrets."""
    said = {key: parameters[key] for key in _SHOWN if parameters.get(key)}
    return make_conninfo(**said) or "that of the environment"


def _given(dsn: str) -> dict[str, Any] | None:
    """Return what a DSN says; None if it cannot be read, or would be read as another one."""
    if "\0" in dsn or _has_bare_password(dsn):
        return None
    try:
        given = conninfo_to_dict(dsn)
        for host in str(given.get("host", "")).split(","):
            if not host.startswith(("/", "@")):  # A folder of sockets, or an abstract one.
                host.encode("idna")  # As it will be when the name is looked up.
    except (psycopg.ProgrammingError, UnicodeError):
        return None
    return given


def _has_bare_password(dsn: str) -> bool:
    """Whether a URI has a `@` or `/` in its password, the rest of which passed for a host."""
    scheme = _URI.match(dsn)
    if scheme is None:
        return False
    before_query, _, _ = dsn[scheme.end() :].partition("?")
    authority, _, name = before_query.partition("/")
    return "@" in name or authority.count("@") > 1
