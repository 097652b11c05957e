import pytest
from cases_loading import (
    about,
    answer_of,
    entry_of,
    make_tool,
    missed,
    ordinary_tools,
    read,
    run,
    settle,
    unbindable,
)

from langchain_toolrag import ToolRAG, ToolRAGMiddleware
from langchain_toolrag.errors import InvalidToolError

FILE = "03_odd_names"
APART = {"truncation-twins-2", "empty"}


def _usual():
    return [case["id"] for case in read(FILE)["cases"] if case["id"] not in APART]


@about(FILE, *_usual())
def test_a_tool_of_an_odd_name_is_found_and_bound(rag_with, case):
    name, expect = case["tool"]["name"], dict(case["expect"])
    rag = rag_with(make_tool(case["tool"]))
    for key in ("no_error", "bind"):  # Every one of these tools is searched for and bound.
        expect.pop(key, None)
    lacking = missed(rag, name, expect.pop("find", []), by_words=False)
    lacking += missed(rag, name, [name], by_words=False)
    lacking += unbindable(rag, name)
    assert not expect, "an expectation that nothing checks"
    settle(lacking)


@about(FILE, "len-64", "leading-digit", "kebab", "acronym", "python-keywordish")
def test_a_name_that_can_be_bound_is_left_alone(rag_with, case):
    tool = make_tool(case["tool"])
    entry = entry_of(rag_with(tool), tool.name)
    assert entry.document.bound_name == tool.name
    assert entry.bound is tool


@about(FILE, "truncation-twins-2")
def test_names_that_differ_at_their_end_stay_apart(rag_with, case):
    writer = case["tool"]
    reader = {**writer, "name": writer["name"].replace("_write", "_read")}
    rag = rag_with(make_tool(writer), make_tool(reader))
    names = {entry_of(rag, tool["name"]).document.bound_name for tool in (reader, writer)}
    assert len(names) == 2
    settle(unbindable(rag, reader["name"]) + unbindable(rag, writer["name"]))


@about(FILE, "empty")
def test_a_tool_without_a_name_is_refused(minilm, case):
    tool = make_tool(case["tool"])
    with pytest.raises(InvalidToolError, match="a tool needs a name"):
        ToolRAG([*ordinary_tools(), tool], embeddings=minilm)


@about(FILE, "search-tool-clash")
def test_no_two_tools_are_bound_under_the_name_of_a_search_tool(rag_with, case):
    name = case["tool"]["name"]
    rag = rag_with(make_tool(case["tool"]))
    bound = [tool.name for tool in rag.select(f"use {name}").tools]
    brought = [tool.name for tool in ToolRAGMiddleware(rag=rag).tools]
    assert bound.count(name) == brought.count(name) == 1
    [tool] = [tool for tool in rag.tools if tool.name == name]
    assert run(tool).startswith(answer_of(name))
