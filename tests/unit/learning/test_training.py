import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
import torch
from documents import make_document
from fakes import AsymmetricEmbeddings, HashingEmbeddings, NamedEmbeddings
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_toolrag.index.adapter import read_adapter, write_adapter
from langchain_toolrag.index.heads import HeadedEmbeddings
from langchain_toolrag.learning.finetune import finetune
from langchain_toolrag.learning.heads import HeadsLearner
from langchain_toolrag.learning.pairs import Request, TrainingSet
from langchain_toolrag.learning.training import TrainingOptions, contrastive_loss, train

TEXTS = ["erstelle die rechnung", "Creates an invoice.", "lösche das lied"]


def loss_of(similarities, wanted):
    return contrastive_loss(torch.tensor(similarities), torch.tensor(wanted)).item()


def options(**changed):
    return TrainingOptions(**{"steps": 8, "rate": 1e-3, "batch": 8, "checks": 4, **changed})


def quiet(step, loss):
    """Tell nobody."""


def weights(learner):
    return [weight.detach().clone() for weight in learner.parameters()]


def same(first, second):
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def answers(*values):
    """A watch that says these values one after the other, the last for ever."""
    left = list(values)
    return lambda embeddings: left.pop(0) if len(left) > 1 else left[0]


class TestLoss:
    def test_one_wanted_tool_stands_against_the_others(self):
        wanted = -math.log(math.exp(2) / (math.exp(2) + math.exp(1) + math.exp(-1)))
        assert loss_of([[2.0, 1.0, -1.0]], [[1.0, 0.0, 0.0]]) == pytest.approx(wanted)

    def test_two_equals_are_a_loss_of_log_two(self):
        assert loss_of([[3.0, 3.0]], [[0.0, 1.0]]) == pytest.approx(math.log(2))

    def test_two_wanted_tools_do_not_push_each_other_away(self):
        similarities = torch.tensor([[1.0, 5.0, 0.0]], requires_grad=True)
        loss = contrastive_loss(similarities, torch.tensor([[1.0, 1.0, 0.0]]))
        assert loss.item() == pytest.approx(
            (math.log(1 + math.exp(-1)) + math.log(1 + math.exp(-5))) / 2
        )
        loss.backward()
        first, second, unwanted = similarities.grad[0].tolist()
        assert first < 0
        assert second < 0
        assert unwanted > 0

    def test_without_an_unwanted_tool_there_is_nothing_to_learn_and_no_nan(self):
        similarities = torch.tensor([[1.0, -2.0]], requires_grad=True)
        loss = contrastive_loss(similarities, torch.tensor([[1.0, 1.0]]))
        loss.backward()
        assert loss.item() == 0.0
        assert similarities.grad.tolist() == [[0.0, 0.0]]

    def test_each_request_counts_the_same_however_many_tools_it_needs(self):
        rows = [[4.0, 0.0, 1.0], [0.0, 2.0, 1.0]]
        wanted = [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
        each = [loss_of([row], [want]) for row, want in zip(rows, wanted, strict=True)]
        assert loss_of(rows, wanted) == pytest.approx(statistics.fmean(each))

    def test_the_surer_the_smaller(self):
        losses = [loss_of([[sure, 0.0]], [[1.0, 0.0]]) for sure in (-20.0, -1.0, 0.0, 1.0, 20.0)]
        assert losses == sorted(losses, reverse=True)
        assert losses[-1] == pytest.approx(0, abs=1e-6)

    @given(
        st.lists(
            st.lists(st.tuples(st.floats(-20, 20), st.booleans()), min_size=4, max_size=4).filter(
                lambda row: any(wanted for _, wanted in row)
            ),
            min_size=1,
            max_size=5,
        )
    )
    @settings(derandomize=True, deadline=None)
    def test_it_is_a_number_from_0_with_a_finite_gradient(self, rows):
        similarities = torch.tensor([[score for score, _ in row] for row in rows])
        similarities.requires_grad_()
        wanted = torch.tensor([[float(want) for _, want in row] for row in rows])
        loss = contrastive_loss(similarities, wanted)
        loss.backward()
        assert 0 <= loss.item() < math.inf
        assert torch.isfinite(similarities.grad).all()


class TestOptions:
    @pytest.mark.parametrize("name", ["steps", "rate", "batch", "checks"])
    @pytest.mark.parametrize("value", [0, -1, float("nan")])
    def test_what_is_not_above_0_is_an_error_that_names_it(self, name, value):
        with pytest.raises(ValueError, match=f"{name} is {value}; wanted more than 0"):
            TrainingOptions(**{name: value})

    @pytest.mark.parametrize("scales", [(), (0.0, 1.0), (-0.5,), (0.5, 1.1), (float("nan"),)])
    def test_scales_that_cannot_be_applied_are_an_error(self, scales):
        with pytest.raises(ValueError, match="wanted some above 0, none above 1"):
            TrainingOptions(scales=scales)

    def test_the_least_there_can_be_is_no_error(self):
        TrainingOptions(steps=1, rate=1e-9, batch=1, checks=1, scales=(1.0,))


class TestHeadsLearner:
    def test_it_begins_as_the_model_it_is_on(self):
        learner = HeadsLearner(HashingEmbeddings())
        wanted = np.array(HashingEmbeddings().embed_documents(TEXTS))
        for made in (
            learner.requests(TEXTS).tolist(),
            learner.tools(TEXTS).tolist(),
            learner.embeddings().embed_documents(TEXTS),
        ):
            assert np.array(made) == pytest.approx(wanted, abs=1e-6)

    def test_vectors_have_length_one_and_a_gradient(self):
        learner = HeadsLearner(HashingEmbeddings())
        vectors = learner.requests(TEXTS)
        assert vectors.norm(dim=1).tolist() == pytest.approx([1.0] * 3, abs=1e-6)
        assert vectors.requires_grad

    def test_the_model_is_asked_for_a_text_once(self):
        base = HashingEmbeddings()
        learner = HeadsLearner(base)
        for _ in range(3):
            learner.requests(TEXTS)
            learner.tools([*TEXTS, TEXTS[0]])
            learner.embeddings().embed_query(TEXTS[0])
        assert sorted(base.texts) == sorted(TEXTS)

    def test_a_request_is_embedded_by_the_models_own_way_for_requests(self):
        learner = HeadsLearner(AsymmetricEmbeddings())
        wanted = AsymmetricEmbeddings().embed_query(TEXTS[0])
        assert learner.requests(TEXTS[:1])[0].tolist() == pytest.approx(wanted, abs=1e-6)
        assert learner.embeddings().embed_query(TEXTS[0]) == pytest.approx(wanted, abs=1e-6)

    def test_what_is_trained_is_a_head_a_side(self):
        learner = HeadsLearner(HashingEmbeddings())
        assert len(learner.parameters()) == 8
        assert all(weight.requires_grad for weight in learner.parameters())

    def test_the_same_seed_starts_the_same(self):
        first, second, other = (HeadsLearner(HashingEmbeddings(), seed=seed) for seed in (1, 1, 2))
        assert same(weights(first), weights(second))
        assert not same(weights(first), weights(other))

    def test_what_it_learned_written_and_read_makes_its_vectors(self, sets, watched, tmp_path):
        learner = HeadsLearner(NamedEmbeddings())
        train(learner, sets, options(), answers(0.1, 0.2), quiet)
        write_adapter(learner.adapter({"a": 1}), tmp_path / "heads.safetensors")
        headed = HeadedEmbeddings(NamedEmbeddings(), tmp_path / "heads.safetensors")
        assert headed.heads.scale == learner.scale
        assert headed.heads.card == {"a": 1}
        made = learner.embeddings()
        assert headed.embed_documents(TEXTS) == pytest.approx(
            np.array(made.embed_documents(TEXTS)), abs=1e-3
        )
        assert headed.embed_query(TEXTS[0]) == pytest.approx(made.embed_query(TEXTS[0]), abs=1e-3)


class TestTraining:
    def test_requests_in_words_that_no_tool_has_are_learned(self, sets, watched):
        tuned = finetune(
            sets, [watched], model=NamedEmbeddings(), heads=True, steps=60, progress=quiet
        )
        trained = tuned.trained
        assert trained.before < 0.5
        assert trained.scales[trained.scale] == max(trained.scales.values()) > 0.9
        assert trained.checks[trained.step] == max(trained.checks.values())

    def test_the_watched_sets_are_looked_at_untrained_and_at_even_distances(self, sets):
        seen = []
        learner = HeadsLearner(HashingEmbeddings())

        def watch(embeddings):
            seen.append(learner.scale)
            return 0.5

        trained = train(learner, sets, options(scales=(0.4, 1.0)), watch, quiet)
        assert list(trained.checks) == [2, 4, 6, 8]
        assert seen == [0.0, 1.0, 1.0, 1.0, 1.0, 0.4, 1.0]

    @pytest.mark.parametrize(("steps", "checks"), [(7, 3), (2, 5), (3, 1), (1, 1)])
    def test_the_last_step_is_always_looked_at(self, sets, steps, checks):
        chosen = options(steps=steps, checks=checks)
        trained = train(HeadsLearner(HashingEmbeddings()), sets, chosen, answers(0.5), quiet)
        assert max(trained.checks) == steps

    def test_where_it_only_gets_worse_nothing_of_it_is_applied(self, sets):
        learner = HeadsLearner(HashingEmbeddings())
        watch = answers(*(1 - step / 10 for step in range(8)))
        trained = train(learner, sets, options(), watch, quiet)
        assert trained.before == 1.0
        assert (trained.scale, learner.scale) == (0.0, 0.0)
        wanted = HashingEmbeddings().embed_query(TEXTS[0])
        assert learner.embeddings().embed_query(TEXTS[0]) == pytest.approx(wanted, abs=1e-6)

    def test_what_is_as_good_as_nothing_is_not_applied(self, sets):
        learner = HeadsLearner(HashingEmbeddings())
        assert train(learner, sets, options(), answers(0.5), quiet).scale == 0.0

    def test_it_ends_with_the_weights_of_the_best_step(self, sets):
        learner = HeadsLearner(HashingEmbeddings())
        kept = []

        def watch(embeddings):
            kept.append(weights(learner))
            return (0.1, 0.2, 0.9, 0.3, 0.4, 0.5, 0.7, 0.6)[len(kept) - 1]

        trained = train(learner, sets, options(), watch, quiet)
        assert trained.step == 4
        assert same(weights(learner), kept[2])
        assert not same(weights(learner), kept[4])

    def test_the_best_scale_is_the_one_it_ends_with(self, sets):
        learner = HeadsLearner(HashingEmbeddings())
        watch = answers(0.1, 0.2, 0.2, 0.2, 0.2, 0.5, 0.7, 0.6)
        trained = train(learner, sets, options(), watch, quiet)
        assert trained.scales == {0.4: 0.5, 0.7: 0.7, 1.0: 0.6}
        assert (trained.scale, learner.scale) == (0.7, 0.7)

    def test_progress_is_told_every_step_and_a_loss_that_falls(self, sets):
        told = []
        train(
            HeadsLearner(HashingEmbeddings()),
            sets,
            options(steps=40),
            answers(0.5),
            lambda step, loss: told.append((step, loss)),
        )
        assert [step for step, _ in told] == list(range(1, 41))
        assert 0 < told[-1][1] < told[0][1]

    def test_the_same_seed_trains_the_same(self, sets):
        learners = [HeadsLearner(HashingEmbeddings(), seed=3) for _ in range(2)]
        for learner in learners:
            train(learner, sets, options(seed=3), answers(0.1, 0.2), quiet)
        assert same(*map(weights, learners))

    def test_a_catalogue_of_two_tools_without_descriptions_is_learned_from(self):
        small = TrainingSet(
            "",
            (make_document("send_mail"), make_document("play_song")),
            (Request("schreibe Anna", frozenset({0})), Request("beides", frozenset({0, 1}))),
        )
        trained = train(
            HeadsLearner(HashingEmbeddings()), [small], options(), answers(0.1, 0.2), quiet
        )
        assert trained.scale > 0


class TestFinetune:
    def test_a_low_rank_change_needs_a_model_that_is_loaded_here(self, sets, watched):
        with pytest.raises(TypeError, match="pass heads=True"):
            finetune(sets, [watched], model=HashingEmbeddings(), progress=quiet)

    def test_the_card_says_what_it_was_trained_on_and_how_that_went(self, sets, watched, tmp_path):
        tuned = finetune(
            sets, [watched], model=NamedEmbeddings(), heads=True, steps=40, seed=1, progress=quiet
        )
        tuned.write(tmp_path / "heads.safetensors")
        read = read_adapter(tmp_path / "heads.safetensors")
        assert (read.kind, read.base) == ("heads", "NamedEmbeddings(hashing-1)")
        assert read.scale == tuned.trained.scale > 0
        assert read.card["pairs"] == {"office": 18, "home": 18}
        assert read.card["watched"] == ["watched"]
        assert (read.card["options"]["steps"], read.card["options"]["seed"]) == (40, 1)
        assert read.card["ndcg@10 of the watched sets"]["before"] == tuned.trained.before

    def test_where_the_untrained_model_does_best_there_is_no_adapter_to_write(
        self, sets, watched, tmp_path
    ):
        named = [
            replace(query, text=query.relevant[0].replace("_", " ")) for query in watched.queries
        ]
        easy = replace(watched, queries=tuple(named))
        tuned = finetune(sets, [easy], model=NamedEmbeddings(), heads=True, steps=4, progress=quiet)
        assert (tuned.trained.before, tuned.trained.scale, tuned.adapter) == (1.0, 0.0, None)
        with pytest.raises(ValueError, match="the untrained model did best"):
            tuned.write(tmp_path / "heads.safetensors")
        assert list(tmp_path.iterdir()) == []
