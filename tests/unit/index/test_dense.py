import numpy as np
import pytest

from langchain_toolrag.index.dense import DenseIndex

DIM = 16
SIZE = 40


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


@pytest.fixture
def rows():
    return unit(np.random.default_rng(7).normal(size=(SIZE, DIM)))


@pytest.fixture
def query():
    return unit(np.random.default_rng(8).normal(size=DIM))


@pytest.fixture
def index(rows):
    return DenseIndex.empty(DIM).with_rows(range(100, 100 + SIZE), rows)


def test_scores_are_the_exact_inner_products(index, rows, query):
    scores = index.search(query, SIZE)
    assert sorted(scores) == list(range(100, 100 + SIZE))
    assert [scores[100 + row] for row in range(SIZE)] == pytest.approx(rows @ query, abs=1e-6)


def test_the_best_come_first(index, rows, query):
    best = 100 + np.argsort(-(rows @ query))[:5]
    assert list(index.search(query, 5)) == best.tolist()


def test_no_more_are_returned_than_there_are(index, query):
    assert len(index.search(query, 1000)) == SIZE


@pytest.mark.parametrize("k", [0, -1])
def test_nothing_is_returned_where_nothing_is_asked_for(index, query, k):
    assert index.search(query, k) == {}


def test_an_empty_index_returns_nothing(query):
    index = DenseIndex.empty(DIM)
    assert (index.size, index.dim) == (0, DIM)
    assert index.search(query, 3) == {}
    assert index.spread(query) == (0.0, 0.0)


def test_only_allowed_keys_are_returned_and_as_many_as_asked_for(index, rows, query):
    allowed = np.arange(101, 100 + SIZE, 2)
    best = allowed[np.argsort(-(rows @ query)[allowed - 100])][:7]
    assert list(index.search(query, 7, allowed)) == best.tolist()


def test_fewer_allowed_keys_than_asked_for_are_all_returned(index, query):
    assert set(index.search(query, 10, np.array([103, 117]))) == {103, 117}


def test_no_allowed_key_returns_nothing(index, query):
    assert index.search(query, 10, np.array([], np.int64)) == {}


def test_scores_of_given_keys_are_those_of_the_search(index, query):
    keys = [139, 100, 117]
    found = index.search(query, SIZE)
    scores = index.scores(query, keys)
    assert list(scores) == keys
    assert scores == pytest.approx({key: found[key] for key in keys}, abs=1e-6)
    assert index.scores(query, []) == {}


def test_rows_come_back_as_they_went_in(index, rows):
    assert np.array_equal(index.rows([139, 100]), rows[[39, 0]])
    assert index.rows([]).shape == (0, DIM)


def test_adding_rows_leaves_the_index_as_it_was(index, rows, query):
    before = index.search(query, SIZE)
    larger = index.with_rows([7], query[np.newaxis])
    assert (index.size, larger.size) == (SIZE, SIZE + 1)
    assert index.search(query, SIZE) == before
    assert next(iter(larger.search(query, 1))) == 7


def test_removing_rows_leaves_the_index_as_it_was(index, rows, query):
    before = index.search(query, SIZE)
    best, second, *_ = before
    smaller = index.without([best])
    assert (index.size, smaller.size) == (SIZE, SIZE - 1)
    assert index.search(query, SIZE) == before
    assert next(iter(smaller.search(query, 1))) == second
    assert np.array_equal(smaller.rows([100 if best != 100 else 101])[0], rows[int(best == 100)])


def test_removing_nothing_copies_nothing(index):
    assert index.without([]) is index


def test_a_key_may_come_back_after_it_was_removed(index, query):
    again = index.without([100]).with_rows([100], query[np.newaxis])
    assert again.size == SIZE
    assert again.scores(query, [100])[100] == pytest.approx(1.0)


def test_an_index_may_be_emptied(index, query):
    emptied = index.without(range(100, 100 + SIZE))
    assert emptied.search(query, 5) == {}
    assert emptied.spread(query) == (0.0, 0.0)


def test_the_spread_is_mean_and_deviation_of_all_scores(index, rows, query):
    scores = rows.astype(float) @ query.astype(float)
    assert index.spread(query) == pytest.approx((scores.mean(), scores.std()), abs=1e-5)


def test_the_spread_after_a_change_is_that_of_the_rows_left(index, rows, query):
    scores = rows[10:].astype(float) @ query.astype(float)
    spread = index.without(range(100, 110)).spread(query)
    assert spread == pytest.approx((scores.mean(), scores.std()), abs=1e-5)


def test_equal_rows_have_no_deviation(query):
    index = DenseIndex.empty(DIM).with_rows(range(9), np.tile(query, (9, 1)))
    assert index.spread(query) == pytest.approx((1.0, 0.0), abs=1e-3)
