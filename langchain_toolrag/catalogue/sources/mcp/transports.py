"""A connection in -> an open session over stdio, streamable HTTP or SSE out."""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
from langchain_mcp_adapters.sessions import create_session
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared._httpx_utils import create_mcp_http_client

from langchain_toolrag.catalogue.sources.mcp.sessions import Opened

logger = logging.getLogger(__name__)

_LAST_LINES = 3
_LINE = 300  # Characters.


@asynccontextmanager
async def open_connection(connection: Mapping[str, Any]) -> AsyncIterator[Opened]:
    """Open a session.

    Args:
        connection: What `connection_of` returns.

    Yields:
        The session. Over stdio, what the server writes to its error stream is logged at DEBUG.
    """
    if connection["transport"] == "stdio":
        async with _over_stdio(connection) as opened:
            yield opened
    else:
        given = {**connection, "httpx_client_factory": _http_client}
        async with create_session(given) as session:  # type: ignore[arg-type]
            yield Opened(session)


def _http_client(
    headers: dict[str, str] | None = None,
    timeout: httpx.Timeout | None = None,
    auth: httpx.Auth | None = None,
) -> httpx.AsyncClient:
    """Return the SDK's client; older ones would take headers along wherever a server redirects."""
    client = create_mcp_http_client(headers, timeout, auth)
    client.follow_redirects = False
    return client


@asynccontextmanager
async def _over_stdio(connection: Mapping[str, Any]) -> AsyncIterator[Opened]:
    """Start a server, keep its error stream out of ours, and notice when it is gone."""
    given = {key: value for key, value in connection.items() if key != "transport"}
    with _ErrorStream() as errors:
        async with (
            stdio_client(StdioServerParameters(**given), errlog=errors.file) as (read, write),
            ClientSession(read, write) as session,
        ):
            yield Opened(
                session,
                ended=lambda: read.statistics().open_send_streams == 0,
                last_words=errors.last_words,
            )


class _ErrorStream:
    """The error stream of a subprocess: its last lines are remembered."""

    def __init__(self) -> None:
        read, write = os.pipe()
        self.file = os.fdopen(write, "w")
        self._lines: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        self._reader = threading.Thread(target=self._read, args=[read], daemon=True)

    def __enter__(self) -> _ErrorStream:
        self._reader.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def last_words(self) -> str:
        """Return the last lines, once a server that ended has had its say."""
        with contextlib.suppress(OSError):
            self.file.close()
        self._reader.join(0.2)
        return " / ".join(self._lines)

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                if line.strip():
                    logger.debug("an MCP server wrote: %s", line.rstrip())
                    self._lines.append(line.strip()[:_LINE])
