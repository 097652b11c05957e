"""Adapter file in -> changes of an embedding model out.

Two kinds. A low-rank adapter [1] changes the weights of the model it was trained on: for each
adapted layer `W` becomes `W + scale * up @ down`. Residual heads leave the model alone and move
its vectors: `x + scale * MLP(x)`, one head for requests and one for tools; a new head is the
identity.

References:
    [1] Hu et al. LoRA: Low-Rank Adaptation of Large Language Models. ICLR 2022.
    https://doi.org/10.48550/arXiv.2106.09685
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from langchain_toolrag.atomic import write_whole
from langchain_toolrag.errors import AdapterError
from langchain_toolrag.types import Vectors

Kind: TypeAlias = Literal["low-rank", "heads"]
Side: TypeAlias = Literal["request", "tool"]

PACKAGED = Path(__file__).parent / "minilm-adapter.safetensors"
"""The adapter of the default model, which comes with this package."""

_FORMAT = "1"
_DOWN, _UP = ".down", ".up"


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """What was learned on top of one model.

    Attributes:
        kind: `low-rank` or `heads`.
        base: What it was trained on, see `embedding.model_identity`.
        scale: How much of it is applied, 0 to 1.
        tensors: Its weights by name: `<layer>.down` of shape `(rank, in)` and `<layer>.up` of
            shape `(out, rank)`; or `<side>.<first|second>.<weight|bias>`.
        card: Where it comes from: data, licences, command, measures.
        digest: SHA-256 of its file, in hexadecimal; empty before it is written.
    """

    kind: Kind
    base: str
    scale: float
    tensors: Mapping[str, NDArray[np.floating[Any]]]
    card: Mapping[str, Any]
    digest: str = ""

    def deltas(self) -> dict[str, Vectors]:
        """Return what is to be added to the weight of each layer, by the layer's name."""
        layers = [name.removesuffix(_UP) for name in self.tensors if name.endswith(_UP)]
        return {
            layer: np.float32(self.scale) * (self._of(layer + _UP) @ self._of(layer + _DOWN))
            for layer in layers
        }

    def apply(self, vectors: Vectors, side: Side) -> Vectors:
        """Move vectors by the head of one side; see `deltas` for low-rank adapters.

        Args:
            vectors: Unit vectors, shape `(n, dim)`.
            side: Whose head: that of requests or that of tools.

        Returns:
            Unit vectors of the same shape.
        """
        first = vectors @ self._of(f"{side}.first.weight").T + self._of(f"{side}.first.bias")
        hidden = np.maximum(first, 0)
        moved = hidden @ self._of(f"{side}.second.weight").T + self._of(f"{side}.second.bias")
        summed = vectors + np.float32(self.scale) * moved
        norms = np.linalg.norm(summed, axis=1, keepdims=True)
        unit: Vectors = summed / np.where(norms > 0, norms, 1.0).astype(np.float32)
        return unit

    def _of(self, name: str) -> Vectors:
        return self.tensors[name].astype(np.float32)


@functools.lru_cache(maxsize=8)
def read_adapter(path: Path) -> Adapter:
    """Read an adapter; one path is read once in a process.

    Args:
        path: The file.

    Returns:
        The adapter.

    Raises:
        AdapterError: If there is no such file, or it is no adapter or a damaged one.
    """
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        with safe_open(path, framework="np") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise AdapterError(path, f"cannot be read: {error}") from error
    if header.get("format") != _FORMAT or header.get("kind") not in get_args(Kind):
        raise AdapterError(path, f"its header says {header}; wanted one of `toolrag finetune`")
    kind: Kind = "low-rank" if header["kind"] == "low-rank" else "heads"
    adapter = Adapter(
        kind, header["base"], float(header["scale"]), tensors, json.loads(header["card"]), digest
    )
    _check(adapter, path)
    return adapter


def write_adapter(adapter: Adapter, path: Path) -> None:
    """Write an adapter as half-precision safetensors, whole or not at all."""
    header = {
        "format": _FORMAT,
        "kind": adapter.kind,
        "base": adapter.base,
        "scale": str(adapter.scale),
        "card": json.dumps(adapter.card, ensure_ascii=False),
    }
    halves = {
        name: np.ascontiguousarray(tensor, np.float16) for name, tensor in adapter.tensors.items()
    }
    write_whole(path, save(halves, header))


def _check(adapter: Adapter, path: Path) -> None:
    """Refuse tensors that would not fit together, or would make every vector NaN."""
    if not all(np.isfinite(tensor).all() for tensor in adapter.tensors.values()):
        raise AdapterError(path, "some of its weights are not finite")
    try:
        if adapter.kind == "low-rank":
            adapter.deltas()
        else:
            dim = adapter.tensors["request.first.weight"].shape[1]
            for side in get_args(Side):
                adapter.apply(np.zeros((1, dim), np.float32), side)
    except (KeyError, ValueError) as error:
        raise AdapterError(path, f"its weights do not fit together: {error}") from error
