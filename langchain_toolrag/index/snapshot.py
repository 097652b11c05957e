"""One moment of the index: a search reads one of these from start to end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from langchain_toolrag.index.analysis import query_terms, terms
from langchain_toolrag.index.dense import DenseIndex
from langchain_toolrag.index.keyword import KeywordIndex, KeywordQuery
from langchain_toolrag.index.lexical import LexicalIndex
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.texts import lexical_text
from langchain_toolrag.types import (
    Changes,
    Evidence,
    ScoreStatistics,
    ToolDocument,
    ToolEvidence,
    ToolFilter,
    ToolId,
    Vector,
    Vectors,
)

_Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Documents and everything they are searched by; immutable.

    Attributes:
        options: What the index is made of.
        documents: The documents by id; their order is the row order of every score array.
        keys: Keys of the documents that have a row in `dense`.
        lexical: BM25 over the documents.
        keyword: Names and points of the documents.
        dense: Rows of the embedded documents; None before the first.
        version: Grows with every change of the documents.
        probes: Vectors of requests that no tool is likely to serve; None before any embedding.
        outside: The median of their best scores in `dense`.
    """

    options: IndexOptions
    documents: Mapping[ToolId, ToolDocument] = field(default_factory=dict)
    keys: Mapping[ToolId, int] = field(default_factory=dict)
    lexical: LexicalIndex = field(default_factory=lambda: LexicalIndex(()))
    keyword: KeywordIndex = field(default_factory=lambda: KeywordIndex(()))
    dense: DenseIndex | None = None
    version: int = 0
    probes: Vectors | None = None
    outside: float = 0.0

    @property
    def pending(self) -> list[ToolDocument]:
        """Documents that have no row yet."""
        if len(self.keys) == len(self.documents):
            return []
        return [document for document in self.documents.values() if document.id not in self.keys]

    def with_documents(self, documents: Mapping[ToolId, ToolDocument]) -> tuple[Snapshot, Changes]:
        """Return a snapshot of these documents; rows of unchanged ones are kept."""
        changes = _difference(self.documents, documents)
        if not (changes.added or changes.changed or changes.removed):
            return self, changes
        stale = {*changes.changed, *changes.removed}
        dense = self.dense
        if dense is not None:
            dense = dense.without([self.keys[i] for i in stale if i in self.keys])
        ordered = list(documents.values())
        with_server = self.options.server_in_text
        texts = (lexical_text(document, with_server=with_server) for document in ordered)
        following = replace(
            self,
            documents=dict(documents),
            keys={identity: key for identity, key in self.keys.items() if identity not in stale},
            lexical=LexicalIndex([terms(text, self.options.analyser) for text in texts]),
            keyword=KeywordIndex(ordered),
            dense=dense,
            version=self.version + 1,
            outside=_outside(dense, self.probes),
        )
        return following, changes

    def with_rows(self, keys: Mapping[ToolId, int], rows: Vectors, probes: Vectors) -> Snapshot:
        """Return a snapshot with rows added, one a key, in the keys' order.

        Args:
            keys: Keys of the rows, by the ids of their documents.
            rows: Shape `(len(keys), dim)`.
            probes: Vectors of requests that no tool is likely to serve, by the same model.

        Returns:
            The new snapshot; this one stays as it is.
        """
        dense = self.dense or DenseIndex.empty(rows.shape[1])
        added = dense.with_rows(list(keys.values()), rows)
        return replace(
            self,
            dense=added,
            keys={**self.keys, **keys},
            probes=probes,
            outside=_outside(added, probes),
        )

    def evidence(
        self,
        query: KeywordQuery,
        vector: Vector | None,
        candidate_k: int,
        filter: ToolFilter | None,
    ) -> Evidence:
        """Return what speaks for the best tools of every source.

        Args:
            query: The query, taken apart.
            vector: Its unit vector; None to leave meaning out.
            candidate_k: How many tools each source puts forward.
            filter: Which tools may be returned; applied before the best are taken.

        Returns:
            Evidence for at most three times `candidate_k` tools and every exactly named one.
        """
        ids = list(self.documents)
        allowed = self._allowed(query, filter)
        words = query_terms(query.text, self.options.analyser)
        lexical, coverage = self.lexical.scores(words), self.lexical.coverage(words)
        points = self.keyword.points(query)
        exact = self.keyword.exact(query)
        rows = _best(lexical, candidate_k, allowed) | _best(points, candidate_k, allowed)
        rows |= {row for row in exact if allowed is None or allowed[row]}
        chosen = {ids[row] for row in rows}
        dense = self._dense(vector, candidate_k, allowed, chosen)
        row_of = {identity: row for row, identity in enumerate(ids)}
        tools = (
            ToolEvidence(
                id=identity,
                dense=dense.get(identity),
                lexical=float(lexical[row_of[identity]]),
                keyword=float(points[row_of[identity]]),
                exact=row_of[identity] in exact,
                coverage=float(coverage[row_of[identity]]),
            )
            for identity in chosen.union(dense)
        )
        return Evidence(
            tools=tuple(sorted(tools, key=lambda tool: tool.id)),
            statistics=self._statistics(vector, lexical),
            version=self.version,
            dense_ready=vector is not None and not self.pending,
        )

    def _allowed(self, query: KeywordQuery, filter: ToolFilter | None) -> _Mask | None:
        """Return which tools may be returned, shape `(size,)`; None for all."""
        masks: list[_Mask] = []
        if filter is not None:
            admitted = map(filter.admits, self.documents.values())
            masks.append(np.fromiter(admitted, np.bool_, len(self.documents)))
        if query.required:
            masks.append(self.keyword.has_required(query))
        if query.selected is not None:
            named = np.zeros(len(self.documents), np.bool_)
            named[list(self.keyword.exact(query))] = True
            masks.append(named)
        return np.logical_and.reduce(masks) if masks else None

    def _dense(
        self, vector: Vector | None, k: int, allowed: _Mask | None, chosen: set[ToolId]
    ) -> dict[ToolId, float]:
        """Return the `k` best dense scores, and those of the tools other sources chose."""
        if vector is None or self.dense is None:
            return {}
        id_of = {key: identity for identity, key in self.keys.items()}
        may: NDArray[np.int64] | None = None
        if allowed is not None:
            admitted = (i for i, may_be in zip(self.documents, allowed, strict=True) if may_be)
            may = np.array([self.keys[i] for i in admitted if i in self.keys], np.int64)
        scores = self.dense.search(vector, k, may)
        rest = [self.keys[identity] for identity in chosen if identity in self.keys]
        scores |= self.dense.scores(vector, [key for key in rest if key not in scores])
        return {id_of[key]: score for key, score in scores.items()}

    def _statistics(self, vector: Vector | None, lexical: NDArray[np.float32]) -> ScoreStatistics:
        mean, deviation = self.dense.spread(vector) if self.dense and vector is not None else (0, 0)
        if not lexical.size:
            return ScoreStatistics(mean, deviation)
        spread = float(lexical.mean()), float(lexical.std())
        return ScoreStatistics(mean, deviation, *spread, self.outside)


def _outside(dense: DenseIndex | None, probes: Vectors | None) -> float:
    if dense is None or probes is None or not dense.size or not len(probes):
        return 0.0
    return float(np.median(dense.best(probes)))


def _difference(old: Mapping[ToolId, ToolDocument], new: Mapping[ToolId, ToolDocument]) -> Changes:
    return Changes(
        added=tuple(identity for identity in new if identity not in old),
        changed=tuple(i for i, document in new.items() if i in old and old[i] != document),
        removed=tuple(identity for identity in old if identity not in new),
        kept=tuple(i for i, document in new.items() if old.get(i) == document),
    )


def _best(scores: NDArray[np.float32], k: int, allowed: _Mask | None) -> set[int]:
    """Return the rows of the `k` best scores above 0; equal ones in row order."""
    usable = scores if allowed is None else np.where(allowed, scores, 0.0)
    positive = np.flatnonzero(usable > 0)
    if len(positive) > k:
        order = np.argsort(-usable[positive], kind="stable")
        positive = positive[order[:k]]
    return set(positive.tolist())
