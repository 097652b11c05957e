"""Tool documents in -> one row each, by which meaning finds them, out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.texts import view_texts
from langchain_toolrag.types import ToolDocument, Vectors


def tool_rows(
    documents: Sequence[ToolDocument], embedder: Embedder, options: IndexOptions
) -> Vectors:
    """Embed documents.

    Args:
        documents: The documents; at least one.
        embedder: What makes the vectors.
        options: Which texts of a document count, and how much.

    Returns:
        Weighted sums of the vectors of their views, shape `(len(documents), dim)`.

    Raises:
        EmbeddingError: If embedding fails.
    """
    texts = [view_texts(document, options) for document in documents]
    vectors = embedder.documents([text for views in texts for text, _ in views])
    rows = [sum(weight * vectors[text] for text, weight in views) for views in texts]
    return np.array(rows, np.float32)
