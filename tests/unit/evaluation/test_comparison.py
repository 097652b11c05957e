import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_toolrag.evaluation.answering import Answer
from langchain_toolrag.evaluation.comparison import compare
from langchain_toolrag.evaluation.evaluate import QueryResult, SetResult
from langchain_toolrag.evaluation.labelled import LabelledQuery


def results(contender, *measured):
    """A query for every pair of NDCG@10 and completeness@10."""
    return SetResult(
        contender,
        "set",
        3,
        tuple(
            QueryResult(
                LabelledQuery(f"q{number}", f"request {number}", ("a",), {}),
                Answer((), (), 1.0),
                {"ndcg@10": ndcg, "completeness@10": complete},
            )
            for number, (ndcg, complete) in enumerate(measured)
        ),
    )


def test_the_second_is_compared_with_the_first():
    first = results("old", (0.2, 0.0), (0.5, 1.0), (0.4, 0.0), (0.3, 1.0))
    second = results("new", (0.6, 1.0), (0.5, 1.0), (0.5, 1.0), (0.1, 0.0))
    comparison = compare(first, second)
    assert (comparison.first, comparison.second) == ("old", "new")
    assert comparison.difference == pytest.approx(0.075)
    assert (comparison.better, comparison.worse, comparison.equal) == (2, 1, 1)
    assert comparison.p_value == 1.0
    assert [query.id for query in comparison.gained] == ["q0", "q2"]
    assert [query.id for query in comparison.lost] == ["q3"]
    low, high = comparison.interval
    assert low < comparison.difference < high


def test_the_sign_test_is_the_binomial_one():
    first, second = results("a", *[(0.0, 0.0)] * 6), results("b", *[(0.5, 0.0)] * 6)
    assert compare(first, second).p_value == pytest.approx(2 * 0.5**6)


def test_the_interval_of_many_even_differences_excludes_zero():
    first = results("a", *[(0.5, 0.0)] * 40)
    second = results("b", *[(0.6, 0.0), (0.7, 0.0)] * 20)
    low, high = compare(first, second).interval
    assert 0.1 < low < 0.15 < high < 0.2


@pytest.mark.parametrize("queries", [1, 2, 5])
def test_the_same_answers_are_no_different(queries):
    same = results("a", *[(0.5, 1.0)] * queries)
    comparison = compare(same, same)
    assert (comparison.difference, comparison.equal, comparison.p_value) == (0.0, queries, 1.0)
    assert comparison.interval == (None if queries == 1 else (0.0, 0.0))
    assert comparison.gained == comparison.lost == ()


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=20))
def test_a_comparison_turned_round_has_the_opposite_sign(pairs):
    first = results("a", *((one, 0.0) for one, _ in pairs))
    second = results("b", *((two, 0.0) for _, two in pairs))
    there, back = compare(first, second), compare(second, first)
    assert there == compare(first, second)
    assert there.difference == pytest.approx(-back.difference)
    assert (there.better, there.worse) == (back.worse, back.better)
    assert there.interval == pytest.approx(tuple(-end for end in back.interval[::-1]), abs=0.05)
