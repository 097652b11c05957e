import pytest
import torch
from documents import make_document
from fakes import HashingEmbeddings
from langchain_core.embeddings import Embeddings

from langchain_toolrag.learning.heads import ResidualHeads
from langchain_toolrag.learning.pairs import Request, TrainingSet
from langchain_toolrag.learning.training import TrainingOptions, train

TEXTS = ["erstelle die rechnung", "Creates an invoice.", "lösche das lied"]


class WordLearner(Embeddings):
    """Stands for a model that is changed: hashed words, moved by heads."""

    def __init__(self, *, seed=0):
        self.scale = 1.0
        self._base = HashingEmbeddings()
        self._heads = ResidualHeads(256, 32, seed=seed)

    def parameters(self):
        return self._heads.parameters()

    def requests(self, texts):
        return self._moved(texts, self._heads.requests)

    def tools(self, texts):
        return self._moved(texts, self._heads.rows)

    def embeddings(self):
        return self

    @torch.no_grad()
    def embed_documents(self, texts):
        return self.tools(texts).tolist()

    @torch.no_grad()
    def embed_query(self, text):
        return self.requests([text])[0].tolist()

    def _moved(self, texts, head):
        vectors = torch.tensor(self._base.embed_documents(list(texts)))
        return vectors + self.scale * (head(vectors) - vectors)


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


class TestTraining:
    def test_the_watched_sets_are_looked_at_untrained_and_at_even_distances(self, sets):
        seen = []
        learner = WordLearner()

        def watch(embeddings):
            seen.append(learner.scale)
            return 0.5

        trained = train(learner, sets, options(scales=(0.4, 1.0)), watch, quiet)
        assert list(trained.checks) == [2, 4, 6, 8]
        assert seen == [0.0, 1.0, 1.0, 1.0, 1.0, 0.4, 1.0]

    @pytest.mark.parametrize(("steps", "checks"), [(7, 3), (2, 5), (3, 1), (1, 1)])
    def test_the_last_step_is_always_looked_at(self, sets, steps, checks):
        chosen = options(steps=steps, checks=checks)
        trained = train(WordLearner(), sets, chosen, answers(0.5), quiet)
        assert max(trained.checks) == steps

    def test_where_it_only_gets_worse_nothing_of_it_is_applied(self, sets):
        learner = WordLearner()
        watch = answers(*(1 - step / 10 for step in range(8)))
        trained = train(learner, sets, options(), watch, quiet)
        assert trained.before == 1.0
        assert (trained.scale, learner.scale) == (0.0, 0.0)
        wanted = HashingEmbeddings().embed_query(TEXTS[0])
        assert learner.embeddings().embed_query(TEXTS[0]) == pytest.approx(wanted, abs=1e-6)

    def test_what_is_as_good_as_nothing_is_not_applied(self, sets):
        learner = WordLearner()
        assert train(learner, sets, options(), answers(0.5), quiet).scale == 0.0

    def test_it_ends_with_the_weights_of_the_best_step(self, sets):
        learner = WordLearner()
        kept = []

        def watch(embeddings):
            kept.append(weights(learner))
            return (0.1, 0.2, 0.9, 0.3, 0.4, 0.5, 0.7, 0.6)[len(kept) - 1]

        trained = train(learner, sets, options(), watch, quiet)
        assert trained.step == 4
        assert same(weights(learner), kept[2])
        assert not same(weights(learner), kept[4])

    def test_the_best_scale_is_the_one_it_ends_with(self, sets):
        learner = WordLearner()
        watch = answers(0.1, 0.2, 0.2, 0.2, 0.2, 0.5, 0.7, 0.6)
        trained = train(learner, sets, options(), watch, quiet)
        assert trained.scales == {0.4: 0.5, 0.7: 0.7, 1.0: 0.6}
        assert (trained.scale, learner.scale) == (0.7, 0.7)

    def test_progress_is_told_every_step_and_a_loss_that_falls(self, sets):
        told = []
        train(
            WordLearner(),
            sets,
            options(steps=40),
            answers(0.5),
            lambda step, loss: told.append((step, loss)),
        )
        assert [step for step, _ in told] == list(range(1, 41))
        assert 0 < told[-1][1] < told[0][1]

    def test_the_same_seed_trains_the_same(self, sets):
        learners = [WordLearner(seed=3) for _ in range(2)]
        for learner in learners:
            train(learner, sets, options(seed=3), answers(0.1, 0.2), quiet)
        assert same(*map(weights, learners))

    def test_a_catalogue_of_two_tools_without_descriptions_is_learned_from(self):
        small = TrainingSet(
            "",
            (make_document("send_mail"), make_document("play_song")),
            (Request("schreibe Anna", frozenset({0})), Request("beides", frozenset({0, 1}))),
        )
        trained = train(WordLearner(), [small], options(), answers(0.1, 0.2), quiet)
        assert trained.scale > 0
