"""Indexed tools and how a selection is cut -> searches of them out."""

from __future__ import annotations

import time
import uuid
from dataclasses import fields, replace
from typing import Any

from langchain_toolrag.catalogue.bound_names import OnDuplicate
from langchain_toolrag.index.contract import Index
from langchain_toolrag.indexed_tools import IndexedTools
from langchain_toolrag.plans import arun, run
from langchain_toolrag.search import finding, rankings
from langchain_toolrag.search.cutoff import Cutoff
from langchain_toolrag.search.rankings import Question
from langchain_toolrag.selection.bindable import Filter, as_filter
from langchain_toolrag.selection.options import SelectionOptions
from langchain_toolrag.types import Evidence, Finding, Hit
from langchain_toolrag.usage.log import UsageLog

_DEFAULTS = SelectionOptions()


class SearchableTools(IndexedTools):
    """Tools that can be searched.

    Args:
        index: The index; it is made to hold the tools.
        options: How much of a ranking is returned, and by what it is.
        on_duplicate: What to do with two tools of one name.
        debounce_ms: How long `reindex` waits for further calls, in milliseconds.
        usage_log: Where the model's own searches are noted; None for nowhere.

    Attributes:
        options: How tools are searched and selected.
        usage_log: Where the model's own searches are noted; None for nowhere.
    """

    def __init__(
        self,
        index: Index,
        options: SelectionOptions,
        *,
        on_duplicate: OnDuplicate,
        debounce_ms: int,
        usage_log: UsageLog | None = None,
    ) -> None:
        self.options = options
        self.usage_log = usage_log
        super().__init__(index, on_duplicate=on_duplicate, debounce_ms=debounce_ms)

    def search(self, query: str, k: int | None = None, filter: Filter | None = None) -> list[Hit]:
        """Rank tools by meaning, words and name together.

        Args:
            query: A request, or names of tools or of a server; `select:A,B` and `+word` are
                understood (see `search.finding`).
            k: How many; None for adaptive.
            filter: Which tools may be returned.

        Returns:
            Hits, best first; scores on the scale of the cosine. Where the query is names and
            nothing else, the tools of these names alone.

        Raises:
            EmbeddingError: If embedding fails; `text_search` needs none.
        """
        return list(run(self._finding(query, k, filter), self._ask).hits)

    async def asearch(
        self, query: str, k: int | None = None, filter: Filter | None = None
    ) -> list[Hit]:
        """Return the same as `search`, without blocking the event loop."""
        finding = await arun(self._finding(query, k, filter), self._aask)
        return list(finding.hits)

    def find(self, query: str, max_results: int = 5, filter: Filter | None = None) -> Finding:
        """Search as a model does that asks for a tool it cannot see.

        Other than `search` it answers by words while the query cannot be embedded, and says how
        sure it is and what it did not find.

        Args:
            query: As in `search`.
            max_results: At most so many tools, fewer where the ranking falls off; tools that the
                query names are found all.
            filter: Which tools may be found.

        Returns:
            What was found; with a `search_id` where there is a usage log, which has a line of it.
        """
        return run(self._looking(query, max_results, filter), self._ask)

    async def afind(
        self, query: str, max_results: int = 5, filter: Filter | None = None
    ) -> Finding:
        """Return the same as `find`, without blocking the event loop."""
        return await arun(self._looking(query, max_results, filter), self._aask)

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

    def _finding(self, query: str, k: int | None, filter: Filter | None) -> finding.Search:
        cutoff = self.options.cutoff if k is None else Cutoff(k=k)
        return finding.find(query, cutoff, as_filter(filter))

    def _looking(self, query: str, max_results: int, filter: Filter | None) -> finding.Search:
        most = _limit(max_results, max_results)
        cutoff = replace(self.options.cutoff, k=None, max_k=most, min_k=min(1, most))
        plan = finding.find_or_by_words(query, cutoff, as_filter(filter))
        return plan if self.usage_log is None else self._logged(plan, query, self.usage_log)

    def _logged(self, plan: finding.Search, query: str, log: UsageLog) -> finding.Search:
        """Note a search once it has ended."""
        started = time.perf_counter()
        found = yield from plan
        found = replace(found, search_id=f"s-{uuid.uuid4().hex}")
        log.search(
            search_id=found.search_id,
            kind="search",
            mode="lexical" if found.degraded else "semantic",
            query=query,
            retrieved=[(hit.id, hit.rank, hit.score) for hit in found.hits],
            confidence=found.confidence,
            options=self._logged_options(),
            index=str(self.tool_index.version),
            took_ms=1000 * (time.perf_counter() - started),
        )
        return found

    def _logged_options(self) -> dict[str, Any]:
        """Return the options that differ from the defaults."""
        options = {each.name: getattr(self.options, each.name) for each in fields(_DEFAULTS)}
        return {key: value for key, value in options.items() if value != getattr(_DEFAULTS, key)}

    def _semantic(self, query: str, k: int | None, filter: Filter | None) -> rankings.Ranking:
        return rankings.semantic(
            query,
            _limit(k, self.options.semantic_limit),
            as_filter(filter),
            threshold=self.options.similarity_threshold,
        )

    def _ask(self, question: Question) -> Evidence:
        return self.tool_index.evidence(
            question.query,
            question.candidate_k,
            question.filter,
            dense=question.dense,
            along=question.along,
        )

    async def _aask(self, question: Question) -> Evidence:
        return await self.tool_index.aevidence(
            question.query,
            question.candidate_k,
            question.filter,
            dense=question.dense,
            along=question.along,
        )


def _limit(k: int | None, default: int) -> int:
    """Return how many hits to return; a `k` below 1 is an error, as for a `Cutoff`."""
    return default if k is None else Cutoff(k=k).limit
