"""What was ingested, in a database: the same as in a directory, and for all processes."""

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest
from documents import make_document
from fakes import NamedEmbeddings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from listings import listing, source, tool
from postgres_server import make_user

from langchain_toolrag import ToolRAG
from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.directory_tools import definitions
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource
from langchain_toolrag.errors import DatabaseError, SourceError
from langchain_toolrag.postgres.connection import Database
from langchain_toolrag.postgres.index import PostgresIndex
from langchain_toolrag.postgres.stored_tools import open_database_tools
from langchain_toolrag.postgres.tool_store import Stand, ToolTable
from langchain_toolrag.postgres.upgrade import upgrade
from langchain_toolrag.types import Changes

BROKEN = {"type": "object", "properties": {"a": {"$ref": "#/$defs/nowhere"}}}


@pytest.fixture
def store(shared_dsn, tenant):
    opened = open_database_tools(shared_dsn, tenant)
    yield opened
    opened.close()


@pytest.fixture
def other(shared_dsn, tenant):
    """The same tools, as another process has them."""
    opened = open_database_tools(shared_dsn, tenant)
    yield opened
    opened.close()


def test_nothing_was_ingested_for_a_new_tenant(store):
    assert (store.tools(), store.sources()) == ([], {})
    assert store.fingerprint() == store.fingerprint() != ""


def test_what_one_process_ingests_another_reads_with_everything_in_it(store, other):
    now = tool(
        "weather/now",
        "天気 \u2028 \ud800 \0 \N{GRINNING FACE}",
        annotations={"title": "Now", "readOnlyHint": True},
        tags=("city", "a\0b"),
        call={"method": "get", "path": "/now"},
    )
    long = tool("b/" + "x" * 3000)
    told = store.replace([listing("weather", now, listed_at="today"), listing("b", long)])

    assert told == {"weather": Changes(added=(now.id,)), "b": Changes(added=(long.id,))}
    assert other.tools() == [now, long]
    assert other.sources() == {
        "weather": source("weather", tools=1, listed_at="today"),
        "b": source("b", tools=1),
    }


def test_a_source_that_is_listed_again_alone_replaces_its_own_tools(store, other):
    store.replace([listing("a", tool("a/x"), tool("a/y")), listing("b", tool("b/x"))])
    told = other.replace([listing("a", tool("a/y", "new"), tool("a/z"))])

    assert told == {"a": Changes(added=("a/z",), changed=("a/y",), removed=("a/x",))}
    assert store.tools() == [tool("a/y", "new"), tool("a/z"), tool("b/x")]


def test_a_source_that_fails_keeps_its_tools_and_says_so(store):
    store.replace([listing("a", tool("a/x"))])
    before = store.fingerprint()

    assert store.replace([listing("a", failure="it hung")]) == {"a": Changes(kept=("a/x",))}
    assert store.tools() == [tool("a/x")]
    assert store.sources()["a"] == source("a", tools=1, failure="it hung")
    assert store.fingerprint() == before


def test_a_dry_run_says_the_same_and_writes_nothing(store):
    store.replace([listing("a", tool("a/x"))])
    before, wanted = store.fingerprint(), [listing("a", tool("a/y")), listing("b", tool("b/x"))]

    told = store.replace(wanted, dry_run=True)

    assert (store.tools(), store.fingerprint()) == ([tool("a/x")], before)
    assert store.replace(wanted) == told


def test_the_fingerprint_is_one_for_all_and_another_once_tools_changed(store, other):
    store.replace([listing("a", tool("a/x"))])
    first = store.fingerprint()
    assert other.fingerprint() == first

    store.replace([listing("a", tool("a/x"), listed_at="later")])
    assert other.fingerprint() == first

    # Nothing that is searched is another one, but it is called in another way.
    store.replace([listing("a", tool("a/x", call={"path": "/new"}))])
    assert other.fingerprint() == store.fingerprint() != first
    assert other.tools() == [tool("a/x", call={"path": "/new"})]


@pytest.mark.parametrize(
    ("listings", "problem"),
    [
        ([listing("a"), listing("a")], "listed twice"),
        ([listing("a", tool("a/x"), tool("a/x"))], "lists the tool 'x' twice"),
        ([Listing(StoredSource("known", "python", "m:T"))], "is of kind mcp"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(store, listings, problem):
    store.replace([listing("known", tool("known/x"))])
    before = store.fingerprint()

    with pytest.raises(SourceError, match=problem):
        store.replace(listings)
    assert (store.fingerprint(), list(store.sources())) == (before, ["known"])


def test_a_plain_index_finds_ingested_tools_as_a_local_one_does(store, shared_dsn, tenant):
    tools = [tool("weather/now", "Current weather."), tool("mail/send", "Send a mail.")]
    store.replace([listing("weather", tools[0]), listing("mail", tools[1])])
    local = ToolRAG(definitions(tools), embeddings=NamedEmbeddings(), on_duplicate="id")

    with PostgresIndex(shared_dsn, tenant=tenant, embeddings=NamedEmbeddings()) as index:
        assert index.documents == local.tool_index.documents
        shared = ToolRAG(index=index)
        assert shared.search("send a mail") == local.search("send a mail")


def test_a_tool_with_a_broken_schema_is_there_to_be_called(store, caplog):
    broken = replace(tool("a/x"), parameters=BROKEN)
    store.replace([listing("a", broken, tool("a/y"))])
    assert "'a/x' is left out, its schema is broken" in caplog.text
    assert store.tools() == [broken, tool("a/y")]


def test_tools_that_were_not_ingested_stay_and_are_not_listed(store, database_table):
    first, last = make_document("first", "Added."), make_document("last", "Added.")
    database_table.add([first])
    store.replace([listing("a", tool("a/x"))])
    database_table.add([last])
    store.replace([listing("a", tool("a/y")), listing("b", tool("b/x"))])

    assert store.tools() == [tool("a/y"), tool("b/x")]
    ids = [document.id for document in documents_of(database_table)]
    assert ids == ["a/y", "b/x", "first", "last"]


def test_a_document_that_somebody_wrote_over_is_made_anew_and_stays_callable(store, database_table):
    store.replace([listing("a", tool("a/x", "Ours."))])
    (own,) = documents_of(database_table)
    database_table.add([replace(own, description="Theirs.")])
    assert store.tools() == [tool("a/x", "Ours.")]

    store.replace([listing("a", tool("a/x", "Ours."))])
    assert documents_of(database_table) == [own]


def test_of_many_ingests_at_once_none_is_lost(store, shared_dsn, tenant):
    def ingest(name):
        own = open_database_tools(shared_dsn, tenant)
        for version in range(5):
            own.replace([listing(name, *(tool(f"{name}/{n}", f"{version}") for n in range(20)))])
        own.close()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ingest, "abcd"))

    assert {(each.source, each.description) for each in store.tools()} == {
        (name, "4") for name in "abcd"
    }
    assert len(store.tools()) == 80


def test_another_tenant_sees_none_of_it(store, shared_dsn):
    store.replace([listing("a", tool("a/x"))])
    stranger = open_database_tools(shared_dsn, f"not {store.tenant}")

    assert (stranger.tools(), stranger.sources()) == ([], {})
    stranger.close()


names = st.sampled_from("abc")
listed = st.lists(
    st.builds(
        lambda name, own, failed: Listing(
            source(name),
            [] if failed else [tool(f"{name}/{n}", d) for n, d in own.items()],
            "down" if failed else "",
        ),
        names,
        st.dictionaries(st.sampled_from("xyz"), st.sampled_from(["", "new"])),
        st.booleans(),
    ),
    max_size=3,
    unique_by=lambda each: each.source.name,
)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ingests=st.lists(listed, max_size=4))
def test_a_database_and_a_directory_hold_the_same_after_any_ingests(
    shared_dsn, tenant, tmp_path_factory, ingests
):
    directory = ToolDirectory(tmp_path_factory.mktemp("data"))
    directory.replace([])
    tenant = f"{tenant} {directory.path.name}"
    store = open_database_tools(shared_dsn, tenant)
    for listings in ingests:
        assert store.replace(listings) == directory.replace(listings)
    assert store.sources() == directory.sources()
    by_id = {each.id: each for each in directory.tools()}
    assert {each.id: each for each in store.tools()} == by_id
    store.close()


@pytest.fixture
def database_table(shared_dsn, tenant):
    database = Database(shared_dsn, tenant)
    yield ToolTable(database)
    database.close()


def documents_of(table):
    return [placed.document for placed in table.since(Stand()).written.values()]


def test_a_database_that_is_not_set_up_says_what_to_do(empty_database):
    with pytest.raises(DatabaseError, match=r"run `toolrag db upgrade --database DSN`"):
        open_database_tools(empty_database)


def test_who_may_only_read_lists_and_does_not_ingest(dsn):
    upgrade(dsn, roles=True)
    writer = open_database_tools(dsn)
    writer.replace([listing("a", tool("a/x"))])
    writer.close()
    reader = open_database_tools(make_user(dsn, "lists_only", "toolrag_reader"))

    assert reader.tools() == [tool("a/x")]
    assert reader.replace([listing("a")], dry_run=True) == {"a": Changes(removed=("a/x",))}
    with pytest.raises(DatabaseError, match="grant it toolrag_writer"):
        reader.replace([listing("a")])
    assert reader.tools() == [tool("a/x")]
    reader.close()


def test_who_may_write_ingests_without_owning_the_tables(dsn):
    upgrade(dsn, roles=True)
    writer = open_database_tools(make_user(dsn, "ingests", "toolrag_writer"))
    writer.replace([listing("a", tool("a/x"), tool("a/y"))])
    writer.replace([listing("a", tool("a/y", "new"))])
    assert writer.tools() == [tool("a/y", "new")]
    writer.close()


def test_without_a_database_the_sources_that_were_read_last_are_gone_on_with(
    store, monkeypatch, caplog
):
    store.replace([listing("a", tool("a/x"))])
    known = store.sources()
    monkeypatch.setattr(store, "_read_sources", raises(DatabaseError("d", "is gone")))
    monkeypatch.setattr(store, "stand", raises(DatabaseError("d", "is gone")))

    with caplog.at_level(logging.WARNING):
        assert store.sources() == store.sources() == known
        assert store.fingerprint() == ""
    assert [record.getMessage() for record in caplog.records] == [
        "what is known of the tools is gone on with: the database (d) is gone"
    ]


@pytest.mark.parametrize("read", ["tools", "sources", "fingerprint"])
def test_each_outage_is_told_of_once_whatever_is_read_in_between(store, monkeypatch, caplog, read):
    """A process that follows by notices never asks for the fingerprint."""
    store.sources()
    for _ in range(2):
        with monkeypatch.context() as outage:
            outage.setattr(store, "_read_sources", raises(DatabaseError("d", "is gone")))
            store.sources()
            store.sources()
        monkeypatch.setattr(store, "_resumes_at", 0.0)
        getattr(store, read)()
    assert len(caplog.records) == 2


def test_tools_that_are_read_bring_their_sources_with_them(store, other, monkeypatch):
    store.replace([listing("a", tool("a/x"))])
    store.sources()
    with monkeypatch.context() as outage:
        outage.setattr(store, "_read_sources", raises(DatabaseError("d", "is gone")))
        store.sources()
    other.replace([listing("b", tool("b/x"))])

    assert {each.source for each in store.tools()} == store.sources().keys() == {"a", "b"}


def test_sources_that_were_never_read_cannot_be_gone_on_with(store, monkeypatch):
    monkeypatch.setattr(store, "_read_sources", raises(DatabaseError("d", "is gone")))
    with pytest.raises(DatabaseError, match="is gone"):
        store.sources()


@pytest.mark.parametrize(
    ("broken", "read", "problem"),
    [
        ("update toolrag.tools set stored = '{}' where tenant = %s", "tools", "a tool that cannot"),
        (
            "update toolrag.sources set described = '[]' where tenant = %s",
            "sources",
            "a source that cannot",
        ),
    ],
)
def test_a_row_that_cannot_be_read_is_a_clear_error(
    store, shared_dsn, tenant, broken, read, problem
):
    store.replace([listing("a", tool("a/x"))])
    with psycopg.connect(shared_dsn) as connection:
        connection.execute("select set_config('toolrag.tenant', %s, true)", [tenant])
        connection.execute(broken, [tenant])
    with pytest.raises(DatabaseError, match=problem):
        getattr(store, read)()


def raises(error):
    def raising(*given):
        raise error

    return raising
