"""A tool by which the model asks for tools it cannot see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import StructuredTool
from langgraph.prebuilt import ToolRuntime
from pydantic import BaseModel, ConfigDict

from langchain_toolrag.catalogue.catalogue import Catalogue, Entry
from langchain_toolrag.errors import DuplicateToolError
from langchain_toolrag.integrations.memory import bound_ids, in_front, read
from langchain_toolrag.integrations.permissions import RuntimeFilter, filter_of
from langchain_toolrag.integrations.search_answer import FRUITLESS_KEY, Known, answer
from langchain_toolrag.selection.bindable import as_filter
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.types import ToolFilter, ToolId

SearchMode: TypeAlias = Literal["auto", "deferred", "off"]
"""`auto`: tools are selected before each step and the model may search for more. `deferred`: only
what the model has searched for is bound, and what must be. `off`: no search tool."""

SEARCH_TOOL = "search_tools"

_MODES: dict[bool | SearchMode, SearchMode] = {
    True: "auto",
    False: "off",
    "auto": "auto",
    "deferred": "deferred",
    "off": "off",
}
_MOST_RESULTS = 20
_DESCRIPTION = (
    "Find tools that you do not see yet and make them available from your next step on. "
    "query: what the tool should do, in a few words, or its name; select:A,B loads tools by name; "
    "a server's name lists its tools; +word must occur in the tool's text. If two searches find "
    "nothing that fits, there is no such tool."
)

_Answer: TypeAlias = tuple[str, dict[str, Any]]


class _Arguments(BaseModel):
    """What a search tool is called with.

    LangGraph gives `runtime`, which is hidden from the model only where it is annotated as just
    that. Outside a graph there is none. In a function's signature Python 3.10 would read a default
    of None as Optional.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    query: str
    max_results: int | None = None
    runtime: ToolRuntime[Any, Any] = None  # type: ignore[assignment]


class SearchTool(StructuredTool):
    """A tool that finds tools; selectors tell it from the tools they select by its class."""


def create_search_tool(
    rag: ToolRAG,
    *,
    name: str = SEARCH_TOOL,
    max_results: int = 5,
    filter: RuntimeFilter | None = None,
    messages_key: str = "messages",
) -> StructuredTool:
    """Return a tool by which the model finds tools that are not bound.

    What it finds is named in a few words in its answer; the ids are in the answer's artifact, where
    every selection of the conversation finds them. They are bound from the next step on and stay,
    until `max_tools` makes those go that were used longest ago. `ToolRAGMiddleware` and
    `ToolRAGNode` bring this tool themselves with `search_tool=True`.

    Example:
        >>> search = create_search_tool(rag)
        >>> selection = rag.select(messages, besides=[search], previous=state)
        >>> model.bind_tools(selection.tools)

    Args:
        rag: Where the tools are.
        name: The name the model sees.
        max_results: How many tools a search finds at most, unless the model asks for another
            number, 1 to 20; those that it names are all found.
        filter: Which tools may be found.
        messages_key: Where in the graph's state the messages are.

    Returns:
        A tool with the arguments `query` and `max_results`.

    Raises:
        DuplicateToolError: If a tool of `rag` has that name.
        ValueError: If `max_results` is not 1 to 20.
    """
    refuse_twin(rag.catalogue, name)
    if not 1 <= max_results <= _MOST_RESULTS:
        raise ValueError(f"max_results is {max_results}; wanted 1 to {_MOST_RESULTS}")
    default = max_results

    def within(asked: int | None) -> int:
        """Models ask for 0 or 1,000 as well."""
        return default if asked is None else min(max(1, asked), _MOST_RESULTS)

    def search(query: str, max_results: int | None = None, runtime: Any = None) -> _Answer:
        admitted = _filter(filter, runtime)
        finding = rag.find(query, within(max_results), admitted, config=_config(runtime))
        return answer(query, finding, _known(rag, admitted, runtime, messages_key))

    async def asearch(query: str, max_results: int | None = None, runtime: Any = None) -> _Answer:
        admitted = _filter(filter, runtime)
        finding = await rag.afind(query, within(max_results), admitted, config=_config(runtime))
        return answer(query, finding, _known(rag, admitted, runtime, messages_key))

    return SearchTool.from_function(
        func=search,
        coroutine=asearch,
        name=name,
        description=_DESCRIPTION,
        args_schema=_Arguments,
        response_format="content_and_artifact",
    )


def refuse_twin(catalogue: Catalogue, name: str) -> None:
    """Refuse a tool that has the name of the search tool.

    Args:
        catalogue: The tools.
        name: The search tool's name.

    Raises:
        DuplicateToolError: If one of the tools is bound under it.
    """
    taken = catalogue.id_of(name)
    if taken is not None:
        origin = catalogue.entries[taken].document.origin
        raise DuplicateToolError(name, (origin, "the tool that searches tools"))


def search_mode(given: bool | SearchMode) -> SearchMode:
    """Return the mode that is meant: True is `auto`, False `off`.

    Args:
        given: What the user gave.

    Returns:
        The mode.

    Raises:
        ValueError: If there is no such mode.
    """
    if not isinstance(given, (bool, str)) or given not in _MODES:
        raise ValueError(
            f"search_tool is {given!r}; wanted True, False, 'auto', 'deferred' or 'off'"
        )
    return _MODES[given]


def _filter(filter: RuntimeFilter | None, runtime: object) -> ToolFilter | None:
    return as_filter(filter_of(filter, runtime))


def _config(runtime: object) -> RunnableConfig | None:
    """Return the config of the graph's step where that of the tool's own run is not known.

    Before Python 3.11 an asynchronous tool does not know it.
    """
    known = var_child_runnable_config.get() is not None
    return None if known else getattr(runtime, "config", None)


def _known(rag: ToolRAG, filter: ToolFilter | None, runtime: Any, messages_key: str) -> Known:
    state = getattr(runtime, "state", None)
    entries: Mapping[ToolId, Entry] = rag.catalogue.entries
    if filter is not None:
        entries = {i: entry for i, entry in entries.items() if filter.admits(entry.document)}
    return Known(
        entries,
        bound=bound_ids(state) or (),
        unavailable=_unavailable(rag, filter),
        places=_places(rag, state),
        tries=_fruitless(read(state, messages_key) or ()),
    )


def _places(rag: ToolRAG, state: object) -> int:
    """Return how many tools a search may load: the others have places of their own.

    One of what is left goes to the best hit of the turn's selection, unless it is the only one.
    Outside a graph the search tool is taken to be all that is bound besides.
    """
    front = in_front(state)
    passing = len(rag.catalogue.passed_through) + 1 if front is None else front
    left = rag.options.max_tools - passing - len(set(rag.options.always_include))
    return max(0, left - 1) or min(max(left, 0), 1)


def _unavailable(rag: ToolRAG, filter: ToolFilter | None) -> Mapping[str, str]:
    """Return what the caller may know of servers whose tools are missing."""
    allowed = None if filter is None else filter.servers
    missing = rag.status.unavailable
    return {name: why for name, why in missing.items() if allowed is None or name in allowed}


def _fruitless(messages: Iterable[Any]) -> int:
    """Return how many searches of the current turn, the last ones on end, found nothing."""
    tries = 0
    for message in reversed(list(messages)):
        if isinstance(message, HumanMessage):
            break
        artifact = message.artifact if isinstance(message, ToolMessage) else None
        if isinstance(artifact, Mapping) and FRUITLESS_KEY in artifact:
            if not artifact[FRUITLESS_KEY]:
                break
            tries += 1
    return tries
