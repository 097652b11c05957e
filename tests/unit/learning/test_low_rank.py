import numpy as np
import pytest

from langchain_toolrag.index.adapter import write_adapter
from langchain_toolrag.index.embedding import MiniLMEmbeddings
from langchain_toolrag.index.weights import DEFAULT_MODEL, DEFAULT_WEIGHTS, packaged_weights
from langchain_toolrag.learning.low_rank import LowRankLearner
from langchain_toolrag.learning.pairs import TrainingSet
from langchain_toolrag.learning.training import Trained, TrainingOptions, train

TEXTS = ["lösche die rechnung", "Shows a ticket.", "send money to a friend abroad", "word " * 150]
OPTIONS = TrainingOptions(steps=8, rate=3e-2, batch=6, checks=1, scales=(0.5, 1.0))


@pytest.fixture(scope="module")
def plain():
    """Vectors of the model as it came."""
    return np.array(MiniLMEmbeddings(adapter=None).embed_documents(TEXTS))


@pytest.fixture(scope="module")
def fresh():
    """A learner that has learned nothing."""
    return LowRankLearner(DEFAULT_MODEL)


@pytest.fixture(scope="module")
def learned(sets):
    """A learner after a few steps, half of which it applies, and how its training went."""
    scores = iter([0.1, 0.2, 0.4, 0.3])
    learner = LowRankLearner(str(packaged_weights()), rank=4)
    (small,) = (each for each in sets if each.name == "home")
    few = TrainingSet(small.name, small.documents, small.requests[:8])
    return learner, train(learner, [few], OPTIONS, lambda _: next(scores), lambda *_: None)


def cosines(first, second):
    """The least cosine of two embeddings of the texts, which are of unit length."""
    return (np.array(first) * np.array(second)).sum(axis=1).min()


def test_it_begins_as_the_model_it_is_on_without_the_packaged_adapter(fresh, plain):
    assert cosines(fresh.embeddings().embed_documents(TEXTS), plain) > 0.999
    assert cosines([fresh.embeddings().embed_query(TEXTS[0])], plain[:1]) > 0.999


def test_requests_and_tools_are_embedded_alike_and_with_a_gradient(fresh, plain):
    requests, tools = fresh.requests(TEXTS[:2]), fresh.tools(TEXTS[:2])
    assert requests.requires_grad
    assert cosines(requests.tolist(), tools.tolist()) > 0.999
    assert cosines(requests.tolist(), plain[:2]) > 0.999


def test_what_is_trained_are_two_small_matrices_a_layer(fresh):
    shapes = [tuple(weight.shape) for weight in fresh.parameters()]
    assert len(shapes) == 2 * 36  # Six layers of six linear ones.
    assert all(16 in shape for shape in shapes)
    assert all(weight.requires_grad for weight in fresh.parameters())


def test_a_scale_of_0_is_the_model_it_is_on(learned, plain):
    learner, _ = learned
    learner.scale = 0.0
    try:
        assert cosines(learner.embeddings().embed_documents(TEXTS), plain) > 0.999
    finally:
        learner.scale = 0.5


def test_training_changes_it_and_leaves_it_at_the_best_scale(learned, plain):
    learner, trained = learned
    assert trained == Trained(0.1, {8: 0.2}, {0.5: 0.4, 1.0: 0.3}, 8, 0.5)
    assert learner.scale == 0.5
    assert cosines(learner.embeddings().embed_documents(TEXTS), plain) < 0.99


def test_its_adapter_makes_the_same_vectors_in_the_model_it_was_trained_on(learned, tmp_path):
    learner, _ = learned
    adapter = learner.adapter({"steps": 8})
    assert (adapter.kind, adapter.base, adapter.scale) == ("low-rank", DEFAULT_WEIGHTS, 0.5)
    write_adapter(adapter, tmp_path / "adapter.safetensors")
    merged = MiniLMEmbeddings(adapter=tmp_path / "adapter.safetensors")
    assert cosines(merged.embed_documents(TEXTS), learner.embeddings().embed_documents(TEXTS)) > (
        0.999
    )


def test_vectors_come_in_the_order_of_the_texts_however_many_and_long(fresh):
    texts = [f"tool number {number} " + "x " * (number % 7) for number in range(70)]
    vectors = fresh.embeddings().embed_documents(texts)
    for number in (0, 13, 69):
        (alone,) = fresh.embeddings().embed_documents([texts[number]])
        assert cosines([alone], [vectors[number]]) > 0.999


def test_training_reads_only_the_beginning_of_a_long_text_and_embedding_all_of_it(fresh):
    long = "rain " * 100
    begun, whole = fresh.tools([long])[0], fresh.embeddings().embed_query(long + "money " * 80)
    assert begun.tolist() == pytest.approx(fresh.tools([long + "money " * 80])[0].tolist())
    assert cosines([begun.tolist()], [whole]) < 0.99
