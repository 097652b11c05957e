"""A model that is not loaded, and tools without vectors, in -> both made ready by a thread out."""

from __future__ import annotations

import logging
import threading

from langchain_toolrag.errors import ToolRAGError
from langchain_toolrag.fork import reset_after_fork
from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.postgres.tool_vectors import ToolVectors

logger = logging.getLogger(__name__)


class Loading:
    """Makes ready in the background what a search by meaning needs; safe under threads and forks.

    Args:
        embedder: What embeds.
        vectors: The tools' vectors.
    """

    def __init__(self, embedder: Embedder, vectors: ToolVectors) -> None:
        self._embedder = embedder
        self._vectors = vectors
        self._thread: threading.Thread | None = None
        self.after_fork()
        reset_after_fork(self)

    def start(self) -> None:
        """Start, unless it has started and is not done."""
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._load, name="toolrag", daemon=True)
                self._thread.start()

    def after_fork(self) -> None:
        """Forget a thread that only the parent has."""
        self._starting = threading.Lock()
        self._thread = None

    def _load(self) -> None:
        try:
            self._embedder.load()
            if self._vectors.may_be_made:
                self._vectors.make()
        except ToolRAGError as error:
            logger.warning("words and names answer alone for now: %s", error)
