import numpy as np
import pytest
from documents import make_document
from fakes import HashingEmbeddings, make_catalogue

from langchain_toolrag.catalogue.document import document_of
from langchain_toolrag.fork import _after_fork_in_child
from langchain_toolrag.index.probes import PROBES
from langchain_toolrag.index.storage import load_index, save_index
from langchain_toolrag.index.texts import view_texts
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.types import ToolFilter

QUERY = "is it going to rain in Oslo"


@pytest.fixture
def documents():
    return [document_of(tool) for tool in make_catalogue()]


@pytest.fixture
def index(embeddings, documents):
    index = ToolIndex(embeddings)
    index.refresh(documents)
    return index


def by_id(evidence):
    return {tool.id: tool for tool in evidence.tools}


def make_set(prefix, count=30):
    return [make_document(f"{prefix}_{number}", f"Says rain {number}.") for number in range(count)]


class Interrupting(HashingEmbeddings):
    """Calls something in the middle of embedding."""

    def __init__(self):
        super().__init__()
        self.meanwhile = []

    def embed_documents(self, texts):
        if self.meanwhile:
            self.meanwhile.pop()()
        return super().embed_documents(texts)

    def embed_query(self, text):
        if self.meanwhile:
            self.meanwhile.pop()()
        return super().embed_query(text)


def test_a_search_that_a_refresh_overtakes_sees_the_new_tools_only():
    embeddings = Interrupting()
    index = ToolIndex(embeddings)
    index.refresh(make_set("old"))
    index.embed()
    embeddings.meanwhile.append(lambda: index.refresh(make_set("new")))
    evidence = index.evidence("rain", 100)
    assert {tool.id for tool in evidence.tools} == {document.id for document in make_set("new")}
    assert not evidence.dense_ready
    assert evidence.version == index.version


def test_tools_that_change_while_they_are_embedded_get_no_stale_vector():
    embeddings = Interrupting()
    index = ToolIndex(embeddings)
    first, second = make_document("a", "Says rain."), make_document("b", "Says sun.")
    newer = make_document("a", "Says snow.")
    index.refresh([first, second])
    embeddings.meanwhile.append(lambda: index.refresh([newer]))
    index.embed()
    assert not index.indexed
    found = by_id(index.evidence("snow", 10))
    fresh = ToolIndex(HashingEmbeddings())
    fresh.refresh([newer])
    assert found["a"].dense == by_id(fresh.evidence("snow", 10))["a"].dense


def test_a_forked_child_does_not_wait_for_its_parents_locks(index, documents):
    index._writing.acquire()
    index._embedding.acquire()
    _after_fork_in_child()
    index.embed()
    index.refresh(documents[:3])
    assert len(index.documents) == 3


def outside(index):
    return index.evidence(QUERY).statistics.outside


def median_of_best(documents, options):
    """What `outside` is, from every probe's cosine with every text."""
    model = HashingEmbeddings()
    views = [view_texts(document, options) for document in documents]
    rows = [
        sum(weight * np.array(model.embed_query(text)) for text, weight in texts) for texts in views
    ]
    return np.median((np.array(model.embed_documents(list(PROBES))) @ np.array(rows).T).max(axis=1))


class TestProbes:
    def test_there_are_24_different_ones(self):
        assert len(set(PROBES)) == 24

    def test_they_are_embedded_once_whatever_changes(self, index, embeddings, documents):
        index.embed()
        index.add(make_set("more", 130))
        index.embed()
        index.refresh([])
        index.refresh(documents)
        index.evidence(QUERY)
        assert all(embeddings.texts.count(probe) == 1 for probe in PROBES)

    def test_several_chunks_of_tools_embed_them_once(self, embeddings):
        index = ToolIndex(embeddings)
        index.refresh(make_set("many", 250))
        index.embed()
        assert all(embeddings.texts.count(probe) == 1 for probe in PROBES)

    def test_a_search_by_words_does_not_embed_them(self, index, embeddings):
        evidence = index.evidence(QUERY, dense=False)
        assert embeddings.texts == []
        assert evidence.statistics.outside == 0.0

    def test_they_are_no_tools(self, index, documents):
        index.embed()
        assert len(index.evidence(PROBES[0], 100).tools) == len(documents)
        assert index.snapshot.dense.size == len(documents)

    def test_outside_is_the_median_of_their_best_scores(self, index, documents):
        assert outside(index) == pytest.approx(median_of_best(documents, index.options), abs=1e-6)

    def test_outside_is_the_same_for_every_query_and_filter(self, index):
        music = ToolFilter(servers=frozenset({"music"}))
        found = {
            index.evidence(query, 3, filter).statistics.outside
            for query in (QUERY, "play_song", "")
            for filter in (None, music)
        }
        assert len(found) == 1

    def test_outside_follows_every_change_of_the_tools(self, index, documents):
        before = outside(index)
        twins = [make_document(f"probe_{n}", probe) for n, probe in enumerate(PROBES)]
        index.add(twins)
        assert outside(index) > before
        expected = median_of_best([*documents, *twins], index.options)
        assert outside(index) == pytest.approx(expected, abs=1e-6)
        index.remove([document.id for document in twins])
        assert outside(index) == pytest.approx(before, abs=1e-6)

    def test_outside_of_an_emptied_index_is_nothing(self, index, documents):
        before = outside(index)
        index.refresh([])
        assert outside(index) == 0.0
        index.refresh(documents)
        assert outside(index) == pytest.approx(before, abs=1e-6)

    def test_a_saved_index_keeps_them(self, index, tmp_path):
        before = outside(index)
        save_index(index, tmp_path / "index")
        model = HashingEmbeddings()
        loaded = load_index(tmp_path / "index", model)
        assert outside(loaded) == before
        assert np.array_equal(loaded.snapshot.probes, index.snapshot.probes)
        loaded.add([make_document("ping", "Says rain.")])
        loaded.embed()
        assert not set(model.texts) & set(PROBES)
