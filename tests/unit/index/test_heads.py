import dataclasses
import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_toolrag.errors import AdapterError, EmbeddingError
from langchain_toolrag.index.adapter import Adapter, write_adapter
from langchain_toolrag.index.heads import Heads, read_heads

DIM, HIDDEN = 8, 4
MODEL = "NamedEmbeddings(hashing-1)"

laws = settings(derandomize=True, deadline=None, max_examples=200)
seeds = st.integers(0, 10**6)
counts = st.integers(0, 5)


def weights(seed=0, *, spread=1.0, dim=DIM):
    """Weights of two heads; without a spread they are the identity."""
    dice = np.random.default_rng(seed)
    shapes = {
        "first.weight": (HIDDEN, dim),
        "first.bias": (HIDDEN,),
        "second.weight": (dim, HIDDEN),
        "second.bias": (dim,),
    }
    return {
        f"{side}.{name}": dice.normal(size=shape) * (spread if "second" in name else 1)
        for side in ("request", "tool")
        for name, shape in shapes.items()
    }


def adapter_of(tensors=None, *, scale=1.0, kind="heads", base=MODEL):
    return Adapter(kind, base, scale, weights() if tensors is None else tensors, {})


def heads_of(seed=0, *, spread=1.0, scale=1.0):
    return Heads(adapter_of(weights(seed, spread=spread), scale=scale))


def rows_of(count, seed):
    """Rows of many lengths, from very short to long."""
    dice = np.random.default_rng(seed)
    return (dice.normal(size=(count, DIM)) * 10.0 ** dice.integers(-3, 2, (count, 1))).astype("f4")


def units_of(count, seed):
    rows = rows_of(count, seed)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class TestMoving:
    @laws
    @given(seeds, counts)
    def test_heads_that_learned_nothing_change_nothing_to_the_last_bit(self, seed, count):
        rows, units = rows_of(count, seed), units_of(count, seed)
        for heads in (heads_of(seed, spread=0.0), heads_of(seed, scale=0.0)):
            assert np.array_equal(heads.rows(rows), rows)
            assert np.array_equal(heads.requests(units), units)
            assert all(np.array_equal(heads.request(unit), unit) for unit in units)

    @laws
    @given(seeds, counts, st.floats(0, 1))
    def test_moved_requests_have_length_one(self, seed, count, scale):
        moved = heads_of(seed, scale=scale).requests(units_of(count, seed))
        assert (moved.shape, moved.dtype) == ((count, DIM), np.float32)
        assert np.linalg.norm(moved, axis=1) == pytest.approx(np.ones(count), abs=1e-5)

    @laws
    @given(seeds, counts, st.floats(0, 1))
    def test_a_moved_row_is_as_long_as_it_was(self, seed, count, scale):
        rows = rows_of(count, seed)
        moved = heads_of(seed, scale=scale).rows(rows)
        assert (moved.shape, moved.dtype) == ((count, DIM), np.float32)
        lengths = [np.linalg.norm(each, axis=1) for each in (moved, rows)]
        assert lengths[0] == pytest.approx(lengths[1], rel=1e-5)

    @laws
    @given(seeds, st.floats(0.1, 10))
    def test_where_a_row_is_moved_does_not_depend_on_its_length(self, seed, factor):
        rows, heads = units_of(3, seed), heads_of(seed)
        factor = np.float32(factor)
        assert heads.rows(factor * rows) == pytest.approx(factor * heads.rows(rows), rel=1e-3)

    @laws
    @given(seeds)
    def test_one_request_is_moved_as_it_is_among_many(self, seed):
        units, heads = units_of(5, seed), heads_of(seed)
        assert np.stack([*map(heads.request, units)]) == pytest.approx(
            heads.requests(units), abs=1e-6
        )

    @pytest.mark.parametrize("scale", [0.0, 1.0])
    def test_zero_stays_zero_whoever_its_neighbours_are(self, scale):
        heads, vectors = heads_of(scale=scale), units_of(3, 1)
        vectors[1] = 0
        for moved in (heads.requests(vectors), heads.rows(vectors)):
            assert moved[1].tolist() == [0.0] * DIM
            assert moved[[0, 2]].any(axis=1).all()
        assert heads.request(vectors[1]).tolist() == [0.0] * DIM

    def test_requests_and_tools_have_a_head_each(self):
        heads, units = heads_of(), units_of(5, 1)
        assert np.abs(heads.requests(units) - heads.rows(units)).max() > 0.1

    def test_a_vector_is_moved_by_what_its_head_says_and_the_scale(self):
        tensors = weights(dim=2)
        for name in ("first.weight", "first.bias", "second.weight"):
            tensors[f"tool.{name}"][:] = 0
        tensors["tool.first.weight"][0] = [1.0, -1.0]
        tensors["tool.first.bias"][0] = 0.5
        tensors["tool.second.weight"][:, 0] = [2.0, 4.0]
        tensors["tool.second.bias"][:] = [0.0, 1.0]
        heads = Heads(adapter_of(tensors, scale=0.5))
        # The hidden value of (1, 0) is 1.5, so (3, 7) is added by half; (0, 1) has a hidden 0.
        moved = heads.rows(np.array([[1, 0], [0, 1], [3, 0]], np.float32))
        first = np.array([2.5, 3.5]) / np.hypot(2.5, 3.5)
        assert moved == pytest.approx(np.array([first, [0, 1], 3 * first]))

    def test_a_vector_that_is_moved_to_nowhere_is_zero_and_not_nan(self):
        tensors = {name: tensor * 0 for name, tensor in weights().items()}
        tensors["request.second.bias"][0] = tensors["tool.second.bias"][0] = -1
        heads, units = Heads(adapter_of(tensors)), np.eye(1, DIM, dtype=np.float32)
        assert heads.rows(units).tolist() == heads.requests(units).tolist() == [[0.0] * DIM]

    def test_what_is_given_is_left_as_it_was(self):
        units = units_of(5, 1)
        before = units.copy()
        heads_of().rows(units)
        heads_of().requests(units)
        assert np.array_equal(units, before)

    def test_no_vectors_are_moved_to_no_vectors(self):
        none = np.zeros((0, DIM), np.float32)
        assert heads_of().rows(none).shape == heads_of().requests(none).shape == (0, DIM)


class TestWhatTheyAre:
    def test_they_say_what_they_are_of(self):
        adapter = adapter_of(scale=0.4)
        heads = Heads(adapter)
        assert heads.adapter is adapter
        assert (heads.base, heads.scale, heads.dim) == (MODEL, 0.4, DIM)

    def test_their_digest_is_that_of_their_file(self, tmp_path):
        path = tmp_path / "a.safetensors"
        write_adapter(adapter_of(), path)
        assert read_heads(path).digest == hashlib.sha256(path.read_bytes()).hexdigest()

    def test_without_a_file_it_is_that_of_what_they_do(self):
        digest = Heads(adapter_of()).digest
        assert len(bytes.fromhex(digest)) == 32
        assert Heads(adapter_of(weights())).digest == digest
        others = [
            Heads(adapter_of(weights(1))),
            Heads(adapter_of(scale=0.5)),
            Heads(adapter_of(base="another model")),
            Heads(adapter_of({name: each.astype("f4") for name, each in weights().items()})),
        ]
        assert len({digest, *(heads.digest for heads in others)}) == 5

    def test_the_card_makes_no_other_heads(self):
        noted = dataclasses.replace(adapter_of(), card={"pairs": 20})
        assert Heads(noted).digest == Heads(adapter_of()).digest

    def test_they_are_not_changed(self):
        heads = heads_of()
        for name in ("adapter", "digest", "base", "scale"):
            with pytest.raises(AttributeError):
                setattr(heads, name, None)

    def test_a_low_rank_adapter_is_no_heads(self):
        low_rank = adapter_of({"a.up": np.ones((3, 1)), "a.down": np.ones((1, 3))}, kind="low-rank")
        with pytest.raises(AdapterError, match=r"is a low-rank one of .*; wanted heads"):
            Heads(low_rank)


class TestReading:
    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "heads.safetensors"
        write_adapter(adapter_of(scale=0.7), path)
        return path

    def test_what_was_written_is_read_to_half_precision(self, path):
        read, units = read_heads(path, MODEL), units_of(5, 1)
        assert (read.base, read.scale, read.dim) == (MODEL, 0.7, DIM)
        assert read.rows(units) == pytest.approx(heads_of(scale=0.7).rows(units), abs=1e-2)

    def test_without_a_model_those_of_any_are_read(self, path):
        assert read_heads(path).base == MODEL

    def refused(self, path, model=MODEL):
        with pytest.raises(AdapterError) as caught:
            read_heads(path, model)
        assert caught.value.adapter == path
        assert isinstance(caught.value, EmbeddingError)
        return str(caught.value)

    def test_those_of_another_model_are_refused_with_both_names(self, path):
        message = self.refused(path, "NamedEmbeddings(hashing-2)")
        assert f"holds heads of {MODEL}; wanted heads of NamedEmbeddings(hashing-2)" in message

    def test_a_low_rank_adapter_is_refused_with_what_to_do_with_it(self, tmp_path):
        path = tmp_path / "low-rank.safetensors"
        tensors = {"a.up": np.ones((3, 1)), "a.down": np.ones((1, 3))}
        write_adapter(adapter_of(tensors, kind="low-rank"), path)
        message = self.refused(path)
        assert f"is a low-rank one of {MODEL}; wanted heads" in message
        assert "give it as MiniLMEmbeddings(adapter=...)" in message

    @pytest.mark.parametrize("length", [0, 5, 100, -1])
    def test_a_torn_file_is_refused(self, path, length):
        path.write_bytes(path.read_bytes()[:length])
        assert "cannot be read" in self.refused(path)

    def test_a_file_and_a_folder_in_the_place_of_one_that_is_not_there_are_refused(self, tmp_path):
        assert "cannot be read" in self.refused(tmp_path / "nowhere.safetensors")
        assert "cannot be read" in self.refused(tmp_path)

    def test_an_edited_file_is_refused_even_right_after_it_was_read(self, path):
        content = bytearray(path.read_bytes())
        read_heads(path)
        content[-2] ^= 1
        path.write_bytes(content)
        assert "edited or damaged" in self.refused(path)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_weights_that_are_not_finite_are_refused(self, tmp_path, bad):
        tensors = weights()
        tensors["tool.second.bias"][3] = bad
        path = tmp_path / "heads.safetensors"
        write_adapter(adapter_of(tensors), path)
        assert "not finite" in self.refused(path)

    def test_two_heads_for_vectors_of_other_dimensions_are_refused(self, tmp_path):
        tensors = weights() | {
            name: tensor for name, tensor in weights(dim=6).items() if name.startswith("tool")
        }
        path = tmp_path / "heads.safetensors"
        write_adapter(adapter_of(tensors), path)
        assert "tool.first.weight has shape (4, 6); wanted (4, 8)" in self.refused(path)
