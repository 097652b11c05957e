"""Terms in -> BM25 scores out.

rank-bm25 counts the corpus; its formula is then laid out as postings, so that a query
touches only the tools that share a term with it. The scores are those of BM25 Okapi [1]
with the inverse document frequency that is never negative [2]:

    score(d) = sum over query terms t of
        ln(1 + (N - n_t + 0.5) / (n_t + 0.5)) * f * (k1 + 1) / (f + k1 * (1 - b + b * |d| / avg))

where `f` is how often `t` occurs in `d`, `n_t` in how many of the `N` tools it does.

References:
    [1] Robertson and Zaragoza. The Probabilistic Relevance Framework: BM25 and Beyond.
    FnTIR 2009. https://doi.org/10.1561/1500000019
    [2] Lucene's BM25Similarity, see Kamphuis et al. Which BM25 Do You Mean? ECIR 2020.
    https://doi.org/10.1007/978-3-030-45442-5_4
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Okapi

_K1 = 1.5  # How fast repeats of a term stop counting.
_B = 0.75  # How much a long text is held against a tool.


class PositiveBM25(BM25Okapi):  # type: ignore[misc]  # rank_bm25 has no types
    """rank-bm25 with an inverse document frequency that is never negative.

    Okapi's own goes below zero for a term in more than half of the texts, so that a match
    could score worse than none.
    """

    def __init__(self, corpus: Sequence[Sequence[str]]) -> None:
        super().__init__(corpus, k1=_K1, b=_B)

    def _calc_idf(self, nd: Mapping[str, int]) -> None:
        size = self.corpus_size
        self.idf = {term: inverse_document_frequency(size, count) for term, count in nd.items()}


def inverse_document_frequency(size: int, count: int) -> float:
    """Return how rare a term is that `count` of `size` tools have; above 0."""
    return math.log(1 + (size - count + 0.5) / (count + 0.5))


class LexicalIndex:
    """BM25 over one list of terms a tool; immutable.

    Args:
        corpus: The terms of every tool, in the order of the catalogue.
    """

    def __init__(self, corpus: Sequence[Sequence[str]]) -> None:
        self.size = len(corpus)
        self._postings = _postings(corpus)

    def coverage(self, query: Sequence[str]) -> NDArray[np.float32]:
        """Return the share of the query's distinct terms that each tool has.

        A term counts by its inverse document frequency; one that no tool has counts most.

        Args:
            query: Terms, read by the analyser that read the corpus.

        Returns:
            Shape `(size,)`; 0 to 1.
        """
        covered, total = np.zeros(self.size, np.float32), 0.0
        for term in set(query):
            posting = self._postings.get(term)
            count = 0 if posting is None else len(posting[0])
            weight = inverse_document_frequency(self.size, count)
            total += weight
            if posting is not None:
                covered[posting[0]] += weight
        return covered / np.float32(total) if total else covered

    def scores(self, query: Sequence[str]) -> NDArray[np.float32]:
        """Score every tool; a repeated query term counts each time, as in rank-bm25.

        Args:
            query: Terms, read by the analyser that read the corpus.

        Returns:
            Shape `(size,)`; 0 where no term is shared, and never below.
        """
        scores = np.zeros(self.size, np.float32)
        for term in query:
            posting = self._postings.get(term)
            if posting is not None:
                rows, weights = posting
                scores[rows] += weights
        return scores


def _postings(
    corpus: Sequence[Sequence[str]],
) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Lay the corpus out as, per term, the tools that have it and what it adds to their score."""
    if not any(corpus):
        return {}  # rank-bm25 divides by the corpus's length.
    counted: Any = PositiveBM25(corpus)
    gathered: dict[str, tuple[list[int], list[float]]] = {}
    for row, frequencies in enumerate(counted.doc_freqs):
        norm = _K1 * (1 - _B + _B * counted.doc_len[row] / counted.avgdl)
        for term, count in frequencies.items():
            rows, weights = gathered.setdefault(term, ([], []))
            rows.append(row)
            weights.append(counted.idf[term] * count * (_K1 + 1) / (count + norm))
    return {
        term: (np.array(rows, np.int64), np.array(weights, np.float32))
        for term, (rows, weights) in gathered.items()
    }
