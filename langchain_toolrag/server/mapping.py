"""The vectors of a catalogue -> a map of it on a plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from langchain_toolrag.server.serving import Served
from langchain_toolrag.types import ToolId, Vector, Vectors


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """The plane on which vectors lie farthest apart: their first two principal components.

    Attributes:
        mean: The middle of the vectors, shape `(dim,)`.
        axes: The components as columns, shape `(dim, 2)`; the one that shows more comes first.
        reach: How far from the middle the farthest vector is along an axis; more than 0.
        shown: Share of the vectors' variance that the plane shows, 0 to 1.
    """

    mean: Vector
    axes: Vectors
    reach: float
    shown: float

    @classmethod
    def of(cls, vectors: Vectors) -> Plane:
        """Return the plane of vectors; the same vectors always give the same one.

        Args:
            vectors: Shape `(n, dim)`, `dim` at least 2; no vectors give a plane through 0.

        Returns:
            The plane.
        """
        dim = vectors.shape[1]
        mean = vectors.mean(axis=0) if len(vectors) else np.zeros(dim, np.float32)
        centred = vectors - mean
        spread = (centred.T @ centred).astype(np.float64)
        values, columns = eigh(spread, subset_by_index=[dim - 2, dim - 1])
        axes = _upright(columns[:, ::-1]).astype(np.float32)
        reach = float(np.abs(centred @ axes).max(initial=0.0)) or 1.0
        total = float(np.trace(spread))
        return cls(mean, axes, reach, min(float(values.sum()) / total, 1.0) if total else 0.0)

    def places(self, vectors: Vectors) -> NDArray[np.float64]:
        """Return where vectors fall.

        Args:
            vectors: Shape `(n, dim)`; others than those the plane was made of may fall outside.

        Returns:
            Shape `(n, 2)`; -1 to 1 for the vectors that the plane was made of.
        """
        fallen = (vectors - self.mean) @ self.axes
        return np.round(fallen.astype(np.float64) / self.reach, 4)


@dataclass(frozen=True, slots=True, eq=False)
class CatalogueMap:
    """Where the tools of a catalogue are on a plane.

    Attributes:
        fingerprint: Which catalogue it is of.
        ids: The tools that have a vector, in the catalogue's order.
        places: Where they are, shape `(len(ids), 2)`, -1 to 1.
        plane: What they were put on; None where no tool has a vector.
    """

    fingerprint: str
    ids: Sequence[ToolId] = ()
    places: NDArray[np.float64] | None = None
    plane: Plane | None = None

    @classmethod
    def of(cls, served: Served) -> CatalogueMap:
        """Return the map of a catalogue as far as it is embedded."""
        index = served.rag.tool_index.local
        snapshot = None if index is None else index.snapshot
        if snapshot is None or snapshot.dense is None:
            return cls(served.fingerprint)
        ids = [tool for tool in served.tools if tool in snapshot.keys]
        rows = snapshot.dense.rows([snapshot.keys[tool] for tool in ids])
        plane = Plane.of(rows)
        return cls(served.fingerprint, ids, plane.places(rows), plane)

    def is_of(self, served: Served) -> bool:
        """Return whether it shows a catalogue as it is now."""
        index = served.rag.tool_index.local
        embedded = 0 if index is None else len(index.snapshot.keys)
        return self.fingerprint == served.fingerprint and embedded == len(self.ids)


def _upright(axes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn each axis so that its largest part is positive: either way is a principal component."""
    largest = np.abs(axes).argmax(axis=0)
    return np.asarray(axes * np.sign(axes[largest, np.arange(axes.shape[1])]))
