"""Indexed tools and how a selection is cut -> searches of them out."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from langchain_toolrag.asking import Asking
from langchain_toolrag.caller import Caller, caller_of
from langchain_toolrag.catalogue.bound_names import OnDuplicate
from langchain_toolrag.index.contract import Index
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.indexed_tools import IndexedTools, Status
from langchain_toolrag.plans import arun, run
from langchain_toolrag.search import finding, rankings
from langchain_toolrag.search.cutoff import Cutoff
from langchain_toolrag.search_log import SearchLog
from langchain_toolrag.selection.bindable import Filter, as_filter
from langchain_toolrag.selection.options import SelectionOptions
from langchain_toolrag.tracing.tracing import About, Tracing
from langchain_toolrag.trial.in_use import HeadsInUse
from langchain_toolrag.types import Finding, Hit, ToolDocument, ToolId
from langchain_toolrag.usage.log import UsageLog

_DEFAULTS = SelectionOptions()


class SearchableTools(IndexedTools):
    """Tools that can be searched.

    Of an index that holds tools of others, too, its own are found; if it has none, all are.

    Args:
        index: The index; it is made to hold the tools.
        options: How much of a ranking is returned, and by what it is.
        on_duplicate: What to do with two tools of one name.
        debounce_ms: How long `reindex` waits for further calls, in milliseconds.
        usage_log: Where selections and the model's own searches are noted; None for nowhere.
        heads: Learned heads, or those in use at a time; None for none.
        tracing: Who is told of selections and the model's own searches.

    Attributes:
        options: How tools are searched and selected.
        usage_log: Where selections and the model's own searches are noted; None for nowhere.
    """

    def __init__(
        self,
        index: Index,
        options: SelectionOptions,
        *,
        on_duplicate: OnDuplicate,
        debounce_ms: int,
        usage_log: UsageLog | None,
        heads: Heads | HeadsInUse | None,
        tracing: Tracing,
    ) -> None:
        self.options = options
        self.usage_log = usage_log
        self._search_log = None if usage_log is None else SearchLog(usage_log)
        self._heads = heads
        self._tracing = tracing
        super().__init__(index, on_duplicate=on_duplicate, debounce_ms=debounce_ms)

    @property
    def status(self) -> Status:
        """How it is doing."""
        status, heads = super().status, self._heads
        if heads is None:
            return status
        problem = heads.problem if isinstance(heads, HeadsInUse) else ""
        return replace(status, heads=heads.digest, heads_problem=problem)

    def heads_for(self, config: RunnableConfig | None = None) -> Heads | None:
        """Return the learned heads that rank for a caller.

        Args:
            config: The run's config, as for `find`.

        Returns:
            The heads; None for none.
        """
        return self._asking(config).heads

    def trial_for(self, config: RunnableConfig | None = None) -> str:
        """Return which heads are on trial for a caller, whether they rank or not.

        Args:
            config: The run's config, as for `find`.

        Returns:
            Their digest; empty for none.
        """
        return self._asking(config).trial

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
        return list(run(self._finding(query, k, filter), self._asking().ask).hits)

    async def asearch(
        self, query: str, k: int | None = None, filter: Filter | None = None
    ) -> list[Hit]:
        """Return the same as `search`, without blocking the event loop."""
        finding = await arun(self._finding(query, k, filter), self._asking().aask)
        return list(finding.hits)

    def find(
        self,
        query: str,
        max_results: int = 5,
        filter: Filter | None = None,
        *,
        config: RunnableConfig | None = None,
    ) -> Finding:
        """Search as a model does that asks for a tool it cannot see.

        Other than `search` it answers by words while the query cannot be embedded, and says how
        sure it is and what it did not find.

        Args:
            query: As in `search`.
            max_results: At most so many tools, fewer where the ranking falls off; tools that the
                query names are found all.
            filter: Which tools may be found.
            config: The run's config: its callbacks are told, its `thread_id` and `tenant_id` say
                who asks. None for that of the run this is a part of.

        Returns:
            What was found; with a `search_id` where there is a usage log, which has a line of it.
        """
        asking = self._asking(config)
        plan = self._looking(query, max_results, filter, asking)
        about = self._about(asking)
        return self._tracing.find(lambda: run(plan, asking.ask), query, about, asking.config)

    async def afind(
        self,
        query: str,
        max_results: int = 5,
        filter: Filter | None = None,
        *,
        config: RunnableConfig | None = None,
    ) -> Finding:
        """Return the same as `find`, without blocking the event loop."""
        asking = self._asking(config)
        plan = self._looking(query, max_results, filter, asking)
        about = self._about(asking)
        return await self._tracing.afind(
            lambda: arun(plan, asking.aask), query, about, asking.config
        )

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
        return run(self._semantic(query, k, filter), self._asking().ask)

    async def asemantic_search(
        self, query: str, k: int | None = None, filter: Filter | None = None
    ) -> list[Hit]:
        """Return the same as `semantic_search`, without blocking the event loop."""
        return await arun(self._semantic(query, k, filter), self._asking().aask)

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
        return run(self._by_words(query, k, filter), self._asking().ask)

    async def atext_search(
        self, query: str, k: int | None = None, filter: Filter | None = None
    ) -> list[Hit]:
        """Return the same as `text_search`, without blocking the event loop."""
        return await arun(self._by_words(query, k, filter), self._asking().aask)

    def keyword_search(self, query: str, k: int = 5, filter: Filter | None = None) -> list[Hit]:
        """Rank tools by name: exact names alone where there are any, else ToolSearch's points.

        Args:
            query: Names or words; `select:A,B` and `+word` are understood.
            k: How many; every exactly named tool is returned.
            filter: Which tools may be returned.

        Returns:
            Hits, best first; scores are points, above 0.
        """
        return run(self._by_name(query, k, filter), self._asking().ask)

    async def akeyword_search(
        self, query: str, k: int = 5, filter: Filter | None = None
    ) -> list[Hit]:
        """Return the same as `keyword_search`, without blocking the event loop."""
        return await arun(self._by_name(query, k, filter), self._asking().aask)

    def _finding(self, query: str, k: int | None, filter: Filter | None) -> finding.Search:
        cutoff = self.options.cutoff if k is None else Cutoff(k=k)
        return finding.find(query, cutoff, as_filter(filter))

    def _looking(
        self, query: str, max_results: int, filter: Filter | None, asking: Asking
    ) -> finding.Search:
        """Return the plan of a model's search, which is noted once it has ended."""
        most = _limit(max_results, max_results)
        cutoff = replace(self.options.cutoff, k=None, max_k=most, min_k=min(1, most))
        started = time.perf_counter()
        found = yield from finding.find_or_by_words(query, cutoff, as_filter(filter))
        found = replace(found, heads=asking.digest)
        if self._search_log is None:
            return found
        return self._search_log.found(query, found, asking, self._changed_options(), started)

    def _asking(self, config: RunnableConfig | None = None) -> Asking:
        """Return how a caller's questions are asked."""
        complete = ensure_config(config)
        caller = caller_of(complete)
        heads, trial = self._chosen(caller)
        return Asking(self.tool_index, self._catalogue.entries, heads, trial, caller, complete)

    def _chosen(self, caller: Caller) -> tuple[Heads | None, str]:
        """Return the heads that answer a caller, and which are on trial for it."""
        heads, log, tenant = self._heads, self.usage_log, caller.tenant
        if not isinstance(heads, HeadsInUse):
            return heads, ""
        if log is not None:  # Without a log, whoever asks has the digest.
            tenant = log.digest("tenant", tenant) if heads.has_tenants else ""
        return heads.chosen(caller.session, tenant), heads.trial_of(caller.session, tenant)

    def _about(self, asking: Asking) -> About:
        return About(
            options=self._changed_options(),
            heads=asking.digest,
            index=str(self.tool_index.version),
            catalogue=len(self._catalogue.entries),
            describe=self._document,
        )

    def _document(self, identity: ToolId) -> ToolDocument | None:
        entry = self._catalogue.entries.get(identity)
        return None if entry is None else entry.document

    def _changed_options(self) -> dict[str, Any]:
        """Return the options that differ from the defaults."""
        options = {each.name: getattr(self.options, each.name) for each in fields(_DEFAULTS)}
        return {key: value for key, value in options.items() if value != getattr(_DEFAULTS, key)}

    def _by_words(self, query: str, k: int | None, filter: Filter | None) -> rankings.Ranking:
        limit = _limit(k, self.options.text_search_limit)
        return rankings.text(query, limit, as_filter(filter))

    def _by_name(self, query: str, k: int, filter: Filter | None) -> rankings.Ranking:
        return rankings.keyword(query, _limit(k, k), as_filter(filter))

    def _semantic(self, query: str, k: int | None, filter: Filter | None) -> rankings.Ranking:
        return rankings.semantic(
            query,
            _limit(k, self.options.semantic_limit),
            as_filter(filter),
            threshold=self.options.similarity_threshold,
        )


def _limit(k: int | None, default: int) -> int:
    """Return how many hits to return; a `k` below 1 is an error, as for a `Cutoff`."""
    return default if k is None else Cutoff(k=k).limit
