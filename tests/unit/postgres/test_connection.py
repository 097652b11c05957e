import asyncio
import logging
import os
import threading
import time
import traceback

import pytest
from forking_scripts import run_script
from postgres_server import make_user
from psycopg.conninfo import make_conninfo

from langchain_toolrag.errors import DatabaseError
from langchain_toolrag.postgres.connection import DEFAULT_TENANT, Database
from langchain_toolrag.postgres.upgrade import upgrade

ADD = "insert into toolrag.catalogues (tenant) values (current_setting('toolrag.tenant'))"
COUNT = "select count(*) from toolrag.catalogues where tenant = current_setting('toolrag.tenant')"
WHO = "select current_setting('toolrag.tenant'), current_setting('transaction_read_only')"


@pytest.fixture
def database(shared_dsn, tenant):
    database = Database(shared_dsn, tenant, pool_size=2, timeout=1.0)
    yield database
    database.close()


def asked(database, query):
    with database.read() as connection:
        return connection.execute(query).fetchone()


def test_a_connection_says_whose_rows_it_wants(database, tenant):
    assert asked(database, WHO) == (tenant, "on")
    with database.write() as connection:
        assert connection.execute(WHO).fetchone() == (tenant, "off")
    with database.alone() as connection:
        assert connection.execute(WHO).fetchone() == (tenant, "off")


def test_without_a_name_the_tenant_is_default(shared_dsn):
    assert Database(shared_dsn).tenant == Database(shared_dsn, "").tenant == DEFAULT_TENANT


def test_a_change_is_kept_if_the_block_ends_without_an_error(database):
    with database.write() as connection:
        connection.execute(ADD)
    assert asked(database, COUNT) == (1,)


def test_a_change_is_undone_if_the_block_ends_with_an_error(database):
    with pytest.raises(LookupError), database.write() as connection:  # noqa: PT012
        connection.execute(ADD)
        raise LookupError
    assert asked(database, COUNT) == (0,)


def test_reading_writes_nothing(database):
    with pytest.raises(DatabaseError, match="read-only transaction"), database.read() as connection:
        connection.execute(ADD)


def test_what_is_read_is_of_one_moment(database):
    with database.read() as reading:
        assert reading.execute(COUNT).fetchone() == (0,)
        with database.write() as writing:
            writing.execute(ADD)
        assert reading.execute(COUNT).fetchone() == (0,)
    assert asked(database, COUNT) == (1,)


def test_an_error_of_the_server_names_the_database(database):
    with pytest.raises(DatabaseError, match="failed: division by zero") as info:
        asked(database, "select 1 / 0")
    assert info.value.database == database.name
    assert asked(database, "select 1") == (1,)


async def test_waiting_does_the_same(database, tenant):
    async with database.aread() as connection:
        assert await (await connection.execute(WHO)).fetchone() == (tenant, "on")
    async with database.awrite() as connection:
        await connection.execute(ADD)
    with pytest.raises(DatabaseError, match="read-only transaction"):
        async with database.aread() as connection:
            await connection.execute(ADD)
    assert asked(database, COUNT) == (1,)
    await database.aclose()


def test_every_event_loop_has_connections_of_its_own(database):
    async def ask():
        async with database.aread() as connection:
            return await (await connection.execute("select 1")).fetchone()

    async def several():
        found = await asyncio.gather(*(ask() for _ in range(8)))
        await database.aclose()
        return found

    for _ in range(2):
        assert asyncio.run(several()) == [(1,)] * 8


def test_when_all_connections_are_in_use_one_waits_and_then_says_so(shared_dsn, tenant):
    database = Database(shared_dsn, tenant, pool_size=1, timeout=0.2)
    with database.read():
        started = time.monotonic()
        in_use = (
            r"are in use \(couldn't get a connection after 0.20 sec\): give more by `pool_size`"
        )
        with pytest.raises(DatabaseError, match=in_use):
            asked(database, "select 1")
        assert time.monotonic() - started < 2
    assert asked(database, "select 1") == (1,)
    database.close()


def test_a_closed_database_opens_anew(database):
    asked(database, "select 1")
    database.close()
    database.close()
    assert asked(database, "select 1") == (1,)


def test_a_connection_that_the_server_cut_is_replaced_without_an_error(database):
    with database.read() as first, database.read() as second:
        cut = [each.info.backend_pid for each in (first, second)]
    with database.alone() as other:
        for process in cut:
            other.execute("select pg_terminate_backend(%s, 1000)", [process])
    assert asked(database, "select 1") == (1,)


async def test_waiting_a_cut_connection_is_replaced_too(database):
    async with database.aread() as connection:
        cut = connection.info.backend_pid
    with database.alone() as other:
        other.execute("select pg_terminate_backend(%s, 1000)", [cut])
    async with database.aread() as connection:
        assert await (await connection.execute("select 1")).fetchone() == (1,)
    await database.aclose()


def test_a_server_that_is_not_there_is_named_at_once_and_its_password_is_not(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    dsn = make_conninfo(host=str(tmp_path), dbname="tools", user="me", password="s3cret")
    database = Database(dsn)
    started = time.monotonic()
    with pytest.raises(DatabaseError, match=r"dbname=tools user=me.* cannot be reached: ") as info:
        asked(database, "select 1")
    assert time.monotonic() - started < 2
    told = "".join(traceback.format_exception(info.value)) + caplog.text + repr(database)
    assert "s3cret" not in told


async def test_waiting_for_a_server_that_is_not_there_is_the_same_error(tmp_path):
    database = Database(make_conninfo(host=str(tmp_path), dbname="tools"))
    with pytest.raises(DatabaseError, match="cannot be reached: "):
        async with database.aread():
            pass
    with pytest.raises(DatabaseError, match="cannot be reached: "), database.alone():
        pass


def test_whoever_may_not_do_something_is_told_which_role_may(dsn, postgres_server):
    upgrade(dsn, roles=True)
    database = Database(make_user(dsn, "reading_only", "toolrag_reader"))
    assert asked(database, COUNT) == (0,)
    denied = pytest.raises(DatabaseError, match="grant it toolrag_writer, or toolrag_reader")
    with denied, database.write() as connection:
        connection.execute(ADD)
    database.close()


@pytest.mark.parametrize("tenant", ["a\0b", "x" * 201, "\ud800"])
def test_a_tenant_that_cannot_be_stored_is_refused(tenant):
    with pytest.raises(ValueError, match="wanted at most 200 characters, no NUL"):
        Database("", tenant)


@pytest.mark.parametrize("wrong", [{"pool_size": 0}, {"timeout": 0}, {"timeout": float("nan")}])
def test_numbers_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="wanted at least 1 and above 0"):
        Database("", **wrong)


def test_threads_share_the_connections(database):
    found = []

    def ask():
        found.extend(asked(database, "select 1") for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(1,)] * 160


FORKING = """
import os, signal, sys
from langchain_toolrag.postgres.connection import Database

CHILD_SECONDS = 20
database = Database(sys.argv[1])

def process(connection):
    return connection.execute("select pg_backend_pid()").fetchone()[0]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
class TestForks:
    def test_a_child_has_connections_of_its_own_and_the_parent_keeps_its(self, shared_dsn):
        lines = run_script(
            FORKING,
            """
            with database.read() as connection:
                before = process(connection)

                def ask():
                    with database.read() as own:
                        print(process(own) != before, flush=True)

                os.waitpid(in_child(ask), 0)
                print(process(connection) == before)
            with database.read() as connection:
                print(process(connection) == before)
            database.close()
            """,
            shared_dsn,
            seconds=60,
        )
        assert lines == ["True", "True", "True"]

    def test_a_child_that_lives_on_does_not_keep_a_killed_parents_locks(self, shared_dsn):
        lines = run_script(
            FORKING,
            """
            import time

            def hold_and_fork():
                with database.alone() as connection:
                    connection.execute("select pg_advisory_lock(77)")
                    in_child(lambda: (os.close(1), os.close(2), time.sleep(5)))
                    print("holding", flush=True)
                    os.kill(os.getpid(), signal.SIGKILL)

            os.waitpid(in_child(hold_and_fork), 0)
            with Database(sys.argv[1]).alone() as connection:
                for _ in range(40):
                    free = connection.execute("select pg_try_advisory_lock(77)").fetchone()[0]
                    if free:
                        break
                    time.sleep(0.05)
                print(free)
            """,
            shared_dsn,
            seconds=60,
        )
        assert lines == ["holding", "True"]
