"""Tool vectors in -> nearest tools out, by FAISS.

A tool has one row: the weighted sum of the unit vectors of its views (see `IndexOptions`).
The inner product with that row is the weighted sum of the views' cosines, exactly, at a
third of the memory and time of keeping three rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from langchain_toolrag.fork import call_after_fork
from langchain_toolrag.types import Vector, Vectors

# The threads of OpenMP do not survive a fork: waiting for them, a child would hang.
call_after_fork(lambda: faiss.omp_set_num_threads(1))


class DenseIndex:
    """An exact inner-product index over keyed rows; immutable.

    Args:
        index: A FAISS `IndexIDMap2` over an `IndexFlatIP`; the caller gives it away.

    Attributes:
        dim: Dimension of the rows.
        size: Number of rows.
        mean: Mean row, shape `(dim,)`.
        second_moment: Mean outer product of the rows, shape `(dim, dim)`.
    """

    def __init__(self, index: Any) -> None:
        self._index = index
        self.dim: int = index.d
        self.size: int = index.ntotal
        rows = self._rows()
        self.mean: Vector = rows.mean(axis=0) if self.size else np.zeros(self.dim, np.float32)
        self.second_moment: Vectors = rows.T @ rows / np.float32(max(1, self.size))

    @classmethod
    def empty(cls, dim: int) -> DenseIndex:
        """Return an index without rows."""
        return cls(faiss.IndexIDMap2(faiss.IndexFlatIP(dim)))

    def without(self, keys: Sequence[int]) -> DenseIndex:
        """Return a copy without some rows; this index stays as it is."""
        if not len(keys):
            return self
        copy: Any = faiss.clone_index(self._index)
        copy.remove_ids(np.array(keys, np.int64))
        return DenseIndex(copy)

    def with_rows(self, keys: Sequence[int], rows: Vectors) -> DenseIndex:
        """Return a copy with rows added, shape `(len(keys), dim)`; no key may be there yet."""
        copy: Any = faiss.clone_index(self._index)
        copy.add_with_ids(np.ascontiguousarray(rows), np.array(keys, np.int64))
        return DenseIndex(copy)

    def search(
        self, query: Vector, k: int, allowed: NDArray[np.int64] | None = None
    ) -> dict[int, float]:
        """Return the `k` best rows, best first.

        Args:
            query: Unit vector.
            k: How many; fewer where there are fewer.
            allowed: Keys that may be returned; None for all.

        Returns:
            Scores by key; higher is better.
        """
        wanted = min(k, self.size if allowed is None else len(allowed))
        if wanted < 1:
            return {}
        library: Any = faiss  # Its stubs do not know the parameters' options.
        selector = None if allowed is None else library.IDSelectorBatch(allowed)
        parameters = None if selector is None else library.SearchParameters(sel=selector)
        scores, keys = self._index.search(query[np.newaxis], wanted, params=parameters)
        found = zip(keys[0].tolist(), scores[0].tolist(), strict=True)
        return {key: score for key, score in found if key >= 0}  # FAISS pads with -1.

    def scores(self, query: Vector, keys: Sequence[int]) -> dict[int, float]:
        """Return the scores of given rows, by key; every key must be there."""
        return dict(zip(keys, (self.rows(keys) @ query).tolist(), strict=True))

    def rows(self, keys: Sequence[int]) -> Vectors:
        """Return the rows of keys, shape `(len(keys), dim)`; every key must be there."""
        if not len(keys):
            return np.zeros((0, self.dim), np.float32)
        return np.stack([self._index.reconstruct(key) for key in keys])

    def best(self, queries: Vectors) -> NDArray[np.float32]:
        """Return the best score of each query, shape `(len(queries),)`; there must be a row."""
        scores, _ = self._index.search(np.ascontiguousarray(queries), 1)
        best: NDArray[np.float32] = scores[:, 0]
        return best

    def spread(self, query: Vector) -> tuple[float, float]:
        """Return mean and standard deviation of the query's scores over all rows.

        With `m` the mean row and `S` the second moment these are `q.m` and
        `sqrt(q'Sq - (q.m)^2)`: exact, and no slower for a larger catalogue.
        """
        mean = float(query @ self.mean)
        variance = float(query @ self.second_moment @ query) - mean * mean
        return mean, max(variance, 0.0) ** 0.5

    def _rows(self) -> Vectors:
        """View the rows in FAISS's own memory, shape `(size, dim)`."""
        flat: Any = faiss.downcast_index(self._index.index)
        stored: Vectors = faiss.rev_swig_ptr(flat.get_xb(), self.size * self.dim)
        return stored.reshape(self.size, self.dim)
