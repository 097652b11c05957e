"""The index as it is now and heads in -> the same with its rows moved by the heads out.

Only rows and probes are moved, everything else is shared. What was moved for one state of the
index is used for the next: rows that came since are moved, those that left are left out.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from langchain_toolrag.errors import AdapterError
from langchain_toolrag.index.dense import DenseIndex, Peaks
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.index.snapshot import Snapshot

_MOST_HEADS = 3  # Those in use, those on trial, and those a tenant went back to.
_BLOCK = 1024  # Rows moved at once: what is computed on the way takes little memory.
_Mask = NDArray[np.bool_]


class HeadedSnapshots:
    """Moved rows for the heads that were used last; safe under threads."""

    def __init__(self) -> None:
        self._places: OrderedDict[str, _Place] = OrderedDict()
        self.after_fork()

    def of(self, heads: Heads, current: Callable[[], Snapshot]) -> Snapshot:
        """Return the index as it is now, its rows moved by heads.

        Only searches by the same heads wait while rows are moved.

        Args:
            heads: The heads.
            current: Returns the index as it is now; no call returns an earlier state than one
                before.

        Returns:
            A snapshot to be searched with request vectors that the same heads moved.

        Raises:
            AdapterError: If the heads move vectors of another dimension.
        """
        snapshot = current()
        _refuse_foreign(heads, snapshot)  # Before they take the place of others.
        place = self._place(heads)
        moved = place.moved
        if moved is None or not moved.is_of(snapshot):
            with place.lock:
                snapshot = current()
                moved = place.moved = _followed(place.moved, snapshot, heads)
        return moved.over(snapshot)

    def is_ready(self, heads: Heads, snapshot: Snapshot) -> bool:
        """Return whether `of` has nothing to move for a snapshot, and nobody to wait for."""
        place = self._places.get(heads.digest)
        moved = None if place is None else place.moved
        return moved is not None and moved.is_of(snapshot)

    def after_fork(self) -> None:
        """Forget locks that a thread of the parent process may hold for ever."""
        self._placing = threading.Lock()
        for place in self._places.values():
            place.lock = threading.Lock()

    def _place(self, heads: Heads) -> _Place:
        """Return what is kept for heads; of too many, those that were used longest ago go."""
        with self._placing:
            place = self._places.setdefault(heads.digest, _Place())
            self._places.move_to_end(heads.digest)
            while len(self._places) > _MOST_HEADS:
                self._places.popitem(last=False)
        return place


@dataclass(frozen=True, slots=True, eq=False)
class _Moved:
    """What was moved, and of which state of the index.

    That state is told by what it takes no memory to hold: its numbering and which slots had rows.
    """

    numbering: object
    present: _Mask | None
    dense: DenseIndex | None
    peaks: Peaks | None

    def is_of(self, snapshot: Snapshot) -> bool:
        return self.numbering is snapshot.numbering and self.present is _present(snapshot)

    def over(self, snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, dense=self.dense, peaks=self.peaks)


@dataclass(slots=True, eq=False)
class _Place:
    """What is kept for one pair of heads; `moved` is replaced by who holds the lock."""

    moved: _Moved | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


def _refuse_foreign(heads: Heads, snapshot: Snapshot) -> None:
    dense = snapshot.dense
    if dense is not None and heads.dim != dense.dim:
        problem = f"moves vectors of dimension {heads.dim}; those of the tools have {dense.dim}"
        raise AdapterError(heads.digest, problem)


def _present(snapshot: Snapshot) -> _Mask | None:
    return None if snapshot.dense is None else snapshot.dense.present


def _followed(known: _Moved | None, snapshot: Snapshot, heads: Heads) -> _Moved:
    """Return the moved rows of a snapshot, by way of those of an earlier one where there are."""
    dense, peaks = snapshot.dense, snapshot.peaks
    if dense is None or peaks is None:
        return _Moved(snapshot.numbering, None, None, None)
    before = np.zeros(len(dense.present), np.bool_)
    if known and known.dense and known.peaks and known.numbering is snapshot.numbering:
        moved, moved_peaks = known.dense, known.peaks
        before[: len(moved.present)] = moved.present
    else:
        moved = DenseIndex(dense.dim)
        moved_peaks = Peaks.of(heads.requests(peaks.requests), moved)
    gone, added = np.flatnonzero(before & ~dense.present), np.flatnonzero(dense.present & ~before)
    moved = moved.without(gone)
    moved_peaks = moved_peaks.without(gone, moved)
    for start in range(0, len(added), _BLOCK):
        slots = added[start : start + _BLOCK]
        moved = moved.with_rows(slots, heads.rows(dense.rows(slots)), len(snapshot.ids))
        moved_peaks = moved_peaks.with_rows(slots, moved)
    return _Moved(snapshot.numbering, dense.present, moved, moved_peaks)
