"""Rows of all tools in -> how any request's scores spread over them, in closed form, out.

A tool's score is the inner product of its row `r` and the request's vector `q`. Over all tools its
mean is `q . m`, with `m` the mean row, and its variance `q' C q`, with `C` the rows' covariance: so
that a search need not read the tools to know how its scores spread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_toolrag.types import Vector, Vectors


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """How the rows of a catalogue lie; immutable.

    Attributes:
        version: The catalogue's version that was measured; -1 where none was.
        outside: The median of the best scores of requests that no tool serves.
        mean: The rows' mean, shape `(dim,)`.
        covariance: Their covariance, shape `(dim, dim)`.
    """

    version: int
    outside: float
    mean: Vector
    covariance: Vectors

    @classmethod
    def of(cls, version: int, outside: float, rows: Vectors) -> Spread:
        """Return the spread of rows of shape `(n, dim)`, `n` at least 1."""
        mean = rows.mean(axis=0, dtype=np.float64)
        centred = rows.astype(np.float64) - mean
        covariance = centred.T @ centred / len(rows)
        return cls(version, outside, mean.astype(np.float32), covariance.astype(np.float32))

    @classmethod
    def read(cls, version: int, outside: float, mean: bytes, covariance: bytes) -> Spread:
        """Return the spread that `written` wrote."""
        vector = _floats(mean)
        return cls(version, outside, vector, _floats(covariance).reshape(len(vector), -1))

    def written(self) -> tuple[bytes, bytes]:
        """Return mean and covariance as bytes, little-endian float32."""
        return self.mean.astype("<f4").tobytes(), self.covariance.astype("<f4").tobytes()

    def scores(self, request: Vector) -> tuple[float, float]:
        """Return mean and standard deviation of a request's scores; 0 if nothing was measured."""
        if request.shape != self.mean.shape:
            return 0.0, 0.0
        exact: NDArray[Any] = request.astype(np.float64)
        variance = float(exact @ (self.covariance @ exact))
        return float(exact @ self.mean), math.sqrt(max(variance, 0.0))


UNKNOWN = Spread(-1, 0.0, np.zeros(0, np.float32), np.zeros((0, 0), np.float32))
"""The spread where nothing was measured yet."""


def _floats(data: bytes) -> Vector:
    return np.frombuffer(data, "<f4").astype(np.float32)
