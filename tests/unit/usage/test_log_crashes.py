"""Processes that die, write at once, fork or run out of disk.

Each test is one script, which forks its processes itself: importing once is what takes long.
"""

import functools
import os

import pytest
from forking_scripts import run_script

from langchain_toolrag.usage.reading import read_usage
from langchain_toolrag.usage.request_vectors import RequestVectors

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

BEGIN = """
import logging, os, random, signal, sys, threading, time
from pathlib import Path
from langchain_toolrag.usage import writer
from langchain_toolrag.usage.log import UsageLog
from langchain_toolrag.usage.reading import Skipped, read_usage
from langchain_toolrag.usage.request_vectors import RequestVector, RequestVectors
import numpy as np

logging.basicConfig(format="warned: %(message)s", stream=sys.stdout)
directory = Path(sys.argv[1])
CHILD_SECONDS = 60

def search(log, name):
    log.search(search_id=name, kind="search", mode="semantic", query=f"request {name}",
               retrieved=[(f"server/tool_{n}", n, 1 / n) for n in range(1, 9)])

def vector(name):
    return np.random.default_rng(sum(name.encode())).normal(size=384).astype(np.float32)

def search_with_vector(log, name):
    log.search(search_id=name, kind="search", mode="semantic", query=f"request {name}",
               retrieved=(), vector=RequestVector("model", vector(name)))

def vectors():
    # By the name of the search; complains of those that are not what they were.
    records = list(read_usage(directory))
    found = RequestVectors(directory).get("model", [record.request for record in records])
    known = {r.search_id: found[r.request] for r in records if r.request in found}
    for name, row in known.items():
        if not np.array_equal(row, vector(name)):
            print("another vector:", name)
    return known

def names(skipped=None):
    return [record.search_id for record in read_usage(directory, skipped=skipped)]
"""

run = functools.partial(run_script, BEGIN, seconds=100)


def test_a_writer_that_is_killed_at_any_moment_loses_nothing_that_was_flushed(directory):
    lines = run(
        """
        writer._GATHER_SECONDS = 0.001

        def write(report, round):
            with UsageLog(directory) as log:
                for n in range(1_000_000):
                    search(log, f"{round}-{n}")
                    if n % 20 == 19:
                        log.flush()
                        os.write(report, b"%d " % n)

        flushed, torn = set(), 0
        for round in range(15):
            for last in killed(lambda report: write(report, round)):
                flushed |= {f"{round}-{n}" for n in range(last - 19, last + 1)}
            skipped = Skipped()
            found = names(skipped)
            if flushed - set(found):
                print("round", round, "lost", len(flushed - set(found)))
            if len(found) != len(set(found)) or skipped.foreign or skipped.torn > torn + 1:
                print("round", round, len(found) - len(set(found)), skipped)
            torn = skipped.torn
        print("flushed some:", len(flushed) > 200)
        """,
        directory,
    )
    assert lines == ["flushed some: True"]


def test_of_a_killed_writer_every_vector_is_there_or_missing_and_those_flushed_are_there(
    directory,
):
    lines = run(
        """
        writer._GATHER_SECONDS = 0.001

        def write(report, round):
            with UsageLog(directory) as log:
                for n in range(1_000_000):
                    search_with_vector(log, f"{round}-{n}")
                    if n % 10 == 9:
                        log.flush()
                        os.write(report, b"%d " % n)

        flushed, missing = set(), 0
        for round in range(12):
            for last in killed(lambda report: write(report, round)):
                flushed |= {f"{round}-{n}" for n in range(last - 9, last + 1)}
            known = vectors()
            if flushed - set(known):
                print("round", round, "lost", len(flushed - set(known)))
        print("flushed some:", len(flushed) > 100)
        print("set aside:", [path.name for path in directory.rglob("*.corrupt-*")])
        """,
        directory,
    )
    assert lines == ["flushed some: True", "set aside: []"]


def test_many_processes_lose_no_vector_and_keep_each_once(directory):
    lines = run(
        """
        def write(process):
            with UsageLog(directory) as log:
                for n in range(150):
                    search_with_vector(log, f"all-{n}")
                    search_with_vector(log, f"{process}-{n}")
                    if n % 50 == 0:
                        log.flush()

        for child in [in_child(lambda: write(process)) for process in range(4)]:
            print("status", os.waitpid(child, 0)[1])
        known = vectors()
        (path,) = directory.glob("vectors/*.journal")
        print(len(known), path.stat().st_size < 1.3 * len(known) * 384 * 4)
        """,
        directory,
    )
    assert lines == [*["status 0"] * 4, "750 True"]


def test_a_child_keeps_its_own_vectors_and_the_parent_what_waited_there(directory):
    lines = run(
        """
        def use():
            search_with_vector(log, "child")
            print("child flushed:", log.flush())
            log.close()

        log = UsageLog(directory)
        search_with_vector(log, "first")
        log.flush()
        writer._GATHER_SECONDS = 60
        search_with_vector(log, "parent")
        with log._writer._lock:
            child = in_child(use)
        print("status", os.waitpid(child, 0)[1])
        print(sorted(vectors()))
        log.close()
        print(sorted(vectors()))
        """,
        directory,
    )
    assert lines == [
        "child flushed: True",
        "status 0",
        "['child', 'first']",
        "['child', 'first', 'parent']",
    ]


def test_many_threads_of_many_processes_lose_nothing_and_tear_nothing(directory):
    lines = run(
        """
        def work(log, process, thread):
            for n in range(500):
                search(log, f"{process}-{thread}-{n}")

        def write(process):
            with UsageLog(directory) as log:
                threads = [
                    threading.Thread(target=work, args=[log, process, thread])
                    for thread in range(4)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            # One write each: four processes write to one pipe.
            os.write(1, f"dropped {log.dropped}\\n".encode())

        for child in [in_child(lambda: write(process)) for process in range(4)]:
            print("status", os.waitpid(child, 0)[1])
        skipped = Skipped()
        found = names(skipped)
        print(len(found), len(set(found)), skipped == Skipped())
        """,
        directory,
    )
    assert sorted(lines[:-1]) == [*["dropped 0"] * 4, *["status 0"] * 4]
    assert lines[-1] == "8000 8000 True"


def test_a_full_disk_ends_no_search_and_leaves_whole_lines(directory):
    lines = run(
        """
        import resource
        writer._REST_SECONDS = 0.01
        log = UsageLog(directory)
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limit[1]))
        for n in range(30):
            search(log, f"s{n}")
            if n < 5:
                log.flush(0.1)
        print("flushed:", log.flush(0.3))
        skipped = Skipped()
        print("some:", 0 < len(names(skipped)) < 30, skipped == Skipped())
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        log.close()
        print("afterwards:", names(skipped) == [f"s{n}" for n in range(30)], log.dropped)
        print(skipped == Skipped())
        """,
        directory,
    )
    assert len(lines) == 5
    assert lines[0].startswith("warned: usage log")
    assert "File too large" in lines[0]
    assert lines[1:] == ["flushed: False", "some: True True", "afterwards: True 0", "True"]


def test_a_child_logs_although_the_parents_threads_hold_locks_and_lines(directory):
    lines = run(
        """
        entered, go_on = threading.Event(), threading.Event()
        append = writer.append

        def slow_append(path, lines):
            entered.set()
            go_on.wait()
            append(path, lines)

        def use():
            writer.append = append
            search(log, "child")
            log.flush()
            print(names())
            log.close()

        log = UsageLog(directory)
        writer.append = slow_append
        search(log, "parent")
        entered.wait()
        with log._writer._lock:
            child = in_child(use)
        print("status", os.waitpid(child, 0)[1])
        go_on.set()
        log.close()
        print(names())
        """,
        directory,
    )
    assert lines == ["['child']", "status 0", "['parent', 'child']"]


@pytest.mark.parametrize(
    "ending", ["", "sys.exit(3)", "raise RuntimeError", "del log"], ids=lambda code: code or "end"
)
def test_a_process_that_ends_without_closing_has_written_everything(directory, ending):
    run(
        f"""
        writer._GATHER_SECONDS = 60
        log = UsageLog(directory)
        for n in range(100):
            search_with_vector(log, f"s{{n}}")
        {ending}
        """,
        directory,
    )
    requests = [record.request for record in read_usage(directory)]
    assert len(requests) == 100
    assert len(RequestVectors(directory).get("model", requests)) == 100


def test_what_is_logged_while_a_process_ends_is_written(directory):
    lines = run(
        """
        import atexit
        log = UsageLog(directory)
        atexit.register(lambda: search(log, "last_words"))
        """,
        directory,
    )
    assert lines == []
    assert [record.search_id for record in read_usage(directory)] == ["last_words"]


def test_a_child_waits_for_a_parent_that_is_writing(directory):
    lines = run(
        """
        from langchain_toolrag.usage import files
        entered, go_on = threading.Event(), threading.Event()
        write = files.write_or_undo

        def slow_write(*arguments):
            entered.set()
            go_on.wait()
            write(*arguments)

        def use():
            files.write_or_undo = write
            search(log, "child")
            os.write(report, b"!")
            log.flush(20)
            log.close()

        read, report = os.pipe()
        log = UsageLog(directory)
        files.write_or_undo = slow_write
        search(log, "parent")
        entered.wait()  # The parent holds the lock, and the child is born with it open.
        child = in_child(use)
        os.read(read, 1)
        go_on.set()
        print("status", os.waitpid(child, 0)[1])
        log.close()
        print(names())
        """,
        directory,
    )
    assert lines == ["status 0", "['parent', 'child']"]
