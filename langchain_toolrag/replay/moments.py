"""What options bound at the moments of a log or a conversation -> what they gain, lose and cost."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from langchain_toolrag.catalogue.catalogue import Catalogue
from langchain_toolrag.types import ToolId

Side: TypeAlias = str
"""Who binds: `then` for what was really bound, `A` and `B` for the options."""

SEARCHES = "searches"
STEPS = "model steps"

THEN: Side = "then"
A: Side = "A"
B: Side = "B"


class Binding(NamedTuple):
    """Tools that are bound together.

    Attributes:
        tools: Their ids, in binding order where it is known.
        tokens: Approximate tokens of their definitions.
    """

    tools: tuple[ToolId, ...]
    tokens: int


class Called(NamedTuple):
    """A tool that was called at a moment.

    Attributes:
        tools: The tools that may have been meant, at least one; several where a name has become
            that of several.
        outcome: How the call went, as the usage log says; empty for unknown.
    """

    tools: tuple[ToolId, ...]
    outcome: str = ""

    def is_in(self, binding: Binding) -> bool:
        """Return whether a tool that may have been meant is bound."""
        return not set(self.tools).isdisjoint(binding.tools)


@dataclass(frozen=True, slots=True)
class Moment:
    """One search, or one model step of a conversation.

    Attributes:
        place: Where it is found again: a search's id and time, or a thread, namespace and step.
        asked: The user's words; empty where they are not known.
        bound: What each side binds; `then` is missing where it is not known.
        called: What was called, each tool once.
    """

    place: Mapping[str, str | int]
    asked: str
    bound: Mapping[Side, Binding]
    called: tuple[Called, ...] = ()

    def gained(self, first: Side, second: Side) -> tuple[ToolId, ...]:
        """Return what the second side binds and the first does not, in the second's order."""
        known = set(self.bound[first].tools)
        return tuple(tool for tool in self.bound[second].tools if tool not in known)

    def lost(self, first: Side, second: Side) -> tuple[ToolId, ...]:
        """Return what the first side binds and the second does not, in the first's order."""
        return self.gained(second, first)

    def calls_lost(self, first: Side, second: Side) -> int:
        """Return how many of the called tools the first side binds and the second does not."""
        before, after = self.bound[first], self.bound[second]
        return sum(called.is_in(before) and not called.is_in(after) for called in self.called)


@dataclass(frozen=True, slots=True)
class SideSummary:
    """What one side binds over all moments that it is known for.

    Attributes:
        moments: How many these are.
        tools: Mean number of bound tools; None where there is no moment.
        tokens: Mean of the tokens of their definitions; None where there is no moment.
        called: How many tools were called at these moments.
        called_bound: How many of these it binds.
    """

    moments: int
    tools: float | None
    tokens: float | None
    called: int
    called_bound: int

    @property
    def recall(self) -> float | None:
        """Share of the called tools that it binds, 0 to 1; None where none was called."""
        return self.called_bound / self.called if self.called else None


@dataclass(slots=True)
class Tally:
    """What a replay comes across and cannot compare.

    Attributes:
        left_out: How many searches, steps or threads were not replayed, by reason.
        by_meaning: How many searches were replayed by meaning alone, for the log has no text.
        unknown_calls: How often a tool was called that the catalogue does not have, by name.
        gone: How often a tool was bound then that the catalogue does not have any more, by id.
        unreadable: Why stored threads cannot be read, or not whole, by thread.
    """

    left_out: Counter[str] = field(default_factory=Counter)
    by_meaning: int = 0
    unknown_calls: Counter[str] = field(default_factory=Counter)
    gone: Counter[ToolId] = field(default_factory=Counter)
    unreadable: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replay:
    """What was replayed.

    Attributes:
        what: What a moment is, in the plural: `SEARCHES` or `STEPS`.
        options: The names of the options, by side.
        compared: The two sides that are compared.
        moments: The moments, in order of time; of conversations, one thread after the other.
        tally: What could not be compared.
        threads: How many conversations they are of; 0 for a log.
    """

    what: str
    options: Mapping[Side, str]
    compared: tuple[Side, Side]
    moments: tuple[Moment, ...]
    tally: Tally = field(default_factory=Tally)
    threads: int = 0

    @property
    def sides(self) -> tuple[Side, ...]:
        """What was bound then, and the options in order."""
        return (THEN, *self.options)

    @property
    def changed(self) -> list[Moment]:
        """The moments at which the compared sides bind different tools."""
        return [moment for moment in self.comparable if self.size(moment)]

    @property
    def comparable(self) -> list[Moment]:
        """The moments at which it is known what both compared sides bind."""
        return [moment for moment in self.moments if moment.bound.keys() >= set(self.compared)]

    def size(self, moment: Moment) -> int:
        """Return how many tools are gained and lost at a comparable moment."""
        return len(moment.gained(*self.compared)) + len(moment.lost(*self.compared))

    def largest(self, most: int) -> list[Moment]:
        """Return the moments with the largest differences.

        Args:
            most: At most so many, 0 or more.

        Returns:
            Those that lose most called tools first; of equal ones those with most tools gained and
            lost, then the earliest. None without a difference.
        """

        def order(moment: Moment) -> tuple[int, int]:
            return -moment.calls_lost(*self.compared), -self.size(moment)

        return sorted(self.changed, key=order)[:most]

    def summary(self, side: Side) -> SideSummary:
        """Return what a side binds over all moments that it is known for."""
        known = [moment for moment in self.moments if side in moment.bound]
        bindings = [moment.bound[side] for moment in known]
        bound = [called.is_in(m.bound[side]) for m in known for called in m.called]
        return SideSummary(
            moments=len(known),
            tools=statistics.fmean(len(each.tools) for each in bindings) if known else None,
            tokens=statistics.fmean(each.tokens for each in bindings) if known else None,
            called=len(bound),
            called_bound=sum(bound),
        )


def binding(tools: Sequence[ToolId], catalogue: Catalogue) -> Binding:
    """Return tools of a catalogue as they are bound; those it does not have are left out."""
    known = tuple(dict.fromkeys(tool for tool in tools if tool in catalogue.entries))
    return Binding(known, sum(catalogue.entries[tool].tokens for tool in known))


def binding_then(tools: Collection[ToolId], catalogue: Catalogue, tally: Tally) -> Binding:
    """Return what was bound then, of what there still is; what is gone is counted."""
    tally.gone.update(tool for tool in tools if tool not in catalogue.entries)
    return binding(list(tools), catalogue)


def called_tools(
    names: Mapping[str, str], catalogue: Catalogue, tally: Tally
) -> tuple[Called, ...]:
    """Return the tools that were called; what the catalogue does not have is counted.

    Args:
        names: Outcomes by the name or id that was called; empty ones for unknown.
        catalogue: The tools.
        tally: Where the others are counted.

    Returns:
        Each tool once, in order.
    """
    called: dict[tuple[ToolId, ...], Called] = {}
    for name, outcome in names.items():
        meant = catalogue.called(name)
        if meant:
            called[meant] = Called(meant, outcome)
        else:
            tally.unknown_calls[name] += 1
    return tuple(called.values())
