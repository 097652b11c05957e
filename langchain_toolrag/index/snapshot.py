"""One moment of the index: a search reads one of these from start to end.

Every document has a slot: the place of its scores in all arrays. Slots are given out in the order
the documents come and are not used again, so that the next snapshot can share what did not change;
when more slots are empty than not, the documents are numbered anew.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, count, starmap
from operator import is_, not_

import numpy as np
from numpy.typing import NDArray

from langchain_toolrag.index.analysis import query_terms, terms
from langchain_toolrag.index.dense import DenseIndex, Peaks
from langchain_toolrag.index.keyword import KeywordIndex, KeywordQuery
from langchain_toolrag.index.lexical import LexicalIndex
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.postings import Slots
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
_Scores = NDArray[np.float32]


def _no_slots() -> Slots:
    return np.zeros(0, np.intp)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Documents and everything they are searched by; immutable.

    Attributes:
        options: What the index is made of.
        documents: The documents by id, in the order they came.
        slots: The slot of every document.
        keys: The slots of the documents that have a row in `dense`.
        waiting: Ids of the documents that have none, those that came last at the end.
        ids: The documents' ids by slot; in an empty slot that of the document that had it.
        order: The slots in the order of `documents`.
        places: Where a slot stands in `order`; anything for an empty slot.
        lexical: BM25 over the documents.
        keyword: Names and points of the documents.
        dense: Rows of the embedded documents; None before the first.
        peaks: What requests that no tool is likely to serve reach in `dense`; None before any
            embedding.
        version: Grows with every change of the documents.
        numbering: The same object as long as a slot stands for the same row, or for none: another
            one when the documents were numbered anew.
    """

    options: IndexOptions
    documents: Mapping[ToolId, ToolDocument] = field(default_factory=dict)
    slots: Mapping[ToolId, int] = field(default_factory=dict)
    keys: Mapping[ToolId, int] = field(default_factory=dict)
    waiting: Sequence[ToolId] = ()
    ids: Sequence[ToolId] = ()
    order: Slots = field(default_factory=_no_slots)
    places: Slots = field(default_factory=_no_slots)
    lexical: LexicalIndex = field(default_factory=LexicalIndex)
    keyword: KeywordIndex = field(default_factory=KeywordIndex)
    dense: DenseIndex | None = None
    peaks: Peaks | None = None
    version: int = 0
    numbering: object = field(default_factory=object)

    @property
    def pending(self) -> list[ToolDocument]:
        """Documents that have no row yet."""
        return [self.documents[identity] for identity in self.waiting]

    @property
    def probes(self) -> Vectors | None:
        """Vectors of requests that no tool is likely to serve; None before any embedding."""
        return None if self.peaks is None else self.peaks.requests

    def with_documents(self, documents: Mapping[ToolId, ToolDocument]) -> tuple[Snapshot, Changes]:
        """Return a snapshot of these documents; rows of unchanged ones are kept."""
        changes = _difference(self.documents, documents)
        entering, leaving = (*changes.added, *changes.changed), (*changes.changed, *changes.removed)
        if not (entering or leaving):
            return self, changes
        if len(self.ids) + len(entering) > 2 * len(documents):
            following = self._anew(documents, changes.kept)
        else:
            following = self._changed(documents, entering, leaving)
        return replace(following, version=self.version + 1), changes

    def with_rows(self, ids: Collection[ToolId], rows: Vectors, probes: Vectors) -> Snapshot:
        """Return a snapshot with rows added.

        Args:
            ids: The documents they are of, which have none yet.
            rows: Shape `(len(ids), dim)`, in the order of `ids`.
            probes: Vectors of requests that no tool is likely to serve, by the same model.

        Returns:
            The new snapshot; this one stays as it is.
        """
        slots = {identity: self.slots[identity] for identity in ids}
        added = list(slots.values())
        known_rows = self.dense or DenseIndex(rows.shape[1])
        dense = known_rows.with_rows(added, rows, len(self.ids))
        known = self.peaks
        peaks = known.with_rows(added, dense) if known else Peaks.of(probes, dense)
        waiting = [identity for identity in self.waiting if identity not in slots]
        keys = {**self.keys, **slots}
        return replace(self, dense=dense, keys=keys, waiting=waiting, peaks=peaks)

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
        words = query_terms(query.text, self.options.analyser)
        found = self._found(query, words, vector)
        allowed = self._allowed(query, filter, found.exact)
        chosen = {slot for slot in found.exact if allowed is None or allowed[slot]}
        for scores, usable in found.sources():
            may = usable if allowed is None else usable & allowed[: len(usable)]
            chosen.update(self._best(scores, candidate_k, may))
        return Evidence(
            tools=self._tools(chosen, words, found),
            statistics=self._statistics(found),
            version=self.version,
            dense_ready=vector is not None and not self.waiting,
            names_alone=self.keyword.is_names(query),
            server=self.keyword.server(query),
        )

    def _changed(
        self,
        documents: Mapping[ToolId, ToolDocument],
        entering: Sequence[ToolId],
        leaving: Sequence[ToolId],
    ) -> Snapshot:
        """Return a snapshot that shares what neither enters nor leaves."""
        left = frozenset(leaving)
        gone = {self.slots[identity]: self.documents[identity] for identity in leaving}
        gone_terms = {slot: self._terms(document) for slot, document in gone.items()}
        new = [documents[identity] for identity in entering]
        new_terms = [self._terms(document) for document in new]
        slots = _without(self.slots, leaving)
        slots.update(zip(entering, count(len(self.ids)), strict=False))
        order = np.fromiter(map(slots.__getitem__, documents), np.intp, len(documents))
        dense, peaks = self._rows_without([self.keys[i] for i in leaving if i in self.keys])
        return replace(
            self,
            documents=dict(documents),
            slots=slots,
            keys=_without(self.keys, leaving),
            waiting=[*(i for i in self.waiting if i not in left), *entering],
            ids=[*self.ids, *entering],
            order=order,
            places=_inverse(order, len(self.ids) + len(entering)),
            lexical=self.lexical.without(gone_terms).with_tools(new_terms),
            keyword=self.keyword.without(gone).with_tools(new),
            dense=dense,
            peaks=peaks,
        )

    def _anew(self, documents: Mapping[ToolId, ToolDocument], kept: Iterable[ToolId]) -> Snapshot:
        """Return a snapshot without empty slots; documents that are kept keep their rows."""
        following = Snapshot(self.options)._changed(documents, list(documents), ())
        if self.dense is None or self.peaks is None:
            return following
        embedded = [identity for identity in kept if identity in self.keys]
        rows = self.dense.rows([self.keys[identity] for identity in embedded])
        return following.with_rows(embedded, rows, self.peaks.requests)

    def _rows_without(self, slots: Sequence[int]) -> tuple[DenseIndex | None, Peaks | None]:
        if self.dense is None or self.peaks is None or not slots:
            return self.dense, self.peaks
        dense = self.dense.without(slots)
        return dense, self.peaks.without(slots, dense)

    def _terms(self, document: ToolDocument) -> list[str]:
        text = lexical_text(document, with_server=self.options.server_in_text)
        return terms(text, self.options.analyser)

    def _found(self, query: KeywordQuery, words: Sequence[str], vector: Vector | None) -> _Found:
        dense = None if vector is None else self.dense
        return _Found(
            lexical=self.lexical.scores(words),
            points=self.keyword.points(query),
            exact=self.keyword.exact(query),
            dense=_NO_SCORES if dense is None or vector is None else dense.scores(vector),
            present=_NO_SCORES > 0 if dense is None else dense.present,
        )

    def _allowed(
        self, query: KeywordQuery, filter: ToolFilter | None, exact: Collection[int]
    ) -> _Mask | None:
        """Return by slot which tools may be returned, shape `(len(ids),)`; None for all."""
        masks: list[_Mask] = []
        if filter is not None:
            masks.append(self._admitted(filter))
        if query.required:
            masks.append(self.keyword.has_required(query))
        if query.selected is not None:
            named = np.zeros(len(self.ids), np.bool_)
            named[list(exact)] = True
            masks.append(named)
        return np.logical_and.reduce(masks) if masks else None

    def _admitted(self, filter: ToolFilter) -> _Mask:
        admitted = np.zeros(len(self.ids), np.bool_)
        if filter.ids is None or 2 * len(filter.ids) > len(self.documents):
            admitted[self.order] = [filter.admits(each) for each in self.documents.values()]
            return admitted
        there = [self.documents[identity] for identity in filter.ids if identity in self.documents]
        passing = [self.slots[each.id] for each in there if filter.admits(each)]
        admitted[passing] = True
        return admitted

    def _best(self, scores: _Scores, k: int, usable: _Mask) -> list[int]:
        """Return the slots of the `k` best scores; of equal ones, those of the first documents."""
        slots = np.flatnonzero(usable)
        if len(slots) > k > 0:
            among = scores[slots]
            least = np.partition(among, -k)[-k]
            slots = slots[among >= least]
            if len(slots) > k:
                order = np.lexsort((self.places[slots], -scores[slots]))
                slots = slots[order[:k]]
        chosen: list[int] = slots.tolist() if k > 0 else []
        return chosen

    def _tools(
        self, chosen: Iterable[int], words: Sequence[str], found: _Found
    ) -> tuple[ToolEvidence, ...]:
        """Return the evidence for the tools of some slots, in order of id."""
        numbers = sorted(chosen, key=self.ids.__getitem__)
        slots = np.array(numbers, np.intp)
        columns = zip(
            (self.ids[slot] for slot in numbers),
            found.dense_of(slots),
            found.lexical[slots].tolist(),
            found.points[slots].tolist(),
            (slot in found.exact for slot in numbers),
            self.lexical.coverage(words, slots).tolist(),
            strict=True,
        )
        return tuple(starmap(ToolEvidence, columns))

    def _statistics(self, found: _Found) -> ScoreStatistics:
        if not self.documents:
            return ScoreStatistics()
        outside = 0.0 if self.peaks is None else self.peaks.median
        return ScoreStatistics(*found.dense_spread(), *self.lexical.spread(found.lexical), outside)


_NO_SCORES = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """What the sources found for one query, by slot.

    `dense` is as long as `present`, which says where it counts; both may be shorter than the rest.
    """

    lexical: _Scores
    points: _Scores
    exact: set[int]
    dense: _Scores
    present: _Mask

    def sources(self) -> Iterator[tuple[_Scores, _Mask]]:
        """Yield the scores of each source and where it has found something."""
        yield self.lexical, self.lexical > 0
        yield self.points, self.points > 0
        yield self.dense, self.present

    def dense_of(self, slots: Slots) -> list[float | None]:
        """Return the dense scores of some slots; None where there is none."""
        known = slots < len(self.present)
        known[known] = self.present[slots[known]]
        scores = np.zeros(len(slots), np.float32)
        scores[known] = self.dense[slots[known]]
        pairs = zip(scores.tolist(), known.tolist(), strict=True)
        return [score if is_known else None for score, is_known in pairs]

    def dense_spread(self) -> tuple[float, float]:
        """Return mean and standard deviation of the dense scores; 0 without any."""
        scores = self.dense[self.present].astype(np.float64)
        if not len(scores):
            return 0.0, 0.0
        mean = float(scores.sum()) / len(scores)
        # Squared without BLAS, which starts threads for it above 10,000 scores.
        return mean, math.sqrt(float(np.square(scores - mean).sum()) / len(scores))


def _without(slots: Mapping[ToolId, int], ids: Iterable[ToolId]) -> dict[ToolId, int]:
    staying = dict(slots)
    for identity in ids:
        staying.pop(identity, None)
    return staying


def _inverse(order: Slots, size: int) -> Slots:
    places = np.zeros(size, np.intp)
    places[order] = np.arange(len(order))
    return places


def _difference(old: Mapping[ToolId, ToolDocument], new: Mapping[ToolId, ToolDocument]) -> Changes:
    # Most documents are the same objects: only the others are compared, which takes longer.
    same = list(map(is_, map(old.get, new), new.values()))
    added: list[ToolId] = []
    changed: list[ToolId] = []
    for number, identity in list(compress(enumerate(new), map(not_, same))):
        if identity not in old:
            added.append(identity)
        elif old[identity] == new[identity]:
            same[number] = True
        else:
            changed.append(identity)
    kept = tuple(compress(new, same))
    is_smaller = len(kept) + len(changed) < len(old)
    removed = tuple(identity for identity in old if identity not in new) if is_smaller else ()
    return Changes(tuple(added), tuple(changed), removed, kept)
