"""The catalogue that is being served: replaced as a whole whenever what was ingested is."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from langchain_core.embeddings import Embeddings

from langchain_toolrag.catalogue.names import bound_name, hashed_name
from langchain_toolrag.catalogue.sources.directory_tools import definitions
from langchain_toolrag.catalogue.sources.stored import StoredTool
from langchain_toolrag.errors import DatabaseError, EmbeddingError, ToolRAGError, UnknownToolError
from langchain_toolrag.index.embedding import NoEmbeddings, as_embeddings
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.index.vector_space import vectors_in
from langchain_toolrag.server.answers import unforeseen
from langchain_toolrag.server.bodies import Mode
from langchain_toolrag.server.metrics import Metrics
from langchain_toolrag.server.place import Place
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.types import ToolId

logger = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
# Whoever searches waits no longer for a model that hangs: words answer then.
_SEARCH_SECONDS = 5.0
_RANK_SECONDS = 20.0  # Tools that a caller brings may all have to be embedded first.
_CLOSEST = 3
_ResultT = TypeVar("_ResultT")


@dataclass(frozen=True, slots=True)
class Served:
    """A catalogue that is being served; it does not change any more.

    Attributes:
        rag: Its search.
        tools: Its tools by id, in order.
        names: Their API names by id: bound names, each of one tool alone.
        ids: Their ids by API name.
        fingerprint: Which state of the store it was read from.
    """

    rag: ToolRAG
    tools: Mapping[ToolId, StoredTool]
    names: Mapping[ToolId, str]
    ids: Mapping[str, ToolId]
    fingerprint: str

    @property
    def is_semantic(self) -> bool:
        """Whether there is nothing more to embed and the model is loaded."""
        return not self.tools or (self.rag.ready and self.rag.indexed)

    def known(self, name: str) -> StoredTool | None:
        """Return the tool of an API name or id, or of a name no other tool has; None for none."""
        if name in self.tools:
            return self.tools[name]
        identity = self.ids.get(name) or self.rag.catalogue.id_of(name)
        return None if identity is None else self.tools.get(identity)

    def closest(self, name: str) -> list[str]:
        """Return the API names that are most like a name, best first; takes its time."""
        return difflib.get_close_matches(bound_name(name), self.ids, _CLOSEST)


class Serving:
    """What is being served, and the threads that search it.

    Tools can be found by words and names at once. Their vectors are made, and new tools are looked
    for, while it is `running`. While a database does not answer, the tools stay as they are.

    Args:
        place: Where the tools are.
        metrics: Told of every new catalogue.
        embeddings: As in ToolRAG.
        index_options: As in ToolRAG.
        candidate_share: As in ToolRAG; the place's heads are followed.

    Attributes:
        store: Where the tools are.
        model: What requests and tools are embedded with.
        current: What is being served now.

    Raises:
        DatabaseError: If the tools are in a database that cannot be read.
        SourceError: If they are in a directory that cannot be read.
    """

    def __init__(
        self,
        place: Place,
        metrics: Metrics,
        *,
        embeddings: Embeddings | str | None = None,
        index_options: IndexOptions | None = None,
        candidate_share: float = 0.1,
    ) -> None:
        self.store = place.store
        # One model for all catalogues that come: it is loaded once.
        self.model = as_embeddings(embeddings, cache_dir=place.cache)
        self._has_model = not isinstance(self.model, NoEmbeddings)
        self._vectors = vectors_in(self.store, self.model) if self._has_model else None
        self._heads = place.heads if self._has_model else None
        self._index_options = index_options
        self._candidate_share = candidate_share
        self._metrics = metrics
        self._seen = ""
        # Threads of their own: tools that are slow hold those that asyncio shares out.
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, "toolrag-search")
        self._long_threads = ThreadPoolExecutor(1, "toolrag-rank")
        self._word_threads = ThreadPoolExecutor(1, "toolrag-words")
        self._warned: set[type[Exception]] = set()
        self.current = self._read(None)
        metrics.watch("tools", "Tools that can be found.", lambda: len(self.current.tools))
        metrics.watch("semantic", "Whether requests are embedded.", self._is_semantic)
        metrics.watch(
            "heads_problem",
            "Whether the newest learned heads cannot be used.",
            lambda: bool(self.current.rag.status.heads_problem),
        )

    @property
    def mode(self) -> Mode:
        """How requests are searched now."""
        return "semantic" if self._is_semantic() else "lexical"

    @property
    def ready(self) -> bool:
        """Whether requests are searched as they are to be: by meaning, if there is a model."""
        return not self._has_model or self._is_semantic()

    async def in_thread(self, work: Callable[[], _ResultT]) -> _ResultT:
        """Run what takes its time, such as a search, without blocking the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def tool(self, served: Served, name: str) -> StoredTool:
        """Return the tool that a caller names.

        Args:
            served: The catalogue.
            name: Its API name or id, or a name that no other tool has.

        Returns:
            The tool.

        Raises:
            UnknownToolError: If there is none; has the closest API names.
        """
        found = served.known(name)
        if found is None:
            closest = await self.in_thread(lambda: served.closest(name))
            raise UnknownToolError([name], closest, where="the request")
        return found

    async def search_in_time(
        self, work: Callable[[], _ResultT], by_words: Callable[[], _ResultT]
    ) -> _ResultT:
        """Search in a thread; where that takes too long, return what `by_words` finds."""
        return await self._in_time(self._threads, _SEARCH_SECONDS, work, by_words)

    async def rank_in_time(
        self, work: Callable[[], _ResultT], by_words: Callable[[], _ResultT]
    ) -> _ResultT:
        """Do what may take seconds, one after the other, beside the searches; as those in time."""
        return await self._in_time(self._long_threads, _RANK_SECONDS, work, by_words)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Embed what is not embedded and look for new catalogues and heads while this is open."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            for threads in (self._threads, self._long_threads, self._word_threads):
                threads.shutdown(wait=False, cancel_futures=True)
            self.current.rag.close()

    async def _in_time(
        self,
        threads: ThreadPoolExecutor,
        seconds: float,
        work: Callable[[], _ResultT],
        by_words: Callable[[], _ResultT],
    ) -> _ResultT:
        loop = asyncio.get_running_loop()
        try:
            return await asyncio.wait_for(loop.run_in_executor(threads, work), seconds)
        except asyncio.TimeoutError:
            # Other threads: a model that hangs holds all of the first.
            return await loop.run_in_executor(self._word_threads, by_words)

    def _is_semantic(self) -> bool:
        return self._has_model and self.current.is_semantic

    def _read(self, known: Served | None) -> Served:
        # The fingerprint first: tools that are replaced meanwhile are then read again.
        self._seen = self.store.fingerprint()
        tools = {tool.id: tool for tool in self.store.tools()}
        # Found as the tools of `ToolRAG.from_directory` are, but not to be called by it.
        rag = ToolRAG(
            definitions(list(tools.values())),
            index=self._index_after(known),
            on_duplicate="id",
            heads=self._heads,
            candidate_share=self._candidate_share,
        )
        bound = {entry.document.id: entry.document.bound_name for entry in rag.catalogue}
        names = _names(bound, tools)
        return Served(rag, tools, names, {names[i]: i for i in names}, self._seen)

    def _index_after(self, known: Served | None) -> ToolIndex:
        """Return a new index; what stays as it was keeps its vectors."""
        index = known.rag.tool_index.local if known is not None else None
        return ToolIndex(
            self.model,
            options=self._index_options,
            snapshot=None if index is None else index.snapshot,
            cache=self._vectors,
            background=self._has_model,
        )

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                await self._look()
            except Exception as error:  # Such as a disk that does not answer: the next look may.
                if type(error) not in self._warned:
                    self._warned.add(type(error))
                    unforeseen(error, "a look for new tools")

    async def _look(self) -> None:
        # Without the file, as while a directory is being copied, the old tools stay.
        if await asyncio.to_thread(self.store.fingerprint) not in ("", self._seen):
            await self._replace()
        self.current.rag.heads_for()  # Has it look for new heads though nobody searches.
        if not self.ready:
            # Searching has the index load its model and embed in the background, or try again.
            await self.in_thread(lambda: self.current.rag.find("warm up", 1))

    async def _replace(self) -> None:
        """Serve the new tools; until they can be found by meaning, the old ones stay."""
        try:
            new = await asyncio.to_thread(self._read, self.current)
            if self._is_semantic():
                await asyncio.to_thread(_embed, new.rag)
        # Whatever is wrong with the new tools is no reason to stop serving the old ones.
        except Exception as error:
            why = str(error) if isinstance(error, ToolRAGError) else type(error).__name__
            logger.warning("the new tools cannot be served, the old ones stay: %s", why)
            if isinstance(error, DatabaseError):  # The next look may find it there again.
                self._seen = self.current.fingerprint
            self._metrics.reloaded(failed=True)
            return
        old, self.current = self.current, new
        await asyncio.to_thread(old.rag.close)  # Waits for heads that are being prepared for.
        self._metrics.reloaded(failed=False)


def _names(bound: Mapping[ToolId, str], ids: Iterable[ToolId]) -> dict[ToolId, str]:
    """Return a name for each id: one that is not bound can be called all the same.

    Such are the tools whose schema is broken; they take no name from another.
    """
    names, taken = dict(bound), set(bound.values())
    for identity in ids:
        if identity not in names:
            name = bound_name(identity)
            names[identity] = hashed_name(identity) if name in taken else name
            taken.add(names[identity])
    return names


def _embed(rag: ToolRAG) -> None:
    try:
        rag.index()
    except EmbeddingError as error:
        logger.warning("new tools can be found by words and names alone for now: %s", error)
