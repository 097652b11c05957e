import math

import numpy as np
import pytest
from reference_bm25 import PositiveBM25

from langchain_toolrag.index.lexical import LexicalIndex, inverse_document_frequency

CORPUS = [["send", "mail"], ["list", "mail", "mail"], ["play", "song"], []]


def index_of(corpus):
    return LexicalIndex().with_tools(corpus)


def coverage(corpus, query):
    return index_of(corpus).coverage(query, np.arange(len(corpus)))


@pytest.mark.parametrize("corpus", [[], [[]], [[], []]])
def test_a_corpus_without_terms_scores_nothing(corpus):
    scores = index_of(corpus).scores(["mail"])
    assert scores.tolist() == [0.0] * len(corpus)


def test_a_tool_without_a_shared_term_scores_exactly_nothing():
    scores = index_of(CORPUS).scores(["mail"])
    assert scores[0] > 0
    assert scores[2] == scores[3] == 0.0


@pytest.mark.parametrize("query", [[], ["unknown"], [""]])
def test_a_query_without_a_known_term_scores_nothing(query):
    assert not index_of(CORPUS).scores(query).any()


@pytest.mark.parametrize("copies", [1, 2, 50])
def test_a_term_that_every_tool_has_still_counts(copies):
    assert (index_of([["mail"]] * copies).scores(["mail"]) > 0).all()


def test_a_rarer_term_counts_more():
    scores = index_of([["a", "x"], ["a", "y"], ["a", "z"]]).scores(["a", "x"])
    assert scores[0] > scores[1] == scores[2]


def test_repeats_of_a_term_count_less_and_less():
    index = index_of([["a"] * count + ["b"] * (10 - count) for count in (1, 2, 3)])
    one, two, three = index.scores(["a"]).tolist()
    assert one < two < three
    assert three - two < two - one


def test_a_shorter_text_counts_more():
    short, long = index_of([["mail"], ["mail", *"abcdefgh"]]).scores(["mail"])
    assert short > long


def test_a_term_asked_for_twice_counts_twice():
    index = index_of(CORPUS)
    assert np.allclose(index.scores(["mail", "mail"]), 2 * index.scores(["mail"]))


def test_a_score_is_that_of_the_formula():
    inverse_frequency = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5))
    average_length = 7 / 4
    saturation = 2 * 2.5 / (2 + 1.5 * (0.25 + 0.75 * 3 / average_length))
    score = index_of(CORPUS).scores(["mail"])[1]
    assert score == pytest.approx(inverse_frequency * saturation, rel=1e-6)


def test_scores_are_rank_bm25s_own():
    query = ["mail", "song", "unknown", "mail"]
    reference = PositiveBM25(CORPUS).get_scores(query)
    assert index_of(CORPUS).scores(query) == pytest.approx(reference, abs=1e-5)


class TestCoverage:
    @pytest.mark.parametrize("corpus", [[], [[]], [[], []]])
    def test_a_corpus_without_terms_covers_nothing(self, corpus):
        assert coverage(corpus, ["mail"]).tolist() == [0.0] * len(corpus)

    @pytest.mark.parametrize("query", [[], ["unknown"], ["un", "known"]])
    def test_a_query_without_a_known_term_is_covered_by_none(self, query):
        assert coverage(CORPUS, query).tolist() == [0.0] * 4

    def test_a_tool_that_has_every_term_covers_all(self):
        covered = coverage(CORPUS, ["mail", "send"])
        assert covered[0] == pytest.approx(1.0)
        assert 0 < covered[1] < 1
        assert covered[2:].tolist() == [0.0, 0.0]

    def test_repeats_count_once_in_the_query_and_in_the_tool(self):
        query = ["mail", "list", "mail", "mail"]
        assert coverage(CORPUS, query) == pytest.approx(coverage(CORPUS, ["list", "mail"]))
        assert coverage(CORPUS, ["mail"])[:2] == pytest.approx([1.0, 1.0])

    def test_a_rarer_term_is_a_larger_share(self):
        covered = coverage([["a", "x"], ["a"], ["x"], ["a"]], ["a", "x"])
        assert covered[2] > covered[1] == covered[3]
        assert covered[1] + covered[2] == pytest.approx(1.0)

    def test_a_term_that_no_tool_has_is_the_largest_share(self):
        send, unknown = inverse_document_frequency(4, 1), inverse_document_frequency(4, 0)
        assert unknown > send
        covered = coverage(CORPUS, ["send", "unknown"])
        assert covered[0] == pytest.approx(send / (send + unknown))

    def test_it_is_that_of_the_tools_asked_for_in_their_order(self):
        everything = coverage(CORPUS, ["mail", "send"])
        some = index_of(CORPUS).coverage(["mail", "send"], np.array([3, 1, 0]))
        assert some.tolist() == everything[[3, 1, 0]].tolist()

    def test_it_is_never_above_one(self):
        terms = [f"term{number}" for number in range(3000)]
        assert coverage([terms, []], terms)[0] == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("size", [1, 2, 100])
def test_the_inverse_document_frequency_is_above_zero_and_falls_with_the_count(size):
    found = [inverse_document_frequency(size, count) for count in range(size + 1)]
    assert found == sorted(found, reverse=True)
    assert found[-1] > 0


class TestChanges:
    QUERY = ("mail", "song", "list")

    def test_an_added_tool_scores_as_if_it_had_always_been_there(self):
        grown = index_of(CORPUS[:2]).with_tools(CORPUS[2:])
        assert grown.scores(self.QUERY).tolist() == index_of(CORPUS).scores(self.QUERY).tolist()

    def test_without_a_tool_the_others_score_as_if_it_had_never_been_there(self):
        left = index_of(CORPUS).without({1: CORPUS[1]})
        alone = index_of([CORPUS[0], *CORPUS[2:]])
        expected = alone.scores(self.QUERY).tolist()
        assert left.scores(self.QUERY).tolist() == [expected[0], 0.0, *expected[1:]]

    def test_a_change_leaves_the_index_as_it_was(self):
        index = index_of(CORPUS)
        before = index.scores(self.QUERY).tolist()
        index.without({1: CORPUS[1]}).with_tools([["mail"]])
        assert index.scores(self.QUERY).tolist() == before

    def test_an_untouched_term_is_shared_with_the_index_before(self):
        index = index_of(CORPUS)
        after = index.without({1: CORPUS[1]}).with_tools([["mail"]])
        assert after.postings.by_word["song"] is index.postings.by_word["song"]
        assert after.postings.by_word["mail"].slots.tolist() == [0, 4]

    def test_a_term_that_no_tool_has_any_more_is_forgotten(self):
        left = index_of(CORPUS).without({2: CORPUS[2]})
        assert "song" not in left.postings.by_word

    def test_all_tools_may_be_taken_out(self):
        left = index_of(CORPUS).without(dict(enumerate(CORPUS)))
        assert (left.size, left.scores(self.QUERY).tolist()) == (0, [0.0] * 4)

    def test_the_spread_counts_the_tools_that_are_there_only(self):
        left = index_of(CORPUS).without({1: CORPUS[1]})
        scores = left.scores(self.QUERY)
        there = scores[[0, 2, 3]].astype(float)
        assert left.spread(scores) == pytest.approx((there.mean(), there.std()), abs=1e-6)
