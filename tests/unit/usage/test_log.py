import errno
import json
import logging
import math
import threading
import time
from datetime import date, datetime, timezone
from pathlib import Path

import numpy as np
import pytest

from langchain_toolrag.errors import SourceError
from langchain_toolrag.usage import log as log_module
from langchain_toolrag.usage import writer
from langchain_toolrag.usage.digests import open_digests
from langchain_toolrag.usage.files import day_file
from langchain_toolrag.usage.log import UsageLog
from langchain_toolrag.usage.reading import read_usage
from langchain_toolrag.usage.records import CallRecord, Retrieved, SearchRecord
from langchain_toolrag.usage.writer import DatedLine, LogWriter

HITS = [("github/issues/create", 1, 0.83), ("jira/create", 2, 0.5)]


def search(log, search_id="s-1", **others):
    log.search(
        **{
            "search_id": search_id,
            "kind": "search",
            "mode": "semantic",
            "query": "create an issue",
            "retrieved": HITS,
            **others,
        }
    )


def call(log, **others):
    log.call(**{"call_id": "c-1", "tool": "jira/create", "outcome": "ok", **others})


def written(log, directory):
    assert log.flush()
    return list(read_usage(directory))


def everything(directory):
    return b"".join(path.read_bytes() for path in directory.iterdir())


@pytest.fixture
def stuck(monkeypatch):
    """A disk that takes as long as it is told to; nobody waits for a next try."""
    may_write = threading.Event()
    append = writer.append

    def slow_append(path, lines):
        may_write.wait(20)
        append(path, lines)

    monkeypatch.setattr(writer, "append", slow_append)
    yield may_write
    may_write.set()


@pytest.fixture
def full(monkeypatch):
    """A full disk, while the event is set; tried again at once."""
    is_full = threading.Event()
    append = writer.append

    def failing_append(path, lines):
        if is_full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        append(path, lines)

    is_full.set()
    monkeypatch.setattr(writer, "append", failing_append)
    monkeypatch.setattr(writer, "_REST_SECONDS", 0.01)
    return is_full


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


class TestWhatIsLogged:
    def test_a_search_is_a_line(self, log, directory):
        before = datetime.now(timezone.utc)
        search(
            log,
            kind="select",
            mode="lexical",
            bound=["jira/create"],
            confidence=0.25,
            options={"k": 2},
            index="7",
            heads="0123456789abcdef" * 4,
            trial="fedcba9876543210" * 4,
            session="alice's",
            tenant="acme",
            took_ms=4.2,
        )
        (record,) = written(log, directory)
        digests = open_digests(directory)
        assert before <= record.time <= datetime.now(timezone.utc)
        assert record == SearchRecord(
            time=record.time,
            search_id="s-1",
            kind="select",
            mode="lexical",
            request=digests.of("request", "create an issue"),
            retrieved=tuple(Retrieved(*hit) for hit in HITS),
            bound=("jira/create",),
            confidence=0.25,
            options={"k": 2},
            index="7",
            heads="0123456789abcdef",
            trial="fedcba9876543210",
            session=digests.of("session", "alice's"),
            tenant=digests.of("tenant", "acme"),
            took_ms=4.2,
        )

    def test_its_digests_are_those_that_the_log_gives(self, log, directory):
        search(log, tenant="acme")
        (record,) = written(log, directory)
        assert log.digest("tenant", "acme") == record.tenant != log.digest("session", "acme")
        assert log.digest("tenant", "") == ""

    def test_a_call_is_a_line(self, log, directory):
        call(log, search_id="s-1", arguments={"title": "x"}, latency_ms=31.25, tenant="acme")
        (record,) = written(log, directory)
        digests = open_digests(directory)
        assert record == CallRecord(
            time=record.time,
            call_id="c-1",
            tool="jira/create",
            outcome="ok",
            search_id="s-1",
            latency_ms=31.25,
            arguments=digests.of("arguments", '{"title":"x"}'),
            tenant=digests.of("tenant", "acme"),
        )

    def test_no_text_is_stored_unless_it_is_asked_for(self, log, directory):
        search(log, query="a secret wish", session="secret session", tenant="secret tenant")
        call(log, arguments={"password": "secret"}, tenant="secret tenant")
        assert len(written(log, directory)) == 2
        assert b"secret" not in everything(directory)

    def test_text_is_stored_where_it_is_asked_for(self, directory):
        with UsageLog(directory, log_text=True) as log:
            search(log, query="水泵 \ud83d\n\x00")
            call(log, arguments={"b": 1, "a": "é"})
            found = [record.text for record in written(log, directory)]
        assert found == ["水泵 \ud83d\n\x00", '{"a":"é","b":1}']

    def test_of_a_long_text_the_beginning_is_stored(self, directory):
        with UsageLog(directory, log_text=True) as log:
            search(log, query="x" * 100_000)
            (record,) = written(log, directory)
        assert record.text == "x" * 10_000

    def test_the_order_of_arguments_makes_no_difference(self, log, directory):
        call(log, arguments={"a": 1, "b": [2, {"c": 3, "d": None}]})
        call(log, arguments={"b": [2, {"d": None, "c": 3}], "a": 1})
        call(log, arguments={"b": [2], "a": 1})
        one, two, other = written(log, directory)
        assert one.arguments == two.arguments != other.arguments

    def test_a_call_without_arguments_is_not_one_whose_arguments_are_unknown(self, log, directory):
        call(log, arguments={})
        call(log)
        none_given, unknown = written(log, directory)
        assert none_given.arguments != unknown.arguments == ""

    def test_what_may_be_a_clients_text_is_no_id(self, log, directory):
        search(log, search_id="s-1.a_b:C")
        search(log, search_id="my password is hunter2")
        call(log, call_id="x" * 65, search_id="s-1\n")
        one, two, called = written(log, directory)
        assert (one.search_id, two.search_id) == ("s-1.a_b:C", "")
        assert (called.call_id, called.search_id) == ("", "")

    def test_scores_may_be_numpys_and_need_not_be_there(self, log, directory):
        scores = (np.float32(0.25), math.nan, None, math.inf, 1 / 3)
        search(log, retrieved=[("t", np.int64(n), score) for n, score in enumerate(scores, 1)])
        (record,) = written(log, directory)
        assert [hit.score for hit in record.retrieved] == [0.25, None, None, None, 0.333333]

    def test_arguments_that_are_no_json_are_digested_by_their_text(self, log, directory):
        call(log, arguments={"day": date(2026, 11, 3), "path": Path("a")})
        (record,) = written(log, directory)
        assert len(record.arguments) == 64

    def test_the_caller_may_change_what_it_gave(self, log, directory):
        options, hits = {"k": 1}, [*HITS]
        search(log, options=options, retrieved=hits)
        options["k"] = 2
        hits.clear()
        (record,) = written(log, directory)
        assert record.options == {"k": 1}
        assert len(record.retrieved) == 2


class TestWhenItIsWritten:
    def test_a_line_is_in_its_file_soon_without_being_asked_for(self, log, directory):
        search(log)
        deadline = time.monotonic() + 20
        while not list(read_usage(directory)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(list(read_usage(directory))) == 1

    def test_closing_writes_what_waits(self, directory):
        with UsageLog(directory) as log:
            search(log)
        assert len(list(read_usage(directory))) == 1

    def test_what_comes_after_closing_is_dropped(self, directory):
        log = UsageLog(directory)
        log.close()
        log.close()
        search(log)
        assert log.flush(timeout=5)
        assert log.dropped == 1
        assert list(read_usage(directory)) == []

    def test_a_log_that_is_not_used_starts_no_thread(self, directory):
        with UsageLog(directory) as log:
            assert log.flush()
            assert log._writer._thread is None

    def test_a_second_log_of_the_directory_goes_on(self, directory):
        for n in range(3):
            with UsageLog(directory) as log:
                search(log, search_id=f"s{n}")
        assert [record.search_id for record in read_usage(directory)] == ["s0", "s1", "s2"]

    def test_each_line_is_in_the_file_of_its_day(self, directory):
        directory.mkdir()
        days = [date(2026, 11, 3), date(2026, 11, 3), date(2026, 11, 4)]
        lines = LogWriter(directory, prepare=lambda: None)
        for n, day in enumerate(days):
            lines.put(DatedLine(day, b"%d\n" % n))
        lines.close()
        assert day_file(directory, days[0]).read_bytes() == b"0\n1\n"
        assert day_file(directory, days[2]).read_bytes() == b"2\n"

    def test_the_day_is_that_of_utc(self, log, directory, monkeypatch):
        late = datetime.fromisoformat("2026-11-03T23:59:59.999999+00:00")

        class Clock:
            @staticmethod
            def now(zone):
                return late.astimezone(zone)

        monkeypatch.setattr(log_module, "datetime", Clock)
        search(log)
        assert written(log, directory)[0].time == late
        assert day_file(directory, date(2026, 11, 3)).exists()


class TestTrouble:
    def test_a_record_that_cannot_be_made_is_counted_and_warned_of_once(
        self, log, directory, caplog
    ):
        for _ in range(3):
            search(log, query=None)
            search(log, retrieved=[("only an id",)])
            search(log, options={"weird": object()})
            call(log, search_id=7)
        cycle = {}
        cycle["itself"] = cycle
        call(log, arguments=cycle)
        assert written(log, directory) == []
        assert log.dropped == 13
        kinds = [message.split(": ")[1] for message in warnings(caplog)]
        assert len(kinds) == len(set(kinds)) == 2

    def test_a_full_queue_drops_without_waiting(self, log, directory, stuck, monkeypatch):
        monkeypatch.setattr(writer, "_MOST_WAITING", 10)
        for n in range(25):
            search(log, search_id=f"s{n}")
        assert log.dropped == 15
        stuck.set()
        assert [record.search_id for record in written(log, directory)] == [
            f"s{n}" for n in range(10)
        ]

    def test_lines_wait_for_a_full_disk_and_there_is_one_warning(
        self, log, directory, full, caplog
    ):
        search(log, search_id="while_it_is_full")
        assert not log.flush(timeout=0.1)
        search(log, search_id="still")
        full.clear()
        ids = [record.search_id for record in written(log, directory)]
        assert ids == ["while_it_is_full", "still"]
        assert log.dropped == 0
        (warning,) = warnings(caplog)
        assert warning.startswith(f"usage log {directory} cannot record everything: OSError: ")
        assert "No space left on device" in warning

    def test_what_a_full_disk_never_took_is_counted(self, directory, full, caplog):
        with UsageLog(directory) as log:
            search(log)
            search(log)
        assert log.dropped == 2
        assert len(warnings(caplog)) == 1

    def test_a_directory_that_cannot_be_made_is_one_warning_and_is_tried_again(
        self, directory, monkeypatch, caplog
    ):
        monkeypatch.setattr(writer, "_REST_SECONDS", 0.01)
        tried_again = threading.Event()
        tries = []

        def refuse(path, **others):
            tries.append(path)
            if len(tries) > 2:
                tried_again.set()
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

        with monkeypatch.context() as refused:
            refused.setattr(Path, "mkdir", refuse)
            log = UsageLog(directory)
            search(log)
            assert tried_again.wait(20)
        deadline = time.monotonic() + 20
        while log._digests is None and time.monotonic() < deadline:
            time.sleep(0.01)
        search(log, search_id="later")
        assert [record.search_id for record in written(log, directory)] == ["later"]
        log.close()
        assert log.dropped == 1
        assert len(warnings(caplog)) == 1

    def test_a_missing_key_is_an_error_at_once(self, directory, write, call):
        write(call("a"))
        with pytest.raises(SourceError, match=r"\.key: .* missing"):
            UsageLog(directory)

    def test_a_log_of_this_directory_in_another_thread_is_no_trouble(self, directory):
        def work(thread):
            with UsageLog(directory) as log:
                for n in range(50):
                    search(log, search_id=f"{thread}-{n}")

        threads = [threading.Thread(target=work, args=[n]) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({record.search_id for record in read_usage(directory)}) == 200


def test_every_line_is_plain_ascii(directory):
    with UsageLog(directory, log_text=True) as log:
        search(log, query="naïve 水泵\u2028", retrieved=[("wörk/tool", 1, 0.5)])
    (path,) = directory.glob("*.jsonl")
    assert path.read_bytes().isascii()
    assert json.loads(path.read_text())["retrieved"] == [["wörk/tool", 1, 0.5]]
