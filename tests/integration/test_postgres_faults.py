"""What goes wrong between processes and their database, on a real server."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from itertools import product
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from documents import make_document
from fakes import NamedEmbeddings, make_catalogue
from postgres_server import make_user
from psycopg.errors import InsufficientPrivilege
from waiting import seconds_until, until

from langchain_toolrag import ToolRAG
from langchain_toolrag.errors import DatabaseError
from langchain_toolrag.postgres.connection import Database
from langchain_toolrag.postgres.index import PostgresIndex
from langchain_toolrag.postgres.tool_store import Stand, ToolTable
from langchain_toolrag.postgres.upgrade import required_version, upgrade

TESTS = Path(__file__).parents[1]
QUERY = "current weather in a city"
TRAFFIC_SECONDS = float(os.environ.get("TOOLRAG_TRAFFIC_SECONDS", "5"))


def start(*arguments, **more):
    """Start a Python process that can import what the tests import."""
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        **more,
    )


def finished(*processes, seconds=60):
    """Wait for all, so that none outlives its test; returns what each printed."""
    told = [process.communicate(timeout=seconds) for process in processes]
    assert [
        err for process, (_, err) in zip(processes, told, strict=True) if process.returncode
    ] == []
    return [out for out, _ in told]


@pytest.fixture
def stoppable(postgres_server, dsn):
    """The server, which is started again after the test."""
    yield postgres_server
    postgres_server.ensure_started()


class Traffic:
    """Asks again and again, in a thread of its own, and keeps what comes."""

    def __init__(self, ask):
        self._ask = ask
        self._stopped = threading.Event()
        self.answers, self.errors = [], []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._stopped.set()
        self._thread.join()

    def more(self, count=5):
        """Wait for further answers or errors."""
        so_far = len(self.answers) + len(self.errors)
        until(lambda: len(self.answers) + len(self.errors) >= so_far + count)

    def _run(self):
        while not self._stopped.is_set():
            try:
                self.answers.append(self._ask())
            except Exception as error:
                self.errors.append(error)
            time.sleep(0.005)


def test_a_replica_answers_while_the_database_is_gone_and_catches_up_afterwards(stoppable, dsn):
    with PostgresIndex(dsn, embeddings=NamedEmbeddings(), refresh_seconds=60) as index:
        rag = ToolRAG(make_catalogue(), index=index)
        expected = rag.select(QUERY).names
        with Traffic(lambda: (rag.select(QUERY).names, rag.select(QUERY).degraded)) as traffic:
            traffic.more()
            stoppable.stop()
            traffic.more()
            with pytest.raises(DatabaseError, match="cannot be reached"):
                rag.remove(["play_song"])
            until(lambda: "cannot be reached" in index.lag)
            traffic.more()
            stoppable.start()
            with PostgresIndex(dsn, embeddings=NamedEmbeddings()) as other:
                other.remove(["music/play_song"])
            until(lambda: index.version == 2, seconds=3)
            traffic.more()
            assert index.lag == ""
    assert traffic.errors == []
    assert set(map(str, traffic.answers)) == {str((expected, ""))}
    assert len(index.documents) == 11


def test_remote_search_says_what_is_wrong_at_once_and_recovers_by_itself(stoppable, dsn):
    with PostgresIndex(dsn, embeddings=NamedEmbeddings(), mode="remote") as index:
        rag = ToolRAG(make_catalogue(), index=index)
        with Traffic(lambda: rag.search(QUERY, 1)[0].id) as traffic:
            traffic.more()
            stoppable.stop()
            traffic.more(20)
            started = time.monotonic()
            with pytest.raises(DatabaseError, match="cannot be reached"):
                rag.search(QUERY, 1)
            assert time.monotonic() - started < 1
            stoppable.start()
            errors = len(traffic.errors)
            traffic.more(20)
    assert set(traffic.answers) == {"weather/get_weather"}
    assert {type(error) for error in traffic.errors} == {DatabaseError}
    assert len(traffic.errors) - errors <= 3
    assert traffic.answers[-1] == "weather/get_weather"


def test_a_notice_that_is_lost_with_its_connection_is_made_up_for(dsn):
    with PostgresIndex(dsn, embeddings=NamedEmbeddings(), refresh_seconds=60) as index:
        writer = ToolTable(Database(dsn))
        writer.refresh([make_document("ping")])
        until(lambda: index.version == 1)
        with Database(dsn).write() as connection:
            connection.execute(
                "select pg_terminate_backend(pid, 1000) from pg_stat_activity"
                " where query ilike 'listen %%' and datname = current_database()"
            )
        writer.add([make_document("pong")])
        assert seconds_until(lambda: index.version == 2) < 3
        assert len(index.documents) == 2


EMBEDDING = """
import sys, time
import fakes
from langchain_toolrag.postgres.index import PostgresIndex

class NamedEmbeddings(fakes.NamedEmbeddings):  # The same model, by its name.
    def embed_documents(self, texts):
        time.sleep(0.1)
        return super().embed_documents(texts)

index = PostgresIndex(sys.argv[1], embeddings=NamedEmbeddings(), mode=sys.argv[2])
print("embedding", flush=True)
index.embed()
"""


@pytest.mark.parametrize("mode", ["replica", "remote"])
def test_when_a_process_is_killed_while_it_embeds_another_takes_over(dsn, mode):
    documents = [make_document(f"tool_{n}", f"Does thing {n} of many.") for n in range(600)]
    model, kept = NamedEmbeddings(), "select count(*) from toolrag.vectors"
    with PostgresIndex(dsn, embeddings=model, mode=mode) as index:
        index.refresh(documents)
        process = start("-c", EMBEDDING, dsn, mode)
        assert process.stdout.readline() == "embedding\n"
        until(lambda: counted(dsn, kept) >= 128, seconds=20)
        taking_over = threading.Thread(target=index.embed)
        taking_over.start()
        until(lambda: counted(dsn, kept) >= 256)
        process.send_signal(signal.SIGSTOP)  # It holds its claim, and makes no more.
        made = settled(lambda: counted(dsn, kept))
        assert model.texts == []  # So far this process waited for the other.
        process.send_signal(signal.SIGKILL)
        process.communicate()
        taking_over.join(30)
        assert index.indexed
    everything = counted(dsn, kept)
    assert 256 <= made < everything
    assert len(model.texts) == len(set(model.texts)) == everything - made


def settled(count):
    """Return a count once it does not grow any more: what was sent to the server is there."""
    before, now = None, count()
    while before != now:
        time.sleep(0.1)
        before, now = now, count()
    return now


def counted(dsn, query):
    with psycopg.connect(dsn) as connection:
        return connection.execute(query).fetchone()[0]


def test_two_processes_that_write_at_once_lose_nothing_and_double_nothing(dsn):
    script = """
import sys
from documents import make_document
from langchain_toolrag.postgres.connection import Database
from langchain_toolrag.postgres.tool_store import ToolTable

table, number = ToolTable(Database(sys.argv[1])), sys.argv[2]
table.stand()
print("ready", flush=True)
sys.stdin.readline()
for n in range(20):
    table.add([make_document(f"tool_{n}", "Says hello.", f"server_{number}")])
    table.add([make_document("shared", f"Of {number}, {n}.")])
"""
    processes = [start("-c", script, dsn, n, stdin=subprocess.PIPE) for n in range(2)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 2
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    finished(*processes)
    table = ToolTable(Database(dsn))
    expected = {f"server_{w}/tool_{n}" for w in range(2) for n in range(20)} | {"shared"}
    assert Counter(held(table)) == Counter(expected)
    assert table.stand().version == 80
    check_rows(dsn)


WRITING = """
import sys, time
from documents import make_document
from langchain_toolrag.postgres.connection import Database
from langchain_toolrag.postgres.tool_store import ToolTable

class Halting(ToolTable):
    def _write(self, *edit):
        super()._write(*edit)
        print("written", flush=True)
        time.sleep(60)  # Before it is kept.

table = Halting(Database(sys.argv[1]))
table.refresh([make_document(f"new_{n}", "Says hello.") for n in range(600)])
"""


def test_a_process_killed_while_it_writes_leaves_nothing_and_holds_nobody_up(dsn):
    table = ToolTable(Database(dsn))
    table.refresh([make_document("old")])
    process = start("-c", WRITING, dsn)
    assert process.stdout.readline() == "written\n"
    assert held(table) == ["old"]
    adding = threading.Thread(target=table.add, args=[[make_document("added")]])
    adding.start()
    adding.join(0.3)
    assert adding.is_alive()  # One change after the other.
    process.kill()
    process.communicate()
    adding.join(5)
    assert held(table) == ["old", "added"]
    assert table.stand().version == 2


def held(table):
    return [placed.document.id for placed in table.since(Stand()).written.values()]


def test_an_upgrade_by_two_processes_at_once_is_done_once(empty_database):
    command = "from langchain_toolrag.cli import main; raise SystemExit(main())"
    arguments = ["-c", command, "db", "upgrade", "--roles", "--database", empty_database]
    told = sorted(finished(start(*arguments), start(*arguments)))
    assert "applied 1, " in told[0]
    assert "nothing to do" in told[1]
    query = "select count(*) from toolrag.migrations"
    assert counted(empty_database, query) == required_version()


@pytest.fixture(scope="module")
def guarded(postgres_server):
    """A database where `ours` and `theirs` have rows in every table, and a least-privilege user."""
    dsn = postgres_server.make_database()
    upgrade(dsn, roles=True)
    writer = make_user(dsn, "least_privileged", "toolrag_writer")
    for tenant, mode in product(("ours", "theirs"), ("replica", "remote")):
        with PostgresIndex(writer, tenant=tenant, embeddings=NamedEmbeddings(), mode=mode) as index:
            rag = ToolRAG(make_catalogue(), index=index)
            rag.remove(["play_song"])
            index.embed()
            assert rag.select(QUERY).names[0] == "get_weather"
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "insert into toolrag.sources select tenant, 'a source', 1, '{}' from toolrag.catalogues"
        )
    return Guarded(dsn, writer)


class Guarded(NamedTuple):
    """DSNs of the owner of the tables, and of somebody who may do no more than is needed."""

    owner: str
    writer: str


class TestTenants:
    """Rows of another tenant, asked for by somebody who may do no more than is needed."""

    def tables(self, dsn):
        with psycopg.connect(dsn) as connection:
            rows = connection.execute(
                "select table_name from information_schema.columns"
                " where table_schema = 'toolrag' and column_name = 'tenant'"
            )
            return sorted(name for (name,) in rows)

    def rows(self, dsn, table, tenant):
        query = f"select count(*) from toolrag.{table} where tenant = '{tenant}'"
        return counted(dsn, query)

    def test_every_table_is_guarded(self, guarded):
        with psycopg.connect(guarded.owner) as connection:
            rows = connection.execute(
                "select relname from pg_class where relnamespace = 'toolrag'::regnamespace"
                " and relkind = 'r' and relrowsecurity and relforcerowsecurity"
            )
            assert sorted(name for (name,) in rows) == self.tables(guarded.owner)

    @pytest.mark.parametrize("setting", ["ours", "", None])
    def test_nothing_of_another_tenant_is_seen_changed_or_left(self, guarded, setting):
        for table in self.tables(guarded.owner):
            before = self.rows(guarded.owner, table, "theirs")
            assert before > 0, table
            with psycopg.connect(guarded.writer) as connection:
                if setting is not None:
                    connection.execute("select set_config('toolrag.tenant', %s, true)", [setting])
                where = f"toolrag.{table} where tenant = 'theirs'"
                assert connection.execute(f"select count(*) from {where}").fetchone() == (0,)
                seen = connection.execute(f"select distinct tenant from toolrag.{table}").fetchall()
                assert seen == ([("ours",)] if setting else [])
                assert connection.execute(f"delete from {where}").rowcount == 0
                change = f"update toolrag.{table} set tenant = 'ours' where tenant = 'theirs'"
                assert connection.execute(change).rowcount == 0
            assert self.rows(guarded.owner, table, "theirs") == before

    def test_no_row_can_be_put_among_anothers(self, guarded):
        for statement in (
            "insert into toolrag.catalogues (tenant) values ('third')",
            "update toolrag.vectors set tenant = 'theirs'",
            "insert into toolrag.sources values ('theirs', 'mine', 1, '{}')",
        ):
            with psycopg.connect(guarded.writer) as connection:
                connection.execute("select set_config('toolrag.tenant', 'ours', true)")
                with pytest.raises(InsufficientPrivilege, match="row-level security"):
                    connection.execute(statement)
                connection.rollback()

    @pytest.mark.parametrize(
        "statement",
        [
            "truncate toolrag.vectors",
            "drop table toolrag.tools cascade",
            "alter table toolrag.tools disable row level security",
            "create table toolrag.mine (id int)",
            "create policy mine on toolrag.tools using (true)",
            "insert into toolrag.migrations (number, name) values (99, 'mine')",
            "set role toolrag_search",
        ],
    )
    def test_tables_cannot_be_changed_nor_emptied(self, guarded, statement):
        with (
            psycopg.connect(guarded.writer) as connection,
            pytest.raises(InsufficientPrivilege),
        ):
            connection.execute(statement)

    def test_a_search_in_the_database_stays_with_its_tenant(self, guarded):
        with PostgresIndex(
            guarded.writer, tenant="nobody", embeddings=NamedEmbeddings(), mode="remote"
        ) as index:
            index.refresh([make_document("get_weather", "Current weather.", "nobody")])
            found = index.evidence("get_weather play_song weather mail meeting", 100)
        assert [tool.id for tool in found.tools] == ["nobody/get_weather"]

    def test_whoever_may_only_read_searches_and_changes_nothing(self, guarded):
        reader = make_user(guarded.owner, "only_reading", "toolrag_reader")
        documents = ToolTable(Database(reader, "ours")).since(Stand()).written.values()
        for mode in ("replica", "remote"):
            with PostgresIndex(
                reader, tenant="ours", embeddings=NamedEmbeddings(), mode=mode
            ) as index:
                assert index.evidence(QUERY).dense_ready
                assert len(index.refresh([each.document for each in documents]).kept) == 11
                with pytest.raises(DatabaseError, match="grant it toolrag_writer"):
                    index.remove(["mail/send_email"])


def test_mixed_traffic_of_four_processes_leaves_what_they_wrote(dsn):
    upgrade(dsn, roles=True)
    user = make_user(dsn, "busy", "toolrag_writer")
    given = [(t, m, n) for t in ("red", "blue") for n, m in enumerate(("replica", "remote"))]
    traffic = TESTS / "postgres_traffic.py"
    processes = [start(traffic, user, *each, TRAFFIC_SECONDS) for each in given]
    outcomes = [json.loads(out) for out in finished(*processes, seconds=TRAFFIC_SECONDS + 60)]
    for outcome in outcomes:
        assert outcome["foreign"] == outcome["doubled"] == []
        assert outcome["found"] == outcome["held"]
        assert outcome["grew"]
        assert outcome["searches"] > 5
        assert outcome["changes"] > 5
    for tenant, of_tenant in (("red", outcomes[:2]), ("blue", outcomes[2:])):
        expected = {**of_tenant[0]["held"], **of_tenant[1]["held"]}
        table = ToolTable(Database(user, tenant))
        documents = [placed.document for placed in table.since(Stand()).written.values()]
        assert len(documents) == len(expected)
        assert {each.id: each.description for each in documents} == expected
        assert table.stand().version == sum(each["changes"] for each in of_tenant)
    check_rows(dsn)


def check_rows(dsn):
    """What must be true of all rows, whoever wrote them."""
    for nothing in (
        "select tenant, position from toolrag.tools group by 1, 2 having count(*) > 1",
        "select 1 from toolrag.tools join toolrag.removed using (tenant, id)",
        "select 1 from toolrag.tools join toolrag.catalogues using (tenant)"
        " where changed > version",
        "select tenant, word, tools from toolrag.word_counts where word <> '' except"
        " select tenant, word, count(*) from toolrag.tools,"
        " unnest(tsvector_to_array(words)) as word group by 1, 2",
    ):
        with psycopg.connect(dsn) as connection:
            assert connection.execute(nothing).fetchall() == [], nothing
