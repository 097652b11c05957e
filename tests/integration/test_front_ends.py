"""What holds for every front end: node, prebuilt ReAct agent and middleware alike."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated

import pytest
from fake_model import ScriptedModel, call, says
from fakes import BrokenEmbeddings, HashingEmbeddings, make_catalogue, make_tool
from langchain.tools import InjectedState, InjectedStore, ToolRuntime, tool
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt
from versions import runtime_tells_tools

from langchain_toolrag import SelectionOptions
from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.types import ToolFilter

WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
CODE_INTERPRETER = {"type": "code_interpreter"}
BOOK_FLIGHT = {
    "type": "function",
    "function": {
        "name": "book_flight",
        "description": "Books a flight between two airports.",
        "parameters": {"type": "object", "properties": {"airport": {"type": "string"}}},
    },
}
FEW = SelectionOptions(k=3)
WEATHER_CALL = call("get_weather", city="delhi")


def tool_messages(result):
    return [message for message in result["messages"] if isinstance(message, ToolMessage)]


def contents(result):
    return [message.content for message in tool_messages(result)]


async def test_the_tool_a_request_needs_is_bound_and_run(front_end, run, tools):
    model = ScriptedModel(script=[says("", WEATHER_CALL), says("It is warm.")])
    result = await run.ask(front_end(model, tools, options=FEW), "current weather in delhi")

    assert model.bound[0][0] == "get_weather"
    assert len(model.bound[0]) == 3
    assert contents(result) == ["get_weather [('city', 'delhi')]"]
    assert result["messages"][-1].content == "It is warm."


async def test_a_tool_loop_searches_once_and_binds_one_list(front_end, run, tools, embeddings):
    calls = [says("", call("get_weather", id=f"c{n}", city=f"city {n}")) for n in range(3)]
    model = ScriptedModel(script=[*calls, says("Warm everywhere.")])
    result = await run.ask(front_end(model, tools, options=FEW), "current weather in delhi")

    assert embeddings.queries == ["current weather in delhi"]
    assert len(model.bound) == 4
    assert model.bound_tools == [model.bound_tools[0]] * 4
    assert len(contents(result)) == 3


async def test_a_follow_up_keeps_the_tool_of_the_turn_before(front_end, run, tools, thread):
    script = [says("", WEATHER_CALL), says("Warm."), says("", call("get_weather", city="kolkata"))]
    model = ScriptedModel(script=script)
    agent = front_end(model, tools, options=SelectionOptions(k=1), checkpointer=InMemorySaver())
    await run.ask(agent, "current weather in delhi", thread)
    result = await run.ask(agent, "do it for kolkata too", thread)

    assert "get_weather" in model.bound[2]
    assert contents(result)[-1] == "get_weather [('city', 'kolkata')]"


async def test_a_list_only_grows_at_its_end_over_several_turns(front_end, run, tools, thread):
    model = ScriptedModel(script=[says("", WEATHER_CALL), says("Warm.")])
    agent = front_end(model, tools, options=SelectionOptions(k=2), checkpointer=InMemorySaver())
    for request in ("weather in delhi", "play a song", "send an email to bob", "list issues"):
        await run.ask(agent, request, thread)

    assert len(model.bound) == 5
    for before, after in zip(model.bound, model.bound[1:], strict=False):
        assert after[: len(before)] == before
    assert len(model.bound[-1]) > len(model.bound[0])


async def test_two_threads_of_one_agent_do_not_share_a_list(front_end, run, tools):
    model = ScriptedModel()
    agent = front_end(model, tools, options=SelectionOptions(k=1), checkpointer=InMemorySaver())
    await run.ask(agent, "current weather in a city", {"configurable": {"thread_id": "1"}})
    await run.ask(agent, "play a song", {"configurable": {"thread_id": "2"}})

    assert model.bound == [["get_weather"], ["play_song"]]


async def test_no_more_than_max_tools_of_200_are_ever_bound(front_end, run, thread):
    many = [make_tool(f"handle_topic{n}", f"Handles topic{n} of the user.") for n in range(200)]
    turns = [
        answer
        for n in range(8)
        for answer in (says("", call(f"handle_topic{n}", id=f"c{n}", query="x")), says("done"))
    ]
    model = ScriptedModel(script=turns)
    options = SelectionOptions(k=5, max_tools=9)
    agent = front_end(model, [*many, WEB_SEARCH], options=options, checkpointer=InMemorySaver())
    for n in range(8):
        await run.ask(
            agent, f"topic{n} please, and more of topic{n + 20} and topic{n + 40}", thread
        )

    assert max(map(len, model.bound)) == 9
    assert all(f"handle_topic{n // 2}" in bound for n, bound in enumerate(model.bound))


async def test_sync_and_async_bind_the_same(front_end):
    bound = []
    for asynchronous in (False, True):
        model = ScriptedModel(script=[says("", WEATHER_CALL), says("Warm."), says("Played.")])
        agent = front_end(model, make_catalogue(), options=FEW, checkpointer=InMemorySaver())
        for text in ("current weather in delhi", "play a song"):
            turn = {"messages": [("user", text)]}
            config = {"configurable": {"thread_id": "1"}}
            if asynchronous:
                await agent.ainvoke(turn, config)
            else:
                agent.invoke(turn, config)
        bound.append(model.bound_tools)

    assert len(bound[0]) == 3
    assert bound[0] == bound[1]


async def test_messages_stream_only_what_model_and_tools_say(front_end, run, tools):
    model = ScriptedModel(script=[says("Let me look.", WEATHER_CALL), says("It is warm.")])
    agent = front_end(model, tools, options=FEW)
    turn = {"messages": [("user", "current weather in delhi")]}
    parts = await run.stream(agent, turn, stream_mode="messages")

    said = "".join(m.text for m, _ in parts if isinstance(m, (AIMessage, AIMessageChunk)))
    assert said == "Let me look.It is warm."
    others = [m.content for m, _ in parts if not isinstance(m, (AIMessage, AIMessageChunk))]
    assert others == ["get_weather [('city', 'delhi')]"]


async def test_updates_and_values_stream_the_steps(front_end, run, tools):
    script = [says("", WEATHER_CALL), says("It is warm.")]
    turn = {"messages": [("user", "current weather in delhi")]}
    agent = front_end(ScriptedModel(script=script), tools, options=FEW)
    updates = await run.stream(agent, turn, stream_mode="updates")
    written = [
        message
        for update in updates
        for change in update.values()
        for message in (change or {}).get("messages", [])
    ]
    assert [message.type for message in written] == ["ai", "tool", "ai"]

    agent = front_end(ScriptedModel(script=script), tools, options=FEW)
    values = await run.stream(agent, turn, stream_mode="values")
    assert [message.type for message in values[-1]["messages"]] == ["human", "ai", "tool", "ai"]


async def test_provider_tools_pass_through_untouched_and_in_front(front_end, run, tools, model):
    agent = front_end(model, [*tools, WEB_SEARCH, CODE_INTERPRETER], options=FEW)
    await run.ask(agent, "current weather in delhi")

    assert model.bound_tools[0][:2] == [WEB_SEARCH, CODE_INTERPRETER]
    assert len(model.bound[0]) == 5
    assert model.bound[0][2] == "get_weather"


async def test_a_function_given_as_a_dict_is_bound_as_it_is(front_end, run, tools, model):
    agent = front_end(model, [*tools, BOOK_FLIGHT], options=FEW)
    await run.ask(agent, "book a flight between two airports")

    assert BOOK_FLIGHT in model.bound_tools[0]


async def test_the_state_holds_no_tools_and_survives_a_round_trip(front_end, run, tools, thread):
    model = ScriptedModel(script=[says("", WEATHER_CALL), says("Warm.")])
    agent = front_end(model, tools, options=FEW, checkpointer=InMemorySaver())
    await run.ask(agent, "current weather in delhi", thread)
    values = agent.get_state(thread).values
    serializer = JsonPlusSerializer(allowed_msgpack_modules=None)
    again = serializer.loads_typed(serializer.dumps_typed(values))

    assert again == values
    beside = {key: value for key, value in values.items() if key != "messages"}
    assert json.loads(json.dumps(beside)) == beside
    assert "get_weather" in json.dumps(beside)
    assert "Current weather in a city" not in json.dumps(beside)


async def test_the_users_tools_are_unchanged_afterwards(front_end, run):
    given = [*make_catalogue(), make_tool("notes.create", "Writes a note.", ("text",))]
    before = [(tool.model_dump(), tool.args_schema.copy()) for tool in given]
    model = ScriptedModel(script=[says("", call("notes__create", text="milk")), says("Noted.")])
    result = await run.ask(front_end(model, given, options=FEW), "write a note")

    assert contents(result) == ["notes.create [('text', 'milk')]"]
    assert [(tool.model_dump(), tool.args_schema) for tool in given] == before


@pytest.mark.parametrize(
    ("own_name", "request_text"),
    [("notes.create", "write a note"), ("备份", "备份 my files")],
    ids=["a dotted name", "a Chinese name"],
)
async def test_a_tool_whose_name_providers_refuse_runs_under_another(
    front_end, run, tools, own_name, request_text
):
    class CallsTheFirstTool(ScriptedModel):
        def _generate(self, messages, stop=None, run_manager=None, tools=(), **kwargs):
            if not self._bound:
                name = tools[0]["function"]["name"]
                self.script = [says("", call(name, text="milk")), says("done")]
            return super()._generate(messages, stop, run_manager, tools, **kwargs)

    model = CallsTheFirstTool()
    given = [*tools, make_tool(own_name, "Writes a note.", ("text",))]
    result = await run.ask(front_end(model, given, options=FEW), request_text)

    called = model.bound[0][0]
    assert called != own_name
    assert called.isascii()
    assert called.replace("_", "").replace("-", "").isalnum()
    assert contents(result) == [f"{own_name} [('text', 'milk')]"]
    assert model.bound[1] == model.bound[0]


@tool
def ask_permission(action: str) -> str:
    """Asks the user for permission to wipe the disk."""
    return f"{action}: {interrupt('May I?')}"


async def test_a_tool_can_interrupt_and_go_on(front_end, run, tools, embeddings, thread):
    model = ScriptedModel(script=[says("", call("ask_permission", action="wipe")), says("Wiped.")])
    given = [*tools, ask_permission]
    agent = front_end(model, given, options=FEW, checkpointer=InMemorySaver())
    waiting = await run.ask(agent, "ask for permission to wipe the disk", thread)
    assert [pause.value for pause in waiting["__interrupt__"]] == ["May I?"]

    result = await run.invoke(agent, Command(resume="yes"), thread)
    assert contents(result) == ["wipe: yes"]
    assert result["messages"][-1].content == "Wiped."
    assert model.bound[0] == model.bound[1]
    assert len(embeddings.queries) == 1


async def test_an_agent_rebuilt_with_other_tools_searches_them_at_once(
    front_end, run, tools, thread
):
    saver = InMemorySaver()
    script = [says("", call("ask_permission", action="look")), says("It is warm.")]
    options = SelectionOptions(k=1)
    before = front_end(
        ScriptedModel(script=script), [*tools, ask_permission], options=options, checkpointer=saver
    )
    await run.ask(before, "current weather in a city", thread)
    renamed = make_tool("city_weather_now", "Current weather in a city.", ("city",))
    model = ScriptedModel(script=script[1:])
    given = [renamed, *tools[1:], ask_permission]
    after = front_end(model, given, options=options, checkpointer=saver)
    await run.invoke(after, Command(resume="yes"), thread)

    assert sorted(model.bound[0]) == ["ask_permission", "city_weather_now"]


@tool
def count_messages(word: str, state: Annotated[dict, InjectedState]) -> str:
    """Counts the messages of this chat."""
    messages = state["messages"] if isinstance(state, dict) else state.messages
    return f"{word}: {len(messages)}"


@tool
def recall_fact(key: str, store: Annotated[BaseStore, InjectedStore()]) -> str:
    """Recalls a stored fact."""
    return store.get(("facts",), key).value["text"]


@tool
def name_own_call(word: str, runtime: ToolRuntime) -> str:
    """Names its own call identifier."""
    return f"{word}: {runtime.tool_call_id} {len(runtime.state['messages'])}"


@tool
def leave_note(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command:
    """Leaves a sticky note on the fridge."""
    return Command(update={"messages": [ToolMessage(f"left {text}", tool_call_id=tool_call_id)]})


@pytest.mark.parametrize(
    ("injected", "request_text", "given_call", "answer"),
    [
        (count_messages, "count the messages", call("count_messages", word="there"), "there: 2"),
        (recall_fact, "recall a fact", call("recall_fact", key="sky"), "It is blue."),
        (name_own_call, "name your call", call("name_own_call", word="it"), "it: c1 2"),
        (leave_note, "leave a note", call("leave_note", text="milk"), "left milk"),
    ],
    ids=["InjectedState", "InjectedStore", "ToolRuntime", "Command"],
)
async def test_tools_get_what_langgraph_injects(
    front_end, run, tools, injected, request_text, given_call, answer
):
    store = InMemoryStore()
    store.put(("facts",), "sky", {"text": "It is blue."})
    model = ScriptedModel(script=[says("", given_call), says("done")])
    agent = front_end(model, [*tools, injected], options=FEW, store=store)
    result = await run.ask(agent, request_text)

    assert contents(result) == [answer]
    bound = next(t for t in model.bound_tools[0] if t["function"]["name"] == injected.name)
    assert set(bound["function"]["parameters"]["properties"]) == set(given_call["args"])
    assert model.bound[0] == model.bound[1]


# In a graph of one's own, who builds it draws the edge that ends the turn.
@pytest.mark.parametrize(
    "name",
    ["say_directly", pytest.param("say.directly", marks=runtime_tells_tools)],
    ids=["its name", "a new name"],
)
async def test_return_direct_ends_the_turn(whole_agent, run, tools, name):
    direct = make_tool(name, "Says a thing directly to the crowd.", ("text",))
    direct.return_direct = True
    script = [says("", call(name.replace(".", "__"), text="hello"))]
    model = ScriptedModel(script=script)
    agent = whole_agent(model, [*tools, direct], options=FEW)
    result = await run.ask(agent, "say a thing directly")

    assert result["messages"][-1].content == f"{name} [('text', 'hello')]"
    assert len(model.bound) == 1


async def test_parallel_calls_all_run_and_stay_bound(front_end, run, tools, thread):
    both = says("", call("get_weather", "a", city="delhi"), call("play_song", "b", title="Blue"))
    model = ScriptedModel(script=[both, says("done")])
    agent = front_end(model, tools, options=SelectionOptions(k=1), checkpointer=InMemorySaver())
    result = await run.ask(agent, "current weather in delhi", thread)
    await run.ask(agent, "open a new issue in a repository", thread)

    assert contents(result) == ["get_weather [('city', 'delhi')]", "play_song [('title', 'Blue')]"]
    assert model.bound == [
        ["get_weather"],
        ["get_weather", "play_song"],
        ["get_weather", "play_song", "create_issue"],
    ]


async def test_a_tool_that_was_not_bound_runs_and_is_bound_next(front_end, run, tools):
    model = ScriptedModel(script=[says("", call("play_song", title="Blue")), says("Playing.")])
    agent = front_end(model, tools, options=SelectionOptions(k=1))
    result = await run.ask(agent, "current weather in delhi")

    assert model.bound == [["get_weather"], ["get_weather", "play_song"]]
    assert contents(result) == ["play_song [('title', 'Blue')]"]


async def test_what_is_always_included_is_bound_once_on_every_call(front_end, run, tools):
    options = SelectionOptions(k=2, always_include=("send_email",))
    model = ScriptedModel(script=[says("", call("send_email", to="bob")), says("Sent.")])
    await run.ask(front_end(model, tools, options=options), "send an email to bob")

    assert [bound.count("send_email") for bound in model.bound] == [1, 1]


async def test_a_catalogue_below_k_is_bound_whole_in_order(
    front_end, run, tools, model, embeddings
):
    await run.ask(front_end(model, tools, options=SelectionOptions(k=20)), "play a song")

    assert model.bound[0] == [tool.name for tool in tools]
    assert embeddings.queries == []
    assert embeddings.texts == []


@dataclass
class User:
    server: str = ""


def of_the_users_server(runtime):
    return ToolFilter(servers=frozenset([runtime.context.server]))


async def test_a_filter_made_from_the_context_holds_for_the_selection(front_end, run, tools):
    model = ScriptedModel()
    agent = front_end(model, tools, options=FEW, filter=of_the_users_server, context_schema=User)
    for server in ("mail", "weather"):
        await run.ask(agent, "send an email about the weather", context=User(server))

    assert [sorted(bound) for bound in model.bound] == [
        ["search_email", "send_email"],
        ["get_forecast", "get_weather"],
    ]


async def test_what_another_user_called_in_a_thread_is_not_bound(front_end, run, tools, thread):
    model = ScriptedModel(script=[says("", WEATHER_CALL), says("Warm.")])
    agent = front_end(
        model,
        tools,
        options=FEW,
        filter=of_the_users_server,
        context_schema=User,
        checkpointer=InMemorySaver(),
    )
    await run.ask(agent, "weather in delhi", thread, context=User("weather"))
    await run.ask(agent, "weather in delhi", thread, context=User("mail"))

    assert "get_weather" in model.bound[0]
    assert sorted(model.bound[2]) == ["search_email", "send_email"]


async def test_50_users_at_once_get_what_each_gets_alone(front_end):
    async def ask(agent, n):
        server = ("mail", "weather", "calendar", "github", "music")[n % 5]
        request = f"send an email, play a song, list issues {n}"
        return await agent.ainvoke(
            {"messages": [("user", request)]},
            {"configurable": {"thread_id": str(n)}},
            context=User(server),
        )

    def build():
        model = ScriptedModel()
        given = {"filter": of_the_users_server, "context_schema": User}
        options = SelectionOptions(k=1)
        saver = InMemorySaver()
        agent = front_end(model, make_catalogue(), options=options, checkpointer=saver, **given)
        return agent, model

    def by_request(model):
        said = [messages[-1].content for messages in model.messages]
        return dict(zip(said, model.bound, strict=True))

    agent, model = build()
    await asyncio.gather(*(ask(agent, n) for n in range(50)))
    alone, alone_model = build()
    for n in range(50):
        await ask(alone, n)

    assert len(by_request(model)) == 50
    assert by_request(model) == by_request(alone_model)
    assert len({tuple(bound) for bound in model.bound}) == 5


async def test_20_threads_at_once_get_what_each_gets_alone(front_end, tools):
    model = ScriptedModel()
    agent = front_end(model, tools, options=SelectionOptions(k=1))
    requests = ["current weather in a city", "play a song"] * 10

    def ask(request):
        agent.invoke({"messages": [("user", request)]})

    with ThreadPoolExecutor(20) as threads:
        list(threads.map(ask, requests))
    asked = [messages[-1].content for messages in model.messages]

    assert len(asked) == 20
    assert set(zip(asked, map(tuple, model.bound), strict=True)) == {
        ("current weather in a city", ("get_weather",)),
        ("play a song", ("play_song",)),
    }


class TestWhileTheEmbedderIsDown:
    @pytest.fixture
    def embeddings(self):
        return BrokenEmbeddings()

    async def test_words_and_names_still_find_tools(self, front_end, run, tools, model):
        await run.ask(front_end(model, tools, options=FEW), "current weather in delhi")

        assert model.bound[0][0] == "get_weather"
        assert len(model.bound[0]) <= 3

    async def test_all_tools_are_bound_if_asked_for(self, front_end, run, tools, model):
        options = SelectionOptions(k=3, on_error="all")
        await run.ask(front_end(model, tools, options=options), "current weather in delhi")

        assert sorted(model.bound[0]) == sorted(tool.name for tool in tools)

    async def test_the_run_fails_if_asked_for(self, front_end, run, tools, model):
        options = SelectionOptions(k=3, on_error="raise")
        with pytest.raises(EmbeddingError, match="the model server is down"):
            await run.ask(front_end(model, tools, options=options), "current weather in delhi")
        assert model.bound == []


class TestOnceTheEmbedderGoesDown:
    @pytest.fixture
    def embeddings(self):
        return BrokenEmbeddings(broken=False)

    @pytest.mark.parametrize(
        ("on_error", "bound"),
        [
            ("lexical", ["get_weather", "play_song"]),
            ("previous", ["get_weather"]),
        ],
        ids=["words answer", "the tools of before stay"],
    )
    async def test_the_turn_is_not_lost(
        self, front_end, run, tools, model, embeddings, thread, on_error, bound
    ):
        options = SelectionOptions(k=1, on_error=on_error)
        agent = front_end(model, tools, options=options, checkpointer=InMemorySaver())
        await run.ask(agent, "current weather in a city", thread)
        embeddings.broken = True
        result = await run.ask(agent, "play a song on the speakers", thread)

        assert model.bound == [["get_weather"], bound]
        assert result["messages"][-1].content == "done"


class WaitsForTheLoop(HashingEmbeddings):
    """Answers only while the event loop goes on: a loop that is blocked would never beat."""

    def __init__(self):
        super().__init__()
        self.beats = threading.Semaphore(0)

    def embed_documents(self, texts):
        self._wait()
        return super().embed_documents(texts)

    def embed_query(self, text):
        self._wait()
        return super().embed_query(text)

    def _wait(self):
        for _ in range(3):
            if not self.beats.acquire(timeout=5):
                raise TimeoutError("the event loop stands still")


class TestWithASyncEmbedder:
    @pytest.fixture
    def embeddings(self):
        return WaitsForTheLoop()

    async def test_the_event_loop_goes_on(self, front_end, tools, model, embeddings):
        async def heart():
            while True:
                embeddings.beats.release()
                await asyncio.sleep(0.001)

        options = SelectionOptions(k=1, on_error="raise")
        agent = front_end(model, tools, options=options)
        beating = asyncio.create_task(heart())
        await agent.ainvoke({"messages": [("user", "current weather in a city")]})
        beating.cancel()

        assert model.bound == [["get_weather"]]
        assert embeddings.queries == ["current weather in a city"]


async def test_bound_tools_are_the_objects_that_went_in(front_end, run, tools):
    seen = []

    class Watching(ScriptedModel):
        def bind_tools(self, tools, **kwargs):
            seen.append(list(tools))
            return super().bind_tools(tools, **kwargs)

    await run.ask(front_end(Watching(), tools, options=FEW), "current weather in delhi")

    assert len(seen[-1]) == 3
    assert all(isinstance(tool, BaseTool) for tool in seen[-1])
    assert all(any(tool is given for given in tools) for tool in seen[-1])
