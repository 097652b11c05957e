"""A model's tool call in -> the tool that is run for it, or a short refusal, out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import Literal, Protocol, TypeAlias

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from langchain_toolrag.caller import caller_of
from langchain_toolrag.catalogue.catalogue import Catalogue, Entry
from langchain_toolrag.integrations.call_log import CallLog, OpenCall, ShownBy
from langchain_toolrag.integrations.memory import bound_ids, read
from langchain_toolrag.integrations.permissions import RuntimeFilter, filter_of
from langchain_toolrag.search.finding import closest_names
from langchain_toolrag.selection.bindable import as_filter
from langchain_toolrag.selection.conversation import LOADED_KEY
from langchain_toolrag.usage.log import UsageLog

Result: TypeAlias = "ToolMessage | Command[object]"
"""What running a tool call comes to."""

UnknownTool: TypeAlias = Literal["run", "suggest"]
"""What is done with a call of a tool that exists but was not bound: run it, or bind it from the
next step on and ask the model to call it again, now that it sees the arguments."""

_CLOSEST = 3  # Names offered to a model that called a tool that is not there.
_SHOWN_NAME = 64  # Characters of such a call's name that are repeated.
_LONGEST = 299  # Characters of an answer to such a call.


class Toolbox(Protocol):
    """Whose tools are run."""

    def catalogue_now(self) -> Catalogue:
        """Return the tools as they are now."""

    def executable(self, request: ToolCallRequest, entry: Entry | None) -> BaseTool | None:
        """Return the tool to run for a call; None for none."""


class ToolGate:
    """Stands between a `ToolNode` and its tools.

    It runs a tool that is bound under another name than its own, or that came after the agent
    was made; refuses one that the caller may not use; and answers a call of a tool that is not
    there in a few words, where LangGraph would list every tool's name. How each call went is
    noted in the usage log, where there is one.

    Args:
        toolbox: Whose tools are run.
        filter: Which tools may be run.
        unknown_tool: What is done with a call of a tool that exists but was not bound.
        search_tool: The name of the tool that finds others; empty for none.
        messages_key: Where in the graph's state the messages are.
        usage_log: Where calls are noted; None for nowhere.
        shown_by: Tells which search showed a tool; None where that is never known.

    Raises:
        ValueError: If `unknown_tool` is none of its choices.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        filter: RuntimeFilter | None,
        *,
        unknown_tool: UnknownTool = "run",
        search_tool: str = "",
        messages_key: str = "messages",
        usage_log: UsageLog | None = None,
        shown_by: ShownBy | None = None,
    ) -> None:
        if unknown_tool not in ("run", "suggest"):
            raise ValueError(f"unknown_tool is {unknown_tool!r}; wanted 'run' or 'suggest'")
        self._toolbox = toolbox
        self._filter = filter
        self._suggests = unknown_tool == "suggest"
        self._search_tool = search_tool
        self._messages_key = messages_key
        self._calls = CallLog(usage_log, shown_by)

    def wrap(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]
    ) -> Result:
        """Run a tool call."""
        entry = self._entry(request)
        prepared = self._prepared(request, entry)
        with self._open(request, entry) as call:
            if isinstance(prepared, ToolMessage):
                return call.refused(prepared)
            return self._answered(request, handler(prepared), call)

    async def awrap(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
        """Run a tool call without blocking the event loop."""
        entry = self._entry(request)
        prepared = self._prepared(request, entry)
        with self._open(request, entry) as call:
            if isinstance(prepared, ToolMessage):
                return call.refused(prepared)
            return self._answered(request, await handler(prepared), call)

    def _open(self, request: ToolCallRequest, entry: Entry | None) -> OpenCall:
        identity = None if entry is None else entry.document.id
        # Outside a graph there is no runtime.
        config = None if request.runtime is None else request.runtime.config
        return self._calls.open(
            request.tool_call, identity, request.state, tenant=caller_of(config).tenant
        )

    def _entry(self, request: ToolCallRequest) -> Entry | None:
        """Return the catalogue's tool that a call is for; None for any other."""
        called = request.tool_call["name"]
        catalogue = self._toolbox.catalogue_now()
        identity = None if self._is_search(request) else catalogue.id_of(called)
        return None if identity is None else catalogue.entries[identity]

    def _is_search(self, request: ToolCallRequest) -> bool:
        return bool(self._search_tool) and request.tool_call["name"] == self._search_tool

    def _prepared(
        self, request: ToolCallRequest, entry: Entry | None
    ) -> ToolCallRequest | ToolMessage:
        if self._is_search(request):
            return request
        if entry is not None and not self._admits(entry, request):
            return self._refusal(request)
        if entry is not None and self._suggests and self._is_unseen(entry, request):
            return _suggestion(entry, request)
        tool = self._toolbox.executable(request, entry)
        if tool is None:
            return request if request.tool is None else self._refusal(request)
        return request if tool is request.tool else request.override(tool=tool)

    def _admits(self, entry: Entry, request: ToolCallRequest) -> bool:
        wanted = as_filter(filter_of(self._filter, request.runtime))
        return wanted is None or wanted.admits(entry.document)

    def _is_unseen(self, entry: Entry, request: ToolCallRequest) -> bool:
        """Whether a selector has bound tools, not this one, and the model was not told so yet.

        It is told once in a turn: a tool for which there was no place is run the second time.
        """
        bound = bound_ids(request.state)
        if bound is None or entry.document.id in bound:
            return False
        messages = reversed(list(read(request.state, self._messages_key) or ()))
        turn = takewhile(lambda message: not isinstance(message, HumanMessage), messages)
        return not any(_suggests(message, entry) for message in turn)

    def _answered(self, request: ToolCallRequest, result: Result, call: OpenCall) -> Result:
        """Put a short answer in the place of LangGraph's list of all names."""
        listed = (
            request.tool is None
            and isinstance(result, ToolMessage)
            and result.status == "error"
            and "is not a valid tool, try one of" in str(result.content)
        )
        return call.refused(self._refusal(request)) if listed else call.answered(result)

    def _refusal(self, request: ToolCallRequest) -> ToolMessage:
        called = request.tool_call["name"]
        entries = [entry for entry in self._toolbox.catalogue_now() if self._admits(entry, request)]
        closest = closest_names(called, (entry.document.bound_name for entry in entries), _CLOSEST)
        search = f" {self._search_tool} finds others." if self._search_tool else ""
        text = f"Error: {called[:_SHOWN_NAME]} is not a valid tool."
        while closest and len(text + _closest(closest) + search) > _LONGEST:
            closest.pop()
        return _error(f"{text}{_closest(closest)}{search}", request)


def _suggestion(entry: Entry, request: ToolCallRequest) -> ToolMessage:
    text = (
        f"Error: {entry.document.bound_name} was not among your tools. It is from your next step "
        f"on: call it again with the arguments it asks for."
    )
    return _error(text, request, {LOADED_KEY: [entry.document.id]})


def _suggests(message: object, entry: Entry) -> bool:
    if not isinstance(message, ToolMessage) or message.status != "error":
        return False
    return bool(message.artifact == {LOADED_KEY: [entry.document.id]})


def _closest(names: Sequence[str]) -> str:
    return f" Closest: {', '.join(names)}." if names else ""


def _error(text: str, request: ToolCallRequest, artifact: object = None) -> ToolMessage:
    call = request.tool_call
    return ToolMessage(
        text, name=call["name"], tool_call_id=call["id"], status="error", artifact=artifact
    )
