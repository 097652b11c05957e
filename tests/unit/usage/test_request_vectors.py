import errno
import logging
import os
import shutil
import stat
import struct
import threading
import zlib
from datetime import date, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_toolrag.usage import log as log_module
from langchain_toolrag.usage import request_vectors, writer
from langchain_toolrag.usage.log import UsageLog
from langchain_toolrag.usage.reading import read_usage
from langchain_toolrag.usage.request_vectors import (
    DatedVector,
    RequestVector,
    RequestVectors,
    VectorFiles,
)

DIM = 5
DAY = date(2026, 11, 3)


def vector(seed, model="minilm", dim=DIM):
    return RequestVector(model, np.random.default_rng(seed).normal(size=dim).astype(np.float32))


def digest(n):
    return f"{n:064x}"[::-1]


def search(log, query="create an issue", search_id="s-1", **others):
    log.search(
        search_id=search_id, kind="search", mode="semantic", query=query, retrieved=(), **others
    )


def found(log, directory, *queries, model="minilm"):
    """The vectors of requests, read by whoever has the log's digests."""
    assert log.flush()
    digests = {log.digest("request", query): query for query in queries}
    vectors = RequestVectors(directory).get(model, digests)
    return {digests[key]: vector for key, vector in vectors.items()}


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def journals(directory):
    return sorted((directory / "vectors").glob("*.journal"))


@pytest.fixture
def queued(monkeypatch):
    """The vectors that were queued."""
    queued = []
    put = writer.LogWriter.put_vector

    def watched(self, vector):
        queued.append(vector)
        return put(self, vector)

    monkeypatch.setattr(writer.LogWriter, "put_vector", watched)
    return queued


class TestTheVectorsOfRequests:
    def test_they_are_found_by_the_digest_in_the_line_and_no_text_is_needed(self, log, directory):
        search(log, vector=vector(1))
        assert log.flush()
        (record,) = read_usage(directory)

        vectors = RequestVectors(directory).get("minilm", [record.request])
        np.testing.assert_array_equal(vectors[record.request], vector(1).vector)
        assert not vectors[record.request].flags.writeable
        assert not any(b"issue" in path.read_bytes() for path in directory.rglob("*.j*"))

    def test_they_come_in_the_order_of_the_digests_and_those_that_are_not_there_are_left_out(
        self, log, directory
    ):
        for n in range(4):
            search(log, f"request {n}", vector=vector(n) if n != 2 else None)
        wanted = [f"request {n}" for n in (3, 2, 0)]
        assert list(found(log, directory, *wanted)) == ["request 3", "request 0"]

    def test_what_is_no_digest_has_none(self, log, directory):
        search(log, vector=vector(1))
        assert log.flush()
        odd = ["", "create an issue", "G" * 64, "ab", digest(1) + "0", "\u0660" * 64]
        assert RequestVectors(directory).get("minilm", odd) == {}

    def test_those_of_two_models_are_apart(self, log, directory):
        search(log, vector=vector(1))
        search(log, vector=vector(2, "other", dim=3))
        for model, wanted in (("minilm", vector(1)), ("other", vector(2, dim=3))):
            (one,) = found(log, directory, "create an issue", model=model).values()
            np.testing.assert_array_equal(one, wanted.vector)
        assert found(log, directory, "create an issue", model="third") == {}

    def test_equal_requests_have_one_whatever_blanks_are_around_them(self, log, directory):
        search(log, " create an issue\n", vector=vector(1))
        assert list(found(log, directory, "create an issue")) == ["create an issue"]

    def test_a_request_without_text_has_none(self, log, directory):
        search(log, "  ", vector=vector(1))
        assert log.flush()
        assert journals(directory) == []

    def test_they_are_kept_beside_texts_too(self, directory):
        with UsageLog(directory, log_text=True) as log:
            search(log, vector=vector(1))
            assert len(found(log, directory, "create an issue")) == 1

    def test_the_caller_may_change_the_vector_it_gave(self, log, directory):
        given = vector(1)
        search(log, vector=given)
        given.vector[:] = 0
        (one,) = found(log, directory, "create an issue").values()
        np.testing.assert_array_equal(one, vector(1).vector)

    def test_numbers_of_another_precision_are_taken(self, log, directory):
        search(log, vector=RequestVector("minilm", [0.5, 0.25]))
        (one,) = found(log, directory, "create an issue").values()
        assert (one.dtype, one.tolist()) == (np.float32, [0.5, 0.25])

    @pytest.mark.skipif(os.name == "nt", reason="has no such modes")
    def test_their_folder_is_the_owners_alone(self, log, directory):
        search(log, vector=vector(1))
        assert log.flush()
        assert stat.S_IMODE((directory / "vectors").stat().st_mode) == 0o700

    def test_a_log_that_is_not_there_has_none(self, directory):
        assert RequestVectors(directory).get("minilm", [digest(1)]) == {}
        assert not directory.exists()

    def test_a_log_has_no_digests_while_it_has_no_key(self, directory, monkeypatch):
        def refuse(directory):
            raise OSError(errno.EROFS, "Read-only file system")

        monkeypatch.setattr(log_module, "open_digests", refuse)
        with UsageLog(directory) as log:
            search(log, vector=vector(1))
            assert log.digest("request", "create an issue") == ""
            assert log.dropped == 1


class TestEachIsKeptOnce:
    def test_a_request_that_comes_again_is_not_queued_again(self, log, directory, queued):
        for n in range(3):
            search(log, search_id=f"s-{n}", vector=vector(1))
        assert len(found(log, directory, "create an issue")) == 1
        assert len(queued) == 1

    def test_it_is_not_written_again_by_another_log_either(self, directory):
        sizes = []
        for _ in range(2):
            with UsageLog(directory) as log:
                search(log, vector=vector(1))
            sizes.append(journals(directory)[0].stat().st_size)
        assert sizes[0] == sizes[1]

    def test_the_memory_of_what_was_queued_is_bounded(self, log, directory, queued, monkeypatch):
        monkeypatch.setattr(log_module, "_MOST_KEPT", 3)
        for n in range(10):
            search(log, f"request {n}", vector=vector(n))
            assert len(log._kept) <= 3
        search(log, "request 0", vector=vector(0))
        assert len(found(log, directory, *(f"request {n}" for n in range(10)))) == 10
        assert len(queued) == 11

    def test_one_that_found_no_place_is_queued_again(self, log, directory, queued, monkeypatch):
        with monkeypatch.context() as full:
            full.setattr(writer, "_MOST_WAITING", 0)
            search(log, vector=vector(1))
        search(log, vector=vector(1))
        assert len(found(log, directory, "create an issue")) == 1
        assert [len(queued), log.dropped] == [2, 1]

    def test_a_day_has_its_own_so_that_it_can_be_deleted_alone(self, log, directory, monkeypatch):
        for day in ("2026-11-03", "2026-11-04"):

            class Clock:
                now = staticmethod(lambda zone, day=day: datetime.fromisoformat(f"{day}T12:00Z"))

            monkeypatch.setattr(log_module, "datetime", Clock)
            search(log, vector=vector(1))
            search(log, f"on {day}", vector=vector(2))
        queries = ("create an issue", "on 2026-11-03", "on 2026-11-04")
        assert len(found(log, directory, *queries)) == 3

        for path in (*directory.glob("usage-2026-11-03*"), *directory.glob("vectors/2026-11-03-*")):
            path.unlink()
        assert list(found(log, directory, *queries)) == ["create an issue", "on 2026-11-04"]

    def test_a_file_that_was_taken_away_is_begun_again(self, directory):
        files = VectorFiles(directory)
        batch = [DatedVector(DAY, digest(n), vector(n)) for n in range(3)]
        assert files.write(batch) == 3
        shutil.rmtree(directory / "vectors")
        assert files.write(batch[:1]) == 1
        assert list(RequestVectors(directory).get("minilm", map(digest, range(3)))) == [digest(0)]

    def test_those_of_one_day_and_model_are_written_together(self, directory):
        models = ["a", "a", "b", "a"]
        batch = [DatedVector(DAY, digest(n), vector(n, model)) for n, model in enumerate(models)]
        files, written = VectorFiles(directory), []
        while batch:
            written.append(files.write(batch))
            batch = batch[written[-1] :]
        assert written == [2, 1, 1]

    def test_many_threads_put_each_once(self, directory):
        with UsageLog(directory) as log:

            def work():
                for n in range(100):
                    search(log, f"request {n}", vector=vector(n))

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            vectors = found(log, directory, *(f"request {n}" for n in range(100)))
        assert len(vectors) == 100
        for n in range(100):
            np.testing.assert_array_equal(vectors[f"request {n}"], vector(n).vector)


class TestTrouble:
    @pytest.mark.parametrize(
        "bad", [[np.nan, 1], [np.inf, 1], [], [[1, 2]], 7, [1e300, 0]], ids=repr
    )
    def test_what_is_no_vector_is_left_out_with_a_warning_and_the_line_stays(
        self, log, directory, caplog, bad
    ):
        search(log, "bad", vector=RequestVector("minilm", np.array(bad)))
        search(log, "good", search_id="s-2", vector=vector(1, dim=2))
        assert list(found(log, directory, "bad", "good")) == ["good"]
        assert [record.search_id for record in read_usage(directory)] == ["s-1", "s-2"]
        (warning,) = warnings(caplog)
        assert "a request's vector is left out" in warning

    @pytest.mark.parametrize("bad", ["text", object(), None])
    def test_what_is_no_number_at_all_is_no_error_of_the_caller(self, log, directory, caplog, bad):
        search(log, vector=RequestVector("minilm", bad))
        search(log, vector=bad)
        assert log.flush()
        assert len(list(read_usage(directory))) == 2
        assert journals(directory) == []
        assert all(
            "cannot record everything" in each or "left out" in each for each in warnings(caplog)
        )
        assert log.dropped == 0

    def test_a_vector_of_another_dimension_is_left_out(self, log, directory, caplog):
        search(log, "one", vector=vector(1))
        assert log.flush()
        for n in range(2):
            search(log, f"other {n}", vector=vector(2, dim=3))
        assert list(found(log, directory, "one", "other 0", "other 1")) == ["one"]
        (warning,) = warnings(caplog)
        assert "it has shape (3,); wanted finite numbers of shape (5,)" in warning

    def test_where_they_cannot_be_written_lines_are_and_flush_says_no(
        self, log, directory, monkeypatch, caplog
    ):
        monkeypatch.setattr(writer, "_REST_SECONDS", 0.01)
        (directory / "vectors").touch()
        search(log, vector=vector(1))
        assert not log.flush(timeout=0.2)
        assert len(list(read_usage(directory))) == 1
        (directory / "vectors").unlink()
        assert len(found(log, directory, "create an issue")) == 1
        (warning,) = warnings(caplog)
        assert warning.startswith(f"usage log {directory} cannot record everything: FileExists")

    def test_a_full_disk_takes_them_later(self, log, directory, monkeypatch):
        monkeypatch.setattr(writer, "_REST_SECONDS", 0.01)
        is_full = threading.Event()
        is_full.set()
        append = request_vectors.JournalFile.append

        def full_append(journal, table):
            if is_full.is_set():
                raise OSError(errno.ENOSPC, "No space left on device")
            return append(journal, table)

        monkeypatch.setattr(request_vectors.JournalFile, "append", full_append)
        search(log, vector=vector(1))
        assert not log.flush(timeout=0.1)
        is_full.clear()
        assert len(found(log, directory, "create an issue")) == 1

    def test_a_file_that_ends_anywhere_is_read_as_far_as_it_goes_and_written_on(self, directory):
        files = VectorFiles(directory)
        for n in range(3):
            files.write([DatedVector(DAY, digest(n), vector(n))])
        (path,) = journals(directory)
        whole = path.read_bytes()
        for end in range(0, len(whole), 37):
            path.write_bytes(whole[:end])
            before = RequestVectors(directory).get("minilm", map(digest, range(3)))
            VectorFiles(directory).write([DatedVector(DAY, digest(9), vector(9))])
            after = RequestVectors(directory).get("minilm", map(digest, [0, 1, 2, 9]))
            assert [*before, digest(9)] == list(after)
        assert journals(directory) == [path]

    def test_a_damaged_file_is_set_aside_and_what_stood_before_the_damage_stays(
        self, directory, caplog
    ):
        files = VectorFiles(directory)
        for n in range(3):
            files.write([DatedVector(DAY, digest(n), vector(n))])
        (path,) = journals(directory)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0xFF  # In the second of three blocks.
        path.write_bytes(content)

        assert list(RequestVectors(directory).get("minilm", map(digest, range(3)))) == [digest(0)]
        files.write([DatedVector(DAY, digest(n), vector(n)) for n in range(3)])
        assert len(RequestVectors(directory).get("minilm", map(digest, range(3)))) == 3
        assert path.with_name(f"{path.name}.corrupt-1").exists()
        assert len(warnings(caplog)) == 1

    def test_whoever_writes_on_a_damaged_file_sets_it_aside_too(self, directory, caplog):
        files = VectorFiles(directory)
        files.write([DatedVector(DAY, digest(0), vector(0))])
        (path,) = journals(directory)
        path.write_bytes(b"no journal at all, and longer than a header")
        files.write([DatedVector(DAY, digest(n), vector(n)) for n in range(2)])
        assert len(RequestVectors(directory).get("minilm", map(digest, range(2)))) == 2
        assert "set aside" in warnings(caplog)[0]

    def test_a_file_of_a_newer_version_is_left_alone(self, log, directory, caplog):
        search(log, vector=vector(1))
        assert len(found(log, directory, "create an issue")) == 1
        (path,) = journals(directory)
        newer = bytearray(path.read_bytes())
        newer[8] = 99
        newer[12:16] = struct.pack("<I", zlib.crc32(newer[:12]))
        path.write_bytes(newer)

        assert found(log, directory, "create an issue") == {}
        with UsageLog(directory) as other:
            for n in range(2):
                search(other, f"another {n}", vector=vector(2))
                assert other.flush()
        assert path.read_bytes() == newer
        assert len(list(read_usage(directory))) == 3
        assert ["99" in warning for warning in warnings(caplog)] == [True, True]


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["a", "b"])), max_size=12))
def test_whatever_is_written_is_what_is_found(tmp_path_factory, requests):
    directory = tmp_path_factory.mktemp("usage")
    batch = [DatedVector(DAY, digest(n), vector(n, model)) for n, model in requests]
    while batch:
        batch = batch[VectorFiles(directory).write(batch) :]
    for model in ("a", "b"):
        vectors = RequestVectors(directory).get(model, map(digest, range(6)))
        assert set(vectors) == {digest(n) for n, of in requests if of == model}
        for n in range(6):
            if digest(n) in vectors:
                np.testing.assert_array_equal(vectors[digest(n)], vector(n, model).vector)
