"""Index in -> a directory on disk, and back.

`manifest.json` holds documents, options and the name of the vectors' file, which carries its
own SHA-256: the manifest is replaced last and at once, so that a directory is always a whole
index, the old or the new one, whenever the process dies.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from safetensors.numpy import load, save

from langchain_toolrag.atomic import write_whole
from langchain_toolrag.errors import SourceError, StaleIndexError
from langchain_toolrag.index.embedding import as_embeddings, model_name
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.snapshot import Snapshot
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.types import ToolDocument, Vectors

_FORMAT = 2
_MANIFEST = "manifest.json"
_TUPLES = ("words", "parameters", "values", "parameter_descriptions")


def save_index(index: ToolIndex, directory: Path) -> None:
    """Write an index into a directory, which is made where it is missing.

    Args:
        index: The index; documents without vectors are saved without.
        directory: Where to; an index that is there is replaced.
    """
    snapshot = index.snapshot
    directory.mkdir(parents=True, exist_ok=True)
    ids = list(snapshot.keys)
    dense = snapshot.dense
    rows = dense.rows(list(snapshot.keys.values())) if dense else np.zeros((0, 0), np.float32)
    probes = snapshot.probes if snapshot.probes is not None else rows[:0]
    packed = save({"rows": rows, "probes": probes})
    vectors = f"vectors-{hashlib.sha256(packed).hexdigest()}.safetensors"
    write_whole(directory / vectors, packed)
    manifest = {
        "format": _FORMAT,
        "model": model_name(index.embedder.embeddings),
        "version": snapshot.version,
        "options": snapshot.options.as_json(),
        "vectors": vectors,
        "embedded": ids,
        "documents": [_as_json(document) for document in snapshot.documents.values()],
    }
    write_whole(directory / _MANIFEST, json.dumps(manifest).encode())
    for stale in directory.glob("vectors-*.safetensors"):
        if stale.name != vectors:
            stale.unlink(missing_ok=True)


def load_index(directory: Path, embeddings: Embeddings | str | None = None) -> ToolIndex:
    """Read an index that `save_index` wrote.

    Args:
        directory: Where it is.
        embeddings: The model it was made with.

    Returns:
        The index; nothing is embedded.

    Raises:
        SourceError: If the directory holds no index or a damaged one.
        StaleIndexError: If it was made by another model or another version of this package.
    """
    manifest = _manifest(directory)
    model = as_embeddings(embeddings)
    if manifest.get("format") != _FORMAT:
        raise StaleIndexError("format", manifest.get("format"), _FORMAT)
    if manifest.get("model") != model_name(model):
        raise StaleIndexError("vectors of the model", manifest.get("model"), model_name(model))
    try:
        snapshot = _snapshot(manifest, directory)
    except (KeyError, TypeError, ValueError, OSError) as error:
        problem = f"the saved index is damaged ({error!r}); save it again"
        raise SourceError(str(directory), problem) from error
    return ToolIndex(model, snapshot=snapshot)


def _snapshot(manifest: Mapping[str, Any], directory: Path) -> Snapshot:
    documents = {read.id: read for read in map(_from_json, manifest["documents"])}
    ids = list(manifest["embedded"])
    vectors = _vectors(directory / manifest["vectors"])
    rows, probes = vectors["rows"], vectors["probes"]
    if len(ids) != len(rows) or not set(ids) <= set(documents):
        raise ValueError(f"{len(ids)} embedded ids for {len(rows)} vectors")
    empty = Snapshot(IndexOptions(**manifest["options"]))
    snapshot, _ = empty.with_documents(documents)
    if len(rows):
        snapshot = snapshot.with_rows(ids, rows, probes)
    return replace(snapshot, version=int(manifest["version"]))


def _manifest(directory: Path) -> dict[str, Any]:
    path = directory / _MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except OSError as error:
        raise SourceError(str(directory), f"no {_MANIFEST}: this is not a saved index") from error
    except ValueError as error:
        raise SourceError(str(path), f"not JSON ({error}); save the index again") from error
    if not isinstance(manifest, dict):
        raise SourceError(str(path), "not a JSON object; save the index again")
    return manifest


def _vectors(path: Path) -> dict[str, Vectors]:
    packed = path.read_bytes()
    if hashlib.sha256(packed).hexdigest() not in path.name:
        raise ValueError("the vectors are not those that were saved")
    vectors: dict[str, Vectors] = load(packed)
    return vectors


def _as_json(document: ToolDocument) -> dict[str, Any]:
    return {**asdict(document), "tags": sorted(document.tags)}


def _from_json(values: Mapping[str, Any]) -> ToolDocument:
    lists = {key: tuple(values[key]) for key in _TUPLES}
    return ToolDocument(**{**values, **lists, "tags": frozenset(values["tags"])})
