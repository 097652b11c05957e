"""The search tool by itself: outside an agent, and as LangChain's own tests want a tool to be."""

import json

import pytest
from conversations import user
from fakes import BrokenEmbeddings, HashingEmbeddings, make_catalogue, make_tool
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware, TodoListMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests
from langgraph.checkpoint.memory import InMemorySaver
from search_agents import AGENTS, TWO, ScriptedModel, memory_of, searches, toolrag, uses

from langchain_toolrag import SelectionOptions, ToolRAG, ToolRAGMiddleware, ToolRAGNode
from langchain_toolrag.integrations.search_tool import SEARCH_TOOL, create_search_tool
from langchain_toolrag.types import ToolFilter

LOADED = "toolrag_loaded"


class _Standard:
    @property
    def tool_constructor(self):
        return create_search_tool(ToolRAG(make_catalogue(), embeddings=HashingEmbeddings()))

    @property
    def tool_invoke_params_example(self):
        return {"query": "current weather in a city"}


class TestByLangChainsUnitTests(_Standard, ToolsUnitTests):
    pass


class TestByLangChainsIntegrationTests(_Standard, ToolsIntegrationTests):
    pass


def asks(call_id="s1", **arguments):
    return {"type": "tool_call", "name": SEARCH_TOOL, "id": call_id, "args": arguments}


@pytest.fixture
def search(rag):
    return create_search_tool(rag)


class TestByItself:
    async def test_a_call_is_answered_by_a_message_with_the_ids_in_its_artifact(self, search, run):
        message = await run.invoke(search, asks(query="play a song"))
        assert isinstance(message, ToolMessage)
        assert (message.tool_call_id, message.name, message.status) == (
            "s1",
            SEARCH_TOOL,
            "success",
        )
        assert "play_song" in message.content
        assert message.artifact[LOADED][0] == "music/play_song"

    async def test_without_a_call_the_answer_is_its_text(self, search, run):
        text = await run.invoke(search, {"query": "select:send_email"})
        assert text == ("Available from your next step:\n- send_email: Sends an email to somebody.")

    async def test_sync_and_async_answer_the_same(self, search):
        for query in ("a song", "github", "select:send_email,nope", "xyzzy", ""):
            here, there = search.invoke(asks(query=query)), await search.ainvoke(asks(query=query))
            assert (here.content, here.artifact) == (there.content, there.artifact)

    def test_the_model_sees_two_arguments_of_which_one_is_optional(self, search):
        parameters = convert_to_openai_tool(search)["function"]["parameters"]
        assert set(parameters["properties"]) == {"query", "max_results"}
        assert parameters["required"] == ["query"]
        assert "runtime" not in json.dumps(parameters)

    def test_its_description_tells_the_language(self, search):
        for part in ("select:A,B", "+word", "server", "next step"):
            assert part in search.description
        assert len(search.description) < 400

    @pytest.mark.parametrize(("wanted", "most"), [(1, 1), (0, 1), (-3, 1), (20, 20), (1000, 20)])
    def test_any_number_the_model_asks_for_is_brought_within_one_to_twenty(self, wanted, most):
        tools = [make_tool(f"part_{n:02d}", "A part.", server="parts") for n in range(30)]
        search = create_search_tool(ToolRAG(tools, embeddings=HashingEmbeddings()))
        found = search.invoke(asks(query="parts", max_results=wanted)).artifact[LOADED]
        assert len(found) == most

    @pytest.mark.parametrize(("wanted", "number"), [(None, 5), ("3", 3), (2.0, 2)])
    def test_a_number_may_be_null_or_written_otherwise(self, wanted, number):
        search = create_search_tool(toolrag())
        found = search.invoke(asks(query="deeds_server", max_results=wanted)).artifact[LOADED]
        assert len(found) == number

    @pytest.mark.parametrize("default", [1, 3, 20])
    def test_the_number_of_results_has_a_default(self, default):
        tools = [make_tool(f"part_{n:02d}", "A part.", server="parts") for n in range(30)]
        rag = ToolRAG(tools, embeddings=HashingEmbeddings())
        search = create_search_tool(rag, max_results=default)
        assert len(search.invoke(asks(query="parts")).artifact[LOADED]) == default

    @pytest.mark.parametrize("wrong", [0, -1, 21])
    def test_a_default_out_of_range_is_refused(self, rag, wrong):
        with pytest.raises(ValueError, match=f"max_results is {wrong}; wanted 1 to 20"):
            create_search_tool(rag, max_results=wrong)

    def test_a_name_of_its_own(self, rag):
        search = create_search_tool(rag, name="find_more")
        assert convert_to_openai_tool(search)["function"]["name"] == "find_more"

    def test_it_searches_the_tools_there_are_now(self, rag, search):
        rag.add([make_tool("fly_kite", "Flies a kite.")])
        assert search.invoke(asks(query="fly a kite")).artifact[LOADED][0] == "fly_kite"
        rag.remove(["fly_kite"])
        assert "fly_kite" not in search.invoke(asks(query="select:fly_kite")).artifact[LOADED]

    def test_while_the_model_is_down_it_answers_by_words(self):
        rag = ToolRAG(make_catalogue(), embeddings=BrokenEmbeddings())
        message = create_search_tool(rag).invoke(asks(query="upcoming meetings"))
        assert message.artifact[LOADED][0] == "calendar/list_calendar_events"
        assert message.content.endswith("Searched by words alone.")

    @pytest.mark.parametrize(
        "filter",
        [
            ToolFilter(servers={"mail"}),
            lambda document: document.server == "mail",
            lambda runtime: ToolFilter(servers={"mail"}),
        ],
        ids=["filter", "function", "of the runtime"],
    )
    @pytest.mark.parametrize("query", ["play a song", "select:play_song", "music", "play_sing"])
    def test_what_the_filter_keeps_out_is_neither_found_nor_named(self, rag, filter, query):
        message = create_search_tool(rag, filter=filter).invoke(asks(query=query))
        assert not any(i.startswith("music/") for i in message.artifact[LOADED])
        asked = query.removeprefix("select:")  # What it asked for itself may be repeated.
        assert "play_song" not in message.content.replace(asked, "")
        assert "skip_to_next" not in message.content

    def test_a_missing_server_that_the_filter_keeps_out_is_not_named(self, rag):
        rag.report_server("payroll", "still connecting")
        rag.report_server("mail", "the token has expired")
        search = create_search_tool(rag, filter=ToolFilter(servers={"mail"}))
        text = search.invoke(asks(query="teleport")).content
        assert "mail (the token has expired)" in text
        assert "payroll" not in text

    def test_a_server_that_is_there_again_is_not_missing(self, rag, search):
        rag.report_server("notion", "still connecting")
        assert "notion (still connecting)" in search.invoke(asks(query="teleport")).content
        rag.report_server("notion", "")
        assert "notion" not in search.invoke(asks(query="teleport")).content

    def test_a_loop_of_ones_own_binds_what_was_found(self, rag, search):
        history = [user("hello there")]
        first = rag.select(history, besides=[search])
        assert [tool.name for tool in first.tools] == [SEARCH_TOOL]
        history += [
            searches("select:play_song"),
            search.invoke(asks("s0", query="select:play_song")),
        ]
        second = rag.select(history, besides=[search], previous=first.state)
        assert [tool.name for tool in second.tools] == [SEARCH_TOOL, "play_song"]


class TestWrongValues:
    @pytest.mark.parametrize("make", [ToolRAGMiddleware, ToolRAGNode])
    @pytest.mark.parametrize("wrong", ["on", "Auto", "", None, 2], ids=repr)
    def test_of_search_tool_are_refused(self, rag, make, wrong):
        with pytest.raises(ValueError, match="wanted True, False, 'auto', 'deferred' or 'off'"):
            make(rag=rag, search_tool=wrong)

    @pytest.mark.parametrize("make", [ToolRAGMiddleware, ToolRAGNode])
    @pytest.mark.parametrize("wrong", [["auto"], {}], ids=repr)
    def test_of_search_tool_that_cannot_be_hashed_are_refused_too(self, rag, make, wrong):
        with pytest.raises((ValueError, TypeError), match="wanted True, False"):
            make(rag=rag, search_tool=wrong)

    @pytest.mark.parametrize("make", [ToolRAGMiddleware, ToolRAGNode])
    @pytest.mark.parametrize("wrong", ["load", "", None, True], ids=repr)
    def test_of_unknown_tool_are_refused(self, rag, make, wrong):
        with pytest.raises(ValueError, match="wanted 'run' or 'suggest'"):
            make(rag=rag, unknown_tool=wrong)

    @pytest.mark.parametrize("off", [False, "off"])
    def test_a_search_prompt_needs_a_search_tool(self, rag, off):
        with pytest.raises(ValueError, match="search_prompt is given without search_tool"):
            ToolRAGMiddleware(rag=rag, search_tool=off, search_prompt=True)

    @pytest.mark.parametrize("make", [ToolRAGMiddleware, ToolRAGNode])
    def test_the_right_ones_are_taken(self, rag, make):
        for on in (True, "auto", "deferred"):
            assert make(rag=rag, search_tool=on).search_tool.name == SEARCH_TOOL
        for off in (False, "off"):
            assert make(rag=rag, search_tool=off).search_tool is None


class TestBesideOtherMiddlewares:
    async def test_a_planners_tool_and_the_search_tool_stay_bound(self, run, thread):
        model = ScriptedModel(script=[searches("select:merge_deed"), uses("merge_deed")])
        agent = AGENTS["middleware"](
            model, toolrag(), search_tool="deferred", middleware=[TodoListMiddleware()]
        )
        await run.ask(agent, "rename an invoice", thread)
        assert sorted(model.bound[0]) == ["search_tools", "write_todos"]
        assert [bound[:2] for bound in model.bound] == [model.bound[0]] * 3
        assert [bound[2:] for bound in model.bound] == [[], ["merge_deed"], ["merge_deed"]]

    async def test_a_summary_in_between_takes_no_loaded_tool_away(self, run, thread):
        calls = [uses("merge_deed", start=n) for n in range(5)]
        model = ScriptedModel(script=[searches("select:merge_deed"), *calls])
        writer = ScriptedModel(script=[uses().model_copy(update={"content": "In short."})] * 9)
        shortens = SummarizationMiddleware(writer, trigger=("messages", 5), keep=("messages", 2))
        agent = AGENTS["middleware"](
            model,
            toolrag(),
            search_tool="auto",
            middleware=[shortens],
            checkpointer=InMemorySaver(),
        )
        await run.ask(agent, "rename an invoice", thread)
        await run.ask(agent, "count the fleet", thread)
        assert "In short." in model.messages[5][0].content
        assert all("merge_deed" in bound for bound in model.bound[1:])
        assert memory_of(agent, thread)["loaded"] == ["deeds_server/merge_deed"]

    async def test_a_middleware_that_adopts_the_agents_tools_never_indexes_its_own(
        self, run, thread, default_embeddings, tools
    ):
        ours = ToolRAGMiddleware(search_tool=True, options=SelectionOptions(k=1))
        model = ScriptedModel(script=[searches("select:search_tools", "github", "search tools")])
        agent = create_agent(model, tools, middleware=[ours])
        await run.ask(agent, "current weather in a city", thread)
        assert {entry.document.name for entry in ours.rag.catalogue} == {t.name for t in tools}
        assert all(bound.count(SEARCH_TOOL) == 1 for bound in model.bound)
        assert model.bound[0] == [SEARCH_TOOL, "get_weather"]

    async def test_the_prompt_says_what_can_be_searched_for(self, run):
        model = ScriptedModel()
        agent = AGENTS["middleware"](
            model, toolrag(), search_tool=True, search_prompt=True, system_prompt="Be kind."
        )
        await run.ask(agent, "rename an invoice")
        prompt = model.messages[0][0].content
        assert prompt.startswith("Be kind.\n\nYou see only some of your tools; search_tools")
        assert "There are 500 tools of these servers: badges_server (25)" in prompt
        assert not any(tool.name in prompt for tool in toolrag(TWO).tools)

    async def test_the_prompt_is_the_same_at_every_step(self, run, thread):
        model = ScriptedModel(script=[searches("merge deed"), uses("merge_deed")])
        agent = AGENTS["middleware"](
            model, toolrag(), search_tool=True, search_prompt=True, checkpointer=InMemorySaver()
        )
        await run.ask(agent, "rename an invoice", thread)
        await run.ask(agent, "count the fleet", thread)
        assert len({messages[0].content for messages in model.messages}) == 1
        assert all(messages[1].type != "system" for messages in model.messages)
