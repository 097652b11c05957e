"""A tenant's catalogue in the database in -> a copy in memory that is searched, out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter, eq

import numpy as np
from langchain_core.embeddings import Embeddings

from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.snapshot import Snapshot
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.postgres.edits import Placed
from langchain_toolrag.postgres.known_vectors import PostgresVectors
from langchain_toolrag.postgres.tool_store import News, Stand, ToolTable
from langchain_toolrag.types import ToolDocument, ToolId

logger = logging.getLogger(__name__)


class Replica(ToolIndex):
    """A local index that holds what a table holds, under the table's version.

    Args:
        table: The table.
        embeddings: The model.
        options: Which texts are indexed, and how.
        vectors: The vectors that all processes share; None where the model has no name for its own.
        background: Whether the model is loaded, and tools are embedded, by a thread of its own.
    """

    def __init__(
        self,
        table: ToolTable,
        embeddings: Embeddings,
        *,
        options: IndexOptions | None,
        vectors: PostgresVectors | None,
        background: bool,
    ) -> None:
        self._table = table
        self._stand = Stand()
        self._placed: dict[str, Placed] = {}
        super().__init__(embeddings, options=options, cache=vectors, background=background)

    def catch_up(self) -> bool:
        """Take over what has changed in the table.

        Returns:
            Whether anything had.

        Raises:
            DatabaseError: If it cannot be asked; the copy stays as it is.
        """
        with self._following:
            news = self._table.since(self._stand)
            if news.stand == self._stand:
                return False
            self._take(news)
            return True

    def _take(self, news: News) -> None:
        known = {} if news.whole else dict(self._placed)
        for identity in news.removed:
            known.pop(identity, None)
        known.update(self._same_objects(news.written))
        ordered = sorted(known.values(), key=attrgetter("place"))
        documents = {entry.document.id: entry.document for entry in ordered}
        with self._writing:
            following, changes = self._snapshot.with_documents(documents)
            ordered_alike = _in_order(following, documents)
            self._snapshot = replace(ordered_alike, version=news.stand.version)
        self._placed, self._stand = known, news.stand
        logger.debug("version %d of the catalogue: %s", news.stand.version, changes)

    def _same_objects(self, written: Mapping[str, Placed]) -> Mapping[str, Placed]:
        """Return what was written, with the objects that are known: they are compared faster."""
        known = self._placed
        return {
            identity: known[identity] if known.get(identity) == entry else entry
            for identity, entry in written.items()
        }

    def _new_locks(self) -> None:
        super()._new_locks()
        self._following = threading.Lock()


def _in_order(snapshot: Snapshot, documents: Mapping[ToolId, ToolDocument]) -> Snapshot:
    """Return a snapshot whose documents stand in the order of the table, where they do not.

    Of equal scores the first documents' count: every copy has to have them in one order, by
    whichever steps it came there.
    """
    if all(map(eq, snapshot.documents, documents)):
        return snapshot
    order = np.fromiter(map(snapshot.slots.__getitem__, documents), np.intp, len(documents))
    places = np.zeros(len(snapshot.ids), np.intp)
    places[order] = np.arange(len(order))
    return replace(snapshot, documents=dict(documents), order=order, places=places)
