import math

import numpy as np
import pytest

from langchain_toolrag.index.lexical import (
    LexicalIndex,
    PositiveBM25,
    inverse_document_frequency,
)

CORPUS = [["send", "mail"], ["list", "mail", "mail"], ["play", "song"], []]


@pytest.mark.parametrize("corpus", [[], [[]], [[], []]])
def test_a_corpus_without_terms_scores_nothing(corpus):
    scores = LexicalIndex(corpus).scores(["mail"])
    assert scores.tolist() == [0.0] * len(corpus)


def test_a_tool_without_a_shared_term_scores_exactly_nothing():
    scores = LexicalIndex(CORPUS).scores(["mail"])
    assert scores[0] > 0
    assert scores[2] == scores[3] == 0.0


@pytest.mark.parametrize("query", [[], ["unknown"], [""]])
def test_a_query_without_a_known_term_scores_nothing(query):
    assert not LexicalIndex(CORPUS).scores(query).any()


@pytest.mark.parametrize("copies", [1, 2, 50])
def test_a_term_that_every_tool_has_still_counts(copies):
    assert (LexicalIndex([["mail"]] * copies).scores(["mail"]) > 0).all()


def test_a_rarer_term_counts_more():
    scores = LexicalIndex([["a", "x"], ["a", "y"], ["a", "z"]]).scores(["a", "x"])
    assert scores[0] > scores[1] == scores[2]


def test_repeats_of_a_term_count_less_and_less():
    index = LexicalIndex([["a"] * count + ["b"] * (10 - count) for count in (1, 2, 3)])
    one, two, three = index.scores(["a"]).tolist()
    assert one < two < three
    assert three - two < two - one


def test_a_shorter_text_counts_more():
    short, long = LexicalIndex([["mail"], ["mail", *"abcdefgh"]]).scores(["mail"])
    assert short > long


def test_a_term_asked_for_twice_counts_twice():
    index = LexicalIndex(CORPUS)
    assert np.allclose(index.scores(["mail", "mail"]), 2 * index.scores(["mail"]))


def test_a_score_is_that_of_the_formula():
    inverse_frequency = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5))
    average_length = 7 / 4
    saturation = 2 * 2.5 / (2 + 1.5 * (0.25 + 0.75 * 3 / average_length))
    score = LexicalIndex(CORPUS).scores(["mail"])[1]
    assert score == pytest.approx(inverse_frequency * saturation, rel=1e-6)


def test_scores_are_rank_bm25s_own():
    query = ["mail", "song", "unknown", "mail"]
    reference = PositiveBM25(CORPUS).get_scores(query)
    assert LexicalIndex(CORPUS).scores(query) == pytest.approx(reference, abs=1e-5)


class TestCoverage:
    @pytest.mark.parametrize("corpus", [[], [[]], [[], []]])
    def test_a_corpus_without_terms_covers_nothing(self, corpus):
        assert LexicalIndex(corpus).coverage(["mail"]).tolist() == [0.0] * len(corpus)

    @pytest.mark.parametrize("query", [[], ["unknown"], ["un", "known"]])
    def test_a_query_without_a_known_term_is_covered_by_none(self, query):
        assert LexicalIndex(CORPUS).coverage(query).tolist() == [0.0] * 4

    def test_a_tool_that_has_every_term_covers_all(self):
        covered = LexicalIndex(CORPUS).coverage(["mail", "send"])
        assert covered[0] == pytest.approx(1.0)
        assert 0 < covered[1] < 1
        assert covered[2:].tolist() == [0.0, 0.0]

    def test_repeats_count_once_in_the_query_and_in_the_tool(self):
        index = LexicalIndex(CORPUS)
        query = ["mail", "list", "mail", "mail"]
        assert index.coverage(query) == pytest.approx(index.coverage(["list", "mail"]))
        assert index.coverage(["mail"])[:2] == pytest.approx([1.0, 1.0])

    def test_a_rarer_term_is_a_larger_share(self):
        covered = LexicalIndex([["a", "x"], ["a"], ["x"], ["a"]]).coverage(["a", "x"])
        assert covered[2] > covered[1] == covered[3]
        assert covered[1] + covered[2] == pytest.approx(1.0)

    def test_a_term_that_no_tool_has_is_the_largest_share(self):
        send, unknown = inverse_document_frequency(4, 1), inverse_document_frequency(4, 0)
        assert unknown > send
        covered = LexicalIndex(CORPUS).coverage(["send", "unknown"])
        assert covered[0] == pytest.approx(send / (send + unknown))

    def test_it_is_never_above_one(self):
        terms = [f"term{number}" for number in range(3000)]
        assert LexicalIndex([terms, []]).coverage(terms)[0] == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("size", [1, 2, 100])
def test_the_inverse_document_frequency_is_above_zero_and_falls_with_the_count(size):
    found = [inverse_document_frequency(size, count) for count in range(size + 1)]
    assert found == sorted(found, reverse=True)
    assert found[-1] > 0
