"""Vectors of an embedding model in -> the vectors that heads learned to search by out.

Heads move request vectors and tool rows, never the model itself: `x + scale * MLP(x)`, scaled to
the length that `x` had, one head for requests and one for tools. So heads can be changed, and
several used at once, without anything being embedded.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from langchain_toolrag.errors import AdapterError
from langchain_toolrag.index.adapter import Adapter, Side, content_digest, read_adapter
from langchain_toolrag.types import Vector, Vectors


class Heads:
    """A head for requests and a head for tools; immutable, safe under threads.

    Args:
        adapter: What was learned; of kind `heads`, from a file or not.

    Raises:
        AdapterError: If it is a low-rank adapter.
    """

    def __init__(self, adapter: Adapter) -> None:
        if adapter.kind != "heads":
            name = adapter.digest or adapter.base
            raise AdapterError(name, f"is a {adapter.kind} one of {adapter.base}; wanted heads")
        self._adapter = adapter
        self._digest = adapter.digest or content_digest(adapter)
        self._request = _Head(adapter, "request")
        self._tool = _Head(adapter, "tool")

    @property
    def adapter(self) -> Adapter:
        """What was learned."""
        return self._adapter

    @property
    def digest(self) -> str:
        """What tells them from others, 64 hexadecimal digits: the SHA-256 of their file.

        Of heads that have no file it is that of their weights, base and scale.
        """
        return self._digest

    @property
    def base(self) -> str:
        """The model whose vectors they move, as `embedding.model_name` names it."""
        return self._adapter.base

    @property
    def scale(self) -> float:
        """How much of them is applied, 0 to 1."""
        return self._adapter.scale

    @property
    def dim(self) -> int:
        """Dimension of the vectors they move."""
        return self._request.dim

    def refuse_unless_of(self, model: str, name: object) -> None:
        """Refuse to move the vectors of a model that these heads were not trained on.

        Args:
            model: The model, as `embedding.model_name` names it.
            name: The heads' file or digest, for the message.

        Raises:
            AdapterError: If it is another model.
        """
        if self.base != model:
            raise AdapterError(name, f"holds heads of {self.base}; wanted heads of {model}")

    def request(self, vector: Vector) -> Vector:
        """Move the vector of a request.

        Args:
            vector: Unit vector, shape `(dim,)`.

        Returns:
            Unit vector of the same shape; zero stays zero.
        """
        moved: Vector = self.requests(vector[np.newaxis])[0]
        return moved

    def requests(self, vectors: Vectors) -> Vectors:
        """Move the vectors of requests.

        Args:
            vectors: Unit vectors, shape `(n, dim)`.

        Returns:
            Unit vectors of the same shape; one that is zero stays zero, so that it is close to
            nothing.
        """
        return self._request.moved(vectors)

    def rows(self, rows: Vectors) -> Vectors:
        """Move the rows of tools, which are no unit vectors: see `rows.tool_rows`.

        Args:
            rows: Rows, shape `(n, dim)`.

        Returns:
            Rows of the same shape, each as long as it was; one that is zero stays zero.
        """
        lengths = _lengths(rows)
        units = _divided(rows, lengths, lengths > 0)
        moved = self._tool.moved(units)
        stays = (moved == units).all(axis=1, keepdims=True)
        # Scaled to length 1 and back, a row is not the same to the last bit.
        same: Vectors = np.where(stays, rows, moved * lengths)
        return same


def read_heads(path: Path, model: str = "") -> Heads:
    """Read heads.

    Args:
        path: A file that `toolrag learn` or `toolrag finetune --heads` wrote.
        model: Whose vectors they are to move, `Index.model`; empty for any.

    Returns:
        The heads.

    Raises:
        AdapterError: If there is no such file, or it is torn, edited or not finite, or holds no
            heads or those of another model.
    """
    adapter = read_adapter(path)
    if adapter.kind != "heads":
        problem = f"is a {adapter.kind} one of {adapter.base}; wanted heads"
        raise AdapterError(path, f"{problem}: give it as MiniLMEmbeddings(adapter=...)")
    heads = Heads(adapter)
    if model:
        heads.refuse_unless_of(model, path)
    return heads


class _Head:
    """One side's `x + scale * MLP(x)`, in the precision it is computed in."""

    def __init__(self, adapter: Adapter, side: Side) -> None:
        self._into = _of(adapter, f"{side}.first.weight").T
        self._first_bias = _of(adapter, f"{side}.first.bias")
        scale = np.float32(adapter.scale)
        self._out_of = scale * _of(adapter, f"{side}.second.weight").T
        self._second_bias = scale * _of(adapter, f"{side}.second.bias")

    @property
    def dim(self) -> int:
        return len(self._into)

    def moved(self, units: Vectors) -> Vectors:
        """Move unit vectors; those that are not moved at all come back to the last bit."""
        hidden = np.maximum(units @ self._into + self._first_bias, 0)
        step = hidden @ self._out_of + self._second_bias
        summed = units + step
        lengths = _lengths(summed)
        usable = units.any(axis=1, keepdims=True) & (lengths > 0)
        moved = _divided(summed, lengths, usable)
        stays = ~step.any(axis=1, keepdims=True)
        unit: Vectors = np.where(stays, units, moved)
        return unit


def _of(adapter: Adapter, name: str) -> Vectors:
    return adapter.tensors[name].astype(np.float32)


def _lengths(vectors: Vectors) -> Vectors:
    lengths: Vectors = np.linalg.norm(vectors, axis=1, keepdims=True)
    return lengths


def _divided(vectors: Vectors, lengths: Vectors, usable: NDArray[np.bool_]) -> Vectors:
    """Return vectors by their lengths where these are usable, and zero elsewhere."""
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=usable)
