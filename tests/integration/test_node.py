"""ToolRAGNode: what is its own, beside what holds for every front end."""

from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from fake_model import ScriptedModel, call, says
from fakes import HashingEmbeddings, make_tool
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from langgraph.prebuilt.chat_agent_executor import AgentState
from langgraph.warnings import LangGraphDeprecatedSinceV10
from pydantic import BaseModel
from typing_extensions import NotRequired, TypedDict

from langchain_toolrag import SelectionOptions, ToolRAG, ToolRAGError, ToolRAGNode, ToolRAGState
from langchain_toolrag.errors import MissingStateKeyError
from langchain_toolrag.types import ToolFilter

ONE = SelectionOptions(k=1)
ASKS_WEATHER = {"messages": [HumanMessage("current weather in a city", id="u1")]}


@pytest.fixture
def rag(tools, embeddings):
    return ToolRAG(tools, embeddings=embeddings, options=ONE)


@pytest.fixture
def selector(rag):
    return ToolRAGNode(rag=rag)


class LacksTheOutput(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    toolrag_query: NotRequired[str]
    toolrag_state: NotRequired[dict[str, Any]]


class OtherKeys(TypedDict):
    talk: Annotated[list[AnyMessage], add_messages]
    chosen: NotRequired[list[str]]
    toolrag_query: NotRequired[str]
    toolrag_state: NotRequired[dict[str, Any]]


class PydanticState(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages]
    selected_tools: list[str] | None = None
    toolrag_query: str | None = None
    toolrag_state: dict[str, Any] | None = None


@dataclass
class DataclassState:
    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    selected_tools: list[str] | None = None
    toolrag_query: str | None = None
    toolrag_state: dict[str, Any] | None = None


class TwoSelections(ToolRAGState):
    second_tools: NotRequired[list[str]]


class ReactState(AgentState):
    selected_tools: NotRequired[list[str]]
    toolrag_query: NotRequired[str]
    toolrag_state: NotRequired[dict[str, Any]]


def graph_of(schema, selector, *, then=None):
    graph = StateGraph(schema)
    graph.add_node(selector)
    graph.add_edge(START, selector.name)
    if then:
        graph.add_node("then", then)
        graph.add_edge(selector.name, "then")
    return graph.compile()


class TestWithoutTools:
    @pytest.mark.parametrize(
        "use",
        [
            lambda node: node.invoke(ASKS_WEATHER),
            lambda node: node.tools_for({"selected_tools": ["get_weather"]}),
        ],
        ids=["invoke", "tools_for"],
    )
    def test_it_says_what_to_do(self, use):
        node = ToolRAGNode()

        assert not node.has_tools
        with pytest.raises(ToolRAGError, match=r"has no tools: give it tools or rag, call bind_"):
            use(node)

    async def test_it_says_so_inside_a_graph(self, run):
        with pytest.raises(ToolRAGError, match="has no tools"):
            await run.invoke(graph_of(ToolRAGState, ToolRAGNode()), ASKS_WEATHER)

    def test_a_given_toolrag_without_tools_yet_selects_nothing(self):
        node = ToolRAGNode(rag=ToolRAG(embeddings=HashingEmbeddings()))
        update = node.invoke({"messages": [("user", "is it raining?")]})
        assert update["selected_tools"] == []
        assert node.tools_for(update) == []

    def test_a_rag_is_given_alone(self, rag, tools):
        for given in ({"tools": tools}, {"options": ONE}):
            with pytest.raises(ValueError, match="rag brings its own tools and options"):
                ToolRAGNode(rag=rag, **given)


class TestItsUpdate:
    async def test_it_names_the_selected_tools_and_the_query(self, selector, run):
        update = await run.invoke(selector, ASKS_WEATHER)

        assert update["selected_tools"] == ["get_weather"]
        assert update["toolrag_query"] == "current weather in a city"
        assert update["toolrag_state"]["tool_selector"]["bound"] == ["weather/get_weather"]
        assert set(update) == {"selected_tools", "toolrag_query", "toolrag_state"}

    @pytest.mark.parametrize(
        "message",
        [
            ("user", "current weather in a city"),
            {"role": "user", "content": "current weather in a city"},
            HumanMessage("current weather in a city"),
        ],
        ids=["tuple", "dict", "message"],
    )
    async def test_messages_may_be_of_any_kind(self, selector, run, message):
        update = await run.invoke(selector, {"messages": [message]})

        assert update["selected_tools"] == ["get_weather"]

    async def test_its_memory_saves_the_second_search(self, selector, run, embeddings):
        first = await run.invoke(selector, ASKS_WEATHER)
        second = await run.invoke(selector, {**ASKS_WEATHER, **first})

        assert second == first
        assert len(embeddings.queries) == 1

    @pytest.mark.parametrize(
        "memory",
        [{"version": 2}, {"version": 2, "query": 7, "bound": None}, {"version": 99}],
        ids=["keys missing", "of wrong types", "of another version"],
    )
    async def test_a_memory_that_cannot_be_read_is_ignored(self, selector, run, memory):
        update = await run.invoke(selector, {**ASKS_WEATHER, "toolrag_state": memory})

        assert update["selected_tools"] == ["get_weather"]

    async def test_a_graph_names_it_and_traces_it(self, selector, run):
        class Names(BaseCallbackHandler):
            def __init__(self):
                self.seen = []

            def on_chain_start(self, serialized, inputs, **kwargs):
                self.seen.append(kwargs.get("name"))

        names = Names()
        await run.invoke(graph_of(ToolRAGState, selector), ASKS_WEATHER, {"callbacks": [names]})

        assert "tool_selector" in names.seen

    async def test_it_may_have_another_name(self, rag, run):
        graph = graph_of(ToolRAGState, ToolRAGNode(rag=rag, name="finder"))
        updates = await run.stream(graph, ASKS_WEATHER, stream_mode="updates")

        assert [list(update) for update in updates] == [["finder"]]


class TestTheState:
    @pytest.mark.parametrize(
        "schema", [ToolRAGState, PydanticState, DataclassState], ids=["dict", "pydantic", "class"]
    )
    async def test_it_may_be_of_any_kind(self, selector, run, schema):
        seen = []

        def then(state):
            seen.append([tool.name for tool in selector.tools_for(state)])

        result = await run.invoke(graph_of(schema, selector, then=then), ASKS_WEATHER)

        assert seen == [["get_weather"]]
        assert result["selected_tools"] == ["get_weather"]

    async def test_keys_can_be_chosen(self, rag, run):
        selector = ToolRAGNode(rag=rag, messages_key="talk", output_key="chosen")
        result = await run.invoke(
            graph_of(OtherKeys, selector), {"talk": [("user", "current weather in a city")]}
        )

        assert result["chosen"] == ["get_weather"]
        assert selector.tools_for(result) == [rag.tools[0]]
        assert "selected_tools" not in result

    @pytest.mark.parametrize("schema", [MessagesState, LacksTheOutput], ids=["all", "the output"])
    async def test_a_schema_without_the_keys_is_named(self, selector, run, schema):
        def then(state):
            selector.tools_for(state)

        graph = graph_of(schema, selector, then=then)
        with pytest.raises(MissingStateKeyError, match="'selected_tools'") as caught:
            await run.invoke(graph, ASKS_WEATHER)
        assert caught.value.key == "selected_tools"
        assert "ToolRAGState" in str(caught.value)

    async def test_a_missing_output_key_is_named_as_chosen(self, rag):
        with pytest.raises(MissingStateKeyError) as caught:
            ToolRAGNode(rag=rag, output_key="chosen").tools_for({"selected_tools": []})
        assert caught.value.key == "chosen"

    async def test_a_state_without_messages_is_named(self, selector, run):
        with pytest.raises(MissingStateKeyError) as caught:
            await run.invoke(selector, {"talk": []})
        assert caught.value.key == "messages"

    async def test_an_empty_selection_is_not_a_missing_one(self, selector):
        assert selector.tools_for({"selected_tools": []}) == []

    async def test_names_of_tools_that_are_gone_are_left_out(self, selector, rag):
        assert selector.tools_for({"selected_tools": ["gone", "play_song"]}) == [rag.tools[8]]

    async def test_two_nodes_of_one_graph_select_each_from_its_own_tools(
        self, run, tools, embeddings
    ):
        def part(*servers):
            return [tool for tool in tools if tool.metadata["server"] in servers]

        first = ToolRAG(part("weather"), embeddings=embeddings, options=ONE)
        second = ToolRAG(part("music"), embeddings=embeddings, options=ONE)
        graph = StateGraph(TwoSelections)
        graph.add_node(ToolRAGNode(rag=first, name="first"))
        graph.add_node(ToolRAGNode(rag=second, name="second", output_key="second_tools"))
        graph.add_edge(START, "first")
        graph.add_edge("first", "second")
        request = "play a song about the current weather in a city"
        result = await run.invoke(graph.compile(), {"messages": [("user", request)]})

        assert result["selected_tools"] == ["get_weather"]
        assert result["second_tools"] == ["play_song"]


class TestLateTools:
    async def test_tools_can_be_bound_late(self, default_embeddings, run, tools):
        node = ToolRAGNode(options=ONE)
        graph = graph_of(ToolRAGState, node)
        node.bind_tools(tools)
        result = await run.invoke(graph, ASKS_WEATHER)

        assert node.has_tools
        assert result["selected_tools"] == ["get_weather"]

    async def test_tools_bound_again_replace_the_old_ones(self, selector, run, tools):
        selector.bind_tools(tools[8:])
        update = await run.invoke(selector, {"messages": [("user", "weather, or play a song")]})

        assert selector.tools == tools[8:]
        assert update["selected_tools"] == ["play_song"]

    async def test_a_refresh_in_the_middle_of_a_turn_searches_again(self, selector, run, tools):
        first = await run.invoke(selector, ASKS_WEATHER)
        better = make_tool("city_weather_now", "Current weather in a city.", ("city",))
        selector.rag.refresh([*tools[1:], better])
        second = await run.invoke(selector, {**ASKS_WEATHER, **first})

        assert first["selected_tools"] == ["get_weather"]
        assert second["selected_tools"] == ["city_weather_now"]

    async def test_a_refresh_keeps_the_vectors_of_what_stays(
        self, selector, run, tools, embeddings
    ):
        await run.invoke(selector, ASKS_WEATHER)
        before = len(embeddings.texts)
        selector.rag.refresh([*tools, make_tool("feed_cat", "Feeds the cat.")])
        await run.invoke(selector, ASKS_WEATHER)

        assert all("cat" in text for text in embeddings.texts[before:])
        assert len(embeddings.texts) > before


class TestItsTools:
    async def test_a_tool_node_takes_all_of_them(self, run, tools, embeddings):
        definition = {"type": "function", "function": {"name": "f", "parameters": {}}}
        rag = ToolRAG(
            [*tools, {"type": "web_search"}, definition], embeddings=embeddings, options=ONE
        )
        selector = ToolRAGNode(rag=rag)

        assert set(ToolNode(selector.tools).tools_by_name) >= {tool.name for tool in tools}

    async def test_provider_tools_come_first(self, tools, embeddings):
        rag = ToolRAG([*tools, {"type": "web_search"}], embeddings=embeddings)
        bound = ToolRAGNode(rag=rag).tools_for({"selected_tools": ["play_song"]})

        assert bound == [{"type": "web_search"}, tools[8]]

    async def test_a_filter_can_be_a_tool_filter_or_a_function_of_documents(self, rag, run):
        by_server = ToolRAGNode(rag=rag, filter=ToolFilter(servers=frozenset(["mail"])))
        by_function = ToolRAGNode(rag=rag, filter=lambda document: document.server == "mail")
        asks = {"messages": [("user", "send an email about the weather to somebody")]}
        chosen = [await run.invoke(node, asks) for node in (by_server, by_function)]

        assert [update["selected_tools"] for update in chosen] == [["send_email"]] * 2


class TestAsADynamicModel:
    @pytest.mark.parametrize("version", ["v1", "v2"])
    async def test_langgraphs_own_agent_takes_it(self, selector, run, version):
        model = ScriptedModel(script=[says("", call("get_weather", city="delhi")), says("Warm.")])
        with pytest.warns(LangGraphDeprecatedSinceV10):
            agent = create_react_agent(
                selector.bind_model(model),
                selector.tools,
                pre_model_hook=selector,
                state_schema=ReactState,
                version=version,
            )
        result = await run.invoke(agent, ASKS_WEATHER)

        assert model.bound == [["get_weather"]] * 2
        assert result["messages"][-1].content == "Warm."

    async def test_it_keeps_what_the_model_is_bound_with(self, selector):
        model = ScriptedModel()
        bound = selector.bind_model(model.bind(stop=["END"]))
        await bound({"selected_tools": ["play_song"]}, None).ainvoke("hello")

        assert model.bound == [["play_song"]]
        assert model.options == [{"stop": ["END"]}]


async def test_a_graph_as_the_docstring_draws_it_works(run, rag):
    selector = ToolRAGNode(rag=rag)
    model = ScriptedModel(script=[says("", call("get_weather", city="delhi")), says("Warm.")])

    def agent(state: ToolRAGState) -> dict:
        bound = model.bind_tools(selector.tools_for(state))
        return {"messages": [bound.invoke(state["messages"])]}

    graph = StateGraph(ToolRAGState)
    graph.add_node(selector)
    graph.add_node("agent", agent)
    graph.add_node("tools", ToolNode(selector.tools))
    graph.add_edge(START, "tool_selector")
    graph.add_edge("tool_selector", "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "tool_selector")
    result = await run.invoke(graph.compile(), ASKS_WEATHER)

    assert [message.type for message in result["messages"]] == ["human", "ai", "tool", "ai"]
    assert model.bound == [["get_weather"]] * 2
