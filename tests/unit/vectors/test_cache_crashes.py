"""Processes that die, share a cache or run out of disk.

Each test is one script, which forks its processes itself: importing once is what takes long.
"""

import functools
import os

import pytest
from forking_scripts import run_script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

BEGIN = """
import logging, os, random, signal, sys, threading, time
from pathlib import Path
import numpy as np
from langchain_toolrag.vectors import cache as cache_module
from langchain_toolrag.vectors.cache import VectorCache
from langchain_toolrag.vectors.journal import JournalFile

logging.basicConfig(format="warned: %(message)s", stream=sys.stdout)
cache_module._FEWEST_TO_FOLD = 40
directory = Path(sys.argv[1])
CHILD_SECONDS = 30

def vectors(numbers):
    return {b"key %d" % n: np.arange(n, n + 384, dtype=np.float32) for n in numbers}

def missing(cache, numbers):
    "Count what is not there; what is wrong ends the script."
    wanted = vectors(numbers)
    found = cache.get([*wanted])
    if not all(np.array_equal(found[key], wanted[key]) for key in found):
        sys.exit("a vector is wrong")
    return len(wanted) - len(found)
"""

run = functools.partial(run_script, BEGIN, seconds=60)


def test_a_writer_that_is_killed_at_any_moment_loses_nothing_that_was_put(tmp_path):
    lines = run(
        """
        def write(report, first):
            cache = VectorCache(directory, "model")
            for start in range(first, first + 100_000, 7):
                cache.put(vectors(range(start, start + 7)))
                os.write(report, b"%d " % start)

        put, folded, torn = [], set(), 0
        for round in range(20):
            for start in killed(lambda report: write(report, round * 1_000_000)):
                put += range(start, start + 7)
            lost = missing(VectorCache(directory, "model"), put)
            if lost:
                print("round", round, "lost", lost, "of", len(put))
            folded |= {path.stat().st_ino for path in directory.glob("*.safetensors")}
        print("put some:", len(put) > 140, "folded:", len(folded) > 0)
        """,
        tmp_path,
    )
    assert lines == ["put some: True folded: True"]


def test_processes_that_write_and_fold_at_once_lose_nothing(tmp_path):
    lines = run(
        """
        def write(process):
            cache = VectorCache(directory, "model")
            for n in range(80):
                numbers = [process * 1000 + n, 5000 + n]  # Its own, and one all of them put.
                cache.put(vectors(numbers))
                if missing(cache, numbers):
                    print("process", process, "misses", numbers)

        for child in [in_child(lambda: write(process)) for process in range(3)]:
            print("status", os.waitpid(child, 0)[1])
        everything = [start + n for start in (0, 1000, 2000, 5000) for n in range(80)]
        cache = VectorCache(directory, "model")
        print("lost", missing(cache, everything), "of", len(cache))
        print(sorted({path.suffix for path in directory.iterdir()} - {".journal"}))
        """,
        tmp_path,
    )
    assert lines == [*["status 0"] * 3, "lost 0 of 320", "['.lock', '.safetensors']"]


def test_a_reader_beside_a_writer_that_folds_never_sees_less_than_before(tmp_path):
    lines = run(
        """
        def write():
            cache = VectorCache(directory, "model")
            for n in range(300):
                cache.put(vectors([n]))

        child = in_child(write)
        cache, known = VectorCache(directory, "model"), 0
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            fresh = VectorCache(directory, "model")
            before = len(cache)
            if missing(fresh, range(before)):
                print("a new reader knows less than", before)
        print("lost", missing(cache, range(300)), missing(fresh, range(before)))
        """,
        tmp_path,
    )
    assert lines == ["lost 0 0"]


def test_a_full_disk_ends_no_put_and_leaves_a_readable_cache(tmp_path):
    lines = run(
        """
        import resource
        cache_module._REST_SECONDS = 0.0
        cache = VectorCache(directory, "model")
        cache.put(vectors(range(10)))
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limit[1]))
        for n in range(10, 30):
            cache.put(vectors([n]))
        cache.compact()
        print("in memory:", len(cache), "on disk:", len(VectorCache(directory, "model")))
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        cache.put(vectors([30]))
        print("afterwards lost", missing(VectorCache(directory, "model"), range(31)))
        print(sorted(path.suffix for path in directory.iterdir()))
        """,
        tmp_path,
    )
    assert len(lines) == 4
    assert lines[0].startswith("warned: embedding cache")
    assert "File too large" in lines[0]
    assert lines[1:3] == ["in memory: 30 on disk: 12", "afterwards lost 0"]
    assert lines[3] == "['.journal', '.lock']"


def test_a_child_uses_the_cache_while_a_thread_of_the_parent_writes(tmp_path):
    lines = run(
        """
        entered, go_on = threading.Event(), threading.Event()
        append = JournalFile.append

        def slow_append(journal, table):
            entered.set()
            go_on.wait()
            return append(journal, table)

        cache = VectorCache(directory, "model")
        cache.put(vectors([1]))
        JournalFile.append = slow_append
        thread = threading.Thread(target=cache.put, args=[vectors([2])])
        thread.start()
        entered.wait()

        def use():
            JournalFile.append = append
            cache_module._LOCK_SECONDS = 0.05
            print("known", len(cache))
            cache.put(vectors([3]))  # The parent has the lock: it stays in memory.
            print("lost", missing(cache, [1, 2, 3]))

        os.waitpid(in_child(use), 0)
        JournalFile.append = append
        go_on.set()
        thread.join()
        cache_module._REST_SECONDS = 0.0
        os.waitpid(in_child(lambda: cache.put(vectors([4]))), 0)
        print("parent lost", missing(cache, [1, 2, 4]), "of", len(cache))
        """,
        tmp_path,
    )
    assert lines[0] == "known 2"
    assert lines[1].startswith("warned: ")
    assert "could not be acquired" in lines[1]
    assert lines[2:] == ["lost 0", "parent lost 0 of 3"]


def test_a_child_uses_the_cache_while_a_thread_of_the_parent_reads(tmp_path):
    lines = run(
        """
        entered = threading.Event()
        read = JournalFile.read

        def endless_read(journal, dim):
            entered.set()
            threading.Event().wait()

        VectorCache(directory, "model").put(vectors([1]))
        cache = VectorCache(directory, "model")
        JournalFile.read = endless_read
        threading.Thread(target=len, args=[cache], daemon=True).start()
        entered.wait()

        def use():
            JournalFile.read = read
            cache.put(vectors([2]))
            print("lost", missing(cache, [1, 2]))

        print("status", os.waitpid(in_child(use), 0)[1])
        """,
        tmp_path,
    )
    assert lines == ["lost 0", "status 0"]
