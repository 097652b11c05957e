"""What every index has to do, the local one and those in PostgreSQL.

`exact` marks what a search in the database does approximately: it ranks by its own figures.
"""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from documents import make_document
from fakes import DIM, BrokenEmbeddings, NamedEmbeddings, make_catalogue

from langchain_toolrag.catalogue.document import document_of
from langchain_toolrag.errors import AdapterError, EmbeddingError
from langchain_toolrag.index.adapter import Adapter
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.probes import PROBES
from langchain_toolrag.index.texts import view_texts
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.postgres.index import PostgresIndex
from langchain_toolrag.types import Changes, ToolFilter

QUERY = "is it going to rain in Oslo"

exact = pytest.mark.parametrize("kind", ["local", "replica"], indirect=True)
shared = pytest.mark.parametrize("kind", ["replica", "remote"], indirect=True)
remote = pytest.mark.parametrize("kind", ["remote"], indirect=True)


class BrokenNamedEmbeddings(NamedEmbeddings, BrokenEmbeddings):
    """Fails, and says which model it is."""


@pytest.fixture(params=["local", "replica", "remote"])
def kind(request):
    return request.param


@pytest.fixture
def make_index(kind, request):
    """Makes an index of a kind; those in the database are closed at the end."""
    if kind == "local":
        yield ToolIndex
        return
    dsn, opened = request.getfixturevalue("shared_dsn"), []

    def make(embeddings, **more):
        tenant = f"{request.getfixturevalue('tenant')} {len(opened)}"
        opened.append(PostgresIndex(dsn, tenant=tenant, embeddings=embeddings, mode=kind, **more))
        return opened[-1]

    yield make
    for index in opened:
        index.close()


@pytest.fixture
def other(index, kind, request):
    """The same catalogue, as another process has it."""
    tenant = f"{request.getfixturevalue('tenant')} 0"
    dsn = request.getfixturevalue("shared_dsn")
    with PostgresIndex(dsn, tenant=tenant, embeddings=NamedEmbeddings(), mode=kind) as other:
        yield other


@pytest.fixture
def embeddings():
    return NamedEmbeddings()


@pytest.fixture
def documents():
    return [document_of(tool) for tool in make_catalogue()]


@pytest.fixture
def index(make_index, embeddings, documents):
    index = make_index(embeddings)
    index.refresh(documents)
    return index


def by_id(evidence):
    return {tool.id: tool for tool in evidence.tools}


def have_seen(index, version):
    """Search until a version has come."""
    until = time.monotonic() + 5
    while index.evidence(QUERY, dense=False).version != version:
        assert time.monotonic() < until
        time.sleep(0.01)


def heads_of(model):
    """Heads that move vectors at random."""
    dice, tensors = np.random.default_rng(0), {}
    for side in ("request", "tool"):
        tensors[f"{side}.first.weight"] = dice.normal(size=(4, DIM))
        tensors[f"{side}.first.bias"] = dice.normal(size=4)
        tensors[f"{side}.second.weight"] = dice.normal(size=(DIM, 4)) * 0.1
        tensors[f"{side}.second.bias"] = dice.normal(size=DIM) * 0.1
    return Heads(Adapter("heads", model, 1.0, tensors, {}))


def make_set(prefix, count=30):
    return [make_document(f"{prefix}_{number}", f"Says rain {number}.") for number in range(count)]


def test_documents_stay_in_the_order_they_came(index, documents):
    assert list(index.documents) == documents


def test_changes_say_what_was_added_changed_removed_and_kept(make_index):
    a, b, c, d = (make_document(name) for name in "abcd")
    index = make_index(NamedEmbeddings())
    assert index.refresh([a, b, c]) == Changes(added=("a", "b", "c"))
    newer = make_document("b", "Does more.")
    changes = index.refresh([d, newer, a])
    assert changes == Changes(added=("d",), changed=("b",), removed=("c",), kept=("a",))
    assert index.documents == (d, newer, a)


def test_adding_replaces_a_document_and_removes_none(index, documents):
    newer = make_document("get_weather", "Says the weather.", "weather")
    added = make_document("ping")
    changes = index.add([newer, added])
    assert (changes.added, changes.changed, changes.removed) == (("ping",), (newer.id,), ())
    assert len(index.documents) == len(documents) + 1


def test_removing_an_unknown_id_is_no_matter(index, documents):
    changes = index.remove(["weather/get_weather", "nobody/knows"])
    assert changes.removed == ("weather/get_weather",)
    assert len(index.documents) == len(documents) - 1


def test_the_version_grows_with_every_change_and_only_then(index, documents):
    version = index.version
    index.refresh(documents)
    index.remove(["unknown"])
    index.embed()
    assert index.version == version
    index.remove([documents[0].id])
    index.add([documents[0]])
    assert index.version == version + 2


def test_the_same_documents_in_another_order_are_no_change(index, documents):
    version = index.version
    assert set(index.refresh(documents[::-1]).kept) == {document.id for document in documents}
    assert index.version == version


def test_documents_are_embedded_at_the_first_search_that_needs_it(index, embeddings):
    assert (index.indexed, embeddings.texts) == (False, [])
    index.evidence(QUERY, dense=False)
    assert embeddings.texts == embeddings.queries == []
    index.evidence(QUERY)
    assert index.indexed
    assert embeddings.queries == [QUERY]


def test_nothing_is_embedded_twice(index, embeddings, documents):
    for _ in range(2):
        index.evidence(QUERY)
        index.refresh(documents)
        index.add(documents)
        index.embed()
    texts = {text for document in documents for text, _ in view_texts(document, index.options)}
    assert sorted(embeddings.texts) == sorted({*texts, *PROBES})


@exact
def test_a_changed_tool_embeds_only_itself(index, embeddings, documents):
    index.embed()
    before = index.evidence(QUERY, 100)
    embeddings.texts.clear()
    changed = make_document("play_song", "Puts on a record.", "music")
    index.refresh([changed if document.id == changed.id else document for document in documents])
    after = index.evidence(QUERY, 100)
    assert set(embeddings.texts) <= {text for text, _ in view_texts(changed, index.options)}
    assert "Puts on a record." in embeddings.texts
    kept = by_id(before).keys() - {changed.id}
    assert {identity: by_id(after)[identity].dense for identity in kept} == {
        identity: by_id(before)[identity].dense for identity in kept
    }


def test_a_document_that_comes_back_is_embedded_anew(index, embeddings, documents):
    index.embed()
    index.remove([documents[0].id])
    index.add([documents[0]])
    assert not index.indexed
    assert documents[0].id in by_id(index.evidence(QUERY, 100))
    assert index.indexed


@exact
def test_dense_scores_are_the_weighted_cosines_of_the_views(index, documents):
    options = index.options
    vector = np.array(NamedEmbeddings().embed_query(QUERY))
    for document in documents:
        texts, weights = zip(*view_texts(document, options), strict=True)
        cosines = np.array(NamedEmbeddings().embed_documents(list(texts))) @ vector
        found = by_id(index.evidence(QUERY, 100))[document.id]
        assert found.dense == pytest.approx(cosines @ weights, abs=1e-6)


@exact
def test_statistics_are_those_of_the_whole_catalogue_whatever_the_filter(index, documents):
    everything = index.evidence("rain email", len(documents))
    dense = [tool.dense for tool in everything.tools]
    lexical = [tool.lexical for tool in everything.tools]
    assert len(dense) == len(documents)
    filtered = index.evidence("rain email", 1, ToolFilter(servers=frozenset({"bank"})))
    for statistics in (everything.statistics, filtered.statistics):
        assert statistics.dense_mean == pytest.approx(np.mean(dense), abs=1e-5)
        assert statistics.dense_deviation == pytest.approx(np.std(dense), abs=1e-5)
        assert statistics.lexical_mean == pytest.approx(np.mean(lexical), abs=1e-5)
        assert statistics.lexical_deviation == pytest.approx(np.std(lexical), abs=1e-5)


def test_without_a_query_vector_words_and_names_answer(index):
    evidence = index.evidence("send_email about the weather", dense=False)
    assert not evidence.dense_ready
    assert all(tool.dense is None for tool in evidence.tools)
    found = by_id(evidence)
    assert found["mail/send_email"].exact
    assert found["weather/get_weather"].lexical > 0
    assert evidence.statistics.dense_deviation == 0
    assert evidence.statistics.lexical_deviation > 0


def test_words_answer_while_the_model_is_broken(make_index, documents):
    index = make_index(BrokenNamedEmbeddings())
    index.refresh(documents)
    with pytest.raises(EmbeddingError, match="the model server is down"):
        index.evidence(QUERY)
    assert "the model server is down" in index.failure
    assert "weather/get_weather" in by_id(index.evidence("rain", dense=False))


@pytest.mark.parametrize("query", ["", "  ", "zzz", "🌱", "select:", "+", "+zzz", "+zzz rain"])
def test_a_query_without_a_known_word_finds_nothing_by_words(index, query):
    assert index.evidence(query, dense=False).tools == ()


def test_stop_words_are_no_lexical_evidence(index):
    tools = index.evidence("what is the best of a", dense=False).tools
    assert all(tool.lexical == 0 for tool in tools)


def test_an_index_may_be_empty(make_index, embeddings):
    index = make_index(embeddings)
    evidence = index.evidence("anything +at all", filter=ToolFilter(servers=frozenset({"a"})))
    assert (evidence.tools, evidence.version, evidence.dense_ready) == ((), 0, False)
    assert embeddings.queries == []
    assert not index.indexed


def test_an_index_may_be_emptied(index, documents):
    index.evidence(QUERY)
    index.refresh([])
    assert index.evidence(QUERY).tools == ()
    index.refresh(documents)
    assert len(by_id(index.evidence(QUERY, 100))) == len(documents)


def test_every_source_puts_forward_its_best(index):
    tools = index.evidence("rain", 1).tools
    assert "weather/get_weather" in {tool.id for tool in tools}
    assert len(tools) <= 3


def test_every_named_tool_is_put_forward_beyond_the_count(index, documents):
    query = " ".join(document.name for document in documents)
    exact = {tool.id for tool in index.evidence(query, 1).tools if tool.exact}
    assert exact == {document.id for document in documents}


@pytest.mark.parametrize(
    "restriction",
    [
        ToolFilter(servers=frozenset({"even"})),
        ToolFilter(tags=frozenset({"even", "other"})),
        ToolFilter(predicate=lambda document: document.server == "even"),
    ],
    ids=["servers", "tags", "predicate"],
)
@pytest.mark.parametrize("dense", [True, False])
def test_a_filter_comes_before_the_best_are_taken(make_index, embeddings, restriction, dense):
    kinds = ("even", "odd")
    index = make_index(embeddings)
    index.refresh(
        [
            make_document(f"rain_{n}", "rain " * n, kinds[n % 2], tags=frozenset({kinds[n % 2]}))
            for n in range(1, 41)
        ]
    )
    tools = index.evidence("rain", 8, restriction, dense=dense).tools
    assert {tool.id.split("/")[0] for tool in tools} == {"even"}
    assert 8 <= len(tools) <= 20


def test_restrictions_of_a_filter_all_apply(index):
    both = ToolFilter(frozenset({"weather"}), None, lambda document: "days" in document.parameters)
    assert set(by_id(index.evidence(QUERY, 100, both))) == {"weather/get_forecast"}


def test_a_tool_without_server_or_tags_passes_no_such_filter(make_index, embeddings):
    index = make_index(embeddings)
    index.refresh([make_document("rain")])
    assert index.evidence("rain", 5, ToolFilter(servers=frozenset({"a"}))).tools == ()
    assert index.evidence("rain", 5, ToolFilter(tags=frozenset({"a"}))).tools == ()
    assert len(index.evidence("rain", 5, ToolFilter()).tools) == 1


def test_a_filter_that_admits_nothing_finds_nothing(index):
    nobody = ToolFilter(servers=frozenset())
    assert index.evidence("send_email", 50, nobody).tools == ()


def test_a_filter_applies_to_named_tools_too(index):
    music = ToolFilter(servers=frozenset({"music"}))
    tools = index.evidence("send_email play_song", 50, music).tools
    assert {tool.id for tool in tools if tool.exact} == {"music/play_song"}


def test_a_selection_returns_the_selected_tools_only(index):
    tools = index.evidence("select:play_song, sendEmail").tools
    assert {tool.id for tool in tools} == {"music/play_song", "mail/send_email"}
    assert all(tool.exact for tool in tools)


def test_a_required_word_leaves_out_the_tools_without_it(index):
    tools = index.evidence("+calendar weather").tools
    assert {tool.id.split("/")[0] for tool in tools} == {"calendar"}


def test_operators_are_not_embedded(index, embeddings):
    index.evidence("select:play_song")
    index.evidence("+calendar meeting")
    assert embeddings.queries == ["play_song", "calendar meeting"]


async def test_waiting_gives_the_same_evidence(make_index, documents):
    first, second = make_index(NamedEmbeddings()), make_index(NamedEmbeddings())
    for index in (first, second):
        index.refresh(documents)
    for dense in (True, False):
        expected = first.evidence("send_email rain", 3, dense=dense)
        assert await second.aevidence("send_email rain", 3, dense=dense) == expected


async def test_waiting_raises_the_same_error(make_index, documents):
    index = make_index(BrokenNamedEmbeddings())
    index.refresh(documents)
    with pytest.raises(EmbeddingError, match="the model server is down"):
        await index.aevidence(QUERY)


@exact
def test_options_decide_what_is_indexed(make_index, embeddings, documents):
    index = make_index(embeddings, options=IndexOptions.classic())
    index.refresh(documents)
    assert index.evidence("calendar", dense=False).tools != ()
    assert by_id(index.evidence("meeting", dense=False)).keys() == {
        "calendar/create_calendar_event"
    }
    index.embed()
    assert len(embeddings.texts) == len(documents) + len(PROBES)


def test_searches_during_refreshes_see_one_set_of_tools_and_never_a_mix(make_index, embeddings):
    index = make_index(embeddings)
    sets = [make_set(prefix) for prefix in ("old", "new")]
    index.refresh(sets[0])
    seen, errors, stop = [], [], threading.Event()

    def search():
        try:
            while not stop.is_set():
                tools = index.evidence("rain", 100).tools
                seen.append({tool.id.split("_")[0] for tool in tools})
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(40):
        index.refresh(sets[turn % 2])
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert all(len(prefixes) == 1 for prefixes in seen)


def test_threads_that_search_first_embed_the_tools_once(make_index, embeddings, documents):
    index = make_index(embeddings)
    index.refresh(documents)
    barrier = threading.Barrier(4)

    def search():
        barrier.wait()
        index.evidence(QUERY)

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert index.indexed
    assert len(embeddings.texts) == len(set(embeddings.texts))


@exact
def test_evidence_tells_the_share_of_the_words_a_tool_has(index):
    found = by_id(index.evidence("currencies unheard", 100))
    assert 0 < found["bank/get_exchange_rate"].coverage < 1
    assert found["music/play_song"].coverage == 0
    assert by_id(index.evidence("currencies"))["bank/get_exchange_rate"].coverage == 1


@pytest.mark.parametrize("dense", [True, False])
def test_a_model_that_is_not_ours_is_taken_to_know_every_script(index, dense):
    assert index.evidence("東京の天気", dense=dense).script_known


class TestSize:
    def test_it_is_that_of_the_documents_after_every_change(self, index, documents):
        assert index.size == len(documents)
        index.add([make_document("ping"), documents[0]])
        assert index.size == len(documents) + 1
        index.remove(["ping", "unknown", documents[1].id])
        assert index.size == len(documents) - 1
        index.refresh(documents[:3])
        assert index.size == len(index.documents) == 3
        index.refresh([])
        assert index.size == 0

    def test_an_index_begins_without_any(self, make_index, embeddings):
        assert make_index(embeddings).size == 0

    @shared
    def test_an_index_opened_later_knows_it(self, other, documents):
        assert other.size == len(documents)

    @shared
    def test_it_counts_what_another_process_changed_once_that_is_seen(self, index, other):
        for change in (
            lambda: other.add(make_set("rain")),
            lambda: other.remove(["rain_1", "rain_2"]),
            lambda: other.refresh([]),
            lambda: other.add([make_document("rain")]),
        ):
            change()
            have_seen(index, other.version)
            assert index.size == other.size == len(other.documents)
        assert index.size == 1


def test_whoever_reads_vectors_is_given_the_index_in_memory_or_none(index, kind, documents):
    local = index.local
    if kind == "remote":
        assert local is None
    else:
        assert isinstance(local, ToolIndex)
        assert local.documents == tuple(documents)
    assert (local is index) == (kind == "local")


class TestDocumentsOf:
    def test_they_are_given_by_id_and_unknown_ids_left_out(self, index, documents):
        wanted = [documents[3], documents[0]]
        ids = [document.id for document in wanted]
        assert index.documents_of(ids) == {document.id: document for document in wanted}
        assert index.documents_of(["unknown", *ids, *ids, ""]) == index.documents_of(iter(ids))
        assert index.documents_of([]) == index.documents_of(["get_weather"]) == {}

    def test_odd_ids_are_no_others(self, index):
        odd = [
            make_document(name, f"Does {number}.")
            for number, name in enumerate(
                ["x\0y", "xy", "\ud800", "\x01abc", "n" * 5000, "Ä", "%s"]
            )
        ]
        index.add(odd)
        assert index.documents_of(each.id for each in odd) == {each.id: each for each in odd}
        assert index.documents_of(["x\0\0y", "\0", "\udc00", "\x01", "n" * 4999, "?", "%"]) == {}

    def test_they_are_those_of_the_last_change(self, index, documents):
        newer = replace(documents[0], description="Does more.")
        index.add([newer])
        index.remove([documents[1].id])
        ids = [document.id for document in documents[:2]]
        assert index.documents_of(ids) == {newer.id: newer}


class TestEmbed:
    def test_progress_is_told_up_to_the_last_tool(self, make_index, embeddings):
        index, told = make_index(embeddings), []
        index.refresh(make_set("rain", 250))
        index.embed(lambda done, total: told.append((done, total)))
        assert index.indexed
        assert told == sorted(told)
        assert {total for _, total in told} == {250}
        assert told[-1][0] == 250

    def test_where_nothing_is_missing_nothing_is_told(self, index):
        told = []
        index.embed()
        index.embed(lambda *step: told.append(step))
        assert told == []

    def test_an_error_of_the_model_is_raised(self, make_index, documents):
        index = make_index(BrokenNamedEmbeddings())
        index.refresh(documents)
        with pytest.raises(EmbeddingError, match="the model server is down"):
            index.embed()
        assert not index.indexed


@pytest.mark.parametrize("dense", [True, False])
class TestFiltersOfIds:
    @pytest.fixture
    def index(self, make_index, embeddings):
        """40 tools of two servers, of which ever longer ones are ever better."""
        index = make_index(embeddings)
        kinds = ("even", "odd")
        index.refresh([make_document(f"n_{n}", "rain " * n, kinds[n % 2]) for n in range(1, 41)])
        return index

    def found(self, index, dense, query="rain", count=8, **restriction):
        return set(by_id(index.evidence(query, count, ToolFilter(**restriction), dense=dense)))

    def test_these_alone_are_found_however_bad_they_are(self, index, dense):
        worst = {f"{kind}/n_{n}" for n in range(1, 9) for kind in ("even", "odd")}
        ids = {identity for identity in worst if index.documents_of([identity])}
        assert len(ids) == 8
        assert self.found(index, dense, ids=[*ids, "odd/nobody"]) == ids

    def test_as_many_as_are_asked_for_survive(self, index, dense):
        ids = {f"even/n_{n}" for n in range(2, 41, 2)}
        found = self.found(index, dense, ids=ids)
        assert found <= ids
        assert 8 <= len(found) <= 20

    def test_servers_and_a_predicate_apply_too(self, index, dense):
        found = self.found(
            index,
            dense,
            ids={"even/n_2", "even/n_4", "odd/n_1", "odd/n_3"},
            servers={"even", "unknown"},
            predicate=lambda document: document.name != "n_4",
        )
        assert found == {"even/n_2"}

    @pytest.mark.parametrize("ids", [[], ["unknown", "n_1", "even/N_2", "%", "even/n_\0"]])
    def test_ids_that_nobody_has_find_nothing(self, index, dense, ids):
        assert self.found(index, dense, ids=ids) == set()
        assert self.found(index, dense, query="select:n_2", ids=ids) == set()

    def test_named_tools_are_kept_out_as_well(self, index, dense):
        assert self.found(index, dense, query="n_2 n_4", ids=["even/n_4"]) == {"even/n_4"}
        assert self.found(index, dense, query="select:n_2,n_4", ids=["even/n_4"]) == {"even/n_4"}

    def test_odd_ids_are_found(self, index, dense):
        odd = [
            make_document(name, "rain") for name in ("x\0y", "xy", "\ud800", "\x01a", "r" * 5000)
        ]
        index.add(odd)
        for document in odd:
            assert self.found(index, dense, ids=[document.id]) == {document.id}

    async def test_waiting_finds_the_same(self, index, dense):
        only = ToolFilter(ids=["even/n_2", "odd/n_3"])
        waited = await index.aevidence("rain", 8, only, dense=dense)
        assert waited == index.evidence("rain", 8, only, dense=dense)
        assert set(by_id(waited)) == {"even/n_2", "odd/n_3"}


class TestRequestVectors:
    def test_the_vector_of_a_query_is_at_hand_after_its_search(self, index):
        assert index.request_vector(QUERY) is None
        index.evidence(QUERY)
        expected = np.array(NamedEmbeddings().embed_query(QUERY))
        found = index.request_vector(QUERY)
        assert found == pytest.approx(expected / np.linalg.norm(expected), abs=1e-6)
        assert index.request_vector("something else") is None

    def test_it_is_asked_for_by_the_query_with_its_operators(self, index):
        index.evidence("+calendar meeting")
        assert index.request_vector("+calendar meeting") is not None

    def test_by_words_alone_there_is_none(self, index, embeddings):
        index.evidence(QUERY, dense=False)
        assert index.request_vector(QUERY) is None
        assert embeddings.queries == []


class TestHeads:
    @exact
    def test_they_move_what_is_compared_and_not_the_vector_of_a_request(self, index):
        heads = heads_of(index.model)
        index.embed()
        index.prepare(heads)
        own, moved = index.evidence(QUERY, 100), index.evidence(QUERY, 100, heads=heads)
        assert {tool.id: tool.dense for tool in own.tools} != {
            tool.id: tool.dense for tool in moved.tools
        }
        expected = NamedEmbeddings().embed_query(QUERY)
        assert index.request_vector(QUERY) == pytest.approx(np.array(expected), abs=1e-6)

    @exact
    async def test_those_of_another_model_are_refused(self, index):
        index.embed()
        foreign = heads_of("somebody else's")
        with pytest.raises(AdapterError):
            index.prepare(foreign)
        with pytest.raises(AdapterError):
            index.evidence(QUERY, heads=foreign)
        with pytest.raises(AdapterError):
            await index.aevidence(QUERY, heads=foreign)

    @remote
    async def test_a_search_in_the_database_refuses_them_and_names_the_way_out(self, index):
        heads = heads_of(index.model)
        refused = "use mode='replica', or no heads"
        with pytest.raises(AdapterError, match=refused):
            index.prepare(heads)
        with pytest.raises(AdapterError, match=refused):
            index.evidence(QUERY, heads=heads)
        with pytest.raises(AdapterError, match=refused):
            await index.aevidence(QUERY, heads=heads)

    def test_by_words_alone_they_are_no_matter(self, index):
        heads = heads_of(index.model)
        with_heads = index.evidence("rain", dense=False, heads=heads)
        assert with_heads == index.evidence("rain", dense=False)
