import pytest

from langchain_toolrag.usage.summary import UsageSummary, summarise


def test_an_empty_log_says_that_nothing_was_retrieved():
    summary = summarise([], ["a", "b"])
    assert summary == UsageSummary(never_retrieved=("a", "b"))
    assert summary.hit_rate(1) is None


def test_searches_are_counted_by_kind_and_mode_and_calls_by_outcome(search, call):
    records = [
        search("1"),
        search("2", kind="select", mode="lexical"),
        search("3"),
        call("a"),
        call("a", outcome="timeout"),
        call("b"),
    ]
    summary = summarise(records)
    assert summary.searches == {"search": 2, "select": 1}
    assert summary.modes == {"semantic": 2, "lexical": 1}
    assert summary.outcomes == {"ok": 2, "timeout": 1}
    assert (summary.first, summary.last) == (records[0].time, records[-1].time)


def test_searches_are_counted_by_the_heads_that_answered_them(search):
    records = [
        search("1"),
        search("2", heads="ab"),
        search("3", heads="cd"),
        search("4", heads="ab"),
    ]
    assert summarise(records).heads == {"ab": 2, "cd": 1}
    assert summarise(records[:1]).heads == {}


def test_the_hit_rate_is_that_of_calls_which_belong_to_a_search(search, call):
    summary = summarise(
        [
            search("1", ["a", "b", "c"], bound=("d",)),
            call("a", "1"),
            call("c", "1"),
            call("d", "1"),  # Bound, at no rank.
            call("e", "1"),  # The search did not show it.
            call("c", "1"),
        ]
    )
    assert summary.tied == 4
    assert summary.ranks == {1: 1, 3: 2}
    assert [summary.hit_rate(k) for k in (1, 2, 3)] == [0.25, 0.25, 0.75]


def test_tools_that_are_never_retrieved_or_never_called_are_named(search, call):
    records = [
        search("1", ["a", "b", "c"]),
        search("2", ["c", "b"], bound=("b", "kept")),
        call("a", "1"),
        call("unasked"),
    ]
    summary = summarise(records, ["z", "a", "b", "kept", "y"])
    assert summary.never_retrieved == ("z", "y")
    assert summary.never_called == (("b", 2), ("c", 2), ("kept", 1))


@pytest.mark.parametrize(
    ("tools", "confidence", "bad"),
    [(["a"], None, 0), (["a"], 0.5, 0), (["a"], 0.49, 1), ([], None, 1), ([], 0.9, 1)],
)
def test_a_search_without_a_good_hit_found_nothing_or_was_not_sure(search, tools, confidence, bad):
    assert summarise([search("1", tools, confidence=confidence)]).without_good_hit == bad


def test_a_selection_that_bound_a_small_catalogue_whole_is_not_one_that_found_nothing(search):
    assert summarise([search("1", kind="select", bound=("a", "b"))]).without_good_hit == 0
