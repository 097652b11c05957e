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
        base: What it was trained on: `weights.base_identity` for low-rank adapters,
            `embedding.model_name` for heads.
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
            Unit vectors of the same shape; one that is zero stays zero, so that it is close to
            nothing.
        """
        first = vectors @ self._of(f"{side}.first.weight").T + self._of(f"{side}.first.bias")
        hidden = np.maximum(first, 0)
        moved = hidden @ self._of(f"{side}.second.weight").T + self._of(f"{side}.second.bias")
        summed = vectors + np.float32(self.scale) * moved
        norms = np.linalg.norm(summed, axis=1, keepdims=True)
        usable = vectors.any(axis=1, keepdims=True) & (norms > 0)
        unit: Vectors = np.where(usable, summed / np.where(norms > 0, norms, 1), 0)
        return unit.astype(np.float32)

    def _of(self, name: str) -> Vectors:
        return self.tensors[name].astype(np.float32)


def read_adapter(path: Path) -> Adapter:
    """Read an adapter; a file that has not changed is read once in a process.

    Args:
        path: The file.

    Returns:
        The adapter.

    Raises:
        AdapterError: If there is no such file, or it is no adapter or a damaged one.
    """
    try:
        stat = path.stat()
        return _read(path.resolve(), stat.st_size, stat.st_mtime_ns)
    except (OSError, SafetensorError) as error:
        raise AdapterError(path, f"cannot be read: {error}") from error
    except (KeyError, ValueError, IndexError) as error:
        raise AdapterError(path, f"{error}; wanted one of `toolrag finetune`") from error


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


@functools.lru_cache(maxsize=8)
def _read(path: Path, size: int, changed: int) -> Adapter:
    """Read a file as it is with this size and time of change; errors are of many kinds."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with safe_open(path, framework="np") as file:
        header = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    missing = {"format", "kind", "base", "scale", "card"} - header.keys()
    if missing or header["format"] != _FORMAT or header["kind"] not in get_args(Kind):
        raise ValueError(f"its header says {header}")
    kind: Kind = "low-rank" if header["kind"] == "low-rank" else "heads"
    scale, card = float(header["scale"]), json.loads(header["card"])
    adapter = Adapter(kind, header["base"], scale, tensors, card, digest)
    _check(adapter)
    return adapter


def _check(adapter: Adapter) -> None:
    """Refuse what would not fit together, or would make every vector NaN."""
    if not 0 <= adapter.scale <= 1:
        raise ValueError(f"its scale is {adapter.scale}; wanted 0 to 1")
    if not all(np.isfinite(tensor).all() for tensor in adapter.tensors.values()):
        raise ValueError("some of its weights are not finite")
    try:
        _apply_once(adapter)
    except (KeyError, ValueError, IndexError) as error:
        raise ValueError(f"its weights do not fit together: {error}") from error


def _apply_once(adapter: Adapter) -> None:
    if adapter.kind == "heads":
        dim = adapter.tensors["request.first.weight"].shape[1]
        for side in get_args(Side):
            adapter.apply(np.ones((1, dim), np.float32), side)
        return
    tensors = adapter.tensors
    layers = [name.removesuffix(_UP) for name in tensors if name.endswith(_UP)]
    if not layers or 2 * len(layers) != len(tensors):
        raise ValueError(f"{len(tensors)} weights for {len(layers)} layers")
    shapes = {layer: (tensors[layer + _UP].shape, tensors[layer + _DOWN].shape) for layer in layers}
    for layer, (up, down) in shapes.items():
        if len(up) != 2 or len(down) != 2 or up[1] != down[0]:
            raise ValueError(
                f"{layer} has weights of shape {up} and {down}, no matrices to multiply"
            )
