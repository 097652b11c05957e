"""A DSN and a tenant in -> an index that many processes share out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, get_args

from langchain_core.embeddings import Embeddings
from typing_extensions import Self

from langchain_toolrag.errors import DatabaseError, EmbeddingError
from langchain_toolrag.index.contract import CANDIDATES, Progress
from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.embedding import as_embeddings, model_name
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.index.vector_space import space_or_warning
from langchain_toolrag.postgres.connection import Database
from langchain_toolrag.postgres.follower import Follower
from langchain_toolrag.postgres.known_vectors import PostgresVectors
from langchain_toolrag.postgres.remote_index import RemoteIndex
from langchain_toolrag.postgres.replica import Replica
from langchain_toolrag.postgres.tool_store import ToolTable
from langchain_toolrag.postgres.upgrade import refuse_old
from langchain_toolrag.types import Changes, Evidence, ToolDocument, ToolFilter, ToolId, Vector

logger = logging.getLogger(__name__)

Mode: TypeAlias = Literal["auto", "replica", "remote"]
"""`replica` searches a copy in memory, `remote` in the database; `auto` goes by the size."""

REPLICA_TOOLS = 50_000
"""Up to so many tools, when it is opened, `auto` keeps a copy."""


class PostgresIndex:
    """One tenant's tools in PostgreSQL, for many processes; safe under threads and forks.

    Every change is a transaction of the database and seen by all. As a `replica` it keeps a copy
    in memory: searches ask nobody, and go on while the database cannot be reached. The copy
    catches up when the database gives notice of a change, and every few seconds anyway. As `remote`
    it keeps nothing: every search is a query of the database.

    The tables are made by `toolrag db upgrade --database DSN`.

    Args:
        dsn: How it is reached: `postgresql://user@host/name`, or `key=value` pairs.
        tenant: Whose tools; empty for `default`.
        embeddings: Any LangChain model, a name or folder, or None for MiniLM. Its vectors are
            shared where it says by `model` or `model_name` which one it is.
        options: Which texts are indexed, and how.
        mode: `replica`, `remote`, or `auto`: a replica up to 50,000 tools.
        background: Whether the model is loaded, and tools are embedded, by a thread of its own, as
            for `ToolIndex`.
        refresh_seconds: After how long a replica looks for changes without a notice.
        pool_size: At most so many connections of this process, besides the one for notices.
        timeout: How long to wait for a connection, in seconds.

    Attributes:
        options: What the index is made of.
        mode: `replica` or `remote`.

    Raises:
        DatabaseError: If the database cannot be reached, or has not the tables that are needed.
        EmbeddingError: If it is remote, and the model does not say which one it is.
        ValueError: If the mode is none of these, or a number is not above 0.
    """

    def __init__(
        self,
        dsn: str,
        *,
        tenant: str = "",
        embeddings: Embeddings | str | None = None,
        options: IndexOptions | None = None,
        mode: Mode = "auto",
        background: bool = False,
        refresh_seconds: float = 5.0,
        pool_size: int = 4,
        timeout: float = 5.0,
    ) -> None:
        if mode not in get_args(Mode) or not refresh_seconds > 0:
            raise ValueError(
                f"mode is {mode!r} and refresh_seconds {refresh_seconds}; wanted 'auto', 'replica' "
                "or 'remote', and more than 0"
            )
        self.options = options or IndexOptions()
        self._database = Database(dsn, tenant, pool_size=pool_size, timeout=timeout)
        self._table = ToolTable(self._database)
        self._follower: Follower | None = None
        try:
            refuse_old(self._database)
            model = as_embeddings(embeddings)
            self._vectors = self._shared_vectors(model)
            self._reader = self._opened(mode, model, background)
        except BaseException:
            self._database.close()
            raise
        if isinstance(self._reader, Replica):
            self._follower = Follower(self._database, self._reader.catch_up, refresh_seconds)
            self._follower.ensure()

    @property
    def mode(self) -> Literal["replica", "remote"]:
        """`replica` or `remote`."""
        return "replica" if isinstance(self._reader, Replica) else "remote"

    @property
    def model(self) -> str:
        """The name of the model it embeds with, as `embedding.model_name` gives it."""
        return self._reader.model

    @property
    def version(self) -> int:
        """The catalogue's version, the same in every process that has caught up."""
        return self._reader.version

    @property
    def documents(self) -> tuple[ToolDocument, ...]:
        """The documents, in the order they came; if remote, read from the database."""
        return self._reader.documents

    @property
    def size(self) -> int:
        """How many documents it holds; if remote, at the last search or change here."""
        return self._reader.size

    @property
    def local(self) -> ToolIndex | None:
        """The copy in memory; None if remote."""
        return self._reader if isinstance(self._reader, Replica) else None

    @property
    def ready(self) -> bool:
        """Whether the embedding model is loaded; a model that is not ours counts as loaded."""
        return self._reader.ready

    @property
    def indexed(self) -> bool:
        """Whether there are documents and every one has its vector."""
        return self._reader.indexed

    @property
    def failure(self) -> str:
        """Why embedding failed the last time; empty if it did not."""
        return self._reader.failure

    @property
    def lag(self) -> str:
        """Why a replica may lag behind the database; empty while it does not, and if remote."""
        return "" if self._follower is None else self._follower.failure

    def documents_of(self, ids: Iterable[ToolId]) -> Mapping[ToolId, ToolDocument]:
        """Return the documents of some tools.

        Args:
            ids: Which ones.

        Returns:
            The documents by id; of ids that are not there, none.

        Raises:
            DatabaseError: If it is remote and cannot be asked.
        """
        return self._reader.documents_of(ids)

    def add(self, documents: Sequence[ToolDocument]) -> Changes:
        """Add documents; one whose id is known replaces the old one.

        Args:
            documents: Documents to add; of two with one id the last counts.

        Returns:
            What changed; nothing is removed, and of what stays only those given are told.

        Raises:
            DatabaseError: If they cannot be written.
        """
        return self._seen(self._table.add(documents))

    def remove(self, ids: Iterable[ToolId]) -> Changes:
        """Take documents out; unknown ids are no matter.

        Args:
            ids: Ids of the documents to take out.

        Returns:
            What changed; what stays is not told.

        Raises:
            DatabaseError: If they cannot be written.
        """
        return self._seen(self._table.remove(ids))

    def refresh(self, documents: Sequence[ToolDocument]) -> Changes:
        """Make the catalogue hold exactly these documents, for every process.

        It is compared with what the database holds; where that is the same nothing is written, for
        which the right to read is enough.

        Args:
            documents: All documents it is to hold; none empties it.

        Returns:
            What changed.

        Raises:
            DatabaseError: If they cannot be written.
        """
        return self._seen(self._table.refresh(documents))

    def embed(self, progress: Progress | None = None) -> None:
        """Make the vectors that are missing, unless another process makes them already.

        Args:
            progress: Called after every chunk, with how many tools are done and how many were
                to be.

        Raises:
            EmbeddingError: If the model cannot be loaded or its vectors cannot be used.
        """
        self._reader.embed(progress)

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
            AdapterError: If `dense` and the heads are another model's, or it is remote.
            DatabaseError: If it is remote and cannot be asked.
            EmbeddingError: If `dense` and embedding fails.
        """
        self._keep_following()
        return self._reader.evidence(
            query, candidate_k, filter, dense=dense, along=along, heads=heads
        )

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
            AdapterError: If `dense` and the heads are another model's, or it is remote.
            DatabaseError: If it is remote and cannot be asked.
            EmbeddingError: If `dense` and embedding fails.
        """
        self._keep_following()
        return await self._reader.aevidence(
            query, candidate_k, filter, dense=dense, along=along, heads=heads
        )

    def request_vector(self, query: str) -> Vector | None:
        """Return the model's own vector of a query that was asked lately, not moved by any heads.

        Args:
            query: The query, as it was given to `evidence`.

        Returns:
            Its unit vector, shape `(dim,)`; None if it is not at hand, for nothing is embedded.
        """
        return self._reader.request_vector(query)

    def prepare(self, heads: Heads) -> None:
        """Move all rows now, so that the first search with these heads need not.

        Args:
            heads: The heads.

        Raises:
            AdapterError: If they move the vectors of another model, or it is remote.
        """
        self._reader.prepare(heads)

    def close(self) -> None:
        """End the connections; a replica can still be searched, and does not catch up any more."""
        if self._vectors is not None:
            self._vectors.close()
        if self._follower is not None:
            self._follower.close()
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _keep_following(self) -> None:
        """Start what a fork has ended."""
        if self._follower is not None:
            self._follower.ensure()

    def _seen(self, changes: Changes) -> Changes:
        """Have the own searches see what was written."""
        self._keep_following()
        try:
            self._reader.catch_up()
        except DatabaseError as error:  # It is written; the follower will see it.
            logger.warning("what was written is not searched yet: %s", error)
        return changes

    def _shared_vectors(self, model: Embeddings) -> PostgresVectors | None:
        space = space_or_warning(model, "every process embeds all tools for itself")
        return None if space is None else PostgresVectors(self._database, space)

    def _opened(self, mode: Mode, model: Embeddings, background: bool) -> Replica | RemoteIndex:
        if mode == "remote" or (mode == "auto" and self._table.count() > REPLICA_TOOLS):
            return self._remote(model, background)
        return self._replica(model, background)

    def _replica(self, model: Embeddings, background: bool) -> Replica:
        replica = Replica(
            self._table,
            model,
            options=self.options,
            vectors=self._vectors,
            background=background,
        )
        replica.catch_up()
        return replica

    def _remote(self, model: Embeddings, background: bool) -> RemoteIndex:
        if self._vectors is None:
            raise EmbeddingError(
                f"a {model_name(model)} does not say which model it is, so that its vectors could "
                "not be told from another's in the database: give it an attribute `model`, or use "
                "mode='replica'"
            )
        embedder = Embedder(model, cache=self._vectors)
        return RemoteIndex(
            self._table, self._database, embedder, self.options, background=background
        )
