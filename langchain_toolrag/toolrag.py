"""ToolRAG: the one object that holds catalogue, index and selection together."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings
from typing_extensions import Self

from langchain_toolrag.catalogue.catalogue import OnDuplicate
from langchain_toolrag.index.contract import Index
from langchain_toolrag.index.embedding import PACKAGED_ADAPTER, as_embeddings
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.storage import load_index
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.index.vector_space import cache_in
from langchain_toolrag.indexed_tools import IndexedTools
from langchain_toolrag.plans import arun, run
from langchain_toolrag.search import rankings
from langchain_toolrag.search.cutoff import Cutoff
from langchain_toolrag.search.rankings import Question
from langchain_toolrag.selection import selector
from langchain_toolrag.selection.bindable import Filter, as_filter, bindable
from langchain_toolrag.selection.conversation import read_conversation
from langchain_toolrag.selection.options import SelectionOptions
from langchain_toolrag.types import (
    Changes,
    Evidence,
    Hit,
    Messages,
    SelectedTool,
    Selection,
    Tools,
)

logger = logging.getLogger(__name__)


class ToolRAG(IndexedTools):
    """Finds the few tools an agent's next step needs.

    Tools can be found by words at once. Their vectors are made at the first search that needs
    them, or by `index`. Safe under threads and after a fork.

    Example:
        >>> rag = ToolRAG(tools)
        >>> rag.select([("user", "do it for kolkata too")]).names
        ['get_weather']

    Args:
        tools: LangChain tools, functions, definitions as dicts; provider tools (dicts such as
            a web search) pass through every selection.
        embeddings: Any LangChain model, a sentence-transformers name or folder, or None for
            all-MiniLM-L6-v2.
        index: An index to use instead of a new one; it brings its own embeddings and options.
        index_options: What is indexed of a tool; None for what `options` needs.
        options: How tools are selected.
        cache_dir: A folder that keeps the vectors of tools, and the model as it is run, from
            process to process: what was embedded once is not embedded again. None for none.
        background: Whether to load the model and embed tools in the background, from the first
            search on: until that is done words and names answer, and selections say so in
            `degraded`.
        on_duplicate: What to do with two tools of one name: `"raise"`, or `"prefix"` to bind
            them under `<server>_<name>`.
        debounce_ms: How long `reindex` waits for further calls, in milliseconds.

    Raises:
        DuplicateToolError: If two tools have one name.
        InvalidToolError: If something is not a tool.
        UnknownToolError: If `always_include` names a tool that is not there.
        ValueError: If options contradict each other.
    """

    def __init__(
        self,
        tools: Tools | None = None,
        *,
        embeddings: Embeddings | str | None = None,
        index: Index | None = None,
        index_options: IndexOptions | None = None,
        options: SelectionOptions | None = None,
        cache_dir: str | Path | None = None,
        background: bool = False,
        on_duplicate: OnDuplicate = "raise",
        debounce_ms: int = 100,
    ) -> None:
        self.options = options or SelectionOptions()
        if index is None:
            index = _new_index(embeddings, index_options, cache_dir, background, self.options)
        elif (embeddings, index_options, cache_dir, background) != (None, None, None, False):
            raise ValueError(
                "an index brings its own embeddings, options, cache and background: give it alone"
            )
        _check_index(index, self.options)
        super().__init__(index, on_duplicate=on_duplicate, debounce_ms=debounce_ms)
        if tools is not None:
            self.refresh(tools)
            self.known_ids(self.options.always_include, where="always_include")

    @classmethod
    def load(
        cls,
        directory: str | Path,
        tools: Tools | None = None,
        *,
        embeddings: Embeddings | str | None = None,
        options: SelectionOptions | None = None,
        on_duplicate: OnDuplicate = "raise",
    ) -> Self:
        """Read what `save` wrote and give the documents their tools again, by id.

        Args:
            directory: Where it was saved.
            tools: The tools; only new and changed ones are embedded. None for an index that can
                be searched but has nothing to bind.
            embeddings: The model it was saved with.
            options: How tools are selected.
            on_duplicate: As in the constructor.

        Returns:
            A ToolRAG that embeds nothing that was embedded before.

        Raises:
            SourceError: If the directory holds no index or a damaged one.
            StaleIndexError: If it was made by another model or version.
        """
        index = load_index(Path(directory), _model(embeddings, options or SelectionOptions()))
        return cls(tools, index=index, options=options, on_duplicate=on_duplicate)

    def search(self, query: str, k: int | None = None, filter: Filter | None = None) -> list[Hit]:
        """Rank tools by meaning, words and name together.

        Args:
            query: A request; `select:A,B` and `+word` are understood.
            k: How many; None for adaptive.
            filter: Which tools may be returned.

        Returns:
            Hits, best first; scores on the scale of the cosine.

        Raises:
            EmbeddingError: If embedding fails; `text_search` needs none.
        """
        return run(self._hybrid(query, k, filter), self._ask)

    async def asearch(
        self, query: str, k: int | None = None, filter: Filter | None = None
    ) -> list[Hit]:
        """Return the same as `search`, without blocking the event loop."""
        return await arun(self._hybrid(query, k, filter), self._aask)

    def semantic_search(
        self, query: str, k: int | None = None, filter: Filter | None = None
    ) -> list[Hit]:
        """Rank tools by meaning alone; below `similarity_threshold` there is no hit.

        Args:
            query: A request.
            k: How many; None for `semantic_limit`.
            filter: Which tools may be returned.

        Returns:
            Hits, best first; scores are weighted cosines, -1 to 1.

        Raises:
            EmbeddingError: If embedding fails.
        """
        return run(self._semantic(query, k, filter), self._ask)

    async def asemantic_search(
        self, query: str, k: int | None = None, filter: Filter | None = None
    ) -> list[Hit]:
        """Return the same as `semantic_search`, without blocking the event loop."""
        return await arun(self._semantic(query, k, filter), self._aask)

    def text_search(
        self, query: str, k: int | None = None, filter: Filter | None = None
    ) -> list[Hit]:
        """Rank tools by words alone.

        Args:
            query: A request.
            k: How many; None for `text_search_limit`.
            filter: Which tools may be returned.

        Returns:
            Hits, best first; scores are BM25's, above 0.
        """
        limit = _limit(k, self.options.text_search_limit)
        return run(rankings.text(query, limit, as_filter(filter)), self._ask)

    async def atext_search(
        self, query: str, k: int | None = None, filter: Filter | None = None
    ) -> list[Hit]:
        """Return the same as `text_search`; it has nothing to wait for."""
        return self.text_search(query, k, filter)

    def keyword_search(self, query: str, k: int = 5, filter: Filter | None = None) -> list[Hit]:
        """Rank tools by name: exact names alone where there are any, else ToolSearch's points.

        Args:
            query: Names or words; `select:A,B` and `+word` are understood.
            k: How many; every exactly named tool is returned.
            filter: Which tools may be returned.

        Returns:
            Hits, best first; scores are points, above 0.
        """
        return run(rankings.keyword(query, _limit(k, k), as_filter(filter)), self._ask)

    async def akeyword_search(
        self, query: str, k: int = 5, filter: Filter | None = None
    ) -> list[Hit]:
        """Return the same as `keyword_search`; it has nothing to wait for."""
        return self.keyword_search(query, k, filter)

    def select(
        self,
        messages: Messages,
        *,
        tools: Tools | None = None,
        previous: Mapping[str, Any] | None = None,
        filter: Filter | None = None,
        required: Sequence[str] = (),
    ) -> Selection:
        """Select the tools of an agent's next step.

        Args:
            messages: The conversation, the current user turn included: whatever LangChain takes
                for messages, or a string.
            tools: What can be bound in this step; tools that the catalogue does not have pass
                through. None for the whole catalogue.
            previous: `Selection.state` of the step before; keeps the bound list stable.
            filter: Which tools the caller may see.
            required: Names of tools that must be bound, such as `tool_choice`'s.

        Returns:
            The tools to bind, and why.

        Raises:
            EmbeddingError: If embedding fails and `on_error` is `"raise"`.
        """
        return run(self._selecting(messages, tools, previous, filter, required), self._ask)

    async def aselect(
        self,
        messages: Messages,
        *,
        tools: Tools | None = None,
        previous: Mapping[str, Any] | None = None,
        filter: Filter | None = None,
        required: Sequence[str] = (),
    ) -> Selection:
        """Return the same as `select`, without blocking the event loop."""
        return await arun(self._selecting(messages, tools, previous, filter, required), self._aask)

    def explain(
        self,
        messages: Messages,
        *,
        tools: Tools | None = None,
        previous: Mapping[str, Any] | None = None,
        filter: Filter | None = None,
    ) -> list[SelectedTool]:
        """Select, and return the tools by score, best first, those without a score last.

        Args:
            messages: As in `select`.
            tools: As in `select`.
            previous: As in `select`.
            filter: As in `select`.

        Returns:
            Each tool with its scores and the reason it is bound for.
        """
        return selector.by_score(
            self.select(messages, tools=tools, previous=previous, filter=filter)
        )

    async def aexplain(
        self,
        messages: Messages,
        *,
        tools: Tools | None = None,
        previous: Mapping[str, Any] | None = None,
        filter: Filter | None = None,
    ) -> list[SelectedTool]:
        """Return the same as `explain`, without blocking the event loop."""
        return selector.by_score(
            await self.aselect(messages, tools=tools, previous=previous, filter=filter)
        )

    def extract_sticky(self, messages: Messages, window: int | None = None) -> set[str]:
        """Return the names of the tools called in the last assistant turns.

        Args:
            messages: The conversation.
            window: How many turns; None for `sticky_window`.

        Returns:
            Names as the model wrote them, in this catalogue or not.
        """
        turns = self.options.sticky_window if window is None else window
        return set(read_conversation(messages).sticky(turns))

    def _replace(self, tools: Tools) -> Changes:
        changes = super()._replace(tools)
        known = self.catalogue
        for name in self.options.always_include if known.entries else ():
            if known.id_of(name) is None:
                logger.warning("always_include names %r, which is not among the tools", name)
        return changes

    def _selecting(
        self,
        messages: Messages,
        tools: Tools | None,
        previous: Mapping[str, Any] | None,
        filter: Filter | None,
        required: Sequence[str],
    ) -> selector.Selecting:
        return selector.select(
            messages,
            bindable(self._catalogue, tools, filter),
            self.options,
            index_version=self.tool_index.version,
            previous=previous,
            required=required,
        )

    def _hybrid(self, query: str, k: int | None, filter: Filter | None) -> rankings.Ranking:
        cutoff = self.options.cutoff if k is None else Cutoff(k=k)
        return rankings.hybrid(query, cutoff, as_filter(filter))

    def _semantic(self, query: str, k: int | None, filter: Filter | None) -> rankings.Ranking:
        return rankings.semantic(
            query,
            _limit(k, self.options.semantic_limit),
            as_filter(filter),
            threshold=self.options.similarity_threshold,
        )

    def _ask(self, question: Question) -> Evidence:
        return self.tool_index.evidence(
            question.query, question.candidate_k, question.filter, dense=question.dense
        )

    async def _aask(self, question: Question) -> Evidence:
        return await self.tool_index.aevidence(
            question.query, question.candidate_k, question.filter, dense=question.dense
        )


def _limit(k: int | None, default: int) -> int:
    """Return how many hits to return; a `k` below 1 is an error, as for a `Cutoff`."""
    return default if k is None else Cutoff(k=k).limit


def _model(
    embeddings: Embeddings | str | None,
    options: SelectionOptions,
    cache_dir: str | Path | None = None,
) -> Embeddings:
    """Return the model to embed with; ToolRAG's algorithm has no adapter of its own accord."""
    adapter = None if options.algorithm == "classic" else PACKAGED_ADAPTER
    return as_embeddings(embeddings, adapter=adapter, cache_dir=cache_dir)


def _new_index(
    embeddings: Embeddings | str | None,
    index_options: IndexOptions | None,
    cache_dir: str | Path | None,
    background: bool,
    options: SelectionOptions,
) -> ToolIndex:
    own = IndexOptions.classic() if options.algorithm == "classic" else IndexOptions()
    model = _model(embeddings, options, cache_dir)
    cache = cache_in(cache_dir, model) if cache_dir is not None else None
    return ToolIndex(model, options=index_options or own, cache=cache, background=background)


def _check_index(index: Index, options: SelectionOptions) -> None:
    """Refuse what ToolRAG's algorithm is not made for."""
    if options.algorithm == "classic" and index.options != IndexOptions.classic():
        raise ValueError(
            f"SelectionOptions.classic() needs IndexOptions.classic(), found {index.options}"
        )
