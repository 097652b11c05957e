"""The model's own search in agents of every kind over 500 tools, from end to end."""

import json
import subprocess
import sys

import pytest
import search_agents
from langgraph.checkpoint.memory import InMemorySaver
from search_agents import (
    AGENTS,
    ScriptedModel,
    answers,
    five_hundred,
    memory_of,
    searches,
    toolrag,
    uses,
)

from langchain_toolrag import SelectionOptions

MODES = ["auto", "deferred", "off"]
FOUND = ["rename_invoice", "rename_bill"]  # What a selection finds for the request.
REQUEST = "rename an invoice"
NO_SUCH_TOOL = "There is no such tool"


def test_there_are_500_tools(five_hundred_tools):
    assert len({tool.name for tool in five_hundred()}) == len(five_hundred_tools.tools) == 500


class TestModes:
    @pytest.mark.parametrize(("mode", "before"), [("auto", FOUND), ("deferred", [])])
    async def test_what_is_found_is_bound_at_the_next_step_and_runs(
        self, agent_of, run, mode, before
    ):
        model = ScriptedModel(script=[searches("merge deed"), uses("merge_deed")])
        result = await run.ask(agent_of(model, search_tool=mode), REQUEST)
        first = ["search_tools", *before]
        assert model.bound == [first, [*first, "merge_deed"], [*first, "merge_deed"]]
        found, ran = answers(result)
        assert found.content == (
            "Available from your next step:\n- merge_deed: Does merge for a deed."
        )
        assert ran.content == "merge_deed [('which', '7')]"

    async def test_off_there_is_no_search_tool(self, agent_of, run):
        model = ScriptedModel(script=[searches("merge deed")])
        result = await run.ask(agent_of(model, search_tool="off"), REQUEST)
        assert model.bound == [FOUND, FOUND]
        (answer,) = answers(result)
        assert answer.status == "error"
        assert len(answer.content) < 300

    async def test_deferred_the_model_starts_with_what_is_always_included(self, agent_of, run):
        rag = toolrag(SelectionOptions(always_include=("count_fleet", "find_route")))
        model = ScriptedModel(script=[searches("merge deed")])
        await run.ask(agent_of(model, rag, search_tool="deferred"), REQUEST)
        start = ["search_tools", "count_fleet", "find_route"]
        assert model.bound == [start, [*start, "merge_deed"]]
        assert rag.tool_index.embedder.embeddings.queries == ["merge deed"]

    @pytest.mark.parametrize("mode", ["auto", "deferred"])
    async def test_two_searches_in_parallel_both_count(self, agent_of, run, mode):
        model = ScriptedModel(script=[searches("merge deed", "select:export_vessel,lock_fence")])
        await run.ask(agent_of(model, search_tool=mode), REQUEST)
        assert set(model.bound[1]) - set(model.bound[0]) == {
            "merge_deed",
            "export_vessel",
            "lock_fence",
        }
        assert model.bound[1][: len(model.bound[0])] == model.bound[0]

    @pytest.mark.parametrize("mode", ["auto", "deferred"])
    async def test_a_search_beside_a_call_of_another_tool(self, agent_of, run, mode):
        both = searches("merge deed")
        both.tool_calls.extend(uses("count_fleet").tool_calls)
        model = ScriptedModel(script=[both])
        await run.ask(agent_of(model, search_tool=mode), REQUEST)
        assert {"merge_deed", "count_fleet"} <= set(model.bound[1])

    @pytest.mark.parametrize("mode", ["auto", "deferred"])
    async def test_what_is_bound_already_is_said_to_be(self, agent_of, run, mode):
        model = ScriptedModel(script=[searches("merge_deed"), searches("merge_deed", start=5)])
        result = await run.ask(agent_of(model, search_tool=mode), REQUEST)
        assert answers(result)[1].content == "Already available: merge_deed."
        assert model.bound[1] == model.bound[2]

    @pytest.mark.parametrize("mode", ["auto", "deferred"])
    async def test_loaded_tools_stay_over_the_turns(self, agent_of, run, thread, mode):
        model = ScriptedModel(script=[searches("merge deed")])
        agent = agent_of(model, search_tool=mode, checkpointer=InMemorySaver())
        for request in (REQUEST, "count the fleet", "find a route", "thanks"):
            await run.ask(agent, request, thread)
        assert all("merge_deed" in bound for bound in model.bound[1:])
        for bound, following in zip(model.bound, model.bound[1:], strict=False):
            assert following[: len(bound)] == bound  # It grows at its end alone.

    @pytest.mark.parametrize("mode", ["auto", "deferred"])
    async def test_never_more_than_max_tools_and_the_search_tool_are_bound(
        self, agent_of, run, thread, mode
    ):
        rag = toolrag(SelectionOptions(k=2, max_tools=5))
        script = [
            searches(f"select:{verb}_deed", start=n)
            for n, verb in enumerate(("merge", "sort", "copy", "lock", "move"))
        ]
        model = ScriptedModel(script=script)
        agent = agent_of(model, rag, search_tool=mode, checkpointer=InMemorySaver())
        await run.ask(agent, REQUEST, thread)
        await run.ask(agent, "count the fleet", thread)
        assert max(map(len, model.bound)) == 5
        assert {bound[0] for bound in model.bound} == {"search_tools"}
        assert "move_deed" in model.bound[5]
        assert ("rename_invoice" in model.bound[5]) is (mode == "auto")  # The best fresh hit.

    async def test_sync_and_async_bind_and_answer_the_same(self, agent_of):
        script = [searches("merge deed", "xyzzy", "deeds_server"), uses("merge_deed")]
        here, there = ScriptedModel(script=script), ScriptedModel(script=script)
        asks = {"messages": [("user", REQUEST)]}
        result = agent_of(here, search_tool=True).invoke(asks)
        aresult = await agent_of(there, search_tool=True).ainvoke(asks)
        assert here.bound == there.bound
        said = [[(m.content, m.artifact) for m in answers(each)] for each in (result, aresult)]
        assert said[0] == said[1]


class TestFruitlessSearches:
    async def test_two_end_with_a_message_that_says_so(self, agent_of, run):
        script = [searches("xyzzy"), searches("plugh", start=1), searches("xyzzy", start=2)]
        result = await run.ask(agent_of(ScriptedModel(script=script), search_tool=True), REQUEST)
        first, second, third = (message.content for message in answers(result))
        assert "Search once more in other words" in first
        assert NO_SUCH_TOOL not in first
        assert NO_SUCH_TOOL in second
        assert NO_SUCH_TOOL in third
        assert max(map(len, (first, second, third))) < 600

    async def test_a_find_in_between_begins_the_count_anew(self, agent_of, run):
        queries = ("xyzzy", "merge_deed", "plugh", "xyzzy")
        script = [searches(query, start=n) for n, query in enumerate(queries)]
        result = await run.ask(agent_of(ScriptedModel(script=script), search_tool=True), REQUEST)
        ended = [NO_SUCH_TOOL in message.content for message in answers(result)]
        assert ended == [False, False, False, True]

    async def test_so_does_the_next_turn(self, agent_of, run, thread):
        script = [searches("xyzzy"), uses(), searches("plugh", start=1)]
        agent = agent_of(
            ScriptedModel(script=script), search_tool=True, checkpointer=InMemorySaver()
        )
        await run.ask(agent, REQUEST, thread)
        result = await run.ask(agent, "once more", thread)
        assert not any(NO_SUCH_TOOL in message.content for message in answers(result))


class TestStreaming:
    async def test_updates_show_the_search_as_a_step(self, agent_of, run):
        model = ScriptedModel(script=[searches("merge deed"), uses("merge_deed")])
        agent = agent_of(model, search_tool=True)
        asks = {"messages": [("user", REQUEST)]}
        parts = await run.stream(agent, asks, stream_mode="updates")
        steps = [(node, update) for part in parts for node, update in part.items() if update]
        said = [message for _, update in steps for message in update.get("messages", ())]
        assert [message.type for message in said] == ["ai", "tool", "ai", "tool", "ai"]
        assert said[1].artifact["toolrag_loaded"] == ["deeds_server/merge_deed"]

    async def test_messages_are_what_model_and_tools_say_and_no_more(self, agent_of, run):
        model = ScriptedModel(script=[searches("merge deed"), uses("merge_deed")])
        agent = agent_of(model, search_tool=True)
        asks = {"messages": [("user", REQUEST)]}
        parts = await run.stream(agent, asks, stream_mode="messages")
        texts = [message.content for message, _ in parts if message.content]
        assert texts == [
            "Available from your next step:\n- merge_deed: Does merge for a deed.",
            "merge_deed [('which', '7')]",
            "done",
        ]


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """Conversations with every agent in every mode, begun in one process, ended in another."""
    pytest.importorskip("langgraph.checkpoint.sqlite")
    database = str(tmp_path_factory.mktemp("stored") / "conversations.sqlite")

    def process(*arguments):
        done = subprocess.run(
            [sys.executable, search_agents.__file__, database, *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    begun = process(REQUEST, "search_tools:merge deed", "merge_deed")
    return begun, process("count the fleet", "merge_deed")


@pytest.mark.parametrize("mode", ["auto", "deferred"])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_new_process_binds_what_the_old_one_loaded(two_processes, agent, mode):
    first, second = (conversations[f"{agent} {mode}"] for conversations in two_processes)
    assert first["bound"][-1][-1] == "merge_deed"
    assert second["bound"][0][: len(first["bound"][-1])] == first["bound"][-1]
    assert second["memory"]["loaded"] == first["memory"]["loaded"] == ["deeds_server/merge_deed"]
    assert second["answers"][-1] == "merge_deed [('which', '7')]"


async def test_a_memory_is_of_names_and_stays_small(agent_of, run, thread):
    script = [searches("deeds_server", "select:merge_deed,lock_fence", "merge a lease")]
    agent = agent_of(ScriptedModel(script=script), search_tool=True, checkpointer=InMemorySaver())
    await run.ask(agent, REQUEST, thread)
    memory = json.dumps(memory_of(agent, thread))
    assert len(memory) < 3_000
    assert "Does merge" not in memory
