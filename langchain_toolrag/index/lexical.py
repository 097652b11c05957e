"""Terms in -> BM25 scores out.

rank-bm25 counts; the counts are kept as postings, and its formula is worked out for the terms of a
query, so that a query touches only the tools that share a term with it, and a change of the
catalogue only the terms of the tools that change. The scores are those of BM25 Okapi [1] with the
inverse
document frequency that is never negative [2]:

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

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Okapi

from langchain_toolrag.index.postings import Posting, Postings, Slots

_K1 = 1.5  # How fast repeats of a term stop counting.
_B = 0.75  # How much a long text is held against a tool.


def inverse_document_frequency(size: int, count: int) -> float:
    """Return how rare a term is that `count` of `size` tools have; above 0."""
    return math.log(1 + (size - count + 0.5) / (count + 0.5))


@dataclass(frozen=True, eq=False)
class LexicalIndex:
    """BM25 over one list of terms a tool; immutable.

    Tools are numbered in the order they come. The number (slot) of one that is taken out stays
    empty.

    Attributes:
        postings: How often each term occurs in each tool.
        lengths: How many terms each tool has, by slot; 0 in empty slots.
        size: How many tools there are.
    """

    postings: Postings = field(default_factory=Postings)
    lengths: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    size: int = 0

    def with_tools(self, corpus: Sequence[Sequence[str]]) -> LexicalIndex:
        """Return a copy with tools added, in the slots that follow the last.

        Args:
            corpus: The terms of each tool.

        Returns:
            The copy.
        """
        first = len(self.lengths)
        added = np.array([len(terms) for terms in corpus], np.int64)
        return LexicalIndex(
            self.postings.with_tools(first, _counted(corpus)),
            np.concatenate((self.lengths, added)),
            self.size + len(corpus),
        )

    def without(self, tools: Mapping[int, Sequence[str]]) -> LexicalIndex:
        """Return a copy without tools.

        Args:
            tools: Their terms, by slot.

        Returns:
            The copy.
        """
        lengths = self.lengths.copy()
        lengths[list(tools)] = 0
        words = chain.from_iterable(tools.values())
        return LexicalIndex(self.postings.without(tools, words), lengths, self.size - len(tools))

    def coverage(self, query: Sequence[str], slots: Slots) -> NDArray[np.float32]:
        """Return the share of the query's distinct terms that each of some tools has.

        A term counts by its inverse document frequency; one that no tool has counts most.

        Args:
            query: Terms, read by the analyser that read the corpus.
            slots: The tools.

        Returns:
            Shape `(len(slots),)`; 0 to 1.
        """
        covered, total = np.zeros(len(slots), np.float32), 0.0
        for term in dict.fromkeys(query):
            posting = self.postings.by_word.get(term)
            count = 0 if posting is None else len(posting.slots)
            weight = inverse_document_frequency(self.size, count)
            total += weight
            covered[self.postings.has(term, slots)] += weight
        return covered / np.float32(total) if total else covered

    def scores(self, query: Sequence[str]) -> NDArray[np.float32]:
        """Score every tool; a repeated query term counts each time, as in rank-bm25.

        Args:
            query: Terms, read by the analyser that read the corpus.

        Returns:
            By slot, shape `(len(lengths),)`; 0 where no term is shared, and never below.
        """
        scores = np.zeros(len(self.lengths), np.float32)
        known = [self.postings.by_word[term] for term in query if term in self.postings.by_word]
        for posting in known:
            scores[posting.slots] += self._weights(posting)
        return scores

    def spread(self, scores: NDArray[np.float32]) -> tuple[float, float]:
        """Return mean and standard deviation of what `scores` returned; empty slots do not count.

        Their scores are 0, so that sums need not leave them out.
        """
        exact = scores.astype(np.float64)
        mean = float(exact.sum()) / self.size
        # Squared without BLAS, which starts threads for it above 10,000 scores.
        variance = float(np.square(exact).sum()) / self.size - mean * mean
        return mean, max(variance, 0.0) ** 0.5

    @functools.cached_property
    def _norms(self) -> NDArray[np.float64]:
        """How much its length is held against each tool, by slot."""
        average = self.lengths.sum() / self.size
        norms: NDArray[np.float64] = _K1 * (1 - _B + _B * self.lengths / average)
        return norms

    def _weights(self, posting: Posting) -> NDArray[np.float32]:
        """Return what a term adds to the score of each tool that has it."""
        slots, counts = posting
        rarity = inverse_document_frequency(self.size, len(slots))
        weights = rarity * counts * (_K1 + 1) / (counts + self._norms[slots])
        return weights.astype(np.float32)


def _counted(corpus: Sequence[Sequence[str]]) -> list[dict[str, int]]:
    """Return how often each term occurs in each tool."""
    if not any(corpus):
        return [{} for _ in corpus]  # rank-bm25 divides by the corpus's length.
    counted: Any = BM25Okapi(corpus)
    frequencies: list[dict[str, int]] = counted.doc_freqs
    return frequencies
