"""Lines and vectors in -> written by a thread of its own, together and soon, out."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from datetime import date
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from langchain_toolrag.fork import reset_after_fork
from langchain_toolrag.usage.files import append, day_file
from langchain_toolrag.usage.request_vectors import DatedVector, VectorFiles

logger = logging.getLogger(__name__)

_MOST_WAITING = 10_000  # Lines, about 10 MB; vectors, 15 MB of MiniLM's.
_GATHER_SECONDS = 0.2  # What comes within it is written together.
_REST_SECONDS = 5.0  # After trouble with the disk.
_CLOSE_SECONDS = 10.0  # Longer than the lock is waited for.

_ItemT = TypeVar("_ItemT")


class DatedLine(NamedTuple):
    """One line.

    Attributes:
        day: Whose file it belongs to, in UTC.
        content: The line with its end.
    """

    day: date
    content: bytes


class LogWriter:
    """Writes lines to their days' files and vectors to theirs; safe under threads and forks.

    What was put is in its file 0.2 seconds later. Where the disk cannot be written, there is
    one warning for each cause and a new try every five seconds; 10,000 lines, and as many
    vectors, wait for it, and what comes on top is dropped. A forked child writes what it puts
    itself, nothing of its parent's.

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
        self._vector_files = VectorFiles(directory)
        self._warned: set[Hashable] = set()
        self._closed = False
        self.after_fork()
        reset_after_fork(self)
        _open_writers.add(self)

    def put(self, line: DatedLine) -> None:
        """Have a line written; where too many wait already, or after `close`, it is dropped."""
        if not self._put(self._lines, line):
            self.drop()

    def put_vector(self, vector: DatedVector) -> bool:
        """Have a vector written; return whether there was place for it."""
        return self._put(self._vectors, vector)

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
            wanted = self._lines.put, self._vectors.put
            if not self._has_done(wanted):
                self._hurry.set()
            self._progress.wait_for(lambda: self._has_done(wanted) or self._closed, timeout)
            return self._has_done(wanted)

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
        elif self._lines.waiting or self._vectors.waiting:
            self._write()
        with self._lock:
            self.dropped += len(self._lines.waiting)
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
        """Forget the parent's thread, its locks and what waits, which it writes itself."""
        self._lock = threading.Lock()
        self._progress = threading.Condition(self._lock)
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._lines: _Queue[DatedLine] = _Queue(self._write_lines)
        self._vectors: _Queue[DatedVector] = _Queue(self._vector_files.write)
        self._resting = False
        self._thread: threading.Thread | None = None

    def _put(self, queue: _Queue[_ItemT], item: _ItemT) -> bool:
        with self._lock:
            if self._closed or len(queue.waiting) >= _MOST_WAITING:
                return False
            queue.waiting.append(item)
            queue.put += 1
        if len(queue.waiting) > _MOST_WAITING // 2 and not self._resting:
            self._hurry.set()
        self.wake()
        return True

    def _has_done(self, wanted: tuple[int, int]) -> bool:
        lines, vectors = wanted
        return self._lines.done >= lines and self._vectors.done >= vectors

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
        except Exception as error:
            self.warn_once(error)
            return False
        # What keeps lines from being written is told once, not for the vectors too.
        return self._write_queue(self._lines) and self._write_queue(self._vectors)

    def _write_queue(self, queue: _Queue[_ItemT]) -> bool:
        waiting = tuple(queue.waiting)
        try:
            while waiting:
                written = queue.write(waiting)
                self._forget(queue, written)
                waiting = waiting[written:]
        except Exception as error:
            self.warn_once(error)
            return False
        return True

    def _write_lines(self, lines: Sequence[DatedLine]) -> int:
        """Write the first lines, those of one day; return how many there are."""
        day, first = next(itertools.groupby(lines, key=lambda line: line.day))
        contents = [line.content for line in first]
        append(day_file(self._directory, day), b"".join(contents))
        return len(contents)

    def _forget(self, queue: _Queue[_ItemT], written: int) -> None:
        with self._lock:
            for _ in range(written):
                queue.waiting.popleft()
            queue.done += written
            self._progress.notify_all()


class _Queue(Generic[_ItemT]):
    """What waits to be written, of one kind; guarded by the writer's lock.

    `write` writes the first of some items, as many as go together, and returns how many.
    """

    def __init__(self, write: Callable[[Sequence[_ItemT]], int]) -> None:
        self.write = write
        self.waiting: deque[_ItemT] = deque()
        self.put = self.done = 0


_open_writers: weakref.WeakSet[LogWriter] = weakref.WeakSet()


def _close_all() -> None:
    for writer in list(_open_writers):
        writer.close()


atexit.register(_close_all)
