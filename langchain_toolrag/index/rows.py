"""Tool documents in -> one row each, by which meaning finds them, out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

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
    views = [view_texts(document, options) for document in documents]
    texts, weights = zip(*chain.from_iterable(views), strict=True)
    vectors = embedder.documents(texts)
    weighted = np.array([vectors[text] for text in texts], np.float32)
    weighted *= np.array(weights, np.float32)[:, np.newaxis]
    counts = np.array([len(of_one) for of_one in views])
    first = np.cumsum(counts) - counts
    rows: Vectors = weighted[first]
    for place in range(1, counts.max()):
        longer = counts > place
        rows[longer] += weighted[first[longer] + place]
    return rows
