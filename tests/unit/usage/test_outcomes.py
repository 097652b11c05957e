"""How a call went is told to whoever opened it, from wherever it runs."""

import asyncio
import contextvars
import threading

import pytest

from langchain_toolrag.usage.outcomes import ToldOutcome, tell_outcome


@pytest.fixture
def told():
    outcome = ToldOutcome("tide")
    outcome.open()
    yield outcome
    outcome.close()


@pytest.mark.parametrize("failure", ["timeout", "refused", "tool_error"])
def test_a_failure_is_told_by_its_kind(told, failure):
    tell_outcome("tide", failure)
    assert told.failure == failure


def test_the_last_of_several_calls_counts(told):
    tell_outcome("tide", "timeout")
    tell_outcome("tide", "ok")
    assert told.failure is None


def test_what_another_tool_tells_is_no_matter(told):
    tell_outcome("wind", "timeout")
    assert told.failure is None


def test_where_nobody_listens_nothing_happens():
    tell_outcome("tide", "timeout")


def test_whoever_is_inside_listens_and_afterwards_whoever_is_outside_again(told):
    inner = ToldOutcome("tide")
    inner.open()
    tell_outcome("tide", "refused")
    inner.close()
    assert (inner.failure, told.failure) == ("refused", None)
    tell_outcome("tide", "timeout")
    assert (inner.failure, told.failure) == ("refused", "timeout")


def test_nothing_is_taken_once_it_is_closed():
    told = ToldOutcome("tide")
    told.open()
    told.close()
    told.close()
    tell_outcome("tide", "timeout")
    assert told.failure is None


def test_it_is_heard_from_a_thread_with_a_copy_of_the_context(told):
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=[tell_outcome, "tide", "timeout"])
    thread.start()
    thread.join()
    assert told.failure == "timeout"


async def test_tasks_at_once_are_not_mixed_up():
    async def call(kind):
        told = ToldOutcome("tide")
        told.open()
        await asyncio.sleep(0)
        await asyncio.create_task(asyncio.to_thread(tell_outcome, "tide", kind))
        told.close()
        return told.failure

    kinds = ["timeout", "refused", "tool_error"] * 5
    assert await asyncio.gather(*map(call, kinds)) == kinds


def test_it_can_be_closed_from_another_context():
    outcome = ToldOutcome("tide")
    contextvars.copy_context().run(outcome.open)
    outcome.close()
    tell_outcome("tide", "timeout")
    assert outcome.failure is None
