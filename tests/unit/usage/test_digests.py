import hashlib
import hmac
import os
import subprocess
import sys
import textwrap

import pytest

from langchain_toolrag.errors import SourceError
from langchain_toolrag.usage.digests import Digests, open_digests

DIGESTS = Digests(bytes(range(32)))


def test_a_digest_is_the_hmac_of_what_the_text_is_and_the_text():
    wanted = hmac.new(bytes(range(32)), b"request\0create an issue", hashlib.sha256).hexdigest()
    assert DIGESTS.of("request", "create an issue") == wanted


@pytest.mark.parametrize("same", ["cafe\u0301 menu", "  caf\u00e9 menu\n"])
def test_texts_that_read_the_same_have_one_digest(same):
    assert DIGESTS.of("request", same) == DIGESTS.of("request", "caf\u00e9 menu")


def test_equal_texts_for_two_purposes_cannot_be_linked():
    purposes = ("request", "arguments", "session", "tenant")
    assert len({DIGESTS.of(purpose, "acme") for purpose in purposes}) == 4


def test_another_key_gives_another_digest():
    assert Digests(bytes(32)).of("request", "hello") != DIGESTS.of("request", "hello")


def test_nothing_has_no_digest():
    assert DIGESTS.of("tenant", "") == DIGESTS.of("request", " \n") == ""


def test_half_a_character_has_a_digest():
    assert len(DIGESTS.of("request", "broken \ud83d")) == 64


def test_the_key_is_made_once_and_for_its_owner_alone(directory):
    first = open_digests(directory)
    key = directory / ".key"
    assert len(key.read_bytes()) == 32
    assert key.stat().st_mode & 0o777 == 0o600
    assert open_digests(directory).of("request", "a") == first.of("request", "a")
    assert sorted(path.name for path in directory.iterdir()) == [".key", ".lock"]


def test_a_missing_key_beside_records_is_an_error_that_names_it(directory, write, search):
    write(search("s"))
    with pytest.raises(SourceError, match=r"usage/\.key: the key .* is missing\. Put it back") as e:
        open_digests(directory)
    assert e.value.source == str(directory / ".key")
    assert not (directory / ".key").exists()


def test_a_key_of_the_wrong_length_is_an_error_that_names_it(directory):
    directory.mkdir()
    (directory / ".key").write_bytes(b"short")
    with pytest.raises(SourceError, match=r"\.key: the key .* has 5 bytes; wanted 32"):
        open_digests(directory)


def test_a_key_that_cannot_be_read_is_an_error_that_names_it(directory):
    (directory / ".key").mkdir(parents=True)
    with pytest.raises(SourceError, match=r"\.key: the key .* cannot be read: Is a directory"):
        open_digests(directory)


def test_a_key_in_a_directory_that_cannot_be_written_is_enough(directory, monkeypatch):
    wanted = open_digests(directory).of("request", "a")

    def refuse(*arguments, **others):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert open_digests(directory).of("request", "a") == wanted


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_processes_that_race_for_a_new_log_agree_on_one_key(directory):
    script = """
        import os, sys
        from pathlib import Path
        from langchain_toolrag.usage.digests import open_digests
        for round in range(20):
            go, start = os.pipe()
            read, report = os.pipe()
            for n in range(6):
                if os.fork() == 0:
                    os.close(start)
                    os.read(go, 1)  # Ends for all of them when the parent closes its end.
                    digest = open_digests(Path(sys.argv[1]) / str(round)).of("request", "a")
                    os.write(report, digest.encode() + b" ")
                    os._exit(0)
            os.close(start)
            os.close(report)
            said = b""
            while part := os.read(read, 4096):
                said += part
            if len(said.split()) != 6 or len(set(said.split())) != 1:
                print("round", round, "had", said)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(directory)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == ""
