"""A way to connect in -> a session with an MCP server, opened when needed and kept, out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import anyio
import httpx
from mcp import ClientSession
from mcp.shared.exceptions import McpError
from mcp.shared.session import ProgressFnT
from mcp.types import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ClientRequest,
    PaginatedRequestParams,
    Tool,
)

from langchain_toolrag.errors import SourceError

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")

OPEN_SECONDS = 30.0
"""How long a server may take to start and to introduce itself, in seconds."""

_CLOSE_SECONDS = 10
_MAX_PAGES = 1000
# What the SDK makes of a stream that ended, and of HTTP 404.
_CLOSED = (CONNECTION_CLOSED, "Connection closed")
_UNKNOWN = (32600, "Session terminated")
_LOST = (
    "the session with the server ended before the answer came, so the call may have been carried "
    "out or not; another call opens a new session"
)
_FORGOTTEN = (
    "the server does not know the session any more, as after it was started anew, and did not "
    "carry the call out; another call opens a new session"
)


@dataclass(frozen=True, slots=True)
class Opened:
    """A session that is open, but not initialised.

    Attributes:
        session: The session.
        ended: Returns whether the server is known to be gone.
        last_words: Returns what the server has written to its error stream last.
    """

    session: ClientSession
    ended: Callable[[], bool] = lambda: False
    last_words: Callable[[], str] = str


Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[Opened]]
"""Opens a session."""


class KeptSession:
    """A session with one server, opened by the first request and again after it broke.

    Everything runs on the event loop of the first request. A session is opened and closed by a
    task of its own: the SDK's contexts must be left in the task that entered them.

    Args:
        name: The server's name, for messages.
        connect: Opens a session.
        open_seconds: How long the server may take to start.
    """

    def __init__(self, name: str, connect: Connect, *, open_seconds: float = OPEN_SECONDS) -> None:
        self.name = name
        self._connect = connect
        self._open_seconds = open_seconds
        self._opening = asyncio.Lock()
        self._leaving = asyncio.Event()
        self._opened: Opened | None = None
        self._owner: asyncio.Task[None] | None = None
        self._failure: SourceError | None = None
        self._given_up: set[asyncio.Task[None]] = set()

    async def ask(
        self, request: Callable[[ClientSession], Awaitable[AnswerT]], seconds: float | None
    ) -> AnswerT:
        """Send a request, once.

        Args:
            request: Sends it over a session and returns the answer.
            seconds: How long the answer may take, the opening of the session not counted; None
                for as long as it takes.

        Returns:
            The answer.

        Raises:
            SourceError: If no session can be opened; nothing was sent then.
            TimeoutError: If the answer does not come in time.
            ConnectionError: If the session ends before it comes; the next request opens another.
            McpError: If the server answers with an error.
        """
        opened, owner = await self._current()
        asked = asyncio.ensure_future(request(opened.session))
        try:
            waiting = {asked, owner}
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done() and not owner.done():
                raise TimeoutError(f"no answer within {seconds:g} seconds")
            if not asked.done():
                self._log_last_words(opened)
                raise ConnectionError(_LOST)
            return asked.result()
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            await self._drop(opened)
            raise ConnectionError(_LOST) from error
        except McpError as error:
            told = (error.error.code, error.error.message)
            if told not in (_CLOSED, _UNKNOWN):
                raise
            await self._drop(opened)
            raise ConnectionError(_LOST if told == _CLOSED else _FORGOTTEN) from error
        finally:
            asked.cancel()

    async def close(self) -> None:
        """End the session; a later request opens another."""
        async with self._opening:
            await self._leave()
            await _ended(self._given_up)

    async def _current(self) -> tuple[Opened, asyncio.Task[None]]:
        known = self._failure
        async with self._opening:
            if self._failure not in (None, known):  # While this request waited for its turn.
                raise self._failure
            if self._opened and self._owner and self._is_alive(self._opened, self._owner):
                return self._opened, self._owner
            await self._leave()
            try:
                opened = await self._open()
            except SourceError as error:
                self._failure = error
                raise
            self._failure = None
            return opened

    @staticmethod
    def _is_alive(opened: Opened, owner: asyncio.Task[None]) -> bool:
        return not owner.done() and not opened.ended()

    async def _open(self) -> tuple[Opened, asyncio.Task[None]]:
        ready: asyncio.Future[Opened] = asyncio.get_running_loop().create_future()
        self._leaving = asyncio.Event()
        owner = asyncio.create_task(self._own(ready, self._leaving))
        try:
            opened = await asyncio.wait_for(ready, self._open_seconds)
        except asyncio.TimeoutError as error:
            self._give_up(owner)
            raise SourceError(
                self.name, f"did not answer within {self._open_seconds:g} seconds of its start"
            ) from error
        except BaseException:
            self._give_up(owner)
            raise
        self._opened, self._owner = opened, owner
        return opened, owner

    def _give_up(self, owner: asyncio.Task[None]) -> None:
        """Have a session ended that did not open; a server that is started takes a while to end."""
        owner.cancel()
        self._given_up.add(owner)
        owner.add_done_callback(self._given_up.discard)

    async def _own(self, ready: asyncio.Future[Opened], leaving: asyncio.Event) -> None:
        """Open a session, hand it over, and close it when it is to be left."""
        opened: Opened | None = None
        failure: BaseException = ConnectionError("it was stopped")
        try:
            async with self._connect() as opened:
                await opened.session.initialize()
                if not ready.done():
                    ready.set_result(opened)
                await leaving.wait()
        # A server may fail in every way a subprocess or a network can.
        except Exception as error:
            logger.debug("the session with %r ended", self.name, exc_info=True)
            failure = error
        finally:
            if not ready.done():
                self._log_last_words(opened)
                ready.set_exception(_unopened(self.name, failure))

    def _log_last_words(self, opened: Opened | None) -> None:
        """Log what a server wrote before it ended; not told otherwise, it may hold secrets."""
        words = opened.last_words() if opened is not None else ""
        if words:
            logger.warning("the MCP server %r ended; it wrote: %s", self.name, words)

    async def _drop(self, opened: Opened) -> None:
        """Leave a session that broke, unless another request has done so."""
        async with self._opening:
            if self._opened is opened:
                await self._leave()
                self._log_last_words(opened)

    async def _leave(self) -> None:
        owner, self._owner, self._opened = self._owner, None, None
        self._leaving.set()
        await _ended({owner} if owner is not None else set())


async def _ended(owners: set[asyncio.Task[None]]) -> None:
    """Wait until sessions are closed, and cancel what takes too long."""
    _, late = await asyncio.wait(owners, timeout=_CLOSE_SECONDS) if owners else ((), ())
    for task in late:
        task.cancel()


async def list_all(session: ClientSession) -> list[Tool]:
    """List the tools of a server, page by page.

    Args:
        session: A session with it.

    Returns:
        The tools, in its order.

    Raises:
        ValueError: If its pages have no end.
        McpError: If it answers with an error.
    """
    tools: list[Tool] = []
    seen: set[str] = set()
    params = None
    while len(seen) < _MAX_PAGES:
        page = await session.list_tools(params=params)
        tools += page.tools
        if not page.nextCursor:
            return tools
        if page.nextCursor in seen:
            raise ValueError(f"its list of tools comes back to the page {page.nextCursor!r:.80}")
        seen.add(page.nextCursor)
        params = PaginatedRequestParams(cursor=page.nextCursor)
    raise ValueError(f"its list of tools has more than {_MAX_PAGES} pages")


async def call_once(
    session: ClientSession,
    name: str,
    arguments: dict[str, Any],
    progress_callback: ProgressFnT | None = None,
) -> CallToolResult:
    """Call a tool.

    Not by the session's `call_tool`, which lists the tools once more to check a result against
    its schema, and makes an error of a call that has been carried out.

    Args:
        session: A session with the tool's server.
        name: The tool's name there.
        arguments: What to call it with.
        progress_callback: Called as the server reports progress.

    Returns:
        What the server says.

    Raises:
        McpError: If it answers with an error.
    """
    request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
    return await session.send_request(
        ClientRequest(request), CallToolResult, progress_callback=progress_callback
    )


def problem_of(error: BaseException) -> str:
    """Return what is behind an error of a session, without addresses, which may hold secrets."""
    inner = getattr(error, "exceptions", None)  # An ExceptionGroup, which Python 3.10 has not.
    if inner:
        return problem_of(inner[0])
    if isinstance(error, httpx.HTTPStatusError):
        return f"HTTP {error.response.status_code} {error.response.reason_phrase}".rstrip()
    if isinstance(error, McpError) and error.error.message == _UNKNOWN[1]:
        return "there is no MCP server at this address (HTTP 404)"
    if isinstance(error, FileNotFoundError):
        return f"no such file or command: {error.filename}"
    if isinstance(error, McpError):
        return error.error.message
    if isinstance(error, ConnectionError) and error.errno is None:  # One of ours.
        return str(error)
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _unopened(name: str, error: BaseException) -> SourceError:
    if isinstance(error, SourceError):
        return error
    return SourceError(name, f"did not start: {problem_of(error)}")
