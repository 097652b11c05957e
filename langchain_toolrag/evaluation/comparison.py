"""Two contenders' results for a set in -> whether one is better, and where, out.

The interval is the percentile bootstrap's [1] over queries, paired: what is drawn are the
differences between the two answers to one query.

References:
    [1] Efron, Tibshirani. An Introduction to the Bootstrap. Chapman & Hall 1993.
    https://doi.org/10.1201/9780429246593
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from langchain_toolrag.evaluation.evaluate import SetResult
from langchain_toolrag.evaluation.labelled import LabelledQuery

COMPARED = "ndcg@10"
"""The measure whose differences are tested."""

CONFIDENCE = 0.95
"""How sure the interval is."""

_FLIPPING = "completeness@10"
_RESAMPLES = 9_999
_BATCH = 1_000  # All at once would take a matrix of resamples by queries.
_SEED = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a second contender's answers differ from a first one's.

    Attributes:
        name: The set's name.
        first: The first contender's name.
        second: The second contender's name.
        difference: Mean NDCG@10 of the second less that of the first, -1 to 1.
        interval: Where the mean difference lies with a confidence of 95 %; None for one query.
        better: On how many queries the second has the higher NDCG@10.
        worse: On how many it has the lower.
        equal: On how many the two are the same.
        p_value: Of the sign test: how likely so uneven a split of better and worse is by chance.
        gained: Queries that are complete at 10 with the second alone.
        lost: Queries that are complete at 10 with the first alone.
    """

    name: str
    first: str
    second: str
    difference: float
    interval: tuple[float, float] | None
    better: int
    worse: int
    equal: int
    p_value: float
    gained: tuple[LabelledQuery, ...]
    lost: tuple[LabelledQuery, ...]


def compare(first: SetResult, second: SetResult) -> Comparison:
    """Compare two contenders.

    Args:
        first: The one that is compared with.
        second: The other one's results for the same set.

    Returns:
        The comparison; the same for the same results.
    """
    differences = _values(second, COMPARED) - _values(first, COMPARED)
    flips = _values(second, _FLIPPING) - _values(first, _FLIPPING)
    queries = [result.query for result in first.queries]
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    return Comparison(
        name=first.name,
        first=first.contender,
        second=second.contender,
        difference=float(differences.mean()),
        interval=_interval(differences),
        better=better,
        worse=worse,
        equal=len(queries) - better - worse,
        p_value=_p_value(better, worse),
        gained=_where(queries, flips > 0),
        lost=_where(queries, flips < 0),
    )


def _values(result: SetResult, name: str) -> NDArray[np.float64]:
    return np.array([each.measures[name] for each in result.queries], np.float64)


def _interval(differences: NDArray[np.float64]) -> tuple[float, float] | None:
    if len(differences) < 2:
        return None
    from scipy import stats  # A second of import.

    interval = stats.bootstrap(
        (differences,),
        np.mean,
        n_resamples=_RESAMPLES,
        batch=_BATCH,
        confidence_level=CONFIDENCE,
        method="percentile",
        random_state=_SEED,
    ).confidence_interval
    return float(interval.low), float(interval.high)


def _p_value(better: int, worse: int) -> float:
    from scipy import stats

    decided = better + worse
    return float(stats.binomtest(better, decided).pvalue) if decided else 1.0


def _where(queries: Sequence[LabelledQuery], flipped: Iterable[bool]) -> tuple[LabelledQuery, ...]:
    return tuple(query for query, is_flipped in zip(queries, flipped, strict=True) if is_flipped)
