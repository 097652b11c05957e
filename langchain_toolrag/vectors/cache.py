"""Texts' vectors in -> the same vectors out, in the next process too.

A space is one model run by one backend. It has a snapshot, a journal of what was put since,
and a lock that writers take. In memory there is one dictionary from key to row: for 10,000
vectors of MiniLM it takes 1.4 MB beside the rows' 15 MB and finds them all in 0.5 ms, where row
numbers take 0.6 MB and 1.3 ms, and a search in sorted keys 1.3 ms.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import numpy as np
from filelock import FileLock, Timeout

from langchain_toolrag.errors import SourceError, StaleIndexError
from langchain_toolrag.fork import reset_after_fork
from langchain_toolrag.types import Vector
from langchain_toolrag.vectors.cache_files import CacheFile, SnapshotFile, Table
from langchain_toolrag.vectors.journal import JournalFile, Position

logger = logging.getLogger(__name__)

_FEWEST_TO_FOLD = 4096  # Put one by one, as many are read in 0.1 s.
_LOCK_SECONDS = 5.0  # Longer than any other process needs to write.
_POLL_SECONDS = 0.005
_REST_SECONDS = 30.0  # After disk trouble; so that not every put waits for a lock.


class KnownVectors(Protocol):
    """What keeps vectors by key: `VectorCache` on the disk, `VectorMemory` in the process."""

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        """Return the vectors that are known, in the order of the keys."""

    def put(self, vectors: Mapping[bytes, Vector]) -> None:
        """Keep vectors."""

    def claim(self) -> AbstractContextManager[None]:
        """Return a block in which what `get` does not find is made by one process alone."""


class VectorMemory:
    """Vectors by opaque keys, all of one model, for the life of the process; safe under threads.

    Args:
        most: How many are kept, those used last; None for all.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._known: dict[bytes, Vector] = {}
        self.after_fork()
        reset_after_fork(self)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        """Return the vectors that are known, in the order of the keys."""
        with self._lock:
            found = {key: self._known[key] for key in keys if key in self._known}
            if self._most is not None:
                self._used(found)
        return found

    def put(self, vectors: Mapping[bytes, Vector]) -> None:
        """Keep vectors; of two of one key the last counts."""
        with self._lock:
            self._used(vectors)
            while self._most is not None and len(self._known) > self._most:
                del self._known[next(iter(self._known))]

    def claim(self) -> AbstractContextManager[None]:
        """Return a block of nothing: no other process knows these vectors."""
        return contextlib.nullcontext()

    def after_fork(self) -> None:
        """Forget a lock that a thread of the parent may hold."""
        self._lock = threading.Lock()

    def _used(self, vectors: Mapping[bytes, Vector]) -> None:
        """Put vectors at the end: what stands in front is the first to go."""
        for key, vector in vectors.items():
            self._known.pop(key, None)
            self._known[key] = vector


class VectorCache:
    """Vectors by opaque keys, kept in a directory; safe under threads, processes and forks.

    What `put` returned for survives the death of the process at any moment, `kill -9` included.
    A power cut may lose what was put last: only a new snapshot is forced to the disk.

    The disk never makes a call fail. Where it cannot be written, there is one warning for each
    cause, the vectors are kept in memory, and a later `put` tries again after 30 seconds. A
    damaged file is renamed to `<name>.corrupt-<n>`, with a warning, and what it held is not
    known any more. A file of a newer version of this package is left alone.

    Args:
        directory: Where to keep them; made at the first `put`, read at the first use.
        space: Any string that names the model and its backend: vectors of two spaces never mix.
    """

    def __init__(self, directory: Path, space: str) -> None:
        name = hashlib.blake2b(space.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        self._directory = directory
        self._name = name
        self._known: dict[bytes, Vector] = {}
        self._unsaved: dict[bytes, Vector] = {}
        self._warned: set[Hashable] = set()
        self._newer = False  # Whether a file was written by a newer version.
        self._resumes_at = 0.0
        self.after_fork()
        reset_after_fork(self)

    def __len__(self) -> int:
        """Return how many vectors are known, those of other processes included."""
        with self._state:
            self._look()
            return len(self._known)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        """Return the vectors that are known, whichever process put them.

        Args:
            keys: Keys, in any order; repeats are no matter.

        Returns:
            Read-only vectors of shape `(dim,)`, in the order of the keys.
        """
        with self._state:
            self._look()
            known = self._known
            return {key: known[key] for key in keys if key in known}

    def put(self, vectors: Mapping[bytes, Vector]) -> None:
        """Keep vectors, all of this call or none; of two of one key the last put counts.

        Args:
            vectors: Finite vectors of shape `(dim,)` by key; those already known are not
                written again. They are copied, as float32.

        Raises:
            ValueError: If they are not finite, or not of the one dimension of the space.
        """
        if not vectors:
            return
        table = _table(vectors)
        with self._state:
            self._look()
            self._check_dim(table)
            self._add(table)
        if self._unsaved and not self._newer and time.monotonic() >= self._resumes_at:
            self._with_files(self._save)

    def claim(self) -> AbstractContextManager[None]:
        """Return a block of nothing: two processes may make the same vectors, which is harmless."""
        return contextlib.nullcontext()

    def compact(self) -> None:
        """Fold the journal into a new snapshot; `put` does so by itself when it is long.

        It is long with more than 4,096 vectors, or than half of the snapshot's if that is more.
        """
        self._with_files(self._fold)

    def after_fork(self) -> None:
        """Forget locks a thread of the parent may hold, and how far it had got with reading."""
        self._state = threading.Lock()  # Guards everything in memory; never held for long.
        self._writer = threading.Lock()  # Held by the one thread that writes.
        self._snapshot = SnapshotFile(self._directory / f"{self._name}.safetensors")
        self._journal = JournalFile(self._directory / f"{self._name}.journal")

    @property
    def _dim(self) -> int | None:
        return next((len(row) for row in self._known.values()), None)

    def _check_dim(self, table: Table) -> None:
        found, wanted = table.rows.shape[1], self._dim
        if wanted is not None and found != wanted:
            raise ValueError(
                f"the vectors have dimension {found}, those of their space {wanted}; give every "
                "model a space of its own"
            )

    def _add(self, table: Table) -> None:
        for key, row in zip(table.keys, table.rows, strict=True):
            known = self._known.get(key)
            if known is None or not np.array_equal(known, row):
                self._known[key] = self._unsaved[key] = row

    def _look(self) -> None:
        """Learn what other processes put; the caller holds `_state`."""
        try:
            self._read(locked=False)
        except Timeout:
            pass  # A file looks damaged while somebody writes it: the next call looks again.
        except OSError as error:
            self._warn(("read", error.errno), "cannot be read (%s)", error)

    def _read(self, *, locked: bool) -> None:
        """Read what is new in both files; `locked` says whether the caller has their lock."""
        while True:
            self._take(self._snapshot, locked=locked)
            self._take(self._journal, locked=locked)
            if not self._snapshot.changed:
                return
            # A fold between the two reads moved vectors from the one to the other.

    def _take(self, file: CacheFile, *, locked: bool) -> None:
        try:
            tables = file.read(self._dim)
        except StaleIndexError as error:
            self._leave_alone(file, error)
        except SourceError as damage:
            self._set_aside(file, damage, locked=locked)
        else:
            for table in tables:
                self._known.update(zip(table.keys, table.rows, strict=True))
            self._known.update(self._unsaved)

    def _leave_alone(self, file: CacheFile, error: StaleIndexError) -> None:
        self._newer = True
        file.mark_seen()
        problem = "%s has format %s, this version knows up to %s: it is left alone"
        self._warn("format", problem, file.path.name, error.found, error.wanted)

    def _set_aside(self, file: CacheFile, damage: SourceError, *, locked: bool) -> None:
        try:
            if not locked:  # What looks damaged may be half written: only the lock tells.
                with self._file_lock(seconds=0):
                    return self._take(file, locked=True)
            aside = file.set_aside()
        except Timeout:
            raise
        except OSError as error:
            file.mark_seen()
            self._warn(file, "%s; it is passed over: it cannot be set aside (%s)", damage, error)
        else:
            logger.warning("embedding cache: %s; it is set aside as %s", damage, aside.name)
            self._take(file, locked=True)

    def _save(self) -> None:
        with self._state:
            batch = dict(self._unsaved)
        if batch:  # Another thread may have written what this one put.
            self._saved(batch, self._journal.append(_table(batch)))
        if self._journal.position.vectors > max(_FEWEST_TO_FOLD, self._snapshot.vectors // 2):
            self._fold()

    def _fold(self) -> None:
        with self._state:
            everything = dict(self._known)
        if everything:
            self._snapshot.write(_table(everything))
            self._journal.remove()
            self._saved(everything, Position())

    def _saved(self, batch: Mapping[bytes, Vector], position: Position) -> None:
        with self._state:
            self._journal.position = position
            for key, row in batch.items():
                if self._unsaved.get(key) is row:
                    del self._unsaved[key]

    def _with_files(self, write: Callable[[], None]) -> None:
        """Call `write` with the files locked and read; turn disk trouble into a warning."""
        try:
            with self._writer:
                self._directory.mkdir(parents=True, exist_ok=True)
                with self._file_lock(_LOCK_SECONDS):
                    with self._state:
                        self._read(locked=True)
                    if not self._newer:
                        write()
        except OSError as error:
            self._resumes_at = time.monotonic() + _REST_SECONDS
            cause = ("write", error.errno)  # The lock that is not free has no number.
            self._warn(cause, "cannot be written (%s): vectors are kept in memory", error)

    def _file_lock(self, seconds: float) -> contextlib.AbstractContextManager[object]:
        lock = FileLock(self._directory / f"{self._name}.lock")
        return lock.acquire(timeout=seconds, poll_interval=_POLL_SECONDS)

    def _warn(self, cause: Hashable, problem: str, *values: object) -> None:
        if cause not in self._warned:
            self._warned.add(cause)
            logger.warning(f"embedding cache %s: {problem}", self._directory, *values)


def text_key(text: str) -> bytes:
    """Return the key of a text.

    Args:
        text: Any text, halves of surrogate pairs included.

    Returns:
        Its BLAKE2b digest, 16 bytes.
    """
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _table(vectors: Mapping[bytes, Vector]) -> Table:
    """Copy vectors into a table; see `VectorCache.put` for what is refused."""
    try:
        with np.errstate(over="ignore"):  # What is too large for float32 becomes infinite.
            rows = np.array(list(vectors.values()), np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the vectors are not numbers of one dimension: {error}") from error
    if rows.ndim != 2 or not rows.shape[1]:
        raise ValueError(f"the vectors have shape {rows.shape[1:]}, wanted (dim,)")
    if not np.isfinite(rows).all():
        raise ValueError("some vectors are not finite; leave them out")
    rows.flags.writeable = False
    return Table(list(vectors), rows)
