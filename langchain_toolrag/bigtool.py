"""langgraph-bigtool's agent on current LangGraph: the model asks for its tools and then calls them.

In code for langgraph-bigtool only the import changes: `create_agent` and
`convert_positional_only_function_to_tool` are both here.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from langchain_core.language_models import LanguageModelLike
from langchain_core.messages import AIMessage, ToolCall, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool, StructuredTool, ToolException, tool
from langgraph.errors import GraphBubbleUp
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedStore, ToolNode, ToolRuntime
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.store.base import BaseStore
from langgraph.types import Send

from langchain_toolrag.catalogue.catalogue import Catalogue, Entry, build_catalogue
from langchain_toolrag.catalogue.document import identify
from langchain_toolrag.errors import DuplicateToolError, EmbeddingError, InvalidToolError
from langchain_toolrag.integrations.binding import bind_tools
from langchain_toolrag.integrations.execution import ToolGate
from langchain_toolrag.integrations.store_items import TOOLS_NAMESPACE
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.types import Hit, Tool

__all__ = ["State", "convert_positional_only_function_to_tool", "create_agent"]

logger = logging.getLogger(__name__)

_NOTHING = "No tools found. Describe in other words what the tool should do, or go on without one."

_Retrieve: TypeAlias = Callable[..., Any]
_Functions: TypeAlias = tuple[_Retrieve | None, _Retrieve | None]
_Store: TypeAlias = Annotated[BaseStore, InjectedStore]


def _add_new(left: list[str], right: list[str]) -> list[str]:
    """Append the ids that are not there yet, in their order."""
    return list(dict.fromkeys([*left, *right]))


class State(MessagesState):
    """The agent's state, as langgraph-bigtool's.

    Attributes:
        messages: The conversation.
        selected_tool_ids: Ids of the registry, in the order they were retrieved.
    """

    selected_tool_ids: Annotated[list[str], _add_new]


def create_agent(
    llm: LanguageModelLike,
    tool_registry: Mapping[str, BaseTool | Callable[..., Any]],
    *,
    limit: int = 2,
    filter: dict[str, Any] | None = None,
    namespace_prefix: tuple[str, ...] = TOOLS_NAMESPACE,
    retrieve_tools_function: Callable[..., Any] | None = None,
    retrieve_tools_coroutine: Callable[..., Any] | None = None,
    rag: ToolRAG | None = None,
) -> StateGraph[State, None, State, State]:
    """Create an agent that retrieves its tools from a registry.

    The model starts with a single tool, by which it asks for others; what it was given stays
    bound. Where tools are looked for:

    1. A retrieval function, where one is given, decides alone.
    2. With `filter`, or a `namespace_prefix` other than the default, the store is searched that
       the graph is compiled with.
    3. Otherwise, where there is a store that finds anything under `namespace_prefix`, that counts;
       else a `ToolRAG` searches the registry itself. Its model is loaded at its first search.

    Ids that the registry does not have are left out, and the model is told. So it is when the
    retrieval fails. A tool that reads the state sees the call it runs for as the only one of the
    last message.

    Args:
        llm: A chat model.
        tool_registry: Tools and functions by id; read once.
        limit: How many tools a retrieval returns at most; a retrieval function ignores it.
        filter: Values that items of the store must have.
        namespace_prefix: Where in the store the items are whose keys are ids of the registry.
        retrieve_tools_function: Returns a list of ids. The model sees its name, docstring and
            arguments, except those that LangGraph injects (store, state, runtime). In an async
            run it is called in a thread.
        retrieve_tools_coroutine: The same for async runs; alone, sync runs raise a TypeError.
        rag: The index to search in place of one that is made here and of the store. It holds
            the tools of the registry and no others. Its usage log notes the calls.

    Returns:
        The graph, to be compiled. Its nodes are `agent`, `select_tools` and `tools`.

    Raises:
        TypeError: If `tool_registry` is no dict, `retrieve_tools_function` async, or one unnamed.
        InvalidToolError: If something in the registry cannot be run.
        DuplicateToolError: If two tools have one name, or one that of the retrieval function.
        ValueError: If `limit` is below 1, or `rag` holds other tools or is not all that is given.
    """
    functions: _Functions = (retrieve_tools_function, retrieve_tools_coroutine)
    given = functions != (None, None)
    in_store = filter is not None or tuple(namespace_prefix) != TOOLS_NAMESPACE
    _check_arguments(limit, functions, rival=rag is not None and (given or in_store))
    tools = _runnable_tools(tool_registry)
    index = ToolRAG(tools) if rag is None and not given and not in_store else rag
    catalogue = index.catalogue if index is not None else build_catalogue(tools)
    registry = _registry_of(tool_registry, catalogue)
    if not given:
        stored = _StoreSearch(namespace_prefix, {"limit": limit, "filter": filter})
        own = stored if index is None else _IndexSearch(index, registry, limit, stored, rag is None)
        functions = own.retrieve_tools, own.aretrieve_tools
    return _graph(llm, registry, _retrieval_tool(functions, registry), index)


def convert_positional_only_function_to_tool(function: Callable[..., Any]) -> BaseTool | None:
    """Make a tool of a function whose arguments have no names for callers, such as `math.acos`.

    Args:
        function: The function; it has a docstring.

    Returns:
        A tool that takes the arguments by name; None where they are unknown or of any number.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:
        return None
    given = signature.parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in given):
        return None
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    by_name = [each.replace(kind=max(each.kind, either)) for each in given]  # Kinds have an order.
    named = signature.replace(parameters=by_name)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = named.bind(*args, **kwargs)
        bound.apply_defaults()
        return function(*bound.args, **bound.kwargs)

    call.__annotations__ = getattr(function, "__annotations__", {})  # Builtins have none.
    call.__signature__ = named  # type: ignore[attr-defined]
    return tool(call)


def _check_arguments(limit: int, functions: _Functions, *, rival: bool) -> None:
    if limit < 1:
        raise ValueError(f"limit is {limit}; wanted at least 1")
    if inspect.iscoroutinefunction(functions[0]):
        raise TypeError("retrieve_tools_function is async: give it as retrieve_tools_coroutine")
    for each in functions:
        if each is not None and not hasattr(each, "__name__"):
            raise TypeError(f"{each!r:.60} has no name for the model to see; wanted a function")
    if rival:
        raise ValueError("rag is searched alone: leave out filter, namespace_prefix and functions")


def _runnable_tools(tool_registry: Mapping[str, Tool]) -> list[Tool]:
    """Return the registry's tools; what cannot be run, such as a definition, is an error."""
    if not isinstance(tool_registry, Mapping):
        kind = type(tool_registry).__name__
        raise TypeError(f"tool_registry is a {kind}; wanted a dict such as {{tool.name: tool}}")
    for key, each in tool_registry.items():
        if not isinstance(each, BaseTool) and (isinstance(each, type) or not callable(each)):
            raise InvalidToolError(
                f"tool_registry[{key!r}] is {each!r:.60}; wanted a LangChain tool or a function",
                each,
            )
    return list(tool_registry.values())


@dataclass(frozen=True)
class _Registry:
    """The tools by the ids that the state holds.

    Attributes:
        catalogue: The tools.
        entries: What is bound and run for an id; none for a tool whose schema is broken.
    """

    catalogue: Catalogue
    entries: Mapping[str, Entry]

    def catalogue_now(self) -> Catalogue:
        return self.catalogue

    def executable(self, request: ToolCallRequest, entry: Entry | None) -> BaseTool | None:
        return request.tool if entry is None else entry.runnable

    def bound(self, ids: Iterable[str]) -> list[Tool]:
        """Return what is bound for ids, each tool once; a checkpoint may name tools since gone."""
        known = (self.entries[key] for key in ids if key in self.entries)
        return list({entry.document.id: entry.bound for entry in known}.values())

    def ids_of(self, hits: Sequence[Hit]) -> list[str]:
        """Return the ids of what our index found."""
        ids = {entry.document.id: key for key, entry in reversed(list(self.entries.items()))}
        return [ids[hit.id] for hit in hits if hit.id in ids]

    def answer(self, found: Any) -> tuple[str, list[str]]:
        """Return what the model is told of retrieved ids, and those of them that there are."""
        if isinstance(found, str) or not isinstance(found, Iterable):
            raise TypeError(f"{found!r:.80} was returned; wanted a list of ids of the registry")
        distinct = list(dict.fromkeys(found))
        known = [key for key in distinct if key in self.entries]
        unknown = [key for key in distinct if key not in self.entries]
        names = dict.fromkeys(self.entries[key].document.bound_name for key in known)
        told = f"Available tools: {list(names)}" if names else _NOTHING
        if unknown:
            told += f"\nLeft out, the registry has no such ids: {unknown}"
        return told, known


def _registry_of(tool_registry: Mapping[str, Tool], catalogue: Catalogue) -> _Registry:
    identities = {key: identify(each) for key, each in tool_registry.items()}
    wanted, found = set(identities.values()), {*catalogue.entries, *catalogue.rejected}
    if wanted != found:
        raise ValueError(
            f"rag lacks {sorted(wanted - found)[:5]} of tool_registry and has besides "
            f"{sorted(found - wanted)[:5]}: give ToolRAG(list(tool_registry.values()))"
        )
    known = catalogue.entries
    entries = {key: known[each] for key, each in identities.items() if each in known}
    return _Registry(catalogue, entries)


@dataclass(frozen=True)
class _StoreSearch:
    """What langgraph-bigtool does without a retrieval function: search the graph's store."""

    namespace: tuple[str, ...]
    options: Mapping[str, Any]

    def retrieve_tools(self, query: str, *, store: _Store) -> list[str]:
        """Retrieve a tool to use, given a search query."""
        found = store.search(self.namespace, query=query, **self.options)
        return [item.key for item in found]

    async def aretrieve_tools(self, query: str, *, store: _Store) -> list[str]:
        found = await store.asearch(self.namespace, query=query, **self.options)
        return [item.key for item in found]


@dataclass(frozen=True)
class _IndexSearch:
    """Searches our index, or first the store, if the graph has one."""

    rag: ToolRAG
    registry: _Registry
    limit: int
    stored: _StoreSearch
    store_first: bool

    def retrieve_tools(self, query: str, *, runtime: ToolRuntime[Any, Any]) -> list[str]:
        """Retrieve a tool to use, given a search query."""
        if self.store_first and runtime.store is not None:
            found = self.stored.retrieve_tools(query, store=runtime.store)
            if found:
                return found
        try:
            hits = self.rag.search(query, self.limit)
        except EmbeddingError:
            hits = self.rag.text_search(query, self.limit)
        return self.registry.ids_of(hits)

    async def aretrieve_tools(self, query: str, *, runtime: ToolRuntime[Any, Any]) -> list[str]:
        if self.store_first and runtime.store is not None:
            found = await self.stored.aretrieve_tools(query, store=runtime.store)
            if found:
                return found
        try:
            hits = await self.rag.asearch(query, self.limit)
        except EmbeddingError:
            hits = await self.rag.atext_search(query, self.limit)
        return self.registry.ids_of(hits)


def _retrieval_tool(functions: _Functions, registry: _Registry) -> StructuredTool:
    """Return the tool by which the model asks; its artifact is the ids that were found."""
    function, coroutine = functions
    retrieve = StructuredTool.from_function(
        func=_answering(function, registry) if function else _only_async(coroutine),
        coroutine=_aanswering(coroutine, registry) if coroutine else None,
        response_format="content_and_artifact",
        handle_tool_error=True,
    )
    if (twin := registry.catalogue.id_of(retrieve.name)) is not None:
        origin = registry.catalogue.entries[twin].document.origin
        raise DuplicateToolError(retrieve.name, (origin, "the function that retrieves tools"))
    return retrieve


def _answering(function: _Retrieve, registry: _Registry) -> _Retrieve:
    @functools.wraps(function)
    def retrieve(*args: Any, **kwargs: Any) -> tuple[str, list[str]]:
        with _failure_as_answer():
            return registry.answer(function(*args, **kwargs))

    return retrieve


def _aanswering(coroutine: _Retrieve, registry: _Registry) -> _Retrieve:
    @functools.wraps(coroutine)
    async def retrieve(*args: Any, **kwargs: Any) -> tuple[str, list[str]]:
        with _failure_as_answer():
            return registry.answer(await coroutine(*args, **kwargs))

    return retrieve


def _only_async(coroutine: _Retrieve | None) -> _Retrieve:
    @functools.wraps(coroutine)  # type: ignore[arg-type]
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            "retrieve_tools_coroutine alone was given, which a synchronous run cannot await: "
            "run the agent by ainvoke() or astream(), or give retrieve_tools_function too"
        )

    return refuse


@contextmanager
def _failure_as_answer() -> Iterator[None]:
    """Turn an error into one that the tool tells the model; an interrupt stays one."""
    try:
        yield
    except GraphBubbleUp:
        raise
    except Exception as error:
        kind = type(error).__name__
        logger.warning("retrieving tools failed, the model is told: %s", kind)
        logger.debug("it failed by", exc_info=error)  # It may quote the request.
        raise ToolException(f"Error: retrieving tools failed. {kind}: {error!s:.500}") from error


def _graph(
    llm: LanguageModelLike, registry: _Registry, retrieve: BaseTool, rag: ToolRAG | None
) -> StateGraph[State, None, State, State]:
    def destinations(state: State) -> list[Send] | str:
        last = state["messages"][-1]
        if not isinstance(last, AIMessage) or not last.tool_calls:
            return END
        return [
            Send("select_tools" if call["name"] == retrieve.name else "tools", _of(call, state))
            for call in last.tool_calls
        ]

    gate = ToolGate(registry, None, usage_log=None if rag is None else rag.usage_log)
    runnable = [entry.runnable for entry in registry.catalogue if entry.runnable is not None]
    running = ToolNode(runnable, wrap_tool_call=gate.wrap, awrap_tool_call=gate.awrap)
    graph = StateGraph(State)
    graph.add_node("agent", _agent(llm, registry, retrieve))
    graph.add_node("select_tools", ToolNode([retrieve]) | RunnableLambda(_recorded))
    graph.add_node("tools", running)
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", destinations, ["select_tools", "tools", END])
    graph.add_edge("tools", "agent")
    graph.add_edge("select_tools", "agent")
    return graph


def _of(call: ToolCall, state: State) -> dict[str, Any]:
    """Return the state with one call: each is a task, so that an interrupt repeats no other."""
    *earlier, last = state["messages"]
    return {**state, "messages": [*earlier, last.model_copy(update={"tool_calls": [call]})]}


def _recorded(update: dict[str, list[ToolMessage]]) -> dict[str, Any]:
    """Write the retrieved ids into the state beside the answer; an error retrieved none."""
    answers = update["messages"]
    return {
        "messages": [each.model_copy(update={"artifact": None, "name": None}) for each in answers],
        "selected_tool_ids": [key for each in answers for key in each.artifact or ()],
    }


def _agent(llm: LanguageModelLike, registry: _Registry, retrieve: BaseTool) -> Runnable[Any, Any]:
    def bound(state: State) -> Runnable[Any, Any]:
        return bind_tools(llm, [retrieve, *registry.bound(state.get("selected_tool_ids", ()))])

    def call_model(state: State, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [bound(state).invoke(state["messages"], config)]}

    async def acall_model(state: State, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await bound(state).ainvoke(state["messages"], config)]}

    return RunnableLambda(call_model, afunc=acall_model, name="agent")
