"""Tools that a caller names or brings -> all of them, best first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langchain_toolrag.caller import Caller
from langchain_toolrag.catalogue.document import document_of
from langchain_toolrag.errors import InvalidToolError
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.search.cutoff import Cutoff
from langchain_toolrag.search.finding import Search, find_or_by_words
from langchain_toolrag.server.answers import Stopwatch, finite
from langchain_toolrag.server.bodies import RankAnswer, RankedTool
from langchain_toolrag.server.recording import Recorder
from langchain_toolrag.server.searching import (
    by_words,
    digest_of,
    mode_of,
    run_over,
    vector_of,
)
from langchain_toolrag.server.serving import Serving
from langchain_toolrag.types import Finding, Hit, ToolDocument, ToolFilter, ToolId
from langchain_toolrag.usage.request_vectors import RequestVector
from langchain_toolrag.vectors.cache import VectorMemory

_MOST_VECTORS = 20_000  # Of callers' tools, 1.5 KB each.


class Rankings:
    """Ranks tools of callers; a tool that is ranked again need not be embedded again.

    Args:
        serving: The catalogue, and the model.
        recorder: Told of every ranking.
    """

    def __init__(self, serving: Serving, recorder: Recorder) -> None:
        self._serving = serving
        self._recorder = recorder
        self._vectors = VectorMemory(_MOST_VECTORS)

    async def rank(
        self, query: str, tools: Sequence[dict[str, Any]], tenant: str = ""
    ) -> RankAnswer:
        """Rank tools that the caller brings; no learned heads, which are the catalogue's, do.

        Args:
            query: In the language of `search.finding`.
            tools: Definitions, in MCP's or OpenAI's form.
            tenant: Names the tenant in the usage log; empty for none.

        Returns:
            All of them, best first.

        Raises:
            InvalidToolError: If one is no definition.
        """
        documents = await self._serving.in_thread(
            lambda: [_document(tool, place) for place, tool in enumerate(tools)]
        )
        index = ToolIndex(self._serving.model, cache=self._vectors)
        # While the model is loading, a ranking would wait for it.
        dense = self._serving.mode == "semantic"
        watch = Stopwatch()

        def work(*, dense: bool) -> Finding:
            index.refresh(documents)
            return run_over(index, _plan(query, len(documents), None, dense=dense))

        finding = await self._serving.rank_in_time(
            lambda: work(dense=dense), lambda: work(dense=False)
        )
        given = [(document.id, document.name) for document in documents]
        # The log has no names of tools that are not the catalogue's: they are the caller's text.
        return self._answer(query, given, finding, watch, noted=(), tenant=tenant)

    async def rank_known(self, query: str, names: Sequence[str], tenant: str = "") -> RankAnswer:
        """Rank tools of the catalogue.

        Args:
            query: In the language of `search.finding`.
            names: Their ids or API names.
            tenant: Names the tenant in the usage log; empty for none.

        Returns:
            All of them, best first.

        Raises:
            UnknownToolError: If one is not there.
        """
        served = self._serving.current
        given = [(await self._serving.tool(served, name)).id for name in names]
        wanted = frozenset(given)
        within = ToolFilter(ids=wanted)
        watch, index = Stopwatch(), served.rag.tool_index
        heads = served.rag.heads_for(self._recorder.config(Caller(tenant=tenant)))

        def work(*, dense: bool) -> Finding:
            return run_over(index, _plan(query, len(given), within, dense=dense), heads)

        finding = await self._serving.search_in_time(
            lambda: work(dense=True), lambda: work(dense=False)
        )
        named = [(identity, served.names[identity]) for identity in given]
        return self._answer(
            query,
            named,
            finding,
            watch,
            noted=finding.hits,
            tenant=tenant,
            index=served.fingerprint,
            heads=digest_of(heads),
            vector=None if finding.degraded else vector_of(index, query),
        )

    def _answer(
        self,
        query: str,
        given: Sequence[tuple[ToolId, str]],
        finding: Finding,
        watch: Stopwatch,
        *,
        noted: Sequence[Hit],
        tenant: str,
        index: str = "",
        heads: str = "",
        vector: RequestVector | None = None,
    ) -> RankAnswer:
        took_ms, mode = watch.milliseconds(), mode_of(finding.degraded)
        search_id = self._recorder.search(
            "rank",
            mode,
            query,
            noted,
            took_ms=took_ms,
            index=index,
            heads=heads,
            caller=Caller(tenant=tenant),
            vector=vector,
        )
        scores = {hit.id: finite(hit.score) for hit in finding.hits}
        order = {identity: place for place, identity in enumerate(scores)}
        tools = [
            RankedTool(index=place, name=name, score=scores.get(identity))
            for place, (identity, name) in sorted(
                enumerate(given), key=lambda each: order.get(each[1][0], len(order))
            )
        ]
        return RankAnswer(search_id=search_id, mode=mode, took_ms=took_ms, tools=tools)


def _plan(query: str, count: int, within: ToolFilter | None, *, dense: bool) -> Search:
    cutoff = Cutoff(k=max(1, count))
    return find_or_by_words(query, cutoff, within) if dense else by_words(query, cutoff, within)


def _document(tool: dict[str, Any], place: int) -> ToolDocument:
    """Read a caller's tool under its place, so that two may have one name."""
    try:
        return replace(document_of(tool), id=str(place))
    except InvalidToolError as error:
        problem = f"tools[{place}]: wanted a definition in MCP's or OpenAI's form, with a name"
        raise InvalidToolError(problem, tool) from error
