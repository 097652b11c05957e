"""langgraph-bigtool's agent: what its users rely on, and what it does not survive."""

import asyncio
import functools
import inspect
import logging
import math
import re
import threading
from pathlib import Path
from typing import Annotated, Literal

import pytest
from fake_model import ScriptedModel, call, says
from fakes import BrokenEmbeddings, HashingEmbeddings, make_tool
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt

from langchain_toolrag import ToolRAG
from langchain_toolrag.bigtool import (
    State,
    convert_positional_only_function_to_tool,
    create_agent,
)
from langchain_toolrag.errors import DuplicateToolError, InvalidToolError
from langchain_toolrag.index.tool_index import ToolIndex

README = Path(__file__).parents[1] / "data" / "bigtool" / "readme.md"
QUICKSTART, ITS_RUN, WITH_STORE, WITHOUT_STORE = re.findall(
    r"```python\n(.*?)```", README.read_text(), re.DOTALL
)
RETRIEVES = says("", call("retrieve_tools", query="weather in a city"))
CALLS_WEATHER = says("", call("get_weather", id="c2", city="Delhi"))


@pytest.fixture
def registry(tools):
    return {f"id_{number}": each for number, each in enumerate(tools)}


@pytest.fixture
def build(registry):
    """Builds the agent of a script; what it was asked is in `agent.model`."""

    def build(*script, tools=registry, compiled=None, **given):
        model = ScriptedModel(script=list(script))
        agent = create_agent(model, tools, **given).compile(**(compiled or {}))
        agent.model = model
        return agent

    return build


def returns(*ids):
    """A retrieval function that always returns these ids."""

    def retrieve_tools(query: str) -> list[str]:
        """Find tools."""
        return list(ids)

    return retrieve_tools


def answers(result):
    """Contents of the tool messages."""
    return [each.content for each in result["messages"] if isinstance(each, ToolMessage)]


def stored(tools, namespace=("tools",), **values):
    """A store that finds tools by their descriptions, as its README fills it."""
    store = InMemoryStore(
        index={"embed": HashingEmbeddings(), "dims": 256, "fields": ["description"]}
    )
    for key, each in tools.items():
        store.put(namespace, key, {"description": f"{each.name}: {each.description}", **values})
    return store


class TestTheReadmesExamples:
    @pytest.fixture
    def namespace(self, monkeypatch):
        """Where the examples run: only their imports are changed, and there is no network."""
        script = [
            says("", call("retrieve_tools", query="arc cosine")),
            says("", call("acos", id="c2", x=0.5)),
        ]
        monkeypatch.setattr(
            "langchain.chat_models.init_chat_model", lambda name: ScriptedModel(script=script)
        )
        monkeypatch.setattr(
            "langchain.embeddings.init_embeddings", lambda name: HashingEmbeddings()
        )
        return {}

    def run(self, code, namespace):
        code = re.sub(r"from langgraph_bigtool(\.utils)? import", f"from {HERE} import", code)
        exec(compile(code, str(README), "exec"), namespace)

    def test_the_quickstart_runs(self, namespace, capsys):
        self.run(QUICKSTART, namespace)
        self.run(ITS_RUN, namespace)

        printed = capsys.readouterr().out
        assert "Available tools: ['acos'" in printed
        assert f"Name: acos\n\n{math.acos(0.5)}" in printed
        assert printed.rstrip().endswith("done")

    def test_a_retrieval_function_that_takes_the_store_runs(self, namespace, capsys):
        self.run(QUICKSTART, namespace)
        self.run(WITH_STORE, namespace)
        self.run(ITS_RUN, namespace)

        assert f"Name: acos\n\n{math.acos(0.5)}" in capsys.readouterr().out

    def test_a_retrieval_function_by_category_runs(self, namespace):
        def get_balance() -> str:
            """The balance."""
            return "12 euros"

        names = ["get_balance", "get_history", "create_ticket"]
        namespace.update({each: get_balance for each in names}, Literal=Literal)
        self.run(WITHOUT_STORE, namespace)
        registry = {"id_1": get_balance, "id_2": make_tool("get_history")}
        asks = says("", call("retrieve_tools", category="billing"))
        model = ScriptedModel(script=[asks, says("", call("get_balance", id="c2"))])
        agent = create_agent(
            model, registry, retrieve_tools_function=namespace["retrieve_tools"]
        ).compile()

        result = agent.invoke({"messages": "my balance?"})

        assert answers(result) == ["Available tools: ['get_balance', 'get_history']", "12 euros"]
        category = model.bound_tools[0][0]["function"]["parameters"]["properties"]["category"]
        assert category["enum"] == ["billing", "service"]

    @pytest.mark.parametrize("function", [max, math.hypot, math.gcd, dict])
    def test_a_function_of_no_fixed_arguments_makes_no_tool(self, function):
        assert convert_positional_only_function_to_tool(function) is None

    def test_optional_arguments_of_a_converted_function_may_be_left_out(self):
        perm = convert_positional_only_function_to_tool(math.perm)

        assert perm.invoke({"n": 4}) == 24
        assert perm.invoke({"n": 4, "k": 2}) == 12


HERE = create_agent.__module__


class TestWhatItsUsersRelyOn:
    def test_the_signature_is_langgraph_bigtools_with_rag_added(self):
        parameters = inspect.signature(create_agent).parameters

        assert {name: each.default for name, each in parameters.items()} == {
            "llm": inspect.Parameter.empty,
            "tool_registry": inspect.Parameter.empty,
            "limit": 2,
            "filter": None,
            "namespace_prefix": ("tools",),
            "retrieve_tools_function": None,
            "retrieve_tools_coroutine": None,
            "rag": None,
        }
        assert [each.kind.name for each in parameters.values()] == [
            *["POSITIONAL_OR_KEYWORD"] * 2,
            *["KEYWORD_ONLY"] * 6,
        ]

    def test_the_graph_is_a_builder_with_the_same_nodes(self, registry, model):
        builder = create_agent(model, registry, retrieve_tools_function=returns())

        assert isinstance(builder, StateGraph)
        assert list(builder.nodes) == ["agent", "select_tools", "tools"]
        assert list(State.__annotations__) == ["messages", "selected_tool_ids"]

    async def test_a_retrieved_tool_is_bound_and_runs(self, build, run):
        agent = build(RETRIEVES, CALLS_WEATHER, retrieve_tools_function=returns("id_1", "id_0"))

        result = await run.ask(agent, "is it warm in Delhi?")

        assert answers(result) == [
            "Available tools: ['get_forecast', 'get_weather']",
            "get_weather [('city', 'Delhi')]",
        ]
        assert agent.model.bound == [
            ["retrieve_tools"],
            *[["retrieve_tools", "get_forecast", "get_weather"]] * 2,
        ]
        assert result["selected_tool_ids"] == ["id_1", "id_0"]
        assert result["messages"][-1].content == "done"

    async def test_the_updates_of_every_node_are_streamed(self, build, run):
        agent = build(RETRIEVES, CALLS_WEATHER, retrieve_tools_function=returns("id_0"))

        parts = await run.stream(agent, {"messages": "hi"}, stream_mode="updates")

        assert [list(part) for part in parts] == [
            ["agent"],
            ["select_tools"],
            ["agent"],
            ["tools"],
            ["agent"],
        ]
        told = parts[1]["select_tools"]["messages"]
        assert [type(each) for each in told] == [ToolMessage]
        assert told[0].content == "Available tools: ['get_weather']"
        assert (told[0].tool_call_id, told[0].name, told[0].artifact) == ("c1", None, None)
        assert parts[1]["select_tools"]["selected_tool_ids"] == ["id_0"]

    async def test_every_message_is_streamed_once(self, build, run):
        agent = build(RETRIEVES, CALLS_WEATHER, retrieve_tools_function=returns("id_0"))

        parts = await run.stream(agent, {"messages": "hi"}, stream_mode="messages")

        assert [(part["langgraph_node"], each.type) for each, part in parts] == [
            ("agent", "ai"),
            ("select_tools", "tool"),
            ("agent", "ai"),
            ("tools", "tool"),
            ("agent", "ai"),
        ]

    async def test_new_ids_are_appended_and_known_ones_keep_their_place(self, build, run):
        turns = iter([["id_3", "id_3", "id_1"], ["id_1", "id_2"]])

        def retrieve_tools(query: str) -> list[str]:
            """Find tools."""
            return next(turns)

        again = says("", call("retrieve_tools", id="c2", query="more"))
        agent = build(RETRIEVES, again, retrieve_tools_function=retrieve_tools)

        result = await run.ask(agent, "hi")

        assert result["selected_tool_ids"] == ["id_3", "id_1", "id_2"]
        assert answers(result)[0] == ("Available tools: ['create_calendar_event', 'get_forecast']")
        assert agent.model.bound[-1] == [
            "retrieve_tools",
            "create_calendar_event",
            "get_forecast",
            "list_calendar_events",
        ]

    async def test_retrievals_and_calls_can_be_mixed_in_one_message(self, build, run):
        mixed = says(
            "",
            call("retrieve_tools", id="c1", query="weather"),
            call("get_weather", id="c2", city="Delhi"),
            call("retrieve_tools", id="c3", query="weather"),
            call("get_weather", id="c4", city="Pune"),
        )
        agent = build(mixed, retrieve_tools_function=returns("id_0", "id_1"))

        result = await run.ask(agent, "hi")

        by_call = {each.tool_call_id: each.content for each in result["messages"][2:-1]}
        assert by_call == {
            "c1": "Available tools: ['get_weather', 'get_forecast']",
            "c2": "get_weather [('city', 'Delhi')]",
            "c3": "Available tools: ['get_weather', 'get_forecast']",
            "c4": "get_weather [('city', 'Pune')]",
        }
        assert result["selected_tool_ids"] == ["id_0", "id_1"]
        assert result["messages"][1].tool_calls == mixed.tool_calls

    async def test_plain_functions_and_one_tool_under_two_ids_are_fine(self, build, run):
        def get_balance(account: str) -> str:
            """The balance of an account."""
            return f"{account}: 12"

        agent = build(
            RETRIEVES,
            says("", call("get_balance", id="c2", account="mine")),
            tools={"a": get_balance, "b": get_balance},
            retrieve_tools_function=returns("b", "a"),
        )

        result = await run.ask(agent, "hi")

        assert answers(result) == ["Available tools: ['get_balance']", "mine: 12"]
        assert result["selected_tool_ids"] == ["b", "a"]
        assert agent.model.bound[-1] == ["retrieve_tools", "get_balance"]

    async def test_what_is_bound_to_the_model_already_stays(self, registry, run):
        model = ScriptedModel(script=[RETRIEVES])
        builder = create_agent(
            model.bind(stop=["END"]), registry, retrieve_tools_function=returns("id_0")
        )

        await run.ask(builder.compile(), "hi")

        assert model.options == [{"stop": ["END"]}] * 2
        assert model.bound[-1] == ["retrieve_tools", "get_weather"]


class TestTheRetrievalFunction:
    async def test_the_model_sees_its_name_description_and_arguments(self, build, run):
        def find(category: Literal["mail", "music"], *, kept: Annotated[BaseStore, InjectedStore]):
            """Find tools of a category."""
            return [item.key for item in kept.search((category,))]

        store = InMemoryStore()
        store.put(("mail",), "id_4", {})
        agent = build(
            says("", call("find", category="mail")),
            retrieve_tools_function=find,
            compiled={"store": store},
        )

        result = await run.ask(agent, "write to Anna")

        function = agent.model.bound_tools[0][0]["function"]
        assert (function["name"], function["description"]) == ("find", "Find tools of a category.")
        assert list(function["parameters"]["properties"]) == ["category"]
        assert answers(result) == ["Available tools: ['send_email']"]

    async def test_it_may_take_the_state_and_the_runtime(self, build, run):
        seen = []

        def find(
            query: str,
            state: Annotated[dict, InjectedState],
            calling: Annotated[str, InjectedToolCallId],
            runtime: ToolRuntime,
        ) -> list[str]:
            """Find tools."""
            seen.append((state["messages"][0].content, calling, runtime.tool_call_id))
            return ["id_0"]

        agent = build(says("", call("find", query="x")), retrieve_tools_function=find)
        await run.ask(agent, "hi")

        assert seen == [("hi", "c1", "c1")]

    def test_it_may_be_a_method(self, build):
        class Finder:
            def find(self, query: str) -> list[str]:
                """Find tools."""
                return [query]

        agent = build(says("", call("find", query="id_0")), retrieve_tools_function=Finder().find)

        assert answers(agent.invoke({"messages": "hi"})) == ["Available tools: ['get_weather']"]

    async def test_the_coroutine_serves_async_runs_and_the_function_sync_ones(self, build):
        async def aretrieve_tools(query: str) -> list[str]:
            """Find tools asynchronously."""
            await asyncio.sleep(0)
            return ["id_1"]

        def agent():
            return build(
                RETRIEVES,
                retrieve_tools_function=returns("id_0"),
                retrieve_tools_coroutine=aretrieve_tools,
            )

        assert agent().invoke({"messages": "hi"})["selected_tool_ids"] == ["id_0"]
        assert (await agent().ainvoke({"messages": "hi"}))["selected_tool_ids"] == ["id_1"]

    async def test_a_coroutine_alone_says_that_it_needs_an_async_run(self, build):
        async def find(query: str) -> list[str]:
            """Find tools."""
            return ["id_0"]

        asks = says("", call("find", query="x"))

        result = await build(asks, retrieve_tools_coroutine=find).ainvoke({"messages": "hi"})
        assert result["selected_tool_ids"] == ["id_0"]
        with pytest.raises(TypeError, match=r"run the agent by ainvoke\(\) or astream\(\)"):
            build(asks, retrieve_tools_coroutine=find).invoke({"messages": "hi"})

    async def test_functions_run_off_the_event_loop(self, build):
        threads = {}

        def retrieve_tools(query: str) -> list[str]:
            """Find tools."""
            threads["retrieval"] = threading.get_ident()
            return ["a"]

        def slow() -> str:
            """Take long."""
            threads["tool"] = threading.get_ident()
            return "slept"

        agent = build(
            RETRIEVES,
            says("", call("slow", id="c2")),
            tools={"a": slow},
            retrieve_tools_function=retrieve_tools,
        )
        result = await agent.ainvoke({"messages": "hi"})

        assert answers(result)[-1] == "slept"
        assert threading.get_ident() not in threads.values()
        assert sorted(threads) == ["retrieval", "tool"]

    async def test_an_interrupt_in_it_waits_for_the_answer(self, build, thread, run):
        def retrieve_tools(query: str) -> list[str]:
            """Find tools."""
            return [interrupt("which?")]

        agent = build(
            RETRIEVES,
            retrieve_tools_function=retrieve_tools,
            compiled={"checkpointer": InMemorySaver()},
        )
        waiting = await run.ask(agent, "hi", thread)
        result = await run.invoke(agent, Command(resume="id_0"), thread)

        assert waiting["__interrupt__"][0].value == "which?"
        assert answers(result) == ["Available tools: ['get_weather']"]


class TestARetrievalThatGoesWrong:
    async def test_ids_that_the_registry_lacks_are_left_out_and_named(self, build, run):
        agent = build(
            RETRIEVES, CALLS_WEATHER, retrieve_tools_function=returns("ghost", "id_0", "ghost")
        )

        result = await run.ask(agent, "hi")

        assert answers(result) == [
            "Available tools: ['get_weather']\nLeft out, the registry has no such ids: ['ghost']",
            "get_weather [('city', 'Delhi')]",
        ]
        assert result["selected_tool_ids"] == ["id_0"]

    async def test_ghosts_alone_are_no_tools(self, build, run):
        result = await run.ask(build(RETRIEVES, retrieve_tools_function=returns("ghost")), "hi")

        assert re.fullmatch(r"No tools found\..*\n.*: \['ghost'\]", answers(result)[0])
        assert result["selected_tool_ids"] == []

    async def test_an_empty_answer_says_what_to_do(self, build, run):
        result = await run.ask(build(RETRIEVES, retrieve_tools_function=returns()), "hi")

        assert answers(result) == [
            "No tools found. Describe in other words what the tool should do, or go on without one."
        ]

    async def test_an_error_is_told_to_the_model_and_the_run_goes_on(self, build, run, caplog):
        def retrieve_tools(query: str) -> list[str]:
            """Find tools."""
            raise ConnectionError(f"nobody answers {query}")

        with caplog.at_level(logging.WARNING, "langchain_toolrag"):
            result = await run.ask(build(RETRIEVES, retrieve_tools_function=retrieve_tools), "hi")

        told = result["messages"][2]
        assert told.status == "error"
        assert told.content == (
            "Error: retrieving tools failed. ConnectionError: nobody answers weather in a city"
        )
        assert result["messages"][-1].content == "done"
        assert caplog.messages == ["retrieving tools failed, the model is told: ConnectionError"]

    @pytest.mark.parametrize("returned", ["id_0", None, [["id_0"]]], ids=["str", "None", "lists"])
    async def test_an_answer_that_is_no_list_of_ids_is_such_an_error(self, build, run, returned):
        def retrieve_tools(query: str) -> list[str]:
            """Find tools."""
            return returned

        result = await run.ask(build(RETRIEVES, retrieve_tools_function=retrieve_tools), "hi")

        assert answers(result)[0].startswith("Error: retrieving tools failed. TypeError: ")
        assert result["selected_tool_ids"] == []

    async def test_wrong_arguments_are_told_to_the_model(self, build, run):
        agent = build(
            says("", call("retrieve_tools", words="weather")), retrieve_tools_function=returns()
        )

        result = await run.ask(agent, "hi")

        assert "query" in answers(result)[0]
        assert result["messages"][2].status == "error"

    async def test_a_tool_that_is_not_there_gets_a_short_answer(self, run, model):
        registry = {str(number): make_tool(f"tool_{number}") for number in range(300)}
        model.script = [says("", call("tool_42b"))]
        agent = create_agent(model, registry, retrieve_tools_function=returns()).compile()

        result = await run.ask(agent, "hi")

        assert re.match(r"Error: tool_42b is not a valid tool\. Closest: tool_42", *answers(result))
        assert len(answers(result)[0]) < 120


class TestWithoutARetrievalFunction:
    @pytest.fixture(autouse=True)
    def _offline(self, default_embeddings):
        """No model is loaded."""

    async def test_the_registry_itself_is_searched(self, build, run):
        agent = build(RETRIEVES, CALLS_WEATHER)

        result = await run.ask(agent, "hi")

        assert answers(result)[0] == "Available tools: ['get_weather', 'get_forecast']"
        assert result["selected_tool_ids"] == ["id_0", "id_1"]

    async def test_the_limit_is_kept(self, build, run):
        result = await run.ask(build(RETRIEVES, limit=1), "hi")

        assert result["selected_tool_ids"] == ["id_0"]

    async def test_nothing_is_embedded_before_the_first_search(self, build, run, embeddings):
        agent = build(says("hello"))
        await run.ask(agent, "hi")

        assert embeddings.texts == embeddings.queries == []

    async def test_an_empty_store_leaves_the_search_to_the_registry(self, build, run):
        agent = build(RETRIEVES, compiled={"store": InMemoryStore()})

        assert (await run.ask(agent, "hi"))["selected_tool_ids"] == ["id_0", "id_1"]

    async def test_a_store_that_holds_the_tools_is_searched(self, build, run, registry, embeddings):
        agent = build(RETRIEVES, limit=1, compiled={"store": stored(registry)})

        assert (await run.ask(agent, "hi"))["selected_tool_ids"] == ["id_0"]
        assert embeddings.queries == []

    async def test_filter_and_namespace_are_the_stores(self, build, run, registry):
        store = stored(registry, ("mine", "mail"), kind="mail")
        store.put(("mine", "mail"), "id_9", {"description": "weather in a city", "kind": "song"})
        given = {"namespace_prefix": ("mine",), "filter": {"kind": "song"}}
        agent = build(RETRIEVES, compiled={"store": store}, **given)

        assert (await run.ask(agent, "hi"))["selected_tool_ids"] == ["id_9"]

    @pytest.mark.parametrize("given", [{"filter": {"a": 1}}, {"namespace_prefix": ("mine",)}])
    async def test_asked_for_the_store_it_looks_nowhere_else(self, build, run, given):
        found_nothing = await run.ask(
            build(RETRIEVES, compiled={"store": InMemoryStore()}, **given), "hi"
        )

        assert found_nothing["selected_tool_ids"] == []
        with pytest.raises(ValueError, match="please compile your graph with a store"):
            await run.ask(build(RETRIEVES, **given), "hi")

    async def test_a_rag_of_ones_own_is_searched_whatever_the_store_holds(
        self, build, run, registry, rag, embeddings
    ):
        store = stored({"id_9": registry["id_9"]})
        agent = build(RETRIEVES, rag=rag, compiled={"store": store})

        assert (await run.ask(agent, "hi"))["selected_tool_ids"] == ["id_0", "id_1"]
        assert embeddings.queries == ["weather in a city"]

    async def test_words_answer_where_embedding_fails(self, build, run, tools):
        rag = ToolRAG(tools, embeddings=BrokenEmbeddings())

        result = await run.ask(build(RETRIEVES, rag=rag), "hi")

        assert result["selected_tool_ids"] == ["id_0", "id_1"]

    @pytest.mark.parametrize("model", [HashingEmbeddings, BrokenEmbeddings])
    async def test_an_index_elsewhere_is_waited_for(self, build, tools, model):
        class IndexElsewhere:
            local = None

            def __init__(self):
                self._there = ToolIndex(model())

            def __getattr__(self, name):
                return getattr(self._there, name)

            def evidence(self, *args, **kwargs):
                raise RuntimeError("it blocks the event loop")

        agent = build(RETRIEVES, rag=ToolRAG(tools, index=IndexElsewhere()))

        result = await agent.ainvoke({"messages": [("user", "hi")]})

        assert result["selected_tool_ids"] == ["id_0", "id_1"]

    async def test_a_rag_finds_the_registrys_tools_in_an_index_with_others(self, build, run, tools):
        index = ToolIndex(HashingEmbeddings())
        rag = ToolRAG(tools, index=index)
        theirs = [make_tool(f"get_weather_{n}", "weather in a city") for n in range(40)]
        ToolRAG(index=index).add(theirs)

        result = await run.ask(build(RETRIEVES, rag=rag), "hi")

        assert result["selected_tool_ids"] == ["id_0", "id_1"]

    async def test_tools_of_one_name_can_be_told_apart_by_a_rag(self, build, run):
        tools = [make_tool("find", "Finds mail.", server=server) for server in ("here", "there")]
        rag = ToolRAG(tools, embeddings=HashingEmbeddings(), on_duplicate="prefix")
        agent = build(
            says("", call("retrieve_tools", query="mail")),
            says("", call("there_find", id="c2", query="x")),
            tools=dict(zip("ab", tools, strict=True)),
            rag=rag,
        )

        result = await run.ask(agent, "hi")

        assert agent.model.bound[-1] == ["retrieve_tools", "here_find", "there_find"]
        assert answers(result) == [
            "Available tools: ['here_find', 'there_find']",
            "find [('query', 'x')]",
        ]


class TestTheToolsArguments:
    async def test_what_langgraph_injects_is_injected(self, build, run):
        @tool
        def look(
            word: str,
            state: Annotated[dict, InjectedState],
            ids: Annotated[list, InjectedState("selected_tool_ids")],
            store: Annotated[BaseStore, InjectedStore],
            runtime: ToolRuntime,
        ) -> str:
            """Look at the run."""
            first, last = state["messages"][0].content, state["messages"][-1].tool_calls
            kept = store.get(("memory",), "name").value
            return f"{word} {first} {last[0]['id']} {ids} {kept} {runtime.tool_call_id}"

        store = InMemoryStore()
        store.put(("memory",), "name", {"is": "Ada"})
        agent = build(
            says("", call("retrieve_tools", query="look")),
            says("", call("look", id="c2", word="a"), call("look", id="c3", word="b")),
            tools={"id_0": look},
            retrieve_tools_function=returns("id_0"),
            compiled={"store": store},
        )
        result = await run.ask(agent, "hi")

        assert list(agent.model.bound_tools[-1][1]["function"]["parameters"]["properties"]) == [
            "word"
        ]
        assert sorted(answers(result)[1:]) == [
            "a hi c2 ['id_0'] {'is': 'Ada'} c2",
            "b hi c3 ['id_0'] {'is': 'Ada'} c3",
        ]

    async def test_a_tool_may_answer_with_a_command(self, build, run):
        @tool
        def unlock(id: Annotated[str, InjectedToolCallId]) -> Command:
            """Unlock the mail."""
            told = ToolMessage("unlocked", tool_call_id=id)
            return Command(update={"messages": [told], "selected_tool_ids": ["b"]})

        agent = build(
            RETRIEVES,
            says("", call("unlock", id="c2")),
            tools={"a": unlock, "b": make_tool("send_email")},
            retrieve_tools_function=returns("a"),
        )
        result = await run.ask(agent, "hi")

        assert result["selected_tool_ids"] == ["a", "b"]
        assert agent.model.bound[-1] == ["retrieve_tools", "unlock", "send_email"]
        assert answers(result)[-1] == "unlocked"

    async def test_an_interrupted_call_repeats_no_other(self, build, run, thread):
        ran = []

        @tool
        def pay(amount: int) -> str:
            """Pay."""
            return f"{amount}: {interrupt('sure?')}"

        @tool
        def note(text: str) -> str:
            """Write a note."""
            ran.append(text)
            return "noted"

        agent = build(
            says("", call("pay", id="c1", amount=3), call("note", id="c2", text="paid")),
            tools={"a": pay, "b": note},
            retrieve_tools_function=returns(),
            compiled={"checkpointer": InMemorySaver()},
        )
        await run.ask(agent, "hi", thread)
        result = await run.invoke(agent, Command(resume="yes"), thread)

        assert sorted(answers(result)) == ["3: yes", "noted"]
        assert ran == ["paid"]


class TestCheckpoints:
    async def test_a_thread_goes_on_with_what_it_retrieved(self, build, run, thread):
        saver = InMemorySaver()
        first = build(
            RETRIEVES,
            retrieve_tools_function=returns("id_0"),
            compiled={"checkpointer": saver},
        )
        await run.ask(first, "hi", thread)
        second = build(
            CALLS_WEATHER, retrieve_tools_function=returns(), compiled={"checkpointer": saver}
        )
        result = await run.ask(second, "and now?", thread)

        assert second.model.bound == [["retrieve_tools", "get_weather"]] * 2
        assert answers(result)[-1] == "get_weather [('city', 'Delhi')]"

    async def test_it_stops_before_the_tools_and_goes_on(self, build, run, thread):
        agent = build(
            RETRIEVES,
            CALLS_WEATHER,
            retrieve_tools_function=returns("id_0"),
            compiled={"checkpointer": InMemorySaver(), "interrupt_before": ["tools"]},
        )
        stopped = await run.ask(agent, "hi", thread)
        result = await run.invoke(agent, None, thread)

        assert isinstance(stopped["messages"][-1], AIMessage)
        assert answers(result)[-1] == "get_weather [('city', 'Delhi')]"

    async def test_of_tools_it_holds_ids_alone(self, build, run, thread):
        agent = build(
            RETRIEVES,
            CALLS_WEATHER,
            retrieve_tools_function=returns("id_0"),
            compiled={"checkpointer": (saver := InMemorySaver())},
        )
        await run.ask(agent, "hi", thread)

        kept = [
            *saver.blobs.values(),
            *(each for put in saver.writes.values() for each in put.values()),
        ]
        assert b"id_0" in repr(kept).encode()
        assert "StructuredTool" not in repr(kept)
        assert set(agent.get_state(thread).values) == {"messages", "selected_tool_ids"}

    async def test_one_of_langgraph_bigtool_is_taken_up(self, build, run, thread):
        def left_behind(state: TheirState) -> dict:
            asks = says("", call("get_weather", id="c9", city="Pune"))
            told = [RETRIEVES, ToolMessage("Available tools: ['x']", tool_call_id="c1")]
            return {
                "messages": [*told, asks, ToolMessage("hot", tool_call_id="c9")],
                "selected_tool_ids": ["id_0", "of_a_tool_since_gone"],
            }

        saver = InMemorySaver()
        theirs = StateGraph(TheirState)
        theirs.add_node("agent", left_behind)
        theirs.add_edge(START, "agent")
        theirs.add_edge("agent", END)
        await run.ask(theirs.compile(checkpointer=saver), "hi", thread)
        agent = build(
            CALLS_WEATHER, retrieve_tools_function=returns(), compiled={"checkpointer": saver}
        )
        result = await run.ask(agent, "and in Delhi?", thread)

        assert agent.model.bound[0] == ["retrieve_tools", "get_weather"]
        assert answers(result)[-1] == "get_weather [('city', 'Delhi')]"


def _their_reducer(left: list, right: list) -> list:
    return left + [item for item in right if item not in set(left)]


class TheirState(MessagesState):
    """The state of langgraph-bigtool 0.0.3."""

    selected_tool_ids: Annotated[list[str], _their_reducer]


class TestWhatItRefuses:
    @pytest.mark.parametrize("given", [[], (), "tools", None], ids=repr)
    def test_a_registry_is_a_dict(self, model, given):
        with pytest.raises(TypeError, match=r"tool_registry is a \w+; wanted a dict such as \{"):
            create_agent(model, given)

    @pytest.mark.parametrize(
        "given",
        [{"name": "find"}, "find", None, HumanMessage],
        ids=["dict", "str", "None", "class"],
    )
    def test_what_cannot_be_run_is_no_tool(self, model, given):
        with pytest.raises(InvalidToolError, match=r"tool_registry\['a'\] is .*; wanted") as raised:
            create_agent(model, {"a": given})
        assert raised.value.tool is given

    @pytest.mark.parametrize("given", [{}, {"retrieve_tools_function": returns()}])
    def test_two_tools_have_two_names(self, model, given):
        twins = {"a": make_tool("find", server="here"), "b": make_tool("find", server="there")}

        with pytest.raises(DuplicateToolError, match="two tools are named 'find'"):
            create_agent(model, twins, **given)

    def test_no_tool_has_the_name_of_the_retrieval_function(self, model):
        with pytest.raises(DuplicateToolError, match="two tools are named 'retrieve_tools'"):
            create_agent(
                model, {"a": make_tool("retrieve_tools")}, retrieve_tools_function=returns()
            )

    def test_a_limit_is_at_least_one(self, model, registry):
        with pytest.raises(ValueError, match="limit is 0; wanted at least 1"):
            create_agent(model, registry, limit=0)

    def test_a_coroutine_is_given_as_one(self, model, registry):
        async def find(query: str) -> list[str]:
            """Find tools."""
            return []

        with pytest.raises(TypeError, match="give it as retrieve_tools_coroutine"):
            create_agent(model, registry, retrieve_tools_function=find)

    @pytest.mark.parametrize("kind", ["retrieve_tools_function", "retrieve_tools_coroutine"])
    def test_a_retrieval_function_has_a_name(self, model, registry, kind):
        with pytest.raises(TypeError, match=r"partial\(.* has no name for the model to see"):
            create_agent(model, registry, **{kind: functools.partial(returns("id_0"))})

    @pytest.mark.parametrize(
        "given",
        [
            {"filter": {}},
            {"namespace_prefix": ("mine",)},
            {"retrieve_tools_function": returns()},
        ],
        ids=lambda given: next(iter(given)),
    )
    def test_a_rag_is_the_only_way_to_search(self, model, registry, rag, given):
        with pytest.raises(ValueError, match="rag is searched alone"):
            create_agent(model, registry, rag=rag, **given)

    def test_a_rag_holds_the_tools_of_the_registry(self, model, registry, rag):
        del registry["id_0"]
        registry["mine"] = make_tool("mine")

        with pytest.raises(
            ValueError, match=r"rag lacks \['mine'\] .* has besides \['weather/get_weather'\]"
        ):
            create_agent(model, registry, rag=rag)


def test_a_tool_with_a_broken_schema_takes_no_other_down(build, caplog):
    broken = StructuredTool(
        name="broken",
        description="Cannot be described.",
        args_schema={"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
        func=lambda a: a,
    )
    agent = build(
        RETRIEVES,
        tools={"a": broken, "b": make_tool("find")},
        retrieve_tools_function=returns("a", "b"),
    )
    result = agent.invoke({"messages": "hi"})

    assert agent.model.bound[-1] == ["retrieve_tools", "find"]
    assert result["selected_tool_ids"] == ["b"]
    assert "'broken' is left out" in caplog.text
