"""Embedding model in -> unit vectors out.

Any LangChain `Embeddings` works. The default is all-MiniLM-L6-v2 [1], looked for in this
order: the weights package installed beside us, the local Hugging Face cache, the hub. See `encoder`
for how it is run.

References:
    [1] Wang et al. MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of
    Pre-Trained Transformers. NeurIPS 2020. https://doi.org/10.48550/arXiv.2002.10957
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from langchain_core.embeddings import Embeddings

from langchain_toolrag.errors import AdapterError, EmbeddingError
from langchain_toolrag.fork import reset_after_fork
from langchain_toolrag.index.adapter import PACKAGED, Adapter, read_adapter
from langchain_toolrag.index.encoder import Encoder, load_encoder
from langchain_toolrag.index.onnx_encoder import Precision
from langchain_toolrag.index.weights import DEFAULT_MODEL
from langchain_toolrag.types import Vector, Vectors

logger = logging.getLogger(__name__)

PACKAGED_ADAPTER = "packaged"
"""Stands for the adapter that comes with this package, trained on the default model."""

_SMALLEST_NORM = 1e-6
_NEARLY_UNIT = 1e-6


@runtime_checkable
class WritesRequests(Protocol):
    """A model that puts an instruction in front of a request and embeds it as any other text."""

    def request_text(self, text: str) -> str:
        """Return the text whose vector, as that of a tool, is the vector of a request."""


class MiniLMEmbeddings(Embeddings):
    """A sentence-transformers model, loaded at its first use; safe under threads.

    Args:
        model: A hub name or a folder. The default is found as this module's docstring says.
        adapter: A low-rank adapter that `toolrag finetune` wrote for this very model; by default
            the one of this package, which only the default model takes. None for none.
        precision: `int8` takes half the time and less memory; `export_onnx` says what it costs.
        exports: The folder where the model is kept as it is run, about 90 MB; None for
            `~/.cache/langchain-toolrag/models`.

    Attributes:
        model: The hub name or folder.
        adapter: The adapter that its weights are changed by, or None.
        precision: How its weights are held where it is exported.
        exports: The folder where it is kept as it is run.

    Raises:
        AdapterError: If the adapter cannot be read or is not a low-rank one.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        adapter: str | Path | None = PACKAGED_ADAPTER,
        precision: Precision = "fp32",
        exports: str | Path | None = None,
    ) -> None:
        self.model = model
        self.adapter = _adapter_for(model, adapter)
        self.precision: Precision = precision
        self.exports = exports_in(None) if exports is None else Path(exports)
        self._lock = threading.Lock()
        self._loaded: Encoder | None = None
        reset_after_fork(self)

    @property
    def is_default(self) -> bool:
        """Whether it is the default model, which knows English."""
        return self.model == DEFAULT_MODEL

    @property
    def loaded(self) -> bool:
        """Whether the model is in memory."""
        return self._loaded is not None

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one unit vector a text.

        Args:
            texts: Texts to embed; long ones are cut to what the model reads.

        Returns:
            The vectors, in the order of the texts.

        Raises:
            EmbeddingError: If the model cannot be loaded.
        """
        vectors: list[list[float]] = self._encode(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Return the unit vector of a text.

        Args:
            text: Text to embed; a long one is cut to what the model reads.

        Returns:
            Its vector, of length 1.

        Raises:
            EmbeddingError: If the model cannot be loaded.
        """
        vector: list[float] = self._encode([text])[0].tolist()
        return vector

    def load(self) -> None:
        """Load the model now rather than at the first text.

        Raises:
            EmbeddingError: If the model cannot be loaded.
        """
        self._encoder()

    def after_fork(self) -> None:
        """Forget a lock that a thread of the parent may hold."""
        self._lock = threading.Lock()

    def _encode(self, texts: list[str]) -> Vectors:
        return self._encoder().encode(texts)

    def _encoder(self) -> Encoder:
        with self._lock:
            if self._loaded is None:
                self._loaded = load_encoder(self.model, self.adapter, self.precision, self.exports)
            return self._loaded


class NoEmbeddings(Embeddings):
    """Stands for no model at all: tools are found by words and names alone."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Refuse.

        Args:
            texts: Not looked at.

        Returns:
            Nothing; it always raises.

        Raises:
            EmbeddingError: Always.
        """
        raise EmbeddingError("there is no embedding model, as asked")

    def embed_query(self, text: str) -> list[float]:
        """Refuse.

        Args:
            text: Not looked at.

        Returns:
            Nothing; it always raises.

        Raises:
            EmbeddingError: Always.
        """
        raise EmbeddingError("there is no embedding model, as asked")


def as_embeddings(
    embeddings: Embeddings | str | None,
    *,
    adapter: str | None = PACKAGED_ADAPTER,
    cache_dir: str | Path | None = None,
) -> Embeddings:
    """Return the model to embed with.

    Args:
        embeddings: A LangChain model, a hub name or folder, or None for the default.
        adapter: As in MiniLMEmbeddings, for a model that is loaded here.
        cache_dir: Where such a model is kept as it is run, in a folder of its own; None for the
            user's cache.

    Returns:
        The model; a named one is loaded at its first use.

    Raises:
        TypeError: If it is none of these.
    """
    if isinstance(embeddings, Embeddings):
        return embeddings
    if embeddings is None or isinstance(embeddings, str):
        name = DEFAULT_MODEL if embeddings is None else embeddings
        return MiniLMEmbeddings(name, adapter=adapter, exports=exports_in(cache_dir))
    raise TypeError(
        f"embeddings is a {type(embeddings).__name__}; give a langchain_core Embeddings, "
        "the name or folder of a sentence-transformers model, or None"
    )


def model_name(embeddings: Embeddings) -> str:
    """Return what tells one model's vectors from another's: class, model's name and adapter."""
    name = getattr(embeddings, "model_name", None) or getattr(embeddings, "model", None)
    kind = type(embeddings).__name__
    adapter = embeddings.adapter if isinstance(embeddings, MiniLMEmbeddings) else None
    adapted = f" + {adapter.digest[:12]}" if adapter else ""
    if isinstance(embeddings, MiniLMEmbeddings) and embeddings.precision != "fp32":
        adapted += f", {embeddings.precision}"
    return f"{kind}({name}{adapted})" if isinstance(name, str) else kind


def unit_vectors(raw: Sequence[Any], count: int, dim: int | None) -> Vectors:
    """Check a model's answer and scale it to unit length.

    Args:
        raw: What `embed_documents` returned: lists, arrays, floats or integers.
        count: How many vectors were asked for.
        dim: The dimension of the vectors already indexed; None for the first.

    Returns:
        The vectors, each of length 1; a vector that is zero or not finite becomes zero, so that
        it is close to nothing.

    Raises:
        EmbeddingError: If there are too few or too many, or their dimension is another.
    """
    try:
        with np.errstate(over="ignore"):  # What is too large for float32 becomes infinite.
            vectors = np.array([np.asarray(vector, np.float32) for vector in raw], np.float32)
    except (TypeError, ValueError) as error:
        raise EmbeddingError(
            f"the embedding model gave no vectors of one length: {error}"
        ) from error
    if len(vectors) != count:
        raise EmbeddingError(f"the embedding model gave {len(vectors)} vectors for {count} texts")
    if vectors.ndim != 2 or not vectors.shape[1] or (dim and vectors.shape[1] != dim):
        wanted = f"dimension {dim}" if dim else "one row of numbers a text"
        raise EmbeddingError(
            f"the embedding model gave vectors of shape {vectors.shape}, wanted {wanted}; "
            "has the model changed since the tools were indexed?"
        )
    return _normalised(vectors)


def _is_unit(vector: Vector) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return abs(float(vector @ vector) - 1) < _NEARLY_UNIT


def _normalised(vectors: Vectors) -> Vectors:
    if len(vectors) == 1 and _is_unit(vectors[0]):
        return vectors  # What follows would take as long as searching a thousand tools.
    finite = np.isfinite(vectors).all(axis=1, keepdims=True)
    safe = np.where(finite, vectors, 0.0)
    norms = np.linalg.norm(safe.astype(np.float64), axis=1, keepdims=True)  # float32 overflows.
    usable = norms > _SMALLEST_NORM
    if not usable.all():
        logger.warning("%d vectors are zero or not finite and match nothing", int((~usable).sum()))
    scaled: Vectors = np.where(usable, safe / np.where(usable, norms, 1.0), 0.0).astype(np.float32)
    return scaled


def exports_in(cache_dir: str | Path | None) -> Path:
    """Return the folder where models are kept as they are run; None for the user's cache."""
    cache = Path.home() / ".cache" / "langchain-toolrag" if cache_dir is None else Path(cache_dir)
    return cache / "models"


def _adapter_for(model: str, adapter: str | Path | None) -> Adapter | None:
    if adapter is None or (adapter == PACKAGED_ADAPTER and model != DEFAULT_MODEL):
        return None
    path = PACKAGED if adapter == PACKAGED_ADAPTER else Path(adapter)
    read = read_adapter(path)
    if read.kind != "low-rank":
        raise AdapterError(path, "holds residual heads: give it as ToolRAG(heads=...)")
    return read
