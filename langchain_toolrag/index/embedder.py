"""Texts in -> checked unit vectors out, with a rest after a failure."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import numpy as np
from langchain_core.embeddings import Embeddings

from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.index.embedding import (
    MiniLMEmbeddings,
    WritesRequests,
    model_name,
    unit_vectors,
)
from langchain_toolrag.types import Vector, Vectors
from langchain_toolrag.vectors.cache import KnownVectors, VectorMemory, text_key

logger = logging.getLogger(__name__)

_BATCH = 64
_RECENT = 256  # Requests: the steps of a turn, the turns of a few conversations.
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
        cache: Vectors of texts that were embedded before; None for none.
        keep_requests: Whether the cache is given the vectors of requests too, not of tools alone.

    Attributes:
        embeddings: The model.
        dim: Dimension of its vectors; None until the first.
    """

    def __init__(
        self,
        embeddings: Embeddings,
        dim: int | None = None,
        *,
        cache: KnownVectors | None = None,
        keep_requests: bool = False,
    ) -> None:
        self.embeddings = embeddings
        self.dim = dim
        self._cache = cache
        self._keeps_requests = keep_requests
        self._recent = VectorMemory(_RECENT)
        self._failure: EmbeddingError | None = None
        self._failures = 0
        self._rested_at = 0.0

    @property
    def ready(self) -> bool:
        """Whether the model is loaded; one that is not ours counts as loaded."""
        model = self.embeddings
        return not isinstance(model, MiniLMEmbeddings) or model.loaded

    @property
    def failure(self) -> str:
        """Why the model failed the last time; empty if it did not."""
        return str(self._failure) if self._failure else ""

    def load(self) -> None:
        """Load the model now rather than at the first text.

        Raises:
            EmbeddingError: If it cannot be loaded, or rests after it could not be.
        """
        model = self.embeddings
        if isinstance(model, MiniLMEmbeddings) and not model.loaded:
            self.raise_if_resting()
            try:
                model.load()
            except Exception as error:
                raise self._failed(error) from error

    def claim(self) -> AbstractContextManager[None]:
        """Return a block in which of all that share the cache one embeds what is missing there."""
        return nullcontext() if self._cache is None else self._cache.claim()

    def knows(self, text: str) -> bool:
        """Return whether the model knows the script of a text; only of MiniLM is it known."""
        model = self.embeddings
        is_english = isinstance(model, MiniLMEmbeddings) and model.is_default
        if not is_english or text.isascii():
            return True
        letters = [char for char in text if char.isalpha()]
        latin = sum(char <= _LAST_LATIN for char in letters)
        return 2 * latin >= len(letters)

    def documents(self, texts: Sequence[str]) -> dict[str, Vector]:
        """Embed texts, shortest first so that a batch wastes little on padding.

        Args:
            texts: Texts; repeats are embedded once.

        Returns:
            Unit vectors by text.

        Raises:
            EmbeddingError: If the model fails, rests, or gives vectors that cannot be used.
        """
        keys = {text: text_key(text) for text in texts}
        vectors = self._cached(keys)
        missing = sorted(keys.keys() - vectors.keys(), key=lambda text: (len(text), text))
        for start in range(0, len(missing), _BATCH):
            made = self._batch(missing[start : start + _BATCH])
            self._keep({keys[text]: vector for text, vector in made.items()})
            vectors.update(made)
        return vectors

    def requests(self, texts: Sequence[str]) -> None:
        """Embed requests ahead of their search, in batches where that is the same to the model.

        Args:
            texts: Requests; nothing is done where they are not kept.

        Raises:
            EmbeddingError: As in `documents`.
        """
        if not self._keeps_requests:
            return
        written = [self._written(text) for text in texts]
        if None not in written:
            self.documents([text for text in written if text is not None])
        else:
            for text in texts:
                self.query(text)

    def probes(self, texts: Sequence[str]) -> Vectors:
        """Embed texts that stand for requests, in batches, and keep them as those of tools are.

        Args:
            texts: The texts; none of a user's.

        Returns:
            Unit vectors, shape `(len(texts), dim)`, in the order of the texts.

        Raises:
            EmbeddingError: As in `documents`.
        """
        written = [self._written(text) or text for text in texts]
        vectors = self.documents(written)
        return np.stack([vectors[text] for text in written])

    def known_request(self, text: str) -> Vector | None:
        """Return the vector of a query that was embedded lately, without embedding anything.

        Args:
            text: The query.

        Returns:
            Its unit vector, of shape `(dim,)`; None if it is not at hand.
        """
        key = self._request_key(text)
        recent = self._recent.get([key]).get(key)
        if recent is not None or not self._keeps_requests:
            return recent
        return self._cached({text: key}).get(text)

    def query(self, text: str, along: Sequence[str] = ()) -> Vector:
        """Embed one query.

        Args:
            text: The query.
            along: Queries that will be asked too. A model whose requests can be written as tools
                embeds those it has not seen lately in the same run, which takes less time.

        Returns:
            Its unit vector, of shape `(dim,)`; zero if the model's is zero or not finite.

        Raises:
            EmbeddingError: If the model fails, rests, or gives a vector that cannot be used.
        """
        known = self.known_request(text)
        if known is not None:
            return known
        self.raise_if_resting()
        texts = self._together(text, along)
        model = self.embeddings
        try:
            raw = (
                [model.embed_query(_encodable(text))]
                if len(texts) == 1
                else model.embed_documents(self._as_tools(texts))
            )
        # A model may raise anything: it may be a server on the other side of the world.
        except Exception as error:
            raise self._failed(error) from error
        return self._made(texts, raw)

    async def aquery(self, text: str, along: Sequence[str] = ()) -> Vector:
        """Embed one query without blocking the event loop; otherwise as `query`."""
        known = self.known_request(text)
        if known is not None:
            return known
        self.raise_if_resting()
        texts = self._together(text, along)
        model = self.embeddings
        try:
            raw = (
                [await model.aembed_query(_encodable(text))]
                if len(texts) == 1
                else await model.aembed_documents(self._as_tools(texts))
            )
        except Exception as error:
            raise self._failed(error) from error
        return self._made(texts, raw)

    def _written(self, text: str) -> str | None:
        """Return the text of a tool that has a request's vector; None where it is not known."""
        model = self.embeddings
        if isinstance(model, MiniLMEmbeddings):
            return text
        return model.request_text(text) if isinstance(model, WritesRequests) else None

    def _request_key(self, text: str) -> bytes:
        written = self._written(text)
        return text_key(f"request\0{text}" if written is None else written)

    def _together(self, text: str, along: Sequence[str]) -> list[str]:
        """Return the queries that are embedded in one run with a query, itself first."""
        if self._written(text) is None:
            return [text]
        unknown = (other for other in along if self.known_request(other) is None)
        return list(dict.fromkeys((text, *unknown)))

    def _as_tools(self, texts: Sequence[str]) -> list[str]:
        return [_encodable(self._written(text) or text) for text in texts]

    def _made(self, texts: Sequence[str], raw: Sequence[Any]) -> Vector:
        """Check the vectors of queries, keep them, and return the first."""
        vectors: Vectors = self._worked(lambda: self._checked(raw, len(texts)))
        keys = map(self._request_key, texts)
        usable = {key: vector for key, vector in zip(keys, vectors, strict=True) if vector.any()}
        self._recent.put(usable)
        if self._keeps_requests:
            self._keep(usable)
        first: Vector = vectors[0]
        return first

    def _cached(self, keys: Mapping[str, bytes]) -> dict[str, Vector]:
        if self._cache is None:
            return {}
        found = self._cache.get(list(keys.values()))
        for vector in found.values():
            self.dim = self.dim or len(vector)
        return {
            text: found[key]
            for text, key in keys.items()
            if key in found and len(found[key]) == self.dim
        }

    def _keep(self, vectors: Mapping[bytes, Vector]) -> None:
        """Keep vectors; not those that could not be used, which the next try may mend."""
        usable = {key: vector for key, vector in vectors.items() if vector.any()}
        if self._cache is None or not usable:
            return
        try:
            self._cache.put(usable)
        except ValueError as error:
            logger.warning("vectors of %s are not kept: %s", model_name(self.embeddings), error)
            self._cache = None

    def _batch(self, batch: list[str]) -> dict[str, Vector]:
        self.raise_if_resting()
        try:
            raw = self.embeddings.embed_documents([*map(_encodable, batch)])
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

    def raise_if_resting(self) -> None:
        """Raise the EmbeddingError of the last failure, if that was a short while ago."""
        if self._failure is not None and time.monotonic() < self._rested_at:
            raise EmbeddingError(str(self._failure))


def _encodable(text: str) -> str:
    """Return a text as UTF-8 can hold it: half a surrogate pair becomes a question mark.

    A server that refuses it would otherwise put the model to rest for everybody.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
