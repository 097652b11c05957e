"""A server as a process of its own, its clients as they come: HTTP, MCP, agents, signals."""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from fake_model import ScriptedModel, call, says
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool

LIMIT_SECONDS = 60
TESTS = Path(__file__).parent.parent
CLIENTS = 50

MODULE = '''
import time
from langchain_core.tools import tool

@tool
def get_weather(city: str) -> str:
    """Current weather in a city: warm or cold, rain or sun."""
    return f"rain in {city}"

@tool
def brew_coffee(seconds: float) -> str:
    """Brews coffee, which takes a while."""
    print("brewing")  # Where standard output is the protocol, this is not to get into it.
    time.sleep(seconds)
    return "coffee"

TOOLS = [get_weather, brew_coffee]
'''

SERVE = """
import sys
sys.path.insert(0, sys.argv[3])
from fakes import NamedEmbeddings
from langchain_toolrag.server.options import ServerOptions
from langchain_toolrag.server.run import run_http, run_stdio
from langchain_toolrag.server.services import Services

port = int(sys.argv[2])
services = Services(sys.argv[1], ServerOptions(port=port), embeddings=NamedEmbeddings())
(run_http if port else run_stdio)(services)
"""

SERVE_AND_LOG = """
import logging, sys
from langchain_toolrag.cli import main
from langchain_toolrag.server import run

def log(services):
    logging.warning("what a caller sent")
    logging.getLogger("mcp.server").warning("what a caller sent")
    logging.getLogger("langchain_toolrag.server").warning("told")

run.run_stdio = log
main(["serve", "--data", sys.argv[1], "--stdio", "--lexical"])
"""

HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
FIND = {"name": "search_tools", "arguments": {"query": "weather"}}


def make_directory(folder):
    module = folder / "kitchen.py"
    module.write_text(MODULE)
    tools = [
        _stored("get_weather", "Current weather in a city: warm or cold.", city="string"),
        _stored("brew_coffee", "Brews coffee, which takes a while.", seconds="number"),
    ]
    path = folder / "data"
    source = StoredSource("kitchen", "python", f"{module}:TOOLS")
    ToolDirectory(path).replace([Listing(source, tools)])
    return path


@pytest.fixture
def directory(tmp_path):
    return make_directory(tmp_path)


def _stored(name, description, **arguments):
    properties = {argument: {"type": kind} for argument, kind in arguments.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return StoredTool(f"kitchen/{name}", "kitchen", "python", name, description, schema)


def command(directory, port):
    return [sys.executable, "-c", SERVE, str(directory), str(port), str(TESTS)]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server process and where it is."""

    def __init__(self, directory):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            command(directory, port), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def wait_until_ready(self):
        deadline = time.monotonic() + LIMIT_SECONDS
        with httpx.Client() as client:
            while time.monotonic() < deadline:
                if self.process.poll() is not None:
                    raise RuntimeError(self.process.stderr.read().decode())
                with contextlib.suppress(httpx.TransportError):
                    if client.get(f"{self.url}/healthz").status_code == 200:
                        return self
                time.sleep(0.05)
        raise TimeoutError("the server does not become ready")

    def post(self, path, **body):
        return httpx.post(f"{self.url}{path}", json=body, timeout=LIMIT_SECONDS)

    def stop(self, number):
        self.process.send_signal(number)
        self.process.wait(LIMIT_SECONDS)


@contextlib.contextmanager
def served(directory):
    """A server, and its end."""
    server = Server(directory)
    try:
        yield server.wait_until_ready()
    finally:
        server.process.kill()
        server.process.wait(LIMIT_SECONDS)
        server.process.stderr.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server for all tests that leave it as it is."""
    with served(make_directory(tmp_path_factory.mktemp("shared"))) as server:
        yield server


def logged(directory):
    """The lines of the usage log; a line that is torn fails the test."""
    lines = [path.read_text() for path in sorted((directory / "usage").glob("*.jsonl"))]
    return [json.loads(line) for line in "".join(lines).splitlines() if line]


def within_limit(awaitable):
    return asyncio.wait_for(awaitable, LIMIT_SECONDS)


def script():
    wanted = call("search_tools", "a", query="is it warm or cold in the city")
    called = call("call_tool", "b", name="kitchen__get_weather", arguments={"city": "delhi"})
    return ScriptedModel(script=[says("", wanted), says("", called), says("It rains.")])


async def agent_answers(connection):
    async with MultiServerMCPClient({"toolrag": connection}).session("toolrag") as session:
        agent = create_agent(script(), await load_mcp_tools(session))
        result = await agent.ainvoke({"messages": [("user", "weather in delhi?")]})
    return [message for message in result["messages"] if isinstance(message, ToolMessage)]


def text(message):
    return " ".join(block["text"] for block in message.content)


class TestMCP:
    async def test_the_sdks_client_lists_searches_and_calls(self, server):
        async def ask():
            async with (
                streamable_http_client(f"{server.url}/mcp") as (read, write, _),
                ClientSession(read, write) as session,
            ):
                await session.initialize()
                listed = await session.list_tools()
                found = await session.call_tool("search_tools", {"query": "weather in a city"})
                answer = json.loads(found.content[0].text)
                name, search_id = answer["tools"][0]["name"], answer["search_id"]
                arguments = {"city": "delhi"}
                asked = {"name": name, "arguments": arguments, "search_id": search_id}
                return listed.tools, await session.call_tool("call_tool", asked)

        listed, called = await within_limit(ask())

        assert [tool.name for tool in listed] == ["search_tools", "call_tool"]
        assert called.content[0].text == "rain in delhi"

    async def test_an_agent_searches_and_calls_over_http(self, directory):
        with served(directory) as server:
            connection = {"transport": "streamable_http", "url": f"{server.url}/mcp"}
            found, called = await within_limit(agent_answers(connection))
            server.stop(signal.SIGTERM)

        assert "kitchen__get_weather" in text(found)
        assert text(called) == "rain in delhi"
        assert [line["type"] for line in logged(directory)] == ["search", "call"]

    async def test_an_agent_searches_and_calls_over_stdio(self, directory):
        program, *arguments = command(directory, 0)
        connection = {"transport": "stdio", "command": program, "args": arguments}
        found, called = await within_limit(agent_answers(connection))

        assert "kitchen__get_weather" in text(found)
        assert text(called) == "rain in delhi"
        assert [line["type"] for line in logged(directory)] == ["search", "call"]

    async def test_what_one_client_asks_in_one_session_is_one_in_the_log(self, directory):
        async def ask(url):
            async with (
                streamable_http_client(f"{url}/mcp") as (read, write, _),
                ClientSession(read, write) as session,
            ):
                await session.initialize()
                for _ in range(2):
                    await session.call_tool("search_tools", {"query": "weather in a city"})

        with served(directory) as server:
            for _ in range(2):
                await within_limit(ask(server.url))
            server.stop(signal.SIGTERM)

        sessions = [line["session"] for line in logged(directory)]
        assert sessions[0] == sessions[1] != sessions[2] == sessions[3]

    async def test_over_stdio_it_is_the_processs(self, directory):
        program, *arguments = command(directory, 0)
        connection = {"transport": "stdio", "command": program, "args": arguments}
        for _ in range(2):
            await within_limit(agent_answers(connection))

        sessions = [line["session"] for line in logged(directory) if line["type"] == "search"]
        assert len(set(sessions)) == 2

    async def test_an_agents_calls_are_tied_to_the_searches_of_its_tenant(self, directory):
        with served(directory) as server:
            for tenant in ("acme", "globex"):
                headers = {"X-Toolrag-Tenant": tenant}
                connection = {
                    "transport": "streamable_http",
                    "url": f"{server.url}/mcp",
                    "headers": headers,
                }
                await within_limit(agent_answers(connection))
            server.stop(signal.SIGTERM)

        lines = logged(directory)
        tenants = [line["tenant"] for line in lines]
        assert tenants[0] == tenants[1] != tenants[2] == tenants[3]
        assert "acme" not in json.dumps(lines)

    async def test_what_a_tool_prints_is_not_in_the_way_of_stdio(self, directory):
        program, *arguments = command(directory, 0)
        client = MultiServerMCPClient(
            {"toolrag": {"transport": "stdio", "command": program, "args": arguments}}
        )

        async def ask():
            async with client.session("toolrag") as session:
                asked = {"name": "kitchen__brew_coffee", "arguments": {"seconds": 0}}
                return await session.call_tool("call_tool", asked)

        assert (await within_limit(ask())).content[0].text == "coffee"

    @pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
    def test_there_are_no_streams_to_open_and_no_sessions_to_end(self, server, method):
        headers = {"Content-Type": "application/json"}
        answer = httpx.request(method, f"{server.url}/mcp", headers=headers)
        assert answer.status_code == 405

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_ends_stdio_in_order_while_no_line_comes(self, directory, number):
        asked = [
            {"id": 0, "method": "initialize", "params": HELLO},
            {"method": "notifications/initialized"},
            {"id": 1, "method": "tools/call", "params": FIND},
        ]
        with subprocess.Popen(
            command(directory, 0), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            for each in asked:
                process.stdin.write(json.dumps({"jsonrpc": "2.0", **each}) + "\n")
                process.stdin.flush()
            answers = [json.loads(process.stdout.readline())["id"] for _ in range(2)]
            process.send_signal(number)
            status = process.wait(LIMIT_SECONDS)

        assert (answers, status) == ([0, 1], 0)
        assert [line["type"] for line in logged(directory)] == ["search"]

    def test_what_the_sdk_says_of_what_callers_send_is_not_shown(self, directory):
        arguments = [sys.executable, "-c", SERVE_AND_LOG, str(directory)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=True)
        assert done.stderr == "toolrag: told\n"


class TestManyClients:
    async def test_fifty_at_once_are_all_answered(self, server):
        async def ask(client, number):
            for turn in range(4):
                body = {"query": f"weather in city {number} {turn}"}
                found = (await client.post("/v1/search", json=body)).raise_for_status().json()
                name, search_id = found["tools"][0]["name"], found["search_id"]
                body = {"name": name, "arguments": {"city": "x"}, "search_id": search_id}
                called = (await client.post("/v1/call", json=body)).raise_for_status().json()
                assert called["outcome"] == "ok"

        limits = httpx.Limits(max_connections=CLIENTS)
        async with httpx.AsyncClient(
            base_url=server.url, limits=limits, timeout=LIMIT_SECONDS
        ) as client:
            await within_limit(asyncio.gather(*(ask(client, number) for number in range(CLIENTS))))

    async def test_slow_tools_keep_no_search_waiting(self, server):
        async with httpx.AsyncClient(base_url=server.url, timeout=LIMIT_SECONDS) as client:
            body = {"name": "kitchen/brew_coffee", "arguments": {"seconds": 5}}
            slow = [asyncio.create_task(client.post("/v1/call", json=body)) for _ in range(20)]
            await asyncio.sleep(0.2)
            answers = [
                await client.post("/v1/search", json={"query": f"weather {number}"})
                for number in range(20)
            ]
            finished = [task for task in slow if task.done()]
            for task in slow:
                task.cancel()
            await asyncio.gather(*slow, return_exceptions=True)

        assert {answer.status_code for answer in answers} == {200}
        assert finished == []


class TestEnds:
    def test_a_call_that_runs_is_finished_after_sigterm(self, directory):
        brewing = {"name": "kitchen/brew_coffee", "arguments": {"seconds": 2}}
        with served(directory) as server, ThreadPoolExecutor(1) as thread:
            called = thread.submit(server.post, "/v1/call", **brewing)
            time.sleep(1)
            server.stop(signal.SIGTERM)
            answer = called.result(LIMIT_SECONDS).json()

        assert (answer["outcome"], answer["content"]) == ("ok", "coffee")
        assert [line["outcome"] for line in logged(directory)] == ["ok"]

    def test_kill_loses_no_line_of_a_second_ago_and_no_catalogue(self, directory):
        before = (directory / "tools.jsonl").read_bytes()
        expected = []
        for _ in range(2):
            with served(directory) as server:
                found = [server.post("/v1/search", query=f"weather {n}").json() for n in range(9)]
                expected += [answer["search_id"] for answer in found]
                time.sleep(1)
                server.stop(signal.SIGKILL)

        assert [line["search_id"] for line in logged(directory)] == expected
        assert {answer["mode"] for answer in found} == {"semantic"}
        assert (directory / "tools.jsonl").read_bytes() == before
