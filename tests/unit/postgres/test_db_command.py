import sys

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from langchain_toolrag.cli import main
from langchain_toolrag.postgres.connection import Database
from langchain_toolrag.postgres.upgrade import refuse_old


@pytest.fixture(autouse=True)
def _no_default(monkeypatch):
    monkeypatch.delenv("TOOLRAG_DATABASE", raising=False)


def test_it_sets_a_database_up_and_says_what_it_did(empty_database, capsys):
    assert main(["db", "upgrade", "--database", empty_database]) == 0
    assert capsys.readouterr().out == "tables of version 2: applied 1, 2\n"
    assert main(["db", "upgrade", "--database", empty_database]) == 0
    assert capsys.readouterr().out == "tables of version 2: nothing to do\n"
    refuse_old(Database(empty_database))


def test_it_makes_the_roles_where_they_are_wanted(empty_database, capsys):
    assert main(["db", "upgrade", "--roles", "--database", empty_database]) == 0
    assert "roles toolrag_reader, toolrag_writer: grant one" in capsys.readouterr().out
    with psycopg.connect(empty_database) as connection:
        query = "select has_table_privilege('toolrag_writer', 'toolrag.tools', 'insert')"
        assert connection.execute(query).fetchone() == (True,)


def test_the_environment_says_which_database(empty_database, capsys, monkeypatch):
    monkeypatch.setenv("TOOLRAG_DATABASE", empty_database)
    assert main(["db", "upgrade"]) == 0


def test_without_a_database_it_says_how_to_give_one(capsys):
    assert main(["db", "upgrade"]) == 1
    assert "give --database DSN, or set TOOLRAG_DATABASE" in capsys.readouterr().err


def test_neither_help_nor_errors_show_the_password(capsys, monkeypatch, tmp_path):
    dsn = make_conninfo(host=str(tmp_path), dbname="tools", user="me", password="s3cret")
    monkeypatch.setenv("TOOLRAG_DATABASE", dsn)
    assert main(["db", "upgrade"]) == 1
    with pytest.raises(SystemExit):
        main(["db", "upgrade", "--help"])
    told = "".join(capsys.readouterr())
    assert "dbname=tools user=me) cannot be reached" in told
    assert "s3cret" not in told


def test_without_the_extra_it_names_what_to_install(capsys, monkeypatch):
    for name in [each for each in sys.modules if each.startswith("langchain_toolrag.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert main(["db", "upgrade", "--database", "host=db"]) == 1
    assert "pip install 'langchain-toolrag[postgres]'" in capsys.readouterr().err
