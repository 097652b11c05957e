"""A search or a call -> the JSON object of its line, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from langchain_toolrag.types import ToolId

VERSION = 1

SearchKind: TypeAlias = Literal["search", "select", "rank"]
"""What was asked: the catalogue, a conversation's tools, or tools the caller brought."""

SearchMode: TypeAlias = Literal["semantic", "lexical"]
"""Whether the request was embedded, or words alone were compared."""

Outcome: TypeAlias = Literal["ok", "tool_error", "refused", "timeout"]
"""How a call went; one that is refused was not sent."""

Line: TypeAlias = dict[str, Any]
"""The JSON object of a line; keys with nothing to say are left out."""

_ABSENT: tuple[Any, ...] = (None, "", (), {})

_FieldT = TypeVar("_FieldT")


class Retrieved(NamedTuple):
    """One tool that a search showed.

    Attributes:
        tool: The tool.
        rank: From 1.
        score: Higher is better, on the scale of the search; None where it has no score.
    """

    tool: ToolId
    rank: int
    score: float | None


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """One search. Digests are keyed (`usage.digests`), in hexadecimal.

    Attributes:
        time: When it was asked, in UTC.
        search_id: Its name, which calls refer to; empty for none.
        kind: What was asked.
        mode: How it was answered.
        request: Digest of the request's text.
        retrieved: What it showed, best first.
        bound: Ids that a selection bound, in order.
        confidence: How sure the search was that some tool fits, 0 to 1; None for unknown.
        options: The options that differ from the defaults, or a digest of them; small.
        index: Version or fingerprint of the index that answered.
        heads: Digest of the heads that answered, its first 16 hexadecimal digits; empty for none.
        trial: Digest of the heads on trial that might have answered, as `heads`, whether they did
            or not; empty where none might.
        session: Digest of the session; empty for none.
        tenant: Digest of the tenant; empty for none.
        took_ms: How long it took, in milliseconds; None for unknown.
        text: The request, where text is logged; else empty.
    """

    TYPE: ClassVar[str] = "search"

    time: datetime
    search_id: str
    kind: SearchKind
    mode: SearchMode
    request: str
    retrieved: tuple[Retrieved, ...] = ()
    bound: tuple[ToolId, ...] = ()
    confidence: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    index: str = ""
    heads: str = ""
    trial: str = ""
    session: str = ""
    tenant: str = ""
    took_ms: float | None = None
    text: str = ""

    def shows(self, tool: ToolId) -> bool:
        """Return whether the search showed a tool to the model."""
        return tool in self.bound or self.rank_of(tool) is not None

    def rank_of(self, tool: ToolId) -> int | None:
        """Return the rank a tool was retrieved at, from 1; None where it was not."""
        return next((hit.rank for hit in self.retrieved if hit.tool == tool), None)

    def as_json(self) -> Line:
        """Return what `read` takes."""
        line = _as_line(self)
        if self.retrieved:
            line["retrieved"] = [list(hit) for hit in self.retrieved]
        if self.bound:
            line["bound"] = list(self.bound)
        return line

    @classmethod
    def read(cls, line: Mapping[str, Any]) -> SearchRecord:
        """Return the record of a line of this version; keys it does not know are no matter.

        Args:
            line: What `as_json` returned.

        Returns:
            The record.

        Raises:
            ValueError: If it is no search of this version, or a value is not what it should be.
        """
        _check(line, cls.TYPE)
        return cls(
            time=_time(line),
            search_id=_text(line, "search_id"),
            kind=_one_of(line, "kind", SearchKind),
            mode=_one_of(line, "mode", SearchMode),
            request=_text(line, "request"),
            retrieved=tuple(_retrieved(hit) for hit in _list(line, "retrieved")),
            bound=tuple(_tool(tool) for tool in _list(line, "bound")),
            confidence=_number(line.get("confidence")),
            options=_value(line, "options", dict, {}),
            index=_text(line, "index"),
            heads=_text(line, "heads"),
            trial=_text(line, "trial"),
            session=_text(line, "session"),
            tenant=_text(line, "tenant"),
            took_ms=_number(line.get("took_ms")),
            text=_text(line, "text"),
        )


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call of a tool. Digests are keyed (`usage.digests`), in hexadecimal.

    Attributes:
        time: When it ended, in UTC.
        call_id: Its name; empty for none.
        tool: The tool; empty for a name that the catalogue does not have.
        outcome: How it went.
        search_id: The search that showed the tool to the caller; empty for unknown.
        latency_ms: How long it took, in milliseconds; None where that was not measured.
        arguments: Digest of the arguments; empty where they are unknown.
        tenant: Digest of the tenant; empty for none.
        text: The arguments as JSON, where text is logged; else empty.
    """

    TYPE: ClassVar[str] = "call"

    time: datetime
    call_id: str
    tool: ToolId
    outcome: Outcome
    search_id: str = ""
    latency_ms: float | None = None
    arguments: str = ""
    tenant: str = ""
    text: str = ""

    def as_json(self) -> Line:
        """Return what `read` takes."""
        return _as_line(self)

    @classmethod
    def read(cls, line: Mapping[str, Any]) -> CallRecord:
        """Return the record of a line of this version; keys it does not know are no matter.

        Args:
            line: What `as_json` returned.

        Returns:
            The record.

        Raises:
            ValueError: If it is no call of this version, or a value is not what it should be.
        """
        _check(line, cls.TYPE)
        return cls(
            time=_time(line),
            call_id=_text(line, "call_id"),
            tool=_text(line, "tool"),
            outcome=_one_of(line, "outcome", Outcome),
            search_id=_text(line, "search_id"),
            latency_ms=_number(line.get("latency_ms")),
            arguments=_text(line, "arguments"),
            tenant=_text(line, "tenant"),
            text=_text(line, "text"),
        )


UsageRecord: TypeAlias = SearchRecord | CallRecord
"""One line of the log."""


def _as_line(record: UsageRecord) -> Line:
    line: Line = {"v": VERSION, "type": record.TYPE}
    for place in fields(record):
        value = getattr(record, place.name)
        if value not in _ABSENT:
            line[place.name] = value
    line["time"] = record.time.isoformat(timespec="microseconds")
    return line


def _check(line: Mapping[str, Any], wanted: str) -> None:
    if line.get("v") != VERSION or line.get("type") != wanted:
        raise ValueError(
            f"found version {line.get('v')!r} of {line.get('type')!r}; "
            f"wanted version {VERSION} of {wanted!r}"
        )


def _time(line: Mapping[str, Any]) -> datetime:
    found = datetime.fromisoformat(_text(line, "time"))
    if found.tzinfo is None:
        raise ValueError(f"the time {line['time']!r} has no time zone; wanted UTC")
    try:
        return found.astimezone(timezone.utc)
    except OverflowError as error:
        raise ValueError(f"the time {line['time']!r} is none in UTC") from error


def _text(line: Mapping[str, Any], key: str) -> str:
    return _value(line, key, str, "")


def _list(line: Mapping[str, Any], key: str) -> list[Any]:
    return _value(line, key, list, [])


def _value(line: Mapping[str, Any], key: str, wanted: type[_FieldT], absent: _FieldT) -> _FieldT:
    found = line.get(key, absent)
    if not isinstance(found, wanted):
        raise ValueError(f"{key} is {found!r}; wanted a {wanted.__name__}")
    return found


def _one_of(line: Mapping[str, Any], key: str, wanted: Any) -> Any:
    found = line.get(key)
    if found not in get_args(wanted):
        raise ValueError(f"{key} is {found!r}; wanted one of {', '.join(get_args(wanted))}")
    return found


def _retrieved(hit: Any) -> Retrieved:
    match hit:
        case [str(tool), int(rank), score] if rank >= 1:
            return Retrieved(tool, rank, _number(score))
    raise ValueError(f"{hit!r} is no retrieved tool; wanted [id, rank from 1, score]")


def _tool(value: Any) -> ToolId:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no tool id; wanted a string")
    return value


def _number(value: Any) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise ValueError(f"found {value!r}; wanted a number or nothing")
    try:
        number = None if value is None else float(value)
    except OverflowError as error:
        raise ValueError("found an integer that is too large for a number") from error
    if number is not None and not math.isfinite(number):
        raise ValueError(f"found {number}; wanted a finite number")
    return number
