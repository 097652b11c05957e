"""Texts in -> checked unit vectors out, with a rest after a failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from langchain_core.embeddings import Embeddings

from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.index.embedding import MiniLMEmbeddings, unit_vectors
from langchain_toolrag.types import Vector

_BATCH = 64
_LAST_LATIN = "\u024f"
_FIRST_REST_SECONDS = 1.0
_LONGEST_REST_SECONDS = 60.0
_T = TypeVar("_T")


class Embedder:
    """An embedding model that is left alone for a while after it failed.

    The rest doubles with every failure in a row, so that a model that is down does not cost
    each agent step its time-out.

    Args:
        embeddings: The model.
        dim: Dimension of the vectors already indexed; None to take that of the first.

    Attributes:
        embeddings: The model.
        dim: Dimension of its vectors; None until the first.
    """

    def __init__(self, embeddings: Embeddings, dim: int | None = None) -> None:
        self.embeddings = embeddings
        self.dim = dim
        self._failure: EmbeddingError | None = None
        self._failures = 0
        self._rested_at = 0.0

    @property
    def ready(self) -> bool:
        """Whether the model is loaded; one that is not ours counts as loaded."""
        return not isinstance(self.embeddings, MiniLMEmbeddings) or self.embeddings.loaded

    @property
    def failure(self) -> str:
        """Why the model failed the last time; empty if it did not."""
        return str(self._failure) if self._failure else ""

    def knows(self, text: str) -> bool:
        """Return whether the model knows the script of a text; only of MiniLM is it known."""
        is_english = isinstance(self.embeddings, MiniLMEmbeddings) and self.embeddings.is_default
        letters = [char for char in text if char.isalpha()]
        latin = sum(char <= _LAST_LATIN for char in letters)
        return not is_english or 2 * latin >= len(letters)

    def documents(self, texts: Sequence[str]) -> dict[str, Vector]:
        """Embed texts, shortest first so that a batch wastes little on padding.

        Args:
            texts: Texts; repeats are embedded once.

        Returns:
            Unit vectors by text.

        Raises:
            EmbeddingError: If the model fails, rests, or gives vectors that cannot be used.
        """
        distinct = sorted(set(texts), key=lambda text: (len(text), text))
        vectors: dict[str, Vector] = {}
        for start in range(0, len(distinct), _BATCH):
            vectors.update(self._batch(distinct[start : start + _BATCH]))
        return vectors

    def query(self, text: str) -> Vector:
        """Embed one query.

        Args:
            text: The query.

        Returns:
            Its unit vector, of shape `(dim,)`; zero if the model's is zero or not finite.

        Raises:
            EmbeddingError: If the model fails, rests, or gives a vector that cannot be used.
        """
        self._raise_if_resting()
        try:
            raw = self.embeddings.embed_query(text)
        # A model may raise anything: it may be a server on the other side of the world.
        except Exception as error:
            raise self._failed(error) from error
        return self._worked(lambda: self._checked([raw], 1)[0])

    async def aquery(self, text: str) -> Vector:
        """Embed one query without blocking the event loop; otherwise as `query`."""
        self._raise_if_resting()
        try:
            raw = await self.embeddings.aembed_query(text)
        except Exception as error:
            raise self._failed(error) from error
        return self._worked(lambda: self._checked([raw], 1)[0])

    def _batch(self, batch: list[str]) -> dict[str, Vector]:
        self._raise_if_resting()
        try:
            raw = self.embeddings.embed_documents(batch)
        except Exception as error:
            raise self._failed(error) from error
        unit = self._worked(lambda: self._checked(raw, len(batch)))
        return dict(zip(batch, unit, strict=True))

    def _checked(self, raw: Sequence[Any], count: int) -> Any:
        vectors = unit_vectors(raw, count, self.dim)
        self.dim = vectors.shape[1]
        return vectors

    def _worked(self, check: Callable[[], _T]) -> _T:
        try:
            checked = check()
        except EmbeddingError as error:
            raise self._failed(error) from error
        self._failure, self._failures = None, 0
        return checked

    def _failed(self, error: Exception) -> EmbeddingError:
        if time.monotonic() >= self._rested_at:  # Threads that fail together count once.
            self._failures += 1
        rest = min(_FIRST_REST_SECONDS * 2 ** (self._failures - 1), _LONGEST_REST_SECONDS)
        self._rested_at = time.monotonic() + rest
        known = isinstance(error, EmbeddingError)
        text = (
            str(error) if known else f"the embedding model failed: {type(error).__name__}: {error}"
        )
        self._failure = EmbeddingError(text)
        return self._failure

    def _raise_if_resting(self) -> None:
        if self._failure is not None and time.monotonic() < self._rested_at:
            raise EmbeddingError(str(self._failure))
