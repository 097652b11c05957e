"""Embedding model and residual heads in -> one embedding model out."""

from __future__ import annotations

from pathlib import Path

from langchain_core.embeddings import Embeddings

from langchain_toolrag.errors import AdapterError
from langchain_toolrag.index.adapter import Side, read_adapter
from langchain_toolrag.index.embedding import model_name, unit_vectors


class HeadedEmbeddings(Embeddings):
    """Any model whose vectors are moved by residual heads that were trained on it.

    Args:
        base: The model.
        heads: A file that `toolrag finetune --heads` wrote for this very model.

    Attributes:
        base: The model.
        heads: The heads.
        model: What tells it from others: the model's name and the heads' digest.

    Raises:
        AdapterError: If the file cannot be read, holds no heads, or those of another model.
    """

    def __init__(self, base: Embeddings, heads: str | Path) -> None:
        self.base = base
        self.heads = read_adapter(Path(heads))
        name = model_name(base)
        if self.heads.kind != "heads" or self.heads.base != name:
            raise AdapterError(
                Path(heads), f"{self.heads.kind} of {self.heads.base}; wanted heads of {name}"
            )
        self.model = f"{name} + {self.heads.digest[:12]}"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one unit vector a text of a tool.

        Args:
            texts: Texts to embed.

        Returns:
            The vectors, in the order of the texts.
        """
        return self._moved(self.base.embed_documents(texts), "tool")

    def embed_query(self, text: str) -> list[float]:
        """Return the unit vector of a request.

        Args:
            text: The request.

        Returns:
            Its vector, of length 1.
        """
        return self._moved([self.base.embed_query(text)], "request")[0]

    async def aembed_query(self, text: str) -> list[float]:
        """Return the same as `embed_query`, by the model's own asynchronous way."""
        return self._moved([await self.base.aembed_query(text)], "request")[0]

    def _moved(self, raw: list[list[float]], side: Side) -> list[list[float]]:
        if not raw:
            return []
        vectors = unit_vectors(raw, len(raw), None)
        moved: list[list[float]] = self.heads.apply(vectors, side).tolist()
        return moved
