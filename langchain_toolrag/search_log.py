"""Searches and selections -> lines of the usage log out."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from langchain_toolrag.asking import Asking
from langchain_toolrag.selection.state import SelectionState, read_state
from langchain_toolrag.types import Finding, Selection, ToolId
from langchain_toolrag.usage.log import UsageLog


class SearchLog:
    """Notes what a ToolRAG was asked and what it answered.

    Args:
        usage_log: Where.
    """

    def __init__(self, usage_log: UsageLog) -> None:
        self._usage_log = usage_log

    def found(
        self,
        query: str,
        finding: Finding,
        asking: Asking,
        options: Mapping[str, Any],
        started: float,
    ) -> Finding:
        """Note a search of the model's own.

        Args:
            query: What was searched for.
            finding: What was found.
            asking: How it was asked.
            options: The options that differ from the defaults.
            started: When it began, by `time.perf_counter`.

        Returns:
            The finding, with the search's name.
        """
        named = replace(finding, search_id=f"s-{uuid.uuid4().hex}")
        self._usage_log.search(
            search_id=named.search_id,
            kind="search",
            mode="lexical" if named.degraded else "semantic",
            query=query,
            retrieved=[(hit.id, hit.rank, hit.score) for hit in named.hits],
            confidence=named.confidence,
            options=options,
            index=str(asking.index.version),
            session=asking.caller.session,
            tenant=asking.caller.tenant,
            took_ms=1000 * (time.perf_counter() - started),
            heads=asking.digest,
            trial=asking.trial,
            vector=None if named.degraded else asking.vector(query),
        )
        return named

    def selected(
        self, selection: Selection, asking: Asking, options: Mapping[str, Any], started: float
    ) -> None:
        """Note a selection; one that reuses a search, or has nothing, is none.

        Args:
            selection: The selection.
            asking: How it was asked.
            options: The options that differ from the defaults.
            started: When it began, by `time.perf_counter`.
        """
        if not selection.fresh or not (selection.query or selection.selected):
            return
        state = read_state(selection.state)
        retrieved = list(_retrieved(selection, state))
        # Where the tools of an earlier search had to do, `query` is that search's.
        searched = "" if selection.degraded and not retrieved else selection.query
        query = searched or state.query
        self._usage_log.search(
            search_id=selection.search_id,
            kind="select",
            mode="lexical" if selection.degraded else "semantic",
            query=query,
            retrieved=retrieved,
            bound=selection.ids,
            confidence=selection.confidence,
            options=options,
            index=str(selection.index_version),
            session=asking.caller.session,
            tenant=asking.caller.tenant,
            took_ms=1000 * (time.perf_counter() - started),
            heads=asking.digest,
            trial=asking.trial,
            vector=None if selection.degraded else asking.vector(query),
        )


def _retrieved(selection: Selection, state: SelectionState) -> Iterator[tuple[ToolId, int, float]]:
    """Yield what the search found and the model sees: tool, rank, score."""
    scores = {tool.id: tool.score for tool in selection.selected if not math.isnan(tool.score)}
    for rank, identity in enumerate(state.found, start=1):
        if identity in scores:
            yield identity, rank, scores[identity]
