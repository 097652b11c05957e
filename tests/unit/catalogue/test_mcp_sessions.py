"""A session that is kept: how it is opened, shared and ended, over connections made up here."""

import asyncio
import time
from contextlib import asynccontextmanager

import httpx
import pytest

from langchain_toolrag.catalogue.sources.mcp.listing import listed_tools
from langchain_toolrag.catalogue.sources.mcp.sessions import KeptSession, Opened
from langchain_toolrag.errors import SourceError


class Session:
    """A session that answers at once, or never introduces itself."""

    def __init__(self, answers):
        self.answers = answers

    async def initialize(self):
        await asyncio.sleep(0 if self.answers else 60)


@pytest.fixture
def kept():
    """A session whose connections are counted as they open and close."""

    def make(*answers, closing_seconds=0.0):
        events, left = [], list(answers)

        @asynccontextmanager
        async def connect():
            events.append("open")
            try:
                yield Opened(Session(left.pop(0)))
            finally:
                await asyncio.sleep(closing_seconds)
                events.append("closed")

        return KeptSession("shop", connect, open_seconds=0.3), events

    return make


async def ask(session):
    async def request(_):
        return "answer"

    return await session.ask(request, 5)


async def test_one_connection_serves_many_requests(kept):
    session, events = kept(True)
    assert await asyncio.gather(ask(session), ask(session)) == ["answer"] * 2
    await session.close()
    assert events == ["open", "closed"]


async def test_requests_that_wait_for_an_opening_that_fails_fail_with_it(kept):
    session, events = kept(False, False)
    start = time.monotonic()
    answers = await asyncio.gather(*(ask(session) for _ in range(5)), return_exceptions=True)

    assert [type(answer) for answer in answers] == [SourceError] * 5
    assert events.count("open") == 1
    assert time.monotonic() - start < 5 * 0.3


async def test_a_later_request_tries_again(kept):
    session, events = kept(False, True)
    with pytest.raises(SourceError, match=r"did not answer within 0\.3 seconds of its start"):
        await ask(session)
    assert await ask(session) == "answer"
    await session.close()
    assert events.count("open") == events.count("closed") == 2


async def test_close_waits_until_what_did_not_open_has_ended(kept):
    session, events = kept(False, closing_seconds=0.2)
    with pytest.raises(SourceError):
        await ask(session)
    await session.close()
    assert events == ["open", "closed"]


async def test_a_request_that_is_given_up_leaves_the_session_to_others(kept):
    session, _ = kept(True)

    async def forever(_):
        await asyncio.sleep(60)

    asking = asyncio.ensure_future(session.ask(forever, None))
    await asyncio.sleep(0.05)
    asking.cancel()
    assert await ask(session) == "answer"
    await session.close()


@pytest.mark.parametrize(
    "error", [httpx.ReadError("reset"), RuntimeError("reset"), OSError("reset")]
)
async def test_a_list_that_breaks_off_in_any_way_is_an_error_of_its_server(kept, error):
    session, _ = kept(True)

    async def break_off(*, params):
        raise error

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Session, "list_tools", staticmethod(break_off), raising=False)
        with pytest.raises(SourceError, match=r"shop: its tools cannot be listed: .*reset"):
            await listed_tools(session, 5)
    await session.close()
