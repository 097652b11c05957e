"""Records of a usage log in -> what came of each session that was dealt out on a trial out.

Of a search count the tools that were called after it and ran (outcome `ok` or `tool_error`), each
once however often it was called. Sessions are what is dealt out, so that all there is of one is
on one side. A search that was not dealt out is left out, for there is nothing to compare it with:
one without a session, a lexical one, and one of a process that could not have answered with the
heads on trial, as it embeds with another model, follows no heads, or shares none out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from langchain_toolrag.trial.state import Candidate, HeadsState
from langchain_toolrag.types import ToolId
from langchain_toolrag.usage.reading import join_calls
from langchain_toolrag.usage.records import CallRecord, SearchRecord, UsageRecord

Side: TypeAlias = Literal["on trial", "in use"]
"""Which heads answered a session."""

_HEADS_DIGITS = 16  # As many of a digest as a record has.
_RAN = ("ok", "tool_error")

_SearchKey: TypeAlias = tuple[str, datetime]


@dataclass(frozen=True, slots=True)
class SessionUse:
    """What came of one session.

    Attributes:
        side: Which heads answered it.
        tenant: Its tenant's digest; empty for none.
        searches: How many searches it had, at least 1.
        calls: How many tools were called, a tool once a search.
        reciprocal_rank: Mean over its searches that a tool was called after, 0 to 1, of the mean
            reciprocal rank of these tools (0 for one that was bound but not retrieved); None
            where no tool was called.
    """

    side: Side
    tenant: str
    searches: int
    calls: int
    reciprocal_rank: float | None


@dataclass(frozen=True, slots=True)
class DealtSessions:
    """What a trial has to go by.

    Attributes:
        sessions: The sessions, in the order of their first search.
        searches_left_out: How many searches since the trial began were not dealt out; those of
            tenants that it has ended for do not count.
    """

    sessions: tuple[SessionUse, ...]
    searches_left_out: int


def dealt_sessions(
    records: Iterable[UsageRecord], state: HeadsState, candidate: Candidate
) -> DealtSessions:
    """Return what came of the sessions since a trial began.

    Those of tenants that the trial has ended for are not dealt out any more and left out. A
    session that both sides answered, because it was going on when the trial began, counts for
    what the heads on trial answered.

    Args:
        records: Records in order of time.
        state: Which heads answer whom.
        candidate: Those on trial.

    Returns:
        The sessions.
    """
    tally = _Tally(state, candidate)
    for call, search in join_calls(tally.watch(records)):
        if search is not None and call.outcome in _RAN:
            tally.call(call, search)
    return DealtSessions(tuple(tally.sessions()), tally.left_out)


@dataclass(slots=True)
class _Answered:
    """What one side answered of a session: reciprocal ranks of the tools called, by search."""

    searches: int = 0
    called: dict[_SearchKey, dict[ToolId, float]] = field(default_factory=dict)

    def use(self, side: Side, tenant: str) -> SessionUse:
        means = [sum(ranks.values()) / len(ranks) for ranks in self.called.values()]
        calls = sum(len(ranks) for ranks in self.called.values())
        reciprocal_rank = sum(means) / len(means) if means else None
        return SessionUse(side, tenant, self.searches, calls, reciprocal_rank)


class _Tally:
    """Counts records as they pass."""

    def __init__(self, state: HeadsState, candidate: Candidate) -> None:
        self.left_out = 0
        self._state = state
        self._candidate = candidate
        self._decided = frozenset(candidate.decided)
        self._answered: dict[tuple[str, str], dict[Side, _Answered]] = {}

    def watch(self, records: Iterable[UsageRecord]) -> Iterator[UsageRecord]:
        """Yield the records since the trial began, and count the searches."""
        for record in records:
            if record.time >= self._candidate.since:
                if isinstance(record, SearchRecord):
                    self._search(record)
                yield record

    def call(self, call: CallRecord, search: SearchRecord) -> None:
        answered = self._of(search)
        if answered is not None:
            rank = search.rank_of(call.tool)
            ranks = answered.called.setdefault((search.search_id, search.time), {})
            ranks[call.tool] = 0.0 if rank is None else 1 / rank

    def sessions(self) -> Iterator[SessionUse]:
        for (tenant, _), sides in self._answered.items():
            side: Side = "on trial" if "on trial" in sides else "in use"
            yield sides[side].use(side, tenant)

    def _search(self, search: SearchRecord) -> None:
        answered = self._of(search)
        if answered is not None:
            answered.searches += 1
        elif search.tenant not in self._decided:
            self.left_out += 1

    def _of(self, search: SearchRecord) -> _Answered | None:
        """Return where a search counts; None where it does not."""
        side = self._side(search)
        if side is None or not search.session or search.mode == "lexical":
            return None
        sides = self._answered.setdefault((search.tenant, search.session), {})
        return sides.setdefault(side, _Answered())

    def _side(self, search: SearchRecord) -> Side | None:
        candidate = self._candidate.heads[:_HEADS_DIGITS]
        if search.tenant in self._decided or search.trial != candidate:
            return None
        if search.heads == candidate:
            return "on trial"
        in_use = self._state.of_tenant(search.tenant)
        return "in use" if search.heads == in_use[:_HEADS_DIGITS] else None
