import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fakes import HashingEmbeddings, make_catalogue

from langchain_toolrag import ToolRAG
from langchain_toolrag.errors import EmbeddingError, StillLoadingError
from langchain_toolrag.index import embedder
from langchain_toolrag.index.embedding import MiniLMEmbeddings

QUERY = "current weather in a city"


class SlowModel(MiniLMEmbeddings):
    """A model of ours that loads when it is told to, or fails."""

    def __init__(self):
        super().__init__("a-model", adapter=None)
        self.may_load, self.loads, self.broken = threading.Event(), 0, False

    def _encoder(self):
        with self._lock:
            if self._loaded is None:
                self.loads += 1
                assert self.may_load.wait(20)
                if self.broken:
                    raise EmbeddingError("the weights are gone")
                self._loaded = self
            return self

    def encode(self, texts):
        return np.array(HashingEmbeddings().embed_documents(list(texts)), np.float32)


@pytest.fixture
def model():
    return SlowModel()


@pytest.fixture
def rag(model):
    with ToolRAG(make_catalogue(), embeddings=model, background=True) as rag:
        yield rag
        model.may_load.set()
        finish(rag)


def finish(rag):
    if rag.tool_index._loader is not None:
        rag.tool_index._loader.join(20)


def test_while_the_model_loads_words_answer_and_the_selection_says_so(rag, model):
    selection = rag.select(QUERY)
    assert selection.names[0] == "get_weather"
    assert selection.degraded.startswith("lexical instead: the embedding model is being loaded")
    assert selection.confidence is None
    assert not rag.status.ready


def test_once_it_is_loaded_meaning_answers(rag, model):
    rag.select(QUERY)
    model.may_load.set()
    finish(rag)
    assert rag.status.ready
    assert rag.status.indexed
    selection = rag.select(QUERY)
    assert selection.degraded == ""
    assert selection.confidence is not None


def test_a_search_says_that_it_would_have_to_wait(rag):
    with pytest.raises(StillLoadingError, match="is being loaded and 12 tools have no vector yet"):
        rag.search(QUERY)
    assert rag.text_search(QUERY)[0].id == "weather/get_weather"


def test_however_many_threads_ask_there_is_one_load(rag, model):
    with ThreadPoolExecutor(16) as pool:
        selections = list(pool.map(lambda _: rag.select(QUERY), range(64)))
    assert {selection.names[0] for selection in selections} == {"get_weather"}
    model.may_load.set()
    finish(rag)
    assert model.loads == 1


def test_the_event_loop_does_not_wait_either(rag):
    selection = asyncio.run(rag.aselect(QUERY))
    assert "is being loaded" in selection.degraded


def test_a_load_that_failed_is_told_and_tried_again_after_a_rest(rag, model, monkeypatch, caplog):
    clock = [100.0]
    monkeypatch.setattr(embedder.time, "monotonic", lambda: clock[0])
    model.broken = True
    model.may_load.set()
    with caplog.at_level(logging.WARNING, "langchain_toolrag"):
        rag.select(QUERY)
        finish(rag)
    assert "the weights are gone" in caplog.text
    assert rag.status.failure == "the weights are gone"
    assert "embedding failed: the weights are gone" in rag.select(QUERY).degraded
    assert model.loads == 1
    clock[0] += 2
    model.broken = False
    assert "is being loaded" in rag.select(QUERY).degraded
    finish(rag)
    assert rag.select(QUERY).degraded == ""
    assert rag.status.failure == ""


def test_tools_that_come_later_are_embedded_in_the_background_too(rag, model):
    model.may_load.set()
    rag.select(QUERY)
    finish(rag)
    rag.add([{"name": "get_tide", "description": "When the water is high."}])
    assert "1 tools have no vector yet" in rag.select("when is the water high?").degraded
    finish(rag)
    assert rag.select("when is the water high?").degraded == ""


def test_what_is_asked_for_in_the_foreground_waits(rag, model):
    model.may_load.set()
    rag.index()
    assert rag.select(QUERY).degraded == ""


def test_an_index_brings_its_own_background(rag):
    with pytest.raises(ValueError, match="an index brings its own"):
        ToolRAG(make_catalogue(), index=rag.tool_index, background=True)
