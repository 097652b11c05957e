"""Texts in -> their vectors out, each made once."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from langchain_toolrag.index.embedding import PACKAGED_ADAPTER, MiniLMEmbeddings
from langchain_toolrag.types import Vector, Vectors


class EmbeddedOnce(MiniLMEmbeddings):
    """The default model with a memory of every text it was given.

    A kind of MiniLMEmbeddings, for the index asks whether its model is one.

    Args:
        adapter: As in MiniLMEmbeddings.
    """

    def __init__(self, *, adapter: str | Path | None = PACKAGED_ADAPTER) -> None:
        super().__init__(adapter=adapter)
        self._vectors: dict[str, Vector] = {}

    def _encode(self, texts: list[str]) -> Vectors:
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            self._vectors.update(zip(new, super()._encode(new), strict=True))
        return np.stack([self._vectors[text] for text in texts])
