"""Ranking in -> the part of it that is worth returning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_toolrag.types import Hit


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutoff:
    """How much of a ranking is returned.

    Adaptive, every tool that the query names is returned, however many there are.

    Attributes:
        k: How many hits; None for adaptive: as many as come close to the best.
        margin: Adaptive: how far below the best score a hit may be, on the ranking's scale
            (cosine, 0 to 2).
        max_k: Adaptive: at most this many.
        min_k: Adaptive: at least this many, where there are as many.
    """

    k: int | None = None
    margin: float = 0.2
    max_k: int = 10
    min_k: int = 1

    def __post_init__(self) -> None:
        if self.k is not None and self.k < 1:
            raise ValueError(f"k is {self.k}; wanted at least 1, or None for adaptive")
        if not 0 <= self.min_k <= self.max_k:
            raise ValueError(
                f"min_k is {self.min_k} and max_k {self.max_k}; wanted 0 <= min_k <= max_k"
            )
        if not self.margin >= 0:
            raise ValueError(f"margin is {self.margin}; wanted 0 or more")

    @property
    def limit(self) -> int:
        """The most hits that can be returned."""
        return self.max_k if self.k is None else self.k

    def apply(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return the first hits of a ranking.

        Args:
            hits: A ranking, best first.

        Returns:
            Its beginning; never fewer than another margin smaller than this one would give.
        """
        if self.k is not None:
            return list(hits[: self.k])
        if not hits:
            return []
        floor = hits[0].score - self.margin
        close = sum(hit.score >= floor for hit in hits)
        named = sum(hit.evidence.exact for hit in hits)
        return list(hits[: max(min(max(close, self.min_k), self.max_k), named)])
