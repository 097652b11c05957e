import math

import numpy as np
import pytest

from langchain_toolrag.index.lexical import LexicalIndex, PositiveBM25

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
