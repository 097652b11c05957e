"""A ToolRAG over the live servers of a client, and what it does as their tools change."""

import asyncio
import sys
import time
from pathlib import Path

import pytest
from langchain_core.messages import ToolMessage
from langchain_mcp_adapters.client import MultiServerMCPClient
from mcp_running import SCRIPT, HttpServer

from langchain_toolrag import ToolRAG
from langchain_toolrag.catalogue.sources.mcp import live
from langchain_toolrag.catalogue.sources.mcp.client import list_mcp_tools
from langchain_toolrag.errors import DuplicateToolError

WEATHER = str(Path(__file__).parents[2] / "examples" / "servers" / "weather_server.py")
DOWN = {"transport": "streamable_http", "url": "http://127.0.0.1:9/mcp"}
LIMIT_SECONDS = 60


def stdio(script=SCRIPT, **environment):
    return {
        "transport": "stdio",
        "command": sys.executable,
        "args": [script],
        "env": environment or None,
    }


@pytest.fixture
def connected(embeddings):
    """Make a ToolRAG over servers; it is closed at the end."""
    made = []

    async def connect(client_given=None, **connections):
        client = MultiServerMCPClient(connections, **(client_given or {}))
        given = {"embeddings": embeddings, "debounce_ms": 50}
        making = ToolRAG.from_mcp(client, **given)
        made.append(await asyncio.wait_for(making, LIMIT_SECONDS))
        return made[-1]

    yield connect
    for rag in made:
        rag.close()


@pytest.fixture
def http_server():
    server = HttpServer()
    yield server
    server.end()


def tool_of(rag, name):
    return next(tool for tool in rag.tools if tool.name == name)


async def called(rag, name, /, **arguments):
    call = {"name": name, "args": arguments, "id": "1", "type": "tool_call"}
    message = await asyncio.wait_for(tool_of(rag, name).ainvoke(call), LIMIT_SECONDS)
    assert isinstance(message, ToolMessage)
    return message.content[0]["text"]


async def until(condition):
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def ids(rag):
    return list(rag.catalogue.entries)


class TestListing:
    async def test_all_servers_are_listed_in_order(self, connected):
        rag = await connected(weather=stdio(WEATHER), odd=stdio(ODD_LIST="25"))
        servers = [document.server for document in rag.catalogue.documents]
        assert servers == ["weather"] * 6 + ["odd"] * 25
        assert rag.status.unavailable == {}

    async def test_one_that_is_down_leaves_the_others(self, connected):
        rag = await connected(down=DOWN, weather=stdio(WEATHER), bad=stdio(ODD_LIST="twice"))
        assert len(rag.catalogue) == 6
        assert "All connection attempts failed" in rag.status.unavailable["down"]
        assert "lists the tool 'tool_1' twice" in rag.status.unavailable["bad"]
        assert (await called(rag, "get_weather", city="delhi")).startswith("delhi: ")

    async def test_one_whose_tools_cannot_be_made_leaves_the_others(self, connected, monkeypatch):
        convert = live.convert_mcp_tool_to_langchain_tool

        def converting(over, tool, *, server_name, **given):
            if server_name == "odd":
                raise TypeError("no such shape")
            return convert(over, tool, server_name=server_name, **given)

        monkeypatch.setattr(live, "convert_mcp_tool_to_langchain_tool", converting)
        rag = await connected(odd=stdio(), weather=stdio(WEATHER))
        assert len(rag.catalogue) == 6
        assert rag.status.unavailable["odd"] == "odd: TypeError: no such shape"

    async def test_they_are_listed_all_at_once(self):
        slow = {"transport": "stdio", "command": sys.executable, "args": ["-c", SLOW]}
        client = MultiServerMCPClient({name: slow for name in "abcd"})
        start = time.monotonic()
        listed = await asyncio.wait_for(list_mcp_tools(client), LIMIT_SECONDS)
        assert sorted(listed.failed) == ["a", "b", "c", "d"]
        assert time.monotonic() - start < 4 * 1.5

    async def test_two_servers_with_the_same_tools_are_bound_under_prefixed_names(self, connected):
        rag = await connected(north=stdio(WEATHER), south=stdio(WEATHER))
        assert await called(rag, "south_get_weather", city="x") == await called(
            rag, "north_get_weather", city="x"
        )

    async def test_or_refused_and_their_sessions_end(self, embeddings):
        client = MultiServerMCPClient({"north": stdio(WEATHER), "south": stdio(WEATHER)})
        with pytest.raises(DuplicateToolError, match=r"server north.*server south"):
            await ToolRAG.from_mcp(client, embeddings=embeddings, on_duplicate="raise")


SLOW = "import time; time.sleep(1.5)"


class TestChanges:
    @pytest.mark.parametrize("transport", ["stdio", "http"])
    async def test_a_tool_that_appears_is_found_and_called(self, connected, http_server, transport):
        over = {"transport": "streamable_http", "url": http_server.url}
        odd = stdio() if transport == "stdio" else over
        rag = await connected(first=stdio(WEATHER), odd=odd)
        before = ids(rag)
        rag.index()
        await called(rag, "grow")
        await until(lambda: "odd/extra" in ids(rag))

        assert ids(rag) == [*before, "odd/extra"]
        assert await called(rag, "extra", city="Rome") == "two for Rome"
        await until(lambda: rag.indexed)
        assert rag.select("buy football tickets").names[0] == "extra"

    async def test_a_burst_of_notices_costs_one_listing_of_that_server_alone(self, connected):
        rag = await connected(first=stdio(WEATHER), odd=stdio())
        weather = {tool.name: tool for tool in rag.tools if "weather" in tool.name}
        version = rag.status.version
        await called(rag, "grow")
        await until(lambda: rag.status.version > version)
        await asyncio.sleep(0.3)

        assert rag.status.version == version + 1
        assert all(tool_of(rag, name) is tool for name, tool in weather.items())

    async def test_one_that_is_heard_before_anyone_watches_is_told_then(self):
        client = MultiServerMCPClient({"odd": stdio()})
        servers, told = live.LiveServers(client, 0.01), []
        try:
            await servers.list_all()
            await servers._loop.run(servers._refresh("odd"))
            servers.watch(lambda server, tools: told.append((server, len(tools))))
            await until(lambda: told)
        finally:
            await asyncio.to_thread(servers.close)
        assert told == [("odd", 13)]

    async def test_tools_that_the_user_added_stay(self, connected):
        def own(x: int) -> int:
            """Do something of our own."""
            return x

        rag = await connected(odd=stdio())
        rag.add([own])
        await called(rag, "grow")
        await until(lambda: "odd/extra" in ids(rag))
        assert ids(rag)[-1] == "own"

    async def test_a_listing_that_fails_keeps_the_old_tools_and_says_so(self, connected):
        rag = await connected(odd=stdio(), first=stdio(WEATHER))
        before = ids(rag)
        await called(rag, "rot")
        await until(lambda: rag.status.unavailable)

        assert ids(rag) == before
        problem = rag.status.unavailable["odd"]
        assert "the list is lost" in problem
        assert "its tools are those it had before" in problem

    async def test_after_close_nothing_is_listed_any_more(self, connected):
        rag = await connected(odd=stdio())
        before = ids(rag)
        await called(rag, "grow")
        await asyncio.to_thread(rag.close)
        await asyncio.sleep(0.3)
        assert ids(rag) == before


class TestCalls:
    async def test_they_share_the_servers_session(self, connected):
        rag = await connected(odd=stdio())
        processes = {await called(rag, "process") for _ in range(3)}
        assert len(processes) == 1

    async def test_with_interceptors_each_has_a_session_of_its_own_as_the_clients_have(
        self, connected, http_server
    ):
        async def signed(request, handler):
            return await handler(request.override(headers={"X-User": "ada"}))

        odd = {"transport": "streamable_http", "url": http_server.url, "headers": {}}
        rag = await connected({"tool_interceptors": [signed]}, odd=odd)
        assert await called(rag, "header", name="X-User") == "ada"

    def test_they_outlive_the_event_loop_that_listed_them(self, connected):
        rag = asyncio.run(connected(odd=stdio()))
        assert asyncio.run(called(rag, "echo", text="one")) == "one"
        assert asyncio.run(called(rag, "echo", text="two")) == "two"

    async def test_a_call_whose_server_dies_raises_and_the_next_starts_it_anew(self, connected):
        rag = await connected(odd=stdio())
        with pytest.raises(ConnectionError, match="may have been carried out or not"):
            await called(rag, "crash")
        assert await called(rag, "echo", text="again") == "again"
