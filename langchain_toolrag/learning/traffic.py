"""Searches of a log, vectors of their requests and rows of tools in -> examples out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from langchain_toolrag.learning.examples import Example, ExampleSet
from langchain_toolrag.learning.mining import Answered
from langchain_toolrag.types import ToolId, Vector, Vectors

_GONE = "searches whose called tools are gone"
_NO_VECTOR = "searches whose request has no vector of this model"

_ALIKE = 0.005
"""Tools whose scores differ by no more score alike. With 0.02 half was lost of what can be learned
where users prefer one of three versions of a tool; without any margin, a copy under another name
would be taught to be wrong."""

_HELD_OUT = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """What was asked of a catalogue, and what was called.

    Attributes:
        searches: The searches, in order of time; tools and requests are known.
        requests: Vectors of the requests, shape `(n, dim)`.
        request_places: Where a request's vector is, by its digest.
        rows: Rows of the tools, shape `(tools, dim)`.
        tool_places: Where a tool's row is, by its id.
    """

    searches: Sequence[Answered]
    requests: Vectors
    request_places: Mapping[str, int]
    rows: Vectors
    tool_places: Mapping[ToolId, int]

    def split(self) -> tuple[Sequence[Answered], Sequence[Answered]]:
        """Return all but the newest fifth, and the newest fifth: at least one."""
        held = max(1, round(_HELD_OUT * len(self.searches)))
        return self.searches[:-held], self.searches[-held:]

    def examples(self, searches: Sequence[Answered]) -> ExampleSet:
        """Return examples to learn from.

        Shown and not called is not wanted, unless it scores like a tool that was called: what is
        as good as the right tool is no mistake [1]. Nor is a tool that was called for the same
        request at another time, as in the next step of a turn. A request that was answered the
        same way `m` times counts as `sqrt(m)`.

        Args:
            searches: Some of the searches, or such as `guessed` makes of them.

        Returns:
            One example a search.

        References:
            [1] Moreira et al. NV-Retriever: Improving text embedding models with effective
            hard-negative mining. 2024. https://doi.org/10.48550/arXiv.2407.15831
        """
        repeats = Counter((search.request, frozenset(search.called)) for search in searches)
        ever: dict[str, set[ToolId]] = {}
        for search in searches:
            ever.setdefault(search.request, set()).update(search.called)
        examples = [
            self._example(
                search,
                ever[search.request],
                repeats[search.request, frozenset(search.called)],
            )
            for search in searches
        ]
        return ExampleSet(self.requests, self.rows, examples)

    def tests(self, searches: Sequence[Answered]) -> ExampleSet:
        """Return examples to measure by: called tools are sought among all others.

        Args:
            searches: Some of the searches.

        Returns:
            One example a search; all count the same.
        """
        examples = [
            Example(self.request_places[search.request], self._placed(search.called))
            for search in searches
        ]
        return ExampleSet(self.requests, self.rows, examples)

    def _placed(self, tools: Mapping[ToolId, float]) -> dict[int, float]:
        return {self.tool_places[tool]: sureness for tool, sureness in tools.items()}

    def _example(self, search: Answered, ever_called: set[ToolId], repeats: int) -> Example:
        request, wanted = self.request_places[search.request], self._placed(search.called)
        shown = [self.tool_places[tool] for tool in search.shown]
        unknown = {self.tool_places[tool] for tool in search.silent | ever_called}
        unknown |= _alike(self.rows, self.requests[request], shown, list(wanted))
        unknown -= wanted.keys()
        unwanted = [place for place in shown if place not in wanted and place not in unknown]
        weight = max(wanted.values()) * repeats**-0.5
        return Example(request, wanted, tuple(unwanted), frozenset(unknown), weight)


def traffic_of(
    searches: Sequence[Answered],
    vectors: Mapping[str, Vector],
    rows: Vectors,
    tools: Sequence[ToolId],
    left_out: Counter[str],
) -> Traffic:
    """Put searches and vectors together.

    Args:
        searches: Searches, in order of time.
        vectors: The requests' vectors by digest, as far as there are any.
        rows: Rows of the tools, shape `(len(tools), dim)`.
        tools: Their ids.
        left_out: Counts the searches whose vector or tools are not there.

    Returns:
        The rest. Of a search, tools that are gone are left out.
    """
    tool_places = {tool: place for place, tool in enumerate(tools)}
    usable = {
        digest: vector
        for digest, vector in vectors.items()
        if vector.shape == rows.shape[1:] and vector.any()
    }
    kept: list[Answered] = []
    for search in searches:
        known = _among(search, tool_places)
        if search.request not in usable:
            left_out[_NO_VECTOR] += 1
        elif not known.called:
            left_out[_GONE] += 1
        else:
            kept.append(known)
    digests = list(dict.fromkeys(search.request for search in kept))
    requests = np.array([usable[digest] for digest in digests], np.float32)
    places = {digest: place for place, digest in enumerate(digests)}
    return Traffic(kept, requests.reshape(len(digests), rows.shape[1]), places, rows, tool_places)


def guessed(
    searches: Sequence[Answered], seed: int, rates: Mapping[ToolId, float] | None = None
) -> list[Answered]:
    """Return the same searches, as if others of the tools shown had been called.

    What is learned from them is what a search shows, and with `rates` which tools are popular, but
    not what was right for a request: a candidate has to be better than that.

    Args:
        searches: Searches.
        seed: Where the dice start.
        rates: How likely each tool is drawn, such as `call_rates`; None for all the same.

    Returns:
        The searches, in the same order; as many tools are called as before.
    """
    dice = random.Random(seed)
    guesses: list[Answered] = []
    for search in searches:
        shown = [tool for tool in search.shown if tool not in search.silent]
        drawn: list[ToolId] = []
        for _ in search.called:
            left = [tool for tool in shown if tool not in drawn]
            chances = None if rates is None else [rates[tool] for tool in left]
            # Only tools that were never called may be left; one is as good as the other then.
            drawn += dice.choices(left, chances if chances and any(chances) else None)
        called = dict(zip(drawn, search.called.values(), strict=True))
        guesses.append(replace(search, called=called))
    return guesses


def call_rates(searches: Sequence[Answered]) -> dict[ToolId, float]:
    """Return in what share of the searches that show a tool it is called, 0 to 1.

    Args:
        searches: Searches.

    Returns:
        The share of every tool that is shown; 0 for those that are never called.
    """
    shown = Counter(tool for search in searches for tool in search.shown)
    called = Counter(tool for search in searches for tool in search.called)
    return {tool: called[tool] / times for tool, times in shown.items()}


def agreement(first: Sequence[Answered], second: Sequence[Answered]) -> float:
    """Return in what share of searches, in the same order, the same tools are called, 0 to 1."""
    same = [one.called.keys() == two.called.keys() for one, two in zip(first, second, strict=True)]
    return sum(same) / len(same)


def _among(search: Answered, tools: Mapping[ToolId, int]) -> Answered:
    """Return a search as if only some tools were there."""
    return replace(
        search,
        called={tool: sureness for tool, sureness in search.called.items() if tool in tools},
        silent=frozenset(tool for tool in search.silent if tool in tools),
        shown=tuple(tool for tool in search.shown if tool in tools),
    )


def _alike(rows: Vectors, request: Vector, shown: Sequence[int], wanted: Sequence[int]) -> set[int]:
    """Return the tools shown that score like one that is wanted."""
    scores, best = rows[list(shown)] @ request, rows[list(wanted)] @ request
    distances = np.abs(scores[:, np.newaxis] - best).min(axis=1)
    return {place for place, distance in zip(shown, distances, strict=True) if distance <= _ALIKE}
