from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_toolrag.learning.mining import Answered
from langchain_toolrag.learning.traffic import agreement, call_rates, guessed, traffic_of

START = datetime(2026, 11, 3, 9, tzinfo=timezone.utc)
TOOLS = ["a", "b", "c", "d"]
# The request r1 scores them 0.9, 0.5, 0.502 and 0.1; r2 the other way round.
ROWS = np.array([[0.9, 0.1], [0.5, 0.3], [0.502, 0.2], [0.1, 0.9]], np.float32)
VECTORS = {
    "r1": np.array([1, 0], np.float32),
    "r2": np.array([0, 1], np.float32),
    "zero": np.zeros(2, np.float32),
    "long": np.ones(3, np.float32),
}

laws = settings(derandomize=True, deadline=None)


def answered(called, *, request="r1", shown=TOOLS, silent=(), minutes=0):
    called = called if isinstance(called, dict) else dict.fromkeys(called, 1.0)
    time = START + timedelta(minutes=minutes)
    return Answered(time, request, called, frozenset(silent), tuple(shown))


def traffic(*searches, left_out=None):
    return traffic_of(searches, VECTORS, ROWS, TOOLS, Counter() if left_out is None else left_out)


def only_example(*searches):
    made = traffic(*searches)
    return made.examples(made.searches).examples[0]


def test_shown_and_not_called_is_not_wanted():
    example = only_example(answered("a"))
    assert example.wanted == {0: 1.0}
    assert example.unwanted == (1, 2, 3)
    assert example.unknown == frozenset()


def test_what_scores_like_the_called_tool_is_unknown():
    example = only_example(answered("b"))
    assert (example.unwanted, example.unknown) == ((0, 3), {2})


def test_what_scores_better_than_the_called_tool_was_passed_over():
    assert 0 in only_example(answered("d")).unwanted


def test_a_tool_that_was_called_to_no_end_is_unknown():
    example = only_example(answered("a", silent=["d"]))
    assert (example.unwanted, example.unknown) == ((1, 2), {3})


def test_a_tool_that_the_same_request_called_at_another_time_is_unknown():
    example = only_example(answered("a"), answered("d", minutes=1))
    assert (example.wanted, example.unwanted, example.unknown) == ({0: 1.0}, (1, 2), {3})


def test_what_another_request_called_makes_no_difference():
    example = only_example(answered("a"), answered("d", request="r2"))
    assert 3 in example.unwanted


def test_tools_that_were_not_shown_are_neither():
    example = only_example(answered("a", shown=["a", "b"]))
    assert (example.unwanted, example.unknown) == ((1,), frozenset())


@pytest.mark.parametrize("repeats", [1, 4, 49])
def test_what_is_asked_and_answered_the_same_way_often_counts_as_the_root_of_it(repeats):
    made = traffic(*(answered("a") for _ in range(repeats)), answered("b", request="r2"))
    *same, other = made.examples(made.searches).examples
    assert sum(each.weight for each in same) == pytest.approx(repeats**0.5)
    assert other.weight == 1.0


def test_a_tools_error_counts_less_as_a_whole():
    assert only_example(answered({"a": 0.3})).weight == pytest.approx(0.3)
    assert only_example(answered({"a": 0.3, "d": 1.0})).weight == 1.0


def test_what_has_no_vector_or_no_tool_any_more_is_left_out_and_counted():
    left_out = Counter()
    made = traffic(
        answered("a"),
        answered("a", request="unheard of"),
        answered("a", request="zero"),
        answered("a", request="long"),
        answered({"gone": 1.0}, shown=["gone", "a"]),
        left_out=left_out,
    )
    assert len(made.searches) == 1
    assert left_out == {
        "searches whose request has no vector of this model": 3,
        "searches whose called tools are gone": 1,
    }


def test_of_a_search_the_tools_that_are_gone_are_left_out():
    search = answered({"a": 1.0, "gone": 1.0}, shown=["a", "gone", "b", "lost"], silent=["lost"])
    (kept,) = traffic(search).searches
    assert (kept.called, kept.shown, kept.silent) == ({"a": 1.0}, ("a", "b"), frozenset())


@given(st.integers(2, 200))
@laws
def test_the_newest_fifth_is_held_out(count):
    made = traffic(*(answered("a", minutes=minute) for minute in range(count)))
    older, newest = made.split()
    assert [*older, *newest] == made.searches
    assert len(newest) == max(1, round(count / 5))
    assert max(each.time for each in older) < min(each.time for each in newest)


searches = st.lists(
    st.tuples(
        st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True),
        st.integers(1, 3),
        st.integers(0, 2),
    ),
    max_size=8,
)


@given(searches, st.integers(0, 99))
@laws
def test_the_control_calls_as_many_tools_among_those_shown(drawn, seed):
    real = [
        answered(shown[:called], shown=shown, silent=shown[called : called + silent])
        for shown, called, silent in drawn
    ]
    guesses = guessed(real, seed)
    assert guesses == guessed(real, seed)
    for before, after in zip(real, guesses, strict=True):
        assert sorted(after.called.values()) == sorted(before.called.values())
        assert after.called.keys() <= set(before.shown) - before.silent
        assert replace(after, called=before.called) == before


def test_the_control_draws_every_tool_shown_about_as_often():
    drawn = guessed([answered("a")] * 2000, seed=0)
    counts = Counter(tool for each in drawn for tool in each.called)
    assert counts.keys() == set(TOOLS)
    assert min(counts.values()) > 400


def test_how_popular_a_tool_is_is_the_share_of_searches_that_show_it_and_call_it():
    searches = [answered("a"), answered("a"), answered("b"), answered("a", shown=["a", "b"])]
    assert call_rates(searches) == {"a": 3 / 4, "b": 1 / 4, "c": 0.0, "d": 0.0}


def test_by_popularity_a_tool_that_is_never_called_is_not_drawn_where_another_is_left():
    searches = [answered("a"), answered("b")] * 200
    drawn = guessed(searches, 0, call_rates(searches))
    counts = Counter(tool for each in drawn for tool in each.called)
    assert counts.keys() == {"a", "b"}
    assert 150 < counts["a"] < 250


def test_where_too_few_are_popular_the_rest_is_drawn_too():
    search = answered(["a", "b"])
    (drawn,) = guessed([search], 0, {"a": 1.0, "b": 0.0, "c": 0.0, "d": 0.0})
    assert len(drawn.called) == 2
    assert "a" in drawn.called


def test_searches_agree_where_the_same_tools_are_called():
    first = [answered("a"), answered(["a", "b"]), answered("c"), answered("d")]
    second = [answered("a"), answered(["b", "a"]), answered("b"), answered(["d", "a"])]
    assert agreement(first, second) == 0.5
