"""The two tools that a server offers over MCP."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import CallToolResult, TextContent, Tool, ToolAnnotations
from pydantic_core import from_json, to_json
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from langchain_toolrag.caller import Caller
from langchain_toolrag.errors import UnknownToolError
from langchain_toolrag.integrations.search_answer import FRUITLESS_KEY, Known, answer
from langchain_toolrag.selection.conversation import LOADED_KEY
from langchain_toolrag.server.answers import BadRequestError, unforeseen
from langchain_toolrag.server.bodies import CallAnswer
from langchain_toolrag.server.callers import SESSION, session_of, tenant_of
from langchain_toolrag.server.calling import call
from langchain_toolrag.server.searching import BY_WORDS, Found, search
from langchain_toolrag.server.services import Services

SEARCH, CALL = "search_tools", "call_tool"

_DEFAULT_RESULTS, _MOST_RESULTS = 5, 20
_INSTRUCTIONS = f"Many tools are behind these two. Find one with {SEARCH}, then run it with {CALL}."
_SEARCH_DESCRIPTION = (
    f"Find tools by what they should do, in a few words. They are run with {CALL}. "
    "select:A,B finds tools by name; a server's name lists its tools; +word must occur in the "
    "tool's text. If two searches find nothing that fits, there is no such tool."
)
_CALL_DESCRIPTION = f"Run a tool that {SEARCH} found, with arguments after its inputSchema."
_WEAK = "No close match: these are the nearest, which may not do it."


def mcp_server(services: Services, session: str = "") -> Server[Any, Any]:
    """Return an MCP server with `search_tools` and `call_tool`.

    Args:
        services: What answers.
        session: Names the session of whoever does not ask over HTTP; empty for none.

    Returns:
        The server.
    """
    server: Server[Any, Any] = Server(
        "toolrag", version("langchain-toolrag"), instructions=_INSTRUCTIONS
    )

    async def listed() -> list[Tool]:
        return _tools(writes=services.options.allow_write)

    async def called(name: str, arguments: dict[str, Any]) -> CallToolResult:
        try:
            caller = _caller(server.request_context.request, session)
            if name == SEARCH:
                return await _search(services, caller, **arguments)
            if name == CALL:
                return await _call(services, caller, **arguments)
        except BadRequestError as error:
            return _told(str(error), failed=True)
        except Exception as error:  # The SDK would tell the caller its text.
            return _told(unforeseen(error, name), failed=True)
        return _told(f"there is no tool {name!r:.100}: there are {SEARCH} and {CALL}", failed=True)

    server.list_tools()(listed)  # type: ignore[no-untyped-call]
    server.call_tool()(called)
    return server


class MCPEndpoint:
    """Answers MCP over streamable HTTP; each request stands for itself, in JSON.

    A client is given a session to name, by which the usage log and the heads on trial know it
    again; nothing is kept of it here.

    Args:
        services: What answers.
    """

    def __init__(self, services: Services) -> None:
        self._manager = StreamableHTTPSessionManager(
            mcp_server(services),
            json_response=True,
            stateless=True,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI has it."""
        named = SESSION in Headers(scope=scope)
        await self._manager.handle_request(scope, receive, send if named else _giving_session(send))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take requests as long as this is open."""
        async with self._manager.run():
            yield


def _giving_session(send: Send) -> Send:
    """Answer with a new session's name."""

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)[SESSION] = uuid.uuid4().hex
        await send(message)

    return answer


def _caller(request: Any, session: str) -> Caller:
    """Return who asks; over standard input there is no HTTP request, and no tenant is named."""
    if not isinstance(request, Request):
        return Caller(session)
    return Caller(session_of(request.headers), tenant_of(request.headers))


def _tools(*, writes: bool) -> list[Tool]:
    text = {"type": "string"}
    query = {**text, "description": "What the tool should do, or its name."}
    results = {"type": "integer", "description": f"At most so many, 1 to {_MOST_RESULTS}."}
    found_by = {**text, "description": f"The search_id of the {SEARCH} that found it."}
    return [
        Tool(
            name=SEARCH,
            description=_SEARCH_DESCRIPTION,
            inputSchema=_schema(["query"], query=query, max_results=results),
            annotations=ToolAnnotations(readOnlyHint=True),
        ),
        Tool(
            name=CALL,
            description=_CALL_DESCRIPTION,
            inputSchema=_schema(
                ["name", "arguments"],
                name={**text, "description": "The tool's name."},
                arguments={"type": "object", "description": "What it takes."},
                search_id=found_by,
            ),
            annotations=ToolAnnotations(readOnlyHint=False, destructiveHint=writes),
        ),
    ]


def _schema(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


async def _search(
    services: Services, caller: Caller, query: str, max_results: int = _DEFAULT_RESULTS
) -> CallToolResult:
    # Models ask for 0, 1,000 or 5.0 as well.
    most = min(max(1, int(max_results)), _MOST_RESULTS)
    # A model that fails at half a character would be left alone for a while, for all callers.
    found = await search(services.serving, services.recorder, _encodable(query), most, caller)
    # Names that are like those that are not there: in a thread, as there may be many.
    return _told(await services.serving.in_thread(lambda: _as_text(query, found)))


def _as_text(query: str, found: Found) -> str:
    """Return what was found with what a call of it takes, or words that help to search on."""
    rag = found.served.rag
    known = Known(rag.catalogue.entries, unavailable=rag.status.unavailable)
    words, artifact = answer(query, found.finding, known)
    if not artifact[LOADED_KEY]:
        return words
    notes = [_WEAK] if artifact[FRUITLESS_KEY] else []
    notes += [BY_WORDS] if found.finding.degraded else []
    tools = [found.served.tools[identity] for identity in artifact[LOADED_KEY]]
    described = [
        {
            "name": found.served.names[tool.id],
            "description": tool.description,
            "inputSchema": tool.parameters,
        }
        for tool in tools
    ]
    told: dict[str, Any] = {"search_id": found.search_id, "tools": described}
    if found.finding.missing:
        told["missing"] = found.finding.missing
    if notes:
        told["note"] = " ".join(notes)
    return json.dumps(told, ensure_ascii=False)


async def _call(
    services: Services, caller: Caller, name: str, arguments: dict[str, Any], search_id: str = ""
) -> CallToolResult:
    try:
        result = await call(services, name, arguments, search_id=search_id, tenant=caller.tenant)
    except UnknownToolError as error:
        return _told(f"{error} Find tools with {SEARCH}.", failed=True)
    return _told(
        f"{result['content']}{_takes(result)}",
        structured=_passable(result.get("structured")),
        failed=result["outcome"] != "ok",
    )


def _takes(result: CallAnswer) -> str:
    """Return the schema of the arguments after an error, unless the error tells it already."""
    schema = result.get("inputSchema")
    if not schema or json.dumps(schema) in result["content"]:
        return ""
    return f"\nWhat it takes: {json.dumps(schema, ensure_ascii=False)}"


def _passable(structured: Any) -> dict[str, Any] | None:
    """Return a result if MCP has it: an object that can be written, and nested no deeper."""
    if not isinstance(structured, dict):
        return None
    try:
        passable: dict[str, Any] = from_json(to_json(structured))
    except ValueError:
        return None
    return passable


def _encodable(text: str) -> str:
    """Return text without halves of surrogate pairs, with which no answer could be written."""
    return text.encode("utf-8", "replace").decode()


def _told(
    text: str, *, structured: dict[str, Any] | None = None, failed: bool = False
) -> CallToolResult:
    content = TextContent(type="text", text=_encodable(text))
    return CallToolResult(content=[content], structuredContent=structured, isError=failed)
