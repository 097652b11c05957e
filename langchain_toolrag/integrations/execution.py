"""A model's tool call in -> the tool that is run for it, or a short refusal, out."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from langchain_toolrag.catalogue.catalogue import Catalogue, Entry
from langchain_toolrag.integrations.permissions import RuntimeFilter, filter_of
from langchain_toolrag.selection.bindable import as_filter

Result: TypeAlias = "ToolMessage | Command[object]"
"""What running a tool call comes to."""

_CLOSEST = 3  # Names offered to a model that called a tool that is not there.
_SHOWN_NAME = 64  # Characters of such a call's name that are repeated.


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
    there in a few words, where LangGraph would list every tool's name.

    Args:
        toolbox: Whose tools are run.
        filter: Which tools may be run.
    """

    def __init__(self, toolbox: Toolbox, filter: RuntimeFilter | None) -> None:
        self._toolbox = toolbox
        self._filter = filter

    def wrap(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]
    ) -> Result:
        """Run a tool call."""
        prepared = self._prepared(request)
        if isinstance(prepared, ToolMessage):
            return prepared
        return self._shortened(request, handler(prepared))

    async def awrap(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
        """Run a tool call without blocking the event loop."""
        prepared = self._prepared(request)
        if isinstance(prepared, ToolMessage):
            return prepared
        return self._shortened(request, await handler(prepared))

    def _prepared(self, request: ToolCallRequest) -> ToolCallRequest | ToolMessage:
        catalogue = self._toolbox.catalogue_now()
        identity = catalogue.id_of(request.tool_call["name"])
        entry = catalogue.entries[identity] if identity is not None else None
        if entry is not None and not self._admits(entry, request):
            return self._refusal(request)
        tool = self._toolbox.executable(request, entry)
        if tool is None:
            return request if request.tool is None else self._refusal(request)
        return request if tool is request.tool else request.override(tool=tool)

    def _admits(self, entry: Entry, request: ToolCallRequest) -> bool:
        wanted = as_filter(filter_of(self._filter, request.runtime))
        return wanted is None or wanted.admits(entry.document)

    def _shortened(self, request: ToolCallRequest, result: Result) -> Result:
        """Put a short answer in the place of LangGraph's list of all names."""
        listed = (
            request.tool is None
            and isinstance(result, ToolMessage)
            and result.status == "error"
            and "is not a valid tool, try one of" in str(result.content)
        )
        return self._refusal(request) if listed else result

    def _refusal(self, request: ToolCallRequest) -> ToolMessage:
        called = request.tool_call["name"]
        entries = [entry for entry in self._toolbox.catalogue_now() if self._admits(entry, request)]
        known = [entry.document.bound_name for entry in entries]
        closest = [name for name in difflib.get_close_matches(called, known, _CLOSEST)]
        hint = f" Closest: {', '.join(closest)}." if closest else ""
        return ToolMessage(
            f"Error: {called[:_SHOWN_NAME]} is not a valid tool.{hint}",
            name=called,
            tool_call_id=request.tool_call["id"],
            status="error",
        )
