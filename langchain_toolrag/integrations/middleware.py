"""Selection as a middleware of LangChain's `create_agent`."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import langchain.agents.middleware as middleware_module
from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
)
from langchain.agents.middleware.types import OmitFromSchema
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command
from typing_extensions import NotRequired

from langchain_toolrag.catalogue.catalogue import Entry
from langchain_toolrag.fork import reset_after_fork
from langchain_toolrag.integrations.foreign_tools import brought_by_others
from langchain_toolrag.integrations.permissions import RuntimeFilter, filter_of
from langchain_toolrag.selection.bindable import Filter, as_filter, tool_name
from langchain_toolrag.selection.options import SelectionOptions
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.types import Selection, Tool, Tools

_Answer: TypeAlias = "ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]"
_Result: TypeAlias = "ToolMessage | Command[Any]"

_STATE_KEY = "toolrag"
_CLOSEST = 3  # Names offered to a model that called a tool that is not there.
_LONGEST_NAME = 64


class ToolRAGMiddlewareState(AgentState[Any]):
    """The agent's state with the selector's memory, which callers neither see nor set."""

    toolrag: NotRequired[Annotated[dict[str, Any], OmitFromSchema(input=True, output=True)]]


class ToolRAGMiddleware(AgentMiddleware[Any, Any, Any]):
    """Binds only the tools that a step needs.

    Give the tools to the agent or to this middleware. What is not the catalogue's passes
    through: provider tools, tools of other middlewares, the structured-output tool. Put it first
    in the list, in front of a middleware that marks the prompt's cacheable prefix.

    Example:
        >>> agent = create_agent(model, tools, middleware=[ToolRAGMiddleware()])

    Args:
        tools: The tools to select from; None for the agent's own.
        rag: The tools, indexed already, in place of `tools`.
        options: How tools are selected; with `rag`, its own are used.
        filter: Which tools may be selected and called: a `ToolFilter`, a function of a tool
            document, or a function of `runtime` that returns one of these.
        name: Distinguishes two of these in one agent.

    Attributes:
        tools: The tools this middleware brings to the agent.

    Raises:
        ValueError: If both `rag` and `tools` or `options` are given.
    """

    state_schema = ToolRAGMiddlewareState

    def __init__(
        self,
        tools: Tools | None = None,
        *,
        rag: ToolRAG | None = None,
        options: SelectionOptions | None = None,
        filter: RuntimeFilter | None = None,
        name: str = "ToolRAGMiddleware",
    ) -> None:
        super().__init__()
        if rag is not None and (tools is not None or options is not None):
            raise ValueError("rag brings its own tools and options: give it alone")
        self._name = name
        self._options = options
        self._filter = filter
        self._rag = rag if tools is None else ToolRAG(tools, options=options)
        self._adopts = self._rag is None
        self._adopted: dict[str, BaseTool] = {}
        self.tools = [tool for tool in self._all_tools() if isinstance(tool, BaseTool)]
        self._brought = frozenset(tool.name for tool in self.tools)
        self.after_fork()
        reset_after_fork(self)

    @property
    def name(self) -> str:
        """The middleware's name in the agent."""
        return self._name

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> _Answer:
        """Select tools, then call the model with them."""
        rag = self._rag_for(request)
        selection = rag.select(request.messages, **self._arguments(request, rag))
        return _answer(handler(_with_tools(request, selection)), request, selection)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> _Answer:
        """Do what `wrap_model_call` does, without blocking the event loop."""
        rag = self._rag_for(request)
        selection = await rag.aselect(request.messages, **self._arguments(request, rag))
        return _answer(await handler(_with_tools(request, selection)), request, selection)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], _Result]
    ) -> _Result:
        """Run a tool that is bound under another name or came later; refuse a forbidden one."""
        entry = self._entry(request)
        if entry is not None and not self._admits(entry, request):
            return self._unknown(request)
        result = handler(_with_executable(request, entry))
        return self._unknown(request) if _is_unknown_tool(request, entry, result) else result

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[_Result]]
    ) -> _Result:
        """Do what `wrap_tool_call` does, without blocking the event loop."""
        entry = self._entry(request)
        if entry is not None and not self._admits(entry, request):
            return self._unknown(request)
        result = await handler(_with_executable(request, entry))
        return self._unknown(request) if _is_unknown_tool(request, entry, result) else result

    def after_fork(self) -> None:
        """Forget a lock that a thread of the parent process may hold for ever."""
        self._adopting = threading.Lock()

    def _all_tools(self) -> list[Tool]:
        return self._rag.tools if self._rag is not None else []

    def _rag_for(self, request: ModelRequest[Any]) -> ToolRAG:
        """Return the catalogue; without one of our own, that of the agent's tools."""
        if not self._adopts and self._rag is not None:
            return self._rag
        present = [tool for tool in request.tools if isinstance(tool, BaseTool)]
        with self._adopting:
            new = [tool for tool in present if self._adopted.get(tool.name) is not tool]
            if new or self._rag is None:
                self._adopt(new)
            return self._rag or ToolRAG(options=self._options)

    def _adopt(self, new: Sequence[BaseTool]) -> None:
        """Take in tools of the agent that were not seen before."""
        foreign = brought_by_others(new, ToolRAGMiddleware)
        self._adopted.update((tool.name, tool) for tool in new)
        own = {tool.name: tool for tool in new if id(tool) not in foreign}
        if self._rag is None:
            self._rag = ToolRAG(list(own.values()), options=self._options)
        elif own:
            known = {entry.document.name: entry.tool for entry in self._rag.catalogue}
            self._rag.refresh([*{**known, **own}.values()])

    def _arguments(self, request: ModelRequest[Any], rag: ToolRAG) -> dict[str, Any]:
        names = {tool_name(tool) for tool in request.tools}
        later = [tool for tool in rag.tools if tool_name(tool) not in names | self._brought]
        return {
            "tools": [*request.tools, *(later if not self._adopts else ())],
            "previous": request.state.get(_STATE_KEY),
            "filter": filter_of(self._filter, request.runtime),
            "required": _chosen_names(request.tool_choice),
        }

    def _entry(self, request: ToolCallRequest) -> Entry | None:
        """Return the catalogue's entry of a called tool."""
        if self._rag is None:
            return None
        catalogue = self._rag.catalogue
        identity = catalogue.id_of(request.tool_call["name"])
        return catalogue.entries[identity] if identity is not None else None

    def _call_filter(self, request: ToolCallRequest) -> Filter | None:
        return filter_of(self._filter, request.runtime)

    def _admits(self, entry: Entry, request: ToolCallRequest) -> bool:
        wanted = as_filter(self._call_filter(request))
        return wanted is None or wanted.admits(entry.document)

    def _unknown(self, request: ToolCallRequest) -> ToolMessage:
        """Answer a call of a tool that is not there, or not for this caller, in a few words."""
        called = request.tool_call["name"]
        entries = self._rag.catalogue if self._rag is not None else ()
        known = [entry.document.bound_name for entry in entries if self._admits(entry, request)]
        closest = difflib.get_close_matches(called, known, _CLOSEST)
        hint = f" Closest: {', '.join(closest)}." if closest else ""
        return ToolMessage(
            f"Error: {called[:_LONGEST_NAME]} is not a valid tool.{hint}",
            name=called,
            tool_call_id=request.tool_call["id"],
            status="error",
        )


if hasattr(middleware_module, "TracePolicy"):  # Newer than our oldest LangChain.
    # A trace of the request would carry the schemas of the whole catalogue.
    ToolRAGMiddleware.trace_policy = middleware_module.TracePolicy(
        process_inputs=middleware_module.omit_payload
    )


def _with_tools(request: ModelRequest[Any], selection: Selection) -> ModelRequest[Any]:
    """Return the request with the selected tools; without any, a `tool_choice` is refused."""
    tools: list[Any] = list(selection.tools)
    if request.tool_choice is not None and not tools:
        return request.override(tools=tools, tool_choice=None)
    return request.override(tools=tools)


def _answer(
    response: ModelResponse[Any], request: ModelRequest[Any], selection: Selection
) -> _Answer:
    """Return the response, with the selector's memory for the state where it changed."""
    memory = dict(selection.state)
    if memory == request.state.get(_STATE_KEY):
        return response
    return ExtendedModelResponse(
        model_response=response, command=Command(update={_STATE_KEY: memory})
    )


def _chosen_names(choice: object) -> tuple[str, ...]:
    """Return the tools that a `tool_choice` names, in any provider's form."""
    if isinstance(choice, str):
        return (choice,)  # "auto", "any" and the like are not tools, and so change nothing.
    if not isinstance(choice, Mapping):
        return ()
    listed = choice.get("tools")
    if isinstance(listed, list):
        return tuple(name for part in listed for name in _chosen_names(part))
    inner = choice.get("function")
    named = inner if isinstance(inner, Mapping) else choice
    name = named.get("name")
    return (name,) if isinstance(name, str) else ()


def _with_executable(request: ToolCallRequest, entry: Entry | None) -> ToolCallRequest:
    """Give a call its tool where the agent does not know it by the name it was bound under."""
    if request.tool is None and entry is not None and isinstance(entry.bound, BaseTool):
        return request.override(tool=entry.bound)
    return request


def _is_unknown_tool(request: ToolCallRequest, entry: Entry | None, result: _Result) -> bool:
    """Whether LangGraph answered with the names of all tools there are."""
    return (
        request.tool is None
        and entry is None
        and isinstance(result, ToolMessage)
        and result.status == "error"
        and "is not a valid tool" in str(result.content)
    )
