import contextlib
import logging
import os
import threading
import time

import numpy as np
import pytest
from forking_scripts import run_script
from postgres_server import make_user
from psycopg.conninfo import make_conninfo

from langchain_toolrag.postgres import known_vectors
from langchain_toolrag.postgres.connection import Database
from langchain_toolrag.postgres.known_vectors import PostgresVectors
from langchain_toolrag.postgres.upgrade import upgrade
from langchain_toolrag.vectors.cache import text_key

KEYS = [text_key(text) for text in ("one", "two", "three", "four")]
VECTORS = {key: np.array([n, 1 / 3, -1e-9], np.float32) for n, key in enumerate(KEYS, 1)}


@pytest.fixture
def opened(shared_dsn, tenant):
    """Makes what keeps vectors, as in several processes of one tenant."""
    made = []

    def make(space="model 1", dsn=shared_dsn, tenant=tenant):
        made.append(Database(dsn, tenant, timeout=1.0))
        return PostgresVectors(made[-1], space)

    yield make
    for database in made:
        database.close()


def some(*numbers):
    return {KEYS[n]: VECTORS[KEYS[n]] for n in numbers}


def same(found, expected):
    assert list(found) == list(expected)
    for key, vector in expected.items():
        assert found[key].dtype == np.float32
        assert np.array_equal(found[key], vector)


def test_vectors_come_back_exactly_in_another_process(opened):
    opened().put(some(2, 0))
    same(opened().get(KEYS), some(0, 2))
    same(opened().get([KEYS[2], KEYS[2], KEYS[1]]), some(2))


def test_nothing_asked_is_nothing_found(opened):
    vectors = opened()
    vectors.put({})
    assert vectors.get([]) == {}


def test_the_first_vector_of_a_text_stays(opened):
    first, second = opened(), opened()
    first.put(some(0))
    second.put({KEYS[0]: VECTORS[KEYS[1]], **some(3)})
    same(first.get(KEYS), some(0, 3))


def test_spaces_and_tenants_are_apart(opened, tenant):
    opened().put(some(0))
    assert opened("model 2").get(KEYS) == {}
    assert opened(tenant=f"{tenant} other").get(KEYS) == {}
    longer = opened("model 2")
    longer.put({KEYS[0]: np.ones(1024, np.float32)})
    assert len(opened("model 2").get(KEYS)[KEYS[0]]) == 1024


def test_processes_that_put_the_same_at_once_do_not_wait_for_each_other(opened):
    both, barrier, errors = [opened(), opened()], threading.Barrier(2), []
    many = {text_key(str(n)): np.ones(8, np.float32) for n in range(500)}

    def put(vectors, batch):
        barrier.wait()
        try:
            vectors.put(batch)
        except Exception as error:
            errors.append(error)

    batches = [many, dict(reversed(many.items()))]
    threads = [threading.Thread(target=put, args=each) for each in zip(both, batches, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(opened().get(list(many))) == 500


class TestClaims:
    def test_who_finds_all_claims_nothing(self, opened):
        first, second = opened(), opened()
        first.put(some(0, 1))
        with first.claim(), second.claim():
            same(first.get(KEYS[:2]), some(0, 1))
            same(second.get(KEYS[:2]), some(0, 1))

    def test_of_two_the_second_waits_and_reads_what_the_first_makes(self, opened):
        first, second, found = opened(), opened(), []

        def wait():
            with second.claim():
                found.append(second.get(KEYS))

        with first.claim():
            same(first.get(KEYS), {})
            waiting = threading.Thread(target=wait)
            waiting.start()
            first.put(some(0, 1))
            time.sleep(0.3)
            assert found == []
            first.put(some(2, 3))
            waiting.join(5)
        same(found[0], VECTORS)

    def test_what_a_holder_leaves_undone_the_next_one_does(self, opened):
        first, second, found = opened(), opened(), []

        def wait():
            with second.claim():
                found.append(second.get(KEYS))

        with pytest.raises(LookupError), first.claim():  # noqa: PT012
            first.get(KEYS)
            first.put(some(1))
            waiting = threading.Thread(target=wait)
            waiting.start()
            raise LookupError
        waiting.join(5)
        same(found[0], some(1))

    def test_within_one_claim_it_is_asked_for_once(self, opened):
        first = opened()
        with first.claim():
            assert first.get(KEYS[:1]) == {}
            assert first.get(KEYS) == {}

    def test_whoever_makes_nothing_for_long_is_not_waited_for(self, opened, monkeypatch):
        monkeypatch.setattr(known_vectors, "_PATIENCE_SECONDS", 0.3)
        first, second = opened(), opened()
        with first.claim(), second.claim():
            first.get(KEYS)
            assert second.get(KEYS) == {}

    def test_closing_ends_the_wait(self, opened):
        first, second, found = opened(), opened(), []

        def wait():
            with second.claim():
                found.append(second.get(KEYS))

        with first.claim():
            first.get(KEYS)
            waiting = threading.Thread(target=wait)
            waiting.start()
            second.close()
            waiting.join(5)
        assert found == [{}]

    def test_without_a_claim_nobody_waits(self, opened):
        first, second = opened(), opened()
        with first.claim():
            first.get(KEYS)
            assert second.get(KEYS) == {}

    def test_other_spaces_and_tenants_do_not_wait(self, opened, tenant):
        others = [opened("model 2"), opened(tenant=f"{tenant} other")]
        with contextlib.ExitStack() as claims:
            for vectors in (opened(), *others):
                claims.enter_context(vectors.claim())
                assert vectors.get(KEYS) == {}

    def test_who_may_only_read_waits_for_nobody_and_holds_nobody_up(self, dsn, opened, caplog):
        upgrade(dsn, roles=True)
        reader, writer = (
            opened(dsn=make_user(dsn, "reading_only", "toolrag_reader")),
            opened(dsn=dsn),
        )
        with reader.claim(), writer.claim():
            assert reader.get(KEYS) == writer.get(KEYS) == {}
            reader.put(some(0))
            assert "vectors cannot be written" in caplog.text
            writer.put(some(1))
            same(reader.get(KEYS), some(0, 1))

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
    def test_a_holder_that_is_killed_is_followed_at_once(self, shared_dsn):
        lines = run_script(
            """
import os, signal, sys, time
import numpy as np
from langchain_toolrag.postgres.connection import Database
from langchain_toolrag.postgres.known_vectors import PostgresVectors
CHILD_SECONDS = 20
vectors = PostgresVectors(Database(sys.argv[1], "killed"), "model 1")
keys = [b"one", b"two"]
""",
            """
            def hold():
                with vectors.claim():
                    vectors.get(keys)
                    vectors.put({keys[0]: np.ones(3, np.float32)})
                    print("holding", flush=True)
                    os.kill(os.getpid(), signal.SIGKILL)

            child = in_child(hold)
            os.waitpid(child, 0)
            started = time.monotonic()
            with vectors.claim():
                print(list(vectors.get(keys)), time.monotonic() - started < 5)
            """,
            shared_dsn,
            seconds=60,
        )
        assert lines == ["holding", "[b'one'] True"]


class TestWithoutADatabase:
    @pytest.fixture
    def nowhere(self, tmp_path):
        return make_conninfo(host=str(tmp_path), dbname="tools")

    def test_no_call_fails_and_vectors_stay_in_memory(self, opened, nowhere, caplog):
        vectors = opened(dsn=nowhere)
        with vectors.claim():
            assert vectors.get(KEYS) == {}
            vectors.put(some(0))
            same(vectors.get(KEYS), some(0))
        warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
        told = [each.message for each in warnings if each.name.startswith("langchain_toolrag")]
        assert len(told) == 2  # Of reading, and of writing; not of every call.

    def test_what_could_not_be_written_is_written_later(self, opened, monkeypatch):
        monkeypatch.setattr(known_vectors, "_REST_SECONDS", 0.0)
        vectors = opened()
        with monkeypatch.context() as down:
            down.setitem(vectors._database._parameters, "host", "/nowhere")
            vectors._database.close()
            vectors._database._is_doubtful = True
            vectors.put(some(0, 1))
            assert opened().get(KEYS) == {}
        vectors.put(some(2))
        same(opened().get(KEYS), some(0, 1, 2))
