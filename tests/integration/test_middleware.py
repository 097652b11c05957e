"""ToolRAGMiddleware among an agent's other middlewares."""

import gc
import json
from dataclasses import dataclass
from typing import Annotated

import pytest
from fake_model import ScriptedModel, call, says
from fakes import BrokenEmbeddings, make_tool
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ExtendedModelResponse,
    HumanInTheLoopMiddleware,
    ModelRetryMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
)
from langchain.agents.structured_output import ToolStrategy
from langchain.tools import InjectedState
from langchain_core.messages import AIMessage, SystemMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel, PrivateAttr
from versions import edits_keep_the_call, runtime_tells_tools

from langchain_toolrag import SelectionOptions, ToolRAG, ToolRAGMiddleware
from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.types import ToolFilter

FEW = SelectionOptions(k=3)
ONE = SelectionOptions(k=1)
WEATHER_CALL = call("get_weather", city="delhi")


def answers_of_tools(result):
    return [message for message in result["messages"] if isinstance(message, ToolMessage)]


def contents(result):
    return [message.content for message in answers_of_tools(result)]


def memory(agent, thread):
    return agent.get_state(thread).values["toolrag"]["ToolRAGMiddleware"]


class Around(AgentMiddleware):
    """A middleware that changes every request and every response."""

    def __init__(self, change=lambda request: request, then=lambda response: response, name="A"):
        super().__init__()
        self._change = change
        self._then = then
        self._name = name

    @property
    def name(self):
        return self._name

    def wrap_model_call(self, request, handler):
        return self._then(handler(self._change(request)))

    async def awrap_model_call(self, request, handler):
        return self._then(await handler(self._change(request)))


def choosing(choice):
    return Around(lambda request: request.override(tool_choice=choice))


class TestOtherMiddlewaresTools:
    @pytest.mark.parametrize("place", ["before", "after"])
    async def test_the_planners_tool_is_always_bound_and_never_found(
        self, with_middleware, run, tools, thread, place
    ):
        model = ScriptedModel(script=[says("", WEATHER_CALL), says("Warm.")])
        given = {place: [TodoListMiddleware()], "checkpointer": InMemorySaver()}
        agent = with_middleware(model, tools, options=ONE, **given)
        await run.ask(agent, "current weather in delhi", thread)
        await run.ask(agent, "write todos, then play a song on the speakers", thread)

        assert model.bound[:2] == [["write_todos", "get_weather"]] * 2
        assert model.bound[2] == ["write_todos", "get_weather", "play_song"]
        assert "write_todos" not in json.dumps({**memory(agent, thread), "front": []})

    @pytest.mark.parametrize("place", ["before", "after"])
    @pytest.mark.parametrize("where", ["of its class", "of the instance"])
    async def test_a_custom_middlewares_tool_stays_bound_and_runs(
        self, with_middleware, run, tools, place, where
    ):
        jot = make_tool("jot", "Current weather in a city, jotted down.", ("text",))

        class OfTheClass(AgentMiddleware):
            tools = [jot]  # noqa: RUF012

        class OfTheInstance(AgentMiddleware):
            def __init__(self):
                super().__init__()
                self.tools = [jot]

        other = OfTheClass() if where == "of its class" else OfTheInstance()
        model = ScriptedModel(script=[says("", call("jot", text="milk")), says("Noted.")])
        agent = with_middleware(model, tools, options=ONE, **{place: [other]})
        result = await run.ask(agent, "current weather in a city")

        assert model.bound == [["jot", "get_weather"]] * 2
        assert contents(result) == ["jot [('text', 'milk')]"]

    async def test_its_tool_stays_bound_after_the_middleware_is_gone(
        self, with_middleware, run, tools, model
    ):
        class Jots(AgentMiddleware):
            tools = [make_tool("jot", "Jots a thing down.", ("text",))]  # noqa: RUF012

        agent = with_middleware(model, tools, options=ONE, before=[Jots()])
        gc.collect()  # It has no hook: the agent has its tool and keeps nothing of it.
        await run.ask(agent, "current weather in a city")

        assert model.bound == [["jot", "get_weather"]]

    async def test_its_tool_stays_bound_in_a_process_that_froze_its_objects(
        self, with_middleware, run, tools, model
    ):
        planner = TodoListMiddleware()
        agent = with_middleware(model, tools, options=ONE, before=[planner])
        gc.freeze()  # As a server does before it forks.
        try:
            await run.ask(agent, "current weather in a city")
        finally:
            gc.unfreeze()

        assert model.bound == [["write_todos", "get_weather"]]

    async def test_what_a_middleware_of_another_agent_brings_is_selected_here(
        self, with_middleware, run, tools, model
    ):
        class BringsTheSong(AgentMiddleware):
            def __init__(self):
                super().__init__()
                self.tools = [tool for tool in tools if tool.name == "play_song"]

        elsewhere = BringsTheSong()
        create_agent(ScriptedModel(), middleware=[elsewhere])
        agent = with_middleware(model, tools, options=ONE)
        await run.ask(agent, "current weather in a city")

        assert model.bound == [["get_weather"]]
        assert elsewhere.tools


class TestWithStructuredOutput:
    async def test_its_tool_is_bound_and_the_answer_parsed(self, with_middleware, run, tools):
        class Report(BaseModel):
            """The weather as a record."""

            city: str

        model = ScriptedModel(script=[says("", WEATHER_CALL), says("", call("Report", city="D"))])
        agent = with_middleware(model, tools, options=ONE, response_format=ToolStrategy(Report))
        result = await run.ask(agent, "current weather in delhi")

        assert [sorted(bound) for bound in model.bound] == [["Report", "get_weather"]] * 2
        assert result["structured_response"] == Report(city="D")

    async def test_it_works_where_nothing_is_selected(self, with_middleware, run, tools):
        class Report(BaseModel):
            """The weather as a record."""

            city: str

        model = ScriptedModel(script=[says("", call("Report", city="D"))])
        nothing = {"filter": ToolFilter(servers=frozenset())}
        agent = with_middleware(model, tools, response_format=ToolStrategy(Report), **nothing)
        result = await run.ask(agent, "current weather in delhi")

        assert model.bound == [["Report"]]
        assert result["structured_response"] == Report(city="D")


class TestToolChoice:
    @pytest.mark.parametrize(
        "choice",
        [
            "send_email",
            {"type": "function", "function": {"name": "send_email"}},
            {"type": "tool", "name": "send_email"},
            {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "send_email"}]},
        ],
        ids=["a name", "OpenAI", "Anthropic", "allowed tools"],
    )
    async def test_the_named_tool_is_bound(self, with_middleware, run, tools, model, choice):
        agent = with_middleware(model, tools, options=ONE, before=[choosing(choice)])
        await run.ask(agent, "current weather in a city")

        assert sorted(model.bound[0]) == ["get_weather", "send_email"]
        assert model.options[0]["tool_choice"] == choice

    @pytest.mark.parametrize("choice", ["any", "send_email"])
    async def test_it_is_dropped_where_no_tool_can_be_bound(
        self, with_middleware, run, tools, model, choice
    ):
        nothing = ToolFilter(servers=frozenset())
        agent = with_middleware(model, tools, filter=nothing, before=[choosing(choice)])
        await run.ask(agent, "current weather in a city")

        assert model.bound == [[]]
        assert model.options[0].get("tool_choice") is None

    async def test_any_binds_a_tool_where_nothing_is_found(
        self, with_middleware, run, tools, model
    ):
        agent = with_middleware(model, tools, options=ONE, before=[choosing("any")])
        await run.invoke(agent, {"messages": [("ai", "Good morning.")]})

        assert len(model.bound[0]) == 1
        assert model.options[0]["tool_choice"] == "any"

    async def test_one_that_names_a_forbidden_tool_is_dropped(
        self, with_middleware, run, tools, model
    ):
        weather = ToolFilter(servers=frozenset(["weather"]))
        before = [choosing("send_email")]
        agent = with_middleware(model, tools, options=ONE, filter=weather, before=before)
        await run.ask(agent, "current weather in a city")

        assert model.bound == [["get_weather"]]
        assert model.options[0].get("tool_choice") is None


class Query(BaseModel):
    query: str


def cheap_tool(name, description=""):
    """One of a thousand: they share one schema."""

    def run(query: str) -> str:
        return f"{name} {query}"

    async def arun(query: str) -> str:
        return run(query)

    return StructuredTool(
        name=name, description=description, args_schema=Query, func=run, coroutine=arun
    )


class TestCallsOfUnknownTools:
    @pytest.mark.parametrize("called", ["handle_topic", "z" * 5000], ids=["near", "endless"])
    async def test_the_answer_is_short_among_a_thousand_tools(self, with_middleware, run, called):
        many = [cheap_tool(f"handle_topic_{n}", f"Topic {n}.") for n in range(1000)]
        model = ScriptedModel(script=[says("", call(called, query="x")), says("Sorry.")])
        result = await run.ask(with_middleware(model, many, options=FEW), "topic 7")
        (answer,) = answers_of_tools(result)

        assert answer.status == "error"
        assert answer.tool_call_id == "c1"
        assert "is not a valid tool" in answer.content
        assert len(answer.content) < 300
        assert answer.content.count("handle_topic_") <= 3

    async def test_it_offers_the_nearest_names(self, with_middleware, run, tools):
        model = ScriptedModel(script=[says("", call("get_wether", city="delhi")), says("Sorry.")])
        result = await run.ask(with_middleware(model, tools, options=ONE), "play a song")

        assert contents(result)[0].startswith("Error: get_wether is not a valid tool. Closest: ")
        assert "get_weather" in contents(result)[0]

    async def test_the_agent_goes_on_with_tools_bound(self, with_middleware, run, tools):
        model = ScriptedModel(script=[says("", call("no_such_thing")), says("", WEATHER_CALL)])
        result = await run.ask(with_middleware(model, tools, options=ONE), "current weather")

        assert contents(result)[1] == "get_weather [('city', 'delhi')]"
        assert model.bound == [["get_weather"]] * 3


class TestTheCatalogueChanges:
    @pytest.fixture
    def rag(self, tools, embeddings):
        return ToolRAG(tools, embeddings=embeddings, options=ONE)

    async def test_a_tool_added_later_is_bound_and_run(self, rag, run):
        model = ScriptedModel(script=[says("", call("feed_cat", query="now")), says("Fed.")])
        agent = create_agent(model, middleware=[ToolRAGMiddleware(rag=rag)])
        rag.add([make_tool("feed_cat", "Feeds the cat.")])
        result = await run.ask(agent, "feed the cat")

        assert model.bound == [["feed_cat"]] * 2
        assert contents(result) == ["feed_cat [('query', 'now')]"]

    async def test_a_tool_added_in_the_middle_of_a_turn_can_be_called_in_it(self, rag, run):
        class Learns(ScriptedModel):
            def _generate(self, *args, **kwargs):
                if not self._bound:
                    rag.add([make_tool("feed_cat", "Feeds the cat.")])
                return super()._generate(*args, **kwargs)

        model = Learns(script=[says("", WEATHER_CALL), says("", call("feed_cat", "c2"))])
        agent = create_agent(model, middleware=[ToolRAGMiddleware(rag=rag)])
        result = await run.ask(agent, "feed the cat")

        assert contents(result)[1] == "feed_cat []"
        assert "feed_cat" in model.bound[1]

    async def test_a_tool_added_later_gets_what_langgraph_injects(self, rag, run):
        def count_messages(word: str, state: Annotated[dict, InjectedState]) -> str:
            """Counts the messages of this chat."""
            return f"{word}: {len(state['messages'])}"

        model = ScriptedModel(script=[says("", call("count_messages", word="now")), says("Two.")])
        agent = create_agent(model, middleware=[ToolRAGMiddleware(rag=rag)])
        rag.add([StructuredTool.from_function(count_messages)])
        result = await run.ask(agent, "count the messages of this chat")

        assert contents(result) == ["now: 2"]

    async def test_a_tool_removed_later_is_neither_bound_nor_run(self, rag, run, thread):
        model = ScriptedModel(
            script=[says("", WEATHER_CALL), says("Warm."), says("", WEATHER_CALL)]
        )
        ours = ToolRAGMiddleware(rag=rag)
        agent = create_agent(model, middleware=[ours], checkpointer=InMemorySaver())
        await run.ask(agent, "current weather in a city", thread)
        rag.remove(["get_weather"])
        result = await run.ask(agent, "current weather in a city", thread)

        assert model.bound[0] == ["get_weather"]
        assert [bound for bound in model.bound[2:] if "get_weather" in bound] == []
        assert answers_of_tools(result)[-1].status == "error"
        assert len(model.bound[2]) == 1

    async def test_a_tool_changed_later_is_bound_and_run_as_it_is_now(self, rag, run, tools):
        model = ScriptedModel(script=[says("", WEATHER_CALL), says("Warm.")])
        agent = create_agent(model, middleware=[ToolRAGMiddleware(rag=rag)])

        def fresh(**arguments):
            return "the new weather"

        new = make_tool("get_weather", "Current weather in a city, anew.", ("town",), "weather")
        new.func, new.coroutine = fresh, None
        rag.refresh([new, *tools[1:]])
        result = await run.ask(agent, "current weather in a city")

        assert model.bound_tools[0][0]["function"]["description"].endswith("anew.")
        assert contents(result) == ["the new weather"]

    async def test_a_provider_tool_added_later_is_bound(self, rag, run, model):
        agent = create_agent(model, middleware=[ToolRAGMiddleware(rag=rag)])
        rag.add([{"type": "web_search_20250305", "name": "web_search"}])
        await run.ask(agent, "current weather in a city")

        assert model.bound == [["web_search", "get_weather"]]

    async def test_the_agents_own_tools_pass_beside_a_rag(self, rag, run):
        model = ScriptedModel(script=[says("", call("own_thing", query="x")), says("done")])
        own = make_tool("own_thing", "Not in the index.")
        agent = create_agent(model, [own], middleware=[ToolRAGMiddleware(rag=rag)])
        result = await run.ask(agent, "current weather in a city")

        assert model.bound == [["own_thing", "get_weather"]] * 2
        assert contents(result) == ["own_thing [('query', 'x')]"]


class TestOddTools:
    async def test_a_plain_function_is_bound_and_run(self, with_middleware, run, tools):
        def feed_cat(food: str) -> str:
            """Feeds the cat."""
            return f"fed {food}"

        model = ScriptedModel(script=[says("", call("feed_cat", food="fish")), says("Fed.")])
        agent = with_middleware(model, [*tools, feed_cat], options=ONE)
        result = await run.ask(agent, "feed the cat")

        assert model.bound == [["feed_cat"]] * 2
        assert contents(result) == ["fed fish"]

    async def test_one_broken_schema_does_not_take_the_others_down(
        self, with_middleware, run, tools, model
    ):
        broken = make_tool("broken_tool", "Current weather in a city.")
        broken.args_schema = {
            "type": "object",
            "properties": {"city": {"$ref": "#/$defs/Missing"}},
        }
        agent = with_middleware(model, [*tools, broken], options=ONE)
        await run.ask(agent, "current weather in a city")

        assert model.bound == [["get_weather"]]

    async def test_nameless_provider_tools_of_agent_and_middleware_are_both_bound(
        self, run, tools, model, default_embeddings
    ):
        interpreter, files = {"type": "code_interpreter"}, {"type": "file_search"}
        ours = ToolRAGMiddleware([*tools, files], options=ONE)
        agent = create_agent(model, [interpreter], middleware=[ours])
        await run.ask(agent, "current weather in a city")

        assert model.bound == [["code_interpreter", "file_search", "get_weather"]]

    async def test_a_tool_given_to_both_is_bound_once(self, run, tools, model, default_embeddings):
        agent = create_agent(model, tools, middleware=[ToolRAGMiddleware(tools, options=FEW)])
        await run.ask(agent, "current weather in a city")

        assert len(model.bound[0]) == len(set(model.bound[0])) == 3


@dataclass
class User:
    server: str


def of_the_user(runtime):
    return ToolFilter(servers=frozenset([runtime.context.server]))


class TestAFilterByContext:
    @pytest.fixture
    def agent_of(self, with_middleware, tools):
        def build(model, **given):
            given = {"options": ONE, "filter": of_the_user, "context_schema": User, **given}
            return with_middleware(model, tools, **given)

        return build

    async def test_a_forbidden_tool_does_not_run(self, agent_of, run):
        model = ScriptedModel(script=[says("", call("send_email", to="bob")), says("Sorry.")])
        result = await run.ask(agent_of(model), "weather", context=User("weather"))
        (answer,) = answers_of_tools(result)

        assert answer.status == "error"
        assert answer.content == "Error: send_email is not a valid tool."
        assert all("send_email" not in bound for bound in model.bound)

    async def test_the_same_tool_runs_for_who_may_use_it(self, agent_of, run):
        model = ScriptedModel(script=[says("", call("send_email", to="bob")), says("Sent.")])
        result = await run.ask(agent_of(model), "mail", context=User("mail"))

        assert contents(result) == ["send_email [('to', 'bob')]"]

    async def test_a_forbidden_name_is_not_offered(self, agent_of, run):
        model = ScriptedModel(script=[says("", call("list_issue", repo="x")), says("Sorry.")])
        result = await run.ask(agent_of(model), "weather", context=User("calendar"))

        assert contents(result)[0].startswith("Error: list_issue is not a valid tool.")
        assert "list_issues" not in contents(result)[0]

    async def test_a_tool_of_an_earlier_user_is_dropped_from_the_thread(
        self, agent_of, run, thread
    ):
        model = ScriptedModel(script=[says("", WEATHER_CALL), says("Warm.")])
        agent = agent_of(model, checkpointer=InMemorySaver())
        await run.ask(agent, "weather in delhi", thread, context=User("weather"))
        await run.ask(agent, "weather in delhi", thread, context=User("music"))

        assert "get_weather" in model.bound[0]
        assert len(model.bound[2]) == 1
        assert set(model.bound[2]) <= {"play_song", "skip_to_next_track"}


class TestModelRetries:
    class Stumbles(ScriptedModel):
        """Fails at its first two calls, after it was given its tools."""

        def _generate(self, messages, stop=None, run_manager=None, tools=(), **kwargs):
            result = super()._generate(messages, stop, run_manager, tools, **kwargs)
            if len(self._bound) <= 2:
                raise ConnectionError("the provider is down")
            return result

    @pytest.mark.parametrize("place", ["before", "after"])
    async def test_each_attempt_has_the_same_tools(self, with_middleware, run, tools, place):
        model = self.Stumbles()
        retry = ModelRetryMiddleware(initial_delay=0, jitter=False)
        agent = with_middleware(model, tools, options=FEW, **{place: [retry]})
        result = await run.ask(agent, "current weather in delhi")

        assert len(model.bound) == 3
        assert model.bound == [model.bound[0]] * 3
        assert model.bound[0][0] == "get_weather"
        assert result["messages"][-1].content == "done"

    async def test_a_retry_inside_ours_does_not_search_again(
        self, with_middleware, run, tools, embeddings
    ):
        retry = ModelRetryMiddleware(initial_delay=0, jitter=False)
        agent = with_middleware(self.Stumbles(), tools, options=FEW, after=[retry])
        await run.ask(agent, "current weather in delhi")

        assert embeddings.queries == ["current weather in delhi"]


@edits_keep_the_call
async def test_a_call_that_the_human_renames_keeps_both_tools(with_middleware, run, tools, thread):
    model = ScriptedModel(script=[says("", call("play_song", title="Blue")), says("done")])
    human = HumanInTheLoopMiddleware(interrupt_on={"play_song": True})
    given = {"after": [human], "checkpointer": InMemorySaver()}
    agent = with_middleware(model, tools, options=SelectionOptions(k=1, max_tools=3), **given)
    await run.ask(agent, "current weather in a city", thread)
    action = {"name": "create_issue", "args": {"title": "Blue"}}
    decision = {"decisions": [{"type": "edit", "edited_action": action}]}
    result = await run.invoke(agent, Command(resume=decision), thread)
    await run.ask(agent, "send an email to somebody", thread)

    assert contents(result)[0].endswith("create_issue [('title', 'Blue')]")
    assert set(model.bound[2]) == {"create_issue", "play_song", "send_email"}


async def test_a_summary_in_the_middle_of_a_turn_changes_nothing(
    with_middleware, run, tools, embeddings, thread
):
    calls = [says("", call("get_weather", f"c{n}", city=f"city {n}")) for n in range(4)]
    model = ScriptedModel(script=[*calls, says("Warm everywhere.")])
    writer = ScriptedModel(script=[says("They asked for songs by mail.")] * 9)
    shortens = SummarizationMiddleware(writer, trigger=("messages", 5), keep=("messages", 2))
    given = {"before": [shortens], "checkpointer": InMemorySaver()}
    agent = with_middleware(model, tools, options=FEW, **given)
    await run.ask(agent, "current weather in delhi", thread)

    last_messages = [message.content for message in model.messages[-1]]
    assert "current weather in delhi" not in last_messages
    assert "They asked for songs by mail." in last_messages[0]
    assert len(model.bound) == 5
    assert model.bound == [model.bound[0]] * 5
    assert embeddings.queries == ["current weather in delhi"]
    assert memory(agent, thread)["query"] == "current weather in delhi"


class TestTwoOfThem:
    def two(self, tools, embeddings):
        small = [tool for tool in tools if tool.metadata["server"] in ("mail", "music")]
        large = [tool for tool in tools if tool not in small]
        return [
            ToolRAGMiddleware(
                rag=ToolRAG(part, embeddings=embeddings, options=ONE), name=f"selects_{name}"
            )
            for name, part in (("small", small), ("large", large))
        ]

    async def test_each_selects_from_its_own_tools(self, run, tools, embeddings, thread):
        calls = says("", WEATHER_CALL, call("send_email", "c2", to="bob"))
        model = ScriptedModel(script=[calls, says("done")])
        two = self.two(tools, embeddings)
        agent = create_agent(model, middleware=two, checkpointer=InMemorySaver())
        result = await run.ask(agent, "send an email about the current weather in a city", thread)
        await run.ask(agent, "play a song and list the issues of a repository", thread)

        assert sorted(model.bound[0]) == ["get_weather", "send_email"]
        assert sorted(contents(result)) == [
            "get_weather [('city', 'delhi')]",
            "send_email [('to', 'bob')]",
        ]
        assert set(model.bound[2]) == {"get_weather", "send_email", "play_song", "list_issues"}

    async def test_a_loop_searches_once_in_each(self, run, tools, embeddings):
        calls = [says("", call("get_weather", f"c{n}", city="delhi")) for n in range(3)]
        model = ScriptedModel(script=calls)
        agent = create_agent(model, middleware=self.two(tools, embeddings))
        await run.ask(agent, "send an email about the current weather in a city")

        assert len(embeddings.queries) == 2
        assert model.bound == [model.bound[0]] * 4


class TestOneOfThemInTwoAgents:
    @pytest.fixture
    def ours(self, default_embeddings):
        return ToolRAGMiddleware(options=ONE)

    async def test_each_agent_selects_from_its_own_tools(self, ours, run, tools):
        model, other_model = ScriptedModel(), ScriptedModel()
        agent = create_agent(model, tools[:6], middleware=[ours])
        other = create_agent(other_model, tools[6:], middleware=[ours])
        for _ in range(2):
            await run.ask(agent, "play a song about the current weather in a city")
            await run.ask(other, "play a song about the current weather in a city")

        assert model.bound == [["get_weather"]] * 2
        assert other_model.bound == [["play_song"]] * 2

    async def test_an_agent_cannot_run_the_other_agents_tools(self, ours, run, tools):
        model = ScriptedModel(script=[says("", call("play_song", title="Blue")), says("Sorry.")])
        agent = create_agent(model, tools[:6], middleware=[ours])
        other = create_agent(ScriptedModel(), tools[6:], middleware=[ours])
        await run.ask(other, "play a song")
        result = await run.ask(agent, "current weather in a city")

        assert answers_of_tools(result)[0].status == "error"
        assert "play_song [" not in contents(result)[0]

    @runtime_tells_tools
    async def test_tools_of_one_refused_name_are_not_mixed_up(self, ours, run):
        def note_taker(answer):
            def take(text: str) -> str:
                return answer

            async def atake(text: str) -> str:
                return answer

            return StructuredTool.from_function(
                take, atake, name="notes.create", description="Takes a note."
            )

        def agent_of(model, answer):
            return create_agent(model, [note_taker(answer)], middleware=[ours])

        turn = [says("", call("notes__create", text="milk")), says("Noted.")]
        other = agent_of(ScriptedModel(script=turn), "of the other")

        class AsksTheOther(ScriptedModel):
            def _generate(self, *args, **kwargs):
                if not self._bound:
                    self._noted = contents(other.invoke({"messages": [("user", "take a note")]}))
                return super()._generate(*args, **kwargs)

            _noted: list = PrivateAttr(default_factory=list)

        model = AsksTheOther(script=turn)
        noted = contents(await run.ask(agent_of(model, "of this one"), "take a note"))

        assert noted == ["of this one"]
        assert model._noted == ["of the other"]

    async def test_with_a_rag_both_agents_have_its_tools(self, run, rag):
        ours = ToolRAGMiddleware(rag=rag)
        bound = []
        for _ in range(2):
            model = ScriptedModel()
            await run.ask(create_agent(model, middleware=[ours]), "play a song on the speakers")
            bound += model.bound

        assert bound[0] == bound[1]
        assert bound[0][0] == "play_song"


class TestItsState:
    async def test_callers_do_not_see_it(self, with_middleware, run, tools, model, thread):
        agent = with_middleware(model, tools, options=ONE, checkpointer=InMemorySaver())
        result = await run.ask(agent, "current weather in a city", thread)

        assert set(result) == {"messages"}
        assert memory(agent, thread)["bound"] == ["weather/get_weather"]
        assert "toolrag" not in agent.get_output_jsonschema()["properties"]

    async def test_callers_cannot_set_it(self, with_middleware, run, tools, model):
        forged = {"version": 2, "query": "", "turn_id": "", "search_id": "", "index_version": 1}
        forged |= {"turn": 1, "bound": ["mail/send_email"], "found": {}, "loaded": [], "used": {}}
        agent = with_middleware(model, tools, options=ONE)
        given = {"messages": [("user", "current weather in a city")], "toolrag": forged}
        await run.invoke(agent, given)

        assert model.bound == [["get_weather"]]

    async def test_it_is_small_json(self, with_middleware, run, thread):
        many = [cheap_tool(f"handle_topic_{n}", f"Topic {n}. {'word ' * 50}") for n in range(200)]
        model = ScriptedModel()
        agent = with_middleware(model, many, checkpointer=InMemorySaver())
        for n in range(10):
            await run.ask(agent, f"topic {n}", thread)

        assert len(json.dumps(memory(agent, thread))) < 5000


class TestInsideAndOutsideOtherWrappers:
    async def test_inner_wrappers_see_the_selected_tools(self, with_middleware, run, tools):
        seen = []

        def look(request):
            seen.append([tool.name for tool in request.tools])
            return request.override(system_message=SystemMessage("Be brief."))

        inner = [Around(look, name="A"), Around(look, name="B")]
        model = ScriptedModel(script=[says("", WEATHER_CALL), says("Warm.")])
        agent = with_middleware(model, tools, options=ONE, after=inner)
        await run.ask(agent, "current weather in a city")

        assert seen == [["get_weather"]] * 4
        assert model.messages[0][0] == SystemMessage("Be brief.")

    async def test_an_inner_wrapper_may_write_state_of_its_own(
        self, with_middleware, run, tools, model, thread
    ):
        def extended(response):
            note = Command(update={"messages": [AIMessage("P.S.", id="ps")]})
            return ExtendedModelResponse(model_response=response, command=note)

        given = {"after": [Around(then=extended)], "checkpointer": InMemorySaver()}
        agent = with_middleware(model, tools, options=ONE, **given)
        result = await run.ask(agent, "current weather in a city", thread)

        assert [message.content for message in result["messages"][1:]] == ["done", "P.S."]
        assert memory(agent, thread)["bound"] == ["weather/get_weather"]

    async def test_an_inner_wrapper_may_answer_itself(self, with_middleware, run, tools, model):
        inner = Around(then=lambda response: AIMessage("From the cache."))
        agent = with_middleware(model, tools, options=ONE, after=[inner])
        result = await run.ask(agent, "current weather in a city")

        assert result["messages"][-1].content == "From the cache."

    async def test_an_outer_wrapper_may_take_tools_away(self, with_middleware, run, tools, model):
        def without_weather(request):
            left = [t for t in request.tools if getattr(t, "name", "") != "get_weather"]
            return request.override(tools=left)

        agent = with_middleware(model, tools, options=FEW, before=[Around(without_weather)])
        await run.ask(agent, "current weather in a city")

        assert len(model.bound[0]) == 3
        assert "get_weather" not in model.bound[0]

    async def test_tools_that_an_outer_wrapper_shows_in_the_middle_of_a_turn_are_searched(
        self, with_middleware, run, tools
    ):
        log_in = make_tool("log_in", "Logs the user in.", ())

        def after_log_in(request):
            if any(message.type == "tool" for message in request.messages):
                return request
            return request.override(tools=[t for t in request.tools if t.name == "log_in"])

        model = ScriptedModel(script=[says("", call("log_in")), says("Playing.")])
        given = {"options": ONE, "before": [Around(after_log_in)]}
        agent = with_middleware(model, [*tools, log_in], **given)
        await run.ask(agent, "play a song on the speakers")

        assert model.bound == [["log_in"], ["log_in", "play_song"]]

    async def test_an_outer_wrapper_may_shorten_the_messages(
        self, with_middleware, run, tools, model, embeddings
    ):
        outer = Around(lambda request: request.override(messages=request.messages[-1:]))
        agent = with_middleware(model, tools, options=ONE, before=[outer])
        said = [("user", "play a song"), ("ai", "No."), ("user", "current weather in a city")]
        await run.invoke(agent, {"messages": said})

        assert model.bound == [["get_weather"]]
        assert [len(messages) for messages in model.messages] == [1]


class TestWithoutAUsersWords:
    @pytest.mark.parametrize(
        "messages",
        [[], [("ai", "Good morning.")], [("system", "Be brief.")]],
        ids=["no message", "only the model's", "only a system's"],
    )
    async def test_the_model_is_still_called(self, with_middleware, run, tools, model, messages):
        agent = with_middleware(model, tools, options=ONE)
        result = await run.invoke(agent, {"messages": messages})

        assert result["messages"][-1].content == "done"
        assert model.bound == [[]]

    async def test_a_history_with_calls_is_never_sent_without_tools(
        self, with_middleware, run, tools, model
    ):
        history = [
            says("", call("gone_tool", "g1")),
            ToolMessage("It was fine.", tool_call_id="g1", name="gone_tool"),
        ]
        await run.invoke(with_middleware(model, tools, options=ONE), {"messages": history})

        assert len(model.bound[0]) == 1


class TestWhileTheEmbedderIsDown:
    async def test_a_middleware_can_be_made_and_searched_by_words(self, run, tools, model):
        rag = ToolRAG(tools, embeddings=BrokenEmbeddings(), options=ONE)
        agent = create_agent(model, middleware=[ToolRAGMiddleware(rag=rag)])
        await run.ask(agent, "play a song")

        assert model.bound == [["play_song"]]
        assert "the model server is down" in rag.status.failure

    async def test_it_raises_if_asked_for(self, run, tools, model):
        options = SelectionOptions(k=1, on_error="raise")
        rag = ToolRAG(tools, embeddings=BrokenEmbeddings(), options=options)
        agent = create_agent(model, middleware=[ToolRAGMiddleware(rag=rag)])
        with pytest.raises(EmbeddingError, match="the model server is down"):
            await run.ask(agent, "play a song")


class TestConstruction:
    @pytest.mark.parametrize("given", [{"tools": []}, {"options": ONE}], ids=["tools", "options"])
    def test_a_rag_is_given_alone(self, rag, given):
        with pytest.raises(ValueError, match="rag brings its own tools and options"):
            ToolRAGMiddleware(rag=rag, **given)

    def test_it_brings_its_tools_to_the_agent(self, rag, tools):
        ours = ToolRAGMiddleware(rag=rag)

        assert list(ours.tools) == tools
        assert ours.name == "ToolRAGMiddleware"
        assert ToolRAGMiddleware(rag=rag, name="another").name == "another"

    async def test_an_agent_without_tools_works(self, run, model, default_embeddings):
        result = await run.ask(create_agent(model, middleware=[ToolRAGMiddleware()]), "hello")

        assert result["messages"][-1].content == "done"
        assert default_embeddings.queries == []

    async def test_tools_of_one_embedding_run_are_not_embedded_again(
        self, with_middleware, run, tools, embeddings
    ):
        agent = with_middleware(ScriptedModel(), tools, options=ONE)
        await run.ask(agent, "current weather in a city")
        once = len(embeddings.texts)
        await run.ask(agent, "play a song")

        assert len(embeddings.texts) == once > 0
        assert len(embeddings.queries) == 2
