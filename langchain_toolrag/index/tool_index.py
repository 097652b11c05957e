"""The local index: dense, lexical and keyword search over one set of tool documents."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from langchain_core.embeddings import Embeddings
from typing_extensions import Self

from langchain_toolrag.errors import EmbeddingError, StillLoadingError
from langchain_toolrag.fork import reset_after_fork
from langchain_toolrag.index.contract import CANDIDATES, Progress
from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.embedding import as_embeddings, model_name
from langchain_toolrag.index.headed import HeadedSnapshots
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.index.keyword import KeywordQuery, parse_query
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.probes import PROBES
from langchain_toolrag.index.rows import tool_rows
from langchain_toolrag.index.snapshot import Snapshot
from langchain_toolrag.types import (
    Changes,
    Evidence,
    ToolDocument,
    ToolFilter,
    ToolId,
    Vector,
    Vectors,
)
from langchain_toolrag.vectors.cache import KnownVectors

logger = logging.getLogger(__name__)

_CHUNK = 100  # At least so many tools' vectors are made, and stored, at once.
_MOST_CHUNKS = 20  # Storing copies the index: a large catalogue takes larger chunks.


class ToolIndex:
    """An index in memory, safe under threads: a search sees one state, never a mix of two.

    Documents are searchable by words at once; their vectors are made at the first search that
    needs them, or by `embed`.

    Args:
        embeddings: Any LangChain model, a name or folder, or None for MiniLM.
        options: Which texts are indexed, and how.
        snapshot: A state to start from; its rows must be of the same model and options.
        cache: Vectors the model made before, see `vector_space.cache_in`; None for none.
        keep_requests: Whether it is given those of requests too, not of tools alone.
        background: Whether the model is loaded, and tools are embedded, by a thread of its own,
            from the first search on that needs them; until it is done, such a search raises a
            StillLoadingError rather than wait.
    """

    def __init__(
        self,
        embeddings: Embeddings | str | None = None,
        *,
        options: IndexOptions | None = None,
        snapshot: Snapshot | None = None,
        cache: KnownVectors | None = None,
        keep_requests: bool = False,
        background: bool = False,
    ) -> None:
        self._snapshot = snapshot or Snapshot(options or IndexOptions())
        dense = self._snapshot.dense
        self.embedder = Embedder(
            as_embeddings(embeddings),
            dense.dim if dense else None,
            cache=cache,
            keep_requests=keep_requests,
        )
        self._headed = HeadedSnapshots()
        self._in_background = background
        self._loader: threading.Thread | None = None
        self._new_locks()
        reset_after_fork(self)

    @property
    def snapshot(self) -> Snapshot:
        """The state as it is now; it does not change any more."""
        return self._snapshot

    @property
    def options(self) -> IndexOptions:
        """What the index is made of."""
        return self._snapshot.options

    @property
    def model(self) -> str:
        """The name of the model it embeds with, as `embedding.model_name` gives it."""
        return model_name(self.embedder.embeddings)

    @property
    def version(self) -> int:
        """A number that grows with every change of the documents."""
        return self._snapshot.version

    @property
    def documents(self) -> tuple[ToolDocument, ...]:
        """The documents, in the order they came."""
        return tuple(self._snapshot.documents.values())

    @property
    def size(self) -> int:
        """How many documents it holds."""
        return len(self._snapshot.documents)

    @property
    def local(self) -> Self:
        """This index: it is in memory."""
        return self

    @property
    def ready(self) -> bool:
        """Whether the embedding model is loaded; a model that is not ours counts as loaded."""
        return self.embedder.ready

    @property
    def indexed(self) -> bool:
        """Whether there are documents and every one has its vector."""
        snapshot = self._snapshot
        return bool(snapshot.documents) and not snapshot.pending

    @property
    def failure(self) -> str:
        """Why embedding failed the last time; empty if it did not."""
        return self.embedder.failure

    def documents_of(self, ids: Iterable[ToolId]) -> Mapping[ToolId, ToolDocument]:
        """Return the documents of some tools.

        Args:
            ids: Which ones.

        Returns:
            The documents by id; of ids that are not there, none.
        """
        known = self._snapshot.documents
        return {identity: known[identity] for identity in ids if identity in known}

    def add(self, documents: Sequence[ToolDocument]) -> Changes:
        """Add documents; one whose id is known replaces the old one.

        Args:
            documents: Documents to add; of two with one id the last counts.

        Returns:
            What changed; nothing is removed.
        """
        with self._writing:
            known = dict(self._snapshot.documents)
            known.update((document.id, document) for document in documents)
            self._snapshot, changes = self._snapshot.with_documents(known)
        return changes

    def remove(self, ids: Iterable[ToolId]) -> Changes:
        """Take documents out; unknown ids are no matter.

        Args:
            ids: Ids of the documents to take out.

        Returns:
            What changed.
        """
        leaving = set(ids)
        with self._writing:
            known = self._snapshot.documents
            staying = {identity: doc for identity, doc in known.items() if identity not in leaving}
            self._snapshot, changes = self._snapshot.with_documents(staying)
        return changes

    def refresh(self, documents: Sequence[ToolDocument]) -> Changes:
        """Make the index hold exactly these documents.

        A document whose content is unchanged keeps its vector.

        Args:
            documents: All documents it is to hold; none empties the index.

        Returns:
            What changed.
        """
        with self._writing:
            wanted = {document.id: document for document in documents}
            self._snapshot, changes = self._snapshot.with_documents(wanted)
        return changes

    def embed(self, progress: Progress | None = None) -> None:
        """Make the vectors that are missing; one thread does it, others wait for it.

        What is made is kept, chunk by chunk, should the model fail on the way.

        Args:
            progress: Called after every chunk, with how many tools are done and how many were
                to be.

        Raises:
            EmbeddingError: If the model cannot be loaded or its vectors cannot be used.
        """
        if not self._snapshot.pending:
            return
        with self._embedding, self.embedder.claim():
            pending = self._snapshot.pending
            size = max(_CHUNK, len(pending) // _MOST_CHUNKS)
            for start in range(0, len(pending), size):
                chunk = pending[start : start + size]
                self._store(chunk, tool_rows(chunk, self.embedder, self.options), self._probes())
                if progress:
                    progress(min(start + size, len(pending)), len(pending))

    def evidence(
        self,
        query: str,
        candidate_k: int = CANDIDATES,
        filter: ToolFilter | None = None,
        *,
        dense: bool = True,
        along: Sequence[str] = (),
        heads: Heads | None = None,
    ) -> Evidence:
        """Return what speaks for the best tools of every source.

        Args:
            query: A request; `select:A,B` and `+word` are understood.
            candidate_k: How many tools each source puts forward.
            filter: Which tools may be returned; applied before the best are taken.
            dense: Whether to embed the query.
            along: Queries that will be asked too; they may be embedded in one run with this one.
            heads: What moves the vectors of requests and tools; None for the model's own.

        Returns:
            Evidence for at most three times `candidate_k` tools and every exactly named one.

        Raises:
            EmbeddingError: If `dense` and embedding fails. After a failure the model is left
                alone for a while, 1 second at first and up to a minute.
            AdapterError: If `dense` and the heads move the vectors of another model.
        """
        parsed = parse_query(query)
        vector = None
        if dense and self._snapshot.documents:
            self._refuse_to_wait()
            self.embed()
            vector = self.embedder.query(parsed.text, _texts(along))
        return self._answer(parsed, vector, candidate_k, filter, heads)

    async def aevidence(
        self,
        query: str,
        candidate_k: int = CANDIDATES,
        filter: ToolFilter | None = None,
        *,
        dense: bool = True,
        along: Sequence[str] = (),
        heads: Heads | None = None,
    ) -> Evidence:
        """Return the same as `evidence`, without blocking the event loop.

        Args:
            query: A request; `select:A,B` and `+word` are understood.
            candidate_k: How many tools each source puts forward.
            filter: Which tools may be returned.
            dense: Whether to embed the query.
            along: Queries that will be asked too; they may be embedded in one run with this one.
            heads: What moves the vectors of requests and tools; None for the model's own.

        Returns:
            Evidence, as `evidence` returns it.

        Raises:
            EmbeddingError: If `dense` and embedding fails.
            AdapterError: If `dense` and the heads move the vectors of another model.
        """
        parsed = parse_query(query)
        vector = None
        if dense and self._snapshot.documents:
            self._refuse_to_wait()
            if self._snapshot.pending:
                await asyncio.to_thread(self.embed)
            vector = await self.embedder.aquery(parsed.text, _texts(along))
            if heads and not self._headed.is_ready(heads, self._snapshot):
                await asyncio.to_thread(self.prepare, heads)
        return self._answer(parsed, vector, candidate_k, filter, heads)

    def request_vector(self, query: str) -> Vector | None:
        """Return the model's own vector of a query that was asked lately, not moved by any heads.

        Args:
            query: The query, as it was given to `evidence`.

        Returns:
            Its unit vector, shape `(dim,)`; None if it is not at hand, for nothing is embedded.
        """
        return self.embedder.known_request(parse_query(query).text)

    def prepare(self, heads: Heads) -> None:
        """Move all rows now, so that the first search with these heads need not.

        Searches go on meanwhile; those by the same heads wait.

        Args:
            heads: The heads. What was moved is kept for the three that were used last.

        Raises:
            AdapterError: If they move the vectors of another model.
        """
        self._moved(heads)

    def after_fork(self) -> None:
        """Forget locks that a thread of the parent process may hold for ever."""
        self._headed.after_fork()
        self._new_locks()

    def _answer(
        self,
        query: KeywordQuery,
        vector: Vector | None,
        candidate_k: int,
        filter: ToolFilter | None,
        heads: Heads | None,
    ) -> Evidence:
        if heads is None or vector is None:
            snapshot = self._snapshot
        else:
            snapshot, vector = self._moved(heads), heads.request(vector)
        found = snapshot.evidence(query, vector, candidate_k, filter)
        return replace(found, script_known=self.embedder.knows(query.text))

    def _moved(self, heads: Heads) -> Snapshot:
        heads.refuse_unless_of(self.model, heads.digest)
        return self._headed.of(heads, lambda: self._snapshot)

    def _probes(self) -> Vectors:
        """Return the vectors of the probes, embedded once for each model."""
        known = self._snapshot.probes
        if known is not None:
            return known
        return self.embedder.probes(PROBES)

    def _store(self, documents: Sequence[ToolDocument], rows: Vectors, probes: Vectors) -> None:
        """Add rows to the state as it is now: documents may have changed while they were made."""
        with self._writing:
            known = self._snapshot.documents
            current = [row for row, doc in enumerate(documents) if known.get(doc.id) == doc]
            ids = [documents[row].id for row in current]
            self._snapshot = self._snapshot.with_rows(ids, rows[current], probes)

    def _refuse_to_wait(self) -> None:
        """In the background, have a thread make ready what is not, and raise meanwhile."""
        if not self._in_background or (self.ready and self.indexed):
            return
        self.embedder.raise_if_resting()
        pending = len(self._snapshot.pending)
        with self._starting:
            if self._loader is None or not self._loader.is_alive():
                self._loader = threading.Thread(target=self._load, name="toolrag", daemon=True)
                self._loader.start()
        raise StillLoadingError(pending)

    def _load(self) -> None:
        try:
            self.embedder.load()
            self.embed()
        except EmbeddingError as error:
            logger.warning("words and names answer alone for now: %s", error)

    def _new_locks(self) -> None:
        self._loader = None
        self._starting = threading.Lock()
        self._writing = threading.Lock()
        self._embedding = threading.Lock()


def _texts(queries: Sequence[str]) -> list[str]:
    """Return what is embedded of queries."""
    return [parse_query(query).text for query in queries]
