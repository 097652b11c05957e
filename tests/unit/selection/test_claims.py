import logging

import pytest

from langchain_toolrag.selection.claims import Claims, admitted, ordered


def claims(**names):
    """Claims from words: `claims(sticky="a b")`."""
    return Claims(**{kind: tuple(words.split()) for kind, words in names.items()})


def test_everybody_is_admitted_while_there_is_room():
    everyone = claims(required="r", always="a", sticky="s", fresh="f", called="c", kept="k")
    assert admitted(everyone, 6) == set("rasfck")


NEIGHBOURS = [
    ({"required": "wins", "sticky": "loses"}, 1),
    ({"always": "wins", "sticky": "loses"}, 1),
    ({"sticky": "wins", "fresh": "best loses"}, 2),
    ({"fresh": "wins", "called": "loses"}, 1),
    ({"called": "wins", "kept": "loses"}, 1),
]


@pytest.mark.parametrize(("both", "places"), NEIGHBOURS, ids=["-".join(b) for b, _ in NEIGHBOURS])
def test_the_earlier_claim_is_served_before_the_next(both, places):
    bound = admitted(claims(**both), places)
    assert "wins" in bound
    assert "loses" not in bound


def test_neither_what_is_required_nor_what_is_always_wanted_gives_way():
    assert admitted(claims(required="r", always="a"), 1) == {"r", "a"}


@pytest.mark.parametrize("kind", ["sticky", "fresh", "called", "kept"])
def test_within_a_claim_the_first_is_served_first(kind):
    assert admitted(claims(**{kind: "a b c"}), 2) == {"a", "b"}


def test_the_oldest_sticky_tool_gives_way_to_the_best_fresh_hit():
    assert admitted(claims(sticky="s1 s2 s3", fresh="f1 f2"), 3) == {"s1", "s2", "f1"}


@pytest.mark.parametrize(
    ("kept", "places", "bound"),
    [("abcdefgh", 8, "abcdefgh"), ("abcdefghi", 8, "abcdef"), ("abcde", 4, "abc"), ("ab", 1, "a")],
)
def test_where_kept_tools_have_to_go_a_quarter_of_the_places_stays_free(kept, places, bound):
    assert admitted(Claims(kept=kept), places) == set(bound)


def test_calls_of_the_history_may_take_the_quarter_that_kept_tools_may_not():
    assert admitted(Claims(called="abcd", kept="ef"), 4) == set("abcd")


def test_only_the_best_fresh_hit_is_kept_a_place_for():
    assert admitted(claims(sticky="s1 s2", fresh="f1 f2"), 2) == {"s1", "f1"}


def test_no_place_is_kept_where_nothing_fresh_was_found():
    assert admitted(claims(sticky="s1 s2 s3"), 3) == {"s1", "s2", "s3"}


def test_a_best_hit_that_is_sticky_anyway_takes_no_second_place():
    assert admitted(claims(sticky="s1 s2 s3", fresh="s1 f2"), 3) == {"s1", "s2", "s3"}


def test_a_best_hit_that_is_the_oldest_sticky_tool_still_has_its_place():
    assert "s3" in admitted(claims(sticky="s1 s2 s3", fresh="s3"), 2)


def test_a_best_hit_that_may_not_be_left_out_anyway_takes_no_second_place():
    assert admitted(claims(always="a", sticky="s1 s2", fresh="a f2"), 3) == {"a", "s1", "s2"}


def test_a_single_place_goes_to_the_best_fresh_hit():
    assert admitted(claims(sticky="s", fresh="f"), 1) == {"f"}


@pytest.mark.parametrize("places", [2, 1, 0, -3])
def test_what_may_not_be_left_out_is_all_kept_with_a_warning(places, caplog):
    bound = admitted(claims(required="r1 r2", always="a", sticky="s", fresh="f"), places)
    assert bound == {"r1", "r2", "a"}
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "3 tools may not be left out" in record.message
    assert f"{max(places, 0)} places" in record.message


def test_what_may_not_be_left_out_and_just_fits_needs_no_warning(caplog):
    assert admitted(claims(required="r", always="r a", fresh="f"), 2) == {"r", "a"}
    assert caplog.records == []


@pytest.mark.parametrize("places", [0, -3])
def test_where_no_place_is_left_nothing_is_bound_and_a_warning_says_why(places, caplog):
    assert admitted(claims(sticky="s", fresh="f", loaded="l", kept="k"), places) == set()
    (record,) = caplog.records
    assert record.message.startswith("no tool is selected: what passes through takes all places")


def test_without_claims_nothing_is_bound():
    assert admitted(Claims(), 24) == admitted(Claims(), 0) == set()


def test_a_conversation_starts_with_what_is_always_bound_then_the_hits_in_rank_order():
    order = ordered("fgrsa", claims(always="a", fresh="g f", required="r", sticky="s"), ())
    assert order == ("a", "g", "f", "r", "s")


def test_what_was_bound_before_stays_where_it_was():
    order = ordered("xyf", claims(always="y", fresh="f y", kept="x"), ("x", "y"))
    assert order == ("x", "y", "f")


def test_what_goes_leaves_the_order_of_the_rest():
    assert ordered("xzf", claims(fresh="f"), ("x", "y", "z")) == ("x", "z", "f")


def test_a_tool_with_many_claims_is_bound_once():
    assert ordered("a", claims(always="a", fresh="a", sticky="a", kept="a"), ("a",)) == ("a",)
