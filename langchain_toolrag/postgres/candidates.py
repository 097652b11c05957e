"""Rows of the hybrid query in -> what is evidence of them out."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from langchain_toolrag.index.keyword import KeywordIndex, KeywordQuery
from langchain_toolrag.postgres.records import read_document
from langchain_toolrag.postgres.search_columns import asked_server
from langchain_toolrag.types import ToolEvidence, ToolFilter, ToolId


class Row(NamedTuple):
    """A row of `hybrid_query.sql`: first the catalogue's state, then one tool's scores.

    Attributes:
        version: The catalogue's version.
        embedded: The version whose tools all had vectors; -1 for none.
        measured: The version whose spread was measured; -1 for none.
        tools: How many tools it has.
        dims: The dimension of the tools' vectors; None where no tool has one.
        is_server: Whether a server has the name that the whole query may be.
        lexical_mean: Mean of all tools' lexical scores; None where no tool has any.
        lexical_deviation: Their standard deviation; None likewise.
        id: The tool as it is stored; None, and what follows too, where no tool was found.
        named: Whether the query may give its name.
        passes: Whether it passes the filter but for its predicate, and has the required words.
        dense: Weighted cosine of its texts; None without vectors.
        lexical: Its lexical score.
        coverage: Share of the query's words that it has.
        points: Points of the keyword scorer.
        document: Its document as JSON, where it was asked for.
    """

    version: int
    embedded: int
    measured: int
    tools: int
    dims: int | None
    is_server: bool
    lexical_mean: float | None
    lexical_deviation: float | None
    id: str | None
    named: bool
    passes: bool
    dense: float | None
    lexical: float
    coverage: float
    points: float
    document: str | None

    @property
    def tool_id(self) -> ToolId:
        """The tool's own id."""
        return self.id or "" if self.document is None else read_document(self.document).id


@dataclass(frozen=True, slots=True)
class Candidates:
    """The tools that all sources put forward.

    Attributes:
        rows: Their rows, one a tool.
        passing: Those that the whole filter lets pass.
        is_server: Whether a server has the name that the whole query may be.
    """

    rows: Sequence[Row]
    passing: Sequence[Row]
    is_server: bool

    @classmethod
    def of(cls, rows: Sequence[Row], filter: ToolFilter) -> Candidates:
        """Return what rows say of tools; a predicate is asked about each that passes otherwise."""
        tools = [row for row in rows if row.id is not None]
        passing = [row for row in tools if row.passes and _admits(filter, row)]
        return cls(tools, passing, any(row.is_server for row in rows))

    def suffice(self, k: int, asked: int) -> bool:
        """Return whether every source has `k` that pass, or gave all it has.

        Args:
            k: How many are wanted of each source.
            asked: How many each was asked for.

        Returns:
            Whether asking for more is of no use.
        """
        return all(
            sum(map(has_any, self.passing)) >= k or sum(map(has_any, self.rows)) < asked
            for has_any, _ in _SOURCES
        )

    def best(self, query: KeywordQuery, k: int) -> tuple[ToolEvidence, ...]:
        """Return the evidence for the `k` best of each source and for those that are named."""
        exact = self._exact(query)
        chosen = {row.id: row for row in self.passing if row.id in exact}
        if query.selected is None:
            for has_any, score in _SOURCES:
                usable = filter(has_any, self.passing)
                chosen.update((row.id, row) for row in heapq.nlargest(k, usable, key=score))
        found = (_evidence(row, row.id in exact) for row in chosen.values())
        return tuple(sorted(found, key=lambda tool: tool.id))

    def names(self, query: KeywordQuery) -> KeywordIndex:
        """Return an index of the tools and the server that the query may name, for its answers."""
        index = KeywordIndex().with_tools(
            [read_document(row.document or "") for row in self._named]
        )
        return replace(index, servers={asked_server(query): 1} if self.is_server else {})

    @property
    def _named(self) -> list[Row]:
        return [row for row in self.rows if row.named]

    def _exact(self, query: KeywordQuery) -> set[str | None]:
        named = self._named
        return {named[slot].id for slot in self.names(query).exact(query)}


def _has_dense(row: Row) -> bool:
    return row.dense is not None


def _has_lexical(row: Row) -> bool:
    return row.lexical > 0


_SOURCES: tuple[tuple[Callable[[Row], bool], Callable[[Row], float]], ...] = (
    (_has_dense, lambda row: row.dense or 0.0),
    (_has_lexical, lambda row: row.lexical),
    (lambda row: row.points > 0, lambda row: row.points),
)


def _admits(filter: ToolFilter, row: Row) -> bool:
    if filter.predicate is None:
        return True
    return bool(filter.predicate(read_document(row.document or "")))


def _evidence(row: Row, exact: bool) -> ToolEvidence:
    return ToolEvidence(row.tool_id, row.dense, row.lexical, row.points, exact, row.coverage)
