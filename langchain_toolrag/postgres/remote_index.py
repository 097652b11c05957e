"""A search in the database and its table in -> the reading half of an index out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from langchain_toolrag.index.contract import Progress
from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.embedding import model_name
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.index.keyword import parse_query
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.postgres.connection import Database
from langchain_toolrag.postgres.remote import RemoteSearch, refuse_heads
from langchain_toolrag.postgres.tool_store import Stand, ToolTable
from langchain_toolrag.types import ToolDocument, ToolId, Vector


class RemoteIndex(RemoteSearch):
    """What searches need of an index, each answered by the database; safe under threads.

    Args:
        table: The tools.
        database: As in `RemoteSearch`.
        embedder: As in `RemoteSearch`.
        options: As in `RemoteSearch`.
        background: As in `RemoteSearch`.
    """

    def __init__(
        self,
        table: ToolTable,
        database: Database,
        embedder: Embedder,
        options: IndexOptions,
        *,
        background: bool,
    ) -> None:
        super().__init__(database, embedder, options, background=background)
        self._table = table
        self._stand = Stand()
        self.catch_up()
        self._read: tuple[Stand, tuple[ToolDocument, ...]] = (Stand(), ())

    @property
    def model(self) -> str:
        """The name of the model it embeds with, as `embedding.model_name` gives it."""
        return model_name(self._embedder.embeddings)

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
    def ready(self) -> bool:
        """Whether the embedding model is loaded; a model that is not ours counts as loaded."""
        return self._embedder.ready

    @property
    def indexed(self) -> bool:
        """Whether there are documents and every one has its vectors."""
        return self.vectors.complete

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
        self.learn(self._stand.version, self._table.count())
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
        self.vectors.make(progress)

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
        refuse_heads(heads)
