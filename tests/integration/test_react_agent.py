"""LangGraph's prebuilt agent with a tool selector: everything it takes still works."""

import warnings
from typing import Any

import pytest
from fake_model import ScriptedModel, call, says
from fakes import make_tool
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.chat_agent_executor import AgentState, AgentStatePydantic
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import StreamWriter
from langgraph.warnings import LangGraphDeprecatedSinceV05, LangGraphDeprecatedSinceV10
from pydantic import BaseModel
from typing_extensions import NotRequired

from langchain_toolrag import (
    SelectionOptions,
    ToolRAG,
    ToolRAGNode,
    create_react_agent,
)
from langchain_toolrag.errors import InvalidToolError

FEW = SelectionOptions(k=3)
ONE = SelectionOptions(k=1)
WEATHER = "current weather in a city"
WEATHER_CALL = call("get_weather", city="delhi")


def weather_model():
    return ScriptedModel(script=[says("", WEATHER_CALL), says("Warm.")])


def said(messages):
    return [message.content for message in messages]


class ExtraState(AgentState):
    mood: NotRequired[str]


with warnings.catch_warnings():
    warnings.simplefilter("ignore", LangGraphDeprecatedSinceV10)  # To inherit from it warns.

    class ExtraPydanticState(AgentStatePydantic):
        mood: str = "calm"


class Report(BaseModel):
    """The weather as a record."""

    city: str


class TestThePrompt:
    async def test_a_string_becomes_the_system_message(self, react, run, tools):
        model = weather_model()
        await run.ask(react(model, tools, options=ONE, prompt="Be brief."), WEATHER)

        assert [messages[0] for messages in model.messages] == [SystemMessage("Be brief.")] * 2
        assert model.bound == [["get_weather"]] * 2

    async def test_a_function_gets_the_state(self, react, run, tools, model):
        def prompt(state):
            chosen = ", ".join(state["selected_tools"])
            return [SystemMessage(f"You have {chosen}."), *state["messages"]]

        await run.ask(react(model, tools, options=ONE, prompt=prompt), WEATHER)

        assert said(model.messages[0]) == ["You have get_weather.", WEATHER]


def hook_of_state(state):
    return {"llm_input_messages": [HumanMessage("shortened"), *state["messages"][1:]]}


def hook_with_config(state, config: RunnableConfig):
    assert config["configurable"]["thread_id"] == "1"
    return hook_of_state(state)


def hook_with_runtime(state, runtime: Runtime):
    assert runtime.context == {"user": "ann"}
    return hook_of_state(state)


def hook_with_store(state, *, store: BaseStore):
    assert store.get(("facts",), "sky").value == {"text": "blue"}
    return hook_of_state(state)


def hook_with_writer(state, *, writer: StreamWriter):
    writer("hooked")
    return hook_of_state(state)


def hook_with_all(state, config: RunnableConfig, *, runtime: Runtime, store: BaseStore):
    hook_with_config(state, config)
    hook_with_runtime(state, runtime)
    return hook_with_store(state, store=store)


class HookObject:
    def __call__(self, state):
        return hook_of_state(state)

    def method(self, state, config: RunnableConfig):
        return hook_with_config(state, config)


async def async_hook(state):
    return hook_of_state(state)


async def async_hook_with_all(state, config: RunnableConfig, *, runtime: Runtime, store: BaseStore):
    return hook_with_all(state, config, runtime=runtime, store=store)


SYNC_HOOKS = {
    "function": hook_of_state,
    "with config": hook_with_config,
    "with runtime": hook_with_runtime,
    "with store": hook_with_store,
    "with writer": hook_with_writer,
    "with all of them": hook_with_all,
    "object": HookObject(),
    "method": HookObject().method,
    "runnable": RunnableLambda(hook_of_state),
    "runnable with both ways": RunnableLambda(hook_of_state, afunc=async_hook),
}
ASYNC_HOOKS = {
    "function": async_hook,
    "with all of them": async_hook_with_all,
    "runnable": RunnableLambda(async_hook),
}


class TestAPreModelHook:
    @pytest.fixture
    def hooked(self, react, tools, thread):
        store = InMemoryStore()
        store.put(("facts",), "sky", {"text": "blue"})

        def build(model, hook):
            given = {"store": store, "context_schema": dict, "checkpointer": InMemorySaver()}
            return react(model, tools, options=ONE, pre_model_hook=hook, **given)

        return build

    @pytest.mark.parametrize("kind", SYNC_HOOKS)
    async def test_it_may_be_of_any_kind(self, hooked, run, thread, kind):
        model = weather_model()
        agent = hooked(model, SYNC_HOOKS[kind])
        result = await run.ask(agent, WEATHER, thread, context={"user": "ann"})

        assert [messages[0].content for messages in model.messages] == ["shortened"] * 2
        assert said(result["messages"])[0] == WEATHER
        assert model.bound == [["get_weather"]] * 2

    @pytest.mark.parametrize("kind", ASYNC_HOOKS)
    async def test_it_may_be_async(self, hooked, thread, kind):
        model = weather_model()
        agent = hooked(model, ASYNC_HOOKS[kind])
        turn = {"messages": [("user", WEATHER)]}
        await agent.ainvoke(turn, thread, context={"user": "ann"})

        assert [messages[0].content for messages in model.messages] == ["shortened"] * 2
        assert model.bound == [["get_weather"]] * 2

    async def test_the_selection_reads_the_whole_history(self, hooked, run, thread):
        def last_message_only(state):
            return {"llm_input_messages": state["messages"][-1:]}

        model = weather_model()
        agent = hooked(model, last_message_only)
        await run.ask(agent, WEATHER, thread)

        assert [message.type for message in model.messages[1]] == ["tool"]
        assert model.bound == [["get_weather"]] * 2

    async def test_messages_it_removes_are_gone_for_the_selection(self, hooked, run, thread):
        def start_anew(state):
            if len(state["messages"]) < 5:
                return {"messages": []}
            return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), HumanMessage("play a song")]}

        model = weather_model()
        agent = hooked(model, start_anew)
        await run.ask(agent, WEATHER, thread)
        result = await run.ask(agent, "thanks", thread)

        assert said(result["messages"]) == ["play a song", "done"]
        assert result["toolrag_query"].startswith("play a song")
        assert "play_song" in model.bound[2]

    async def test_a_single_removed_message_is_gone(self, hooked, run, thread):
        def without_first(state):
            first, *rest = state["messages"]
            if len(rest) == 1 and rest[0].type == "human":
                return {"messages": [RemoveMessage(first.id)]}
            return {"messages": []}

        model = ScriptedModel()
        messages = [HumanMessage("play a song", id="a"), HumanMessage(WEATHER, id="b")]
        result = await run.invoke(hooked(model, without_first), {"messages": messages}, thread)

        assert said(result["messages"]) == [WEATHER, "done"]
        assert model.bound == [["get_weather"]]

    async def test_it_may_add_a_message(self, hooked, run, thread):
        def remind(state):
            if state["messages"][-1].type == "human":
                return {"messages": [AIMessage("Let me see.", id="see")]}
            return {"messages": []}

        model = ScriptedModel()
        result = await run.ask(hooked(model, remind), WEATHER, thread)

        assert said(result["messages"]) == [WEATHER, "Let me see.", "done"]
        assert model.bound == [["get_weather"]]

    async def test_it_may_return_nothing(self, hooked, run, thread):
        seen = []

        def watch(state):
            seen.append(len(state["messages"]))

        model = ScriptedModel()
        result = await run.ask(hooked(model, watch), WEATHER, thread)

        assert seen == [1]
        assert said(result["messages"]) == [WEATHER, "done"]

    async def test_an_error_in_it_is_the_users_to_see(self, hooked, run, thread):
        def broken(state):
            raise LookupError("the hook is broken")

        with pytest.raises(LookupError, match="the hook is broken"):
            await run.ask(hooked(ScriptedModel(), broken), WEATHER, thread)


class TestAPostModelHook:
    # LangGraph's v1 has none.
    @pytest.mark.parametrize("react", ["react agent v2"], indirect=True)
    async def test_it_runs_after_each_model_step(self, react, run, tools):
        seen = []

        def look(state):
            seen.append((state["messages"][-1].type, state["selected_tools"]))
            return {}

        model = weather_model()
        await run.ask(react(model, tools, options=ONE, post_model_hook=look), WEATHER)

        assert seen == [("ai", ["get_weather"])] * 2


class TestAResponseFormat:
    async def test_the_answer_is_a_record(self, react, run, tools):
        script = [says("", WEATHER_CALL), says("Warm."), says("", call("Report", city="delhi"))]
        model = ScriptedModel(script=script)
        result = await run.ask(react(model, tools, options=ONE, response_format=Report), WEATHER)

        assert result["structured_response"] == Report(city="delhi")
        assert model.bound == [["get_weather"], ["get_weather"], ["Report"]]

    async def test_a_dynamic_model_gives_one_too(self, react, run, tools):
        model = ScriptedModel(script=[says("Warm."), says("", call("Report", city="delhi"))])
        agent = react(lambda state, runtime: model, tools, options=ONE, response_format=Report)
        result = await run.ask(agent, WEATHER)

        assert result["structured_response"] == Report(city="delhi")


class TestAStateSchema:
    @pytest.mark.parametrize(
        "schema", [ExtraState, ExtraPydanticState], ids=["TypedDict", "pydantic"]
    )
    async def test_its_extra_keys_stay(self, react, run, tools, thread, schema):
        moods = []

        def hook(state):
            mood = state["mood"] if isinstance(state, dict) else state.mood
            messages = state["messages"] if isinstance(state, dict) else state.messages
            moods.append(mood)
            return {"llm_input_messages": messages, "mood": f"{mood}!"}

        model = weather_model()
        given = {"state_schema": schema, "checkpointer": InMemorySaver()}
        agent = react(model, tools, options=ONE, pre_model_hook=hook, **given)
        turn = {"messages": [("user", WEATHER)], "mood": "merry"}
        result = await run.invoke(agent, turn, thread)

        assert moods == ["merry", "merry!"]
        assert result["mood"] == "merry!!"
        assert result["selected_tools"] == ["get_weather"]
        assert model.bound == [["get_weather"]] * 2
        assert agent.get_state(thread).values["toolrag_query"] == WEATHER

    async def test_pydantic_defaults_are_used(self, react, run, tools):
        seen = []

        def prompt(state):
            seen.append(state.mood)
            return state.messages

        model = weather_model()
        given = {"state_schema": ExtraPydanticState, "prompt": prompt}
        await run.ask(react(model, tools, options=ONE, **given), WEATHER)

        assert seen == ["calm", "calm"]

    async def test_a_response_format_needs_no_key_of_the_user(self, react, run, tools):
        class Structured(ExtraState):
            structured_response: Any

        model = ScriptedModel(script=[says("Warm."), says("", call("Report", city="delhi"))])
        given = {"state_schema": Structured, "response_format": Report}
        result = await run.ask(react(model, tools, options=ONE, **given), WEATHER)

        assert result["structured_response"] == Report(city="delhi")


class TestTheModel:
    async def test_it_may_depend_on_state_and_runtime(self, react, run, tools):
        small, large = weather_model(), ScriptedModel()

        def choose(state, runtime):
            return small if runtime.context["user"] == "ann" else large

        agent = react(choose, tools, options=ONE, context_schema=dict)
        await run.ask(agent, WEATHER, context={"user": "ann"})
        await run.ask(agent, "play a song", context={"user": "bob"})

        assert small.bound == [["get_weather"]] * 2
        assert large.bound == [["play_song"]]

    async def test_it_may_be_chosen_by_an_async_function(self, react, tools):
        model = weather_model()

        async def choose(state, runtime):
            return model

        agent = react(choose, tools, options=ONE)
        await agent.ainvoke({"messages": [("user", WEATHER)]})

        assert model.bound == [["get_weather"]] * 2

    async def test_a_dynamic_model_keeps_what_it_is_bound_with(self, react, run, tools):
        model = weather_model()
        agent = react(lambda state, runtime: model.bind(stop=["END"]), tools, options=ONE)
        await run.ask(agent, WEATHER)

        assert model.options == [{"stop": ["END"]}] * 2
        assert model.bound == [["get_weather"]] * 2

    async def test_options_and_configuration_it_is_bound_with_stay(self, react, run, tools):
        class Tags(BaseCallbackHandler):
            def __init__(self):
                self.seen = []

            def on_chat_model_start(self, serialized, messages, **kwargs):
                self.seen.append("mine" in kwargs["tags"])

        model, tags = weather_model(), Tags()
        bound = model.bind(stop=["END"]).with_config(tags=["mine"])
        await run.ask(react(bound, tools, options=ONE), WEATHER, {"callbacks": [tags]})

        assert model.options == [{"stop": ["END"]}] * 2
        assert model.bound == [["get_weather"]] * 2
        assert tags.seen == [True, True]

    async def test_tools_it_is_bound_with_give_way_to_the_selected_ones(self, react, run, tools):
        model = weather_model()
        await run.ask(react(model.bind_tools(tools[3:6]), tools, options=ONE), WEATHER)

        assert model.bound == [["get_weather"]] * 2

    async def test_it_may_be_named(self, react, run, tools, monkeypatch):
        model = weather_model()
        named = []

        def init_chat_model(name):
            named.append(name)
            return model

        monkeypatch.setattr("langchain.chat_models.init_chat_model", init_chat_model)
        await run.ask(react("maker:small", tools, options=ONE), WEATHER)

        assert named == ["maker:small"]
        assert model.bound == [["get_weather"]] * 2


class TestTheTools:
    @pytest.fixture
    def rag(self, tools, embeddings):
        return ToolRAG(tools, embeddings=embeddings, options=ONE)

    async def test_a_tool_node_is_used_as_it_is(self, react, run, tools):
        model = ScriptedModel(script=[says("", call("explode")), says("Sorry.")])

        def explode() -> str:
            """Explodes at once."""
            raise ValueError("boom")

        node = ToolNode([*tools, explode], handle_tool_errors="Oh no.")
        result = await run.ask(react(model, node, options=ONE), "explode at once")

        assert model.bound == [["explode"]] * 2
        assert said(result["messages"])[2] == "Oh no."

    def test_a_tool_node_with_a_name_that_providers_refuse_is_an_error(self, react, tools):
        node = ToolNode([*tools, make_tool("notes.create", "Writes a note.")])

        with pytest.raises(InvalidToolError, match=r"'notes__create'.*give the tools as a list"):
            react(ScriptedModel(), node)

    async def test_a_definition_is_bound_once_and_only_where_it_is_found(self, react, run, tools):
        definition = {"name": "feed_cat", "description": "Feeds the cat.", "parameters": {}}
        model = ScriptedModel()
        agent = react(model, [*tools, definition], options=ONE)
        await run.ask(agent, "please feed the cat")
        await run.ask(agent, WEATHER)

        assert model.bound == [["feed_cat"], ["get_weather"]]

    async def test_a_selector_with_tools_keeps_them(self, run, tools, rag, model):
        other = make_tool("feed_cat", "Feeds the cat.")
        agent = create_react_agent(model, [*tools, other], tool_selector=ToolRAGNode(rag=rag))
        await run.ask(agent, "play a song and feed the cat")

        assert model.bound == [["play_song"]]

    async def test_provider_tools_of_the_agent_alone_are_bound_too(self, run, tools, rag, model):
        given = [*tools, {"type": "web_search_20250305", "name": "web_search"}]
        agent = create_react_agent(model, given, tool_selector=ToolRAGNode(rag=rag))
        await run.ask(agent, WEATHER)

        assert model.bound == [["web_search", "get_weather"]]

    async def test_a_selector_with_an_empty_rag_takes_the_agents_tools_in(
        self, run, tools, embeddings, model
    ):
        selector = ToolRAGNode(rag=ToolRAG(embeddings=embeddings, options=ONE))
        await run.ask(create_react_agent(model, tools, tool_selector=selector), WEATHER)

        assert model.bound == [["get_weather"]]

    async def test_without_a_selector_there_is_a_new_one(self, run, tools, default_embeddings):
        model = weather_model()
        result = await run.ask(create_react_agent(model, tools), WEATHER)

        assert model.bound[0][0] == "get_weather"
        assert result["toolrag_query"] == WEATHER
        assert default_embeddings.queries == [WEATHER]

    async def test_an_unknown_name_does_not_list_the_catalogue(self, react, run):
        many = [make_tool(f"handle_topic_{n}", f"Topic {n}.") for n in range(100)]
        model = ScriptedModel(script=[says("", call("no_such_thing")), says("Sorry.")])
        result = await run.ask(react(model, many, options=ONE), "topic 7")

        assert len(said(result["messages"])[2]) < 300

    async def test_a_forbidden_tool_does_not_run(self, react, run, tools):
        model = ScriptedModel(script=[says("", call("send_email", to="bob")), says("Sorry.")])
        agent = react(model, tools, options=ONE, filter=lambda doc: doc.server == "weather")
        result = await run.ask(agent, WEATHER)

        assert not said(result["messages"])[2].startswith("send_email [")


class TestTheRest:
    async def test_it_has_a_name_and_stops_where_asked(self, react, run, tools, thread):
        model = weather_model()
        given = {"checkpointer": InMemorySaver(), "interrupt_before": ["tools"], "name": "helper"}
        agent = react(model, tools, options=ONE, **given)
        stopped = await run.ask(agent, WEATHER, thread)
        went_on = await run.invoke(agent, None, thread)

        assert agent.name == "helper"
        assert [message.type for message in stopped["messages"]] == ["human", "ai"]
        assert said(went_on["messages"])[-1] == "Warm."
        assert model.bound == [["get_weather"]] * 2

    async def test_a_short_recursion_limit_ends_it_as_any_hook_would(self, react, run, tools):
        model = ScriptedModel(script=[says("", call("get_weather", f"c{n}")) for n in range(50)])
        agent = react(model, tools, options=ONE)
        with pytest.raises(GraphRecursionError):
            await run.ask(agent, WEATHER, {"recursion_limit": 26})

        assert len(model.bound) == 9

    def test_no_deprecation_of_the_agent_reaches_the_user(self, react, tools, model):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            react(model, tools)

        assert caught == []

    def test_other_deprecations_do(self, react, tools, model):
        class Old(list):
            def __iter__(self):
                warnings.warn("an old list", LangGraphDeprecatedSinceV05, stacklevel=1)
                return super().__iter__()

        with pytest.warns(LangGraphDeprecatedSinceV05, match="an old list"):
            react(model, tools, interrupt_before=Old(["tools"]))
