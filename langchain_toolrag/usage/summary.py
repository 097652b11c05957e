"""Records of a usage log in -> what they say of a catalogue out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from langchain_toolrag.types import ToolId
from langchain_toolrag.usage.reading import join_calls
from langchain_toolrag.usage.records import CallRecord, SearchRecord, UsageRecord

_SURE = 0.5  # Below it a search is more likely than not to have nothing that fits.


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """What a log says.

    Attributes:
        first: Time of the first record, in UTC; None where there is none.
        last: Time of the last record.
        searches: How many searches, by kind.
        modes: How many searches, by mode.
        heads: How many searches, by the digest of the heads that answered; those that none did
            are not counted.
        outcomes: How many calls, by outcome.
        tied: How many calls belong to a search that showed their tool.
        ranks: How many of these tools stood at a rank of that search, by rank, from 1; those that
            were bound for another reason stand at none.
        without_good_hit: How many searches showed nothing, or were more likely than not to have
            nothing that fits (a confidence below 0.5).
        never_retrieved: Ids of the catalogue that no search showed, in its order.
        never_called: Tools that searches showed and nobody called, with how often they were shown,
            most often first.
    """

    first: datetime | None = None
    last: datetime | None = None
    searches: Mapping[str, int] = field(default_factory=dict)
    modes: Mapping[str, int] = field(default_factory=dict)
    heads: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    tied: int = 0
    ranks: Mapping[int, int] = field(default_factory=dict)
    without_good_hit: int = 0
    never_retrieved: tuple[ToolId, ...] = ()
    never_called: tuple[tuple[ToolId, int], ...] = ()

    def hit_rate(self, k: int) -> float | None:
        """Return the share of the tied calls whose tool stood at rank `k` or better.

        Args:
            k: A rank, from 1.

        Returns:
            0 to 1; None where no call is tied to a search.
        """
        hits = sum(number for rank, number in self.ranks.items() if rank <= k)
        return hits / self.tied if self.tied else None


def summarise(records: Iterable[UsageRecord], catalogue: Iterable[ToolId] = ()) -> UsageSummary:
    """Return what a log says.

    Args:
        records: Its records, in order of time.
        catalogue: Ids of the tools that can be found now.

    Returns:
        The summary.
    """
    tally = _Tally()
    ranks: Counter[int] = Counter()
    tied = 0
    for call, search in join_calls(tally.watch(records)):
        if search is not None:
            tied += 1
            rank = search.rank_of(call.tool)
            if rank is not None:
                ranks[rank] += 1
    return UsageSummary(
        first=tally.first,
        last=tally.last,
        searches=dict(tally.searches),
        modes=dict(tally.modes),
        heads=dict(tally.heads),
        outcomes=dict(tally.outcomes),
        tied=tied,
        ranks=dict(sorted(ranks.items())),
        without_good_hit=tally.without_good_hit,
        never_retrieved=tuple(tool for tool in catalogue if tool not in tally.shown),
        never_called=tally.never_called(),
    )


class _Tally:
    """Counts records as they pass."""

    def __init__(self) -> None:
        self.first: datetime | None = None
        self.last: datetime | None = None
        self.searches: Counter[str] = Counter()
        self.modes: Counter[str] = Counter()
        self.heads: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.shown: Counter[ToolId] = Counter()
        self.without_good_hit = 0
        self._called: set[ToolId] = set()

    def watch(self, records: Iterable[UsageRecord]) -> Iterator[UsageRecord]:
        for record in records:
            self.first = self.first or record.time
            self.last = record.time
            if isinstance(record, SearchRecord):
                self._search(record)
            else:
                self._call(record)
            yield record

    def never_called(self) -> tuple[tuple[ToolId, int], ...]:
        ignored = [item for item in self.shown.items() if item[0] not in self._called]
        return tuple(sorted(ignored, key=lambda item: (-item[1], item[0])))

    def _search(self, record: SearchRecord) -> None:
        self.searches[record.kind] += 1
        self.modes[record.mode] += 1
        self.heads.update([record.heads] if record.heads else ())
        self.shown.update({hit.tool for hit in record.retrieved} | set(record.bound))
        unsure = record.confidence is not None and record.confidence < _SURE
        # A small catalogue is bound whole, and small talk searched for not at all.
        nothing = not (record.retrieved or record.bound)
        self.without_good_hit += unsure or nothing

    def _call(self, record: CallRecord) -> None:
        self.outcomes[record.outcome] += 1
        self._called.add(record.tool)
