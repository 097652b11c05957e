"""An agent's tools from a directory: called over real MCP servers, sync and async."""

import asyncio
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fake_model import ScriptedModel, call, says
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from mcp_running import HttpServer, odd

from langchain_toolrag import ToolRAG, ToolRAGMiddleware
from langchain_toolrag.catalogue.document import document_of
from langchain_toolrag.catalogue.sources.calls import SourceCalls
from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.directory_tools import callable_tools, definitions
from langchain_toolrag.catalogue.sources.mcp.connections import configured_sources
from langchain_toolrag.catalogue.sources.mcp.listing import list_sources
from langchain_toolrag.catalogue.sources.python_tools import read_python
from langchain_toolrag.catalogue.sources.stored import Listing
from langchain_toolrag.errors import SourceError
from langchain_toolrag.usage.reading import read_usage
from langchain_toolrag.usage.records import CallRecord

PYTHON = """
from langchain_core.tools import tool

@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

ALL = [add]
"""


@pytest.fixture
def started(tmp_path):
    """The lines that the odd server writes: `start` for each start, and some of its calls."""
    path = tmp_path / "odd.txt"

    def read():
        return path.read_text().splitlines() if path.exists() else []

    return read


@pytest.fixture(scope="module")
def odd_tools(tmp_path_factory):
    config = tmp_path_factory.mktemp("odd") / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"odd": odd()}}))
    (listing,) = list_sources(configured_sources(config), {}, timeout=30)
    return listing.tools


@pytest.fixture
def directory(tmp_path, odd_tools):
    """A directory with the odd server, and a Python module."""
    config = tmp_path / "mcp.json"
    servers = {"odd": odd(ODD_FILE=str(tmp_path / "odd.txt"), FROM_US="${ODD_VALUE:-none}")}
    config.write_text(json.dumps({"mcpServers": servers}))
    (tmp_path / "sums.py").write_text(PYTHON)
    (source,) = configured_sources(config)
    made = ToolDirectory(tmp_path / "data")
    made.replace([Listing(source, odd_tools), read_python(f"{tmp_path / 'sums.py'}:ALL")])
    return made


@pytest.fixture
def rag(directory, embeddings):
    with ToolRAG.from_directory(directory.path, embeddings=embeddings) as rag:
        yield rag


def runnable(rag, identity):
    return rag.catalogue.entries[identity].runnable


def call_of(tool, **arguments):
    return {"name": tool.name, "args": arguments, "id": "1", "type": "tool_call"}


def invoke(rag, identity, **arguments):
    tool = runnable(rag, identity)
    return tool.invoke(call_of(tool, **arguments))


async def ainvoke(rag, identity, **arguments):
    tool = runnable(rag, identity)
    return await tool.ainvoke(call_of(tool, **arguments))


class TestTheTools:
    def test_they_are_found_under_their_sources(self, rag):
        assert "odd/echo" in rag.catalogue.entries
        assert rag.catalogue.entries["sums/add"].document.server == "sums"
        assert rag.select("add two numbers").ids[0] == "sums/add"

    def test_they_are_bound_under_names_that_tell_their_source(self, rag):
        assert rag.catalogue.entries["odd/echo"].bound.name == "odd__echo"
        assert rag.catalogue.id_of("sums__add") == "sums/add"

    def test_no_server_is_started_to_find_them(self, rag, started):
        rag.select("say the text again")
        assert started() == []

    def test_they_are_indexed_as_their_definitions_are(self, directory):
        tools, _ = callable_tools(directory.tools(), directory.sources(), SourceCalls(directory))
        for tool, definition in zip(tools, definitions(directory.tools()), strict=True):
            assert document_of(tool) == document_of(definition)

    def test_a_module_that_cannot_be_imported_leaves_the_others(
        self, directory, tmp_path, embeddings
    ):
        (tmp_path / "sums.py").write_text("raise RuntimeError('not today')")
        with ToolRAG.from_directory(directory.path, embeddings=embeddings) as rag:
            assert "odd/echo" in rag.catalogue.entries
            assert "sums/add" not in rag.catalogue.entries
            assert "not today" in rag.status.unavailable["sums"]

    def test_a_directory_that_holds_nothing_is_an_error(self, tmp_path):
        with pytest.raises(SourceError, match="holds no ingested tools"):
            ToolRAG.from_directory(tmp_path)


class TestCalls:
    def test_text_and_structure_come_back(self, rag):
        message = invoke(rag, "odd/echo", text="hello")
        assert (message.content, message.artifact) == ("hello", {"result": "hello"})
        assert message.status == "success"

    async def test_they_do_without_blocking_too(self, rag):
        message = await ainvoke(rag, "odd/echo", text="hello")
        assert (message.content, message.artifact) == ("hello", {"result": "hello"})

    def test_a_tool_of_the_module_is_the_modules_own(self, rag):
        assert invoke(rag, "sums/add", a=2, b=3).content == "5"

    def test_what_is_no_text_is_named(self, rag):
        assert invoke(rag, "odd/picture").content == "[image/png, 8 bytes]"

    def test_arguments_may_have_names_that_langchain_uses(self, rag):
        arguments = {"config": "a", "self": "b", "run_manager": "c"}
        assert invoke(rag, "odd/config", **arguments).content == "a b c"

    @pytest.mark.parametrize(
        ("identity", "message"),
        [
            ("odd/fail", "Error executing tool fail: the disk is on fire"),
            ("odd/echo", "Field required"),
        ],
    )
    def test_a_failure_is_a_message_for_the_model(self, rag, identity, message):
        answer = invoke(rag, identity)
        assert answer.status == "error"
        assert message in answer.content

    def test_what_takes_too_long_is_one_too(self, directory, embeddings):
        with ToolRAG.from_directory(directory.path, embeddings=embeddings, timeout=0.3) as rag:
            answer = invoke(rag, "odd/wait", seconds=30)
            assert (answer.status, answer.content) == (
                "error",
                "odd/wait: no answer within 0.3 seconds",
            )
            assert invoke(rag, "odd/echo", text="still here").content == "still here"

    def test_what_is_destructive_can_be_forbidden(self, directory, embeddings, started):
        given = {"embeddings": embeddings, "allow_write": False}
        with ToolRAG.from_directory(directory.path, **given) as rag:
            answer = invoke(rag, "odd/wipe")
        assert "says that it is destructive" in answer.content
        assert started() == []

    @pytest.mark.parametrize("way", ["sync", "async"])
    def test_the_usage_log_of_an_agent_tells_timeouts_refusals_and_errors_apart(
        self, directory, embeddings, way
    ):
        given = {"allow_write": False, "timeout": 0.5, "usage_log": directory.usage}
        with ToolRAG.from_directory(directory.path, embeddings=embeddings, **given) as rag:
            called = {
                "odd__wait": {"seconds": 30},
                "odd__wipe": {},
                "odd__fail": {},
                "odd__echo": {"text": "hi"},
                "sums__add": {"a": 1, "b": 2},
            }
            many = [call(name, name, **arguments) for name, arguments in called.items()]
            model = ScriptedModel(script=[says("", *many), says("Done.")])
            agent = create_agent(model, middleware=[ToolRAGMiddleware(rag=rag)])
            asked = {"messages": [("user", "say the text again")]}
            asyncio.run(agent.ainvoke(asked)) if way == "async" else agent.invoke(asked)

        found = {
            record.call_id: record.outcome
            for record in read_usage(directory.usage)
            if isinstance(record, CallRecord)
        }
        assert found == {
            "odd__wait": "timeout",
            "odd__wipe": "refused",
            "odd__fail": "tool_error",
            "odd__echo": "ok",
            "sums__add": "ok",
        }

    def test_the_environment_is_read_by_name(self, directory, embeddings):
        given = {"embeddings": embeddings, "environment": {"ODD_VALUE": "here"}}
        with ToolRAG.from_directory(directory.path, **given) as rag:
            assert invoke(rag, "odd/variable", name="FROM_US").content == "here"

    def test_an_agent_calls_them(self, rag):
        name = rag.catalogue.entries["odd/echo"].document.bound_name
        model = ScriptedModel(script=[says("", call(name, text="hi")), says("It said hi.")])
        agent = create_agent(model, middleware=[ToolRAGMiddleware(rag=rag)])
        result = agent.invoke({"messages": [("user", "say the text again")]})
        (answer,) = (each for each in result["messages"] if isinstance(each, ToolMessage))
        assert answer.content == "hi"


class TestSessions:
    def test_one_serves_all_calls_from_any_thread_and_loop(self, rag, started):
        texts = [str(n) for n in range(20)]
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda text: invoke(rag, "odd/echo", text=text), texts))
        more = asyncio.run(ainvoke(rag, "odd/echo", text="more"))

        assert [answer.content for answer in [*answers, more]] == [*texts, "more"]
        assert started().count("start") == 1

    def test_a_call_that_breaks_it_is_not_made_again_and_the_next_opens_another(self, rag, started):
        answer = invoke(rag, "odd/crash")
        assert answer.status == "error"
        assert "may have been carried out or not" in answer.content
        assert started() == ["start", "crash"]

        assert invoke(rag, "odd/echo", text="again").content == "again"
        assert started() == ["start", "crash", "start", "echo again"]

    def test_calls_that_run_when_it_breaks_end_too(self, rag):
        with ThreadPoolExecutor(2) as threads:
            waiting = threads.submit(invoke, rag, "odd/wait", seconds=30)
            time.sleep(2)
            invoke(rag, "odd/crash")
            answer = waiting.result(10)
        assert answer.status == "error"

    def test_it_ends_with_the_rag(self, directory, embeddings, started):
        with ToolRAG.from_directory(directory.path, embeddings=embeddings) as rag:
            invoke(rag, "odd/echo", text="one")
        assert invoke(rag, "odd/echo", text="two").content == "two"
        assert _has_thread("toolrag-calls")
        rag.close()
        assert started().count("start") == 2
        assert not _has_thread("toolrag-calls")

    def test_a_server_over_http_that_was_started_anew_is_reached_again(
        self, tmp_path, odd_tools, embeddings
    ):
        server = HttpServer()
        config = tmp_path / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"odd": {"url": server.url}}}))
        directory = ToolDirectory(tmp_path / "data")
        try:
            directory.replace([Listing(configured_sources(config)[0], odd_tools)])
            with ToolRAG.from_directory(directory.path, embeddings=embeddings) as rag:
                assert invoke(rag, "odd/echo", text="one").content == "one"
                server.end()
                server.start()
                forgotten = invoke(rag, "odd/echo", text="two")
                assert "did not carry the call out; another call opens" in forgotten.content
                assert invoke(rag, "odd/echo", text="three").content == "three"
                server.end()
                assert invoke(rag, "odd/echo", text="four").status == "error"
                assert "did not start" in invoke(rag, "odd/echo", text="five").content
        finally:
            server.end()

    def test_another_connection_of_the_source_is_used_from_the_next_call_on(
        self, directory, rag, tmp_path, started
    ):
        assert invoke(rag, "odd/variable", name="NEW").content == "not set"
        source = directory.sources()["odd"]
        config = tmp_path / "other.json"
        config.write_text(json.dumps({"mcpServers": {"odd": odd(NEW="value")}}))
        (other,) = configured_sources(config)
        directory.replace([Listing(other, directory.tools()[:-1])])

        assert source != directory.sources()["odd"]
        assert invoke(rag, "odd/variable", name="NEW").content == "value"

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_forked_child_has_its_own(self, rag, started):
        invoke(rag, "odd/echo", text="parent")
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=_call_in_child, args=(rag, queue))
        child.start()
        assert queue.get(timeout=30) == "child"
        child.join(30)
        assert invoke(rag, "odd/echo", text="parent").content == "parent"
        assert started().count("start") == 2

    def test_a_process_that_forgets_to_close_ends_with_its_servers(self, directory, tmp_path):
        script = tmp_path / "forgets.py"
        script.write_text(FORGETS)
        arguments = [
            sys.executable,
            "-W",
            "error::ResourceWarning",
            str(script),
            str(directory.path),
        ]
        done = asyncio.run(_output_of(arguments))
        pid, _, errors = done.partition("|")
        assert errors == ""
        deadline = time.monotonic() + 10
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not Path(f"/proc/{pid}").exists()


def _has_thread(name):
    return name in {thread.name for thread in threading.enumerate()}


FORGETS = """
import os, sys
from langchain_toolrag import ToolRAG
from langchain_toolrag.index.embedding import NoEmbeddings
rag = ToolRAG.from_directory(sys.argv[1], embeddings=NoEmbeddings())
tool = rag.catalogue.entries["odd/process"].runnable
sys.stdout.write(tool.invoke({}))
"""


async def _output_of(arguments):
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*arguments, stdout=pipe, stderr=pipe)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return f"{out.decode()}|{err.decode()}"


def _call_in_child(rag, queue):
    signal.alarm(60)
    queue.put(invoke(rag, "odd/echo", text="child").content)
    rag.close()
