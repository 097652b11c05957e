"""Calls of tools that the model does not see, and tools that a user may not see."""

import dataclasses
import json

import pytest
from fakes import HashingEmbeddings, make_tool
from langgraph.checkpoint.memory import InMemorySaver
from search_agents import (
    AGENTS,
    Arguments,
    ScriptedModel,
    answers,
    five_hundred,
    memory_of,
    searches,
    uses,
)

from langchain_toolrag import SelectionOptions, ToolRAG
from langchain_toolrag.types import ToolFilter

REQUEST = "rename an invoice"
MODES = ["auto", "deferred", "off"]


class TestRun:
    @pytest.mark.parametrize("mode", MODES)
    async def test_a_tool_that_was_not_bound_runs_and_is_bound_next(self, agent_of, run, mode):
        model = ScriptedModel(script=[uses("merge_deed")])
        result = await run.ask(agent_of(model, search_tool=mode), REQUEST)
        (ran,) = answers(result)
        assert (ran.content, ran.status) == ("merge_deed [('which', '7')]", "success")
        assert "merge_deed" not in model.bound[0]
        assert "merge_deed" in model.bound[1]


class TestSuggest:
    @pytest.mark.parametrize("mode", ["auto", "off"])
    async def test_it_is_bound_first_and_runs_when_called_again(self, agent_of, run, mode):
        model = ScriptedModel(script=[uses("merge_deed"), uses("merge_deed", start=1)])
        agent = agent_of(model, search_tool=mode, unknown_tool="suggest")
        suggested, ran = answers(await run.ask(agent, REQUEST))
        assert suggested.status == "error"
        assert "call it again" in suggested.content
        assert len(suggested.content) < 300
        assert "merge_deed" in model.bound[1]
        assert ran.content == "merge_deed [('which', '7')]"

    async def test_it_holds_before_anything_is_bound(self, agent_of, run):
        model = ScriptedModel(script=[uses("merge_deed"), uses("merge_deed", start=1)])
        agent = agent_of(model, search_tool="deferred", unknown_tool="suggest")
        first, second = answers(await run.ask(agent, REQUEST))
        assert model.bound[0] == ["search_tools"]
        assert (first.status, second.status) == ("error", "success")
        assert model.bound[1] == ["search_tools", "merge_deed"]

    async def test_what_is_bound_runs_at_once(self, agent_of, run):
        model = ScriptedModel(script=[uses("rename_invoice")])
        agent = agent_of(model, search_tool=True, unknown_tool="suggest")
        (ran,) = answers(await run.ask(agent, REQUEST))
        assert ran.status == "success"

    async def test_the_search_tool_runs_at_once(self, agent_of, run):
        model = ScriptedModel(script=[searches("merge deed"), uses("merge_deed")])
        agent = agent_of(model, search_tool=True, unknown_tool="suggest")
        assert [m.status for m in answers(await run.ask(agent, REQUEST))] == ["success"] * 2

    async def test_two_unseen_tools_at_once_are_both_bound(self, agent_of, run):
        both = uses("merge_deed", "lock_fence")
        model = ScriptedModel(script=[both, uses("merge_deed", "lock_fence", start=5)])
        agent = agent_of(model, search_tool=True, unknown_tool="suggest")
        said = answers(await run.ask(agent, REQUEST))
        assert [message.status for message in said] == ["error"] * 2 + ["success"] * 2
        assert {"merge_deed", "lock_fence"} <= set(model.bound[1])

    async def test_a_tool_that_was_suggested_stays(self, agent_of, run, thread):
        model = ScriptedModel(script=[uses("merge_deed")])
        agent = agent_of(
            model, search_tool=True, unknown_tool="suggest", checkpointer=InMemorySaver()
        )
        await run.ask(agent, REQUEST, thread)
        await run.ask(agent, "count the fleet", thread)
        assert memory_of(agent, thread)["loaded"] == ["deeds_server/merge_deed"]
        assert all("merge_deed" in bound for bound in model.bound[1:])


@pytest.fixture(scope="module")
def thousand_tools():
    """A thousand tools whose names are as long as providers take them."""
    tools = [
        make_tool(f"tool_{n:04d}_{'long_name_' * 6}"[:64], f"Does {n}.").model_copy(
            update={"args_schema": Arguments}
        )
        for n in range(1_000)
    ]
    return ToolRAG(tools, embeddings=HashingEmbeddings(), options=SelectionOptions(k=2))


class TestUnknownNames:
    @pytest.mark.parametrize("unknown_tool", ["run", "suggest"])
    @pytest.mark.parametrize(
        "name", ["tool_0007_long_name", "tool_0007_" + "long_name_" * 30, "xyzzy", "工具", "tool 1"]
    )
    async def test_are_answered_in_under_300_characters(
        self, agent_of, run, thousand_tools, unknown_tool, name
    ):
        model = ScriptedModel(script=[uses(name)])
        agent = agent_of(model, thousand_tools, search_tool=True, unknown_tool=unknown_tool)
        (answer,) = answers(await run.ask(agent, "does 7"))
        assert answer.status == "error"
        assert len(answer.content) < 300
        assert "search_tools" in answer.content
        assert "is not a valid tool" in answer.content

    async def test_come_with_the_closest_ones(self, agent_of, run):
        model = ScriptedModel(script=[uses("merge_dead")])
        (answer,) = answers(await run.ask(agent_of(model, search_tool=True), REQUEST))
        assert "Closest: merge_deed" in answer.content

    async def test_are_compared_in_any_case(self, agent_of, run):
        model = ScriptedModel(script=[uses("MERGE_DEAD")])
        (answer,) = answers(await run.ask(agent_of(model, search_tool=True), REQUEST))
        assert "Closest: merge_deed" in answer.content


@dataclasses.dataclass
class Person:
    """The context of a run."""

    servers: tuple = ()


def of_person(runtime):
    return ToolFilter(servers=set(runtime.context.servers))


INVOICES = Person(("invoices_server",))


class TestFiltersOfTheRun:
    """What a user may not see is never named, found, suggested, run or counted."""

    @pytest.fixture
    def ask(self, agent_of, run):
        async def ask(model, context=INVOICES, **given):
            agent = agent_of(model, filter=of_person, context_schema=Person, **given)
            return answers(await run.ask(agent, REQUEST, context=context))

        return ask

    @pytest.mark.parametrize("mode", ["auto", "deferred"])
    @pytest.mark.parametrize(
        "query",
        ["merge deed", "select:merge_deed", "deeds_server", "mcp__deeds_server", "merge_ded"],
    )
    async def test_a_search_neither_finds_nor_names_it(self, ask, mode, query):
        model = ScriptedModel(script=[searches(query)])
        (answer,) = await ask(model, search_tool=mode)
        said = answer.content.replace(query, "").replace("merge_deed.", "")
        assert "deed" not in said
        assert all(
            identity.startswith("invoices_") for identity in answer.artifact["toolrag_loaded"]
        )
        assert not any("deed" in name for bound in model.bound for name in bound)

    async def test_what_fits_among_the_permitted_is_found(self, ask):
        model = ScriptedModel(script=[searches("merge"), searches("invoices_server", start=1)])
        by_words, by_server = await ask(model, search_tool="deferred")
        assert by_words.artifact["toolrag_loaded"][0] == "invoices_server/merge_invoice"
        assert len(by_server.artifact["toolrag_loaded"]) == 5

    @pytest.mark.parametrize("unknown_tool", ["run", "suggest"])
    @pytest.mark.parametrize("mode", MODES)
    async def test_a_call_of_it_is_refused_like_one_that_is_not_there(
        self, ask, mode, unknown_tool
    ):
        model = ScriptedModel(script=[uses("merge_deed", "merge_dood")])
        there, not_there = await ask(model, search_tool=mode, unknown_tool=unknown_tool)
        assert there.status == not_there.status == "error"
        assert there.artifact is None
        assert there.content.replace("merge_deed", "X") == not_there.content.replace(
            "merge_dood", "X"
        )
        assert "deed" not in there.content.replace("merge_deed", "")
        assert not any("merge_deed" in bound for bound in model.bound)

    async def test_another_user_of_the_same_agent_may(self, ask):
        model = ScriptedModel(script=[searches("merge_deed"), uses("merge_deed")])
        person = Person(("deeds_server", "invoices_server"))
        found, ran = await ask(model, person, search_tool=True)
        assert found.artifact["toolrag_loaded"] == ["deeds_server/merge_deed"]
        assert ran.status == "success"

    async def test_the_prompt_does_not_count_it(self, run, five_hundred_tools):
        model = ScriptedModel()
        agent = AGENTS["middleware"](
            model,
            five_hundred_tools,
            search_tool=True,
            search_prompt=True,
            filter=of_person,
            context_schema=Person,
        )
        await run.ask(agent, REQUEST, context=INVOICES)
        prompt = model.messages[0][0].content
        assert "There are 25 tools of these servers: invoices_server (25)." in prompt

    async def test_a_right_that_is_taken_away_takes_loaded_tools_away(self, agent_of, run, thread):
        model = ScriptedModel(script=[searches("merge_deed")])
        agent = agent_of(
            model,
            filter=of_person,
            context_schema=Person,
            search_tool="deferred",
            checkpointer=InMemorySaver(),
        )
        await run.ask(agent, REQUEST, thread, context=Person(("deeds_server",)))
        await run.ask(agent, "once more", thread, context=INVOICES)
        assert model.bound == [["search_tools"], ["search_tools", "merge_deed"], ["search_tools"]]
        assert "deed" not in json.dumps(memory_of(agent, thread))


def test_the_made_up_tools_are_as_other_tests_take_them(five_hundred_tools):
    assert "invoices_server/merge_invoice" in five_hundred_tools.catalogue.entries
    assert sum("deed" in tool.name for tool in five_hundred()) == 25
