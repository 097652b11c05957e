"""Records of a usage log in -> searches whose tools were called out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from langchain_toolrag.types import ToolId
from langchain_toolrag.usage.reading import join_calls
from langchain_toolrag.usage.records import CallRecord, Outcome, SearchRecord, UsageRecord

SURENESS: Mapping[Outcome, float] = {"ok": 1.0, "tool_error": 0.3}
"""How sure it is that a tool was wanted that was called. The other outcomes say nothing: whoever
refuses a call may refuse it for what it would do, and a server that is down may be the right one.
"""

_UNTIED = "calls without the search that showed their tool"
_BROUGHT = "searches of tools that the caller brought"
_SILENT = "searches whose calls were all refused or timed out"


@dataclass(frozen=True, slots=True)
class Answered:
    """A search, and what became of the tools that it showed.

    Attributes:
        time: When it was asked, in UTC.
        request: Digest of the request.
        called: The tools that were called, at least one, with how sure it is that they were wanted.
        silent: Tools that were called to no end, which says nothing.
        shown: All tools that it showed, best first; those called are among them.
    """

    time: datetime
    request: str
    called: Mapping[ToolId, float]
    silent: frozenset[ToolId]
    shown: tuple[ToolId, ...]


class Mined(NamedTuple):
    """What a log teaches.

    Attributes:
        searches: The searches, in order of time.
        left_out: How many of what were left out.
    """

    searches: list[Answered]
    left_out: Counter[str]


def mine(records: Iterable[UsageRecord]) -> Mined:
    """Return the searches of a log from which something can be learned.

    A call belongs to a search by its id and tenant, see `usage.reading.join_calls`. A search whose
    tools nobody called says nothing: the model may have answered by itself.

    Args:
        records: Its records, in order of time.

    Returns:
        The searches, and what was left out.
    """
    left_out: Counter[str] = Counter()
    found: dict[int, tuple[SearchRecord, list[CallRecord]]] = {}
    for call, search in join_calls(records):
        if search is None:
            left_out[_UNTIED] += 1
        else:  # Kept in the dictionary, no other search gets its `id`.
            found.setdefault(id(search), (search, []))[1].append(call)
    searches = sorted(_answered(found.values(), left_out), key=lambda search: search.time)
    return Mined(searches, +left_out)


def _answered(
    found: Iterable[tuple[SearchRecord, list[CallRecord]]], left_out: Counter[str]
) -> Iterator[Answered]:
    for search, calls in found:
        called: dict[ToolId, float] = {}
        for call in calls:
            if call.outcome in SURENESS:
                called[call.tool] = max(called.get(call.tool, 0.0), SURENESS[call.outcome])
        if search.kind == "rank":
            left_out[_BROUGHT] += 1
        elif not called:
            left_out[_SILENT] += 1
        else:
            silent = frozenset(call.tool for call in calls) - called.keys()
            hits = sorted(search.retrieved, key=lambda hit: hit.rank)
            shown = dict.fromkeys([*(hit.tool for hit in hits), *search.bound])
            yield Answered(search.time, search.request, called, silent, tuple(shown))
