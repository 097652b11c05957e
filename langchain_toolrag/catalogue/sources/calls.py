"""A stored tool and its arguments in -> one call of it, wherever it is, out."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import threading
import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain_core.tools import BaseTool
from mcp.shared.exceptions import McpError
from mcp.types import (
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from langchain_toolrag.catalogue.sources.background_loop import BackgroundLoop
from langchain_toolrag.catalogue.sources.mcp.connections import expanded
from langchain_toolrag.catalogue.sources.mcp.listing import connect
from langchain_toolrag.catalogue.sources.mcp.sessions import (
    OPEN_SECONDS,
    KeptSession,
    call_once,
    problem_of,
)
from langchain_toolrag.catalogue.sources.python_tools import own_tools
from langchain_toolrag.catalogue.sources.store import ToolStore
from langchain_toolrag.catalogue.sources.stored import CallResult, StoredSource, StoredTool
from langchain_toolrag.errors import SourceError, ToolRAGError
from langchain_toolrag.fork import reset_after_fork

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger(__name__)

MOST_BYTES = 1_000_000
"""How much of a result is kept, in bytes."""

_CLOSE_SECONDS = 15
_CLOSED = "the calls were closed before the answer came; it may have been carried out or not"


class SourceCalls:
    """Calls tools that were ingested, each once: nothing is tried again.

    Sessions with MCP servers are opened by the first call, kept, and opened again once they broke
    or the source changed. Everything runs on one event loop on a thread of its own, so that it
    may be called from any thread and any event loop, and after a fork.

    Args:
        sources: Where they were ingested into, or sources by name.
        environment: The variables that sources name as `${NAME}`.
        allow_write: Whether to call operations other than GET and HEAD, and MCP tools that say
            that they are destructive.
        timeout: How long a call may take, in seconds. Where a server has to be started for it, 30
            seconds more, or as long again.
        allow_private: Whether operations may be at private addresses that the document gives.
        most_bytes: How much of a result is kept, in bytes.
    """

    def __init__(
        self,
        sources: ToolStore | Mapping[str, StoredSource],
        *,
        environment: Mapping[str, str] = os.environ,
        allow_write: bool = True,
        timeout: float = 30.0,
        allow_private: bool = False,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._sources = sources
        self._environment = environment
        self._allow_write = allow_write
        self._timeout = timeout
        self._allow_private = allow_private
        self._most_bytes = most_bytes
        self._loop = BackgroundLoop("toolrag-calls")
        self._modules: dict[str, dict[str, BaseTool]] = {}
        self.after_fork()
        reset_after_fork(self)

    async def call(self, tool: StoredTool, arguments: Mapping[str, Any]) -> CallResult:
        """Call a tool.

        Args:
            tool: The tool.
            arguments: What to call it with.

        Returns:
            What it came to; a failure of any kind is told there, not raised.
        """
        return await self._loop.run(self._call(tool, arguments))

    def call_now(self, tool: StoredTool, arguments: Mapping[str, Any]) -> CallResult:
        """Return the same as `call`, blocking the caller's thread."""
        return self._loop.wait(self._call(tool, arguments))

    async def aclose(self) -> None:
        """End all sessions, without blocking the event loop; a later call opens new ones."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End all sessions; a later call opens new ones. Calls that are under way fail."""
        with self._closing:
            if self._sessions or self._client is not None:
                self._loop.wait(self._end())
            self._loop.close()

    def after_fork(self) -> None:
        """Forget sessions, which are the parent process's."""
        self._closing = threading.Lock()
        self._importing = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._sessions: dict[str, tuple[StoredSource, KeptSession]] = {}
        self._client: httpx.AsyncClient | None = None

    async def _call(self, tool: StoredTool, arguments: Mapping[str, Any]) -> CallResult:
        try:
            source = await self._source(tool.source)
            if source.kind == "mcp":
                result = await self._call_mcp(source, tool, arguments)
            elif source.kind == "openapi":
                result = await self._call_operation(source, tool, arguments)
            else:
                result = await self._call_python(source, tool, arguments)
        except ToolRAGError as error:
            return CallResult("tool_error", str(error))
        except asyncio.CancelledError:  # By `close`, or by a caller who does not see the result.
            return CallResult("tool_error", f"{tool.id}: {_CLOSED}")
        # A library may raise anything, in words that may hold a key.
        except Exception as error:
            problem, where = type(error).__name__, traceback.format_tb(error.__traceback__)
            logger.error("the call of %s failed with %s\n%s", tool.id, problem, "".join(where))
            return CallResult("tool_error", f"{tool.id}: the call failed ({problem})")
        return _capped(result, self._most_bytes)

    async def _source(self, name: str) -> StoredSource:
        given = self._sources
        sources = given if isinstance(given, Mapping) else await asyncio.to_thread(given.sources)
        if name not in sources:
            raise SourceError(name, f"is no source; there are {', '.join(sources) or 'none'}")
        return sources[name]

    async def _call_mcp(
        self, source: StoredSource, tool: StoredTool, arguments: Mapping[str, Any]
    ) -> CallResult:
        if not self._allow_write and _is_destructive(tool):
            return CallResult(
                "refused",
                f"{tool.id} says that it is destructive, and such tools are not called here "
                "unless writing is allowed (--allow-write, allow_write=True)",
            )
        session = await self._session(source)
        request = functools.partial(call_once, name=tool.name, arguments=dict(arguments))
        try:
            return _result_of(await session.ask(request, self._timeout))
        except (TimeoutError, asyncio.TimeoutError) as error:  # Two kinds in Python 3.10.
            return CallResult("timeout", f"{tool.id}: {error}")
        except ToolRAGError:
            raise
        except (OSError, McpError, ValueError) as error:
            return CallResult("tool_error", f"{tool.id}: {problem_of(error)}")

    async def _session(self, source: StoredSource) -> KeptSession:
        """Return the session with a source; one for how it was reached before is left."""
        known = self._sessions.get(source.name)
        if known is not None and _is_reached_alike(known[0], source):
            return known[1]
        opener = functools.partial(connect, source, self._environment)
        session = KeptSession(source.name, opener, open_seconds=max(self._timeout, OPEN_SECONDS))
        self._sessions[source.name] = source, session
        if known is not None:
            await known[1].close()
        return session

    async def _call_operation(
        self, source: StoredSource, tool: StoredTool, arguments: Mapping[str, Any]
    ) -> CallResult:
        # Reads OpenAPI documents, which whoever calls no operation need not have the parts for.
        from langchain_toolrag.catalogue.sources.openapi.calls import (
            call_operation,
            operations_client,
        )

        if self._client is None:
            self._client = operations_client()
        return await call_operation(
            self._client,
            source,
            tool,
            arguments,
            headers=self._filled(source, "headers"),
            query=self._filled(source, "query"),
            timeout=self._timeout,
            allow_write=self._allow_write,
            allow_private=self._allow_private,
            most_bytes=self._most_bytes,
        )

    def _filled(self, source: StoredSource, key: str) -> dict[str, str]:
        """Return the values of a source's templates, without those whose variable is not set."""
        filled: dict[str, str] = {}
        for name, template in source.connection.get(key, {}).items():
            try:
                filled[name] = expanded(template, self._environment, where=name)
            except SourceError:  # Not every operation needs it; the answer of one that does says.
                continue
        return filled

    async def _call_python(
        self, source: StoredSource, tool: StoredTool, arguments: Mapping[str, Any]
    ) -> CallResult:
        own = (await asyncio.to_thread(self._module, source)).get(tool.name)
        if own is None:
            raise SourceError(source.origin, f"has no tool {tool.name!r} any more: ingest it again")
        # Not `wait_for`, whose error a tool can raise itself.
        running = asyncio.ensure_future(_answer(own, arguments))
        try:
            done, _ = await asyncio.wait({running}, timeout=self._timeout)
            if done:
                return running.result()
            return CallResult("timeout", f"{tool.id}: no answer within {self._timeout:g} seconds")
        # The user's tool may raise anything.
        except Exception as error:
            return CallResult("tool_error", f"{tool.id}: {type(error).__name__}: {error}")
        finally:
            running.cancel()

    def _module(self, source: StoredSource) -> dict[str, BaseTool]:
        """Return the tools of a module, which is imported once."""
        with self._importing:
            if source.origin not in self._modules:
                self._modules[source.origin] = own_tools(source)
            return self._modules[source.origin]

    async def _end(self) -> None:
        sessions, client = list(self._sessions.values()), self._client
        self._forget()
        closing = [asyncio.ensure_future(session.close()) for _, session in sessions]
        if closing:  # One that is being opened is cancelled with the loop.
            await asyncio.wait(closing, timeout=_CLOSE_SECONDS)
        if client is not None:
            await client.aclose()


def _is_destructive(tool: StoredTool) -> bool:
    """Whether a tool says so; what only reads is not, whatever else it says."""
    says = tool.annotations
    return says.get("destructiveHint") is True and says.get("readOnlyHint") is not True


def _is_reached_alike(one: StoredSource, other: StoredSource) -> bool:
    return (one.connection, one.config) == (other.connection, other.config)


async def _answer(tool: BaseTool, arguments: Mapping[str, Any]) -> CallResult:
    """Run a tool as for a model: with an artifact, and with its errors as text where it says so."""
    call = {"name": tool.name, "args": dict(arguments), "id": "call", "type": "tool_call"}
    message = await tool.ainvoke(call)
    failed = getattr(message, "status", "") == "error"
    content = getattr(message, "content", message)
    return CallResult(
        "tool_error" if failed else "ok",
        content if isinstance(content, str) else str(content),
        getattr(message, "artifact", None),
    )


def _result_of(result: CallToolResult) -> CallResult:
    text = "\n".join(_text_of(block) for block in result.content)
    return CallResult("tool_error" if result.isError else "ok", text, result.structuredContent)


def _text_of(block: ContentBlock) -> str:
    """Return a block of a result as text; what is none is named by its kind and size."""
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ResourceLink):
        return f"[resource {block.uri}]"
    if isinstance(block, EmbeddedResource):
        resource = block.resource
        if isinstance(resource, TextResourceContents):
            return resource.text
        return f"[{resource.mimeType or 'data'}, {_size(resource.blob)} bytes]"
    return f"[{block.mimeType}, {_size(block.data)} bytes]"


def _size(base64: str) -> int:
    return len(base64) * 3 // 4 - base64.count("=")


def _capped(result: CallResult, most_bytes: int) -> CallResult:
    """Cut what is too long; the structured form is left out then, as half of it is no JSON."""
    if not _is_json_within(most_bytes, result.structured):
        result = replace(result, structured=None)
    written = result.content.encode("utf-8", "replace")
    if len(written) <= most_bytes:
        return result
    kept = written[:most_bytes].decode("utf-8", "ignore")
    note = f"\n[cut: {len(written):,} bytes, {most_bytes:,} are kept]"
    return replace(result, content=kept + note, structured=None)


def _is_json_within(most_bytes: int, structured: Any) -> bool:
    """Whether it is JSON and not too long; the artifact of a tool of a module can be anything."""
    try:
        return structured is None or len(json.dumps(structured)) <= most_bytes
    except (TypeError, ValueError, RecursionError):
        return False
