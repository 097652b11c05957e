"""Tools of real MCP servers, over stdio and over HTTP; each test has a hard time limit."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fake_model import ScriptedModel, call, says
from fakes import HashingEmbeddings
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_mcp_adapters.client import MultiServerMCPClient
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from servers import calendar_server, weather_server

from langchain_toolrag import (
    SelectionOptions,
    ToolRAG,
    ToolRAGMiddleware,
    ToolRAGNode,
    ToolRAGState,
    create_react_agent,
)
from langchain_toolrag.errors import DuplicateToolError
from langchain_toolrag.types import ToolFilter

FOLDER = Path(weather_server.__file__).parent
SERVERS = ("weather", "calendar", "music")
TOOLS_OF = {"weather": 6, "calendar": 7, "music": 8}
LIMIT_SECONDS = 60
FEW = SelectionOptions(k=3)


def stdio(server):
    script = FOLDER / f"{server}_server.py"
    return {"transport": "stdio", "command": sys.executable, "args": [str(script)]}


async def listed(connections):
    """List the tools of servers; the adapters do not say whose a tool is, so it is noted here."""
    client = MultiServerMCPClient(connections)
    tools = []
    for server in connections:
        for tool in await client.get_tools(server_name=server):
            metadata = {**(tool.metadata or {}), "server": server}
            tools.append(tool.model_copy(update={"metadata": metadata}))
    return tools


def within_limit(awaitable):
    return asyncio.wait_for(awaitable, LIMIT_SECONDS)


def list_now(connections):
    """List from where no event loop may be running."""

    async def run():
        return await within_limit(listed(connections))

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, run()).result(LIMIT_SECONDS + 5)


@pytest.fixture(scope="module")
def mcp_tools():
    """The tools of all three servers; each call of one starts its server anew."""
    return list_now({server: stdio(server) for server in SERVERS})


@pytest.fixture
def rag(mcp_tools, embeddings):
    return ToolRAG(mcp_tools, embeddings=embeddings, options=FEW)


def with_middleware(model, rag):
    return create_agent(model, middleware=[ToolRAGMiddleware(rag=rag)])


def react_agent(model, rag):
    return create_react_agent(model, [], tool_selector=ToolRAGNode(rag=rag))


def node_in_a_graph(model, rag):
    selector = ToolRAGNode(rag=rag)

    async def agent(state: ToolRAGState) -> dict:
        bound = model.bind_tools(selector.tools_for(state))
        return {"messages": [await bound.ainvoke(state["messages"])]}

    graph = StateGraph(ToolRAGState)
    graph.add_node(selector)
    graph.add_node("agent", agent)
    graph.add_node("tools", ToolNode(selector.tools))
    graph.add_edge(START, "tool_selector")
    graph.add_edge("tool_selector", "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "tool_selector")
    return graph.compile()


@pytest.fixture(
    params=[with_middleware, react_agent, node_in_a_graph],
    ids=["middleware", "react agent", "node"],
)
def build(request):
    return request.param


async def answers(agent, request):
    result = await within_limit(agent.ainvoke({"messages": [("user", request)]}))
    return [message for message in result["messages"] if isinstance(message, ToolMessage)]


def text(message):
    return " ".join(block["text"] for block in message.content)


class TestTheCatalogue:
    def test_all_tools_are_indexed_each_under_its_server(self, rag):
        documents = rag.tool_index.documents

        assert Counter(document.server for document in documents) == TOOLS_OF
        assert "weather/get_weather" in {document.id for document in documents}
        assert rag.status.rejected == {}

    def test_parameters_and_their_values_are_indexed(self, rag):
        by_name = {document.name: document for document in rag.tool_index.documents}

        assert by_name["get_weather"].parameters == ("city", "units")
        assert {"metric", "imperial"} <= set(by_name["get_weather"].values)
        assert by_name["respond_to_invitation"].description.startswith("Accept or decline")

    @pytest.mark.parametrize(
        ("request_text", "wanted"),
        [
            ("is it raining in a city", "weather/get_weather"),
            ("cancel a meeting", "calendar/delete_calendar_event"),
            ("play the next song", "music/skip_to_next_track"),
        ],
    )
    def test_a_request_finds_the_tool_of_the_right_server(self, rag, request_text, wanted):
        assert wanted in [hit.id for hit in rag.search(request_text, 3)]

    def test_a_filter_by_server_works(self, rag):
        hits = rag.search("play a song", 5, ToolFilter(servers=frozenset(["calendar"])))

        assert len(hits) == 5
        assert {hit.id.split("/")[0] for hit in hits} == {"calendar"}

    def test_listing_again_changes_and_embeds_nothing(self, rag, mcp_tools, embeddings):
        rag.index()
        before = len(embeddings.texts)
        again = [tool.model_copy() for tool in mcp_tools]
        changes = rag.refresh(again)
        rag.index()

        assert str(changes) == "+0 ~0 -0 =21"
        assert len(embeddings.texts) == before > 0
        selected = rag.select("cancel a meeting").tools
        assert all(any(tool is new for new in again) for tool in selected)


class TestCalls:
    async def test_a_selected_tool_answers_over_stdio(self, build, rag):
        model = ScriptedModel(script=[says("", call("get_weather", city="delhi")), says("There.")])
        (answer,) = await answers(build(model, rag), "is it raining or sunny in the city of delhi")

        assert text(answer) == weather_server.get_weather("delhi")
        assert answer.name == "get_weather"
        assert "get_weather" in model.bound[0]
        assert len(model.bound[0]) == 3
        assert model.bound[1] == model.bound[0]

    async def test_tools_of_two_servers_answer_at_once(self, build, rag):
        both = says(
            "",
            call("get_uv_index", "a", city="delhi"),
            call("list_calendar_events", "b", day="Friday"),
        )
        model = ScriptedModel(script=[both, says("There.")])
        found = await answers(build(model, rag), "do I need sunscreen at Friday's meeting")

        assert [text(answer) for answer in found] == [
            weather_server.get_uv_index("delhi"),
            calendar_server.list_calendar_events("Friday"),
        ]
        assert {"get_uv_index", "list_calendar_events"} <= set(model.bound[1])

    async def test_a_tools_error_reaches_the_model_and_the_tool_stays(self, build, rag):
        script = [says("", call("delete_calendar_event", event_id="evt_99")), says("No such one.")]
        model = ScriptedModel(script=script)
        (answer,) = await answers(build(model, rag), "cancel a meeting")

        assert answer.status == "error"
        assert "no event 'evt_99'" in text(answer)
        assert "delete_calendar_event" in model.bound[1]


@pytest.fixture(scope="module")
def twins():
    return list_now({"north": stdio("weather"), "south": stdio("weather")})


class TestTwoServersWithTheSameTools:
    def test_they_are_refused_by_name_and_server(self, twins):
        with pytest.raises(DuplicateToolError, match=r"server north.*server south") as caught:
            ToolRAG(twins, embeddings=HashingEmbeddings())
        assert "on_duplicate='prefix'" in str(caught.value)

    async def test_they_are_bound_and_run_under_prefixed_names(self, build, twins, embeddings):
        rag = ToolRAG(twins, embeddings=embeddings, options=FEW, on_duplicate="prefix")
        model = ScriptedModel(script=[says("", call("south_get_weather", city="delhi"))])
        (answer,) = await answers(build(model, rag), "is it raining in the south")

        assert text(answer) == weather_server.get_weather("delhi")
        assert "south_get_weather" in model.bound[1]
        assert {tool.name for tool in twins} & set(model.bound[1]) == set()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_open(port, process):
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"no server on port {port}")


SERVE_HTTP = """
import sys
from weather_server import server
server.settings.port = int(sys.argv[1])
server.run("streamable-http")
"""


@pytest.fixture(scope="module")
def http_server():
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE_HTTP, str(port)],
        cwd=FOLDER,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until_open(port, process)
        yield {"transport": "streamable_http", "url": f"http://127.0.0.1:{port}/mcp"}
    finally:
        process.kill()
        process.wait(LIMIT_SECONDS)


async def test_a_selected_tool_answers_over_http(build, http_server, embeddings):
    tools = await within_limit(listed({"weather": http_server}))
    rag = ToolRAG(tools, embeddings=embeddings, options=FEW)
    model = ScriptedModel(script=[says("", call("get_weather", city="delhi")), says("There.")])
    (answer,) = await answers(build(model, rag), "is it raining in the city of delhi")

    assert len(tools) == TOOLS_OF["weather"]
    assert text(answer) == weather_server.get_weather("delhi")
    assert len(model.bound[0]) == 3
