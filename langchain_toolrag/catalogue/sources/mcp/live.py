"""The servers of a MultiServerMCPClient in -> their tools, and their tools as they change, out."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, cast

from langchain_core.tools import BaseTool
from langchain_mcp_adapters.callbacks import CallbackContext
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.sessions import create_session
from langchain_mcp_adapters.tools import convert_mcp_tool_to_langchain_tool
from mcp import ClientSession
from mcp.shared.session import ProgressFnT
from mcp.types import CallToolResult, ServerNotification, ToolListChangedNotification

from langchain_toolrag.catalogue.sources.background_loop import BackgroundLoop
from langchain_toolrag.catalogue.sources.mcp.client import (
    McpTools,
    failure_of,
    list_each,
    of_server,
)
from langchain_toolrag.catalogue.sources.mcp.listing import listed_tools
from langchain_toolrag.catalogue.sources.mcp.sessions import KeptSession, Opened, call_once
from langchain_toolrag.fork import reset_after_fork

logger = logging.getLogger(__name__)

Changed: TypeAlias = Callable[[str, list[BaseTool] | str], None]
"""Told a server's name, and its tools or why they could not be listed."""

_LIST_SECONDS = 60.0
_CLOSE_SECONDS = 15


class LiveServers:
    """A session with every server of a client, kept open to hear when its tools change.

    The sessions are on an event loop on a thread of their own. Tools are called over them, so
    that a tool that changes which tools there are is heard; where the client has interceptors,
    which may change headers, each call opens a session of its own as the client's tools do.

    Args:
        client: The client; its connections and callbacks are read once.
        debounce: How long to wait for further changes of a server, in seconds.
    """

    def __init__(self, client: MultiServerMCPClient, debounce: float) -> None:
        self._client = client
        self._debounce = debounce
        self._changed: Changed | None = None
        self._missed: set[str] = set()
        self._loop = BackgroundLoop("toolrag-mcp")
        self.after_fork()
        reset_after_fork(self)

    async def list_all(self) -> McpTools:
        """List the tools of all servers at once.

        Returns:
            The tools, server by server, and why the others failed.
        """
        return await self._loop.run(list_each(list(self._sessions), self._list))

    def watch(self, changed: Changed) -> None:
        """Have changes told from now on, those since the listing included.

        Args:
            changed: Is told; on another thread, one change of a server at a time.
        """
        self._loop.submit(self._watch(changed))

    def close(self) -> None:
        """End all sessions."""
        self._changed = None
        self._loop.wait(self._end())
        self._loop.close()

    def after_fork(self) -> None:
        """Forget sessions, which are the parent process's."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._refreshing: set[asyncio.Task[None]] = set()
        self._sessions = {
            server: KeptSession(server, functools.partial(self._connect, server))
            for server in self._client.connections
        }
        self._turns = {server: asyncio.Lock() for server in self._sessions}

    async def _watch(self, changed: Changed) -> None:
        self._changed = changed
        for server in self._missed:
            self._begin(server)

    async def _list(self, server: str) -> list[BaseTool]:
        client, session = self._client, self._sessions[server]
        over = (
            None if client.tool_interceptors else cast(ClientSession, _Relay(session, self._loop))
        )
        return [
            of_server(
                convert_mcp_tool_to_langchain_tool(
                    over,
                    tool,
                    connection=client.connections[server],
                    callbacks=client.callbacks,
                    tool_interceptors=client.tool_interceptors,
                    server_name=server,
                    tool_name_prefix=client.tool_name_prefix,
                    handle_tool_errors=client.handle_tool_errors,
                ),
                server,
            )
            for tool in await listed_tools(session, _LIST_SECONDS)
        ]

    @asynccontextmanager
    async def _connect(self, server: str) -> AsyncIterator[Opened]:
        """Open a session as the client does, and listen to it."""
        client = self._client
        connection: dict[str, Any] = {**client.connections[server]}
        given: Mapping[str, Any] = connection.get("session_kwargs") or {}
        others = given.get("message_handler")

        async def handle(message: Any) -> None:
            if isinstance(message, ServerNotification) and isinstance(
                message.root, ToolListChangedNotification
            ):
                self._schedule(server)
            if others is not None:
                await others(message)

        connection["session_kwargs"] = {**given, "message_handler": handle}
        callbacks = client.callbacks.to_mcp_format(context=CallbackContext(server_name=server))
        opening = create_session(connection, mcp_callbacks=callbacks)  # type: ignore[arg-type]
        async with opening as session:
            yield Opened(session)

    def _schedule(self, server: str) -> None:
        """List a server again once no further change comes for a while."""
        pending = self._timers.pop(server, None)
        if pending is not None:
            pending.cancel()
        loop = asyncio.get_running_loop()
        self._timers[server] = loop.call_later(self._debounce, self._begin, server)

    def _begin(self, server: str) -> None:
        task = asyncio.ensure_future(self._refresh(server))
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)

    async def _refresh(self, server: str) -> None:
        async with self._turns[server]:
            changed = self._changed
            if changed is None:
                self._missed.add(server)
                return
            self._missed.discard(server)
            try:
                news: list[BaseTool] | str = await self._list(server)
            # A server may fail in every way a subprocess or a network can.
            except Exception as error:
                news = failure_of(server, error)
            # Not on this thread: to embed tools takes time, and calls have to go on.
            await asyncio.to_thread(changed, server, news)

    async def _end(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        closing = [asyncio.ensure_future(session.close()) for session in self._sessions.values()]
        if closing:  # One that is being opened is cancelled with the loop.
            await asyncio.wait(closing, timeout=_CLOSE_SECONDS)


class _Relay:
    """What a tool calls in the place of a session: passes the call to the sessions' own loop."""

    def __init__(self, session: KeptSession, loop: BackgroundLoop) -> None:
        self._session = session
        self._loop = loop

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any],
        progress_callback: ProgressFnT | None = None,
    ) -> CallToolResult:
        request = functools.partial(
            call_once, name=name, arguments=arguments, progress_callback=progress_callback
        )
        return await self._loop.run(self._session.ask(request, None))
