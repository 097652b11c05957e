"""The database of `examples/deploy`, as its container and `toolrag db upgrade` make it."""

import base64
import hashlib
import hmac
import subprocess
import tempfile
from pathlib import Path

import psycopg
import pytest
from postgres_server import PostgresServer
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from langchain_toolrag.postgres.upgrade import upgrade

ROLE = Path(__file__).parents[3] / "examples" / "deploy" / "server_role.sql"
PASSWORD = 'it\'s "odd" \\ $1'


@pytest.fixture(scope="module")
def owner_dsn():
    """A server of its own, for roles are the whole server's: made as its image makes it."""
    # Not pytest's folder: the path of a socket may have a hundred bytes.
    with tempfile.TemporaryDirectory(prefix="toolrag-pg-") as directory:
        server = PostgresServer(Path(directory, "data"))
        secret = Path(directory, "server_password")
        secret.write_text(f"{PASSWORD}\n")
        psql = [server._server.bin_path / "psql", "--no-password", "--no-psqlrc"]
        subprocess.run(
            [*psql, "-v", "ON_ERROR_STOP=1", "-d", server.dsn()],
            input=ROLE.read_text().replace("/run/secrets", directory),
            text=True,
            check=True,
            capture_output=True,
        )
        upgrade(server.dsn(), roles=True)
        yield server.dsn()
        server.close()


@pytest.fixture
def server_dsn(owner_dsn):
    """As the servers connect."""
    return make_conninfo(**{**conninfo_to_dict(owner_dsn), "user": "toolrag_server"})


def test_the_servers_user_reads_and_writes_tools_and_makes_no_tables(server_dsn):
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute("select * from toolrag.tools")
        for right in ("select", "insert", "update", "delete"):
            row = connection.execute(
                "select has_table_privilege('toolrag.tools', %s)", [right]
            ).fetchone()
            assert row == (True,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("create table toolrag.mine (id int)")
        bypasses = "select rolsuper or rolbypassrls from pg_roles where rolname = current_user"
        assert connection.execute(bypasses).fetchone() == (False,)


def test_its_password_is_what_the_secret_holds(owner_dsn):
    with psycopg.connect(owner_dsn) as owner:
        query = "select rolpassword from pg_authid where rolname = 'toolrag_server'"
        (verifier,) = owner.execute(query).fetchone()

    assert fits(PASSWORD, verifier)
    assert not fits(f"{PASSWORD}\n", verifier)


def fits(password, verifier):
    """Whether a SCRAM verifier (RFC 5803) is one of a password."""
    _, parameters, keys = verifier.split("$")
    iterations, salt = parameters.split(":")
    salted = hashlib.pbkdf2_hmac(
        "sha256", password.encode(), base64.b64decode(salt), int(iterations)
    )
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    return base64.b64encode(stored).decode() == keys.split(":")[0]
