"""Evidence in -> one ranking out, its scores on the scale of the cosine.

Lexical scores are brought to the scale of this query's dense scores: how many standard
deviations a tool's BM25 score stands above the catalogue's mean, times the standard
deviation of the dense scores. The ranking is that of `(1 - w) * z(dense) + w * z(lexical)`,
a convex combination of standardised scores [1], while differences keep their meaning as
cosines, which the cutoff relies on.

References:
    [1] Bruch, Gai and Ingber. An Analysis of Fusion Functions for Hybrid Retrieval.
    TOIS 2023. https://doi.org/10.1145/3596512
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from langchain_toolrag.types import Evidence, Hit, ScoreStatistics, ToolEvidence, ToolId

_Scored: TypeAlias = tuple[float, ToolEvidence]

LEXICAL_WEIGHT = 0.3
"""Share of the lexical side. Measured best, with 0.7 for the dense side, as the mean over 29
public sets in the study this project starts from (Recall@5 .706; dense alone .652)."""

PARTS_WEIGHT = 0.2
"""Share of the best part where a request has several. In an exploratory run over seven public sets
(150 requests each) Recall@5 was higher than without parts on six and equal on one."""

UNKNOWN_SCRIPT_WEIGHT = 0.8
"""Share of the lexical side where the model does not know the query's script."""

EXACT_LEAD = 1.0
"""How far the tools that the query names stand above the best of the others."""


def fuse(evidence: Evidence, *, named_first: bool = True) -> list[Hit]:
    """Rank tools by all their evidence together.

    Args:
        evidence: What an index knows of a query.
        named_first: Whether tools that the query names come first.

    Returns:
        Every tool with any evidence, best first, equal scores in order of id. The scale is the
        cosine's; tools that the query names are lifted by one amount, so that the last of them
        stands `EXACT_LEAD` above the best other. Without a query vector the scale is the share of
        the best lexical score, 0 to 1, and a tool that shares no word with the query is left out.
    """
    tools, statistics = evidence.tools, evidence.statistics
    if any(tool.dense is not None for tool in tools):
        weight = LEXICAL_WEIGHT if evidence.script_known else UNKNOWN_SCRIPT_WEIGHT
        scores = [(_fused(tool, statistics, weight / (1 - weight)), tool) for tool in tools]
    else:
        best = max((tool.lexical for tool in tools), default=0.0) or 1.0
        scores = [(tool.lexical / best, tool) for tool in tools if tool.lexical or tool.exact]
    return _in_order(_with_exact_first(scores) if named_first else scores)


def average_score(evidence: Evidence) -> float:
    """Return what an average tool of the catalogue scores in the ranking that `fuse` makes."""
    if any(tool.dense is not None for tool in evidence.tools):
        return evidence.statistics.dense_mean
    best = max((tool.lexical for tool in evidence.tools), default=0.0) or 1.0
    return evidence.statistics.lexical_mean / best


def with_parts(hits: Sequence[Hit], evidence: Evidence, parts: Sequence[Evidence]) -> list[Hit]:
    """Mix the best of a request's parts into the ranking of the whole.

    Args:
        hits: Ranking of the whole request.
        evidence: What it was ranked by.
        parts: What the index knows of the parts.

    Returns:
        All tools of the whole and its parts, best first, equal scores in order of id; the scores of
        the parts are brought to the scale of the whole.
    """
    if not parts:
        return list(hits)
    best: dict[ToolId, Hit] = {}
    for part in parts:
        for hit in _rescaled(fuse(part, named_first=False), part, evidence):
            if hit.id not in best or best[hit.id].score < hit.score:
                best[hit.id] = hit
    return blend(hits, list(best.values()), PARTS_WEIGHT)


def _rescaled(hits: Iterable[Hit], own: Evidence, other: Evidence) -> Iterator[Hit]:
    """Bring scores to the scale of another query: as many deviations from its mean."""
    from_, to = own.statistics, other.statistics
    stretch = to.dense_deviation / from_.dense_deviation if from_.dense_deviation else 1.0
    for hit in hits:
        yield hit._replace(score=to.dense_mean + (hit.score - from_.dense_mean) * stretch)


def blend(plain: Sequence[Hit], contextual: Sequence[Hit], share: float) -> list[Hit]:
    """Rank by two rankings of one request together.

    Args:
        plain: Hits of the request alone.
        contextual: Hits of the request with its context.
        share: Weight of the second, 0 to 1.

    Returns:
        All tools of both, best first, equal scores in order of id; one that a ranking lacks has
        that ranking's lowest score there.
    """
    scores = [{hit.id: hit.score for hit in hits} for hits in (plain, contextual)]
    evidence = {hit.id: hit.evidence for hit in (*contextual, *plain)}
    lowest = [min(known.values(), default=0.0) for known in scores]

    def score(tool: ToolEvidence) -> float:
        first, second = (known.get(tool.id, low) for known, low in zip(scores, lowest, strict=True))
        return math.fsum(((1 - share) * first, share * second))

    return ranked(evidence.values(), score)


def ranked(tools: Iterable[ToolEvidence], score: Callable[[ToolEvidence], float]) -> list[Hit]:
    """Rank tools by one score, best first, equal scores in order of id."""
    return _in_order([(score(tool), tool) for tool in tools])


def _in_order(scores: Iterable[_Scored]) -> list[Hit]:
    scored = sorted(scores, key=lambda pair: (-pair[0], pair[1].id))
    return [Hit(tool.id, points, rank, tool) for rank, (points, tool) in enumerate(scored, start=1)]


def _with_exact_first(scores: Sequence[_Scored]) -> Sequence[_Scored]:
    named = [score for score, tool in scores if tool.exact]
    if not named:
        return scores
    others = [score for score, tool in scores if not tool.exact]
    lift = max(max(others, default=0.0) - min(named), 0.0) + EXACT_LEAD
    return [(score + lift * tool.exact, tool) for score, tool in scores]


def _fused(tool: ToolEvidence, statistics: ScoreStatistics, lexical_share: float) -> float:
    """A tool without a vector yet counts as an average one by meaning."""
    dense = statistics.dense_mean if tool.dense is None else tool.dense
    return dense + lexical_share * _prominence(tool.lexical, statistics)


def _prominence(lexical: float, statistics: ScoreStatistics) -> float:
    """Return a BM25 score's standing in the catalogue, on the scale of the dense scores."""
    if not statistics.lexical_deviation:
        return 0.0
    deviations = (lexical - statistics.lexical_mean) / statistics.lexical_deviation
    return statistics.dense_deviation * deviations
