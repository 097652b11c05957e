"""What requests must hold, and what answers hold."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import NotRequired, Self, TypedDict

from langchain_toolrag.server.callers import MOST_NAME

MOST_RESULTS = 50
MOST_RANKED = 200
MOST_SECONDS = 300.0

Mode: TypeAlias = Literal["semantic", "lexical"]
"""Whether requests are embedded, or searched by words and names alone."""

_Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=MOST_NAME)]
_Id: TypeAlias = Annotated[str, Field(max_length=MOST_NAME)]


class _Body(BaseModel):
    """A misspelt key is an error, rather than a default in its place."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SearchBody(_Body):
    """What `/v1/search` takes."""

    query: str = Field(
        min_length=1, description="A request, names of tools, a server, `select:A,B` or `+word`."
    )
    k: int = Field(
        5, ge=1, le=MOST_RESULTS, description="At most so many; named ones are all found."
    )
    session: _Id = Field(
        "", description="Names the caller's session: it is always answered by the same heads."
    )


class RankBody(_Body):
    """What `/v1/rank` takes: tools of the caller's own, or ids of the catalogue's."""

    query: str = Field(min_length=1, description="As in a search.")
    tools: list[dict[str, Any]] | None = Field(
        None, max_length=MOST_RANKED, description="Definitions, in MCP's or OpenAI's form."
    )
    tool_ids: list[_Name] | None = Field(None, max_length=MOST_RANKED)

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.tools is None) == (self.tool_ids is None):
            raise ValueError("give either tools or tool_ids")
        return self


class CallBody(_Body):
    """What `/v1/call` takes."""

    name: _Name = Field(description="The tool's API name or id.")
    arguments: dict[str, Any] = Field(default_factory=dict)
    search_id: _Id = Field("", description="The search that found the tool.")
    timeout: float | None = Field(None, gt=0, le=MOST_SECONDS, description="In seconds.")


class FeedbackBody(_Body):
    """What `/v1/feedback` takes: how a call went that the caller made itself."""

    name: _Name = Field(description="The tool's API name or id.")
    outcome: Literal["ok", "tool_error"]
    search_id: _Id = Field("", description="The search that found the tool.")


class ExplainBody(_Body):
    """What `/v1/explain` takes: a request, or the conversation it stands at the end of."""

    query: str | None = Field(None, min_length=1)
    messages: list[dict[str, Any]] | None = Field(None, min_length=1)

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.query is None) == (self.messages is None):
            raise ValueError("give either query or messages")
        return self


class ToolAnswer(TypedDict):
    """One tool; what there is to say of it."""

    name: str
    id: str
    server: str
    kind: str
    description: str
    score: NotRequired[float | None]
    inputSchema: NotRequired[dict[str, Any]]
    annotations: NotRequired[dict[str, Any]]


class ToolsAnswer(TypedDict):
    """The catalogue, in its order."""

    tools: list[ToolAnswer]
    total: int


class SearchAnswer(TypedDict):
    """What a search found, best first."""

    search_id: str
    mode: Mode
    took_ms: float
    tools: list[ToolAnswer]
    confidence: float | None
    missing: list[str]
    note: NotRequired[str]


class RankedTool(TypedDict):
    """One tool of the caller's; without a score nothing speaks for it."""

    index: int
    name: str
    score: float | None


class RankAnswer(TypedDict):
    """All the tools that were given, best first."""

    search_id: str
    mode: Mode
    took_ms: float
    tools: list[RankedTool]


class CallAnswer(TypedDict):
    """How a call went; with a tool's error comes what it takes."""

    name: str
    call_id: str
    outcome: Literal["ok", "tool_error", "refused", "timeout"]
    took_ms: float
    content: str
    structured: NotRequired[Any]
    http_status: NotRequired[int]
    inputSchema: NotRequired[dict[str, Any]]


class FeedbackAnswer(TypedDict):
    """What the feedback was noted as."""

    call_id: str
    recorded: bool


class UncutTool(TypedDict):
    """One tool that was found, and what speaks for it."""

    id: str
    name: str
    server: str
    description: str
    score: float | None
    dense: float | None
    lexical: float | None
    keyword: float | None


class ExplainedTool(UncutTool):
    """One tool of a selection: why it is there, and whether the conversation called it."""

    source: str
    sticky: bool


class ExplainAnswer(TypedDict):
    """A selection for an agent's next step, by score, and what ranks under its cut."""

    query: str
    mode: Mode
    took_ms: float
    index: str
    tools: list[ExplainedTool]
    below: list[UncutTool]
    confidence: float | None
    tokens: int
    catalogue_tokens: int
    note: NotRequired[str]


class MapBody(_Body):
    """What `/v1/map` takes."""

    query: str = Field(min_length=1, description="A request.")


class ToolPlace(TypedDict):
    """Where a tool is on the map, -1 to 1 both ways."""

    id: str
    server: str
    x: float
    y: float


class MapAnswer(TypedDict):
    """The tools that are embedded, on the plane that shows most of how they differ."""

    index: str
    tools: list[ToolPlace]
    missing: int
    shown: float


class PlaceAnswer(TypedDict):
    """Where a request falls on the map; it may be outside."""

    index: str
    x: float
    y: float


class LintFinding(TypedDict):
    """One thing that keeps a tool from being found or called well."""

    tool: str
    code: str
    message: str
    suggestion: str


class LintAnswer(TypedDict):
    """What `toolrag lint` finds in the catalogue, in its order."""

    index: str
    mode: Mode
    findings: list[LintFinding]


class RecentSearch(TypedDict):
    """A search of the usage log; without the request where texts are not logged."""

    type: Literal["search"]
    time: str
    search_id: str
    kind: str
    mode: str
    text: str
    tools: list[str]
    found: int
    confidence: float | None
    took_ms: float | None


class RecentCall(TypedDict):
    """A call of the usage log; without the arguments where texts are not logged."""

    type: Literal["call"]
    time: str
    search_id: str
    tool: str
    outcome: str
    text: str
    took_ms: float | None


class RecentAnswer(TypedDict):
    """The last searches and calls, the latest first, and whether new ones are logged."""

    recording: bool
    records: list[RecentSearch | RecentCall]


class HealthAnswer(TypedDict):
    """Whether requests are searched by their meaning yet, and by which learned heads.

    `heads` is the beginning of their digest, empty for none; where newer ones cannot be used,
    `heads_problem` is true and the server's log says why.
    """

    ready: bool
    mode: Mode
    tools: int
    heads: str
    heads_problem: bool


class LiveAnswer(TypedDict):
    """Whether the server answers at all."""

    alive: bool


class ErrorAnswer(TypedDict):
    """Why there is no answer."""

    error: str
    closest: NotRequired[list[str]]
