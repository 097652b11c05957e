"""What a call comes to, whatever the tool, its source or the one who closes does."""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from langchain_toolrag.catalogue.sources.calls import SourceCalls
from langchain_toolrag.catalogue.sources.python_tools import read_python
from langchain_toolrag.catalogue.sources.stored import StoredSource, StoredTool

TOOLS = """
import asyncio, threading, time
from langchain_core.tools import tool

STARTS = []
STARTS.append(1)
time.sleep(0.05)

@tool
async def sleep(seconds: float) -> str:
    "Sleep."
    await asyncio.sleep(seconds)
    return "slept"

@tool
def give_up() -> str:
    "Run out of time by itself."
    raise TimeoutError("the bank did not answer")

@tool(response_format="content_and_artifact")
def odd():
    "Return an artifact that is no JSON."
    return "a thing", object()

@tool(response_format="content_and_artifact")
def vast(size: int):
    "Return a large artifact."
    return "much", ["x" * size]

@tool
def count() -> str:
    "Count calls in the module's own memory."
    STARTS.append(1)
    return str(len(STARTS))

ALL = [sleep, give_up, odd, vast, count]
"""


@pytest.fixture
def own(tmp_path):
    """The calls of a module's tools, and the tools by name."""
    (tmp_path / "own.py").write_text(TOOLS)
    listing = read_python(f"{tmp_path / 'own.py'}:ALL")

    def make(**given):
        calls = SourceCalls({"own": listing.source}, **given)
        return calls, {tool.name: tool for tool in listing.tools}

    return make


class TestToolsOfAModule:
    def test_one_that_takes_too_long_is_a_timeout(self, own):
        calls, tools = own(timeout=0.2)
        with closing(calls):
            result = calls.call_now(tools["sleep"], {"seconds": 30})
        assert (result.outcome, result.content) == (
            "timeout",
            "own/sleep: no answer within 0.2 seconds",
        )

    def test_a_timeout_that_the_tool_raises_is_its_error_and_not_ours(self, own):
        calls, tools = own()
        with closing(calls):
            result = calls.call_now(tools["give_up"], {})
        assert (result.outcome, result.content) == (
            "tool_error",
            "own/give_up: TimeoutError: the bank did not answer",
        )

    def test_an_artifact_that_is_no_json_is_left_out(self, own):
        calls, tools = own()
        with closing(calls):
            result = calls.call_now(tools["odd"], {})
        assert (result.content, result.structured) == ("a thing", None)

    def test_one_that_is_too_large_is_left_out_too(self, own):
        calls, tools = own(most_bytes=100)
        with closing(calls):
            small = calls.call_now(tools["vast"], {"size": 10})
            large = calls.call_now(tools["vast"], {"size": 1_000})
        assert small.structured == ["x" * 10]
        assert (large.content, large.structured) == ("much", None)

    def test_the_module_is_imported_once_by_however_many_first_calls(self, own):
        calls, tools = own()
        with closing(calls), ThreadPoolExecutor(4) as threads:
            told = threads.map(lambda _: calls.call_now(tools["count"], {}).content, range(4))
            assert sorted(told) == ["2", "3", "4", "5"]


class TestClosing:
    def test_a_call_that_is_under_way_is_told_so(self, own):
        calls, tools = own()
        with ThreadPoolExecutor(1) as threads:
            begun = threading.Event()
            waiting = threads.submit(_call_once_begun, calls, tools["sleep"], begun)
            assert begun.wait(20)
            calls.close()
            result = waiting.result(20)
        assert result.outcome == "tool_error"
        assert "closed before the answer came" in result.content

    async def test_one_that_is_awaited_too(self, own):
        calls, tools = own()
        waiting = asyncio.ensure_future(calls.call(tools["sleep"], {"seconds": 30}))
        await asyncio.sleep(0.3)
        await calls.aclose()
        assert (await waiting).outcome == "tool_error"

    def test_closing_twice_at_once_ends_both(self, own):
        calls, tools = own()
        calls.call_now(tools["count"], {})
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(lambda _: calls.close(), range(4))) == [None] * 4


def _call_once_begun(calls, tool, begun):
    begun.set()
    return calls.call_now(tool, {"seconds": 30})


class TestWhatNobodyExpected:
    def test_a_failure_of_any_kind_is_told_by_its_name_alone(self, caplog):
        source = StoredSource("api", "openapi", "api.json", base_url="https://api.example")
        broken = StoredTool("api/x", "api", "openapi", "x", call={"path": "/?key=secret-1234"})
        with caplog.at_level(logging.ERROR), closing(SourceCalls({"api": source})) as calls:
            result = calls.call_now(broken, {})

        assert (result.outcome, result.content) == (
            "tool_error",
            "api/x: the call failed (KeyError)",
        )
        assert "the call of api/x failed with KeyError" in caplog.text
        assert "secret-1234" not in caplog.text

    def test_arguments_without_a_bottom_are_an_error(self):
        source = StoredSource("api", "openapi", "api.json", base_url="https://api.example")
        call = {
            "method": "POST",
            "path": "/x",
            "arguments": {"body": {"in": "body", "whole": True}},
            "body": {"type": "application/json"},
        }
        nested = []
        for _ in range(100_000):
            nested = [nested]
        with closing(SourceCalls({"api": source})) as calls:
            tool = StoredTool("api/x", "api", "openapi", "x", call=call)
            assert calls.call_now(tool, {"body": nested}).outcome == "tool_error"
