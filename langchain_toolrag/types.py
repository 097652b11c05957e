"""The records that flow through the package. Read this file first.

tools -> ToolDocument -> Evidence -> Hit -> Selection -> model.bind_tools
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from langchain_core.tools import BaseTool
from numpy.typing import NDArray

ToolId: TypeAlias = str
"""`<server>/<name>`, or the name alone where there is no server."""

Tool: TypeAlias = BaseTool | Callable[..., Any] | dict[str, Any]
"""What LangChain's `bind_tools` takes: a tool, a function, or a definition as a dict."""

Vector: TypeAlias = NDArray[np.float32]
"""Shape `(dim,)`."""

Vectors: TypeAlias = NDArray[np.float32]
"""Shape `(n, dim)`."""

Source: TypeAlias = Literal[
    "semantic", "text", "keyword", "both", "sticky", "always", "loaded", "kept"
]
"""Why a tool is bound.

`semantic`, `text` and `both`: found by meaning, by words, by the two. `keyword`: the request
gives its name. `sticky`: the history holds a call of it. `always`: it may not be left out.
`loaded`: the model searched for it itself. `kept`: bound in an earlier turn of the conversation.
"""

View: TypeAlias = Literal["full", "name", "description"]
"""One text of a tool: everything, its server and name, or its description."""


_EMBEDDED_PARAMETERS = 50  # More would fill all a model reads of a text; words count in full.


@dataclass(frozen=True, slots=True)
class ToolDocument:
    """What is indexed of one tool.

    Attributes:
        id: `<server>/<name>`, or the name; unique in a catalogue.
        name: The tool's own name.
        bound_name: The name the model sees: 1-64 of `a-z A-Z 0-9 _ -`.
        description: The tool's description; may be empty.
        words: The words of the name, lower-case, in order.
        parameters: Names of its arguments, outermost first, without repeats.
        values: Words its arguments may take (enums).
        parameter_descriptions: What is said of its arguments; words search them, meaning does not.
        server: The server or group it belongs to.
        title: A display name, where the tool has one.
        hint: Extra words to be found by (`metadata["search_hint"]`).
        tags: Labels that a filter can ask for.
        origin: Where the tool was defined, for messages.
    """

    id: ToolId
    name: str
    bound_name: str
    description: str = ""
    words: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    parameter_descriptions: tuple[str, ...] = ()
    server: str | None = None
    title: str = ""
    hint: str = ""
    tags: frozenset[str] = frozenset()
    origin: str = field(default="", compare=False)

    def text(self, view: View = "full", *, with_server: bool = True) -> str:
        """Return the text of one view; empty where the tool has nothing to say in it."""
        if view == "description":
            return self.description
        head = f"{self.server}. " if self.server and with_server else ""
        words = ". ".join(self.words)
        if view == "name":
            return f"{head}{self.title or words}"
        body = f"{head}{self.name}. {words}: {self.description}"
        named = ", ".join(self.parameters[:_EMBEDDED_PARAMETERS])
        return f"{body}. Parameters: {named}" if named else body


@dataclass(frozen=True, slots=True)
class ToolFilter:
    """Which tools a caller may see; what is None does not restrict.

    Attributes:
        servers: Servers whose tools pass.
        tags: A tool passes with at least one of these.
        predicate: A function of the tool document; asked about those that pass otherwise.
        ids: Ids of the tools that pass.

    Raises:
        TypeError: If `servers`, `tags` or `ids` is a single string, a server or tag none, or
            `predicate` cannot be called or is asynchronous (its answer would be a coroutine, which
            is true whatever it holds).
    """

    servers: Collection[str] | None = None
    tags: Collection[str] | None = None
    predicate: Callable[[ToolDocument], bool] | None = None
    ids: Collection[ToolId] | None = None

    def __post_init__(self) -> None:
        for name in ("servers", "tags", "ids"):
            given = getattr(self, name)
            if isinstance(given, str):
                raise TypeError(f"{name} is the string {given!r}; wanted a set of strings")
            if given is not None:
                object.__setattr__(self, name, frozenset(given))
        if not all(isinstance(each, str) for each in (*(self.servers or ()), *(self.tags or ()))):
            raise TypeError(f"servers are {self.servers}, tags {self.tags}; wanted strings")
        if self.predicate is not None and not callable(self.predicate):
            raise TypeError(f"predicate is a {type(self.predicate).__name__}; wanted a function")
        if inspect.iscoroutinefunction(self.predicate):
            raise TypeError("predicate is asynchronous; wanted a function that returns a bool")

    def admits(self, document: ToolDocument) -> bool:
        """Return whether the document passes every restriction."""
        if self.ids is not None and document.id not in self.ids:
            return False
        if self.servers is not None and document.server not in self.servers:
            return False
        if self.tags is not None and document.tags.isdisjoint(self.tags):
            return False
        return self.predicate is None or bool(self.predicate(document))


# A search makes a hundred of these and of hits: as frozen dataclasses they take four times as long.
class ToolEvidence(NamedTuple):
    """What speaks for one tool, one score a source; higher is better.

    Attributes:
        id: The tool.
        dense: Weighted cosine of the tool's texts and the query, -1 to 1; None while the tool
            has no vector or the query was not embedded.
        lexical: BM25 score, 0 without a shared word.
        keyword: Points of the keyword scorer, 0 without a match.
        exact: Whether the query gives the tool's name.
        coverage: Share of the query's words that the tool's text has, 0 to 1, each word counted
            by how rare it is in the catalogue.
    """

    id: ToolId
    dense: float | None
    lexical: float
    keyword: float
    exact: bool
    coverage: float = 0.0


@dataclass(frozen=True, slots=True)
class ScoreStatistics:
    """How the scores of one query spread over the whole catalogue, filters aside.

    Attributes:
        dense_mean: Mean of the dense scores.
        dense_deviation: Their standard deviation.
        lexical_mean: Mean of the lexical scores, zeros included.
        lexical_deviation: Their standard deviation.
        outside: What the best dense score is for a request that no tool serves.
    """

    dense_mean: float = 0.0
    dense_deviation: float = 0.0
    lexical_mean: float = 0.0
    lexical_deviation: float = 0.0
    outside: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an index knows of a query.

    Attributes:
        tools: The best tools of every source together, in order of id.
        statistics: The scores' spread over the catalogue.
        version: The state of the index that answered.
        dense_ready: Whether the query and every tool had a vector.
        script_known: Whether the embedding model knows the script the query is written in.
        names_alone: Whether the query is names of tools and nothing else.
        server: Which server the whole query names, in comparable form; empty for none.
    """

    tools: tuple[ToolEvidence, ...]
    statistics: ScoreStatistics
    version: int
    dense_ready: bool
    script_known: bool = True
    names_alone: bool = False
    server: str = ""


class Hit(NamedTuple):
    """One tool of a ranking.

    Attributes:
        id: The tool.
        score: Higher is better; its scale is the ranking's.
        rank: From 1.
        evidence: The scores it was ranked by.
    """

    id: ToolId
    score: float
    rank: int
    evidence: ToolEvidence


@dataclass(frozen=True, slots=True)
class Finding:
    """What a search for tools came to.

    Attributes:
        hits: Tools, best first.
        missing: Names after `select:` that no tool answers to.
        server: The server whose tools these are, in comparable form, where the query names one;
            empty where it does not.
        confidence: How sure the search is that some tool fits, 0 to 1; None where it cannot say.
        degraded: Why the query was not embedded; empty if it was.
        search_id: Names the search in the usage log; empty where there is none.
        heads: Digest of the learned heads that ranked them; empty for none.
    """

    hits: tuple[Hit, ...] = ()
    missing: tuple[str, ...] = ()
    server: str = ""
    confidence: float | None = None
    degraded: str = ""
    search_id: str = ""
    heads: str = ""


@dataclass(frozen=True, slots=True)
class Changes:
    """What an update did to an index; ids in the order they were given."""

    added: tuple[ToolId, ...] = ()
    changed: tuple[ToolId, ...] = ()
    removed: tuple[ToolId, ...] = ()
    kept: tuple[ToolId, ...] = ()

    def __str__(self) -> str:
        return f"+{len(self.added)} ~{len(self.changed)} -{len(self.removed)} ={len(self.kept)}"


@dataclass(frozen=True, slots=True)
class SelectedTool:
    """One tool of a selection and why it is there.

    Attributes:
        id: The tool.
        name: The name it is bound under.
        description: Its description.
        source: Why it was chosen.
        score: Fused score of the search; NaN where the search did not return it.
        dense: Dense score; NaN where there is none.
        lexical: Lexical score; NaN where the search did not return the tool.
        keyword: Keyword points; NaN where the search did not return the tool.
    """

    id: ToolId
    name: str
    description: str
    source: Source
    score: float = math.nan
    dense: float = math.nan
    lexical: float = math.nan
    keyword: float = math.nan


@dataclass(frozen=True, slots=True)
class Selection:
    """The tools of one model step and how they were chosen.

    Attributes:
        tools: What to bind, in binding order: first what passes through unsearched, then
            the selected tools, the same objects that went in.
        selected: The catalogue's share of `tools`, in the same order, each with its reason.
        query: The text that was searched for; empty where nothing was.
        state: A small JSON value to hand back as `previous` at the next step.
        search_id: Names the search that the fresh tools come from; a step that reuses an
            earlier search carries that search's id.
        turn_id: Names the user turn; equal ids, equal turn.
        index_version: The state of the index that answered.
        degraded: Why the answer is not what it should be; empty if it is.
        confidence: How sure the search is that some tool fits, 0 to 1; None where it cannot say:
            for small talk, by `classic`, and while there are no vectors.
        prefix_changed: Whether the bound list is something other than the previous one with
            additions at its end, which empties a provider's prompt cache.
        tokens: Approximate tokens of the bound tools' definitions.
        catalogue_tokens: The same for the whole catalogue and what passes through.
        fresh: Whether this selection searched, rather than reuse the turn's search.
        heads: Digest of the learned heads that rank for this caller; empty for none.
    """

    tools: tuple[Tool, ...]
    selected: tuple[SelectedTool, ...]
    query: str
    state: Mapping[str, Any]
    search_id: str
    turn_id: str
    index_version: int
    degraded: str = ""
    confidence: float | None = None
    prefix_changed: bool = False
    tokens: int = 0
    catalogue_tokens: int = 0
    fresh: bool = True
    heads: str = ""

    @property
    def names(self) -> list[str]:
        """Names the selected tools are bound under, in binding order."""
        return [tool.name for tool in self.selected]

    @property
    def ids(self) -> list[ToolId]:
        """Ids of the selected tools, in binding order."""
        return [tool.id for tool in self.selected]

    @property
    def reasons(self) -> dict[str, Source]:
        """Why each selected tool is bound, by bound name."""
        return {tool.name: tool.source for tool in self.selected}

    @property
    def scores(self) -> dict[str, float]:
        """Fused scores of the tools the search returned, by bound name."""
        return {tool.name: tool.score for tool in self.selected if not math.isnan(tool.score)}


Messages: TypeAlias = Any
"""Whatever LangChain's `convert_to_messages` takes, or a single string: the user's words."""

Tools: TypeAlias = Sequence[Tool]
