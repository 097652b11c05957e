"""Ranking in -> the part of it that is worth returning.

How many tools a request needs is not known, but how sharply its ranking falls off says something
of it. What counts is the share of the best tool's lead over the catalogue's average tool that the
next one has lost. That nothing needed stands below it is about as likely as a logistic regression
of that share says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from langchain_toolrag.types import Hit

# Logistic regression on labelled sets: `python -m tests.benchmark.cutoffs` fits it again and draws
# it against the fixed count and the margin.
_CONSTANT, _SLOPE = -1.15, 4.76


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutoff:
    """How much of a ranking is returned.

    Adaptive, every tool that the query names is returned, however many there are.

    Attributes:
        k: How many hits; None for adaptive.
        completeness: Adaptive: how likely it is to be that nothing the request needs is left out, 0
            to 1; higher returns more. `max_k` may keep it from being reached.
        margin: Adaptive, instead of `completeness`, the rule of toolrank: how far below the best
            score a hit may be, on the ranking's scale (cosine, 0 to 2). None for `completeness`.
        max_k: Adaptive: at most this many.
        min_k: Adaptive: at least this many, where there are as many.
    """

    k: int | None = None
    completeness: float = 0.8
    margin: float | None = None
    max_k: int = 10
    min_k: int = 1

    def __post_init__(self) -> None:
        if self.k is not None and self.k < 1:
            raise ValueError(f"k is {self.k}; wanted at least 1, or None for adaptive")
        if not 0 <= self.min_k <= self.max_k:
            raise ValueError(
                f"min_k is {self.min_k} and max_k {self.max_k}; wanted 0 <= min_k <= max_k"
            )
        if not 0 <= self.completeness <= 1:
            raise ValueError(f"completeness is {self.completeness}; wanted 0 to 1")
        if self.margin is not None and not self.margin >= 0:
            raise ValueError(f"margin is {self.margin}; wanted 0 or more, or None")

    @property
    def limit(self) -> int:
        """The most hits that can be returned."""
        return self.max_k if self.k is None else self.k

    def apply(self, hits: Sequence[Hit], average: float = 0.0) -> list[Hit]:
        """Return the first hits of a ranking.

        Args:
            hits: A ranking, best first.
            average: What an average tool of the catalogue scores in it.

        Returns:
            Its beginning; never fewer than a smaller margin or completeness would give.
        """
        if self.k is not None:
            return list(hits[: self.k])
        if not hits:
            return []
        floor = self._floor(hits[0].score, average)
        close = sum(hit.score >= floor for hit in hits)
        named = sum(hit.evidence.exact for hit in hits)
        return list(hits[: max(min(max(close, self.min_k), self.max_k), named)])

    def _floor(self, best: float, average: float) -> float:
        """Return the score below which a hit is left out."""
        if self.margin is not None:
            return best - self.margin
        return best - _lost_share(self.completeness) * max(best - average, 0.0)


def _lost_share(completeness: float) -> float:
    """Return how much of the best tool's lead a tool has lost that need not be returned.

    Where the lead is lost as a whole, so is the sense of going on: a tool that is no better than
    the average one is needed by chance alone.
    """
    if completeness in (0, 1):
        return completeness
    odds = math.log(completeness / (1 - completeness))
    return min(max((odds - _CONSTANT) / _SLOPE, 0.0), 1.0)
