"""The paragraph of the system prompt that says what can be searched for."""

import json
import random
import subprocess
import sys

import pytest
from fakes import HashingEmbeddings, make_catalogue, make_tool
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import SystemMessage
from langchain_core.messages.utils import count_tokens_approximately

from langchain_toolrag import ToolRAG
from langchain_toolrag.integrations.search_prompt import search_prompt
from langchain_toolrag.types import ToolFilter

HEAD = "You see only some of your tools; search_tools finds the others. "
END = (
    ". Before you say that something cannot be done, search for a tool that does it with "
    "search_tools."
)
laws = settings(derandomize=True, deadline=None, max_examples=50)


def toolrag(tools):
    return ToolRAG(tools, embeddings=HashingEmbeddings())


def tagged(name, *tags, server=None):
    return make_tool(name, server=server).model_copy(update={"tags": list(tags)})


def many(servers, tools_each=1, tags=()):
    return [
        tagged(f"tool_{server}_{n}", *tags, server=f"server_{server:03d}")
        for server in range(servers)
        for n in range(tools_each)
    ]


def test_it_names_servers_and_numbers_the_largest_first_and_no_tool():
    text = search_prompt(toolrag(make_catalogue()))
    assert text == (
        f"{HEAD}There are 12 tools of these servers: calendar (2), github (2), mail (2), "
        f"music (2), weather (2), bank (1), home (1){END}"
    )
    assert not any(tool.name in text for tool in make_catalogue())


def test_it_names_kinds_where_tools_have_tags():
    tools = [tagged("a", "read", server="s"), tagged("b", "read", "write"), make_tool("c")]
    assert search_prompt(toolrag(tools)) == (
        f"{HEAD}There are 3 tools of these servers: s (1); of these kinds: read (2), write (1){END}"
    )


def test_tools_without_servers_are_counted():
    assert search_prompt(toolrag([make_tool("a")])) == f"{HEAD}There is 1 tool{END}"
    assert search_prompt(toolrag([make_tool("a"), make_tool("b")])) == (
        f"{HEAD}There are 2 tools{END}"
    )


def test_a_server_that_stands_in_names_alone_is_named():
    tools = [make_tool(f"mcp__jira__board_{n}") for n in range(3)]
    assert "There are 3 tools of these servers: jira (3)" in search_prompt(toolrag(tools))


def test_without_tools_there_is_nothing_to_say():
    assert search_prompt(toolrag([])) == ""
    assert search_prompt(toolrag([{"type": "web_search_20250305", "name": "web_search"}])) == ""


def test_it_says_by_which_name_to_search():
    text = search_prompt(toolrag(make_catalogue()), tool_name="find_more")
    assert text.count("find_more") == 2
    assert "search_tools" not in text


@pytest.mark.parametrize(
    "only",
    [
        ToolFilter(servers={"mail", "music"}),
        lambda document: document.server in ("mail", "music"),
    ],
    ids=["filter", "function"],
)
def test_what_the_caller_may_not_see_is_neither_named_nor_counted(only):
    assert search_prompt(toolrag(make_catalogue()), filter=only) == (
        f"{HEAD}There are 4 tools of these servers: mail (2), music (2){END}"
    )


def test_nothing_is_said_to_whom_nothing_is_shown():
    nobody = ToolFilter(servers=set())
    assert search_prompt(toolrag(make_catalogue()), filter=nobody) == ""


class TestLength:
    def test_of_many_servers_the_largest_are_named_and_the_others_counted(self):
        tools = [*many(300), *(make_tool(f"big_{n}", server="zebra") for n in range(9))]
        text = search_prompt(toolrag(tools))
        assert "There are 309 tools of these servers: zebra (9), server_000 (1), " in text
        named = text.count("server_")
        assert f", and {300 - named} more" in text

    @pytest.mark.parametrize("max_tokens", [80, 120, 200, 400])
    def test_it_stays_within_its_tokens(self, max_tokens):
        text = search_prompt(
            toolrag(many(300, tags=["read", "write", "admin"])), max_tokens=max_tokens
        )
        message = [SystemMessage(text)]
        assert count_tokens_approximately(message, extra_tokens_per_message=0) <= max_tokens + 5
        assert text.startswith(HEAD)
        assert text.endswith(END)

    @pytest.mark.parametrize("max_tokens", [0, 10, 50, 60, 62, 64, 66])
    def test_too_little_room_leaves_names_out_and_breaks_no_sentence(self, max_tokens):
        text = search_prompt(toolrag(many(300)), max_tokens=max_tokens)
        assert text.startswith(f"{HEAD}There are 300 tools")
        assert text.endswith(END)
        assert ": and" not in text
        assert ": ." not in text

    def test_the_default_is_at_most_two_hundred_tokens_for_any_catalogue(self):
        tools = [
            tagged(f"t{n}", f"kind{n}", server=f"a_server_with_quite_a_long_name_{n:04d}")
            for n in range(1_000)
        ]
        assert len(search_prompt(toolrag(tools))) <= 200 * 4


class TestStability:
    def test_equal_catalogues_in_any_order_give_equal_text(self):
        tools = [*make_catalogue(), *many(20, 2, ["read", "write"])]
        texts = set()
        for seed in range(5):
            random.Random(seed).shuffle(tools)
            texts.add(search_prompt(toolrag(tools)))
        assert len(texts) == 1

    def test_another_process_with_another_hash_seed_gives_the_same_text(self):
        script = (
            "import sys, json; sys.path.insert(0, sys.argv[1])\n"
            "from fakes import HashingEmbeddings\n"
            "from langchain_core.tools import StructuredTool\n"
            "from langchain_toolrag import ToolRAG\n"
            "from langchain_toolrag.integrations.search_prompt import search_prompt\n"
            "tools = [StructuredTool(name=f't{n}', description='', args_schema={'type': 'object',"
            " 'properties': {}}, func=print, metadata={'server': f's{n % 7}'},"
            " tags=['x', 'y', 'z']) for n in range(40)]\n"
            "rag = ToolRAG(tools, embeddings=HashingEmbeddings())\n"
            "print(json.dumps(search_prompt(rag)))\n"
        )
        folder = next(path for path in sys.path if path.endswith("tests"))
        texts = {
            json.loads(
                subprocess.run(
                    [sys.executable, "-c", script, folder],
                    env={"PYTHONHASHSEED": seed, "PATH": ""},
                    capture_output=True,
                    check=True,
                    text=True,
                ).stdout
            )
            for seed in ("1", "2")
        }
        assert len(texts) == 1

    def test_a_request_changes_nothing(self):
        rag = toolrag(make_catalogue())
        before = search_prompt(rag)
        rag.select("play a song")
        rag.report_server("notion", "still connecting")
        assert search_prompt(rag) == before


@laws
@given(
    st.lists(st.integers(1, 5), max_size=60),
    st.integers(0, 300),
)
def test_it_never_names_more_or_fewer_than_there_are(sizes, max_tokens):
    tools = [
        make_tool(f"t_{server}_{n}", server=f"s{server}")
        for server, size in enumerate(sizes)
        for n in range(size)
    ]
    text = search_prompt(toolrag(tools), max_tokens=max_tokens)
    if "servers: " in text:
        listed = text.split("servers: ")[1].split(". Before")[0].split(", ")
        more = listed.pop().removeprefix("and ").removesuffix(" more") if " more" in text else "0"
        assert len(listed) + int(more) == len(sizes)
