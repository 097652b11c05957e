"""How tools are selected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from langchain_toolrag.search.cutoff import Cutoff

OnError: TypeAlias = Literal["lexical", "previous", "all", "raise"]
"""What to do when embedding fails: answer by words and names alone, bind what was bound before,
bind everything, or raise."""

Refresh: TypeAlias = Literal["turn", "step"]
"""When to search: once for each user turn, or at every model step."""

Algorithm: TypeAlias = Literal["hybrid", "classic"]
"""Fused ranking, or ToolRAG's union of rankings."""

_PROVIDER_LIMIT = 128  # What OpenAI takes in one request.


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionOptions:
    """How tools are selected.

    Attributes:
        k: How many tools a search brings; None for adaptive.
        completeness: Adaptive: how likely it is to be that no tool the request needs is left out,
            0 to 1; higher binds more.
        margin: Adaptive, instead of `completeness`: how far below the best a tool may score; cosine
            scale, 0 to 2. None for `completeness`.
        max_k: Adaptive: at most this many.
        min_k: Adaptive: at least this many.
        max_tools: The most tools that are bound in one step, whatever they are bound for;
            `on_error="all"` alone goes beyond it. Where more would stay from earlier turns, those
            used longest ago go, until a quarter of the places is free.
        always_include: Names or ids of tools that are bound at every step, in this order.
        sticky_window: How many assistant turns back a called tool stays bound without
            competing with what the search finds.
        min_confidence: How sure a search must be that some tool fits, 0 to 1, for what it finds to
            be bound; 0 for always.
        similarity_threshold: Score by meaning below which semantic search has no hit.
        refresh: When to search.
        on_error: What to do when embedding fails.
        min_catalogue: A catalogue of at most so many tools is bound whole, in order.
        algorithm: `hybrid`, or `classic` for ToolRAG's.
        semantic_limit: Classic: how many tools a search by meaning brings.
        text_search_limit: Classic: how many tools a search by words brings.
        vague_words: Classic: a request of at most so many words is taken for a follow-up.
        vague_score: Classic: so is one whose best tool scores less than this by meaning.

    Raises:
        ValueError: If a number is out of range, or `always_include` alone exceeds `max_tools`.
    """

    k: int | None = None
    completeness: float = 0.8
    margin: float | None = None
    max_k: int = 10
    min_k: int = 1
    max_tools: int = 24
    always_include: tuple[str, ...] = ()
    sticky_window: int = 3
    min_confidence: float = 0.0
    similarity_threshold: float = 0.25
    refresh: Refresh = "turn"
    on_error: OnError = "lexical"
    min_catalogue: int = 0
    algorithm: Algorithm = "hybrid"
    semantic_limit: int = 5
    text_search_limit: int = 3
    vague_words: int = 6
    vague_score: float = 0.4

    def __post_init__(self) -> None:
        _ = self.cutoff  # Checks its fields.
        if isinstance(self.always_include, str):
            raise TypeError(f"always_include is the string {self.always_include!r}; wanted a tuple")
        object.__setattr__(self, "always_include", tuple(self.always_include))
        if self.max_tools < max(1, len(set(self.always_include))):
            raise ValueError(
                f"max_tools is {self.max_tools} but always_include names "
                f"{len(set(self.always_include))} tools; wanted at least 1 and room for them all"
            )
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; wanted one of {allowed}")
        if self.min_catalogue > self.max_tools:
            raise ValueError(
                f"min_catalogue is {self.min_catalogue} but max_tools {self.max_tools}: a "
                "catalogue bound whole would not fit"
            )
        if not 0 <= self.min_confidence <= 1:
            raise ValueError(f"min_confidence is {self.min_confidence}; wanted 0 to 1")
        for name in _NOT_NEGATIVE:
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; wanted 0 or more")

    @property
    def cutoff(self) -> Cutoff:
        """How much of a ranking is used."""
        return Cutoff(
            k=self.k,
            completeness=self.completeness,
            margin=self.margin,
            max_k=self.max_k,
            min_k=self.min_k,
        )

    @classmethod
    def classic(cls) -> SelectionOptions:
        """Return ToolRAG's algorithm, for comparison.

        The union of the best by meaning (a vague request's enriched search first), the best by
        words and the sticky tools, in that order; all tools while embedding fails.
        """
        return cls(algorithm="classic", on_error="all", max_tools=_PROVIDER_LIMIT)


_NOT_NEGATIVE = (
    "sticky_window",
    "vague_words",
    "min_catalogue",
    "semantic_limit",
    "text_search_limit",
)
_CHOICES = {
    "refresh": ("turn", "step"),
    "on_error": ("lexical", "previous", "all", "raise"),
    "algorithm": ("hybrid", "classic"),
}
