"""Servers that refuse, know nothing, or are none; passwords are checked as they are outside."""

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

import psycopg
import pytest
from fakes import NamedEmbeddings
from postgres_server import running_server
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from langchain_toolrag.errors import DatabaseError
from langchain_toolrag.postgres.connection import Database
from langchain_toolrag.postgres.index import PostgresIndex
from langchain_toolrag.postgres.stored_tools import open_database_tools
from langchain_toolrag.postgres.upgrade import upgrade

RIGHT, WRONG = "r1ght secret", "wr0ng secret"
PLAIN = {"sslmode": "disable", "gssencmode": "disable"}
READY = b"Z\0\0\0\x05I"  # What a server says after letting somebody in.


class Checked(NamedTuple):
    """A server that checks passwords at 127.0.0.1.

    `dsn` is that of `me`, who may read and write; keywords change it.
    """

    owner: str
    port: int
    dsn: Callable[..., str]


@pytest.fixture(scope="module")
def checked():
    with running_server(free_port()) as server:
        owner = server.make_database()
        upgrade(owner, roles=True)
        with psycopg.connect(owner) as connection:
            for name in ("me", "stranger"):
                connection.execute(f"create role {name} login password '{RIGHT}'")
            connection.execute("grant toolrag_writer to me")
        given = conninfo_to_dict(owner)
        base = {"host": "127.0.0.1", "port": given["port"], "dbname": given["dbname"]}
        yield Checked(
            owner,
            int(given["port"]),
            lambda **more: make_conninfo(**{**base, "user": "me", "password": RIGHT, **more}),
        )


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def listening():
    """Opens a port where every client is dealt with by a function; gives the port."""
    opened = []

    def make(deal):
        server = socket.create_server(("127.0.0.1", 0))
        opened.append(server)

        def one(client):
            with client, contextlib.suppress(OSError):  # Clients may leave at any time.
                deal(client)

        def run():
            while True:
                try:
                    client, _ = server.accept()
                except OSError:  # Closed at the end of the test.
                    return
                opened.append(client)
                threading.Thread(target=one, args=[client], daemon=True).start()

        threading.Thread(target=run, daemon=True).start()
        return server.getsockname()[1]

    yield make
    for each in opened:
        each.close()


def read(dsn, **more):
    database = Database(dsn, **more)
    try:
        with database.read() as connection:
            return connection.execute("select current_user").fetchone()[0]
    finally:
        database.close()


def read_waiting(dsn, **more):
    async def ask():
        async with Database(dsn, **more).aread():
            pass

    asyncio.run(ask())


def stand_alone(dsn, **more):
    with Database(dsn, **more).alone():
        pass


def open_index(dsn, mode="replica", **more):
    PostgresIndex(dsn, embeddings=NamedEmbeddings(), mode=mode, **more)


WAYS = [read, read_waiting, stand_alone, upgrade, open_index, open_database_tools]


def everything_told(error):
    """All that is shown of an error by whoever reports it, its causes included."""
    told = ["".join(traceback.format_exception(error)), repr(vars(error))]
    causes = [error]
    while causes:
        each = causes.pop()
        told += [str(each), repr(each)]
        causes += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
    return "\n".join(told)


class TestPasswords:
    def test_the_right_one_opens(self, checked):
        assert read(checked.dsn()) == "me"

    @pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
    def test_a_wrong_one_is_refused_at_once_and_told_to_nobody(self, checked, way, caplog):
        caplog.set_level(logging.DEBUG)
        started = time.monotonic()
        refused = r"user=me.* refuses the connection: .*password authentication failed for user"
        with pytest.raises(DatabaseError, match=refused) as info:
            way(checked.dsn(password=WRONG))
        assert time.monotonic() - started < 2
        assert "secret" not in everything_told(info.value) + caplog.text

    def test_none_at_all_is_refused(self, checked, monkeypatch):
        monkeypatch.setenv("PGPASSFILE", os.devnull)
        with pytest.raises(DatabaseError, match="no password supplied"):
            read(checked.dsn(password=""))

    def test_neither_database_nor_index_show_it(self, checked):
        database = Database(checked.dsn())
        assert database.name in repr(database)
        assert "secret" not in repr(database) + database.name
        with PostgresIndex(checked.dsn(), embeddings=NamedEmbeddings(), mode="replica") as index:
            assert "secret" not in repr(index) + str(index._follower)

    def test_one_that_was_changed_meanwhile_is_refused_at_once(self, checked, caplog):
        caplog.set_level(logging.DEBUG)
        with psycopg.connect(checked.owner, autocommit=True) as owner:
            owner.execute(f"create role changing login password '{RIGHT}'")
            database = Database(checked.dsn(user="changing"))
            with database.read() as connection:
                process = connection.info.backend_pid
            owner.execute("alter role changing password 'another secret'")
            owner.execute("select pg_terminate_backend(%s, 1000)", [process])
        started = time.monotonic()
        refused = pytest.raises(DatabaseError, match="password authentication failed")
        with refused as info, database.read():
            pass
        database.close()
        assert time.monotonic() - started < 2
        assert "secret" not in everything_told(info.value) + caplog.text

    def test_it_may_come_from_a_service_and_from_a_file(self, checked, tmp_path, monkeypatch):
        given = conninfo_to_dict(checked.dsn())
        service = "\n".join(f"{key}={given[key]}" for key in ("host", "port", "dbname", "user"))
        (tmp_path / "services").write_text(
            f"[open]\n{service}\npassword={given['password']}\n[shut]\n{service}\n"
        )
        monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
        monkeypatch.setenv("PGPASSFILE", os.devnull)
        for name, password in (("right", RIGHT), ("wrong", WRONG)):
            (tmp_path / name).write_text(f"*:*:*:me:{password}\n")
            (tmp_path / name).chmod(0o600)
        assert read("service=open") == "me"
        assert read(f"service=shut passfile={tmp_path / 'right'}") == "me"
        assert read(checked.dsn(password="", passfile=str(tmp_path / "right"))) == "me"
        with pytest.raises(DatabaseError, match=r"\(service=shut\) refuses the connection") as info:
            read(f"service=shut passfile={tmp_path / 'wrong'}")
        assert "secret" not in everything_told(info.value)
        with pytest.raises(DatabaseError, match='definition of service "unknown" not found'):
            read("service=unknown password=secret")


class TestRights:
    @pytest.mark.parametrize("way", [open_index, open_database_tools], ids=["index", "tools"])
    def test_a_user_without_rights_on_the_schema_is_told_which_are_wanted(self, checked, way):
        wanted = r"user=stranger.*permission denied for schema toolrag.*grant it toolrag_writer"
        with pytest.raises(DatabaseError, match=wanted):
            way(checked.dsn(user="stranger"))

    def test_whoever_may_not_upgrade_is_not_told_to_become_a_writer(self, checked):
        with pytest.raises(DatabaseError, match="upgrade as the owner of the database") as info:
            upgrade(checked.dsn(user="stranger"), roles=True)
        assert "toolrag_writer" not in str(info.value)

    @pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
    def test_a_database_that_does_not_exist_is_named(self, checked, way):
        missing = 'refuses the connection: .*database "nowhere" does not exist'
        with pytest.raises(DatabaseError, match=missing):
            way(checked.dsn(dbname="nowhere"))


class TestOtherServers:
    """What answers is not PostgreSQL."""

    @pytest.mark.parametrize(
        "answer",
        [
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            b"SSH-2.0-OpenSSH_9.6\r\n",
            b"",
            b"\xff\xfe" * 3000,
            b"E\0\0\0\x20SFATAL\0C\xff\xff\0M\xfe\0\0",
            b"NR\0\0\0\x08\0\0\0\0" + READY,
        ],
        ids=["http", "ssh", "nothing", "bytes", "half an error", "half a greeting"],
    )
    @pytest.mark.parametrize("way", [read, read_waiting, open_index], ids=lambda way: way.__name__)
    def test_what_answers_something_else_cannot_be_reached(self, listening, answer, way):
        def deal(client):
            client.recv(1000)
            client.sendall(answer)
            time.sleep(0.05)

        dsn = f"host=127.0.0.1 port={listening(deal)} dbname=tools user=me password=s3cret"
        with pytest.raises(DatabaseError, match=r"user=me.* cannot be reached") as info:
            way(dsn)
        assert "s3cret" not in everything_told(info.value)

    @pytest.mark.parametrize("way", [read, read_waiting], ids=lambda way: way.__name__)
    def test_what_is_silent_is_waited_for_as_long_as_was_said(self, listening, way):
        ended = threading.Event()
        dsn = f"host=127.0.0.1 port={listening(lambda client: ended.wait(30))} dbname=tools"
        started = time.monotonic()
        with pytest.raises(DatabaseError, match="cannot be reached: connection timeout expired"):
            way(dsn, timeout=2.0)
        assert time.monotonic() - started < 4
        ended.set()

    @pytest.mark.parametrize("way", [read, read_waiting], ids=lambda way: way.__name__)
    def test_what_lets_in_and_then_cuts_every_connection_is_an_error(self, checked, listening, way):
        cut = []

        def deal(client):
            with socket.create_connection(("127.0.0.1", checked.port)) as server:
                if relay_greeting(client, server):
                    cut.append(client.recv(1000)[:1])  # The first question, or a farewell: X.

        dsn = checked.dsn(port=listening(deal), **PLAIN)
        error = error_within(20, lambda: way(dsn, pool_size=2))
        assert isinstance(error, DatabaseError)
        assert "server closed the connection" in str(error)
        assert 0 < sum(first != b"X" for first in cut) <= 6


def error_within(seconds, work):
    """Return the error of what may never end."""
    errors = []

    def run():
        try:
            work()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive()
    return errors[0]


def relay_greeting(client, server):
    """Let a client and a server speak in turns; returns whether the client was let in."""
    said = b""
    while not said.endswith(READY):
        asked = client.recv(4096)
        if not asked:
            return False
        server.sendall(asked)
        said = server.recv(65536)
        client.sendall(said)
    return True
