from datetime import datetime, timedelta, timezone

import pytest

from langchain_toolrag.learning.mining import mine
from langchain_toolrag.usage.records import CallRecord, Retrieved, SearchRecord

START = datetime(2026, 11, 3, 9, tzinfo=timezone.utc)


def at(minutes):
    return START + timedelta(minutes=minutes)


def search(name, *tools, minutes=0, request="r1", **fields):
    retrieved = tuple(Retrieved(tool, rank, 0.5) for rank, tool in enumerate(tools, 1))
    return SearchRecord(
        at(minutes), name, fields.pop("kind", "select"), "semantic", request, retrieved, **fields
    )


def call(tool, outcome="ok", *, of="s1", minutes=1, **fields):
    return CallRecord(at(minutes), "", tool, outcome, of, **fields)


def test_a_call_that_went_well_is_wanted_and_the_rest_was_shown():
    (found,), left_out = mine([search("s1", "a", "b", "c"), call("b")])
    assert (found.request, found.called, found.shown) == ("r1", {"b": 1.0}, ("a", "b", "c"))
    assert found.silent == frozenset()
    assert not left_out


@pytest.mark.parametrize(("outcome", "sureness"), [("ok", 1.0), ("tool_error", 0.3)])
def test_a_tools_error_is_weaker_than_a_success(outcome, sureness):
    (found,), _ = mine([search("s1", "a", "b"), call("a", outcome)])
    assert found.called == {"a": sureness}


@pytest.mark.parametrize("outcome", ["refused", "timeout"])
def test_a_refused_call_and_a_timeout_say_nothing(outcome):
    searches, left_out = mine([search("s1", "a", "b"), call("a", outcome)])
    assert searches == []
    assert left_out == {"searches whose calls were all refused or timed out": 1}


@pytest.mark.parametrize("outcome", ["refused", "timeout"])
def test_beside_a_success_such_a_tool_is_silent(outcome):
    (found,), _ = mine([search("s1", "a", "b", "c"), call("a", outcome), call("c")])
    assert (found.called, found.silent) == ({"c": 1.0}, {"a"})


def test_the_best_of_several_calls_of_a_tool_counts():
    calls = [call("a", outcome) for outcome in ("timeout", "tool_error", "ok", "refused")]
    (found,), _ = mine([search("s1", "a", "b"), *calls])
    assert (found.called, found.silent) == ({"a": 1.0}, frozenset())


def test_all_tools_that_were_called_are_one_example():
    (found,), _ = mine([search("s1", "a", "b"), call("a"), call("b", "tool_error")])
    assert found.called == {"a": 1.0, "b": 0.3}


def test_what_was_bound_was_shown_too():
    (found,), _ = mine([search("s1", "a", bound=("always", "a")), call("always")])
    assert (found.shown, found.called) == (("a", "always"), {"always": 1.0})


def test_a_call_without_its_search_or_of_another_tenant_is_counted_and_no_example():
    records = [search("s1", "a", tenant="t1"), call("a", tenant="t2"), call("z", tenant="t1")]
    searches, left_out = mine([*records, call("a", of="")])
    assert searches == []
    assert left_out == {"calls without the search that showed their tool": 3}


def test_a_search_that_nobody_followed_says_nothing():
    assert mine([search("s1", "a", "b")]) == ([], {})


def test_tools_that_the_caller_brought_are_none_of_the_catalogue():
    searches, left_out = mine([search("s1", "a", "b", kind="rank"), call("a")])
    assert searches == []
    assert left_out == {"searches of tools that the caller brought": 1}


def test_searches_are_in_order_of_time_and_not_of_their_calls():
    records = [
        search("s1", "a", minutes=0, request="first"),
        search("s2", "b", minutes=1, request="second"),
        call("b", of="s2", minutes=2),
        call("a", of="s1", minutes=3),
    ]
    searches, _ = mine(records)
    assert [found.request for found in searches] == ["first", "second"]
