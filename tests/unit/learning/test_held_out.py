import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_toolrag.index.heads import Heads
from langchain_toolrag.learning.examples import Example, ExampleSet
from langchain_toolrag.learning.heads import ResidualHeads
from langchain_toolrag.learning.held_out import choose_scale, difference, reciprocal_ranks

ROWS = np.array([[0.9, 0], [0.5, 0], [0.5, 0.1], [0.1, 0]], np.float32)
REQUEST = np.array([[1, 0]], np.float32)


def rank_of(wanted, unknown=()):
    wanted = wanted if isinstance(wanted, dict) else {wanted: 1.0}
    example = Example(0, wanted, unknown=frozenset(unknown))
    return reciprocal_ranks(ExampleSet(REQUEST, ROWS, [example]), None)[0]


def test_a_tool_is_sought_among_all():
    assert (rank_of(0), rank_of(3)) == (1.0, 1 / 4)


def test_tools_with_the_same_score_share_the_mean_of_their_ranks():
    assert rank_of(1) == rank_of(2) == 1 / 2.5


def test_an_unknown_tool_is_not_looked_at():
    assert rank_of(3, unknown=[0, 1]) == 1 / 2


def test_of_several_wanted_tools_the_mean_counts_by_how_sure_they_are():
    assert rank_of({0: 1.0, 3: 0.3}) == pytest.approx((1 + 0.3 / 4) / 1.3)


def adapter_at(vectors):
    """Heads that were given weights at random, so that they move something."""
    heads = ResidualHeads(2, 4, seed=0)
    for weight in heads.parameters():
        weight.data += 0.5
    return lambda scale: heads.adapter("m", scale, {})


def test_a_scale_of_0_is_the_base_model():
    tests = ExampleSet(REQUEST, ROWS, [Example(0, {place: 1.0}) for place in range(4)])
    nothing = Heads(adapter_at(None)(0.0))
    assert (nothing.rows(ROWS) == ROWS).all()
    chosen = choose_scale(adapter_at(None), [tests])
    assert chosen.scales[0.0] == pytest.approx(reciprocal_ranks(tests, None).mean())
    assert (chosen.base[0] == reciprocal_ranks(tests, None)).all()


def test_what_is_as_good_as_the_base_model_is_not_applied():
    heads = ResidualHeads(2, 4, seed=0)
    tests = ExampleSet(REQUEST, ROWS, [Example(0, {0: 1.0})])
    assert choose_scale(lambda scale: heads.adapter("m", scale, {}), [tests]).scale == 0.0


def test_of_several_sets_the_mean_of_their_means_counts():
    small = ExampleSet(REQUEST, ROWS, [Example(0, {3: 1.0})])
    large = ExampleSet(REQUEST, ROWS, [Example(0, {0: 1.0})] * 9)
    heads = ResidualHeads(2, 4, seed=0)
    chosen = choose_scale(lambda scale: heads.adapter("m", scale, {}), [small, large])
    assert chosen.scales[0.0] == pytest.approx((1 / 4 + 1) / 2)


class TestDifference:
    def test_of_independent_requests_it_is_the_standard_error_of_the_mean(self):
        first, second = np.array([1.0, 0.5, 1.0, 0.2]), np.array([0.5, 0.5, 0.25, 0.2])
        found = difference(first, second, [0, 1, 2, 3])
        gained = first - second
        assert found.mean == pytest.approx(gained.mean())
        assert found.error == pytest.approx(gained.std(ddof=1) / 2)

    def test_a_request_asked_fifty_times_is_one_observation(self):
        once = difference(np.array([1.0, 0.2]), np.array([0.5, 0.3]), [0, 1])
        often = difference(np.repeat([1.0, 0.2], 50), np.repeat([0.5, 0.3], 50), [0, 1] * 50)
        repeated = difference(
            np.repeat([1.0, 0.2], 50), np.repeat([0.5, 0.3], 50), np.repeat([0, 1], 50)
        )
        assert repeated.error == pytest.approx(once.error)
        assert often.groups == repeated.groups == 2

    def test_one_request_tells_nothing(self):
        found = difference(np.ones(30), np.zeros(30), [7] * 30)
        assert (found.error, found.groups, found.is_sure) == (math.inf, 1, False)

    def test_no_difference_is_none(self):
        assert not difference(np.ones(30), np.ones(30), list(range(30))).is_sure

    @pytest.mark.parametrize(("gain", "is_sure"), [(0.05, False), (0.079, False), (0.083, True)])
    def test_it_is_sure_beyond_two_standard_errors(self, gain, is_sure):
        noise = np.tile([0.4, -0.4], 50)
        found = difference(gain + noise, np.zeros(100), list(range(100)))
        assert found.error == pytest.approx(0.04, rel=0.02)
        assert found.is_sure is is_sure

    def test_where_requests_are_few_it_takes_more(self):
        few = difference(np.array([0.5, 0.1, 0.3]), np.zeros(3), [0, 1, 2])
        assert few.mean > 2 * few.error
        assert not few.is_sure

    @given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(0, 5)), min_size=1))
    @settings(derandomize=True, deadline=None)
    def test_better_one_way_is_not_better_the_other_way(self, drawn):
        first, second, groups = map(np.array, zip(*drawn, strict=True))
        there, back = difference(first, second, groups), difference(second, first, groups)
        assert there.mean == pytest.approx(-back.mean)
        assert not (there.is_sure and back.is_sure)
