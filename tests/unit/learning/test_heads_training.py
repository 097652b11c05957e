from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_toolrag.index.heads import Heads
from langchain_toolrag.learning import heads_training
from langchain_toolrag.learning.examples import Example, ExampleSet
from langchain_toolrag.learning.heads import ResidualHeads
from langchain_toolrag.learning.heads_training import Material, train_heads
from langchain_toolrag.learning.options import LearnOptions

DIM, TOOLS = 8, 12
FAST = LearnOptions(steps=12, rate=1e-2, hidden=16, batch=4)
laws = settings(derandomize=True, deadline=None, max_examples=30)


def units(count, seed=0):
    vectors = np.random.default_rng(seed).standard_normal((count, DIM)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def material(*, tools=TOOLS, unwanted=(), unknown=(), general=()):
    """Each of some requests wants a tool that it is not near to."""
    rows = 0.8 * units(tools, 1)
    examples = [
        Example(number, {number: 1.0}, tuple(unwanted), frozenset(unknown)) for number in range(6)
    ]
    own = [Example(number, {number: 1.0}) for number in range(6)]
    return Material(
        [ExampleSet(units(6, 2), rows, examples)],
        [ExampleSet(units(6, 1), rows, own)],
        general,
        units(10, 3),
    )


def weights(heads):
    return [weight.detach().clone() for weight in heads.parameters()]


def quiet(step, heads):
    """Tell nobody."""


def interrupted(step, heads):
    raise KeyboardInterrupt


class TestHeads:
    @given(st.integers(0, 100), st.integers(0, 100))
    @laws
    def test_they_begin_as_the_identity(self, seed, other):
        heads = ResidualHeads(DIM, 16, seed=seed)
        vectors = torch.from_numpy(0.6 * units(5, other))
        assert heads.rows(vectors).tolist() == pytest.approx(np.array(vectors.tolist()), abs=1e-6)
        unit = torch.from_numpy(units(5, other))
        assert heads.requests(unit).tolist() == pytest.approx(np.array(unit.tolist()), abs=1e-6)

    def test_what_is_applied_is_what_was_trained(self):
        heads = train_heads(material(), FAST, quiet)
        applied = Heads(heads.adapter("m", 1.0, {}))
        rows, requests = 0.6 * units(5), units(5, 4)
        with torch.no_grad():
            wanted = heads.rows(torch.from_numpy(rows)).numpy()
            asked = heads.requests(torch.from_numpy(requests)).numpy()
        assert applied.rows(rows) == pytest.approx(wanted, abs=2e-3)
        assert applied.requests(requests) == pytest.approx(asked, abs=2e-3)
        assert np.linalg.norm(wanted, axis=1) == pytest.approx(np.full(5, 0.6), abs=1e-5)

    @given(st.integers(0, 100))
    @laws
    def test_a_scale_of_0_is_the_base_model(self, seed):
        heads = train_heads(material(), replace(FAST, steps=3, seed=seed), quiet)
        nothing = Heads(heads.adapter("m", 0.0, {}))
        assert (nothing.rows(0.6 * units(5)) == 0.6 * units(5)).all()
        assert (nothing.requests(units(5)) == units(5)).all()

    def test_a_row_of_zeros_stays_one_and_makes_no_nan(self):
        zeros = torch.zeros(2, DIM, requires_grad=True)
        heads = train_heads(material(), FAST, quiet)
        moved = heads.rows(zeros)
        moved.sum().backward()
        assert not moved.any()
        assert torch.isfinite(zeros.grad).all()

    def test_an_adapter_does_not_change_when_training_goes_on(self):
        kept = []

        def told(step, heads):
            kept.append(heads.adapter("m", 1.0, {}).tensors["tool.second.weight"])

        train_heads(material(), FAST, told)
        assert not (kept[0] == kept[-1]).all()


class TestTraining:
    def test_the_loss_falls_and_wanted_tools_come_first(self):
        told = []
        heads = train_heads(
            material(), replace(FAST, steps=150, stillness=0, replay=0), lambda s, _: told.append(s)
        )
        assert [step.number for step in told] == list(range(1, 151))
        assert told[-1].loss < told[0].loss / 4
        moved, learned = Heads(heads.adapter("m", 1.0, {})), material().sets[0]
        best = moved.requests(learned.requests) @ moved.rows(learned.rows).T
        assert best.argmax(axis=1).tolist() == list(range(6))

    @pytest.mark.parametrize("steps", [1, 2, 7, 40])
    def test_one_may_look_a_few_times_and_at_the_end(self, steps):
        told = []
        train_heads(material(), replace(FAST, steps=steps), lambda step, _: told.append(step))
        checks = [step.number for step in told if step.is_check]
        assert checks[-1] == steps
        assert len(checks) <= 6

    def test_the_same_seed_trains_the_same_and_another_does_not(self):
        first, second, other = (
            weights(train_heads(material(), replace(FAST, seed=seed), quiet)) for seed in (1, 1, 2)
        )
        assert all(torch.equal(one, two) for one, two in zip(first, second, strict=True))
        assert not torch.equal(first[0], other[0])

    def test_the_dice_of_others_stay_as_they_are(self):
        torch.manual_seed(7)
        wanted = torch.rand(3)
        torch.manual_seed(7)
        train_heads(material(), FAST, quiet)
        assert torch.equal(torch.rand(3), wanted)

    def test_one_thread_trains_and_others_have_theirs_again(self):
        before, seen = torch.get_num_threads(), []
        torch.set_num_threads(2)
        try:
            train_heads(material(), FAST, lambda *_: seen.append(torch.get_num_threads()))
            with pytest.raises(KeyboardInterrupt):
                train_heads(material(), FAST, interrupted)
            assert torch.get_num_threads() == 2
        finally:
            torch.set_num_threads(before)
        assert set(seen) == {1}

    def test_what_a_tool_is_that_is_always_unknown_makes_no_difference(self):
        """Its row is moved by the same head, but it has no say in how the head is."""
        plain = replace(FAST, replay=0)
        one, other = material(unknown=[11]), material(unknown=[11])
        other.sets[0].rows[11] = -other.sets[0].rows[11]
        first, second = (weights(train_heads(each, plain, quiet)) for each in (one, other))
        for left, right in zip(first, second, strict=True):
            assert left.tolist() == pytest.approx(np.array(right.tolist()), abs=1e-6)

    def test_stillness_keeps_general_vectors_where_they_are(self):
        distances = []
        for stillness in (0, 100):
            chosen = replace(FAST, steps=100, stillness=stillness)
            heads = train_heads(material(), chosen, quiet)
            still = torch.from_numpy(units(10, 3))
            distances.append(float((heads.requests(still) - still).norm(dim=1).mean().detach()))
        assert distances[1] < distances[0] / 2

    def test_general_pairs_are_not_forgotten(self):
        theirs = ExampleSet(units(5, 8), units(5, 9), [Example(n, {n: 1.0}) for n in range(5)])
        chosen = replace(FAST, steps=150, stillness=0)
        heads = train_heads(material(general=[theirs]), chosen, quiet)
        moved = Heads(heads.adapter("m", 1.0, {}))
        best = moved.requests(theirs.requests) @ moved.rows(theirs.rows).T
        assert best.argmax(axis=1).tolist() == list(range(5))

    def test_of_a_large_catalogue_what_is_known_is_always_seen(self, monkeypatch):
        monkeypatch.setattr(heads_training, "_MOST_TOOLS", 10)
        dice = np.random.default_rng(0)
        batch = [Example(0, {38: 1.0}, (5, 39)), Example(1, {2: 0.3})]
        columns = heads_training._columns(batch, 40, dice).tolist()
        assert columns == sorted(set(columns))
        assert {38, 5, 39, 2} <= set(columns)
        assert len(columns) <= 10
        train_heads(material(tools=40, unwanted=[38, 39], unknown=[20]), FAST, quiet)

    def test_every_example_is_drawn_before_any_comes_again(self):
        learned = material().sets[0]
        deck = heads_training._Deck(learned, np.random.default_rng(0))
        drawn = [each.request for _ in range(6) for each in deck.draw(4)]
        assert len(drawn) == 24
        for start in range(0, 24, 6):
            assert sorted(drawn[start : start + 6]) == list(range(6))


class TestOptions:
    @pytest.mark.parametrize("name", ["steps", "rate", "batch", "hidden"])
    @pytest.mark.parametrize("value", [0, -1, float("nan")])
    def test_what_is_not_above_0_is_an_error_that_names_it(self, name, value):
        with pytest.raises(ValueError, match=f"{name} is {value}; wanted more than 0"):
            LearnOptions(**{name: value})

    @pytest.mark.parametrize("name", ["replay", "stillness"])
    def test_what_is_below_0_is_an_error_that_names_it(self, name):
        LearnOptions(**{name: 0})
        with pytest.raises(ValueError, match=f"{name} is -1; wanted 0 or more"):
            LearnOptions(**{name: -1})
