"""A search in the database in -> the reading half of an index out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from langchain_toolrag.errors import AdapterError
from langchain_toolrag.index.contract import CANDIDATES, Progress
from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.embedding import model_name
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.index.keyword import parse_query
from langchain_toolrag.postgres.remote import RemoteSearch
from langchain_toolrag.postgres.tool_store import Stand, ToolTable
from langchain_toolrag.types import Evidence, ToolDocument, ToolFilter, ToolId, Vector


class RemoteIndex:
    """What searches need of an index, each answered by the database; safe under threads.

    Args:
        table: The tools.
        search: The search.
        embedder: What requests are embedded by.
    """

    def __init__(self, table: ToolTable, search: RemoteSearch, embedder: Embedder) -> None:
        self._table = table
        self._search = search
        self._embedder = embedder
        self._stand = Stand()
        self.catch_up()
        self._read: tuple[Stand, tuple[ToolDocument, ...]] = (Stand(), ())

    @property
    def model(self) -> str:
        """The name of the model it embeds with, as `embedding.model_name` gives it."""
        return model_name(self._embedder.embeddings)

    @property
    def version(self) -> int:
        """The catalogue's version when it was searched or changed here last."""
        return self._search.version

    @property
    def documents(self) -> tuple[ToolDocument, ...]:
        """All documents, read from the database when they have changed: for small catalogues."""
        stand, documents = self._read
        if self._table.stand() != stand:
            whole = self._table.since(Stand())
            documents = tuple(placed.document for placed in whole.written.values())
            self._read = (whole.stand, documents)
        return documents

    def documents_of(self, ids: Iterable[ToolId]) -> Mapping[ToolId, ToolDocument]:
        """Return the documents of some tools; see `ToolTable.documents_of`."""
        return self._table.documents_of(ids)

    @property
    def size(self) -> int:
        """How many documents there were when it was searched or changed here last."""
        return self._search.size

    @property
    def ready(self) -> bool:
        """Whether the embedding model is loaded; a model that is not ours counts as loaded."""
        return self._embedder.ready

    @property
    def indexed(self) -> bool:
        """Whether there are documents and every one has its vectors."""
        return self._search.vectors.complete

    @property
    def failure(self) -> str:
        """Why embedding failed the last time; empty if it did not."""
        return self._embedder.failure

    def catch_up(self) -> bool:
        """Note the version that is there now.

        Returns:
            Whether it is another one.

        Raises:
            DatabaseError: If it cannot be asked.
        """
        before, self._stand = self._stand, self._table.stand()
        self._search.learn(self._stand.version, self._table.count())
        return before != self._stand

    def embed(self, progress: Progress | None = None) -> None:
        """Make the vectors that are missing, unless another process makes them already.

        Args:
            progress: Called after every chunk, with how many tools are done and how many were
                to be.

        Raises:
            DatabaseError: If they cannot be stored.
            EmbeddingError: If the model cannot be loaded or its vectors cannot be used.
        """
        self._search.vectors.make(progress)

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
        """Return what speaks for the best tools of every source; see `RemoteSearch.evidence`.

        Args:
            query: A request; `select:A,B` and `+word` are understood.
            candidate_k: How many tools each source puts forward.
            filter: Which tools may be returned.
            dense: Whether to embed the query.
            along: Queries that will be asked too.
            heads: None, or `dense` is not asked for.

        Returns:
            The evidence.

        Raises:
            AdapterError: If `dense` and there are heads.
            DatabaseError: If the database cannot be asked.
            EmbeddingError: If `dense` and embedding fails.
        """
        _refuse(heads if dense else None)
        return self._search.evidence(query, candidate_k, filter, dense=dense, along=along)

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
            along: Queries that will be asked too.
            heads: None, or `dense` is not asked for.

        Returns:
            The evidence.

        Raises:
            AdapterError: If `dense` and there are heads.
            DatabaseError: If the database cannot be asked.
            EmbeddingError: If `dense` and embedding fails.
        """
        _refuse(heads if dense else None)
        return await self._search.aevidence(query, candidate_k, filter, dense=dense, along=along)

    def request_vector(self, query: str) -> Vector | None:
        """Return the model's own vector of a query that was asked lately.

        Args:
            query: The query, as it was given to `evidence`.

        Returns:
            Its unit vector, shape `(dim,)`; None if it is not at hand, for nothing is embedded.
        """
        return self._embedder.known_request(parse_query(query).text)

    def prepare(self, heads: Heads) -> None:
        """Refuse heads.

        Args:
            heads: The heads.

        Raises:
            AdapterError: Always: the database holds the model's own vectors.
        """
        _refuse(heads)


def _refuse(heads: Heads | None) -> None:
    if heads is not None:
        raise AdapterError(
            heads.digest,
            "moves the vectors of tools, and a search in the database reads those the model made: "
            "use mode='replica', or no heads",
        )
