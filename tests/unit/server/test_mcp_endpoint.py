"""The SDK's own client, connected in memory."""

import json

import pytest
from fakes import NamedEmbeddings
from mcp.shared.memory import create_connected_server_and_client_session as connected

from langchain_toolrag.server.mcp_endpoint import mcp_server
from langchain_toolrag.server.options import ServerOptions
from langchain_toolrag.server.services import Services


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
