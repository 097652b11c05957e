import errno
import threading
from datetime import date

import pytest
from filelock import Timeout

from langchain_toolrag.usage import files
from langchain_toolrag.usage.files import append, day_file, writing


@pytest.fixture
def path(tmp_path):
    return day_file(tmp_path, date(2026, 11, 3))


class DiskOfTenBytes(files.FileIO):
    """A file on a disk that is full after ten bytes of a write."""

    def write(self, content):
        if len(content) > 10:
            return super().write(content[:10])
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_days_file_is_named_after_the_day_and_is_its_owners_alone(path):
    append(path, b"one\n")
    assert path.name == "usage-2026-11-03.jsonl"
    assert path.stat().st_mode & 0o777 == 0o600


def test_lines_are_appended(path):
    append(path, b"one\n")
    append(path, b"two\nthree\n")
    assert path.read_bytes() == b"one\ntwo\nthree\n"


def test_a_line_that_a_process_died_in_is_ended_first(path):
    path.write_bytes(b"one\ntw")
    append(path, b"three\n")
    assert path.read_bytes() == b"one\ntw\nthree\n"


def test_of_lines_that_do_not_fit_on_the_disk_nothing_is_left(path, monkeypatch):
    append(path, b"one\n")
    with monkeypatch.context() as full:
        full.setattr(files, "FileIO", DiskOfTenBytes)
        with pytest.raises(OSError, match="No space left"):
            append(path, b"a line of more than ten bytes\n")
    assert path.read_bytes() == b"one\n"
    append(path, b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_write_that_takes_several_goes_is_whole(path, monkeypatch):
    class Slow(files.FileIO):
        def write(self, content):
            return super().write(content[:3])

    monkeypatch.setattr(files, "FileIO", Slow)
    append(path, b"a line\nanother line\n")
    assert path.read_bytes() == b"a line\nanother line\n"


def test_a_writer_waits_for_another_but_not_for_ever(path, monkeypatch):
    monkeypatch.setattr(files, "_LOCK_SECONDS", 0.02)
    held, done = threading.Event(), threading.Event()

    def hold():
        with writing(path.parent):
            held.set()
            done.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(20)
    with pytest.raises(Timeout):
        append(path, b"one\n")
    done.set()
    thread.join()
    append(path, b"two\n")
    assert path.read_bytes() == b"two\n"
