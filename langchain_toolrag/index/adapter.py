"""Adapter file in -> changes of an embedding model out.

Two kinds. A low-rank adapter [1] changes the weights of the model it was trained on: for each
adapted layer `W` becomes `W + scale * up @ down`. Residual heads leave the model alone and move
its vectors, one head for requests and one for tools; see `heads`.

References:
    [1] Hu et al. LoRA: Low-Rank Adaptation of Large Language Models. ICLR 2022.
    https://doi.org/10.48550/arXiv.2106.09685
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from langchain_toolrag.atomic import write_whole
from langchain_toolrag.errors import AdapterError
from langchain_toolrag.types import Vectors

Kind: TypeAlias = Literal["low-rank", "heads"]
Side: TypeAlias = Literal["request", "tool"]

PACKAGED = Path(__file__).parent / "minilm-adapter.safetensors"
"""The adapter of the default model, which comes with this package."""

_FORMAT = "1"
_DOWN, _UP = ".down", ".up"
_SEAL = "content"  # Tells an edited file; those of before have none.


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

    def _of(self, name: str) -> Vectors:
        return self.tensors[name].astype(np.float32)


def read_adapter(path: Path) -> Adapter:
    """Read an adapter.

    Args:
        path: The file.

    Returns:
        The adapter.

    Raises:
        AdapterError: If there is no such file, or it is no adapter, a damaged or an edited one.
    """
    try:
        return _adapter_in(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise AdapterError(path, f"cannot be read: {error}") from error
    except (KeyError, ValueError, IndexError, RecursionError) as error:
        problem = f"{error}; wanted one as `toolrag learn` or `toolrag finetune` wrote it"
        raise AdapterError(path, problem) from error


def write_adapter(adapter: Adapter, path: Path) -> None:
    """Write an adapter as half-precision safetensors, whole or not at all."""
    halves = {
        name: np.ascontiguousarray(tensor, np.float16) for name, tensor in adapter.tensors.items()
    }
    header = {
        "format": _FORMAT,
        "kind": adapter.kind,
        "base": adapter.base,
        "scale": str(adapter.scale),
        "card": json.dumps(adapter.card, ensure_ascii=False),
        _SEAL: content_digest(replace(adapter, tensors=halves)),
    }
    write_whole(path, save(halves, header))


def content_digest(adapter: Adapter) -> str:
    """Return the SHA-256, in hexadecimal, of what an adapter does: kind, base, scale, weights."""
    digest = hashlib.sha256(json.dumps([adapter.kind, adapter.base, adapter.scale]).encode())
    for name, tensor in sorted(adapter.tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), tensor.shape]).encode())
        digest.update(np.ascontiguousarray(tensor).tobytes())
    return digest.hexdigest()


def _adapter_in(content: bytes) -> Adapter:
    """Return the adapter that a file's content is; errors are of many kinds."""
    tensors = load(content)
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    header = header.get("__metadata__", {})
    missing = {"format", "kind", "base", "scale", "card"} - header.keys()
    if missing or header["format"] != _FORMAT or header["kind"] not in get_args(Kind):
        raise ValueError(f"its header says {header}")
    kind: Kind = "low-rank" if header["kind"] == "low-rank" else "heads"
    scale, card = float(header["scale"]), json.loads(header["card"])
    digest = hashlib.sha256(content).hexdigest()
    adapter = Adapter(kind, header["base"], scale, tensors, card, digest)
    _check(adapter)
    if header.get(_SEAL, "") not in ("", content_digest(adapter)):
        raise ValueError("it was edited or damaged after it was written")
    return adapter


def _check(adapter: Adapter) -> None:
    """Refuse what would not fit together, or would make every vector NaN."""
    if not 0 <= adapter.scale <= 1:
        raise ValueError(f"its scale is {adapter.scale}; wanted 0 to 1")
    if not all(map(_is_finite, adapter.tensors.values())):
        raise ValueError("some of its weights are not finite")
    try:
        _check_heads(adapter) if adapter.kind == "heads" else _check_layers(adapter)
    except (KeyError, ValueError, IndexError) as error:
        raise ValueError(f"its weights do not fit together: {error}") from error


def _is_finite(tensor: NDArray[np.floating[Any]]) -> bool:
    with np.errstate(over="ignore"):  # What is too large for float32 becomes infinite.
        return bool(np.isfinite(tensor.astype(np.float32)).all())


def _check_heads(adapter: Adapter) -> None:
    dim = adapter.tensors["request.first.weight"].shape[-1]
    for side in get_args(Side):
        hidden = len(adapter.tensors[f"{side}.first.bias"])
        wanted = {
            "first.weight": (hidden, dim),
            "first.bias": (hidden,),
            "second.weight": (dim, hidden),
            "second.bias": (dim,),
        }
        for name, shape in wanted.items():
            found = adapter.tensors[f"{side}.{name}"].shape
            if found != shape:
                raise ValueError(f"{side}.{name} has shape {found}; wanted {shape}")


def _check_layers(adapter: Adapter) -> None:
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
