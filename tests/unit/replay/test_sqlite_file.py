import importlib.util
import shutil
import sqlite3
from contextlib import ExitStack
from dataclasses import dataclass
from typing import ClassVar

import pytest

from langchain_toolrag.errors import SourceError
from langchain_toolrag.replay.checkpoints import read_thread
from langchain_toolrag.replay.conversations import replay_threads
from langchain_toolrag.replay.sqlite_file import open_sqlite

SqliteSaver = pytest.importorskip("langgraph.checkpoint.sqlite").SqliteSaver


@pytest.fixture
def file(tmp_path, talk):
    """Two threads of an agent that has ended."""
    path = tmp_path / "threads.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        talk("node", saver, "first")
        talk("middleware", saver, "second")
    return path


def contents(path):
    return {each.name: each.read_bytes() for each in path.parent.iterdir() if each.is_file()}


def spoil(path, thread, order):
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE checkpoints SET checkpoint = x'c1' WHERE checkpoint_id = (SELECT checkpoint_id "
            f"FROM checkpoints WHERE thread_id = ? ORDER BY checkpoint_id {order} LIMIT 1)",
            (thread,),
        )
    connection.close()


def test_the_thread_that_was_used_last_comes_first(file):
    with open_sqlite(file) as stored:
        assert stored.names == ["second", "first"]


def test_the_file_is_only_read_and_nothing_is_left_beside_it(file, options, two):
    before = contents(file)
    with open_sqlite(file) as stored:
        replay = replay_threads(stored.saver, options(two), threads=stored.names)
    assert (len(replay.comparable), replay.changed) == (8, [])
    assert contents(file) == before


def test_a_file_that_an_agent_has_open_is_read_as_it_is_now(tmp_path, talk):
    path = tmp_path / "threads.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        talk("node", saver, "first")
        with open_sqlite(path) as stored:
            assert len(read_thread(stored.saver, "first").steps) == 4
        talk("node", saver, "second")
        with open_sqlite(path) as stored:
            assert stored.names == ["second", "first"]
            assert len(read_thread(stored.saver, "second").steps) == 4
        talk("node", saver, "third")
        assert len(read_thread(saver, "third").steps) == 4


@pytest.mark.parametrize("ends", [True, False])
def test_an_agent_that_begins_to_write_meanwhile_is_an_error_and_no_wrong_answer(file, talk, ends):
    """Nothing tells SQLite of it: threads would be empty, or broken, that are not."""
    opened = open_sqlite(file)
    stored = opened.__enter__()
    read_thread(stored.saver, "first")
    with ExitStack() as stack:
        saver = stack.enter_context(SqliteSaver.from_conn_string(str(file)))
        talk("node", saver, "third")
        if ends:
            stack.close()
        else:
            saver.conn.execute("PRAGMA wal_checkpoint")
        read_thread(stored.saver, "second")
        with pytest.raises(SourceError, match="written to while it was read"):
            opened.__exit__(None, None, None)


def test_an_agent_that_goes_on_writing_changes_nothing_of_what_is_read(tmp_path, talk):
    path = tmp_path / "threads.sqlite"
    with ExitStack() as stack:
        saver = stack.enter_context(SqliteSaver.from_conn_string(str(path)))
        for thread in ("first", "second"):
            talk("node", saver, thread)
        with open_sqlite(path) as stored:
            read = [read_thread(stored.saver, "first")]
            talk("node", saver, "third")
            saver.conn.execute("PRAGMA wal_checkpoint")
            read.append(read_thread(stored.saver, "second"))
            stack.close()
            read.append(read_thread(stored.saver, "first"))
    assert [(len(thread.steps), thread.problem) for thread in read] == [(4, "")] * 3


def test_a_file_without_a_log_of_its_own_is_read_too(file):
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()
    with open_sqlite(file) as stored:
        assert len(read_thread(stored.saver, "first").steps) == 4


def test_it_cannot_be_written(file):
    with open_sqlite(file) as stored, pytest.raises(sqlite3.OperationalError, match="readonly"):
        stored.saver.delete_thread("first")


def test_names_with_signs_of_an_address_are_names(file, tmp_path):
    odd = tmp_path / "a folder?mode=rwc#50%" / "th reads.db"
    odd.parent.mkdir()
    shutil.copy(file, odd)
    with open_sqlite(odd) as stored:
        assert len(stored.names) == 2


def test_a_broken_newest_row_takes_its_thread_with_it_alone(file, options, two):
    spoil(file, "first", "DESC")
    with open_sqlite(file) as stored:
        replay = replay_threads(stored.saver, options(two), threads=stored.names)
    assert list(replay.tally.unreadable) == ["first"]
    assert {each.place["thread"] for each in replay.moments} == {"second"}


def test_of_a_thread_with_a_broken_older_row_what_is_newer_is_read(file):
    spoil(file, "first", "ASC")
    with open_sqlite(file) as stored:
        thread = read_thread(stored.saver, "first")
    assert thread.problem
    assert len(thread.steps) == 4


@dataclass
class Counted:
    """Counts how often it was made."""

    made: ClassVar[int] = 0

    def __post_init__(self):
        Counted.made += 1


def test_values_of_other_classes_are_not_made(tmp_path, talk, recwarn):
    path, thread = tmp_path / "threads.sqlite", {"configurable": {"thread_id": "1"}}
    with SqliteSaver.from_conn_string(str(path)) as saver:
        talk("node", saver, "1")
        saved = saver.get_tuple(thread)
        saved.checkpoint["channel_values"]["counted"] = Counted()
        saver.put(saved.config, saved.checkpoint, saved.metadata, {})
        made = Counted.made
        saver.get_tuple(thread)
        assert Counted.made == made + 1
    with open_sqlite(path) as stored:
        assert len(read_thread(stored.saver, "1").steps) == 4
    assert Counted.made == made + 1


def _refused(path):
    with pytest.raises(SourceError) as raised, open_sqlite(path):
        pass
    return str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert _refused(tmp_path / "none.db") == f"{tmp_path / 'none.db'}: cannot be read: " + (
        "No such file or directory"
    )
    assert not (tmp_path / "none.db").exists()


def test_a_folder_is_no_file(tmp_path):
    assert "Is a directory" in _refused(tmp_path)


def test_a_file_of_something_else_is_no_database(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database")
    assert "is no SQLite database; wanted the file that a SqliteSaver was given" in _refused(path)
    path.write_bytes(b"")
    assert "is no SQLite database" in _refused(path)


def test_a_database_of_something_else_holds_no_checkpoints(tmp_path):
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
    connection.close()
    message = _refused(path)
    assert "holds no LangGraph checkpoints" in message
    assert "found 'customers'" in message


def test_a_torn_database_is_a_clear_error(file):
    content = file.read_bytes()
    file.write_bytes(content[:100] + b"\xff" * 4000)
    assert "cannot be read: " in _refused(file)


def test_without_the_package_that_reads_it_its_name_is_said(file, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'langchain-toolrag[replay]'" in _refused(file)
