"""Selection as a LangGraph node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from langchain_core.messages import AnyMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import get_runtime
from typing_extensions import NotRequired, TypedDict

from langchain_toolrag.catalogue.catalogue import Catalogue, Entry
from langchain_toolrag.errors import MissingStateKeyError, ToolRAGError
from langchain_toolrag.integrations.binding import bind_tools
from langchain_toolrag.integrations.call_log import search_of
from langchain_toolrag.integrations.execution import ToolGate, UnknownTool
from langchain_toolrag.integrations.memory import (
    NODE_KEY,
    latest,
    memory_of,
    merge_memories,
    read,
)
from langchain_toolrag.integrations.permissions import RuntimeFilter, filter_of
from langchain_toolrag.integrations.search_tool import (
    SearchMode,
    create_search_tool,
    refuse_twin,
    search_mode,
)
from langchain_toolrag.selection.options import SelectionOptions
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.types import Selection, Tool, ToolId, Tools

QUERY_KEY = "toolrag_query"
OUTPUT_KEY = "selected_tools"


class ToolRAGState(TypedDict):
    """What a graph's state needs for a `ToolRAGNode`; inherit from it.

    Attributes:
        messages: The conversation.
        selected_tools: Names the selected tools are bound under, in binding order.
        toolrag_query: What was searched for last.
        toolrag_state: The selectors' memories of the conversation, small JSON values by the
            name of the node.
    """

    messages: Annotated[list[AnyMessage], add_messages]
    selected_tools: NotRequired[list[str]]
    toolrag_query: NotRequired[Annotated[str, latest]]
    toolrag_state: NotRequired[Annotated[dict[str, Any], merge_memories]]


class ToolRAGNode(Runnable[Any, dict[str, Any]]):
    """A LangGraph node that selects tools before the model is called.

    Put it in front of the node that calls the model, and lead the tools' node back to it: it
    searches once for each user turn and afterwards only adds what was called.

    Example:
        >>> selector = ToolRAGNode(tools)
        >>> graph = StateGraph(ToolRAGState)
        >>> graph.add_node("tool_selector", selector)
        >>> graph.add_node("tools", selector.tool_node())
        >>> def agent(state: ToolRAGState) -> dict:
        ...     bound = model.bind_tools(selector.tools_for(state))
        ...     return {"messages": [bound.invoke(state["messages"])]}

    Args:
        tools: The tools; None to give `rag`, or to have `create_react_agent` give them.
        rag: A ToolRAG in place of `tools`; an empty one takes in the tools that come later.
        messages_key: Where in the state the messages are.
        output_key: Where in the state the names of the selected tools go.
        name: The node's name.
        options: How tools are selected; with `rag`, its own are used.
        filter: Which tools may be selected: a `ToolFilter`, a function of a tool document, or a
            function of `runtime` that returns one of these.
        search_tool: Whether the model may search for more tools itself, by `search_tools`: True
            or `"auto"` beside the selection, `"deferred"` in its place.
        unknown_tool: What is done with a call of a tool that exists but was not bound: `"run"` it,
            or `"suggest"` to call it again, bound.

    Attributes:
        rag: The tools and their index.
        name: The node's name.
        messages_key: Where the messages are.
        output_key: Where the names go.
        search_tool: The tool by which the model searches; None for none.

    Raises:
        ValueError: If both `tools` and `rag`, or both `rag` and `options`, are given.
    """

    def __init__(
        self,
        tools: Tools | None = None,
        *,
        rag: ToolRAG | None = None,
        messages_key: str = "messages",
        output_key: str = OUTPUT_KEY,
        name: str = "tool_selector",
        options: SelectionOptions | None = None,
        filter: RuntimeFilter | None = None,
        search_tool: bool | SearchMode = False,
        unknown_tool: UnknownTool = "run",
    ) -> None:
        if rag is not None and (tools is not None or options is not None):
            raise ValueError("rag brings its own tools and options: give it alone")
        self.name = name
        self.messages_key = messages_key
        self.output_key = output_key
        self.rag = rag if rag is not None else ToolRAG(options=options)
        self._is_given = rag is not None  # Its tools may come later, when servers are up again.
        self._filter = filter
        self._mode = search_mode(search_tool)
        self.search_tool = self._search_tool()
        self._brought: set[str] = set()
        searching = "" if self.search_tool is None else self.search_tool.name
        self._gate = ToolGate(
            self,
            filter,
            unknown_tool=unknown_tool,
            search_tool=searching,
            messages_key=messages_key,
            usage_log=self.rag.usage_log,
            shown_by=self._search_of,
        )
        if tools is not None:
            self.bind_tools(tools)

    @property
    def has_tools(self) -> bool:
        """Whether there are tools to select from."""
        catalogue = self.rag.catalogue
        return bool(catalogue.entries or catalogue.passed_through)

    @property
    def tools(self) -> list[BaseTool]:
        """Everything that can be run, under the names it is bound under."""
        return [*self.rag.tools, *self._besides]

    def bind_tools(self, tools: Tools) -> None:
        """Take in tools in place of those there are.

        Args:
            tools: The tools.

        Raises:
            UnknownToolError: If `always_include` names a tool that is not among them.
            DuplicateToolError: If one has the name of the search tool.
        """
        self.rag.exchange(tools)
        if self.search_tool is not None:
            refuse_twin(self.rag.catalogue, self.search_tool.name)
        self.rag.known_ids(self.rag.options.always_include, where="always_include")

    def tool_node(self, tools: Sequence[BaseTool] | None = None, **options: Any) -> ToolNode:
        """Return a `ToolNode` that runs every tool, the unselected ones too.

        Other than a plain `ToolNode(selector.tools)` it runs tools that come later, refuses
        those that the filter keeps from the caller, answers an unknown name in a few words rather
        than with the names of all tools, and notes calls where the ToolRAG has a usage log.

        Args:
            tools: What else it runs; None for the selector's own alone.
            **options: Options of `ToolNode`, which refuses those it does not know.

        Returns:
            The node.
        """
        own = {tool.name: tool for tool in [*(tools or ()), *self.tools]}
        self._brought |= {tool.name for tool in self.rag.tools}
        return ToolNode(
            list(own.values()),
            wrap_tool_call=self._gate.wrap,
            awrap_tool_call=self._gate.awrap,
            **options,
        )

    def catalogue_now(self) -> Catalogue:
        """Return the tools as they are now."""
        return self.rag.catalogue

    def executable(self, request: ToolCallRequest, entry: Entry | None) -> BaseTool | None:
        """Return the tool to run for a call: the catalogue's as it is now, or one beside it."""
        if entry is None:
            gone = request.tool_call["name"] in self._brought
            return None if gone else request.tool
        return entry.runnable or request.tool

    def invoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Select tools for a state.

        Args:
            input: The graph's state, a mapping or an object with attributes.
            config: The run's configuration.
            **kwargs: Ignored; LangGraph passes none.

        Returns:
            The state's update.
        """
        # LangChain gives the config to whoever takes one, which its types do not say.
        return self._call_with_config(self._select, input, config)  # type: ignore[arg-type]

    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Do what `invoke` does, without blocking the event loop.

        Args:
            input: The graph's state.
            config: The run's configuration.
            **kwargs: Ignored; LangGraph passes none.

        Returns:
            The state's update.
        """
        return await self._acall_with_config(self._aselect, input, config)  # type: ignore[arg-type]

    def tools_for(self, state: Any) -> list[Tool]:
        """Return the tools that the node selected for a state.

        Args:
            state: The graph's state, after this node.

        Returns:
            Tools to bind, in binding order, provider tools first.

        Raises:
            MissingStateKeyError: If the state holds no selection.
        """
        names = read(state, self.output_key)
        if names is None:
            raise MissingStateKeyError(self.output_key)
        self._raise_without_tools()
        catalogue = self.rag.catalogue
        ids = (catalogue.id_of(name) for name in names)
        chosen = [catalogue.entries[identity].bound for identity in ids if identity is not None]
        return [*self._besides, *catalogue.passed_through, *chosen]

    def bind_model(self, model: Any) -> Callable[[Any, Any], Runnable[Any, Any]]:
        """Return a dynamic model for LangGraph's prebuilt agents.

        Args:
            model: A chat model.

        Returns:
            A function of state and runtime: the model with the selected tools bound.
        """

        def bound(state: Any, runtime: Any) -> Runnable[Any, Any]:
            return bind_tools(model, self.tools_for(state))

        return bound

    def _select(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        messages, options = self._reading(state)
        return self._update(self.rag.select(messages, config=config, **options))

    async def _aselect(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        messages, options = self._reading(state)
        return self._update(await self.rag.aselect(messages, config=config, **options))

    @property
    def _besides(self) -> list[BaseTool]:
        return [] if self.search_tool is None else [self.search_tool]

    def _search_tool(self) -> BaseTool | None:
        if self._mode == "off":
            return None
        return create_search_tool(self.rag, filter=self._filter, messages_key=self.messages_key)

    def _reading(self, state: Any) -> tuple[Any, dict[str, Any]]:
        """Return the messages of a state, and how to select for them."""
        self._raise_without_tools()
        messages = read(state, self.messages_key)
        if messages is None:
            raise MissingStateKeyError(self.messages_key)
        return messages, {
            "previous": memory_of(state, NODE_KEY, self.name),
            "filter": filter_of(self._filter, _runtime()),
            "besides": self._besides,
            "deferred": self._mode == "deferred",
        }

    def _search_of(self, tool: ToolId, state: Any) -> str:
        messages = read(state, self.messages_key) or ()
        return search_of(tool, messages, memory_of(state, NODE_KEY, self.name))

    def _raise_without_tools(self) -> None:
        if not (self.has_tools or self._is_given):
            raise ToolRAGError(
                "this ToolRAGNode has no tools: give it tools or rag, call bind_tools(tools), "
                "or use it as create_react_agent(model, tools, tool_selector=ToolRAGNode())"
            )

    def _update(self, selection: Selection) -> dict[str, Any]:
        return {
            self.output_key: selection.names,
            QUERY_KEY: selection.query,
            NODE_KEY: {self.name: dict(selection.state)},
        }


def _runtime() -> object:
    """Return the run's Runtime; None outside a graph."""
    try:
        return get_runtime()
    except (RuntimeError, KeyError):
        return None
