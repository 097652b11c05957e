"""Searches and calls in -> lines of the usage log, off the caller's path, out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from langchain_toolrag.types import ToolId
from langchain_toolrag.usage.digests import Digests, Purpose, open_digests
from langchain_toolrag.usage.records import (
    CallRecord,
    Outcome,
    Retrieved,
    SearchKind,
    SearchMode,
    SearchRecord,
)
from langchain_toolrag.usage.request_vectors import DatedVector, RequestVector
from langchain_toolrag.usage.writer import DatedLine, LogWriter

_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_MOST_TEXT = 10_000  # Characters of a text that is logged.
_DIGITS = 6
_HEADS_DIGITS = 16  # Of a digest's 64: what tells the few heads of one log apart.
_MOST_KEPT = 10_000  # Requests that are remembered to have a vector; about 2 MB.

_RecordT = TypeVar("_RecordT", SearchRecord, CallRecord)


class UsageLog:
    """An append-only log of searches and calls, one JSON object a line, one file a day.

    `search` and `call` take 15 to 30 microseconds, and 2 more for each kilobyte of text: a thread
    writes the lines, some 0.2 seconds later, and the rest at `close` and when the process exits
    (one that ends by `os._exit`, as those of `multiprocessing` do, should `close` it). They never
    raise. Many threads and processes may write one log, on a local disk. `kill -9` loses what no
    file holds yet; a line it cuts short is read past.

    Texts (requests, arguments, session, tenant) are stored as keyed digests. The key is
    `<directory>/.key`; it and the files can be read by their owner alone. Names of tools and of
    searches, scores, ranks, options and times are stored as they are.

    Where a search gives it, the vector of the request is stored too, once a day, in
    `<directory>/vectors`, which is the owner's alone: `RequestVectors` finds it by the digest, so
    that heads can be learned without any text. A vector is no text, but not a digest either:
    whoever has the model can tell what a request was about, and whether it was one that he
    guesses, the key or not. Keep it as you would keep the requests.

    To delete everything, delete the directory, key and vectors with it, while no process logs.
    To delete a day, delete `usage-<day>.jsonl` and `vectors/<day>-*`, at any time afterwards;
    a line whose vector is missing is no harm.

    Where the disk is full or cannot be written, there is one warning and nothing else happens:
    up to 10,000 lines wait until it can be written again, what comes on top is dropped.

    Args:
        directory: Where the log is; made where there is none.
        log_text: Whether requests and arguments are stored as text too, their first 10,000
            characters.

    Raises:
        SourceError: If the key is missing although there are records, or cannot be read.
    """

    def __init__(self, directory: str | Path, *, log_text: bool = False) -> None:
        self._directory = Path(directory)
        self._log_text = log_text
        self._digests: Digests | None = None
        self._kept: set[tuple[date, str, str]] = set()
        self._writer = LogWriter(self._directory, self._open)
        try:
            self._open()
        except OSError as error:
            self._writer.warn_once(error)

    def __enter__(self) -> UsageLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def dropped(self) -> int:
        """How many records were lost since the log was opened."""
        return self._writer.dropped

    def search(
        self,
        *,
        search_id: str,
        kind: SearchKind,
        mode: SearchMode,
        query: str,
        retrieved: Iterable[tuple[ToolId, int, float | None]],
        bound: Sequence[ToolId] = (),
        confidence: float | None = None,
        options: Mapping[str, Any] | None = None,
        index: str = "",
        heads: str = "",
        trial: str = "",
        session: str = "",
        tenant: str = "",
        took_ms: float | None = None,
        vector: RequestVector | None = None,
    ) -> None:
        """Log a search; never raises.

        Args:
            search_id: Its name: 1-64 of `A-Z a-z 0-9 _ . : -`; anything else is not stored.
            kind: What was asked.
            mode: How it was answered.
            query: The request's text.
            retrieved: What it showed, best first: tool, rank from 1, score (NaN for none).
            bound: Ids that a selection bound, in order.
            confidence: How sure the search was that some tool fits, 0 to 1; None for unknown.
            options: The options that differ from the defaults; a small JSON object without text
                of a user's.
            index: Version or fingerprint of the index that answered.
            heads: Digest of the heads that answered; empty for none.
            trial: Digest of the heads on trial that this session was dealt out for, whichever
                answered; empty for none.
            session: Names the session, in plain; empty for none.
            tenant: Names the tenant, in plain; empty for none.
            took_ms: How long it took, in milliseconds; None for unknown.
            vector: The request's vector; None where there is none at hand.
        """

        def make(digests: Digests) -> SearchRecord:
            return SearchRecord(
                time=datetime.now(timezone.utc),
                search_id=usable_id(search_id),
                kind=kind,
                mode=mode,
                request=digests.of("request", query),
                retrieved=tuple(
                    Retrieved(tool, int(rank), _number(score)) for tool, rank, score in retrieved
                ),
                bound=tuple(bound),
                confidence=_number(confidence),
                options=options or {},
                index=str(index),
                heads=heads[:_HEADS_DIGITS],
                trial=trial[:_HEADS_DIGITS],
                session=digests.of("session", session),
                tenant=digests.of("tenant", tenant),
                took_ms=_number(took_ms),
                text=self._text(query),
            )

        record = self._record(make)
        if record is not None and vector is not None:
            self._keep(record, vector)

    def call(
        self,
        *,
        call_id: str,
        tool: ToolId,
        outcome: Outcome,
        search_id: str = "",
        arguments: Any = None,
        latency_ms: float | None = None,
        tenant: str = "",
    ) -> None:
        """Log a call that has ended; never raises.

        Args:
            call_id: Its name, as `search_id`.
            tool: The tool's id; empty for a name that the catalogue does not have, because that
                is a text of the client's.
            outcome: How it went.
            search_id: The search that showed the tool to the caller; empty for unknown.
            arguments: What the tool was called with, as JSON values; None for unknown. The order
                of keys makes no difference to the digest.
            latency_ms: How long it took, in milliseconds; None where that was not measured.
            tenant: Names the tenant, in plain, as for the search; empty for none.
        """

        def make(digests: Digests) -> CallRecord:
            written = "" if arguments is None else _canonical(arguments)
            return CallRecord(
                time=datetime.now(timezone.utc),
                call_id=usable_id(call_id),
                tool=tool,
                outcome=outcome,
                search_id=usable_id(search_id),
                latency_ms=_number(latency_ms),
                arguments=digests.of("arguments", written),
                tenant=digests.of("tenant", tenant),
                text=self._text(written),
            )

        self._record(make)

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until what was logged before is in its file, vectors included.

        Args:
            timeout: For how long at most, in seconds.

        Returns:
            Whether it is.
        """
        return self._writer.flush(timeout)

    def close(self) -> None:
        """Write what waits; what is logged afterwards is dropped."""
        self._writer.close()

    def digest(self, purpose: Purpose, text: str) -> str:
        """Return the digest that the log's records have of a text.

        Args:
            purpose: What the text is.
            text: The text.

        Returns:
            64 hexadecimal digits; empty for an empty text, and as long as there is no key, because
            the disk could not be written.
        """
        return "" if self._digests is None else self._digests.of(purpose, text)

    def _record(self, make: Callable[[Digests], _RecordT]) -> _RecordT | None:
        """Log the record that is made, and return it; None where there is none."""
        try:
            if self._digests is None:  # There is no key yet: the disk could not be written.
                self._writer.drop()
                self._writer.wake()
                return None
            record = make(self._digests)
            line = json.dumps(record.as_json(), separators=(",", ":"), allow_nan=False)
            self._writer.put(DatedLine(record.time.date(), line.encode("ascii") + b"\n"))
        except Exception as error:  # A log is never the reason why an agent fails.
            self._writer.drop()
            self._writer.warn_once(error)
            return None
        return record

    def _keep(self, record: SearchRecord, vector: RequestVector) -> None:
        """Have the vector of a request written, unless it was on the same day."""
        try:
            day = record.time.date()
            name = day, vector.model, record.request
            if not record.request or name in self._kept:
                return
            with np.errstate(over="ignore"):  # What is too large for float32 becomes infinite.
                copied = RequestVector(vector.model, np.array(vector.vector, np.float32))
            if self._writer.put_vector(DatedVector(day, record.request, copied)):
                if len(self._kept) >= _MOST_KEPT:  # Those in use come again, and are not rewritten.
                    self._kept.clear()
                self._kept.add(name)
        except Exception as error:
            self._writer.warn_once(error)

    def _open(self) -> None:
        if self._digests is None:
            self._digests = open_digests(self._directory)

    def _text(self, text: str) -> str:
        return text[:_MOST_TEXT] if self._log_text else ""


def usable_id(name: str) -> str:
    """Return a name as the log stores it.

    Args:
        name: What a search or a call is named.

    Returns:
        The same; empty where it may be a text of somebody's.
    """
    return name if _ID.fullmatch(name) else ""


def _canonical(arguments: Any) -> str:
    """Return JSON that is equal for equal arguments; what is no JSON value stands as its text."""
    return json.dumps(
        arguments, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str
    )


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), _DIGITS)
