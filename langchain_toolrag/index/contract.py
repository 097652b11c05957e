"""What search and selection need of an index, local or remote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from langchain_toolrag.index.heads import Heads
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.types import Changes, Evidence, ToolDocument, ToolFilter, ToolId, Vector

if TYPE_CHECKING:
    from langchain_toolrag.index.tool_index import ToolIndex

Progress: TypeAlias = Callable[[int, int], None]
"""Called with how many tools have vectors now and how many were to get them."""

CANDIDATES = 30
"""How many tools each source puts forward for fusion."""


class Index(Protocol):
    """A searchable set of tool documents."""

    @property
    def options(self) -> IndexOptions:
        """What the index is made of."""

    @property
    def model(self) -> str:
        """The name of the model whose vectors it holds, as `embedding.model_name` gives it."""

    @property
    def version(self) -> int:
        """A number that grows with every change of the documents."""

    @property
    def documents(self) -> tuple[ToolDocument, ...]:
        """The documents, in the order they came."""

    @property
    def size(self) -> int:
        """How many documents it holds, as far as that is known without asking anybody."""

    @property
    def local(self) -> ToolIndex | None:
        """The index in memory that answers, whose vectors can be read; None if there is none."""

    @property
    def ready(self) -> bool:
        """Whether a query can be embedded without a model being loaded first."""

    @property
    def indexed(self) -> bool:
        """Whether there are documents and every one has its vector."""

    @property
    def failure(self) -> str:
        """Why embedding failed the last time; empty if it did not."""

    def documents_of(self, ids: Iterable[ToolId]) -> Mapping[ToolId, ToolDocument]:
        """Return the documents of some tools by id; those that are not there are left out."""

    def add(self, documents: Sequence[ToolDocument]) -> Changes:
        """Add documents; one whose id is known replaces the old one."""

    def remove(self, ids: Sequence[ToolId]) -> Changes:
        """Take documents out; unknown ids are no matter."""

    def refresh(self, documents: Sequence[ToolDocument]) -> Changes:
        """Make the index hold exactly these documents."""

    def embed(self, progress: Progress | None = None) -> None:
        """Make the vectors that are missing.

        Args:
            progress: Called as they are made.

        Raises:
            EmbeddingError: If the model cannot be loaded or its vectors cannot be used.
        """

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
            filter: Which tools may be returned.
            dense: Whether to embed the query.
            along: Queries that will be asked too; an index may embed them with this one, or not.
            heads: What moves the vectors of requests and tools; None to search by the model's own.

        Returns:
            The evidence for `query` alone.
        """

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
        """Return the same as `evidence`, without blocking the event loop."""

    def request_vector(self, query: str) -> Vector | None:
        """Return the model's own vector of a query that was asked lately, not moved by any heads.

        Args:
            query: The query, as it was given to `evidence`.

        Returns:
            Its unit vector; None if it is not at hand, for nothing is embedded.
        """

    def prepare(self, heads: Heads) -> None:
        """Move all rows now, so that the first search with these heads need not.

        Searches go on meanwhile.

        Args:
            heads: The heads.

        Raises:
            AdapterError: If they move the vectors of another model.
        """
