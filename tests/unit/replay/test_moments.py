from types import MappingProxyType

import pytest
from fakes import make_tool
from hypothesis import given
from hypothesis import strategies as st

from langchain_toolrag.catalogue.catalogue import build_catalogue
from langchain_toolrag.replay.moments import (
    THEN,
    A,
    B,
    Binding,
    Called,
    Moment,
    Replay,
    Tally,
    binding,
    binding_then,
    called_tools,
)

some_tools = st.lists(st.sampled_from("abcdefgh"), unique=True).map(tuple)


def moment(first, second, called=(), then=None, number=1):
    """Bindings of tools of ten tokens each, written as words of one letter a tool."""
    sides = {THEN: then, A: first, B: second}
    bound = {
        side: Binding(tuple(tools), 10 * len(tools))
        for side, tools in sides.items()
        if tools is not None
    }
    return Moment({"step": number}, "", bound, tuple(Called((tool,)) for tool in called))


def replay(*moments):
    return Replay("searches", {A: "old", B: "new"}, (A, B), moments)


@given(some_tools, some_tools)
def test_the_second_binds_what_the_first_does_and_what_is_gained_but_not_what_is_lost(old, new):
    compared = moment(old, new)
    gained, lost = compared.gained(A, B), compared.lost(A, B)
    assert set(gained).isdisjoint(lost)
    assert set(new) == (set(old) | set(gained)) - set(lost)
    assert compared.gained(B, A) == lost


@given(some_tools)
def test_a_side_gains_and_loses_nothing_against_itself(tools):
    same = replay(moment(tools, tools))
    assert (same.changed, same.largest(10)) == ([], [])


@given(some_tools, some_tools, some_tools)
def test_called_tools_are_lost_where_the_first_binds_them_and_the_second_does_not(old, new, called):
    compared = moment(old, new, called)
    assert compared.calls_lost(A, B) == len(set(called) & set(old) - set(new))


def test_a_side_is_summarised_over_the_moments_that_it_is_known_for():
    replayed = replay(moment("ab", "a", called="b", then="abc"), moment("ab", "abcd", called="cx"))
    then, old, new = map(replayed.summary, replayed.sides)
    assert (then.moments, then.tools, then.tokens, then.recall) == (1, 3, 30, 1)
    assert (old.moments, old.tools, old.tokens) == (2, 2, 20)
    assert (old.called, old.called_bound, old.recall) == (3, 1, pytest.approx(1 / 3))
    assert (new.tools, new.called_bound) == (2.5, 1)


def test_nothing_replayed_has_no_means():
    nothing = replay().summary(A)
    assert (nothing.moments, nothing.tools, nothing.tokens, nothing.recall) == (0, None, None, None)


def test_the_largest_differences_lose_called_tools_or_many():
    small, large, called, same = (
        moment("ab", "ac", number=1),
        moment("abc", "def", number=2),
        moment("ab", "a", called="b", number=3),
        moment("ab", "ab", number=4),
    )
    replayed = replay(small, large, called, same)
    assert replayed.largest(10) == [called, large, small]
    assert replayed.largest(1) == [called]
    assert replayed.largest(0) == []


def test_of_equal_differences_the_earliest_comes_first():
    first, second = moment("a", "b", number=1), moment("c", "d", number=2)
    assert replay(first, second).largest(2) == [first, second]


def test_moments_without_one_of_the_compared_sides_are_not_compared():
    known, unknown = moment("a", "b", then="b"), moment("a", "b")
    replayed = Replay("model steps", {A: "old"}, (THEN, A), (known, unknown))
    assert replayed.comparable == [known]
    assert replayed.changed == [known]


def test_tokens_are_those_of_the_definitions_and_unknown_tools_have_none():
    catalogue = build_catalogue([make_tool("one", "Does one."), make_tool("two", "Does two.")])
    both = binding(["two", "gone", "one", "two"], catalogue)
    assert both == Binding(("two", "one"), sum(entry.tokens for entry in catalogue))


def test_what_was_bound_then_and_is_gone_is_counted_and_not_compared():
    catalogue, tally = build_catalogue([make_tool("one")]), Tally()
    assert binding_then(("one", "gone"), catalogue, tally).tools == ("one",)
    assert tally.gone == {"gone": 1}


def test_a_call_is_of_the_tool_of_that_name_or_id_and_others_are_counted():
    tools = [make_tool("one", server="s"), make_tool("two", server="s")]
    catalogue, tally = build_catalogue(tools, on_duplicate="id"), Tally()
    names = {"s__one": "ok", "s/two": "timeout", "search_tools": ""}
    called = called_tools(MappingProxyType(names), catalogue, tally)
    assert called == (Called(("s/one",), "ok"), Called(("s/two",), "timeout"))
    assert tally.unknown_calls == {"search_tools": 1}


def test_a_name_that_several_have_now_may_mean_any_of_them():
    tools = [make_tool("find", server="a"), make_tool("find", server="b")]
    catalogue = build_catalogue(tools, on_duplicate="prefix")
    (called,) = called_tools({"find": ""}, catalogue, Tally())
    assert called.tools == ("a/find", "b/find")
    assert called.is_in(Binding(("b/find",), 0))
    assert not called.is_in(Binding((), 0))
