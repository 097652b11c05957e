"""Selection as a middleware of LangChain's `create_agent`."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import langchain.agents.middleware as middleware_module
from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
)
from langchain.agents.middleware.types import OmitFromSchema
from langchain_core.messages import AIMessage, SystemMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command
from typing_extensions import NotRequired

from langchain_toolrag.catalogue.catalogue import Catalogue, Entry
from langchain_toolrag.catalogue.names import bound_name
from langchain_toolrag.fork import reset_after_fork
from langchain_toolrag.integrations.call_log import search_of
from langchain_toolrag.integrations.execution import ToolGate, UnknownTool
from langchain_toolrag.integrations.foreign_tools import (
    brought_by_others,
    is_one_of,
    middlewares_of_agent,
)
from langchain_toolrag.integrations.memory import MIDDLEWARE_KEY, memory_of, merge_memories, read
from langchain_toolrag.integrations.permissions import RuntimeFilter, filter_of
from langchain_toolrag.integrations.provider_search import (
    DeferredTools,
    NativeSearch,
    claimed_by_provider_search,
    is_deferred,
    native_search,
)
from langchain_toolrag.integrations.search_prompt import search_prompt
from langchain_toolrag.integrations.search_tool import (
    SEARCH_TOOL,
    SearchMode,
    SearchTool,
    create_search_tool,
    refuse_twin,
    search_mode,
)
from langchain_toolrag.integrations.tool_choice import chosen_names, with_selected
from langchain_toolrag.selection.bindable import bindable, tool_name
from langchain_toolrag.selection.options import SelectionOptions
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.types import Selection, Tool, ToolId, Tools

ProviderSearch: TypeAlias = Literal["auto", "off"]
"""Whether a provider's own search of deferred tools is used where there is one."""

_NAME = "ToolRAGMiddleware"

_Answer: TypeAlias = "ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]"


class ToolRAGMiddlewareState(AgentState[Any]):
    """The agent's state with the selector's memory, which callers neither see nor set."""

    toolrag: NotRequired[
        Annotated[dict[str, Any], OmitFromSchema(input=True, output=True), merge_memories]
    ]


class ToolRAGMiddleware(AgentMiddleware[Any, Any, Any]):
    """Binds only the tools that a step needs.

    Give the tools to the agent or to this middleware. What is not the catalogue's passes
    through: provider tools, tools of other middlewares, the structured-output tool. Put it first
    in the list, in front of a middleware that marks the prompt's cacheable prefix.

    Example:
        >>> agent = create_agent(model, tools, middleware=[ToolRAGMiddleware()])

    Args:
        tools: The tools to select from; None for the agent's own.
        rag: A ToolRAG in place of `tools`; an empty one takes in the agent's own tools. What is
            added to it, removed or refreshed while the agent lives takes effect at the next step.
        options: How tools are selected; with `rag`, its own are used.
        filter: Which tools may be selected and called: a `ToolFilter`, a function of a tool
            document, or a function of `runtime` that returns one of these.
        search_tool: Whether the model may search for more tools itself, by `search_tools`: True
            or `"auto"` beside the selection, `"deferred"` in its place.
        search_prompt: Whether to say at the end of the system prompt what can be searched for.
        unknown_tool: What is done with a call of a tool that exists but was not bound: `"run"` it,
            or `"suggest"` to call it again, bound.
        provider: `"auto"` to send tools that are not selected as deferred ones where the model's
            provider searches these itself (Anthropic, OpenAI); `search_tools` steps aside there.
        name: Distinguishes two of these in one agent; the search tool of one that has another name
            than `ToolRAGMiddleware` is called `search_tools_<name>`.

    Attributes:
        rag: The tools and their index.
        search_tool: The tool by which the model searches; None for none.

    Raises:
        ValueError: If both `rag` and `tools` or `options` are given, `search_prompt` without a
            search tool, or `unknown_tool="suggest"` with `provider="auto"`.
    """

    state_schema = ToolRAGMiddlewareState

    def __init__(
        self,
        tools: Tools | None = None,
        *,
        rag: ToolRAG | None = None,
        options: SelectionOptions | None = None,
        filter: RuntimeFilter | None = None,
        search_tool: bool | SearchMode = False,
        search_prompt: bool = False,
        unknown_tool: UnknownTool = "run",
        provider: ProviderSearch = "off",
        name: str = _NAME,
    ) -> None:
        super().__init__()
        if rag is not None and (tools is not None or options is not None):
            raise ValueError("rag brings its own tools and options: give it alone")
        self.rag = rag if rag is not None else ToolRAG(tools, options=options)
        self._name = name
        self._filter = filter
        self._mode = search_mode(search_tool)
        self.search_tool = None if self._mode == "off" else self._search_tool()
        if search_prompt and self.search_tool is None:
            raise ValueError("search_prompt is given without search_tool: there is nothing to say")
        self._announces = search_prompt
        self._defers = _defers(provider, unknown_tool)
        self._deferred = DeferredTools()
        self._claimed: frozenset[str] | None = None
        self._twins_tools: set[str] = set()
        searching = "" if self.search_tool is None else self.search_tool.name
        self._gate = ToolGate(
            self,
            filter,
            unknown_tool=unknown_tool,
            search_tool=searching,
            usage_log=self.rag.usage_log,
            shown_by=self._search_of,
        )
        self._brought = {tool_name(tool): tool for tool in self.rag.tools}
        self._adopts = not self._brought and not self.rag.catalogue.passed_through
        self._adopted: dict[str, BaseTool] = {}
        self._foreign: list[Tool] = []
        self.after_fork()
        reset_after_fork(self)

    @property
    def name(self) -> str:
        """The middleware's name in the agent."""
        return self._name

    @property
    def tools(self) -> Sequence[BaseTool]:  # type: ignore[override]
        """The tools this middleware brings to the agent; read once, while the agent is made."""
        middlewares = middlewares_of_agent()
        self._foreign += brought_by_others(self, middlewares)
        claimed = claimed_by_provider_search(middlewares)
        if claimed is not None:  # One of these may serve several agents.
            self._claimed = (self._claimed or frozenset()) | claimed
        twins = (other for other in middlewares if isinstance(other, ToolRAGMiddleware))
        self._twins_tools |= {name for twin in twins for name in twin._brought}
        self._twins_tools -= self._brought.keys()
        searching = [] if self.search_tool is None else [self.search_tool]
        return [*searching, *self._brought.values()]

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> _Answer:
        """Select tools, then call the model with them."""
        ours, others = self._divided(request)
        selection = self.rag.select(ours.messages, **self._arguments(ours))
        return self._answer(handler(self._prepared(ours, others, selection)), ours, selection)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> _Answer:
        """Do what `wrap_model_call` does, without blocking the event loop."""
        ours, others = self._divided(request)
        selection = await self.rag.aselect(ours.messages, **self._arguments(ours))
        prepared = self._prepared(ours, others, selection)
        return self._answer(await handler(prepared), ours, selection)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        """Run a tool that is bound under another name or came later; refuse a forbidden one."""
        return self._gate.wrap(request, handler)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Do what `wrap_tool_call` does, without blocking the event loop."""
        return await self._gate.awrap(request, handler)

    def catalogue_now(self) -> Catalogue:
        """Return the tools as they are now."""
        return self.rag.catalogue

    def executable(self, request: ToolCallRequest, entry: Entry | None) -> BaseTool | None:
        """Return the tool to run for a call.

        A tool of the agent is run as the agent has it, never as another agent has it that shares
        this middleware; one of our own is run as the catalogue has it now.
        """
        if entry is None:
            gone = request.tool_call["name"] in self._brought
            return None if gone else request.tool
        if entry.document.name not in self._adopted:
            return entry.runnable
        return request.tool or _of_agent(request, entry)

    def after_fork(self) -> None:
        """Forget a lock that a thread of the parent process may hold for ever."""
        self._adopting = threading.Lock()

    def _prepared(
        self,
        request: ModelRequest[Any],
        others: Sequence[BaseTool | dict[str, Any]],
        selection: Selection,
    ) -> ModelRequest[Any]:
        """Return the request with what was selected, and with what is not ours to select."""
        prepared = with_selected(request, selection)
        native = native_search(request.model) if self._defers and self._claimed is None else None
        tools = [*others, *prepared.tools]
        if native is not None:
            tools = self._with_deferred(request, tools, native)
        elif self._announces:
            said = self._said(request)
            prepared = prepared.override(system_message=_extended(request.system_message, said))
        return prepared.override(tools=tools)

    def _search_tool(self) -> StructuredTool:
        name = SEARCH_TOOL if self.name == _NAME else bound_name(f"{SEARCH_TOOL}_{self.name}")
        return create_search_tool(self.rag, name=name, filter=self._filter)

    def _said(self, request: ModelRequest[Any]) -> str:
        """Return what the system prompt says of the search."""
        if self.search_tool is None:
            return ""
        admitted = filter_of(self._filter, request.runtime)
        return search_prompt(self.rag, filter=admitted, tool_name=self.search_tool.name)

    def _with_deferred(
        self, request: ModelRequest[Any], bound: Sequence[Tool], native: NativeSearch
    ) -> list[Any]:
        """Return tools with all that the caller may see beside them, deferred."""
        admitted = filter_of(self._filter, request.runtime)
        permitted = bindable(self.rag.catalogue, self._available(request.tools), admitted)
        chosen = chosen_names(request.tool_choice)
        kept = [t for t in bound if not isinstance(t, SearchTool) or tool_name(t) in chosen]
        return self._deferred.with_deferred(
            kept,
            list(permitted.tools.values()),
            native,
            messages=request.messages,
            required=chosen,
        )

    def _divided(
        self, request: ModelRequest[Any]
    ) -> tuple[ModelRequest[Any], list[BaseTool | dict[str, Any]]]:
        """Return the request with the tools that are ours to select from, and the others.

        Others are those that another middleware selects or defers, or that the user defers.
        """
        claimed = self._twins_tools.union(self._claimed or ())
        ours: list[BaseTool | dict[str, Any]] = []
        others: list[BaseTool | dict[str, Any]] = []
        for tool in request.tools:
            is_others = is_deferred(tool) or tool_name(tool) in claimed
            (others if is_others else ours).append(tool)
        return request.override(tools=ours), others

    def _arguments(self, request: ModelRequest[Any]) -> dict[str, Any]:
        if self._adopts:
            present = (tool for tool in request.tools if not isinstance(tool, SearchTool))
            self._adopt([tool for tool in present if isinstance(tool, BaseTool)])
        return {
            "tools": self._available(request.tools),
            "previous": self._memory(request),
            "filter": filter_of(self._filter, request.runtime),
            "required": chosen_names(request.tool_choice),
            "deferred": self._mode == "deferred",
        }

    def _memory(self, request: ModelRequest[Any]) -> Mapping[str, Any] | None:
        return memory_of(request.state, MIDDLEWARE_KEY, self.name)

    def _search_of(self, tool: ToolId, state: Any) -> str:
        memory = memory_of(state, MIDDLEWARE_KEY, self.name)
        return search_of(tool, read(state, "messages") or (), memory)

    def _adopt(self, present: Sequence[BaseTool]) -> None:
        """Take in tools of the agent that were not seen before."""
        with self._adopting:
            new = {
                tool.name: tool
                for tool in present
                if self._adopted.get(tool.name) is not tool and not is_one_of(tool, self._foreign)
            }
            if new:
                known = {entry.document.name: entry.tool for entry in self.rag.catalogue}
                self.rag.exchange([*self.rag.catalogue.passed_through, *{**known, **new}.values()])
                if self.search_tool is not None:
                    refuse_twin(self.rag.catalogue, self.search_tool.name)
                self._adopted |= new

    def _available(self, shown: Sequence[BaseTool | dict[str, Any]]) -> list[Tool]:
        """Return what can be bound: what the request shows, and ours as it is now.

        A tool of ours that another middleware took out of the request stays out; one that came
        after the agent was made is not in any request and is added.
        """
        names = {tool_name(tool) for tool in shown}
        others: list[Tool] = [tool for tool in shown if tool_name(tool) not in self._brought]
        ours = [
            entry.bound
            for entry in self.rag.catalogue
            if entry.document.name not in self._adopted
            and (
                entry.document.bound_name in names or entry.document.bound_name not in self._brought
            )
        ]
        passing = [tool for tool in self.rag.catalogue.passed_through if tool not in others]
        return [*others, *passing, *ours]

    def _answer(
        self, response: ModelResponse[Any], request: ModelRequest[Any], selection: Selection
    ) -> _Answer:
        """Return the response, with the selector's memory for the state where it changed."""
        memory = dict(selection.state)
        if memory == self._memory(request):
            return response
        update = {MIDDLEWARE_KEY: {self.name: memory}}
        return ExtendedModelResponse(model_response=response, command=Command(update=update))


if hasattr(middleware_module, "TracePolicy"):  # Newer than our oldest LangChain.
    # A trace of the request would carry the schemas of the whole catalogue.
    ToolRAGMiddleware.trace_policy = middleware_module.TracePolicy(
        process_inputs=middleware_module.omit_payload
    )


def _defers(provider: ProviderSearch, unknown_tool: UnknownTool) -> bool:
    """Return whether tools are deferred, or refuse what contradicts itself."""
    if provider not in ("auto", "off"):
        raise ValueError(f"provider is {provider!r}; wanted 'auto' or 'off'")
    if provider == "auto" and unknown_tool == "suggest":
        raise ValueError(
            "unknown_tool='suggest' refuses tools that were not selected, and provider='auto' "
            "has the model see some of them: use one of the two"
        )
    return provider == "auto"


def _extended(message: SystemMessage | None, said: str) -> SystemMessage | None:
    """Return the system prompt with a paragraph at its end; the same one for nothing to say."""
    if not said:
        return message
    if message is None:
        return SystemMessage(said)
    content = message.content
    if isinstance(content, str):
        return message.model_copy(update={"content": f"{content}\n\n{said}"})
    return message.model_copy(update={"content": [*content, {"type": "text", "text": said}]})


def _of_agent(request: ToolCallRequest, entry: Entry) -> BaseTool | None:
    """Return the agent's own tool for a call under the name it was bound under.

    LangGraph's oldest versions do not tell which tools an agent has: there it is the one of its
    name that was seen last.
    """
    registered: Sequence[BaseTool] | None = getattr(request.runtime, "tools", None)
    if registered is not None:
        return next((tool for tool in registered if tool.name == entry.document.name), None)
    is_renamed = entry.document.bound_name != entry.document.name
    return entry.tool if is_renamed and isinstance(entry.tool, BaseTool) else None
