"""Tools that were ingested into a database in -> word of every change of them out."""

from __future__ import annotations

from collections.abc import Callable

from langchain_core.embeddings import Embeddings

from langchain_toolrag.index.heads import Heads
from langchain_toolrag.index.keyword import KeywordQuery
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.index.vector_space import vectors_in
from langchain_toolrag.postgres.follower import Follower
from langchain_toolrag.postgres.stored_tools import DatabaseTools
from langchain_toolrag.types import Evidence, ToolFilter, Vector


class FollowedTools:
    """Has ingested tools taken again whenever the database says that they changed.

    What has changed since this was made counts. As for `Follower`: a forked child follows from its
    first search on.

    Args:
        store: The tools; they are closed with this.
        seconds: After how long to look without a notice.
    """

    def __init__(self, store: DatabaseTools, seconds: float = 5.0) -> None:
        self._store = store
        self._seen = store.stand()
        self._take: Callable[[], object] = _nothing
        self._follower = Follower(store.database, self.catch_up, seconds)

    def index(
        self, model: Embeddings, options: IndexOptions | None, *, background: bool
    ) -> ToolIndex:
        """Return an empty index for the tools, whose vectors all processes share.

        Args:
            model: What embeds.
            options: As in ToolIndex.
            background: As in ToolIndex.

        Returns:
            The index; its searches see to it that the tools are followed.
        """
        cache = vectors_in(self._store, model)
        index = _FollowingIndex(model, options=options, cache=cache, background=background)
        index.ensure = self._follower.ensure
        return index

    def start(self, take: Callable[[], object]) -> None:
        """Follow from now on, on a thread.

        Args:
            take: Called after every change; a DatabaseError has it called again.
        """
        self._take = take
        self._follower.ensure()

    def catch_up(self) -> None:
        """Have the tools taken if they have changed.

        Raises:
            DatabaseError: If the database does not answer.
        """
        stand = self._store.stand()
        if stand != self._seen:
            self._take()
            self._seen = stand

    def close(self) -> None:
        """Follow no more, and end the connections."""
        self._follower.close()
        self._store.close()


class _FollowingIndex(ToolIndex):
    """A local index that has a fork's thread started again when it is searched."""

    ensure: Callable[[], None]

    def _answer(
        self,
        query: KeywordQuery,
        vector: Vector | None,
        candidate_k: int,
        filter: ToolFilter | None,
        heads: Heads | None,
    ) -> Evidence:
        self.ensure()
        return super()._answer(query, vector, candidate_k, filter, heads)


def _nothing() -> None:
    """Do nothing."""
