"""Embedding model in -> the name of its vectors, and where they are kept, out."""

from __future__ import annotations

import logging
from pathlib import Path

from langchain_core.embeddings import Embeddings

from langchain_toolrag.catalogue.sources.store import ToolStore
from langchain_toolrag.index.embedding import MiniLMEmbeddings, model_name
from langchain_toolrag.index.weights import base_identity
from langchain_toolrag.vectors.cache import KnownVectors, VectorCache

logger = logging.getLogger(__name__)


def vector_space(embeddings: Embeddings) -> str | None:
    """Return what tells the vectors of one model from all others', from process to process.

    The weights of a model that is loaded here count, not its name. None for a model that does not
    say which one it is.
    """
    if isinstance(embeddings, MiniLMEmbeddings):
        adapter = embeddings.adapter.digest if embeddings.adapter else "none"
        # An fp32 export and sentence-transformers make the same vectors.
        return f"{base_identity(embeddings.model)}, adapter {adapter}, {embeddings.precision}"
    name = model_name(embeddings)
    return None if name == type(embeddings).__name__ else name


def vectors_in(store: ToolStore, model: Embeddings) -> KnownVectors | None:
    """Return where a store of ingested tools keeps one model's vectors.

    Args:
        store: The store.
        model: The model.

    Returns:
        The vectors; None, with a warning, for a model that does not say which one it is.
    """
    space = space_or_warning(model, f"they are not kept in {store.name}")
    return None if space is None else store.vectors(space)


def cache_in(directory: str | Path, model: Embeddings) -> VectorCache | None:
    """Return the cache in a folder of one model's vectors.

    Args:
        directory: The folder; made when the first vector is kept.
        model: The model.

    Returns:
        The cache; None, with a warning, for a model that does not say which one it is.
    """
    space = space_or_warning(model, f"they are not kept in {directory}")
    return None if space is None else VectorCache(Path(directory), space)


def space_or_warning(model: Embeddings, therefore: str) -> str | None:
    """Return what names a model's vectors, or warn that nothing does.

    Args:
        model: The model.
        therefore: What follows from that, for the warning.

    Returns:
        As `vector_space`.
    """
    space = vector_space(model)
    if space is None:
        logger.warning(
            "a %s has no attribute `model` or `model_name` to tell its vectors from another "
            "model's by: %s",
            type(model).__name__,
            therefore,
        )
    return space
