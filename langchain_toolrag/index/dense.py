"""Tool vectors in -> the score of every tool out, by FAISS's inner products.

A tool has one row: the weighted sum of the unit vectors of its views (see `IndexOptions`).
The inner product with that row is the weighted sum of the views' cosines, exactly, at a
third of the memory and time of keeping three rows.

FAISS's kernels are called on our own memory, for two reasons. The searches of its index classes
start OpenMP threads even for one query of 1,000 rows, which takes 8 ms on two busy cores where the
products themselves take 0.02 ms. And a FAISS index is copied whole before a row is added to it;
here a new state shares the rows with the old one.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_toolrag.index.postings import Slots
from langchain_toolrag.types import Vector, Vectors

_MOST_SINGLE = 150_000  # More rows are kept in half precision: half the memory.
_GROWTH = 1.5  # Of the memory, where it is full: a row is copied few times.
_BLOCK = 256  # Half-precision rows scored by one call; few enough for FAISS's heap to be quick.


@functools.cache
def _faiss() -> Any:
    """Import FAISS: a tenth of a second, which a search by words need not wait for."""
    return importlib.import_module("faiss")  # Its stubs know neither the kernels nor the scanners.


class _Memory:
    """Rows by slot, shared by many states: a row is written once and never changed.

    Args:
        rows: Shape `(capacity, dim)`, of 32 or 16 bits.
        written: Which rows some state has written, shape `(capacity,)`.
    """

    def __init__(self, rows: NDArray[np.floating[Any]], written: NDArray[np.bool_]) -> None:
        self.rows = rows
        self.written = written

    def takes(self, slots: Slots, kind: type[np.floating[Any]]) -> bool:
        """Return whether new rows of these slots can be written here."""
        fits = self.rows.dtype == kind and slots.max(initial=-1) < len(self.rows)
        return fits and not self.written[slots].any()


@dataclass(frozen=True, slots=True, eq=False)
class DenseIndex:
    """An exact inner-product index over rows by slot; immutable.

    Slots should be dense: memory is taken for all up to the highest. Of a state and its copies,
    one thread at a time may make further copies; any number may search.

    Attributes:
        dim: Dimension of the rows.
        present: Which slots have a row, up to the highest that had one.
        size: Number of rows.
    """

    dim: int
    present: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    size: int = 0
    _memory: _Memory | None = None

    def with_rows(self, slots: Sequence[int] | Slots, rows: Vectors, room: int = 0) -> DenseIndex:
        """Return a copy with rows added; this index stays as it is.

        Args:
            slots: Their slots; none has a row yet.
            rows: Shape `(len(slots), dim)`.
            room: How many slots there will be, if that is known: rows are copied less often.

        Returns:
            The copy.
        """
        at = np.array(slots, np.intp)
        size = self.size + len(at)
        span = max(len(self.present), int(at.max(initial=-1)) + 1)
        memory = self._memory_for(at, max(span, room), size)
        memory.rows[at] = rows
        memory.written[at] = True
        present = np.zeros(span, np.bool_)
        present[: len(self.present)] = self.present
        present[at] = True
        return DenseIndex(self.dim, present, size, memory)

    def without(self, slots: Sequence[int] | Slots) -> DenseIndex:
        """Return a copy without some rows, which must be there; this index stays as it is."""
        if not len(slots):
            return self
        present = self.present.copy()
        present[np.array(slots, np.intp)] = False
        return DenseIndex(self.dim, present, self.size - len(slots), self._memory)

    def scores(self, query: Vector) -> NDArray[np.float32]:
        """Score every row.

        Args:
            query: Unit vector.

        Returns:
            By slot, shape `(len(present),)`; higher is better. Where no row is present it is
            anything.

        Raises:
            ValueError: If the query is of another dimension.
        """
        if query.shape != (self.dim,):
            raise ValueError(f"the query has shape {query.shape}; wanted ({self.dim},)")
        if self._memory is None:
            return np.zeros(0, np.float32)
        return _products(self._memory.rows[: len(self.present)], query)

    def rows(self, slots: Sequence[int] | Slots) -> Vectors:
        """Return the rows of slots, shape `(len(slots), dim)`; every one must be there."""
        if self._memory is None or not len(slots):
            return np.zeros((0, self.dim), np.float32)
        return self._memory.rows[np.asarray(slots, np.intp)].astype(np.float32)

    def _memory_for(self, slots: Slots, room: int, size: int) -> _Memory:
        """Return memory that new rows can be written to: the old, or a larger copy of it."""
        kind = np.float16 if size > _MOST_SINGLE else np.float32
        if self._memory is not None and self._memory.takes(slots, kind):
            return self._memory
        capacity = max(room, int(_GROWTH * len(self.present)))
        memory = _Memory(np.zeros((capacity, self.dim), kind), np.zeros(capacity, np.bool_))
        if self._memory is not None:
            old = len(self.present)
            memory.rows[:old] = self._memory.rows[:old]
            memory.written[:old] = self.present
        return memory


@dataclass(frozen=True, slots=True, eq=False)
class Peaks:
    """The best scores that some requests reach in an index; immutable.

    Attributes:
        requests: Their vectors, shape `(n, dim)`.
        scores: The best score of each, shape `(n,)`; minus infinity without rows.
        slots: Where each has it, shape `(n,)`; -1 without rows.
        median: The median of the scores; 0 without rows.
    """

    requests: Vectors
    scores: NDArray[np.float32]
    slots: Slots
    median: float = 0.0

    @classmethod
    def of(cls, requests: Vectors, index: DenseIndex) -> Peaks:
        """Return the peaks of requests in an index."""
        count = len(requests)
        lowest = cls(requests, np.full(count, -np.inf, np.float32), np.full(count, -1, np.intp))
        return lowest._sought(range(count), index)

    def with_rows(self, slots: Sequence[int] | Slots, index: DenseIndex) -> Peaks:
        """Return the peaks in an index that was given rows in these slots."""
        rows, at = index.rows(slots), np.array(slots, np.intp)
        scores, where = self.scores.copy(), self.slots.copy()
        for number, request in enumerate(self.requests if len(at) else ()):
            added = _products(rows, request)
            best = int(added.argmax())
            if added[best] > scores[number]:
                scores[number], where[number] = added[best], at[best]
        return _peaks(self.requests, scores, where)

    def without(self, slots: Sequence[int] | Slots, index: DenseIndex) -> Peaks:
        """Return the peaks in an index that lost the rows of these slots."""
        lost = np.flatnonzero(np.isin(self.slots, np.array(slots, np.intp)))
        return self._sought(lost.tolist(), index) if len(lost) else self

    def _sought(self, numbers: Iterable[int], index: DenseIndex) -> Peaks:
        """Return the peaks with those of some requests sought among all rows."""
        scores, where = self.scores.copy(), self.slots.copy()
        for number in numbers:
            scores[number], where[number] = -np.inf, -1
            if index.size:
                found = np.where(index.present, index.scores(self.requests[number]), -np.inf)
                where[number] = found.argmax()
                scores[number] = found[where[number]]
        return _peaks(self.requests, scores, where)


def _peaks(requests: Vectors, scores: NDArray[np.float32], slots: Slots) -> Peaks:
    reached = len(scores) and np.isfinite(scores).all()
    return Peaks(requests, scores, slots, float(np.median(scores)) if reached else 0.0)


def _products(rows: NDArray[np.floating[Any]], query: Vector) -> NDArray[np.float32]:
    """Return the inner products of rows with a query, shape `(len(rows),)`."""
    wanted = np.ascontiguousarray(query, np.float32)
    products = np.zeros(len(rows), np.float32)
    if not len(rows):
        return products
    if rows.dtype == np.float16:
        _score_halves(rows, wanted, products)
    else:
        faiss = _faiss()
        pointers = (faiss.swig_ptr(array) for array in (products, wanted, rows))
        faiss.fvec_inner_products_ny(*pointers, rows.shape[1], len(rows))
    return products


def _score_halves(rows: NDArray[Any], query: Vector, products: NDArray[np.float32]) -> None:
    """Fill in the products of half-precision rows, which FAISS can read as they are.

    Its scanner returns the best of what it reads; asked for as many as it reads, it returns all.
    """
    faiss = _faiss()
    quantizer = faiss.ScalarQuantizer(rows.shape[1], faiss.ScalarQuantizer.QT_fp16)
    inner_product = faiss.METRIC_INNER_PRODUCT
    scanner = quantizer.select_InvertedListScanner(inner_product, None, False, None)
    scanner.set_query(faiss.swig_ptr(query))
    codes = rows.view(np.uint8)
    places = np.arange(_BLOCK)
    scores, found = np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.int64)
    pointers = [faiss.swig_ptr(array) for array in (places, scores, found)]
    for start in range(0, len(rows), _BLOCK):
        block = codes[start : start + _BLOCK]
        scores.fill(-np.inf)
        found.fill(-1)
        scanner.scan_codes(len(block), faiss.swig_ptr(block), *pointers, _BLOCK)
        filled = found >= 0
        products[start + found[filled]] = scores[filled]
