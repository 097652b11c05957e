"""What the model is told to be there is there, however little room there is."""

import os

import pytest
from fake_model import ScriptedModel, call, says
from fakes import HashingEmbeddings, make_tool
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest
from langchain_core.messages import HumanMessage
from search_agents import AGENTS, five_hundred, searches, toolrag, uses

from langchain_toolrag import (
    SelectionOptions,
    ToolRAG,
    ToolRAGMiddleware,
    ToolRAGNode,
    create_react_agent,
)
from langchain_toolrag.errors import DuplicateToolError


@pytest.fixture(params=AGENTS)
def agent_of(request):
    def make(model, rag, **given):
        return AGENTS[request.param](model, rag, **given)

    return make


def answers(result):
    return [message.content for message in result["messages"] if message.type == "tool"]


class Bringing(AgentMiddleware):
    """Another middleware with tools of its own, which are always bound."""

    def __init__(self, number):
        super().__init__()
        self.tools = [make_tool(f"foreign_{place}") for place in range(number)]


class TestRoom:
    @pytest.mark.parametrize("max_tools", [2, 3, 4, 5])
    async def test_what_a_search_says_is_there_is_bound(self, agent_of, run, max_tools):
        model = ScriptedModel(script=[searches("select:archive_badge,open_bill,copy_deed")])
        rag = toolrag(SelectionOptions(k=2, max_tools=max_tools))
        result = await run.ask(agent_of(model, rag, search_tool=True), "rename an invoice")
        told = answers(result)[0].partition("not these")[0]
        loaded = [name for name in ("archive_badge", "open_bill", "copy_deed") if name in told]
        assert len(loaded) == max(1, max_tools - 2)
        assert set(loaded) <= set(model.bound[1])
        assert len(model.bound[1]) <= max_tools

    @pytest.mark.parametrize(("foreign", "room"), [(20, 2), (21, 1), (22, 1)])
    async def test_tools_of_other_middlewares_count(self, run, foreign, room):
        model = ScriptedModel(script=[searches("select:archive_badge,open_bill,copy_deed")])
        ours = ToolRAGMiddleware(rag=toolrag(), search_tool=True)
        agent = create_agent(model, middleware=[ours, Bringing(foreign)])
        (answer,) = answers(await run.ask(agent, "rename an invoice"))
        assert answer.count("\n- ") == room
        told = answer.partition("not these")[0]
        loaded = {name for name in ("archive_badge", "open_bill", "copy_deed") if name in told}
        assert loaded <= set(model.bound[1])
        assert len(model.bound[1]) == 24

    async def test_where_no_place_is_left_the_model_is_told(self, run):
        model = ScriptedModel(script=[searches("select:archive_badge,open_bill")])
        ours = ToolRAGMiddleware(rag=toolrag(), search_tool=True)
        agent = create_agent(model, middleware=[ours, Bringing(30)])
        (answer,) = answers(await run.ask(agent, "rename an invoice"))
        assert answer.startswith("No tool more can be made available")
        assert "archive_badge" in answer

    async def test_a_suggested_tool_without_a_place_runs_the_second_time(self, agent_of, run):
        options = SelectionOptions(k=1, max_tools=1, always_include=("open_bill",))
        script = [uses("archive_badge", start=number) for number in range(3)]
        model = ScriptedModel(script=script)
        agent = agent_of(model, toolrag(options), unknown_tool="suggest")
        first, *others = answers(await run.ask(agent, "rename an invoice"))
        assert "call it again" in first
        assert others == ["archive_badge [('which', '7')]"] * 2


class TestTwoMiddlewares:
    @pytest.mark.parametrize("mode", ["auto", "deferred"])
    async def test_each_binds_its_own_tools(self, run, mode):
        first, second = (toolrag(tools=five_hundred()[part]) for part in (_FRONT, _BACK))
        both = says(
            "",
            call("search_tools", "s1", query="archive_badge"),
            call("search_tools_second", "s2", query="send_voucher"),
        )
        model = ScriptedModel(script=[both])
        agent = create_agent(
            model,
            middleware=[
                ToolRAGMiddleware(rag=first, search_tool=mode),
                ToolRAGMiddleware(rag=second, search_tool=mode, name="second"),
            ],
        )
        await run.ask(agent, "open a bill or print a ticket")
        assert {"archive_badge", "send_voucher"} <= set(model.bound[1])
        if mode == "auto":
            assert {"open_bill", "print_ticket"} <= set(model.bound[0])

    async def test_of_one_catalogue_both_bind(self, run):
        rag, model = toolrag(), ScriptedModel()
        middleware = [ToolRAGMiddleware(rag=rag), ToolRAGMiddleware(rag=rag, name="second")]
        await run.ask(create_agent(model, middleware=middleware), "open a bill")
        assert "open_bill" in model.bound[0]


_FRONT, _BACK = slice(0, 250), slice(250, 500)


class TestATwinOfTheSearchTool:
    TOOLS = (*five_hundred()[:5], make_tool("search_tools", "Searches the shed."))

    def test_is_refused_by_a_node_that_is_given_it(self):
        with pytest.raises(DuplicateToolError, match="'search_tools'"):
            ToolRAGNode(self.TOOLS, search_tool=True)

    def test_is_refused_by_a_react_agent(self):
        selector = ToolRAGNode(rag=_empty(), search_tool=True)
        with pytest.raises(DuplicateToolError, match="'search_tools'"):
            create_react_agent(ScriptedModel(), self.TOOLS, tool_selector=selector)

    async def test_is_refused_by_a_middleware_that_adopts_it(self, run):
        ours = ToolRAGMiddleware(rag=_empty(), search_tool=True)
        agent = create_agent(ScriptedModel(), list(self.TOOLS), middleware=[ours])
        with pytest.raises(DuplicateToolError, match="'search_tools'"):
            await run.ask(agent, "archive a badge")


def _empty():
    return ToolRAG(embeddings=HashingEmbeddings())


async def test_a_tool_that_was_removed_does_not_run_any_more(agent_of, run):
    rag = toolrag()
    model = ScriptedModel(script=[uses("archive_badge")])
    agent = agent_of(model, rag)
    rag.remove(["archive_badge"])
    (answer,) = answers(await run.ask(agent, "rename an invoice"))
    assert answer.startswith("Error: archive_badge is not a valid tool.")


def test_with_a_provider_that_searches_a_chosen_search_tool_stays(monkeypatch):
    anthropic = pytest.importorskip("langchain_anthropic")
    monkeypatch.setitem(os.environ, "ANTHROPIC_API_KEY", "none")
    ours = ToolRAGMiddleware(rag=toolrag(), search_tool=True, provider="auto")
    seen = []
    request = ModelRequest(
        model=anthropic.ChatAnthropic(model="claude-sonnet-4-5"),
        messages=[HumanMessage("rename an invoice")],
        tools=list(ours.tools),
        tool_choice={"type": "tool", "name": "search_tools"},
        state={"messages": []},
        runtime=None,
    )
    ours.wrap_model_call(request, seen.append)
    names = [getattr(tool, "name", None) for tool in seen[0].tools]
    assert "search_tools" in names
    assert seen[0].tool_choice == request.tool_choice
