"""What a search in the database does besides what every index does (see tests/contract)."""

import re
import threading
import zlib
from dataclasses import replace

import numpy as np
import psycopg
import pytest
from documents import make_document
from fakes import BrokenEmbeddings, NamedEmbeddings, make_catalogue
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from langchain_toolrag.catalogue.document import document_of
from langchain_toolrag.errors import DatabaseError, EmbeddingError, StillLoadingError
from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.keyword import OfServer
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.postgres import remote as module
from langchain_toolrag.postgres.connection import Database
from langchain_toolrag.postgres.remote import RemoteSearch
from langchain_toolrag.postgres.tool_store import ToolTable
from langchain_toolrag.postgres.upgrade import upgrade
from langchain_toolrag.types import ToolFilter

QUERY = "is it going to rain in Oslo"
WORDS = "rain sun mail invoice Oslo city list get send event listEvents 天気 l'été \\ \0 ' % :* & !"


class BrokenNamedEmbeddings(NamedEmbeddings, BrokenEmbeddings):
    """Fails, and says which model it is."""


class Remote:
    """A tenant's tools and a search of them."""

    def __init__(self, dsn, tenant, embeddings=None, options=None, **more):
        self.embeddings = embeddings or NamedEmbeddings()
        self.database = Database(dsn, tenant)
        self.table = ToolTable(self.database)
        embedder = Embedder(self.embeddings)
        self.search = RemoteSearch(self.database, embedder, options or IndexOptions(), **more)

    def evidence(self, *arguments, **named):
        return self.search.evidence(*arguments, **named)


@pytest.fixture
def make_remote(shared_dsn, tenant):
    """Makes searches of one tenant, or of others named by their number."""
    opened = []

    def make(*arguments, number=0, dsn=shared_dsn, **named):
        opened.append(Remote(dsn, f"{tenant} {number}", *arguments, **named))
        return opened[-1]

    yield make
    for remote in opened:
        remote.database.close()


@pytest.fixture
def remote(make_remote):
    return make_remote()


@pytest.fixture(scope="module")
def catalogue():
    return [document_of(tool) for tool in make_catalogue()]


def local_index(documents):
    index = ToolIndex(NamedEmbeddings())
    index.refresh(documents)
    return index


def by_id(evidence):
    return {tool.id: tool for tool in evidence.tools}


def numbered(count, server="bulk", **fields):
    return [make_document(f"rain_{n}", f"Says rain {n}.", server, **fields) for n in range(count)]


@pytest.mark.parametrize(
    "query",
    [QUERY, "list_issues", "github", "select:send_email,listIssues,nothing", "+mail find mails",
     "the mail, the mail", "mcp__github__list_issues now", "天気 'quoted' \\ \0"],
)  # fmt: skip
def test_points_names_coverage_and_cosines_are_those_of_the_local_index(remote, catalogue, query):
    remote.table.refresh(catalogue)
    found, expected = remote.evidence(query), local_index(catalogue).evidence(query)
    ours, theirs = by_id(found), by_id(expected)
    assert ours.keys() == theirs.keys()
    for identity, tool in ours.items():
        other = theirs[identity]
        assert (tool.keyword, tool.exact) == (other.keyword, other.exact)
        assert tool.coverage == pytest.approx(other.coverage, abs=1e-6)
        assert tool.dense == pytest.approx(other.dense, abs=1e-3)
        assert (tool.lexical > 0) == (other.lexical > 0)
    assert (found.names_alone, found.server) == (expected.names_alone, expected.server)
    assert (found.dense_ready, found.script_known) == (True, True)


def test_the_spread_of_dense_scores_is_the_local_ones(remote, catalogue):
    remote.table.refresh(catalogue)
    found = remote.evidence(QUERY, 1).statistics
    expected = local_index(catalogue).evidence(QUERY, 1).statistics
    assert found.dense_mean == pytest.approx(expected.dense_mean, abs=1e-4)
    assert found.dense_deviation == pytest.approx(expected.dense_deviation, abs=1e-4)
    assert found.outside == pytest.approx(expected.outside, abs=1e-3)


_ANY_TEXT = st.lists(st.sampled_from(WORDS.split(" ")), max_size=6).map(" ".join)
_ANY_TOOLS = st.dictionaries(st.sampled_from("abcdefgh"), _ANY_TEXT, max_size=8)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(states=st.lists(_ANY_TOOLS, min_size=1, max_size=3), query=_ANY_TEXT)
def test_lexical_statistics_are_those_of_all_tools_after_any_changes(remote, states, query):
    for state in states:
        remote.table.refresh([make_document(name, text) for name, text in state.items()])
    found = remote.evidence(query, 100, dense=False)
    scores = [tool.lexical for tool in found.tools]
    scores += [0.0] * (len(states[-1]) - len(scores))
    if scores:
        statistics = found.statistics
        assert statistics.lexical_mean == pytest.approx(np.mean(scores), abs=1e-5)
        assert statistics.lexical_deviation == pytest.approx(np.std(scores), abs=1e-3)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(query=st.text(max_size=40) | _ANY_TEXT)
def test_no_query_is_refused_by_the_database(remote, catalogue, query):
    remote.table.refresh(catalogue)
    remote.evidence(query, dense=False)


def test_a_word_that_comes_often_counts_more_and_a_long_text_less(remote):
    long = "Tells the rain in very many different and quite unnecessary words of no meaning here."
    texts = {"once": "Tells rain.", "twice": "Tells rain rain.", "long": long, "none": "Else."}
    remote.table.refresh([make_document(name, text) for name, text in texts.items()])
    scores = {tool.id: tool.lexical for tool in remote.evidence("rain", dense=False).tools}
    assert scores["twice"] > scores["once"] > scores["long"] > 0
    assert "none" not in scores


def test_a_word_that_says_nothing_finds_a_tool_by_its_name(remote):
    remote.table.refresh([make_document("list_all", "Gives the lot."), make_document("ping")])
    assert {tool.id for tool in remote.evidence("all", dense=False).tools} == {"list_all"}


def test_of_a_long_request_the_rare_words_are_ranked_by(remote):
    rare = make_document("forecast", "Looks at thunderstorms.")
    remote.table.refresh([*numbered(500), rare])
    request = " ".join([*(f"word{n}" for n in range(150)), *["says rain"] * 20, "thunderstorms"])
    found = remote.evidence(request, 3, dense=False).tools
    assert max(found, key=lambda tool: tool.lexical).id == "forecast"


def test_of_a_server_that_the_query_names_the_tools_are_found_by_one_question(remote):
    rare = [make_document(f"sun_{n}", "Says rain, too.", "Rare One") for n in range(5)]
    rare.append(replace(make_document("mcp__rare_one__list"), id="plain"))
    remote.table.refresh([*numbered(400), *rare])
    asked, own = [], remote.search._asked
    remote.search._asked = lambda question: asked.append(question) or own(question)
    only = ToolFilter(predicate=OfServer("rareone"))
    assert by_id(remote.evidence("rare one", 9, only)).keys() >= {tool.id for tool in rare}
    assert len([question for question in asked if "of_server" in question.values]) == 2
    also = ToolFilter(ids={"plain"}, predicate=OfServer("rareone", lambda document: True))
    assert by_id(remote.evidence("rare one", 9, also)).keys() == {"plain"}


@pytest.mark.parametrize(
    "restriction",
    [
        {"servers": {"rare"}},
        {"tags": {"seldom"}},
        {"ids": {f"rare/forecast_{n}" for n in range(5)} | {"nobody"}},
        {"ids": {f"rare/forecast_{n}" for n in range(5)} | {f"bulk/rain_{n}" for n in range(300)},
         "servers": {"rare"}},
        {"predicate": lambda document: document.server == "rare"},
        {"servers": {"rare", "bulk"}, "predicate": lambda document: bool(document.tags)},
    ],
    ids=["servers", "tags", "ids", "ids and servers", "predicate", "predicate and servers"],
)  # fmt: skip
@pytest.mark.parametrize("dense", [True, False])
def test_as_many_as_wanted_survive_a_filter_that_hardly_any_tool_passes(remote, restriction, dense):
    rare = [
        make_document(f"forecast_{n}", "A look at rain, clouds and much else.", "rare", tags=tags)
        for n, tags in enumerate([frozenset({"seldom"})] * 5)
    ]
    remote.table.refresh([*numbered(400), *rare])
    found = remote.evidence("rain", 5, ToolFilter(**restriction), dense=dense)
    assert by_id(found).keys() == {tool.id for tool in rare}


ODD_IDS = [
    "it's",
    'a "b"',
    "back\\slash",
    "{a,b}",
    "null",
    "",
    "rain\0fall",
    "\x01",
    "x" * 600,
    "天気",
]


@pytest.mark.parametrize("dense", [True, False])
def test_ids_of_any_spelling_let_their_tools_pass_and_no_others(remote, dense):
    tools = [replace(make_document("t", "Says rain."), id=identity) for identity in ODD_IDS]
    remote.table.refresh(tools)
    for identity in ODD_IDS:
        found = remote.evidence("rain", filter=ToolFilter(ids={identity}), dense=dense)
        assert [tool.id for tool in found.tools] == [identity]
    assert len(remote.evidence("rain", filter=ToolFilter(ids=ODD_IDS), dense=dense).tools) == 10


@pytest.mark.parametrize("query", ["rain", "rain_7", "select:rain_7,rain_8", "rain +bulk", "bulk"])
def test_where_no_id_passes_nothing_is_found_and_where_all_do_everything(remote, query):
    tools = numbered(40)
    remote.table.refresh(tools)
    every = ToolFilter(ids={tool.id for tool in tools})
    assert remote.evidence(query, filter=ToolFilter(ids=())).tools == ()
    assert remote.evidence(query, 99, every).tools == remote.evidence(query, 99).tools != ()


class CutEmbeddings(NamedEmbeddings):
    """Vectors of any dimension from 2 to 256; that no index is for, if none else is asked for."""

    model = "cut-1"

    def __init__(self, dim=100):
        super().__init__()
        self._dim = dim

    def embed_documents(self, texts):
        return [[*vector[1 : self._dim], 0.01] for vector in super().embed_documents(texts)]

    def embed_query(self, text):
        return [*super().embed_query(text)[1 : self._dim], 0.01]


def test_vectors_of_another_dimension_under_the_same_name_are_refused(make_remote):
    remote, other = make_remote(CutEmbeddings(100)), make_remote(CutEmbeddings(80))
    remote.table.refresh(numbered(3))
    remote.evidence("rain")
    with pytest.raises(EmbeddingError, match=r"dimension 80, .* dimension 100 .* another name"):
        other.evidence("rain")
    assert len(other.evidence("rain", dense=False).tools) == 3


_ODD = r"of to & : * ! 🎉 ' % +mail mcp__github__x get_rain get-rain {a,b} NULL straße C++ x1"
_ODD_WORDS = [*WORDS.split(" "), *_ODD.split(" ")]
_ODD_TEXT = st.lists(st.sampled_from(_ODD_WORDS), max_size=20).map(" ".join)
_NAMES = ["get_rain", "listEvents", "mcp__github__x", "mail", "🎉", "to", "a,b"]
_SERVERS = ["github", "Git Hub", "O'Brien", "a,b", "{x}", "null", "🎉"]
_TAGS = ["a,b", "NULL", "{}", '"', "\\", "🎉"]
_ODD_TOOL = st.builds(
    make_document,
    st.sampled_from(_NAMES),
    _ODD_TEXT,
    st.none() | st.sampled_from(_SERVERS),
    tags=st.frozensets(st.sampled_from(_TAGS), max_size=2),
)
_ODD_TOOLS = st.lists(_ODD_TOOL, max_size=12, unique_by=lambda tool: tool.id)
_ODD_QUERY = st.one_of(
    _ODD_TEXT,
    st.sampled_from([*_NAMES, *_SERVERS, "mcp__github", "the of to", "🎉🔥", "+rain +mail"]),
    st.lists(st.sampled_from(_NAMES), max_size=200).map(lambda names: "select:" + ",".join(names)),
    st.lists(_ODD_TEXT, min_size=20, max_size=40).map(" ".join),
)
_ODD_FILTER = st.builds(
    ToolFilter,
    st.none() | st.frozensets(st.sampled_from(_SERVERS)),
    st.none() | st.frozensets(st.sampled_from(_TAGS)),
    st.none() | st.just(lambda document: len(document.id) % 2 == 0),
    st.none() | st.frozensets(st.builds(lambda tool: tool.id, _ODD_TOOL), max_size=5),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tools=_ODD_TOOLS, query=_ODD_QUERY, only=st.none() | _ODD_FILTER, dense=st.booleans())
def test_any_tools_are_found_by_what_finds_them_in_the_local_index(
    make_remote, tools, query, only, dense
):
    remote, local = make_remote(CutEmbeddings()), ToolIndex(CutEmbeddings())
    remote.table.refresh(tools)
    local.refresh(tools)
    found = remote.evidence(query, 1000, only, dense=dense)
    expected = local.evidence(query, 1000, only, dense=dense)
    ours, theirs = by_id(found), by_id(expected)
    # Of stop words alone a tool is found by its name if the query has no other words.
    by_points_alone = {t.id for t in expected.tools if not (t.lexical or t.dense or t.exact)}
    assert theirs.keys() - by_points_alone <= ours.keys() <= theirs.keys()
    for identity, tool in ours.items():
        other = theirs[identity]
        assert (tool.keyword, tool.exact) == (other.keyword, other.exact)
        assert tool.coverage == pytest.approx(other.coverage, abs=1e-5)
        assert tool.dense == pytest.approx(other.dense, abs=2e-3)
    if tools:
        assert (found.names_alone, found.server) == (expected.names_alone, expected.server)
    few = remote.evidence(query, 2, only, dense=dense)
    assert len(few.tools) >= min(2, len(ours))


def test_a_server_is_known_by_its_name_though_no_tool_is_found_by_it(remote):
    remote.table.refresh([make_document("ping", "Says rain.", "Git Hub")])
    found = remote.evidence("github", dense=False)
    assert (found.server, found.tools) == ("github", ())
    nobody = ToolFilter(servers=())
    assert remote.evidence("git-hub", filter=nobody).server == "github"


def test_words_that_no_tool_has_together_find_the_tools_that_have_one(remote, monkeypatch):
    monkeypatch.setattr(module, "_RANKED", 10)
    texts = ["Says rain.", "Reads mail.", "Counts stars."] * 20
    remote.table.refresh([make_document(f"t{n}", text) for n, text in enumerate(texts)])
    found = remote.evidence("rain mail stars", 8, dense=False).tools
    assert len(found) >= 8
    assert all(tool.lexical > 0 for tool in found)


def test_of_many_words_each_finds_its_tool_where_all_tools_can_be_ranked(remote):
    words = [f"{letter}word" for letter in "bcdfghjklmnp"]
    remote.table.refresh([make_document(f"t{n}", f"Says {word}.") for n, word in enumerate(words)])
    assert len(remote.evidence(" ".join(words), dense=False).tools) == len(words)


def test_another_tenants_nearer_tools_take_nobodys_place(make_remote):
    own, other = make_remote(number=1), make_remote(number=2)
    own.table.refresh([make_document(f"clouds_{n}", "Something of rain.") for n in range(5)])
    other.table.refresh(numbered(400, server=None))
    other.evidence("rain")
    assert {tool.id for tool in own.evidence("rain", 5).tools} == {f"clouds_{n}" for n in range(5)}
    assert own.evidence("rain_7").names_alone is False


def test_a_tool_whose_id_no_column_can_hold_is_found_by_its_own_id(remote):
    odd = [make_document("rain\0fall", "Says rain.", "s" * 600), make_document("plain")]
    remote.table.refresh(odd)
    assert {tool.id for tool in remote.evidence("rain").tools} >= {odd[0].id}


class ClusteredEmbeddings(NamedEmbeddings):
    """Random vectors in clusters, one for tools of some numbers; the same text, the same vector."""

    model = "clustered-1"

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text):
        own = np.random.default_rng(zlib.crc32(text.encode()))
        centre = np.random.default_rng(int(re.sub(r"\D", "", text) or 0) % 50)
        return (centre.normal(size=256) + own.normal(size=256)).tolist()


def test_of_the_nearest_tools_the_index_of_vectors_finds_almost_all(make_remote, shared_dsn):
    # So few vectors PostgreSQL would rather read than look up.
    dsn = make_conninfo(shared_dsn, options="-c enable_seqscan=off -c enable_sort=off")
    remote = make_remote(ClusteredEmbeddings(), dsn=dsn)
    local = ToolIndex(ClusteredEmbeddings())
    tools = numbered(1500)
    remote.table.refresh(tools)
    local.refresh(tools)
    remote.search.vectors.make()
    found = expected = 0
    for query in map(str, range(30)):
        best = sorted(local.evidence(query, 10).tools, key=lambda tool: -(tool.dense or 0))[:10]
        given = by_id(remote.evidence(query, 10))
        found, expected = found + sum(tool.id in given for tool in best), expected + len(best)
    assert found / expected >= 0.98
    assert scans_of("tool_vectors_256", remote.database) > 0


def scans_of(index, database):
    """Return how often an index was read, by what this connection knows."""
    query = "select idx_scan from pg_stat_user_indexes where indexrelname = %s"
    with database.write() as connection:
        connection.execute("select pg_stat_force_next_flush()")
    with database.write() as connection:
        return connection.execute(query, [index]).fetchone()[0]


async def test_waiting_gives_the_same_evidence(remote, catalogue):
    remote.table.refresh(catalogue)
    awaited = await remote.search.aevidence(QUERY)
    assert awaited == remote.evidence(QUERY)
    only = ToolFilter(predicate=lambda document: document.server == "mail")
    assert await remote.search.aevidence(QUERY, 2, only) == remote.evidence(QUERY, 2, only)
    await remote.database.aclose()


def test_several_searches_at_once_embed_every_text_once(make_remote, catalogue):
    embeddings = NamedEmbeddings()
    remotes = [make_remote(embeddings) for _ in range(4)]
    remotes[0].table.refresh(catalogue)
    threads = [threading.Thread(target=each.evidence, args=(QUERY,)) for each in remotes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = [text for text in embeddings.texts if "Oslo" not in text]
    assert all(each.search.vectors.complete for each in remotes)
    assert len(texts) == len(set(texts))


def test_only_a_changed_tool_is_embedded_anew(remote, catalogue):
    remote.table.refresh(catalogue)
    remote.evidence(QUERY)
    remote.embeddings.texts.clear()
    remote.table.refresh([make_document("get_weather", "Another text.", "weather"), *catalogue[1:]])
    assert not remote.search.vectors.complete
    assert remote.evidence(QUERY).dense_ready
    assert "Another text." in remote.embeddings.texts
    assert not any("email" in text for text in remote.embeddings.texts)


def test_what_was_made_is_kept_when_the_model_fails_on_the_way(make_remote):
    embeddings = BrokenNamedEmbeddings(broken=False)
    remote = make_remote(embeddings)
    remote.table.refresh(numbered(150))

    def break_it(done, total):
        embeddings.broken = True

    with pytest.raises(EmbeddingError):
        remote.search.vectors.make(break_it)
    assert remote.search.vectors.missing() == 50


def test_what_a_dead_process_had_claimed_the_next_one_makes(remote, catalogue):
    remote.table.refresh(catalogue)
    vectors, making = remote.search.vectors, threading.Thread(target=remote.search.vectors.make)
    claim = f"{remote.database.tenant}\n{vectors.space}"
    with remote.database.alone() as dying:
        dying.execute("select pg_advisory_lock(hashtextextended(%s, 1))", [claim])
        making.start()
        making.join(0.3)
        assert making.is_alive()
        assert not vectors.complete
    making.join(20)
    assert vectors.complete


def test_threads_that_wait_for_another_process_to_embed_take_one_connection(remote, catalogue):
    remote.table.refresh(catalogue)
    vectors = remote.search.vectors
    making = [threading.Thread(target=vectors.make) for _ in range(6)]
    waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    with remote.database.alone() as other:
        claim = f"{remote.database.tenant}\n{vectors.space}"
        other.execute("select pg_advisory_lock(hashtextextended(%s, 1))", [claim])
        for thread in making:
            thread.start()
        making[0].join(0.5)
        assert other.execute(waiting).fetchone() == (1,)
    for thread in making:
        thread.join(20)
    assert vectors.complete


def test_a_catalogue_that_was_dropped_is_empty_and_one_made_anew_is_found(remote, catalogue):
    remote.table.refresh(catalogue)
    remote.evidence(QUERY)
    assert (remote.search.version, remote.search.size) == (1, len(catalogue))
    with remote.database.write() as connection:
        dropped = "delete from toolrag.catalogues where tenant = %s"
        connection.execute(dropped, [remote.database.tenant])
    assert remote.evidence(QUERY).tools == ()
    assert (remote.search.version, remote.search.size) == (0, 0)
    remote.table.refresh(catalogue[:1])
    assert [tool.id for tool in remote.evidence(QUERY).tools] == [catalogue[0].id]
    assert (remote.search.version, remote.search.size) == (1, 1)


def test_in_the_background_words_answer_until_the_vectors_are_made(make_remote, catalogue):
    remote = make_remote(background=True)
    remote.table.refresh(catalogue)
    with pytest.raises(StillLoadingError):
        remote.evidence(QUERY)
    for thread in threading.enumerate():
        if thread.name == "toolrag":
            thread.join()
    assert remote.evidence(QUERY).dense_ready


def test_options_that_the_database_cannot_serve_are_refused(make_remote):
    with pytest.raises(ValueError, match="mode='replica'"):
        make_remote(options=IndexOptions.classic())


def test_vectors_of_other_texts_are_another_space(make_remote, catalogue):
    remote, names = make_remote(), make_remote(options=IndexOptions(full=0, description=0))
    remote.table.refresh(catalogue)
    whole, named = remote.evidence(QUERY), names.evidence(QUERY)
    assert by_id(whole)["weather/get_weather"].dense != by_id(named)["weather/get_weather"].dense
    assert remote.search.vectors.complete
    assert names.search.vectors.complete


def test_a_database_that_is_away_is_a_clear_error_and_comes_back_by_itself(
    postgres_server, make_remote, catalogue
):
    remote = make_remote()
    remote.table.refresh(catalogue)
    before = remote.evidence(QUERY)
    postgres_server.stop()
    try:
        with pytest.raises(DatabaseError, match="cannot be reached"):
            remote.evidence(QUERY)
    finally:
        postgres_server.start()
    assert remote.evidence(QUERY) == before


@pytest.fixture
def roles(empty_database):
    """The DSN of a database with the roles, whose tables a user without any power owns."""
    upgrade(empty_database, roles=True)
    return empty_database


def as_role(dsn, role):
    return make_conninfo(dsn, options=f"-c role={role}")


def test_a_reader_searches_and_leaves_the_vectors_to_others(make_remote, roles, catalogue):
    writer = make_remote(dsn=as_role(roles, "toolrag_writer"))
    reader = make_remote(dsn=as_role(roles, "toolrag_reader"))
    writer.table.refresh(catalogue)
    assert reader.evidence(QUERY).dense_ready is False
    assert by_id(reader.evidence(QUERY))["weather/get_weather"].lexical > 0
    writer.search.vectors.make()
    assert reader.evidence(QUERY) == writer.evidence(QUERY)


def test_a_reader_whose_model_loads_in_the_background_is_not_told_to_wait_for_others(
    make_remote, roles, catalogue, caplog
):
    make_remote(dsn=as_role(roles, "toolrag_writer")).table.refresh(catalogue)
    reader = make_remote(dsn=as_role(roles, "toolrag_reader"), background=True)
    assert reader.evidence(QUERY).dense_ready is False
    reader.evidence(QUERY)
    assert [record.message for record in caplog.records if "may write" in record.message] != []
    assert reader.embeddings.texts == []


def test_with_the_roles_a_search_still_sees_one_tenant_only(make_remote, roles):
    writer = as_role(roles, "toolrag_writer")
    own, other = make_remote(dsn=writer, number=1), make_remote(dsn=writer, number=2)
    own.table.refresh([make_document("clouds", "Something of rain.")])
    other.table.refresh(numbered(50))
    other.evidence("rain")
    assert [tool.id for tool in own.evidence("rain").tools] == ["clouds"]
    with own.database.read() as connection:
        connection.execute("select set_config('toolrag.tenant', '', true)")
        values = "'{rain}', '''rain''', '{clouds}', null, null, null, null, 9, 9"
        assert connection.execute(f"select * from toolrag.by_words({values})").fetchall() == []


def test_the_searchers_role_reads_words_by_their_index(make_remote, roles):
    remote = make_remote(dsn=roles)
    remote.table.refresh(numbered(300))
    with psycopg.connect(as_role(roles, "toolrag_search")) as connection:
        connection.execute("set enable_seqscan = off")
        query = "explain select id from toolrag.tools where words @@ '''rain'''"
        plan = "".join(line for (line,) in connection.execute(query))
    assert "tools_words" in plan


def test_whoever_may_make_roles_sets_up_a_search_without_being_a_superuser(
    make_remote, empty_database, catalogue
):
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("create extension vector")
        connection.execute("create role sets_up login createrole")
        name = connection.info.dbname
        connection.execute(f"grant create on database {name} to sets_up")
    owner = make_conninfo(empty_database, user="sets_up")
    try:
        upgrade(owner)
        assert make_remote(dsn=owner).evidence(QUERY).tools == ()
        upgrade(owner, roles=True)
        own, other = make_remote(dsn=owner, number=1), make_remote(dsn=owner, number=2)
        own.table.refresh(catalogue)
        other.table.refresh(numbered(5))
        assert by_id(own.evidence(QUERY)).keys() <= {document.id for document in catalogue}
        assert other.evidence("rain_3").names_alone
    finally:
        with psycopg.connect(empty_database, autocommit=True) as connection:
            connection.execute("drop owned by sets_up cascade")
            connection.execute("drop role sets_up")
