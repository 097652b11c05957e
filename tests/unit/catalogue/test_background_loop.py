"""The thread that sessions live on: what is given to it ends, whoever closes it meanwhile."""

import asyncio
import threading
from concurrent.futures import CancelledError

import pytest

from langchain_toolrag.catalogue.sources.background_loop import BackgroundLoop

LIMIT_SECONDS = 20


@pytest.fixture
def loop():
    made = BackgroundLoop("test-loop")
    yield made
    made.close()


async def number():
    return 7


def test_a_coroutine_runs_on_a_thread_of_its_own(loop):
    async def thread():
        return threading.current_thread().name

    assert loop.wait(thread()) == "test-loop"


async def test_it_does_so_without_blocking_the_callers_loop(loop):
    assert await loop.run(number()) == 7


def test_after_close_another_thread_is_started(loop):
    loop.wait(number())
    loop.close()
    loop.close()
    assert loop.wait(number()) == 7


def test_no_thread_is_left_after_close(loop):
    loop.wait(number())
    loop.close()
    assert "test-loop" not in {thread.name for thread in threading.enumerate()}


def test_what_runs_when_it_is_closed_is_cancelled_and_cleans_up(loop):
    ended = []

    async def wait():
        try:
            await asyncio.sleep(LIMIT_SECONDS)
        finally:
            ended.append(True)

    waiting = loop.submit(wait())
    loop.wait(number())
    loop.close()
    with pytest.raises(CancelledError):
        waiting.result(LIMIT_SECONDS)
    assert ended == [True]


def test_what_is_given_to_it_while_it_is_closed_runs_or_is_cancelled_and_never_hangs(loop):
    for _ in range(200):
        loop.wait(number())
        given = []
        giving = threading.Thread(
            target=lambda: given.extend(loop.submit(number()) for _ in range(5))  # noqa: B023
        )
        giving.start()
        loop.close()
        giving.join()
        for each in given:
            each.cancelled() or each.exception(LIMIT_SECONDS)
