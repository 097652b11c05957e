import numpy as np
import pytest

from langchain_toolrag.index import dense
from langchain_toolrag.index.dense import DenseIndex, Peaks

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
    return DenseIndex(DIM).with_rows(range(SIZE), rows)


def scores(index, query):
    """The scores by slot, of the slots that have a row."""
    found = index.scores(query)
    return {slot: float(found[slot]) for slot in np.flatnonzero(index.present).tolist()}


def test_scores_are_the_exact_inner_products(index, rows, query):
    assert index.scores(query) == pytest.approx(rows @ query, abs=1e-6)


def test_equal_rows_have_equal_scores_wherever_they_stand(rows, query):
    index = DenseIndex(DIM).with_rows(range(3 * SIZE), np.tile(rows, (3, 1)))
    found = index.scores(query).reshape(3, SIZE)
    assert (found == found[0]).all()


def test_an_empty_index_scores_nothing(query):
    index = DenseIndex(DIM)
    assert (index.size, index.dim) == (0, DIM)
    assert scores(index, query) == {}


def test_a_query_of_another_dimension_is_refused(index):
    with pytest.raises(ValueError, match=r"shape \(3,\); wanted \(16,\)"):
        index.scores(np.zeros(3, np.float32))


def test_a_query_of_another_precision_is_scored_the_same(index, query):
    assert scores(index, query.astype(float)) == scores(index, query)


def test_rows_come_back_as_they_went_in(index, rows):
    assert np.array_equal(index.rows([39, 0]), rows[[39, 0]])
    assert index.rows([]).shape == (0, DIM)
    assert DenseIndex(DIM).rows([]).shape == (0, DIM)


def test_rows_may_come_in_any_order_and_leave_slots_free(rows, query):
    index = DenseIndex(DIM).with_rows([7, 2], rows[:2]).with_rows([4], rows[[2]])
    assert index.present.tolist() == [slot in (2, 4, 7) for slot in range(8)]
    expected = {7: rows[0] @ query, 2: rows[1] @ query, 4: rows[2] @ query}
    assert scores(index, query) == pytest.approx(expected, abs=1e-6)


def test_adding_rows_leaves_the_index_as_it_was(index, query):
    before = scores(index, query)
    larger = index.with_rows([SIZE], query[np.newaxis])
    assert (index.size, larger.size) == (SIZE, SIZE + 1)
    assert scores(index, query) == before
    assert scores(larger, query) == {**before, SIZE: pytest.approx(1.0)}


def test_removing_rows_leaves_the_index_as_it_was(index, rows, query):
    before = scores(index, query)
    smaller = index.without([3, 5])
    assert (index.size, smaller.size) == (SIZE, SIZE - 2)
    assert scores(index, query) == before
    assert scores(smaller, query) == {s: v for s, v in before.items() if s not in (3, 5)}
    assert np.array_equal(smaller.rows([4])[0], rows[4])


def test_removing_nothing_copies_nothing(index):
    assert index.without([]) is index


def test_a_larger_index_shares_its_memory_with_the_smaller(index, rows):
    larger = index.with_rows([SIZE], rows[[0]])
    largest = larger.with_rows([SIZE + 1], rows[[1]])
    assert largest._memory is larger._memory


def test_rows_are_not_copied_where_there_was_room_for_more(rows, query):
    first = DenseIndex(DIM).with_rows(range(4), rows[:4], room=SIZE)
    whole = first.with_rows(range(4, SIZE), rows[4:], room=SIZE)
    assert whole._memory is first._memory
    assert (len(first.scores(query)), len(whole.scores(query))) == (4, SIZE)


def test_two_indexes_that_grow_from_one_do_not_see_each_other(index, rows, query):
    grown = index.with_rows([SIZE], rows[[0]])
    one = grown.with_rows([SIZE + 1], rows[[1]])
    other = grown.with_rows([SIZE + 1], rows[[2]])
    assert np.array_equal(one.rows([SIZE + 1]), rows[[1]])
    assert np.array_equal(other.rows([SIZE + 1]), rows[[2]])
    assert grown.present.tolist() == [True] * (SIZE + 1)


def test_a_slot_may_be_used_again_and_an_older_index_keeps_the_old_row(index, rows, query):
    again = index.without([0]).with_rows([0], query[np.newaxis])
    assert again.size == SIZE
    assert scores(again, query)[0] == pytest.approx(1.0)
    assert np.array_equal(index.rows([0]), rows[[0]])


def test_an_index_may_be_emptied(index, query):
    emptied = index.without(range(SIZE))
    assert (emptied.size, scores(emptied, query)) == (0, {})


class TestHalfPrecision:
    COUNT, QUERIES, WIDE = 3000, 500, 384

    @pytest.fixture
    def vectors(self):
        return unit(np.random.default_rng(1).normal(size=(self.COUNT + self.QUERIES, self.WIDE)))

    @pytest.fixture
    def halves(self, vectors, monkeypatch):
        monkeypatch.setattr(dense, "_MOST_SINGLE", 1000)
        return DenseIndex(self.WIDE).with_rows(range(self.COUNT), vectors[: self.COUNT])

    def test_it_halves_the_memory(self, halves, vectors):
        whole = DenseIndex(self.WIDE).with_rows(range(900), vectors[:900])
        assert halves._memory.rows.itemsize == 2
        assert whole._memory.rows.itemsize == 4

    def test_the_ten_best_are_those_of_single_precision(self, halves, vectors):
        rows, queries = vectors[: self.COUNT], vectors[self.COUNT :]
        kept = 0
        for query in queries:
            best = set(np.argsort(-(rows @ query))[:10])
            kept += len(best & set(np.argsort(-halves.scores(query))[:10]))
        assert kept / (10 * len(queries)) >= 0.999

    def test_scores_are_close_to_those_of_single_precision(self, halves, vectors):
        query = vectors[-1]
        assert np.abs(halves.scores(query) - vectors[: self.COUNT] @ query).max() < 2e-4

    @pytest.mark.parametrize("count", [1001, 1023, 1024, 1025, 1280])
    def test_every_row_has_a_score_whatever_their_number(self, monkeypatch, vectors, count):
        monkeypatch.setattr(dense, "_MOST_SINGLE", 1000)
        index = DenseIndex(self.WIDE).with_rows(range(count), vectors[:count])
        rounded = vectors[:count].astype(np.float16).astype(np.float32)
        assert index.scores(vectors[5]) == pytest.approx(rounded @ vectors[5], abs=1e-6)

    def test_an_index_that_grows_above_the_threshold_keeps_its_rows(self, monkeypatch, vectors):
        monkeypatch.setattr(dense, "_MOST_SINGLE", 1000)
        small = DenseIndex(self.WIDE).with_rows(range(1000), vectors[:1000])
        large = small.with_rows([1000], vectors[[1000]])
        assert np.array_equal(small.rows([3]), vectors[[3]])
        assert large.rows([3, 1000]) == pytest.approx(vectors[[3, 1000]], abs=2e-4)

    def test_its_rows_come_back_as_they_are_scored(self, halves, vectors):
        again = DenseIndex(self.WIDE).with_rows(range(self.COUNT), halves.rows(range(self.COUNT)))
        query = vectors[-1]
        assert np.array_equal(again.scores(query), halves.scores(query))


class TestPeaks:
    @pytest.fixture
    def requests(self):
        return unit(np.random.default_rng(9).normal(size=(5, DIM)))

    def test_they_are_the_best_scores_and_where_they_are(self, index, rows, requests):
        peaks, products = Peaks.of(requests, index), requests @ rows.T
        assert peaks.scores == pytest.approx(products.max(axis=1), abs=1e-6)
        assert peaks.slots.tolist() == products.argmax(axis=1).tolist()
        assert peaks.median == pytest.approx(np.median(products.max(axis=1)), abs=1e-6)

    def test_without_rows_the_median_is_nothing(self, requests):
        assert Peaks.of(requests, DenseIndex(DIM)).median == 0.0

    def test_rows_that_come_and_go_leave_what_all_rows_have(self, index, rows, requests):
        peaks = Peaks.of(requests, index)
        larger = index.with_rows([SIZE, SIZE + 1], requests[:2])
        risen = peaks.with_rows([SIZE, SIZE + 1], larger)
        assert risen.slots[:2].tolist() == [SIZE, SIZE + 1]
        assert risen.scores.tolist() == Peaks.of(requests, larger).scores.tolist()
        smaller = larger.without([SIZE, SIZE + 1])
        fallen = risen.without([SIZE, SIZE + 1], smaller)
        assert fallen.scores.tolist() == peaks.scores.tolist()

    def test_the_loss_of_other_rows_changes_nothing(self, index, requests):
        peaks = Peaks.of(requests, index)
        other = next(slot for slot in range(SIZE) if slot not in peaks.slots)
        assert peaks.without([other], index.without([other])) is peaks

    def test_of_an_index_that_lost_all_rows_the_median_is_nothing(self, index, requests):
        peaks = Peaks.of(requests, index)
        assert peaks.without(range(SIZE), index.without(range(SIZE))).median == 0.0
