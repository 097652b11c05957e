"""The SDK's own client, connected in memory."""

import asyncio
import json

import pytest
from fakes import NamedEmbeddings
from mcp.server.lowlevel.server import request_ctx
from mcp.shared.context import RequestContext
from mcp.shared.memory import create_connected_server_and_client_session as connected
from mcp.types import CallToolRequest, CallToolRequestParams
from starlette.testclient import TestClient

from langchain_toolrag.catalogue.sources.stored import CallResult
from langchain_toolrag.server import app
from langchain_toolrag.server.mcp_endpoint import mcp_server
from langchain_toolrag.server.options import ServerOptions
from langchain_toolrag.server.services import Services

SECRET = "s3cret-of-the-server"


@pytest.fixture
def services(directory):
    return Services(directory, ServerOptions(), embeddings=NamedEmbeddings(), environment={})


@pytest.fixture
def ask(services):
    """Calls one of the two tools; every call has a session of its own."""

    async def ask(tool, /, **arguments):
        async with services.running(), connected(mcp_server(services)) as session:
            result = await session.call_tool(tool, arguments)
        return result.content[0].text, result

    return ask


@pytest.fixture
async def handle(services):
    """Calls one of the two tools with what no client could send."""

    async def handle(tool, arguments):
        request_ctx.set(RequestContext(1, None, None, None))
        params = CallToolRequestParams(name=tool, arguments=arguments)
        handler = mcp_server(services).request_handlers[CallToolRequest]
        return await handler(CallToolRequest(params=params))

    async with services.running():
        yield handle


async def test_there_are_two_tools_and_what_they_are_for(services):
    async with connected(mcp_server(services)) as session:
        listed = (await session.list_tools()).tools

    assert [tool.name for tool in listed] == ["search_tools", "call_tool"]
    assert listed[0].annotations.readOnlyHint is True
    assert listed[1].annotations.destructiveHint is False


async def test_where_writing_is_allowed_calls_say_that_they_may_destroy(directory):
    options = ServerOptions(allow_write=True)
    services = Services(directory, options, embeddings=NamedEmbeddings())
    async with connected(mcp_server(services)) as session:
        listed = (await session.list_tools()).tools
    assert listed[1].annotations.destructiveHint is True


async def test_a_search_tells_what_a_call_takes(ask):
    text, result = await ask("search_tools", query="is it warm or cold in the city")
    answer = json.loads(text)

    assert not result.isError
    assert answer["tools"][0]["name"] == "home__get_weather"
    assert answer["tools"][0]["inputSchema"]["properties"] == {"city": {"type": "string"}}
    assert answer["search_id"].startswith("s-")


async def test_a_search_that_finds_nothing_helps_to_search_on(ask):
    text, result = await ask("search_tools", query="select:get_wether")

    assert not result.isError
    assert "No tool is named get_wether" in text
    assert "get_weather" in text


@pytest.mark.parametrize("asked", [0, -5, 1_000])
async def test_any_number_of_results_is_taken_for_one_that_can_be(ask, asked):
    text, result = await ask("search_tools", query="weather", max_results=asked)
    assert not result.isError
    assert json.loads(text)["tools"]


async def test_a_tool_that_was_found_is_run(ask):
    text, result = await ask("call_tool", name="home__get_weather", arguments={"city": "delhi"})
    assert (text, result.isError) == ("rain in delhi", False)


async def test_a_tools_error_comes_with_what_it_takes(ask):
    text, result = await ask("call_tool", name="home__send_email", arguments={"to": "anna"})

    assert result.isError
    assert "no mail server for anna" in text
    assert '"properties"' in text


async def test_an_unknown_tool_is_an_error_that_names_the_closest(ask):
    text, result = await ask("call_tool", name="home__get_wether", arguments={})

    assert result.isError
    assert "home__get_weather" in text


async def test_what_may_not_be_written_is_refused(ask):
    text, result = await ask("call_tool", name="disk__delete_file", arguments={})

    assert result.isError
    assert "--allow-write" in text


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("search_tools", {}),
        ("search_tools", {"query": 5}),
        ("call_tool", {"name": "home__get_weather"}),
        ("call_tool", {"name": "home__get_weather", "arguments": [1]}),
        ("read_mind", {}),
    ],
)
async def test_what_is_no_call_is_an_error(ask, name, arguments):
    _, result = await ask(name, **arguments)
    assert result.isError


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("search_tools", {"query": "select:\ud800"}),
        ("search_tools", {"query": "\ud800 weather"}),
        ("call_tool", {"name": "home__get_weather", "arguments": {"city": "\ud800"}}),
        ("call_tool", {"name": "\ud800", "arguments": {}}),
    ],
)
async def test_half_a_character_ends_no_session(handle, tool, arguments):
    result = await handle(tool, arguments)
    assert result.model_dump_json()  # What cannot be written ends a server over stdio.


async def test_half_a_character_is_no_failure_of_the_model(services, handle):
    while services.serving.mode == "lexical":
        await asyncio.sleep(0.01)
    result = await handle("search_tools", {"query": "\ud800 in the city"})

    assert "note" not in json.loads(result.root.content[0].text)


@pytest.mark.parametrize("nested", [5, 1_000])
async def test_a_result_that_is_nested_too_deeply_is_told_as_text_alone(
    services, nested, monkeypatch
):
    deep = {}
    for _ in range(nested):
        deep = {"a": deep}

    class Calls:
        async def call(self, tool, arguments):
            return CallResult("ok", "deep", deep)

        async def aclose(self):
            pass

    monkeypatch.setattr(services, "_open_calls", Calls)
    async with services.running(), connected(mcp_server(services)) as session:
        asked = {"name": "home__get_weather", "arguments": {}}
        result = await session.call_tool("call_tool", asked)

    assert result.content[0].text == "deep"
    assert (result.structuredContent is None) == (nested > 100)


async def test_a_number_of_results_may_be_written_with_a_point(ask):
    text, _ = await ask("search_tools", query="home", max_results=2.0)
    assert len(json.loads(text)["tools"]) == 2


async def test_an_unforeseen_error_tells_nothing_of_the_inside(services, monkeypatch, caplog):
    def broken(query, k, /, **given):
        raise RuntimeError(SECRET)

    monkeypatch.setattr(services.serving.current.rag, "find", broken)
    async with services.running(), connected(mcp_server(services)) as session:
        result = await session.call_tool("search_tools", {"query": "weather"})

    assert result.isError
    assert result.content[0].text == "the server failed; its log says why"
    assert "RuntimeError at search_tools" in caplog.text
    assert SECRET not in caplog.text


def test_an_endpoint_that_cannot_be_made_is_an_error_and_keeps_nobody_waiting(
    services, monkeypatch
):
    def missing(services):
        raise ImportError("No module named 'mcp'")

    monkeypatch.setattr(app, "_endpoint", missing)
    client = TestClient(
        app.create_app(services), base_url="http://127.0.0.1", raise_server_exceptions=False
    )
    with client:
        assert client.post("/mcp", json={}).status_code == 500
        assert client.post("/v1/search", json={"query": "weather"}).status_code == 200
