"""Lines in -> written by a thread of its own, together and soon, out."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from datetime import date
from pathlib import Path
from typing import NamedTuple

from langchain_toolrag.fork import reset_after_fork
from langchain_toolrag.usage.files import append, day_file

logger = logging.getLogger(__name__)

_MOST_LINES = 10_000  # About 10 MB.
_GATHER_SECONDS = 0.2  # Lines that come within it are written together.
_REST_SECONDS = 5.0  # After trouble with the disk.
_CLOSE_SECONDS = 10.0  # Longer than the lock is waited for.


class DatedLine(NamedTuple):
    """One line.

    Attributes:
        day: Whose file it belongs to, in UTC.
        content: The line with its end.
    """

    day: date
    content: bytes


class LineWriter:
    """Writes lines to their days' files; safe under threads, processes and forks.

    A line is in its file 0.2 seconds after it was put. Where the disk cannot be written, there is
    one warning for each cause and a new try every five seconds; 10,000 lines wait for it, and
    what comes on top is dropped. A forked child writes what it puts itself, no line of its parent.

    Args:
        directory: Where the files are.
        prepare: Called in the writer's thread before anything is written; what it raises counts
            as trouble with the disk.

    Attributes:
        dropped: How many lines were lost.
    """

    def __init__(self, directory: Path, prepare: Callable[[], object]) -> None:
        self.dropped = 0
        self._directory = directory
        self._prepare = prepare
        self._warned: set[Hashable] = set()
        self._closed = False
        self.after_fork()
        reset_after_fork(self)
        _open_writers.add(self)

    def put(self, line: DatedLine) -> None:
        """Have a line written; where too many wait already, or after `close`, it is dropped."""
        with self._lock:
            if self._closed or len(self._lines) >= _MOST_LINES:
                self.dropped += 1
                return
            self._lines.append(line)
            self._put += 1
        if len(self._lines) > _MOST_LINES // 2 and not self._resting:
            self._hurry.set()
        self.wake()

    def drop(self) -> None:
        """Count a line that could not be made."""
        with self._lock:
            self.dropped += 1

    def wake(self) -> None:
        """Have the thread look whether there is something to do."""
        if self._thread is None:
            self._start()
        if not self._wake.is_set():
            self._wake.set()

    def flush(self, timeout: float) -> bool:
        """Wait until what was put before is in its file.

        Args:
            timeout: For how long at most, in seconds.

        Returns:
            Whether it is.
        """
        with self._lock:
            wanted = self._put
            if self._done < wanted:
                self._hurry.set()
            self._progress.wait_for(lambda: self._done >= wanted or self._closed, timeout)
            return self._done >= wanted

    def close(self) -> None:
        """Write what waits and end the thread; what cannot be written is dropped."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._progress.notify_all()
        self._hurry.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)
        elif self._lines:
            self._write()
        with self._lock:
            self.dropped += len(self._lines)
        _open_writers.discard(self)

    def warn_once(self, error: Exception) -> None:
        """Log what went wrong, the first time it does."""
        cause = (type(error), getattr(error, "errno", None))
        if cause not in self._warned:
            self._warned.add(cause)
            logger.warning(
                "usage log %s cannot record everything: %s: %s. Nothing else is affected; what is "
                "lost is counted, and a full or locked disk is tried again",
                self._directory,
                type(error).__name__,
                error,
            )

    def after_fork(self) -> None:
        """Forget the parent's thread, its locks and its lines, which it writes itself."""
        self._lock = threading.Lock()
        self._progress = threading.Condition(self._lock)
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._lines: deque[DatedLine] = deque()
        self._put = self._done = 0
        self._resting = False
        self._thread: threading.Thread | None = None

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                thread = threading.Thread(target=self._run, name="toolrag-usage", daemon=True)
                with contextlib.suppress(RuntimeError):  # The process ends: `close` will write.
                    thread.start()
                    self._thread = thread

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._hurry.wait(_REST_SECONDS if self._resting else _GATHER_SECONDS)
            self._wake.clear()
            self._hurry.clear()
            closing = self._closed  # Read after the events are cleared, or it might be missed.
            self._resting = not self._write()
            if closing:
                return
            if self._resting:
                self._wake.set()

    def _write(self) -> bool:
        """Write what waits, and return whether that went well."""
        try:
            self._prepare()
            for day, lines in itertools.groupby(tuple(self._lines), key=lambda line: line.day):
                contents = [line.content for line in lines]
                append(day_file(self._directory, day), b"".join(contents))
                self._forget(len(contents))
        except Exception as error:
            self.warn_once(error)
            return False
        return True

    def _forget(self, written: int) -> None:
        with self._lock:
            for _ in range(written):
                self._lines.popleft()
            self._done += written
            self._progress.notify_all()


_open_writers: weakref.WeakSet[LineWriter] = weakref.WeakSet()


def _close_all() -> None:
    for writer in list(_open_writers):
        writer.close()


atexit.register(_close_all)
