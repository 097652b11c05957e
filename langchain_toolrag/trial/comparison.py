"""Sessions of a trial in -> whether the heads on trial are better, worse or not known out.

Sessions are dealt out, not searches, and searches of one session are alike; so every standard
error is over sessions, as in any cluster-randomised experiment. Calls per search are a ratio of
two sums over sessions, whose standard error is the delta method's [1].

References:
    [1] Deng, Knoblich and Lu. Applying the Delta Method in Metric Analytics: A Practical Guide
    with Novel Ideas. KDD 2018. https://doi.org/10.1145/3219819.3219919
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from langchain_toolrag.trial.sessions import SessionUse, Side

Verdict: TypeAlias = Literal["promote", "roll back", "undecided"]
"""What to do with heads on trial."""

FEWEST_SESSIONS = 30
"""On each side; with fewer, a standard error says little."""

_SURE = 2.0  # Standard errors; a difference of more comes by chance in 1 of 20 trials.
_ROUNDING = 1e-9  # What equal means may differ by.


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and how sure it is.

    Attributes:
        value: The number; None where nothing is known.
        error: Its standard error, from 0; None where fewer than two sessions tell.
    """

    value: float | None
    error: float | None

    @property
    def beyond_chance(self) -> Literal[-1, 0, 1]:
        """Whether a difference is more than two standard errors below (-1) or above (1) zero."""
        if self.value is None or self.error is None:
            return 0
        if abs(self.value) <= max(_SURE * self.error, _ROUNDING):
            return 0
        return 1 if self.value > 0 else -1


@dataclass(frozen=True, slots=True)
class SideFigures:
    """What one side's sessions say.

    Attributes:
        sessions: How many there are.
        with_calls: In how many a tool was called.
        searches: How many searches they had.
        reciprocal_rank: Mean over the sessions with calls of the called tools' reciprocal rank,
            0 to 1; higher is better.
        calls: Tools called per search, from 0.
    """

    sessions: int
    with_calls: int
    searches: int
    reciprocal_rank: Estimate
    calls: Estimate


@dataclass(frozen=True, slots=True)
class Comparison:
    """Heads on trial against those in use.

    Attributes:
        on_trial: What the sessions with the heads on trial say.
        in_use: What the others say.
        reciprocal_rank: How much higher the called tools stand with the heads on trial.
        calls: How many more tools are called per search.
        verdict: `promote` if called tools stand higher by more than two standard errors and calls
            per search are not down by more than two; `roll back` if one of them is down by more
            than two; else, or with too few sessions, `undecided`.
        missing: How many more sessions with calls the two sides need at least, on trial first.
        more: How many more sessions with calls, on both sides together, would decide if the
            difference stayed; None where they are missing, the verdict is there, or there is no
            difference.
    """

    on_trial: SideFigures
    in_use: SideFigures
    reciprocal_rank: Estimate
    calls: Estimate
    verdict: Verdict
    missing: tuple[int, int]
    more: int | None


@dataclass(frozen=True, slots=True)
class TrialComparison:
    """A trial so far.

    Attributes:
        everybody: All sessions that are dealt out.
        tenants: Those of each tenant, by its digest, most sessions first; empty where no session
            has a tenant.
        others: Those of nobody whose own sessions decide: what the verdict for everybody but them
            rests on.
    """

    everybody: Comparison
    tenants: Mapping[str, Comparison]
    others: Comparison


def compare_trial(sessions: Sequence[SessionUse]) -> TrialComparison:
    """Compare the two sides of a trial, over all and for each tenant.

    Args:
        sessions: Its sessions, each one dealt out as a whole.

    Returns:
        The comparison.
    """
    by_tenant: defaultdict[str, list[SessionUse]] = defaultdict(list)
    for session in sessions:
        if session.tenant:
            by_tenant[session.tenant].append(session)
    most_first = sorted(by_tenant, key=lambda tenant: (-len(by_tenant[tenant]), tenant))
    tenants = {tenant: compare(by_tenant[tenant]) for tenant in most_first}
    decided = {tenant for tenant, own in tenants.items() if own.verdict != "undecided"}
    return TrialComparison(
        everybody=compare(sessions),
        tenants=tenants,
        others=compare([session for session in sessions if session.tenant not in decided]),
    )


def compare(sessions: Iterable[SessionUse]) -> Comparison:
    """Compare the two sides of a trial.

    Args:
        sessions: Its sessions, each one dealt out as a whole.

    Returns:
        The comparison; the same for the same sessions in any order.
    """
    sides: dict[Side, list[SessionUse]] = {"on trial": [], "in use": []}
    for session in sessions:
        sides[session.side].append(session)
    on_trial, in_use = _figures(sides["on trial"]), _figures(sides["in use"])
    reciprocal_rank = _difference(on_trial.reciprocal_rank, in_use.reciprocal_rank)
    calls = _difference(on_trial.calls, in_use.calls)
    missing = (_missing(on_trial.with_calls), _missing(in_use.with_calls))
    judged = Estimate(None, None) if any(missing) else reciprocal_rank
    # Heads that hide tools have few sessions with calls: here all sessions count.
    heard = min(on_trial.sessions, in_use.sessions) >= FEWEST_SESSIONS
    verdict = _verdict(judged, calls if heard else Estimate(None, None))
    told = on_trial.with_calls + in_use.with_calls
    return Comparison(
        on_trial=on_trial,
        in_use=in_use,
        reciprocal_rank=reciprocal_rank,
        calls=calls,
        verdict=verdict,
        missing=missing,
        more=_more(judged, told) if verdict == "undecided" else None,
    )


def _figures(sessions: Sequence[SessionUse]) -> SideFigures:
    ranks = [each.reciprocal_rank for each in sessions if each.reciprocal_rank is not None]
    return SideFigures(
        sessions=len(sessions),
        with_calls=len(ranks),
        searches=sum(each.searches for each in sessions),
        reciprocal_rank=_mean(ranks),
        calls=_ratio([each.calls for each in sessions], [each.searches for each in sessions]),
    )


def _mean(values: Sequence[float]) -> Estimate:
    """Return a mean over sessions."""
    if not values:
        return Estimate(None, None)
    return Estimate(math.fsum(values) / len(values), _error(values))


def _ratio(above: Sequence[int], below: Sequence[int]) -> Estimate:
    """Return the ratio of two sums over sessions, its error by the delta method."""
    if not below:
        return Estimate(None, None)
    ratio = sum(above) / sum(below)
    error = _error([a - ratio * b for a, b in zip(above, below, strict=True)])
    return Estimate(ratio, None if error is None else error * len(below) / sum(below))


def _error(values: Sequence[float]) -> float | None:
    """Return the standard error of a mean over sessions; None for fewer than two."""
    if len(values) < 2:
        return None
    return float(np.std(sorted(values), ddof=1)) / math.sqrt(len(values))


def _difference(first: Estimate, second: Estimate) -> Estimate:
    if first.value is None or second.value is None:
        return Estimate(None, None)
    if first.error is None or second.error is None:
        return Estimate(first.value - second.value, None)
    return Estimate(first.value - second.value, math.hypot(first.error, second.error))


def _missing(with_calls: int) -> int:
    return max(0, FEWEST_SESSIONS - with_calls)


def _verdict(reciprocal_rank: Estimate, calls: Estimate) -> Verdict:
    if -1 in (reciprocal_rank.beyond_chance, calls.beyond_chance):
        return "roll back"
    return "promote" if reciprocal_rank.beyond_chance == 1 else "undecided"


def _more(difference: Estimate, sessions: int) -> int | None:
    """Return how many more sessions make two standard errors of the difference as it is.

    A standard error falls with the root of the number of sessions.
    """
    if difference.value is None or difference.error is None:
        return None
    if abs(difference.value) <= _ROUNDING:
        return None
    times = (_SURE * difference.error / difference.value) ** 2
    return max(1, math.ceil((times - 1) * sessions))
