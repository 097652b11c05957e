"""Query in -> ranked hits out, by meaning, by words, by name, or by all together.

Each ranking is a plan (see `plans`): it yields a `Question` and is sent the index's answer.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeAlias

from langchain_toolrag.index.contract import CANDIDATES
from langchain_toolrag.search.fusion import fuse, ranked, with_parts
from langchain_toolrag.search.request import parts_of, request_in
from langchain_toolrag.types import Evidence, Hit, ToolFilter


@dataclass(frozen=True, slots=True)
class Question:
    """What a plan asks of an index.

    Attributes:
        query: The query.
        filter: Which tools may be returned.
        candidate_k: How many tools each source puts forward.
        dense: Whether to embed the query.
        along: Queries that the plan will ask too; they can be embedded with this one.
    """

    query: str
    filter: ToolFilter | None = None
    candidate_k: int = CANDIDATES
    dense: bool = True
    along: tuple[str, ...] = ()


Ranking: TypeAlias = Generator[Question, Evidence, list[Hit]]
"""A plan that ends with a ranking, best first."""


@dataclass(frozen=True, slots=True)
class Fused:
    """A fused ranking and what it was made of.

    Attributes:
        hits: All candidates, best first.
        evidence: What the index knows of the request as a whole.
    """

    hits: list[Hit]
    evidence: Evidence


def by_everything(
    query: str,
    candidates: int,
    filter: ToolFilter | None,
    *,
    dense: bool = True,
) -> Generator[Question, Evidence, Fused]:
    """Rank by fused scores, all candidates; a request of several parts by its parts as well.

    Args:
        query: What the user typed; the request in it is searched for.
        candidates: How many tools each source puts forward.
        filter: Which tools may be returned.
        dense: Whether to embed.

    Returns:
        The ranking.
    """
    request = request_in(query)
    evidence = yield Question(request, filter, candidates, dense=dense)
    hits = fuse(evidence)
    parts = [] if any(tool.exact for tool in evidence.tools) else parts_of(request)
    of_parts: list[Evidence] = []
    for part in parts:
        question = Question(part, filter, candidates, dense=dense, along=tuple(parts))
        of_parts.append((yield question))
    return Fused(with_parts(hits, evidence, of_parts), evidence)


def semantic(
    query: str, k: int, filter: ToolFilter | None = None, *, threshold: float = 0.0
) -> Ranking:
    """Rank by dense score alone, cosine scale; scores below the threshold are no hits."""
    if not query.strip():
        return []
    evidence = yield Question(query, filter, k)
    return by_meaning(evidence, threshold)[:k]


def text(query: str, k: int, filter: ToolFilter | None = None) -> Ranking:
    """Rank by BM25 score alone; the query is not embedded."""
    evidence = yield Question(query, filter, k, dense=False)
    return by_words(evidence)[:k]


def keyword(query: str, k: int, filter: ToolFilter | None = None) -> Ranking:
    """Rank by name: exact names first, then ToolSearch's points; the query is not embedded."""
    evidence = yield Question(query, filter, k, dense=False)
    named = ranked((tool for tool in evidence.tools if tool.exact), lambda tool: tool.keyword)
    if named:
        return named
    scored = (tool for tool in evidence.tools if tool.keyword > 0)
    return ranked(scored, lambda tool: tool.keyword)[:k]


def by_meaning(evidence: Evidence, threshold: float) -> list[Hit]:
    """Rank evidence by dense score alone."""
    return ranked(
        (tool for tool in evidence.tools if tool.dense is not None and tool.dense >= threshold),
        lambda tool: tool.dense or 0.0,
    )


def by_words(evidence: Evidence) -> list[Hit]:
    """Rank evidence by lexical score alone; a score of 0 is no hit."""
    return ranked((tool for tool in evidence.tools if tool.lexical > 0), lambda tool: tool.lexical)
