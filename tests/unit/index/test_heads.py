import numpy as np
import pytest
from fakes import DIM, BrokenEmbeddings, HashingEmbeddings, NamedEmbeddings, make_catalogue
from langchain_core.embeddings import Embeddings

from langchain_toolrag import ToolRAG
from langchain_toolrag.errors import AdapterError, EmbeddingError
from langchain_toolrag.index.adapter import Adapter, read_adapter, write_adapter
from langchain_toolrag.index.embedding import MiniLMEmbeddings, model_name
from langchain_toolrag.index.heads import HeadedEmbeddings
from langchain_toolrag.index.vector_space import vector_space

HIDDEN = 4


class Fixed(Embeddings):
    """Gives one vector, whatever the text."""

    model = "fixed"

    def __init__(self, vector):
        self.vector = vector

    def embed_documents(self, texts):
        return [self.vector for _ in texts]

    def embed_query(self, text):
        return self.vector


def write_heads(path, base, dim=DIM, *, seed=0, spread=0.0, kind="heads"):
    """Write heads that are the identity, or with a spread that move vectors at random."""
    dice = np.random.default_rng(seed)
    tensors = {}
    for side in ("request", "tool"):
        tensors[f"{side}.first.weight"] = dice.normal(size=(HIDDEN, dim))
        tensors[f"{side}.first.bias"] = dice.normal(size=HIDDEN)
        tensors[f"{side}.second.weight"] = dice.normal(size=(dim, HIDDEN)) * spread
        tensors[f"{side}.second.bias"] = dice.normal(size=dim) * spread
    if kind == "low-rank":
        tensors = {"a.up": np.ones((3, 1)), "a.down": np.ones((1, 3))}
    write_adapter(Adapter(kind, base, 1.0, tensors, {}), path)
    return path


@pytest.fixture
def identity(tmp_path):
    return write_heads(tmp_path / "identity.safetensors", "NamedEmbeddings(hashing-1)")


@pytest.fixture
def moving(tmp_path):
    return write_heads(tmp_path / "moving.safetensors", "NamedEmbeddings(hashing-1)", spread=0.1)


def test_heads_that_learned_nothing_change_nothing(identity):
    base, headed = NamedEmbeddings(), HeadedEmbeddings(NamedEmbeddings(), identity)
    assert headed.embed_query("rain") == pytest.approx(base.embed_query("rain"), abs=1e-6)
    (tool,), (wanted,) = headed.embed_documents(["get rain"]), base.embed_documents(["get rain"])
    assert tool == pytest.approx(wanted, abs=1e-6)
    assert isinstance(tool[0], float)


def test_requests_and_tools_of_the_same_words_are_moved_apart(moving):
    headed = HeadedEmbeddings(NamedEmbeddings(), moving)
    request, (tool,) = headed.embed_query("rain"), headed.embed_documents(["rain"])
    assert np.linalg.norm(np.subtract(request, tool)) > 0.1
    assert np.linalg.norm([request, tool], axis=1) == pytest.approx(np.ones(2), abs=1e-5)


def test_vectors_are_the_bases_moved_by_the_head_of_their_side(moving):
    base, headed = NamedEmbeddings(), HeadedEmbeddings(NamedEmbeddings(), str(moving))
    vectors = np.array(base.embed_documents(["rain", "sun in Oslo"]), np.float32)
    heads = read_adapter(moving)
    tools, requests = heads.apply(vectors, "tool"), heads.apply(vectors, "request")
    embedded = np.array(headed.embed_documents(["rain", "sun in Oslo"]))
    assert embedded == pytest.approx(tools, abs=1e-6)
    assert headed.embed_query("rain") == pytest.approx(requests[0], abs=1e-6)


def test_no_texts_are_no_vectors(moving):
    assert HeadedEmbeddings(NamedEmbeddings(), moving).embed_documents([]) == []


def test_vectors_of_any_length_are_made_unit_vectors_before_they_are_moved(tmp_path):
    path = write_heads(tmp_path / "a", "Fixed(fixed)", dim=2, spread=0.5)
    short, long = (HeadedEmbeddings(Fixed(given), path) for given in ([0.6, 0.8], [30, 40]))
    assert short.embed_query("a") == pytest.approx(long.embed_query("a"), abs=1e-6)


async def test_waiting_for_vectors_gives_the_same(moving):
    headed = HeadedEmbeddings(NamedEmbeddings(), moving)
    assert await headed.aembed_query("rain") == headed.embed_query("rain")
    assert await headed.aembed_documents(["a", "b"]) == headed.embed_documents(["a", "b"])


async def test_waiting_for_a_request_waits_by_the_models_own_way(moving):
    class Waiting(HashingEmbeddings):
        model = "hashing-1"

        async def aembed_query(self, text):
            return HashingEmbeddings().embed_query(text)

        def embed_query(self, text):
            pytest.fail("the event loop was blocked")

    Waiting.__name__ = "NamedEmbeddings"
    vector = await HeadedEmbeddings(Waiting(), moving).aembed_query("rain")
    assert len(vector) == DIM


def test_heads_of_another_model_are_refused_with_both_names(moving):
    other = NamedEmbeddings()
    other.model = "hashing-2"
    with pytest.raises(AdapterError) as caught:
        HeadedEmbeddings(other, moving)
    assert "heads of NamedEmbeddings(hashing-1)" in str(caught.value)
    assert "wanted heads of NamedEmbeddings(hashing-2)" in str(caught.value)
    assert caught.value.adapter == moving


def test_heads_on_the_adapted_model_are_not_taken_by_the_plain_one(tmp_path):
    adapted, plain = MiniLMEmbeddings(), MiniLMEmbeddings(adapter=None)
    path = write_heads(tmp_path / "a", model_name(adapted), dim=384)
    assert HeadedEmbeddings(adapted, path).base is adapted
    with pytest.raises(AdapterError, match="wanted heads of"):
        HeadedEmbeddings(plain, path)
    assert not adapted.loaded


def test_a_low_rank_adapter_in_the_place_of_heads_is_refused(tmp_path):
    path = write_heads(tmp_path / "a", "NamedEmbeddings(hashing-1)", kind="low-rank")
    with pytest.raises(AdapterError, match=r"low-rank of .*; wanted heads of"):
        HeadedEmbeddings(NamedEmbeddings(), path)


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(AdapterError, match="cannot be read"):
        HeadedEmbeddings(NamedEmbeddings(), tmp_path / "nowhere")


def test_models_with_other_heads_are_told_apart(identity, moving):
    names = {model_name(HeadedEmbeddings(NamedEmbeddings(), each)) for each in (identity, moving)}
    assert len(names | {model_name(NamedEmbeddings())}) == 3
    spaces = {
        vector_space(HeadedEmbeddings(NamedEmbeddings(), each)) for each in (identity, moving)
    }
    assert len(spaces) == 2


def test_heads_on_a_model_without_a_name_are_in_no_space_of_their_own(tmp_path):
    path = write_heads(tmp_path / "a", "HashingEmbeddings")
    assert vector_space(HeadedEmbeddings(HashingEmbeddings(), path)) is None


@pytest.mark.parametrize("bad", [[0.0, 0.0], [float("nan"), 1.0]], ids=str)
def test_a_vector_that_cannot_be_used_stays_near_to_nothing(tmp_path, bad, caplog):
    path = write_heads(tmp_path / "a", "Fixed(fixed)", dim=2, spread=0.5)
    assert HeadedEmbeddings(Fixed(bad), path).embed_query("a") == [0.0, 0.0]
    assert "zero or not finite" in caplog.text


class TestInToolRAG:
    def test_heads_that_learned_nothing_find_what_the_model_finds(self, identity):
        request = "will it rain, and how warm is it?"
        with (
            ToolRAG(make_catalogue(), embeddings=NamedEmbeddings()) as plain,
            ToolRAG(
                make_catalogue(), embeddings=HeadedEmbeddings(NamedEmbeddings(), identity)
            ) as rag,
        ):
            found = rag.semantic_search(request)
            assert [hit.id for hit in found] == [hit.id for hit in plain.semantic_search(request)]
            assert rag.select(request).names == plain.select(request).names

    async def test_searching_and_waiting_for_a_search_find_the_same(self, moving):
        embeddings = HeadedEmbeddings(NamedEmbeddings(), moving)
        with ToolRAG(make_catalogue(), embeddings=embeddings) as rag:
            assert await rag.asearch("send a mail") == rag.search("send a mail")

    def test_a_saved_index_is_read_with_the_same_heads_only(self, tmp_path, identity, moving):
        with ToolRAG(
            make_catalogue(), embeddings=HeadedEmbeddings(NamedEmbeddings(), moving)
        ) as rag:
            rag.index()
            rag.save(tmp_path / "saved")
        base = NamedEmbeddings()
        again = HeadedEmbeddings(base, moving)
        with ToolRAG.load(tmp_path / "saved", make_catalogue(), embeddings=again) as loaded:
            assert loaded.indexed
        assert base.texts == []
        other = HeadedEmbeddings(NamedEmbeddings(), identity)
        with pytest.raises(ValueError, match="the saved index has"):
            ToolRAG.load(tmp_path / "saved", embeddings=other)

    def test_a_base_that_fails_leaves_the_search_by_words(self, tmp_path):
        base = BrokenEmbeddings()
        path = write_heads(tmp_path / "a", "BrokenEmbeddings")
        with ToolRAG(make_catalogue(), embeddings=HeadedEmbeddings(base, path)) as rag:
            selection = rag.select("send an email to Ann")
            assert "send_email" in selection.names
            assert "the model server is down" in selection.degraded
            with pytest.raises(EmbeddingError, match="the model server is down"):
                rag.semantic_search("send an email")
