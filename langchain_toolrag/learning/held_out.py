"""Heads and examples that they were not trained on in -> how good they are out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from langchain_toolrag.index.adapter import Adapter
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.learning.examples import Example, ExampleSet
from langchain_toolrag.types import Vector

SCALES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""How much of heads may be applied; 0 is the base model."""

_ERRORS = 2.0

Ranks: TypeAlias = NDArray[np.float64]
"""Reciprocal ranks, one for each example, 0 to 1; higher is better."""


def reciprocal_ranks(tests: ExampleSet, heads: Heads | None) -> Ranks:
    """Return where the wanted tools of each example stand among all tools.

    Tools with the same score share the mean of their ranks. Of several wanted tools the mean
    counts, by how sure they are.

    Args:
        tests: The examples; tools that are unknown in one are not looked at.
        heads: What moves the vectors; None for nothing.

    Returns:
        The mean of `1 / rank` of each example's wanted tools.
    """
    requests, rows = tests.requests, tests.rows
    if heads is not None:
        requests, rows = heads.requests(requests), heads.rows(rows)
    return np.array([_of_one(each, rows @ requests[each.request]) for each in tests.examples])


def _of_one(example: Example, scores: Vector) -> float:
    seen = np.ones(len(scores), np.bool_)
    seen[list(example.unknown)] = False
    total = 0.0
    for place, sureness in example.wanted.items():
        above = int((seen & (scores > scores[place])).sum())
        beside = int((seen & (scores == scores[place])).sum()) - 1
        total += sureness / (1 + above + beside / 2)
    return total / math.fsum(example.wanted.values())


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """How much of heads is best applied.

    Attributes:
        scale: The best scale; the smallest of equally good ones, so 0 where nothing is gained.
        scales: Mean reciprocal rank by scale, 0 the base model.
        ranks: Reciprocal ranks at the best scale, for each set of tests.
        base: The same for the base model.
    """

    scale: float
    scales: dict[float, float]
    ranks: tuple[Ranks, ...]
    base: tuple[Ranks, ...]

    @property
    def value(self) -> float:
        """Mean reciprocal rank at the best scale."""
        return self.scales[self.scale]


def choose_scale(adapter_at: Callable[[float], Adapter], tests: Sequence[ExampleSet]) -> Chosen:
    """Find out how much of heads is best applied.

    Args:
        adapter_at: The heads at a scale.
        tests: Sets of examples that the heads were not trained on; none is empty.

    Returns:
        The choice. Where there are several sets the mean of their means counts.
    """
    found = {
        scale: tuple(
            reciprocal_ranks(each, Heads(adapter_at(scale)) if scale else None) for each in tests
        )
        for scale in SCALES
    }
    scales = {scale: mean_of_sets(ranks) for scale, ranks in found.items()}
    best = max(SCALES, key=lambda scale: (scales[scale], -scale))
    return Chosen(best, scales, found[best], found[0.0])


def mean_of_sets(ranks: Sequence[Ranks]) -> float:
    """Return the mean over sets of the mean of each."""
    return float(np.mean([of_set.mean() for of_set in ranks]))


@dataclass(frozen=True, slots=True)
class Difference:
    """How much better something is than something else on the same examples.

    Attributes:
        mean: The mean difference; above 0 for better.
        error: Its standard error; infinite where everybody asked the same.
        groups: How many different requests there are.
    """

    mean: float
    error: float
    groups: int

    @property
    def is_sure(self) -> bool:
        """Whether it is better by more than 2 standard errors.

        Where requests are few it takes more: as much as makes chance as rare, by Student's t.
        """
        if self.groups < 2:
            return False
        errors = float(t.ppf(norm.cdf(_ERRORS), self.groups - 1))
        return self.mean > 0 and self.mean > errors * self.error


def difference(first: Ranks, second: Ranks, groups: Sequence[int]) -> Difference:
    """Compare two rankings of the same examples; those of one request are one observation.

    Args:
        first: Reciprocal ranks, at least one.
        second: Those it is to be better than, in the same order.
        groups: The request of each example.

    Returns:
        The mean of the paired differences, with an error that is robust to clusters [1].

    References:
        [1] Cameron and Miller. A Practitioner's Guide to Cluster-Robust Inference. Journal of
        Human Resources 50(2), 2015. https://doi.org/10.3368/jhr.50.2.317
    """
    gained = first - second
    mean = float(gained.mean())
    _, members = np.unique(np.asarray(groups), return_inverse=True)
    sums = np.bincount(members, gained - mean)
    count = len(sums)
    if count < 2:
        return Difference(mean, math.inf, count)
    variance = float((sums**2).sum()) * count / (count - 1)
    return Difference(mean, math.sqrt(variance) / len(gained), count)
