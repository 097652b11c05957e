import asyncio
import gc
import logging
import os
import sys
import threading
import weakref

import numpy as np
import psycopg
import pytest
from documents import make_document
from fakes import DIM, HashingEmbeddings, NamedEmbeddings, make_catalogue, make_tool
from forking_scripts import run_script
from psycopg.conninfo import conninfo_to_dict
from waiting import seconds_until, until

from langchain_toolrag import ToolRAG
from langchain_toolrag.catalogue.document import document_of
from langchain_toolrag.errors import AdapterError, DatabaseError, EmbeddingError
from langchain_toolrag.index.adapter import Adapter
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.postgres import index as module
from langchain_toolrag.postgres.follower import Follower
from langchain_toolrag.postgres.index import PostgresIndex
from langchain_toolrag.postgres.tool_store import ToolTable
from langchain_toolrag.types import ToolFilter

QUERY = "current weather in a city"
PATIENCE = 5.0  # Seconds.


@pytest.fixture
def opened(shared_dsn, tenant):
    """Opens an index of the test's tenant, as another process would."""
    made = []

    def make(embeddings=None, *, dsn=shared_dsn, tenant=tenant, mode="replica", **more):
        model = embeddings or NamedEmbeddings()
        made.append(PostgresIndex(dsn, tenant=tenant, embeddings=model, mode=mode, **more))
        return made[-1]

    yield make
    for index in made:
        index.close()


@pytest.fixture
def documents():
    return [document_of(tool) for tool in make_catalogue()]


class TestReplicas:
    def test_what_one_adds_another_finds_within_two_seconds(self, opened, documents):
        first, second = opened(), opened(refresh_seconds=600)
        first.refresh(documents)
        assert seconds_until(lambda: second.version == 1, PATIENCE) < 2
        assert second.documents == tuple(documents)
        first.add([make_document("ping", "Says pong.")])
        assert seconds_until(lambda: len(second.documents) == 13, PATIENCE) < 2
        first.remove(["ping"])
        assert seconds_until(lambda: second.version == 3, PATIENCE) < 2

    def test_they_answer_alike_and_under_one_version(self, opened, documents):
        first, second = opened(), opened()
        first.refresh(documents)
        second.add([make_document("ping", "Says pong.")])
        until(lambda: first.version == second.version == 2, PATIENCE)
        assert first.evidence(QUERY) == second.evidence(QUERY)
        assert first.evidence(QUERY).version == 2

    def test_they_answer_as_the_local_index_does(self, opened, documents):
        shared, local = opened(), ToolIndex(NamedEmbeddings())
        shared.refresh(documents)
        local.refresh(documents)
        for query in (QUERY, "send_email", "+calendar meeting", "select:play_song"):
            assert shared.evidence(query) == local.evidence(query)

    def test_a_process_that_starts_later_embeds_nothing_anew(self, opened, documents):
        first, later = NamedEmbeddings(), NamedEmbeddings()
        index = opened(first)
        index.refresh(documents)
        index.embed()
        assert len(first.texts) == len(set(first.texts)) > 0
        opened(later).embed()
        assert later.texts == []

    def test_of_processes_that_start_at_once_one_embeds_a_text(self, opened, documents):
        opened().refresh(documents)
        models = [NamedEmbeddings() for _ in range(4)]
        indexes = [opened(model) for model in models]
        threads = [threading.Thread(target=index.embed) for index in indexes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        texts = [text for model in models for text in model.texts]
        assert len(texts) == len(set(texts)) > 0
        assert all(index.indexed for index in indexes)

    def test_a_change_without_a_notice_is_found_by_the_check(self, opened, documents, shared_dsn):
        index = opened(refresh_seconds=0.2)
        index.refresh(documents)
        with psycopg.connect(shared_dsn) as connection:
            connection.execute(
                "with gone as (delete from toolrag.tools where id = 'music/play_song'"
                "   and tenant = %(tenant)s returning tenant, id)"
                " insert into toolrag.removed select tenant, id, 2 from gone",
                {"tenant": index._database.tenant},
            )
            connection.execute(
                "update toolrag.catalogues set version = 2 where tenant = %s",
                [index._database.tenant],
            )
        assert seconds_until(lambda: index.version == 2, PATIENCE) < 2
        assert len(index.documents) == 11

    def test_other_tenants_are_neither_seen_nor_woken_by(self, opened, tenant, monkeypatch):
        index, other = opened(refresh_seconds=600), opened(tenant=f"{tenant} other")
        opened().refresh([make_document("ping")])
        until(lambda: index.version == 1, PATIENCE)  # From now on it has heard every notice.
        heard, has_notice = [], Follower._has_notice
        monkeypatch.setattr(
            Follower,
            "_has_notice",
            lambda self, connection: heard.append(has_notice(self, connection)) or heard[-1],
        )
        other.refresh([make_document("pong")])
        until(lambda: len(heard) == 3, PATIENCE)  # By both of this tenant, and by the other's own.
        assert sorted(heard) == [False, False, True]
        assert [document.id for document in index.documents] == ["ping"]

    def test_all_have_one_order_by_whichever_steps_they_came_there(self, opened, documents):
        writer, whole = opened(), opened(refresh_seconds=600)
        writer.refresh(documents)
        until(lambda: whole.version == 1, PATIENCE)
        whole._follower.close()
        writer.remove([documents[0].id])
        writer.add([documents[0]])
        whole._reader.catch_up()
        expected = (*documents[1:], documents[0])
        assert writer.documents == whole.documents == expected
        snapshot = whole._reader.snapshot
        assert [snapshot.ids[slot] for slot in snapshot.order] == [each.id for each in expected]
        assert whole.evidence("zzz rain", 2) == opened().evidence("zzz rain", 2)

    def test_a_closed_one_answers_and_does_not_catch_up(self, opened, documents):
        index, writer = opened(), opened()
        writer.refresh(documents)
        until(lambda: index.version == 1, PATIENCE)
        index.close()
        writer.remove([documents[0].id])
        assert index.evidence(QUERY).version == 1
        assert len(index.documents) == 12
        index.close()

    def test_one_that_nobody_holds_any_more_is_collected(self, opened, shared_dsn, tenant):
        index = PostgresIndex(
            shared_dsn,
            tenant=tenant,
            embeddings=NamedEmbeddings(),
            mode="replica",
            refresh_seconds=0.1,
        )
        gone, thread = weakref.ref(index._reader), index._follower._thread
        index._database.close()
        del index
        gc.collect()
        thread.join(5)
        assert gone() is None
        assert not thread.is_alive()

    def test_heads_move_its_rows_as_those_of_the_local_index(self, opened, documents):
        shared, local = opened(), ToolIndex(NamedEmbeddings())
        heads = some_heads(local.model)
        for index in (shared, local):
            index.refresh(documents)
            index.prepare(heads)
        assert shared.evidence(QUERY, heads=heads) == local.evidence(QUERY, heads=heads)
        assert np.array_equal(shared.request_vector(QUERY), local.request_vector(QUERY))

    def test_in_the_background_words_answer_first(self, opened, documents):
        index = opened(background=True)
        index.refresh(documents)
        rag = ToolRAG(make_catalogue(), index=index)
        assert "loaded" in rag.select(QUERY).degraded
        until(lambda: index.indexed, PATIENCE)
        assert rag.select(QUERY).degraded == ""

    def test_a_model_that_does_not_say_which_it_is_shares_nothing(self, opened, documents, caplog):
        caplog.set_level(logging.WARNING)
        first, second = HashingEmbeddings(), HashingEmbeddings()
        index = opened(first)
        index.refresh(documents)
        index.embed()
        opened(second).embed()
        assert first.texts == second.texts != []
        assert "every process embeds all tools for itself" in caplog.text


def some_heads(model):
    """Heads that move vectors at random."""
    dice, tensors = np.random.default_rng(0), {}
    for side in ("request", "tool"):
        tensors[f"{side}.first.weight"] = dice.normal(size=(4, DIM))
        tensors[f"{side}.first.bias"] = dice.normal(size=4)
        tensors[f"{side}.second.weight"] = dice.normal(size=(DIM, 4)) * 0.1
        tensors[f"{side}.second.bias"] = dice.normal(size=DIM) * 0.1
    return Heads(Adapter("heads", model, 1.0, tensors, {}))


class TestRemote:
    def test_heads_are_refused_and_the_way_out_named(self, opened, documents):
        index = opened(mode="remote")
        index.refresh(documents)
        with pytest.raises(AdapterError, match="use mode='replica', or no heads"):
            index.prepare(some_heads(index.model))

    def test_a_model_that_does_not_say_which_it_is_is_refused(self, opened):
        with pytest.raises(EmbeddingError, match="give it an attribute `model`, or use"):
            opened(HashingEmbeddings(), mode="remote")

    def test_what_one_adds_another_finds_at_its_next_search(self, opened, documents):
        first, second = opened(mode="remote"), opened(mode="remote")
        first.refresh(documents)
        assert first.version == 1
        found = second.evidence(QUERY)
        assert "weather/get_weather" in {tool.id for tool in found.tools}
        assert second.version == found.version == 1
        assert second.documents == tuple(documents)
        first.remove([documents[0].id])
        assert second.documents == tuple(documents[1:])

    def test_it_may_search_what_a_replica_wrote(self, opened, documents):
        replica, remote = opened(), opened(mode="remote")
        replica.refresh(documents)
        replica.embed()
        model = NamedEmbeddings()
        remote = opened(model, mode="remote")
        remote.embed()
        assert remote.indexed
        assert model.texts == []


class TestModes:
    def test_a_small_catalogue_is_copied(self, opened):
        assert opened(mode="auto").mode == "replica"

    def test_a_large_one_is_searched_where_it_is(self, opened, documents, monkeypatch):
        opened().refresh(documents)
        monkeypatch.setattr(module, "REPLICA_TOOLS", 11)
        assert opened(mode="auto").mode == "remote"
        assert opened(mode="replica").mode == "replica"

    @pytest.mark.parametrize(
        "wrong", [{"mode": "local"}, {"refresh_seconds": 0}, {"refresh_seconds": float("nan")}]
    )
    def test_what_makes_no_sense_is_refused(self, opened, wrong):
        with pytest.raises(ValueError, match="wanted 'auto', 'replica' or 'remote', and more"):
            opened(**wrong)


class TestToolRAG:
    """ToolRAG works over it unchanged."""

    @pytest.mark.parametrize("mode", ["replica", "remote"])
    def test_tools_are_selected_as_over_a_local_index(self, opened, tools, mode):
        rag, local = (
            ToolRAG(tools, index=opened(mode=mode)),
            ToolRAG(tools, embeddings=NamedEmbeddings()),
        )
        with rag, local:
            for asked in (QUERY, "send an email to Ann", "play_song"):
                assert rag.select(asked).names[0] == local.select(asked).names[0]
                assert rag.search(asked, 1)[0].id == local.search(asked, 1)[0].id
            assert [hit.id for hit in rag.text_search("meeting")] == [
                hit.id for hit in local.text_search("meeting")
            ]
            assert rag.explain(QUERY)[0].name == "get_weather"

    async def test_waiting_selects_the_same(self, opened, tools):
        with ToolRAG(tools, index=opened()) as rag:
            assert (await rag.aselect(QUERY)).names == rag.select(QUERY).names
            assert await rag.asearch(QUERY) == rag.search(QUERY)

    def test_tools_come_and_go_through_it(self, opened, tools):
        with ToolRAG(tools, index=opened()) as rag:
            ping = make_tool("ping", "Says pong.")
            assert rag.add([ping]).added == ("ping",)
            assert rag.search("ping", 1)[0].id == "ping"
            assert rag.remove(["ping"]).removed == ("ping",)
            assert len(rag.refresh(tools).kept) == 12

    def test_filters_apply(self, opened, tools):
        with ToolRAG(tools, index=opened()) as rag:
            only = ToolFilter(servers={"mail"})
            assert {hit.id.split("/")[0] for hit in rag.search(QUERY, 5, only)} == {"mail"}

    def test_without_tools_it_can_be_searched_and_binds_nothing(self, opened, documents):
        opened().refresh(documents)
        with ToolRAG(index=opened()) as rag:
            assert rag.search(QUERY, 1)[0].id == "weather/get_weather"
            assert rag.find(QUERY).hits[0].id == "weather/get_weather"
            assert rag.select(QUERY).tools == ()
            assert rag.status.tools == 12

    def test_tools_that_another_process_brought_are_neither_found_nor_bound(self, opened, tools):
        with ToolRAG(tools, index=opened()) as rag, ToolRAG(index=opened()) as other:
            other.tool_index.add([make_document("get_weather_map", "Draws the weather in a city.")])
            until(lambda: rag.tool_index.version == 2, PATIENCE)
            assert "get_weather_map" in {hit.id for hit in other.search(QUERY, 12)}
            assert "get_weather_map" not in {hit.id for hit in rag.search(QUERY, 12)}
            assert "get_weather_map" not in rag.select(QUERY).names
            assert rag.select(QUERY).names[0] == "get_weather"


class TestTrouble:
    @pytest.mark.parametrize("mode", ["replica", "remote"])
    def test_one_that_cannot_be_opened_leaves_no_connection(self, opened, documents, mode, dsn):
        class Nameless(HashingEmbeddings):
            """Raises when it is asked which model it is."""

            @property
            def model(self):
                raise LookupError

        with pytest.raises(LookupError) as info:
            opened(Nameless(), dsn=dsn, mode=mode)
        database = conninfo_to_dict(dsn)["dbname"]
        query = "select count(*) from pg_stat_activity where datname = %s"
        with psycopg.connect(dsn, autocommit=True) as connection:
            until(lambda: connection.execute(query, [database]).fetchone() == (1,), PATIENCE)
        assert info.tb is not None  # As long as somebody has the error, nothing is collected.

    def test_a_database_without_tables_is_refused(self, opened, empty_database):
        with pytest.raises(DatabaseError, match="run `toolrag db upgrade"):
            opened(dsn=empty_database)

    def test_a_write_that_cannot_be_read_back_is_no_failure(self, opened, documents, monkeypatch):
        index = opened()
        index._follower.close()
        with monkeypatch.context() as down:
            down.setattr(ToolTable, "since", broken)
            assert len(index.refresh(documents).added) == 12
        assert index.documents == ()
        index._reader.catch_up()
        assert len(index.documents) == 12

    def test_when_it_lags_it_says_why(self, opened, monkeypatch):
        index = opened(refresh_seconds=0.1)
        with monkeypatch.context() as down:
            down.setattr(ToolTable, "since", broken)
            until(lambda: "out of order" in index.lag, PATIENCE)
        until(lambda: index.lag == "", PATIENCE)


def broken(*_):
    raise DatabaseError("host=db", "is out of order")


def test_searches_of_many_loops_and_threads_at_once(opened, documents):
    indexes = [opened(), opened(mode="remote")]
    indexes[0].refresh(documents)

    def search():
        async def several():
            return await asyncio.gather(*(index.aevidence(QUERY) for index in indexes * 3))

        found = asyncio.run(several())
        assert all(each.tools for each in found)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_searches_follows_and_writes_with_connections_of_its_own(
    shared_dsn, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    lines = run_script(
        """
import os, signal, sys, time
from documents import make_document
from fakes import NamedEmbeddings
from langchain_toolrag.postgres.index import PostgresIndex
CHILD_SECONDS = 30

def until(is_true):
    for _ in range(1000):
        if is_true():
            return True
        time.sleep(0.01)
    return False

index = PostgresIndex(
    sys.argv[1], tenant="forks", embeddings=NamedEmbeddings(), mode="replica", refresh_seconds=60
)
index.refresh([make_document("ping", "Says pong.")])
index.evidence("pong")
""",
        """
        def work():
            print("child finds", [tool.id for tool in index.evidence("pong").tools], flush=True)
            index.add([make_document("of_child")])
            print("child follows", until(lambda: index.version == 3), flush=True)
            index.close()

        child = in_child(work)
        print("parent follows", until(lambda: index.version == 2))
        index.add([make_document("of_parent")])
        print("child ended well", os.waitpid(child, 0)[1] == 0)
        print("parent finds", len(index.evidence("of parent", 9).tools), index.lag == "")
        index.close()
        """,
        shared_dsn,
        seconds=90,
    )
    assert sorted(lines) == [
        "child ended well True",
        "child finds ['ping']",
        "child follows True",
        "parent finds 3 True",
        "parent follows True",
    ]
