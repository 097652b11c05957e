"""From real MCP servers and a large OpenAPI document to a served catalogue, as a user does it.

All processes are the `toolrag` command itself, with the real model.
"""

import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import count

import httpx
import numpy as np
import pytest
from fake_model import ScriptedModel, call, says
from http_echo import echo_server
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from large_openapi import document
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from waiting import until

from langchain_toolrag import ToolRAG, ToolRAGMiddleware
from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.index.adapter import Adapter
from langchain_toolrag.index.embedding import PACKAGED_ADAPTER, MiniLMEmbeddings, model_name
from langchain_toolrag.trial.directory import HeadsDirectory
from langchain_toolrag.usage.reading import Skipped, join_calls, read_usage
from langchain_toolrag.usage.records import CallRecord
from langchain_toolrag.usage.request_vectors import RequestVectors

SERVERS = ("mcp_server_time", "mcp_server_git")
pytestmark = pytest.mark.skipif(
    not all(map(find_spec, SERVERS)), reason="needs mcp-server-time and mcp-server-git"
)

RUN = "import sys; from langchain_toolrag.cli import main; sys.exit(main())"
LIMIT_SECONDS = 180
OPERATIONS, FEWER, FEW = 520, 420, 150
TOKEN = "token-of-the-cloud"
FLUSHED_SECONDS = 1.0
ROUNDS = 3
TIME_TOOLS, GIT_TOOLS = 2, 12


def environment():
    """What the processes see: the cloud's token, and a Git that knows nobody's settings."""
    git = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    return {**os.environ, **git, "EVERYTHING_CLOUD_TOKEN": TOKEN}


def toolrag(*arguments):
    """Run the command to its end; return its status and what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=LIMIT_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def started(*arguments, errors=subprocess.DEVNULL):
    command = [sys.executable, "-c", RUN, *map(str, arguments)]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=errors)


def killed(process):
    process.kill()
    process.wait(LIMIT_SECONDS)


def with_document(handler):
    """A handler of the echo server that also has the document of what it serves."""

    def answer(self, parts, body):
        self._answer(200, json.dumps(self.server.document).encode())

    return type("Documented", (handler,), {"_openapi": answer})


class Served:
    """A server process over a directory, and a client of it."""

    def __init__(self, directory, *given):
        self._log = directory.with_suffix(".log")
        place = ("--data", directory, "--port", 0)  # A free port; which one is in its log.
        with self._log.open("w") as log:
            self.process = started("serve", *place, *given, errors=log)
        self.url = until(self._address, LIMIT_SECONDS)
        self.client = httpx.Client(base_url=self.url, timeout=LIMIT_SECONDS)

    def _address(self):
        told = self._log.read_text()
        if self.process.poll() is not None:
            raise RuntimeError(f"the server ended: {told}")
        return "".join(re.findall(r"running on (http://[\d.:]+) ", told))

    def is_ready(self):
        return self.client.get("/healthz").status_code == 200

    def search(self, query, **more):
        answer = self.client.post("/v1/search", json={"query": query, **more})
        return answer.raise_for_status().json()

    def ids(self, query, **more):
        return [tool["id"] for tool in self.search(query, **more)["tools"]]

    def call(self, name, search_id="", **arguments):
        asked = {"name": name, "arguments": arguments, "search_id": search_id}
        return self.client.post("/v1/call", json=asked).raise_for_status().json()

    def find_and_call(self, query, tool, **arguments):
        """Call a tool that a search has to find, by the API name that the search gives it."""
        found = self.search(query)
        (name,) = (each["name"] for each in found["tools"] if each["id"] == tool)
        return self.call(name, found["search_id"], **arguments)


@contextlib.contextmanager
def served(directory, *given):
    """A server that is ready, killed at the end."""
    server = Served(directory, *given)
    try:
        until(server.is_ready, LIMIT_SECONDS)
        yield server
    finally:
        server.client.close()
        killed(server.process)


@pytest.fixture(scope="module")
def cloud():
    """An HTTP server of 520 operations, and the document that says so at /openapi.json."""
    with echo_server() as server:
        server.RequestHandlerClass = with_document(server.RequestHandlerClass)
        server.document = document(OPERATIONS) | {"servers": [{"url": f"{server.url}/v1"}]}
        yield server


@pytest.fixture
def changed(cloud, monkeypatch):
    """The cloud's document gains an operation and loses one."""
    paths = {**cloud.document["paths"]}
    paths["/kitchen/espresso_machine/descale"] = {
        "get": {
            "operationId": "kitchen/descale_espresso_machine",
            "summary": "Descale the espresso machine.",
            "responses": {"200": {"description": "Done."}},
        }
    }
    lost = "/billing/invoices"
    paths[lost] = {verb: each for verb, each in paths[lost].items() if verb != "post"}
    monkeypatch.setattr(cloud, "document", {**cloud.document, "paths": paths})


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    path = tmp_path_factory.mktemp("repository")
    commit = ("-c", "user.name=Ada", "-c", "user.email=ada@x.example", "commit", "--allow-empty")
    for command in (["init", "-q"], [*commit, "-q", "-m", "the very first commit"]):
        subprocess.run(["git", *command], cwd=path, env=environment(), check=True)
    return path


@pytest.fixture(scope="module")
def summaries():
    """What each ingest printed."""
    return {}


@pytest.fixture(scope="module")
def data(tmp_path_factory, cloud, repository, summaries):
    """A directory of all three: a server of an mcp.json, one of a command line, the document."""
    folder = tmp_path_factory.mktemp("catalogue")
    config, directory = folder / "mcp.json", folder / "data"
    config.write_text(json.dumps({"mcpServers": {"time": time_server()}}))
    git = f"git={sys.executable} -m mcp_server_git --repository {repository}"
    out = ("--out", directory)
    summaries["mcp"] = toolrag("ingest", "mcp", "--config", config, "--server", git, *out)
    summaries["openapi"] = toolrag("ingest", "openapi", f"{cloud.url}/openapi.json", *out)
    return directory


def time_server(module="mcp_server_time"):
    return {"command": sys.executable, "args": ["-m", module, "--local-timezone", "Asia/Tokyo"]}


@pytest.fixture(scope="module")
def server(data):
    with served(data) as server:
        yield server


@pytest.fixture
def copy(data, tmp_path):
    """A copy of the directory that a test may change."""
    return shutil.copytree(data, tmp_path / "data", ignore=shutil.ignore_patterns("usage"))


def counts(directory):
    return {name: source.tools for name, source in ToolDirectory(directory).sources().items()}


class TestIngesting:
    def test_each_source_is_counted(self, data, summaries):
        status, printed, errors = summaries["mcp"]
        assert (status, errors) == (0, "")
        assert printed.splitlines()[-1].startswith(f"in all  +{TIME_TOOLS + GIT_TOOLS} added")

        status, printed, errors = summaries["openapi"]
        assert (status, errors) == (0, "")
        assert printed.startswith(f"everything-cloud  +{OPERATIONS} added")

    def test_all_is_in_one_directory_and_no_secret_is(self, data):
        known = {"time": TIME_TOOLS, "git": GIT_TOOLS, "everything-cloud": OPERATIONS}
        assert counts(data) == known
        for path in ("tools.jsonl", "sources.json"):
            assert TOKEN not in (data / path).read_text()

    def test_the_shell_searches_and_calls_what_is_there(self, data):
        status, printed, _ = toolrag("search", "which time is it in Tokyo", "--data", data)
        assert status == 0
        assert "time/get_current_time" in printed

        arguments = json.dumps({"timezone": "Asia/Tokyo"})
        status, printed, _ = toolrag("call", "time/get_current_time", arguments, "--data", data)
        assert status == 0
        assert json.loads(printed)["timezone"] == "Asia/Tokyo"


class TestServing:
    def test_a_tool_of_a_configured_server_is_found_and_called(self, server):
        tool, query = "time/convert_time", "convert a time from one timezone to another"
        arguments = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        answer = server.find_and_call(query, tool, **arguments)

        assert answer["outcome"] == "ok"
        assert "T21:00:00+09:00" in answer["content"]

    def test_a_tool_of_a_given_server_is_found_and_called(self, server, repository):
        query = "show the commits of a git repository"
        answer = server.find_and_call(query, "git/git_log", repo_path=str(repository))

        assert answer["outcome"] == "ok"
        assert "the very first commit" in answer["content"]

    def test_an_operation_is_found_and_called_with_its_token(self, server, cloud):
        tool, query = "everything-cloud/billing/list_invoice", "list the invoices"
        answer = server.find_and_call(query, tool, limit=7)

        told = json.loads(answer["content"])
        assert (told["method"], told["path"]) == ("GET", "/v1/billing/invoices")
        assert told["query"] == [["limit", "7"]]
        assert cloud.requests[-1][2]["Authorization"] == f"Bearer {TOKEN}"

    def test_an_operation_that_writes_is_not_sent(self, server, cloud):
        sent = len(cloud.requests)
        tool = "everything-cloud/billing/delete_invoice"
        answer = server.call(tool, invoice_id="6b1a7f6c-0000-4000-8000-000000000000")

        assert answer["outcome"] == "refused"
        assert len(cloud.requests) == sent

    def test_a_servers_error_comes_with_what_the_tool_takes(self, server):
        answer = server.call("time__get_current_time", timezone="Atlantis/Capital")
        assert answer["outcome"] == "tool_error"
        assert answer["inputSchema"]["required"] == ["timezone"]

    async def test_an_mcp_client_searches_and_calls(self, server):
        async def ask():
            async with (
                streamable_http_client(f"{server.url}/mcp") as (read, write, _),
                ClientSession(read, write) as session,
            ):
                await session.initialize()
                query = {"query": "current time in a timezone", "max_results": 3}
                found = await session.call_tool("search_tools", query)
                answer = json.loads(found.content[0].text)
                asked = {"name": answer["tools"][0]["name"], "search_id": answer["search_id"]}
                arguments = {"timezone": "Asia/Tokyo"}
                return await session.call_tool("call_tool", {**asked, "arguments": arguments})

        called = await asyncio.wait_for(ask(), LIMIT_SECONDS)
        assert not called.isError
        assert json.loads(called.content[0].text)["timezone"] == "Asia/Tokyo"

    async def test_an_agent_searches_and_calls_servers_and_operations(self, server, repository):
        log = call("call_tool", name="git__git_log", arguments={"repo_path": str(repository)})
        orders = call("call_tool", name="everything-cloud__commerce__list_order", arguments={})
        searches = [
            says("", call("search_tools", query=query))
            for query in ("git commit history", "list orders of the shop")
        ]
        model = ScriptedModel(script=[searches[0], says("", log), searches[1], says("", orders)])
        connection = {"transport": "streamable_http", "url": f"{server.url}/mcp"}
        async with MultiServerMCPClient({"all": connection}).session("all") as session:
            agent = create_agent(model, await load_mcp_tools(session))
            asked = {"messages": [("user", "which commits and orders are there?")]}
            result = await asyncio.wait_for(agent.ainvoke(asked), LIMIT_SECONDS)

        commits, logged, found, listed = tool_texts(result)
        assert "git__git_log" in commits
        assert "the very first commit" in logged
        assert "everything-cloud__commerce__list_order" in found
        assert json.loads(listed)["path"] == "/v1/commerce/orders"

    def test_every_call_is_logged_with_the_search_that_found_its_tool(self, server, data):
        tool, query = "everything-cloud/projects/list_milestone", "list the milestones"
        call_id = server.find_and_call(query, tool)["call_id"]

        def joined():
            pairs = join_calls(read_usage(data / "usage"))
            return [pair for pair in pairs if pair[0].call_id == call_id]

        ((called, search),) = until(joined, LIMIT_SECONDS)
        assert (called.tool, called.outcome) == (tool, "ok")
        assert tool in [shown.tool for shown in search.retrieved]
        log = "".join(path.read_text() for path in (data / "usage").glob("*.jsonl"))
        assert query not in log


def tool_texts(result):
    """What the tools of a run answered, as text."""
    messages = [each for each in result["messages"] if isinstance(each, ToolMessage)]
    contents = [message.content for message in messages]
    return [each if isinstance(each, str) else each[0]["text"] for each in contents]


class TestWhereItCannotServe:
    def test_an_address_in_use_is_an_error_that_says_what_to_do(self, data):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            status, _, errors = toolrag("serve", "--data", data, "--port", port, "--lexical")
        assert status == 1
        assert "address already in use" in errors
        assert f"did not start at 127.0.0.1, port {port}" in errors
        assert "give another --port" in errors


class TestAnAgentOverTheDirectory:
    @pytest.fixture
    def rag(self, data):
        embeddings = MiniLMEmbeddings(exports=data / "cache" / "models")
        given = {"embeddings": embeddings, "environment": environment()}
        with ToolRAG.from_directory(data, **given) as rag:
            yield rag

    def agent(self, rag, *script):
        self.model = ScriptedModel(script=list(script))
        return create_agent(self.model, middleware=[ToolRAGMiddleware(rag=rag, search_tool=True)])

    def test_a_tool_it_searches_for_is_bound_and_called(self, rag):
        agent = self.agent(
            rag,
            says("", call("search_tools", query="current time in a timezone")),
            says("", call("time__get_current_time", timezone="Asia/Tokyo")),
        )
        result = agent.invoke({"messages": [("user", "hello there")]})

        before, after, _ = self.model.bound
        assert before == ["search_tools"]
        assert "time__get_current_time" in after
        assert json.loads(tool_texts(result)[-1])["timezone"] == "Asia/Tokyo"

    async def test_what_a_request_needs_is_bound_at_once(self, rag, repository):
        agent = self.agent(rag, says("", call("git__git_status", repo_path=str(repository))))
        asked = {"messages": [("user", "what is the status of my git working tree?")]}
        result = await agent.ainvoke(asked)

        assert "git__git_status" in self.model.bound[0]
        assert len(self.model.bound[0]) <= 11
        assert "nothing to commit" in tool_texts(result)[-1]


class TestChangesWhileItServes:
    def test_a_new_operation_is_found_without_a_restart(self, copy, cloud, changed):
        query, new = (
            "descale the espresso machine",
            "everything-cloud/kitchen/descale_espresso_machine",
        )
        with served(copy) as server:
            assert new not in server.ids(query)
            ingest = ("ingest", "openapi", f"{cloud.url}/openapi.json", "--out", copy)
            assert "+1 added  ~0 changed  -1 removed" in toolrag(*ingest)[1]

            assert until(lambda: server.ids(query)[0] == new, LIMIT_SECONDS)
            assert server.call(new)["outcome"] == "ok"
            gone = {"name": "everything-cloud/billing/create_invoice", "arguments": {}}
            assert server.client.post("/v1/call", json=gone).status_code == 404

    def test_a_server_that_fails_keeps_its_tools(self, copy, tmp_path):
        config = tmp_path / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"time": time_server("no_such_module")}}))
        with served(copy) as server:
            ingest = ("ingest", "mcp", "--config", config, "--out", copy)
            status, printed, errors = toolrag(*ingest)

            assert (status, printed) == (1, "time  +0 added  ~0 changed  -0 removed  =2 kept\n")
            assert "kept 2 tools of time: did not start" in errors
            assert "No module named no_such_module" in errors
            assert "time/get_current_time" in server.ids("current time in a timezone")
            assert server.call("time/get_current_time", timezone="UTC")["outcome"] == "ok"


class TestLearnedHeads:
    QUERY = "current time in a timezone"

    @pytest.fixture
    def heads_for_the_log(self):
        """Heads that take every request for one for the commits of a repository."""
        model = MiniLMEmbeddings(adapter=PACKAGED_ADAPTER)
        dim, tensors = 384, {}
        for side in ("request", "tool"):
            tensors[f"{side}.first.weight"] = np.zeros((1, dim))
            tensors[f"{side}.first.bias"] = np.zeros(1)
            tensors[f"{side}.second.weight"] = np.zeros((dim, 1))
            tensors[f"{side}.second.bias"] = np.zeros(dim)
        tensors["request.second.bias"] = 20 * np.array(model.embed_query("show the commit logs"))
        return Adapter("heads", model_name(model), 1.0, tensors, {})

    def test_a_running_server_follows_them(self, copy, heads_for_the_log):
        heads = HeadsDirectory(copy / "heads")
        with served(copy, "--candidate-share", "1") as server:
            usual = server.ids(self.QUERY)
            digest = heads.put_on_trial(heads_for_the_log)
            until(lambda: server.ids(self.QUERY, session="a") != usual, LIMIT_SECONDS)
            moved = server.ids(self.QUERY, session="a")
            assert server.ids(self.QUERY) == usual  # Names no session: not on trial.

            heads.promote()
            until(lambda: server.ids(self.QUERY) == moved, LIMIT_SECONDS)
            assert server.client.get("/healthz").json()["heads"] == digest[:16]
            heads.state_file.write_bytes(b"torn")
            until(lambda: server.client.get("/healthz").json()["heads_problem"], LIMIT_SECONDS)
            assert server.ids(self.QUERY) == moved
            time.sleep(FLUSHED_SECONDS)
            killed(server.process)

        searches = list(read_usage(copy / "usage"))
        assert {record.heads for record in searches} == {"", digest[:16]}
        requests = {record.request for record in searches}
        model = heads_for_the_log.base
        assert RequestVectors(copy / "usage").get(model, requests).keys() == requests
        assert f"heads {digest[:16]}" in toolrag("usage", "--data", copy)[1]


class TestKills:
    @pytest.fixture
    def documents(self, cloud, tmp_path):
        """Files of documents, the one that is served and shorter ones, by their operations."""
        paths = {number: tmp_path / f"{number}.json" for number in (OPERATIONS, FEWER, FEW)}
        for number, path in paths.items():
            described = document(number) | {"servers": [{"url": f"{cloud.url}/v1"}]}
            path.write_text(json.dumps(described))
        return paths

    def test_an_ingest_leaves_the_old_tools_or_the_new_ones(self, copy, documents):
        written, chance = copy / "sources.json", random.Random(7)
        given = ("--name", "everything-cloud", "--out", copy, "--lexical")
        for turn in range(6):
            before = written.stat().st_mtime_ns
            document = documents[(FEWER, OPERATIONS)[turn % 2]]
            process = started("ingest", "openapi", document, *given)
            if turn % 3:
                time.sleep(chance.uniform(0.3, 1.5))
            else:  # As soon as the first of the two files is written.
                until(lambda before=before: written.stat().st_mtime_ns != before, LIMIT_SECONDS)
            killed(process)
            found = [tool.source for tool in ToolDirectory(copy).tools()]
            assert found.count("everything-cloud") in (OPERATIONS, FEWER)
            assert (found.count("time"), found.count("git")) == (TIME_TOOLS, GIT_TOOLS)

        assert toolrag("ingest", "openapi", documents[FEWER], *given)[0] == 0
        assert counts(copy)["everything-cloud"] == FEWER
        assert [path.name for path in copy.glob(".*.json*")] == []

    def test_an_ingest_that_embedded_is_finished_by_the_next(self, copy, documents):
        for vectors in (copy / "cache").glob("*.journal"):
            vectors.unlink()
        given = ("--name", "everything-cloud", "--out", copy)
        ingest, tools = ("ingest", "openapi", documents[FEW], *given), copy / "tools.jsonl"
        before = tools.read_bytes()
        process = started(*ingest)
        until(lambda: tools.read_bytes() != before, LIMIT_SECONDS)
        time.sleep(random.Random(3).uniform(0.2, 1.5))
        killed(process)

        assert toolrag(*ingest)[0] == 0
        known = sum(counts(copy).values())
        assert f"vectors of {known} tools are cached\n" in toolrag("status", "--data", copy)[1]

    def test_a_server_loses_no_line_of_a_second_ago(self, copy):
        chance, kept = random.Random(11), set()
        tools = (copy / "tools.jsonl").read_bytes()
        for _ in range(ROUNDS):
            answered = []
            with served(copy, "--lexical") as server, ThreadPoolExecutor(4) as threads:
                asking = [threads.submit(ask_on, server, answered, name) for name in "abcd"]
                until(lambda answered=answered: answered, LIMIT_SECONDS)
                time.sleep(FLUSHED_SECONDS + chance.uniform(0.1, 0.8))
                before = time.monotonic() - FLUSHED_SECONDS
                killed(server.process)
                for each in asking:
                    each.result(LIMIT_SECONDS)
            kept |= {call_id for call_id, when in answered if when < before}

        skipped = Skipped()
        records = list(read_usage(copy / "usage", skipped=skipped))
        calls = {record.call_id for record in records if isinstance(record, CallRecord)}
        assert len(kept) >= ROUNDS
        assert kept <= calls
        assert skipped.torn <= ROUNDS
        assert (skipped.foreign, skipped.unknown_version) == (0, 0)
        assert (copy / "tools.jsonl").read_bytes() == tools


def ask_on(server, answered, name):
    """Search and call on and on, until the server is dead; note which calls it answered when."""
    tool = "everything-cloud/commerce/list_order"
    for number in count():
        try:
            search_id = server.search(f"list the orders {name} {number}")["search_id"]
            call_id = server.call(tool, search_id)["call_id"]
        except httpx.TransportError:
            return
        answered.append((call_id, time.monotonic()))
