import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple

import numpy as np
import pytest
from documents import make_document
from fakes import DIM, AsymmetricEmbeddings, BrokenEmbeddings, HashingEmbeddings, make_catalogue
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_toolrag import ToolRAG
from langchain_toolrag.catalogue.document import document_of
from langchain_toolrag.errors import AdapterError, EmbeddingError
from langchain_toolrag.fork import _after_fork_in_child
from langchain_toolrag.index import dense, headed
from langchain_toolrag.index.adapter import Adapter, write_adapter
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.index.probes import PROBES
from langchain_toolrag.index.storage import load_index, save_index
from langchain_toolrag.index.tool_index import ToolIndex

HIDDEN = 4
MODEL = "HashingEmbeddings"
QUERY = "is it going to rain in Oslo"

laws = settings(derandomize=True, deadline=None, max_examples=100)


def adapter_of(seed=0, *, spread=0.1, base=MODEL, dim=DIM):
    """Heads that move vectors at random; without a spread, the identity."""
    dice = np.random.default_rng(seed)
    tensors = {}
    for side in ("request", "tool"):
        tensors[f"{side}.first.weight"] = dice.normal(size=(HIDDEN, dim))
        tensors[f"{side}.first.bias"] = dice.normal(size=HIDDEN)
        tensors[f"{side}.second.weight"] = dice.normal(size=(dim, HIDDEN)) * spread
        tensors[f"{side}.second.bias"] = dice.normal(size=dim) * spread
    return Adapter("heads", base, 1.0, tensors, {})


class CountingHeads(Heads):
    """Notes how many rows it moved, call by call; waits before it does while told to."""

    def __init__(self, adapter):
        super().__init__(adapter)
        self.moved = []
        self.may_go, self.waits = threading.Event(), threading.Event()
        self.may_go.set()

    def rows(self, rows):
        self.waits.set()
        assert self.may_go.wait(10)
        self.moved.append(len(rows))
        return super().rows(rows)


def heads_of(seed=0, **given):
    return CountingHeads(adapter_of(seed, **given))


def index_of(documents, embeddings=None):
    index = ToolIndex(embeddings or HashingEmbeddings())
    index.refresh(documents)
    return index


@pytest.fixture
def documents():
    return [document_of(tool) for tool in make_catalogue()]


@pytest.fixture
def index(documents):
    return index_of(documents)


def ranked(evidence):
    return [tool.id for tool in sorted(evidence.tools, key=lambda tool: -tool.dense)]


def dense_of(evidence):
    return {tool.id: tool.dense for tool in evidence.tools}


def alike(one, other):
    """Whether the evidence of two indexes of the same tools is the same, but for rounding."""
    assert [tool.id for tool in one.tools] == [tool.id for tool in other.tools]
    for mine, yours in zip(one.tools, other.tools, strict=True):
        assert mine.dense == pytest.approx(yours.dense, abs=1e-6)
        assert (mine.keyword, mine.exact) == (yours.keyword, yours.exact)
        assert mine.lexical == pytest.approx(yours.lexical, abs=1e-6)
    assert astuple(one.statistics) == pytest.approx(astuple(other.statistics), abs=1e-6)
    return True


class TestSearching:
    def test_heads_that_learned_nothing_change_nothing(self, index):
        plain = index.evidence(QUERY)
        assert index.evidence(QUERY, heads=heads_of(spread=0)) == plain

    def test_moved_scores_are_products_of_moved_requests_and_moved_rows(self, index):
        heads = heads_of()
        moved = dense_of(index.evidence(QUERY, 100, heads=heads))
        snapshot = index.snapshot
        rows = heads.rows(snapshot.dense.rows(list(snapshot.keys.values())))
        products = rows @ heads.request(index.request_vector(QUERY))
        assert moved == pytest.approx(dict(zip(snapshot.keys, products, strict=True)), abs=1e-6)

    def test_heads_that_move_order_tools_anew_and_leave_words_and_names_alone(self, index):
        plain = index.evidence(QUERY, 100)
        moved = index.evidence(QUERY, 100, heads=heads_of())
        assert ranked(moved) != ranked(plain)
        for mine, yours in zip(moved.tools, plain.tools, strict=True):
            assert mine._replace(dense=None) == yours._replace(dense=None)
        assert index.evidence(QUERY, 100) == plain

    def test_a_head_can_teach_a_request_its_tool(self, index):
        """A head that answers everything with the vector of one tool makes that tool the first."""
        row = index_of(index.documents)
        row.embed()
        wanted = row.snapshot.dense.rows([row.snapshot.keys["music/play_song"]])[0]
        adapter = adapter_of(spread=0)
        adapter.tensors["request.second.bias"][:] = 100 * wanted
        assert ranked(index.evidence(QUERY))[0] != "music/play_song"
        assert ranked(index.evidence(QUERY, heads=Heads(adapter)))[0] == "music/play_song"

    def test_what_a_miss_scores_is_measured_with_moved_probes_and_rows(self, index):
        heads = heads_of()
        found = index.evidence(QUERY, heads=heads).statistics.outside
        snapshot = index.snapshot
        rows = heads.rows(snapshot.dense.rows(list(snapshot.keys.values())))
        best = (heads.requests(snapshot.probes) @ rows.T).max(axis=1)
        assert len(best) == len(PROBES)
        assert found == pytest.approx(np.median(best), abs=1e-6)
        assert found != pytest.approx(index.evidence(QUERY).statistics.outside, abs=1e-3)

    def test_a_search_by_words_alone_moves_nothing(self, index):
        heads = heads_of()
        plain = index.evidence(QUERY, dense=False)
        assert index.evidence(QUERY, dense=False, heads=heads) == plain
        assert heads.moved == []

    def test_nothing_is_embedded_for_heads(self, documents):
        embeddings = HashingEmbeddings()
        index = index_of(documents, embeddings)
        index.evidence(QUERY)
        texts, queries = list(embeddings.texts), list(embeddings.queries)
        for seed in range(4):
            index.evidence(QUERY, heads=heads_of(seed))
        assert (embeddings.texts, embeddings.queries) == (texts, queries)

    async def test_waiting_for_evidence_gives_the_same(self, index):
        heads = heads_of()
        assert await index.aevidence(QUERY, heads=heads) == index.evidence(QUERY, heads=heads)

    async def test_the_event_loop_goes_on_while_rows_are_moved(self, index):
        heads = heads_of()
        heads.may_go.clear()
        search = asyncio.create_task(index.aevidence(QUERY, heads=heads))
        while not heads.waits.is_set():
            await asyncio.sleep(0.001)
        heads.may_go.set()
        assert ranked(await search) == ranked(index.evidence(QUERY, heads=heads))

    def test_an_index_without_tools_has_no_evidence_under_heads_either(self):
        index, heads = ToolIndex(HashingEmbeddings()), heads_of()
        index.prepare(heads)
        assert index.evidence(QUERY, heads=heads).tools == ()
        index.add([make_document("get_rain", "Says rain.")])
        assert dense_of(index.evidence(QUERY, heads=heads)).keys() == {"get_rain"}
        index.remove(["get_rain"])
        assert index.evidence(QUERY, heads=heads).tools == ()
        index.add([make_document("get_sun", "Says sun.")])
        alone = index_of([make_document("get_sun", "Says sun.")])
        assert alike(index.evidence(QUERY, heads=heads), alone.evidence(QUERY, heads=heads))

    def test_a_model_that_fails_fails_with_heads_too(self, documents):
        index = index_of(documents, BrokenEmbeddings())
        with pytest.raises(EmbeddingError, match="the model server is down"):
            index.evidence(QUERY, heads=heads_of(base="BrokenEmbeddings"))

    def test_an_index_that_was_saved_and_loaded_is_moved_as_before(self, tmp_path, index):
        heads = heads_of()
        before, plain = index.evidence(QUERY, heads=heads), index.evidence(QUERY)
        save_index(index, tmp_path)
        loaded = load_index(tmp_path, HashingEmbeddings())
        assert alike(loaded.evidence(QUERY), plain)
        assert alike(loaded.evidence(QUERY, heads=heads), before)

    @pytest.mark.parametrize("size", [1, 5, 12, 100])
    def test_however_many_rows_are_moved_at_once_the_evidence_is_the_same(
        self, monkeypatch, documents, size
    ):
        wanted = index_of(documents).evidence(QUERY, heads=heads_of())
        monkeypatch.setattr(headed, "_BLOCK", size)
        heads = heads_of()
        assert alike(index_of(documents).evidence(QUERY, heads=heads), wanted)
        assert (max(heads.moved), sum(heads.moved)) == (min(size, 12), 12)

    def test_an_index_in_half_precision_is_moved_too(self, monkeypatch, documents):
        wanted = dense_of(index_of(documents).evidence(QUERY, heads=HEADS))
        monkeypatch.setattr(dense, "_MOST_SINGLE", 5)
        index = index_of(documents[:5])
        index.evidence(QUERY, heads=HEADS)
        index.refresh(documents)
        assert dense_of(index.evidence(QUERY, heads=HEADS)) == pytest.approx(wanted, abs=1e-3)


class TestForeignHeads:
    @pytest.mark.parametrize("ask", ["evidence", "prepare"])
    def test_heads_of_another_model_are_refused_with_both_names(self, index, ask):
        heads = heads_of(base="other model")
        with pytest.raises(AdapterError, match=f"of other model; .*{MODEL}") as caught:
            index.prepare(heads) if ask == "prepare" else index.evidence(QUERY, heads=heads)
        assert caught.value.adapter == heads.digest

    def test_heads_for_vectors_of_another_dimension_are_refused(self, index):
        index.embed()
        with pytest.raises(AdapterError, match=f"dimension 3; those of the tools have {DIM}"):
            index.prepare(heads_of(dim=3))

    def test_what_is_refused_takes_nobodys_place(self, index):
        heads = heads_of()
        index.evidence(QUERY, heads=heads)
        for number in range(4):
            for foreign in (heads_of(number, base="other"), heads_of(number, dim=3)):
                with pytest.raises(AdapterError):
                    index.prepare(foreign)
        index.evidence(QUERY, heads=heads)
        assert heads.moved == [12]


class TestRequestVectors:
    @pytest.mark.parametrize("embeddings", [HashingEmbeddings, AsymmetricEmbeddings])
    async def test_they_are_at_hand_once_they_were_asked_and_are_not_moved(
        self, documents, embeddings
    ):
        for waiting in (False, True):
            model = embeddings()
            index = index_of(documents, model)
            heads = heads_of(base=index.model)
            assert index.request_vector(QUERY) is None
            if waiting:
                await index.aevidence(QUERY, heads=heads)
            else:
                index.evidence(QUERY, heads=heads)
            vector = index.request_vector(QUERY)
            assert vector == pytest.approx(np.array(embeddings().embed_query(QUERY)), abs=1e-6)
            assert index.request_vector("something else") is None
            assert len(model.queries) == 1

    def test_they_are_those_of_the_query_as_it_was_asked(self, index):
        index.evidence("+rain in Oslo")
        wanted = HashingEmbeddings().embed_query("rain in Oslo")
        assert index.request_vector("+rain in Oslo") == pytest.approx(np.array(wanted), abs=1e-6)

    def test_there_are_none_of_searches_by_words(self, index):
        index.evidence(QUERY, dense=False)
        assert index.request_vector(QUERY) is None

    def test_the_index_says_which_model_they_are_of(self, index):
        assert index.model == "HashingEmbeddings"
        assert ToolIndex(AsymmetricEmbeddings()).model == "AsymmetricEmbeddings(asymmetric-1)"


names = st.sampled_from([f"{verb}_{noun}" for verb in ("get", "list") for noun in "abcdef"])
texts = st.lists(st.sampled_from(["rain", "sun", "mail", "send", "song"]), max_size=4)
known_documents = st.lists(
    st.builds(make_document, names, texts.map(" ".join)),
    max_size=8,
    unique_by=lambda document: document.id,
)
edits = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "remove", "refresh"]),
        known_documents,
        st.sampled_from([None, "embed", "ask", "ask other"]),
    ),
    min_size=1,
    max_size=8,
)
HEADS, OTHER = heads_of(1), heads_of(2)


def edit(index, kind, known):
    if kind == "remove":
        index.remove([document.id for document in known])
    else:
        getattr(index, kind)(known)


class TestChanges:
    @laws
    @given(edits, texts.map(" ".join))
    def test_an_index_that_was_changed_answers_under_heads_like_one_made_anew(self, history, query):
        index = ToolIndex(HashingEmbeddings())
        for kind, known, then in history:
            edit(index, kind, known)
            if then == "embed":
                index.embed()
            elif then:
                index.evidence(query, heads=HEADS if then == "ask" else OTHER)
        for heads in (HEADS, OTHER):
            anew = index_of(index.documents)
            mine, yours = index.evidence(query, 100, heads=heads), anew.evidence(query, 100)
            assert mine.tools == () or ranked(yours)
            assert alike(mine, anew.evidence(query, 100, heads=heads))

    def test_documents_numbered_anew_are_moved_again(self, index):
        heads = heads_of()
        for generation in range(6):
            # Every slot is another tool's by the time the documents are numbered anew.
            index.refresh([make_document(f"tool_{generation}_{n}", f"rain {n}") for n in range(5)])
            anew = index_of(index.documents)
            mine = index.evidence(QUERY, 100, heads=heads)
            assert alike(mine, anew.evidence(QUERY, 100, heads=heads_of()))

    def test_only_new_rows_are_moved(self, index):
        heads = heads_of()
        index.evidence(QUERY, heads=heads)
        assert heads.moved == [12]
        index.add([make_document("ping"), make_document("pong")])
        index.evidence(QUERY, heads=heads)
        index.evidence("another question", heads=heads)
        assert heads.moved == [12, 2]
        index.remove(["ping", "mail/send_email"])
        index.evidence(QUERY, heads=heads)
        assert heads.moved == [12, 2]
        index.add([make_document("pong", "Says more.")])
        index.evidence(QUERY, heads=heads)
        assert heads.moved == [12, 2, 1]

    def test_a_tool_that_waits_for_its_vector_makes_nothing_to_move(self, index):
        heads = heads_of()
        index.evidence(QUERY, heads=heads)
        index.add([make_document("ping")])
        index.prepare(heads)
        assert heads.moved == [12]

    def test_moved_rows_share_nothing_with_those_of_the_model(self, index):
        plain = index.evidence(QUERY, 100)
        index.prepare(heads_of())
        assert index.evidence(QUERY, 100) == plain


class TestManyHeads:
    def test_those_of_three_are_kept_and_what_was_used_longest_ago_goes(self, index):
        first, second, third, fourth = map(heads_of, range(4))
        for heads in (first, second, third, first, fourth, first, third):
            index.evidence(QUERY, heads=heads)
        assert [each.moved for each in (first, second, third, fourth)] == [[12]] * 4
        index.evidence(QUERY, heads=second)
        assert second.moved == [12, 12]

    def test_heads_of_the_same_content_are_moved_once(self, index):
        one, same = heads_of(1), heads_of(1)
        assert index.evidence(QUERY, heads=one) == index.evidence(QUERY, heads=same)
        assert (one.moved, same.moved) == ([12], [])

    def test_preparing_leaves_the_first_search_nothing_to_move(self, index):
        index.embed()
        heads = heads_of()
        index.prepare(heads)
        assert heads.moved == [12]
        index.evidence(QUERY, heads=heads)
        assert heads.moved == [12]

    def test_preparing_keeps_no_search_and_no_change_waiting(self, index):
        in_use, coming = heads_of(1), heads_of(2)
        index.evidence(QUERY, heads=in_use)
        coming.may_go.clear()
        with ThreadPoolExecutor(1) as pool:
            preparing = pool.submit(index.prepare, coming)
            assert coming.waits.wait(10)
            index.add([make_document("ping")])
            assert "ping" in dense_of(index.evidence(QUERY, 100))
            assert "ping" in dense_of(index.evidence(QUERY, 100, heads=in_use))
            assert not preparing.done()
            coming.may_go.set()
            preparing.result(10)
        assert "ping" in dense_of(index.evidence(QUERY, 100, heads=coming))
        assert coming.moved == [12, 1]

    def test_two_searches_that_need_the_same_rows_move_them_once(self, index):
        index.embed()
        heads = heads_of()
        heads.may_go.clear()
        with ThreadPoolExecutor(2) as pool:
            searches = [pool.submit(index.evidence, QUERY, heads=heads) for _ in range(2)]
            assert heads.waits.wait(10)
            heads.may_go.set()
            one, other = (search.result(10) for search in searches)
        assert one == other
        assert heads.moved == [12]

    def test_in_threads_every_search_sees_one_state_under_its_own_heads(self, index):
        """While tools come and go, no score is that of another state or of the other heads."""
        heads, states, seen, stop = (HEADS, OTHER, None), {}, [], threading.Event()
        states[index.version] = index.documents

        def search(which):
            seen.append((which, index.evidence(QUERY, 100, heads=heads[which])))
            while not stop.is_set():
                seen.append((which, index.evidence(QUERY, 100, heads=heads[which])))

        with ThreadPoolExecutor(3) as pool:
            searching = [pool.submit(search, which) for which in range(3)]
            for number in range(30):
                known = index.documents
                index.refresh([*known[1:], make_document(f"new_{number}", f"rain {number}")])
                states[index.version] = index.documents
            stop.set()
            for each in searching:
                each.result(30)
        anew = {}
        for which, evidence in seen:
            key = which, evidence.version
            if key not in anew:
                made = index_of(states[evidence.version])
                anew[key] = dense_of(made.evidence(QUERY, 100, heads=heads[which]))
            dense = {name: score for name, score in dense_of(evidence).items() if score is not None}
            assert dense == pytest.approx({name: anew[key][name] for name in dense}, abs=1e-6)
        assert {which for which, _ in seen} == {0, 1, 2}

    def test_a_forked_child_does_not_wait_for_rows_that_its_parent_moves(self, index):
        index.embed()
        heads = heads_of()
        heads.may_go.clear()
        with ThreadPoolExecutor(1) as pool:
            moving = pool.submit(index.prepare, heads)
            assert heads.waits.wait(10)
            _after_fork_in_child()
            heads.may_go.set()
            assert index.evidence(QUERY, heads=heads).tools
            moving.result(10)


class TestInToolRAG:
    @pytest.fixture
    def file(self, tmp_path):
        path = tmp_path / "heads.safetensors"
        write_adapter(adapter_of(), path)
        return path

    def test_heads_that_learned_nothing_find_what_the_model_finds(self, tmp_path):
        write_adapter(adapter_of(spread=0), tmp_path / "identity.safetensors")
        with (
            ToolRAG(make_catalogue(), embeddings=HashingEmbeddings()) as plain,
            ToolRAG(
                make_catalogue(),
                embeddings=HashingEmbeddings(),
                heads=tmp_path / "identity.safetensors",
            ) as rag,
        ):
            assert rag.search(QUERY) == plain.search(QUERY)
            assert rag.select(QUERY).names == plain.select(QUERY).names

    async def test_a_file_moves_every_search_by_meaning(self, file):
        with (
            ToolRAG(make_catalogue(), embeddings=HashingEmbeddings()) as plain,
            ToolRAG(make_catalogue(), embeddings=HashingEmbeddings(), heads=str(file)) as rag,
        ):
            request = "current weather in a city"
            assert plain.semantic_search(request) != rag.semantic_search(request)
            assert plain.search(request) != rag.search(request) == await rag.asearch(request)
            assert plain.text_search(request) == rag.text_search(request)

    def test_heads_of_another_model_are_refused_when_it_is_made(self, file):
        with pytest.raises(AdapterError, match="wanted heads of AsymmetricEmbeddings"):
            ToolRAG(make_catalogue(), embeddings=AsymmetricEmbeddings(), heads=file)

    def test_an_index_saved_under_heads_is_read_with_others(self, tmp_path, file):
        with ToolRAG(make_catalogue(), embeddings=HashingEmbeddings(), heads=file) as rag:
            rag.index()
            rag.save(tmp_path / "saved")
        model = HashingEmbeddings()
        with ToolRAG.load(tmp_path / "saved", make_catalogue(), embeddings=model) as loaded:
            assert loaded.indexed
        assert model.texts == []

    def test_a_model_that_fails_leaves_the_search_by_words(self):
        heads = heads_of(base="BrokenEmbeddings")
        with ToolRAG(make_catalogue(), embeddings=BrokenEmbeddings(), heads=heads) as rag:
            selection = rag.select("send an email to Ann")
            assert "send_email" in selection.names
            assert "the model server is down" in selection.degraded
