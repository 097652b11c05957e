from types import SimpleNamespace

import numpy as np
import pytest
from fakes import DIM, BrokenEmbeddings, HashingEmbeddings
from langchain_core.embeddings import Embeddings

from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.embedding import MiniLMEmbeddings


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    stopped = SimpleNamespace(monotonic=clock)
    monkeypatch.setattr("langchain_toolrag.index.embedder.time", stopped)
    return clock


class Fixed(Embeddings):
    """Gives what it was told to, whatever the texts; counts the calls."""

    def __init__(self, documents=None, query=None):
        self.documents, self.query, self.calls = documents, query, 0

    def embed_documents(self, texts):
        self.calls += 1
        return self.documents

    def embed_query(self, text):
        self.calls += 1
        return self.query


def test_documents_come_back_as_unit_vectors_by_text():
    vectors = Embedder(Fixed([[0, 2], [3, 4]])).documents(["a", "bc"])
    assert list(vectors) == ["a", "bc"]
    assert vectors["a"].tolist() == [0.0, 1.0]
    assert vectors["bc"] == pytest.approx([0.6, 0.8])
    assert vectors["a"].dtype == np.float32


def test_a_query_comes_back_as_a_unit_vector():
    assert Embedder(Fixed(query=[3.0, 4.0])).query("a") == pytest.approx([0.6, 0.8])


async def test_waiting_for_a_query_gives_the_same_vector(embeddings):
    embedder = Embedder(embeddings)
    assert np.array_equal(await embedder.aquery("rain in Oslo"), embedder.query("rain in Oslo"))


def test_repeated_texts_are_embedded_once_and_short_ones_first(embeddings):
    Embedder(embeddings).documents(["three", "a", "of", "three", "a"])
    assert embeddings.texts == ["a", "of", "three"]


def test_no_texts_ask_the_model_nothing():
    model = Fixed([])
    assert Embedder(model).documents([]) == {}
    assert model.calls == 0


def test_the_dimension_is_that_of_the_first_vector(embeddings):
    embedder = Embedder(embeddings)
    assert embedder.dim is None
    embedder.query("a")
    assert embedder.dim == DIM


@pytest.mark.parametrize("given", [[], [[1.0, 0.0]], [[1.0, 0.0]] * 3])
def test_a_wrong_count_of_vectors_is_an_error(given):
    with pytest.raises(EmbeddingError, match=rf"{len(given)} vectors for 2 texts"):
        Embedder(Fixed(given)).documents(["a", "b"])


@pytest.mark.parametrize(
    "given",
    [None, [1.0, 2.0], [[1.0], [1.0, 2.0]], [["a"], ["b"]], [[[1.0]], [[1.0]]], [[], []]],
    ids=str,
)
def test_what_are_no_vectors_is_an_error(given):
    with pytest.raises(EmbeddingError, match="the embedding model gave"):
        Embedder(Fixed(given)).documents(["a", "b"])


def test_a_vector_of_another_dimension_than_the_index_has_is_an_error():
    with pytest.raises(EmbeddingError, match="wanted dimension 3; has the model changed"):
        Embedder(Fixed(query=[1.0, 0.0]), dim=3).query("a")


@pytest.mark.parametrize(
    "bad",
    [
        [0.0, 0.0],
        [float("nan"), 1.0],
        [float("inf"), 1.0],
        [float("-inf"), float("nan")],
        [1e-30, 0.0],
    ],
    ids=str,
)
def test_a_vector_that_is_zero_or_not_finite_matches_nothing(bad, caplog):
    vectors = Embedder(Fixed([bad, [1.0, 0.0]])).documents(["a", "b"])
    assert vectors["a"].tolist() == [0.0, 0.0]
    assert vectors["b"].tolist() == [1.0, 0.0]
    assert "1 vectors are zero or not finite" in caplog.text


@pytest.mark.parametrize("huge", [[3e30, 4e30], [1e39, 0.0]], ids=str)
def test_a_vector_too_long_for_its_numbers_is_no_warning_of_numpys(huge):
    vector = Embedder(Fixed(query=huge)).query("a")
    assert np.isfinite(vector).all()


def test_vectors_may_be_arrays_or_integers():
    vectors = Embedder(Fixed(np.array([[0, 3], [4, 0]], np.int8))).documents(["a", "b"])
    assert vectors["a"].tolist() == [0.0, 1.0]


def test_a_failure_says_what_the_model_raised():
    embedder = Embedder(BrokenEmbeddings())
    with pytest.raises(EmbeddingError, match="ConnectionError: the model server is down") as caught:
        embedder.query("a")
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert "the model server is down" in embedder.failure


def test_a_failed_model_rests_before_it_is_asked_again(clock):
    model = BrokenEmbeddings()
    embedder = Embedder(model)
    with pytest.raises(EmbeddingError):
        embedder.query("a")
    model.broken = False
    clock.now += 0.9
    with pytest.raises(EmbeddingError, match="the model server is down"):
        embedder.query("a")
    assert model.queries == []
    clock.now += 0.2
    embedder.query("a")
    assert model.queries == ["a"]
    assert embedder.failure == ""


def test_the_rest_doubles_with_every_failure_in_a_row_up_to_a_minute(clock):
    model = Fixed(query=[])
    model.embed_query = lambda text: exec("raise OSError")
    embedder = Embedder(model)
    rests = []
    for _ in range(9):
        with pytest.raises(EmbeddingError):
            embedder.query("a")
        rests.append(embedder._rested_at - clock.now)
        clock.now += rests[-1]
    assert rests == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_success_ends_the_row_of_failures(clock):
    model = BrokenEmbeddings()
    embedder = Embedder(model)
    for broken in (True, True, False):
        model.broken = broken
        clock.now += 100
        try:
            embedder.query("a")
        except EmbeddingError:
            assert broken
    model.broken = True
    with pytest.raises(EmbeddingError):
        embedder.query("b")
    model.broken = False
    clock.now += 1.1
    embedder.query("a")


def test_asking_a_resting_model_does_not_lengthen_the_rest(clock):
    model = BrokenEmbeddings()
    embedder = Embedder(model)
    for _ in range(5):
        with pytest.raises(EmbeddingError):
            embedder.query("a")
    model.broken = False
    clock.now += 1.1
    embedder.query("a")


def test_a_model_that_fails_at_documents_is_not_asked_for_queries(clock):
    model = BrokenEmbeddings()
    embedder = Embedder(model)
    with pytest.raises(EmbeddingError):
        embedder.documents(["a"])
    model.broken = False
    with pytest.raises(EmbeddingError):
        embedder.query("a")
    assert model.queries == []


async def test_waiting_for_a_query_rests_after_a_failure_too(clock):
    model = BrokenEmbeddings()
    embedder = Embedder(model)
    with pytest.raises(EmbeddingError, match="server is down"):
        await embedder.aquery("a")
    model.broken = False
    with pytest.raises(EmbeddingError):
        await embedder.aquery("a")
    clock.now += 1.1
    assert (await embedder.aquery("a")).shape == (DIM,)


def test_vectors_that_cannot_be_used_count_as_a_failure(clock):
    model = Fixed(query=[[1.0]])
    embedder = Embedder(model, dim=2)
    for _ in range(2):
        with pytest.raises(EmbeddingError, match="dimension 2"):
            embedder.query("a")
    assert model.calls == 1


def test_a_model_that_is_not_ours_counts_as_loaded():
    assert Embedder(HashingEmbeddings()).ready
    assert not Embedder(MiniLMEmbeddings()).ready


class TestScripts:
    @pytest.mark.parametrize(
        ("text", "known"),
        [
            ("weather in Pune", True),
            ("Wetter in Köln, déjà vu, Łódź", True),
            ("", True),
            ("👍 12 + 3", True),
            ("東京の天気", False),
            ("погода в Москве", False),
            ("मौसम", False),
            ("طقس القاهرة", False),
            ("καιρός", False),
            ("send_email で 送信", True),
            ("mail 東京の天気予報", False),
            ("abc где", True),
        ],
    )
    def test_minilm_knows_a_text_of_which_half_the_letters_are_latin(self, text, known):
        assert Embedder(MiniLMEmbeddings()).knows(text) is known

    @pytest.mark.parametrize(
        "model", [HashingEmbeddings(), MiniLMEmbeddings("some/multilingual-model")]
    )
    def test_any_other_model_is_taken_to_know_every_script(self, model):
        assert Embedder(model).knows("東京の天気")


class TestQueriesThatAreAskedTogether:
    PARTS = ("is it raining in Oslo", "send a mail")

    @pytest.fixture
    def batches(self, monkeypatch):
        """A stand-in for MiniLM; the texts of each of its runs."""
        batches = []

        def encode(self, texts):
            batches.append(list(texts))
            return np.array(HashingEmbeddings().embed_documents(texts), np.float32)

        monkeypatch.setattr(MiniLMEmbeddings, "_encode", encode)
        return batches

    async def ask(self, embedder, wait, text, along):
        return await embedder.aquery(text, along) if wait else embedder.query(text, along)

    @pytest.mark.parametrize("wait", [False, True])
    async def test_minilm_embeds_them_in_one_run_and_has_the_others_ready(self, batches, wait):
        embedder = Embedder(MiniLMEmbeddings())
        vectors = [await self.ask(embedder, wait, part, self.PARTS) for part in self.PARTS]
        assert batches == [list(self.PARTS)]
        for part, vector in zip(self.PARTS, vectors, strict=True):
            assert vector == pytest.approx(Embedder(MiniLMEmbeddings()).query(part), abs=1e-6)

    @pytest.mark.parametrize("wait", [False, True])
    async def test_other_models_embed_each_when_it_is_asked(self, embeddings, wait):
        await self.ask(Embedder(embeddings), wait, "send a mail", self.PARTS)
        assert (embeddings.queries, embeddings.texts) == (["send a mail"], [])

    def test_what_was_embedded_lately_is_not_embedded_along(self, batches):
        embedder = Embedder(MiniLMEmbeddings())
        embedder.query("send a mail")
        embedder.query("is it raining in Oslo", self.PARTS)
        assert batches == [["send a mail"], ["is it raining in Oslo"]]

    def test_one_that_cannot_be_used_is_embedded_anew_and_harms_no_other(self, monkeypatch):
        runs = iter([[[3.0, 4.0], [0.0, 0.0]], [[0.0, 2.0]]])

        def encode(self, texts):
            return np.array(next(runs), np.float32)

        monkeypatch.setattr(MiniLMEmbeddings, "_encode", encode)
        embedder = Embedder(MiniLMEmbeddings())
        assert embedder.query(self.PARTS[0], self.PARTS) == pytest.approx([0.6, 0.8])
        assert embedder.query(self.PARTS[1], self.PARTS).tolist() == [0.0, 1.0]


class _AsOverTheWire(HashingEmbeddings):
    """Takes only what can be sent, as a model behind an endpoint does."""

    def embed_documents(self, texts):
        "".join(texts).encode()
        return super().embed_documents(texts)

    def embed_query(self, text):
        text.encode()
        return super().embed_query(text)


@pytest.mark.parametrize("text", ["half a pair \ud83d", "\udfff", "naïve 日本 😀"])
async def test_half_a_surrogate_pair_is_no_reason_for_a_model_to_fail(text):
    embedder = Embedder(_AsOverTheWire())
    vector = embedder.query(text)
    assert (await Embedder(_AsOverTheWire()).aquery(text) == vector).all()
    assert list(embedder.documents([text])) == [text]
    assert embedder.failure == ""
