import asyncio

import pytest
from cases_loading import VALID_NAME, about, answer_of, entry_of, make_tool, named, read, run, shown
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp.types import ListToolsResult

from langchain_toolrag import ToolRAG
from langchain_toolrag.errors import DuplicateToolError

FILE = "14_mcp_lists"


class PagedSession:
    """Stands in for an MCP session whose server lists its tools page by page."""

    def __init__(self, first, following):
        self.pages = {None: first, first["nextCursor"]: following}

    async def list_tools(self, cursor=None, **_):
        return ListToolsResult.model_validate(self.pages[cursor])


def _tools(payload, server):
    return [make_tool(definition, server) for definition in read(FILE)[payload]["tools"]]


def _notes():
    return _tools("server_notes", "notes")


def _wiki():
    return _tools("server_wiki", "wiki") + _tools("server_wiki_page2", "wiki")


def _names(rag, query):
    return [tool.name for tool in named(rag, rag.search(query, 3))]


@about(FILE, "load-both")
def test_two_servers_with_one_name_in_common_are_refused_by_default(minilm, case):
    assert case["expect"]["search_clash"]
    with pytest.raises(DuplicateToolError, match=r"'search'.*server notes.*server wiki"):
        ToolRAG([*_notes(), *_wiki()], embeddings=minilm)


@about(FILE, "load-both")
def test_two_servers_with_every_oddity_are_loaded_together(minilm, case):
    rag = ToolRAG([*_notes(), *_wiki()], embeddings=minilm, on_duplicate="prefix")
    rag.index()
    bound = [entry.document.bound_name for entry in rag.catalogue]
    assert rag.indexed
    assert len(bound) == len(set(bound)) == case["expect"]["count"]
    assert {"notes_search", "wiki_search", "notes_create"} <= set(bound)
    assert {"notes/notes.create", "notes/notes_create"} <= set(rag.catalogue.entries)
    runnable = {tool.name: tool for tool in rag.tools}
    for entry in rag.catalogue:
        document = entry.document
        assert VALID_NAME.fullmatch(document.bound_name)
        assert convert_to_openai_tool(entry.bound)["function"]["name"] == document.bound_name
        answer = run(runnable[document.bound_name])
        assert answer.startswith(answer_of(document.name, document.server))


@about(FILE, "long-name-65")
def test_a_name_one_character_too_long_is_bound_under_a_shorter_one(minilm, case):
    rag = ToolRAG(_wiki(), embeddings=minilm)
    [long] = [tool.name for tool in _wiki() if len(tool.name) > 64]
    bound = entry_of(rag, long).document.bound_name
    assert case["expect"].startswith(long[:12])
    assert bound != long
    assert VALID_NAME.fullmatch(bound)
    assert bound in rag.select("export a space").names


@about(FILE, "refresh")
def test_a_changed_list_of_tools_is_taken_in(minilm, case):
    expect, rag = case["expect"], ToolRAG(_notes(), embeddings=minilm)
    rag.index()
    assert "ping" in _names(rag, "ping")
    changes = rag.refresh(_tools("server_notes_after_list_changed", "notes"))
    for kind in ("added", "removed", "changed"):
        assert set(getattr(changes, kind)) == {f"notes/{name}" for name in expect[kind]}
    assert _names(rag, "due date")[:1] == [expect["search('due date')"]], shown(
        named(rag, rag.search("due date", 3))
    )
    assert "ping" not in _names(rag, "ping")
    assert "ping" not in rag.select("ping").names
    assert rag.text_search("ping") == []


@about(FILE, "paging")
def test_a_tool_of_the_second_page_is_found(minilm, case):
    assert case["expect"] == "restore of page 2 is found"
    lists = read(FILE)
    session = PagedSession(lists["server_wiki"], lists["server_wiki_page2"])
    tools = asyncio.run(load_mcp_tools(session))
    rag = ToolRAG(tools, embeddings=minilm)
    assert len(rag.catalogue) == 4
    assert _names(rag, "bring back a deleted page")[:1] == ["restore"]
