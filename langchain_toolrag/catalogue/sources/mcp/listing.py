"""Sources of MCP servers in -> what each lists, or why it does not, out."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from mcp.types import Tool

from langchain_toolrag.catalogue.sources.background_loop import BackgroundLoop
from langchain_toolrag.catalogue.sources.directory import now
from langchain_toolrag.catalogue.sources.mcp.connections import connection_of
from langchain_toolrag.catalogue.sources.mcp.sessions import (
    KeptSession,
    Opened,
    list_all,
    problem_of,
)
from langchain_toolrag.catalogue.sources.mcp.transports import open_connection
from langchain_toolrag.catalogue.sources.merging import repeated
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool
from langchain_toolrag.errors import SourceError


def list_sources(
    sources: Sequence[StoredSource],
    environment: Mapping[str, str],
    *,
    timeout: float,
    listed: Callable[[Listing], None] = lambda _: None,
) -> list[Listing]:
    """List the tools of MCP servers, of all at once.

    Args:
        sources: The servers.
        environment: The variables that their connections name.
        timeout: How long a server may take to start, and again to list its tools, in seconds.
        listed: Called with each listing when it is there, on another thread.

    Returns:
        A listing a server, in their order. One that fails says why.
    """

    async def run() -> list[Listing]:
        return list(await asyncio.gather(*map(list_one, sources)))

    async def list_one(source: StoredSource) -> Listing:
        listing = await _listing(source, environment, timeout)
        listed(listing)
        return listing

    loop = BackgroundLoop("toolrag-listing")
    try:
        return loop.wait(run())
    finally:
        loop.close()


def connect(
    source: StoredSource, environment: Mapping[str, str]
) -> AbstractAsyncContextManager[Opened]:
    """Open a session with a source.

    Args:
        source: The source.
        environment: The variables that its connection names.

    Returns:
        The session, open inside the context.

    Raises:
        SourceError: If its connection cannot be made out.
    """
    return open_connection(connection_of(source, environment))


async def listed_tools(session: KeptSession, timeout: float) -> list[Tool]:
    """List a server's tools.

    Args:
        session: A session with it.
        timeout: How long that may take, in seconds.

    Returns:
        Its tools.

    Raises:
        SourceError: If that fails, or two tools have one name.
    """
    try:
        tools = await session.ask(list_all, timeout)
    except SourceError:
        raise
    # A server may fail in every way a subprocess or a network can.
    except Exception as error:
        raise SourceError(
            session.name, f"its tools cannot be listed: {problem_of(error)}"
        ) from error
    twice = repeated([tool.name for tool in tools])
    if twice is not None:
        raise SourceError(
            session.name, f"lists the tool {twice!r} twice; one of them has to be renamed there"
        )
    return tools


def stored_tool(source: str, tool: Tool) -> StoredTool:
    """Return what is stored of a tool of a server.

    Args:
        source: The server's name.
        tool: The tool as listed.

    Returns:
        The tool. Its annotations hold its title, and its `_meta` where it has one.
    """
    annotations = tool.annotations.model_dump(exclude_none=True) if tool.annotations else {}
    if tool.title:
        annotations["title"] = tool.title
    if tool.meta:
        annotations["_meta"] = tool.meta
    return StoredTool(
        id=f"{source}/{tool.name}",
        source=source,
        kind="mcp",
        name=tool.name,
        description=tool.description or "",
        parameters=tool.inputSchema,
        annotations=annotations,
    )


async def _listing(source: StoredSource, environment: Mapping[str, str], timeout: float) -> Listing:
    opener = functools.partial(connect, source, environment)
    session = KeptSession(source.name, opener, open_seconds=timeout)
    try:
        tools = await listed_tools(session, timeout)
    except SourceError as error:
        return Listing(source, failure=str(error).removeprefix(f"{source.name}: "))
    finally:
        await session.close()
    listed = replace(source, listed_at=now(), tools=len(tools))
    return Listing(listed, [stored_tool(source.name, tool) for tool in tools])
