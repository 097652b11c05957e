import math

import pytest
from documents import make_evidence

from langchain_toolrag.search.cutoff import Cutoff
from langchain_toolrag.types import Hit


def ranking(*scores):
    return [
        Hit(str(rank), score, rank, make_evidence(str(rank), score))
        for rank, score in enumerate(scores, start=1)
    ]


HITS = ranking(0.9, 0.85, 0.7, 0.6, 0.1, -0.4)


@pytest.mark.parametrize("k", [1, 3, 6])
def test_a_fixed_count_returns_exactly_so_many(k):
    assert Cutoff(k=k).apply(HITS) == HITS[:k]


def test_a_fixed_count_returns_no_more_than_there_are():
    assert Cutoff(k=100).apply(HITS) == HITS


def test_a_fixed_count_ignores_what_is_adaptive():
    assert len(Cutoff(k=5, margin=0, max_k=2).apply(HITS)) == 5


@pytest.mark.parametrize(
    ("margin", "count"), [(0, 1), (0.1, 2), (0.25, 3), (0.35, 4), (1.0, 5), (2.0, 6), (math.inf, 6)]
)
def test_adaptive_returns_what_comes_within_the_margin_of_the_best(margin, count):
    assert Cutoff(margin=margin).apply(HITS) == HITS[:count]


def test_a_score_at_the_margin_is_within_it():
    assert len(Cutoff(margin=0.25).apply(ranking(1.0, 0.75, 0.5))) == 2


def test_equals_of_the_best_are_within_a_margin_of_nothing():
    assert len(Cutoff(margin=0).apply(ranking(0.5, 0.5, 0.5, 0.4))) == 3


def test_adaptive_returns_no_more_than_its_most():
    assert len(Cutoff(margin=9, max_k=4).apply(HITS)) == 4


def test_adaptive_returns_no_fewer_than_its_least():
    assert len(Cutoff(margin=0, min_k=3).apply(HITS)) == 3
    assert len(Cutoff(margin=0, min_k=10).apply(HITS)) == len(HITS)


def test_adaptive_may_be_told_to_return_nothing():
    assert Cutoff(min_k=0, max_k=0).apply(HITS) == []


@pytest.mark.parametrize("cutoff", [Cutoff(), Cutoff(k=3), Cutoff(min_k=5)])
def test_nothing_stays_nothing(cutoff):
    assert cutoff.apply([]) == []


def test_the_limit_is_the_most_that_can_be_returned():
    assert Cutoff(k=3, max_k=7).limit == 3
    assert Cutoff(max_k=7).limit == 7


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"k": 0}, "k is 0"),
        ({"k": -1}, "k is -1"),
        ({"min_k": 4, "max_k": 3}, "min_k is 4 and max_k 3"),
        ({"min_k": -1}, "min_k is -1"),
        ({"margin": -0.1}, "margin is -0.1"),
        ({"margin": math.nan}, "margin is nan"),
    ],
)
def test_a_cutoff_that_means_nothing_is_an_error(fields, message):
    with pytest.raises(ValueError, match=message):
        Cutoff(**fields)
