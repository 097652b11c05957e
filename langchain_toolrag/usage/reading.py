"""Files of a usage log in -> records, and calls beside their searches, out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

from langchain_toolrag.errors import SourceError
from langchain_toolrag.usage.files import usage_files
from langchain_toolrag.usage.records import VERSION, CallRecord, Line, SearchRecord, UsageRecord

_READERS: dict[str, Callable[[Line], UsageRecord]] = {
    SearchRecord.TYPE: SearchRecord.read,
    CallRecord.TYPE: CallRecord.read,
}
_BLOCK = 65536
_LONGEST_WAIT = timedelta(days=1)


@dataclass(slots=True)
class Skipped:
    """How many lines were read past.

    Attributes:
        torn: Lines that are no JSON, as a process leaves that dies while it writes.
        foreign: JSON that is no record: of an unknown type, or with values that cannot be.
        unknown_version: Records of another version of this package.
    """

    torn: int = 0
    foreign: int = 0
    unknown_version: int = 0


def read_usage(
    directory: Path, *, newest_first: bool = False, skipped: Skipped | None = None
) -> Iterator[UsageRecord]:
    """Yield the records of a usage log; no key is needed.

    Args:
        directory: The log's directory; one that is not there has no records.
        newest_first: Whether the line that was written last comes first: cheap where only some
            are taken. Otherwise records come in order of time, a day in memory at once.
        skipped: Counts the lines that are read past, as far as has been read.

    Yields:
        The records.

    Raises:
        SourceError: If a file cannot be opened.
    """
    skipped = Skipped() if skipped is None else skipped
    for path in sorted(usage_files(directory), reverse=newest_first):
        with _opened(path) as file:
            if newest_first:
                yield from _records(_backwards(file), skipped)
            else:
                yield from sorted(_records(file, skipped), key=lambda record: record.time)


def join_calls(
    records: Iterable[UsageRecord],
) -> Iterator[tuple[CallRecord, SearchRecord | None]]:
    """Yield each call with the search that showed its tool.

    A call belongs to the latest search of its `search_id` and its tenant that showed its tool,
    within a day; nothing is guessed from the time or the session.

    Args:
        records: Records in order of time.

    Yields:
        The call, and its search or None.
    """
    searches: dict[tuple[str, str], list[SearchRecord]] = {}
    for record in records:
        if isinstance(record, SearchRecord):
            _forget_before(searches, record)
            if record.search_id:  # Without a name no call can refer to it.
                # Taken out and put in again: the dictionary is in order of the latest search.
                known = searches.pop((record.tenant, record.search_id), [])
                searches[record.tenant, record.search_id] = [*known, record]
        else:
            shown = searches.get((record.tenant, record.search_id), []) if record.search_id else []
            yield record, next((s for s in reversed(shown) if s.shows(record.tool)), None)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise SourceError(
            str(path), f"this file of the usage log cannot be read: {error.strerror}"
        ) from error


def _forget_before(
    searches: dict[tuple[str, str], list[SearchRecord]], record: SearchRecord
) -> None:
    """Keep the memory small: what a day has passed for is not called any more."""
    while searches:
        oldest = next(iter(searches))
        if record.time - searches[oldest][-1].time <= _LONGEST_WAIT:
            return
        del searches[oldest]


def _records(lines: Iterable[bytes], skipped: Skipped) -> Iterator[UsageRecord]:
    for line in lines:
        if line.strip():
            record = _record(line, skipped)
            if record is not None:
                yield record


def _record(line: bytes, skipped: Skipped) -> UsageRecord | None:
    """Return what a line holds, or count why it holds nothing."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        skipped.torn += 1
        return None
    kind = value.get("type") if isinstance(value, dict) else None
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        skipped.foreign += 1
    elif value.get("v") != VERSION:
        skipped.unknown_version += 1
    else:
        try:
            return read(value)
        except ValueError:
            skipped.foreign += 1
    return None


def _backwards(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file from its end, a block in memory at once."""
    end = file.seek(0, os.SEEK_END)
    rest = b""
    while end:
        start = max(0, end - _BLOCK)
        file.seek(start)
        first, *lines = (file.read(end - start) + rest).split(b"\n")
        yield from reversed(lines)
        rest, end = first, start
    yield rest
