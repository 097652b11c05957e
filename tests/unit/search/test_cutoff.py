import math

import pytest
from documents import make_evidence

from langchain_toolrag.search.cutoff import Cutoff
from langchain_toolrag.types import Hit


def ranking(*scores, named=0):
    """A ranking whose first `named` tools the query names."""
    return [
        Hit(str(rank), score, rank, make_evidence(str(rank), score, exact=rank <= named))
        for rank, score in enumerate(scores, start=1)
    ]


HITS = ranking(0.9, 0.85, 0.7, 0.6, 0.1, -0.4)


@pytest.mark.parametrize("k", [1, 3, 6])
def test_a_fixed_count_returns_exactly_so_many(k):
    assert Cutoff(k=k).apply(HITS) == HITS[:k]


def test_a_fixed_count_returns_no_more_than_there_are():
    assert Cutoff(k=100).apply(HITS) == HITS


def test_a_fixed_count_ignores_what_is_adaptive():
    assert len(Cutoff(k=5, margin=0, completeness=0, max_k=2).apply(HITS)) == 5
    assert len(Cutoff(k=5).apply(ranking(*[1.0] * 9, named=9))) == 5


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


@pytest.mark.parametrize("least", [1, 2, 4])
def test_a_completeness_of_nothing_returns_the_least(least):
    assert len(Cutoff(completeness=0, min_k=least).apply(HITS)) == least


@pytest.mark.parametrize("completeness", [0, 1e-6])
def test_next_to_no_completeness_returns_the_best_and_its_equals(completeness):
    cutoff = Cutoff(completeness=completeness, min_k=0)
    assert len(cutoff.apply(ranking(0.5, 0.5, 0.5, 0.4))) == 3


@pytest.mark.parametrize(("average", "count"), [(-0.5, 6), (0.0, 5), (0.25, 4), (0.875, 1)])
@pytest.mark.parametrize("completeness", [1, 1 - 1e-6])
def test_full_completeness_returns_what_is_better_than_the_average_tool(
    average, count, completeness
):
    assert Cutoff(completeness=completeness).apply(HITS, average) == HITS[:count]


def test_full_completeness_returns_no_more_than_the_most():
    assert len(Cutoff(completeness=1, max_k=4).apply(HITS, -1.0)) == 4


def test_a_higher_completeness_returns_more():
    falling = ranking(*(1 - place / 20 for place in range(20)))
    counts = [
        len(Cutoff(completeness=share, max_k=20).apply(falling)) for share in (0.3, 0.5, 0.7, 0.9)
    ]
    assert counts == sorted(set(counts))


def test_a_ranking_that_falls_off_sharply_is_cut_sooner_than_a_flat_one():
    assert len(Cutoff().apply(ranking(1.0, 0.2, 0.2, 0.1))) == 1
    assert len(Cutoff().apply(ranking(1.0, 0.9, 0.9, 0.1))) == 3


def test_what_counts_is_the_lead_over_the_average_tool_not_the_score():
    assert len(Cutoff().apply(ranking(1.0, 0.9, 0.3), average=0.2)) == 2
    assert len(Cutoff().apply(ranking(1.0, 0.9, 0.3), average=0.88)) == 1


@pytest.mark.parametrize("completeness", [0, 0.75, 1])
def test_where_all_are_below_average_the_best_and_its_equals_are_returned(completeness):
    hits = ranking(-0.1, -0.1, -0.2, -0.3)
    assert len(Cutoff(completeness=completeness).apply(hits, average=0.4)) == 2


@pytest.mark.parametrize("rule", [{"completeness": 0}, {"margin": 0}, {}])
def test_every_tool_that_the_query_names_is_returned_beyond_the_most(rule):
    hits = ranking(*(2 - place / 100 for place in range(12)), 0.5, 0.4, named=12)
    assert len(Cutoff(**rule, max_k=10).apply(hits, average=0.1)) == 12


def test_a_named_tool_does_not_keep_others_out_that_come_close():
    assert len(Cutoff(margin=0.3).apply(ranking(1.0, 0.9, 0.8, 0.1, named=1))) == 3


@pytest.mark.parametrize("completeness", [0, 0.75, 1])
def test_a_margin_is_followed_instead_of_completeness(completeness):
    cutoff = Cutoff(margin=0.1, completeness=completeness)
    assert cutoff.apply(HITS, average=0.5) == HITS[:2]


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
        ({"completeness": -0.1}, "completeness is -0.1; wanted 0 to 1"),
        ({"completeness": 75}, "completeness is 75; wanted 0 to 1"),
        ({"completeness": math.nan}, "completeness is nan; wanted 0 to 1"),
    ],
)
def test_a_cutoff_that_means_nothing_is_an_error(fields, message):
    with pytest.raises(ValueError, match=message):
        Cutoff(**fields)
