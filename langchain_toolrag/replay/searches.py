"""Logged searches and options -> what would have been bound for each out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeAlias

from langchain_core.messages import HumanMessage

from langchain_toolrag.catalogue.catalogue import Catalogue
from langchain_toolrag.replay.binders import Binder, Progress
from langchain_toolrag.replay.meaning import request_name
from langchain_toolrag.replay.moments import (
    SEARCHES,
    THEN,
    A,
    B,
    Binding,
    Moment,
    Replay,
    Side,
    Tally,
    binding,
    binding_then,
    called_tools,
)
from langchain_toolrag.replay.untraced import untraced
from langchain_toolrag.types import ToolId, Vector
from langchain_toolrag.usage.reading import Skipped, join_calls, read_usage
from langchain_toolrag.usage.records import SearchRecord, UsageRecord
from langchain_toolrag.usage.request_vectors import RequestVectors

CALLERS_OWN = "rankings of tools that the caller named or brought"
NO_REQUEST = "searches without text or a vector that the options can use"
UNREADABLE = "lines of the log that cannot be read"

_AT_ONCE = 10_000  # Searches whose vectors are in memory together: 15 MB of MiniLM's.

_Name: TypeAlias = tuple[str, str, datetime]


class _Calls(NamedTuple):
    """Outcomes of calls by search and tool, and how many searches there are."""

    outcomes: dict[_Name, dict[ToolId, str]]
    searches: int


def replay_searches(
    usage: Path, options: Mapping[Side, Binder], progress: Progress | None = None
) -> Replay:
    """Search again, under other options, what was searched for according to a usage log.

    A search with text is made again as it was made. Of one without, the vector that the log keeps
    is searched with, by meaning alone. A selection was made for a conversation, of which the log
    has what was searched for: what is bound for another reason (called before, kept from earlier
    turns) is missing. Which tools a caller could see is not in the log either.

    Args:
        usage: The log's directory.
        options: The options with the agent's tools: `A`, compared with what was bound then, or `A`
            and `B`, compared with each other.
        progress: Told how many searches are done.

    Returns:
        The searches, in order of time; of a search "bound" is what it showed.

    Raises:
        EmbeddingError: If the model fails.
        SourceError: If a file of the log cannot be opened.
    """
    skipped = Skipped()
    replaying = _Replaying(usage, options, progress)
    with untraced():
        moments = tuple(replaying.moments(read_usage(usage, skipped=skipped)))
    unreadable = skipped.torn + skipped.foreign + skipped.unknown_version
    if unreadable:
        replaying.tally.left_out[UNREADABLE] += unreadable
    return Replay(
        SEARCHES,
        {side: binder.contender.name for side, binder in options.items()},
        (A, B) if B in options else (THEN, A),
        moments,
        replaying.tally,
    )


class _Asker:
    """One side: its binder for searches with text, and another for those without."""

    def __init__(self, binder: Binder) -> None:
        self.catalogue: Catalogue = binder.catalogue
        self.model = binder.rag.tool_index.model
        self._binder = binder
        self._by_meaning = binder.by_meaning()

    def know(self, vectors: Mapping[str, Vector]) -> None:
        """Take the vectors of requests without text, by the requests' digests."""
        if self._by_meaning is not None:
            self._by_meaning.index.vectors = {request_name(d): v for d, v in vectors.items()}

    def can_answer(self, search: SearchRecord) -> bool:
        if search.text:
            return True
        by_meaning = self._by_meaning
        return by_meaning is not None and request_name(search.request) in by_meaning.index.vectors

    def bind(self, search: SearchRecord) -> Sequence[ToolId]:
        """Return what is bound for a search that it can answer."""
        by_meaning = self._by_meaning
        if search.text or by_meaning is None:
            binder, request = self._binder, search.text
        else:
            binder, request = by_meaning.binder, request_name(search.request)
        if search.kind == "select":
            return binder.select([HumanMessage(request)]).tools
        return binder.search(request, len(search.retrieved))


def _calls(usage: Path) -> _Calls:
    count, outcomes = 0, dict[_Name, dict[ToolId, str]]()

    def watched() -> Iterator[UsageRecord]:
        nonlocal count
        for record in read_usage(usage):
            count += isinstance(record, SearchRecord)
            yield record

    for call, search in join_calls(watched()):
        if search is not None:
            outcomes.setdefault(_name(search), {})[call.tool] = call.outcome
    return _Calls(outcomes, count)


def _name(search: SearchRecord) -> _Name:
    return search.tenant, search.search_id, search.time


class _Replaying:
    """Makes the searches of a log again, one after the other."""

    def __init__(
        self, usage: Path, options: Mapping[Side, Binder], progress: Progress | None
    ) -> None:
        self.tally = Tally()
        self._calls = _calls(usage)
        self._requests = RequestVectors(usage)
        self._askers = {side: _Asker(binder) for side, binder in options.items()}
        self._catalogue = next(iter(options.values())).catalogue
        self._progress = progress
        self._done = 0

    def moments(self, records: Iterator[UsageRecord]) -> Iterator[Moment]:
        searches = (record for record in records if isinstance(record, SearchRecord))
        while chunk := list(islice(searches, _AT_ONCE)):
            wordless = [each.request for each in chunk if each.request and not each.text]
            models = {asker.model for asker in self._askers.values()}
            vectors = {model: self._requests.get(model, wordless) for model in models}
            for asker in self._askers.values():
                asker.know(vectors[asker.model])
            for search in chunk:
                if self._can_be_made(search):
                    yield self._moment(search)
                self._advance()

    def _can_be_made(self, search: SearchRecord) -> bool:
        if search.kind == "rank":
            self.tally.left_out[CALLERS_OWN] += 1
            return False
        if all(asker.can_answer(search) for asker in self._askers.values()):
            return True
        self.tally.left_out[NO_REQUEST] += 1
        return False

    def _moment(self, search: SearchRecord) -> Moment:
        shown = [hit.tool for hit in search.retrieved]
        then = search.bound if search.kind == "select" else shown
        bound: dict[Side, Binding] = {THEN: binding_then(then, self._catalogue, self.tally)}
        for side, asker in self._askers.items():
            bound[side] = binding(asker.bind(search), self._catalogue)
        self.tally.by_meaning += not search.text
        outcomes = self._calls.outcomes.get(_name(search), {})
        return Moment(
            {"search": search.search_id, "kind": search.kind, "time": search.time.isoformat()},
            search.text,
            bound,
            called_tools(outcomes, self._catalogue, self.tally),
        )

    def _advance(self) -> None:
        self._done += 1
        if self._progress:
            self._progress(self._done, max(self._done, self._calls.searches))
