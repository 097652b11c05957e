import contextlib
import logging

import numpy as np
import pytest
from fakes import (
    DIM,
    AsymmetricEmbeddings,
    BrokenEmbeddings,
    HashingEmbeddings,
    NamedEmbeddings,
    make_catalogue,
    make_tool,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings

from langchain_toolrag import ToolRAG
from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.embedding import MiniLMEmbeddings
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.index.vector_space import cache_in
from langchain_toolrag.vectors.cache import VectorCache

TEXTS = ["get the weather", "send a mail", "play a song"]


class OfDimension(Embeddings):
    """A model that was trained anew under its old name, with another dimension."""

    model = "growing"

    def __init__(self, dim):
        self.dim = dim

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text):
        return [1.0] * self.dim


def embedder(model, directory, **options):
    return Embedder(model, cache=VectorCache(directory, "a space"), **options)


class TestTexts:
    def test_what_was_embedded_once_is_not_embedded_by_the_next(self, tmp_path):
        first = embedder(NamedEmbeddings(), tmp_path).documents(TEXTS)
        model = NamedEmbeddings()
        second = embedder(model, tmp_path).documents(TEXTS)
        assert model.texts == []
        assert second.keys() == first.keys()
        for text in TEXTS:
            assert np.array_equal(second[text], first[text])

    def test_of_a_text_more_only_that_one_is_embedded(self, tmp_path):
        embedder(NamedEmbeddings(), tmp_path).documents(TEXTS)
        model = NamedEmbeddings()
        vectors = embedder(model, tmp_path).documents([*TEXTS, "skip a song", "skip a song"])
        assert model.texts == ["skip a song"]
        assert vectors.keys() == {*TEXTS, "skip a song"}

    def test_the_dimension_is_known_from_the_cache(self, tmp_path):
        embedder(NamedEmbeddings(), tmp_path).documents(TEXTS)
        second = embedder(NamedEmbeddings(), tmp_path)
        second.documents(TEXTS)
        assert second.dim == DIM

    def test_what_is_cached_is_had_from_a_model_that_is_down(self, tmp_path):
        embedder(HashingEmbeddings(), tmp_path).documents(TEXTS)
        down = embedder(BrokenEmbeddings(), tmp_path)
        assert down.documents(TEXTS).keys() == set(TEXTS)
        with pytest.raises(EmbeddingError, match="the model server is down"):
            down.documents(["skip a song"])

    def test_what_was_embedded_before_a_failure_is_kept(self, tmp_path):
        model = NamedEmbeddings()
        calls = []

        def embed(texts):
            calls.append(texts)
            if len(calls) == 2:
                raise ConnectionError("gone")
            return HashingEmbeddings().embed_documents(texts)

        model.embed_documents = embed
        texts = [f"text {number:03}" for number in range(100)]
        with pytest.raises(EmbeddingError, match="gone"):
            embedder(model, tmp_path).documents(texts)
        again = NamedEmbeddings()
        embedder(again, tmp_path).documents(texts)
        assert again.texts == calls[1]

    def test_a_vector_that_cannot_be_used_is_not_kept_for_ever(self, tmp_path):
        sick = NamedEmbeddings()
        sick.embed_documents = lambda texts: [[float("nan")] * DIM for _ in texts]
        assert not embedder(sick, tmp_path).documents(TEXTS)[TEXTS[0]].any()
        healthy = NamedEmbeddings()
        assert embedder(healthy, tmp_path).documents(TEXTS)[TEXTS[0]].any()
        assert set(healthy.texts) == set(TEXTS)

    @given(st.lists(st.lists(st.text(max_size=8), max_size=6), min_size=1, max_size=4))
    @settings(derandomize=True, deadline=None, max_examples=40)
    def test_with_a_cache_vectors_are_what_they_are_without(self, tmp_path_factory, rounds):
        directory = tmp_path_factory.mktemp("cache")
        for texts in rounds:
            cached = embedder(NamedEmbeddings(), directory).documents(texts)
            plain = Embedder(NamedEmbeddings()).documents(texts)
            assert cached.keys() == plain.keys()
            for text, vector in plain.items():
                assert np.array_equal(cached[text], vector)


class TestRequests:
    def test_they_are_not_kept_unless_asked_for(self, tmp_path):
        embedder(NamedEmbeddings(), tmp_path).query("is it raining?")
        model = NamedEmbeddings()
        embedder(model, tmp_path, keep_requests=True).query("is it raining?")
        assert model.queries == ["is it raining?"]

    def test_when_asked_for_they_are_kept(self, tmp_path):
        first = embedder(NamedEmbeddings(), tmp_path, keep_requests=True).query("is it raining?")
        model = NamedEmbeddings()
        second = embedder(model, tmp_path, keep_requests=True).query("is it raining?")
        assert model.queries == []
        assert np.array_equal(first, second)

    async def test_waiting_for_them_keeps_and_finds_the_same(self, tmp_path):
        waited = await embedder(NamedEmbeddings(), tmp_path, keep_requests=True).aquery("rain?")
        model = NamedEmbeddings()
        second = embedder(model, tmp_path, keep_requests=True)
        assert np.array_equal(second.query("rain?"), waited)
        assert np.array_equal(await second.aquery("rain?"), waited)
        assert model.queries == []

    async def test_waiting_for_them_keeps_none_unless_asked_for(self, tmp_path):
        await embedder(NamedEmbeddings(), tmp_path).aquery("rain?")
        assert len(VectorCache(tmp_path, "a space")) == 0

    def test_embedded_ahead_they_are_not_embedded_again(self, tmp_path):
        model = NamedEmbeddings()
        ahead = embedder(model, tmp_path, keep_requests=True)
        ahead.requests(["rain?", "mail?"])
        ahead.query("rain?")
        assert model.queries == ["rain?", "mail?"]
        assert model.texts == []

    def test_minilm_embeds_them_ahead_in_a_batch(self, tmp_path, encoded):
        ahead = embedder(MiniLMEmbeddings(), tmp_path, keep_requests=True)
        ahead.requests(["is it raining?", "mail?"])
        assert encoded == ["mail?", "is it raining?"]
        ahead.query("mail?")
        assert encoded == ["mail?", "is it raining?"]

    def test_minilm_embeds_no_request_that_is_a_tools_text(self, tmp_path, encoded):
        both = embedder(MiniLMEmbeddings(), tmp_path, keep_requests=True)
        (tool,) = both.documents(["get rain"]).values()
        assert np.array_equal(both.query("get rain"), tool)
        assert encoded == ["get rain"]

    def test_minilm_keeps_none_that_were_embedded_ahead_unless_asked_for(self, tmp_path, encoded):
        embedder(MiniLMEmbeddings(), tmp_path).requests(["my salary is 100, raise it"])
        assert len(VectorCache(tmp_path, "a space")) == 0

    def test_nothing_ahead_asks_the_model_nothing(self, tmp_path):
        model = NamedEmbeddings()
        embedder(model, tmp_path).requests([])
        assert (model.texts, model.queries) == ([], [])

    @pytest.mark.parametrize("order", [("request", "tool"), ("tool", "request")])
    def test_a_request_and_a_tool_of_the_same_words_are_never_mixed_up(self, tmp_path, order):
        def vector(embedder, side):
            if side == "request":
                return embedder.query("rain")
            return embedder.documents(["rain"])["rain"]

        plain = Embedder(AsymmetricEmbeddings())
        for _ in range(2):
            both = embedder(AsymmetricEmbeddings(), tmp_path, keep_requests=True)
            for side in order:
                assert np.array_equal(vector(both, side), vector(plain, side))
        assert not np.array_equal(vector(plain, "request"), vector(plain, "tool"))

    def test_requests_ahead_of_an_asymmetric_model_are_embedded_as_requests(self, tmp_path):
        embedder(AsymmetricEmbeddings(), tmp_path, keep_requests=True).requests(["rain"])
        model = AsymmetricEmbeddings()
        again = embedder(model, tmp_path, keep_requests=True)
        wanted = Embedder(AsymmetricEmbeddings()).query("rain")
        assert np.array_equal(again.query("rain"), wanted)
        assert (model.texts, model.queries) == ([], [])


class TestAnotherDimension:
    """A server may give a new model under its old name."""

    @pytest.fixture
    def directory(self, tmp_path):
        embedder(OfDimension(2), tmp_path).documents(["known", "known too"])
        return tmp_path

    def test_new_texts_have_the_vectors_of_the_model(self, directory):
        vectors = embedder(OfDimension(3), directory).documents(["new"])
        assert vectors["new"].shape == (3,)

    def test_known_texts_of_an_index_of_the_new_dimension_are_embedded_anew(self, directory):
        vectors = embedder(OfDimension(3), directory, dim=3).documents(["known"])
        assert vectors["known"].shape == (3,)

    def test_a_request_has_the_vector_of_the_model(self, directory):
        kept = embedder(OfDimension(3), directory, keep_requests=True)
        assert kept.query("new").shape == (3,)

    def test_new_texts_beside_known_ones_are_an_error_of_the_model_at_most(self, directory):
        with contextlib.suppress(EmbeddingError):
            vectors = embedder(OfDimension(3), directory).documents(["known", "new"])
            assert {vector.shape for vector in vectors.values()} == {(3,)}


class TestIndexes:
    def test_the_second_toolrag_over_a_folder_embeds_no_tool(self, tmp_path):
        with ToolRAG(make_catalogue(), embeddings=NamedEmbeddings(), cache_dir=tmp_path) as first:
            found = first.search("send a mail to Ann")
        model = NamedEmbeddings()
        with ToolRAG(make_catalogue(), embeddings=model, cache_dir=str(tmp_path)) as second:
            assert second.search("send a mail to Ann") == found
            assert second.indexed
        assert model.texts == []
        assert model.queries == ["send a mail to Ann"]

    def test_two_at_once_over_a_folder_learn_from_each_other(self, tmp_path):
        one, two = NamedEmbeddings(), NamedEmbeddings()
        with (
            ToolRAG(make_catalogue(), embeddings=one, cache_dir=tmp_path) as first,
            ToolRAG(make_catalogue(), embeddings=two, cache_dir=tmp_path) as second,
        ):
            first.index()
            second.index()
            second.add([make_tool("rename_file", "Gives a file another name.")])
            second.index()
        assert one.texts
        assert two.texts
        assert all("rename" in text or "another name" in text for text in two.texts)

    def test_other_models_over_one_folder_do_not_see_each_others_vectors(self, tmp_path):
        other = NamedEmbeddings()
        other.model = "hashing-2"
        for model in (NamedEmbeddings(), other):
            with ToolRAG(make_catalogue(), embeddings=model, cache_dir=tmp_path) as rag:
                rag.index()
        assert other.texts

    async def test_searching_and_waiting_find_the_same_over_one_folder(self, tmp_path):
        with (
            ToolRAG(make_catalogue(), embeddings=NamedEmbeddings(), cache_dir=tmp_path) as one,
            ToolRAG(make_catalogue(), embeddings=NamedEmbeddings(), cache_dir=tmp_path) as two,
        ):
            assert await one.asearch("play some music") == two.search("play some music")

    def test_an_index_that_keeps_requests_asks_the_model_nothing_again(self, tmp_path):
        documents = ToolRAG(make_catalogue()).tool_index.documents
        models = NamedEmbeddings(), NamedEmbeddings()
        answers = []
        for model in models:
            index = ToolIndex(model, cache=cache_in(tmp_path, model), keep_requests=True)
            index.add(documents)
            answers.append(index.evidence("send a mail").tools)
        assert answers[0] == answers[1]
        assert (models[1].texts, models[1].queries) == ([], [])

    def test_a_model_without_a_name_is_not_cached_and_one_warning_says_so(self, tmp_path, caplog):
        model = HashingEmbeddings()
        with ToolRAG(make_catalogue(), embeddings=model, cache_dir=tmp_path / "cache") as rag:
            rag.search("send a mail")
            rag.search("play a song")
        assert model.texts
        assert not (tmp_path / "cache").exists()
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert "HashingEmbeddings has no attribute `model` or `model_name`" in record.message
        assert str(tmp_path) in record.message

    @pytest.mark.parametrize("attribute", ["model", "model_name"])
    def test_a_model_may_have_its_name_in_either_attribute(self, tmp_path, attribute, caplog):
        model = HashingEmbeddings()
        setattr(model, attribute, "hashing-3")
        with ToolRAG(make_catalogue(), embeddings=model, cache_dir=tmp_path) as rag:
            rag.index()
        assert caplog.records == []
        assert any(tmp_path.iterdir())

    def test_a_folder_that_cannot_be_written_is_one_warning_and_no_failure(self, tmp_path, caplog):
        (tmp_path / "file").write_text("no folder")
        model = NamedEmbeddings()
        with ToolRAG(
            make_catalogue(), embeddings=model, cache_dir=tmp_path / "file" / "cache"
        ) as rag:
            assert "send_email" in {
                hit.id.rpartition("/")[2] for hit in rag.search("send an email")
            }
            rag.add([make_tool("rename_file", "Gives a file another name.")])
            rag.index()
            assert rag.indexed
        (record,) = caplog.records
        assert "cannot be written" in record.message
        assert str(tmp_path / "file" / "cache") in record.message

    def test_an_index_brings_its_own_cache(self, tmp_path):
        with pytest.raises(ValueError, match="an index brings its own embeddings"):
            ToolRAG(index=ToolIndex(HashingEmbeddings()), cache_dir=tmp_path)

    def test_without_a_folder_nothing_is_cached_and_nothing_said(self, tmp_path, caplog):
        with ToolRAG(make_catalogue(), embeddings=HashingEmbeddings()) as rag:
            rag.search("send a mail")
        assert caplog.records == []
