"""What agents write into the usage log: searches, and calls tied to what showed their tools."""

import asyncio
import dataclasses
import json
import shutil
import time

import pytest
from fake_model import ScriptedModel, call, says
from fakes import HashingEmbeddings, make_tool
from langchain.agents import create_agent
from langchain.agents.middleware import TodoListMiddleware, ToolRetryMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from search_agents import AGENTS

from langchain_toolrag import (
    SelectionOptions,
    ToolRAG,
    ToolRAGMiddleware,
    ToolRAGNode,
    create_react_agent,
)
from langchain_toolrag.bigtool import create_agent as create_bigtool_agent
from langchain_toolrag.catalogue.sources.directory_tools import DirectoryTool
from langchain_toolrag.catalogue.sources.stored import CallResult, StoredTool
from langchain_toolrag.cli import main
from langchain_toolrag.types import ToolFilter
from langchain_toolrag.usage.log import UsageLog
from langchain_toolrag.usage.reading import join_calls, read_usage
from langchain_toolrag.usage.records import CallRecord, SearchRecord

REQUEST = "current weather in a city"
WEATHER = call("get_weather", "w1", city="delhi")
SONG = call("play_song", "p1", title="Yesterday")
ONE = SelectionOptions(k=1)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "usage"


@pytest.fixture
def log(directory):
    with UsageLog(directory, log_text=True) as log:
        yield log


@pytest.fixture
def noted(directory, log):
    """Read the log: all records, in order."""

    def read():
        assert log.flush()
        return list(read_usage(directory))

    return read


@pytest.fixture
def calls(noted):
    return lambda: [record for record in noted() if isinstance(record, CallRecord)]


@pytest.fixture
def searches(noted):
    return lambda: [record for record in noted() if isinstance(record, SearchRecord)]


@pytest.fixture
def rag_of(log, tools):
    def make(*more, options=ONE):
        return ToolRAG(
            [*tools, *more], embeddings=HashingEmbeddings(), options=options, usage_log=log
        )

    return make


@pytest.fixture(params=AGENTS)
def agent_of(request, rag_of):
    """Make an agent: `agent_of(script, more_tools, search_tool=...)`."""

    def make(script, *more, **given):
        return AGENTS[request.param](ScriptedModel(script=script), rag_of(*more), **given)

    return make


def outcomes(records):
    return [(record.tool, record.outcome) for record in records]


def failing(name, error):
    def call(city: str) -> str:
        raise error

    async def acall(city: str) -> str:
        raise error

    return StructuredTool.from_function(
        call, acall, name=name, description="Fails.", handle_tool_error=True
    )


class TestSearchesAndCalls:
    async def test_a_call_is_tied_to_the_selection_that_bound_its_tool(self, agent_of, run, noted):
        await run.ask(agent_of([says("", WEATHER)]), REQUEST)

        search, made = noted()
        assert (search.kind, search.text, search.rank_of(made.tool)) == ("select", REQUEST, 1)
        assert (made.tool, made.outcome, made.call_id) == ("weather/get_weather", "ok", "w1")
        assert made.text == '{"city":"delhi"}'
        assert 0 < made.latency_ms < 10_000
        assert [*join_calls([search, made])] == [(made, search)]

    async def test_a_turn_of_several_steps_is_one_search(self, agent_of, run, searches, calls):
        script = [says("", WEATHER), says("", {**WEATHER, "id": "w2"}), says("Warm.")]
        await run.ask(agent_of(script), REQUEST)

        (search,) = searches()
        assert [made.search_id for made in calls()] == [search.search_id] * 2

    @pytest.mark.parametrize("mode", ["auto", "deferred"])
    async def test_what_the_model_searched_for_itself_is_tied_to_that_search(
        self, agent_of, run, searches, calls, mode
    ):
        looking = call("search_tools", "s1", query="plays a song on the speakers")
        script = [says("", looking), says("", SONG, WEATHER)]
        await run.ask(agent_of(script, search_tool=mode), REQUEST)

        by_id = {search.search_id: search.kind for search in searches()}
        made = {record.tool: record for record in calls()}
        assert set(made) == {"music/play_song", "weather/get_weather"}
        assert by_id[made["music/play_song"].search_id] == "search"
        if mode == "auto":
            assert by_id[made["weather/get_weather"].search_id] == "select"

    async def test_a_tool_that_nothing_showed_is_tied_to_nothing(self, agent_of, run, calls):
        await run.ask(agent_of([says("", SONG)]), REQUEST)

        assert [(made.tool, made.search_id) for made in calls()] == [("music/play_song", "")]

    async def test_each_of_many_parallel_calls_is_noted(self, agent_of, run, searches, calls):
        many = [call("get_weather", f"w{n}", city=f"city {n}") for n in range(20)]
        await run.ask(agent_of([says("", *many)]), REQUEST)

        (search,) = searches()
        assert {made.call_id: made.text for made in calls()} == {
            f"w{n}": json.dumps({"city": f"city {n}"}, separators=(",", ":")) for n in range(20)
        }
        assert {made.search_id for made in calls()} == {search.search_id}

    async def test_runs_at_once_are_not_mixed_up(self, rag_of, searches, calls):
        agents = [
            AGENTS["middleware"](ScriptedModel(script=[says("", WEATHER)]), rag_of())
            for _ in range(8)
        ]
        await asyncio.gather(
            *(agent.ainvoke({"messages": [("user", REQUEST)]}) for agent in agents)
        )

        assert sorted(made.search_id for made in calls()) == sorted(
            search.search_id for search in searches()
        )
        assert len({made.search_id for made in calls()}) == 8

    async def test_the_command_sums_up_what_an_agent_wrote(
        self, agent_of, run, calls, directory, capsys
    ):
        await run.ask(agent_of([says("", WEATHER, SONG)]), REQUEST)
        assert len(calls()) == 2

        assert main(["usage", "--data", str(directory), "--json"]) == 0
        summary = json.loads(capsys.readouterr().out)
        assert (summary["searches"], summary["outcomes"]) == ({"select": 1}, {"ok": 2})
        assert (summary["tied"], summary["ranks"]) == (1, {"1": 1})


class TestOutcomes:
    async def test_a_failure_that_the_tool_tells_the_model(self, agent_of, run, calls):
        broken = failing("get_tide", ToolException("no such coast"))
        await run.ask(agent_of([says("", call("get_tide", city="delhi"))], broken), REQUEST)

        assert outcomes(calls()) == [("get_tide", "tool_error")]

    @pytest.mark.parametrize(
        ("error", "outcome"),
        [(ValueError("broken"), "tool_error"), (TimeoutError("too late"), "timeout")],
    )
    async def test_an_error_ends_the_run_as_ever(self, agent_of, run, calls, error, outcome):
        agent = agent_of([says("", call("get_tide", city="delhi"))], failing("get_tide", error))
        with pytest.raises(type(error), match=str(error)):
            await run.ask(agent, REQUEST)

        assert outcomes(calls()) == [("get_tide", outcome)]

    async def test_arguments_that_do_not_fit(self, agent_of, run, calls):
        tide = failing("get_tide", ValueError())
        await run.ask(agent_of([says("", call("get_tide", town="delhi"))], tide), REQUEST)

        assert outcomes(calls()) == [("get_tide", "tool_error")]

    async def test_a_name_that_is_not_there_is_refused_and_not_repeated(self, agent_of, run, noted):
        await run.ask(agent_of([says("", call("order_pizza", kind="secret"))]), REQUEST)

        _, made = noted()
        assert (made.tool, made.outcome, made.search_id) == ("", "refused", "")
        assert made.latency_ms is None
        assert "order_pizza" not in str(made.as_json())

    async def test_a_tool_that_is_suggested_was_not_called(self, agent_of, run, calls):
        script = [says("", SONG), says("", {**SONG, "id": "p2"})]
        await run.ask(agent_of(script, unknown_tool="suggest"), REQUEST)

        assert outcomes(calls()) == [("music/play_song", "refused"), ("music/play_song", "ok")]

    async def test_a_command_is_ok(self, agent_of, run, calls):
        def jump(city: str) -> Command:
            return Command(update={"messages": [ToolMessage("There.", tool_call_id="c1")]})

        async def ajump(city: str) -> Command:
            return jump(city)

        tool = StructuredTool.from_function(jump, ajump, name="jump", description="Jumps.")
        await run.ask(agent_of([says("", call("jump", city="delhi"))], tool), REQUEST)

        assert outcomes(calls()) == [("jump", "ok")]


class Harbour:
    """Calls the tools of a directory, each with the outcome that its arguments ask for."""

    def call_now(self, stored, arguments):
        time.sleep(0.01)  # So that parallel calls are under way at once.
        return CallResult(arguments["outcome"], "told")

    async def call(self, stored, arguments):
        await asyncio.sleep(0.01)
        return CallResult(arguments["outcome"], "told")


def of_a_directory(name="tide"):
    return DirectoryTool(
        name=name,
        description="Asks the harbour.",
        args_schema={"type": "object", "properties": {"outcome": {"type": "string"}}},
        metadata={"server": "harbour"},
        stored=StoredTool(f"harbour/{name}", "harbour", "mcp", name),
        calls=Harbour(),
    )


KINDS = ("ok", "tool_error", "timeout", "refused")


class TestOutcomesOfADirectorysTools:
    @pytest.mark.parametrize("outcome", KINDS)
    async def test_each_is_noted_as_what_it_was(self, agent_of, run, calls, outcome):
        script = [says("", call("tide", "t1", outcome=outcome)), says("So it is.")]
        result = await run.ask(agent_of(script, of_a_directory()), REQUEST)

        (answer,) = [each for each in result["messages"] if isinstance(each, ToolMessage)]
        assert answer.content == "told"
        assert answer.status == ("success" if outcome == "ok" else "error")
        (made,) = calls()
        assert (made.tool, made.outcome) == ("harbour/tide", outcome)
        assert (made.latency_ms is None) == (outcome == "refused")

    async def test_parallel_calls_are_not_mixed_up(self, agent_of, run, calls):
        given = {f"{name}{n}": (name, KINDS[n % 4]) for n in range(16) for name in ("tide", "wind")}
        many = [call(name, id, outcome=outcome) for id, (name, outcome) in given.items()]
        tools = (of_a_directory(), of_a_directory("wind"))
        await run.ask(agent_of([says("", *many), says("So it is.")], *tools), REQUEST)

        assert {made.call_id: (made.tool, made.outcome) for made in calls()} == {
            id: (f"harbour/{name}", outcome) for id, (name, outcome) in given.items()
        }

    async def test_one_that_is_raised_is_noted_and_goes_on(self, agent_of, run, calls):
        raising = of_a_directory()
        raising.handle_tool_error = False
        agent = agent_of([says("", call("tide", outcome="timeout"))], raising)
        with pytest.raises(ToolException, match="told"):
            await run.ask(agent, REQUEST)

        assert outcomes(calls()) == [("harbour/tide", "timeout")]

    async def test_arguments_that_do_not_fit_are_an_error_of_the_tool(self, agent_of, run, calls):
        @tool
        def knots(speed: int) -> str:
            """Asks how fast."""
            return str(speed)

        script = [says("", call("knots", speed="fast"), call("tide", outcome="timeout"))]
        await run.ask(agent_of(script, knots, of_a_directory()), REQUEST)

        assert sorted(outcomes(calls())) == [("harbour/tide", "timeout"), ("knots", "tool_error")]

    async def test_what_a_tool_asks_of_another_is_not_its_own_outcome(self, agent_of, run, calls):
        inner = of_a_directory()

        def forecast() -> str:
            told = inner.invoke(call("tide", "inner", outcome="timeout"))
            raise ToolException(f"the tide: {told.content}")

        async def aforecast() -> str:
            told = await inner.ainvoke(call("tide", "inner", outcome="timeout"))
            raise ToolException(f"the tide: {told.content}")

        outer = StructuredTool.from_function(
            forecast, aforecast, name="forecast", description="Asks.", handle_tool_error=True
        )
        await run.ask(agent_of([says("", call("forecast", "f1"))], outer), REQUEST)

        assert outcomes(calls()) == [("forecast", "tool_error")]

    async def test_an_agent_that_is_a_tool_of_another_notes_its_own(self, agent_of, run, calls):
        script = [says("", call("tide", "t1", outcome="refused")), says("It is not told.")]
        pilot = agent_of(script, of_a_directory())

        def ask(question: str) -> str:
            return pilot.invoke({"messages": [("user", question)]})["messages"][-1].content

        async def aask(question: str) -> str:
            return (await pilot.ainvoke({"messages": [("user", question)]}))["messages"][-1].content

        tool = StructuredTool.from_function(ask, aask, name="pilot", description="A pilot.")
        agent = agent_of([says("", call("pilot", "p1", question=REQUEST))], tool)
        await run.ask(agent, REQUEST)

        assert outcomes(calls()) == [("harbour/tide", "refused"), ("pilot", "ok")]

    async def test_runs_at_once_are_not_mixed_up(self, rag_of, calls):
        agents = [
            AGENTS["middleware"](
                ScriptedModel(script=[says("", call("tide", f"t{n}", outcome=KINDS[n % 4]))]),
                rag_of(of_a_directory()),
            )
            for n in range(12)
        ]
        asked = {"messages": [("user", REQUEST)]}
        await asyncio.gather(
            *(agent.ainvoke(asked) for agent in agents[::2]),
            *(asyncio.to_thread(agent.invoke, asked) for agent in agents[1::2]),
        )

        assert {made.call_id: made.outcome for made in calls()} == {
            f"t{n}": KINDS[n % 4] for n in range(12)
        }


@dataclasses.dataclass
class Tenant:
    """The context of a run."""

    server: str


def of_tenant(runtime):
    return ToolFilter(servers={runtime.context.server})


class TestTenants:
    async def test_each_call_is_refused_or_tied_by_its_own_tenants_filter(
        self, agent_of, run, searches, calls
    ):
        agent = agent_of(
            [says("", WEATHER, SONG), says("Warm."), says("", WEATHER, SONG), says("Played.")],
            filter=of_tenant,
            context_schema=Tenant,
        )
        await run.ask(agent, REQUEST, context=Tenant("weather"))
        await run.ask(agent, "play a song", context=Tenant("music"))

        weather, music = searches()
        assert (weather.bound, music.bound) == (("weather/get_weather",), ("music/play_song",))
        made = [(record.tool, record.outcome, record.search_id) for record in calls()]
        assert sorted(made) == sorted(
            [
                ("weather/get_weather", "ok", weather.search_id),
                ("music/play_song", "refused", ""),
                ("weather/get_weather", "refused", ""),
                ("music/play_song", "ok", music.search_id),
            ]
        )


def of(tenant, thread="1"):
    return {"configurable": {"thread_id": thread, "tenant_id": tenant}}


class TestTenantsOfAConfig:
    async def test_a_call_belongs_to_its_own_tenants_search(
        self, agent_of, run, log, noted, searches, calls
    ):
        for tenant in ("acme", "globex"):
            await run.ask(agent_of([says("", WEATHER)]), REQUEST, of(tenant))

        wanted = [log.digest("tenant", tenant) for tenant in ("acme", "globex")]
        assert [search.tenant for search in searches()] == wanted
        assert [made.tenant for made in calls()] == wanted
        pairs = [*join_calls(noted())]
        assert [search for _, search in pairs] == searches()

    async def test_a_call_of_one_tenant_never_joins_a_search_of_another(
        self, agent_of, run, noted, searches
    ):
        saver, ask = InMemorySaver(), call("ask_harbour", "a1", city="delhi")
        asking = TestInterrupts.asking
        agent = agent_of([says("", ask)], asking(), checkpointer=saver)
        await run.ask(agent, "asks the harbour for the tide", of("acme"))
        # The same conversation, gone on with in another tenant's name.
        resumed = agent_of([says("It is low.")], asking(), checkpointer=saver)
        await run.invoke(resumed, Command(resume="low"), of("globex"))

        ((made, search),) = join_calls(noted())
        assert made.search_id == searches()[0].search_id
        assert search is None

    async def test_what_the_model_searched_for_itself_is_its_tenants_too(
        self, agent_of, run, log, noted
    ):
        looking = call("search_tools", "s1", query="plays a song on the speakers")
        agent = agent_of([says("", looking), says("", SONG)], search_tool=True)
        await run.ask(agent, REQUEST, of("acme"))

        assert {record.tenant for record in noted()} == {log.digest("tenant", "acme")}
        (pair,) = join_calls(noted())
        assert pair[1].kind == "search"

    async def test_a_tenant_that_is_no_text_is_taken_as_one(self, agent_of, run, log, calls):
        await run.ask(agent_of([says("", WEATHER)]), REQUEST, of(7))
        assert [made.tenant for made in calls()] == [log.digest("tenant", "7")]


class TestInterrupts:
    @staticmethod
    def asking(name="ask_harbour"):
        def ask(city: str) -> str:
            return interrupt(f"may I ask {city}?")

        async def aask(city: str) -> str:
            return ask(city)

        return StructuredTool.from_function(
            ask, aask, name=name, description="Asks the harbour for the tide."
        )

    async def test_an_interrupted_call_is_noted_once_when_it_has_ended(
        self, agent_of, run, thread, searches, calls, noted
    ):
        ask = call("ask_harbour", "a1", city="delhi")
        saver = InMemorySaver()
        agent = agent_of([says("", ask)], self.asking(), checkpointer=saver)
        await run.ask(agent, "asks the harbour for the tide", thread)
        assert calls() == []

        # As in another process, which goes on with what the checkpoint holds alone.
        resumed = agent_of([says("It is low.")], self.asking(), checkpointer=saver)
        await run.invoke(resumed, Command(resume="low"), thread)

        (search,), (made,) = searches(), calls()
        assert (made.tool, made.outcome, made.call_id) == ("ask_harbour", "ok", "a1")
        assert [*join_calls(noted())] == [(made, search)]

    async def test_a_tool_kept_from_an_earlier_turn_is_tied_to_the_search_that_found_it_anew(
        self, agent_of, run, thread, searches, calls
    ):
        saver = InMemorySaver()
        await run.ask(agent_of([says("", WEATHER)], checkpointer=saver), REQUEST, thread)
        again = agent_of([says("", {**WEATHER, "id": "w2"})], checkpointer=saver)
        await run.ask(again, "the weather in a city", thread)

        assert [made.search_id for made in calls()] == [each.search_id for each in searches()]

    async def test_what_a_search_loaded_is_tied_to_it_in_a_later_turn(
        self, agent_of, run, thread, searches, calls
    ):
        saver = InMemorySaver()
        given = {"checkpointer": saver, "search_tool": True}
        looking = call("search_tools", "s1", query="plays a song on the speakers")
        await run.ask(agent_of([says("", looking)], **given), REQUEST, thread)
        await run.ask(agent_of([says("", SONG)], **given), "thanks", thread)

        (own,) = [search for search in searches() if search.kind == "search"]
        assert [made.search_id for made in calls()] == [own.search_id]


class TestWhatIsNotNoted:
    async def test_a_tool_of_another_middleware_is_no_ones_business(self, rag_of, run, calls):
        agent = create_agent(
            ScriptedModel(script=[says("", call("write_todos", "t1", todos=[]), WEATHER)]),
            middleware=[ToolRAGMiddleware(rag=rag_of()), TodoListMiddleware()],
        )
        await run.ask(agent, REQUEST)

        assert outcomes(calls()) == [("weather/get_weather", "ok")]

    async def test_of_two_selectors_the_one_whose_tool_it_is_notes_it(
        self, rag_of, run, log, calls
    ):
        other = ToolRAG([make_tool("brew_tea")], embeddings=HashingEmbeddings(), usage_log=log)
        script = [says("", WEATHER, call("brew_tea", "b1"), call("order_pizza", "o1"))]
        agent = create_agent(
            ScriptedModel(script=script),
            middleware=[
                ToolRAGMiddleware(rag=rag_of()),
                ToolRAGMiddleware(rag=other, name="kitchen"),
            ],
        )
        await run.ask(agent, REQUEST)

        made = {record.call_id: record for record in calls()}
        assert {key: (each.tool, each.outcome) for key, each in made.items()} == {
            "w1": ("weather/get_weather", "ok"),
            "b1": ("brew_tea", "ok"),
            "o1": ("", "refused"),
        }
        assert made["w1"].search_id != ""

    async def test_each_try_of_a_middleware_that_tries_again_is_a_call(self, rag_of, run, calls):
        tide = failing("get_tide", ConnectionError("no line"))
        retry = ToolRetryMiddleware(max_retries=1, initial_delay=0, jitter=False)
        agent = create_agent(
            ScriptedModel(script=[says("", call("get_tide", city="delhi"))]),
            middleware=[retry, ToolRAGMiddleware(rag=rag_of(tide))],
        )
        await run.ask(agent, REQUEST)

        assert outcomes(calls()) == [("get_tide", "tool_error")] * 2

    async def test_without_a_log_an_answer_says_nothing_of_it(self, run, tools, embeddings):
        rag = ToolRAG(tools, embeddings=embeddings, options=ONE)
        script = [says("", call("search_tools", "s1", query="play a song"))]
        agent = AGENTS["middleware"](ScriptedModel(script=script), rag, search_tool=True)
        result = await run.ask(agent, REQUEST)

        (answer,) = [each for each in result["messages"] if isinstance(each, ToolMessage)]
        assert set(answer.artifact) == {"toolrag_loaded", "toolrag_fruitless"}


class TestAnIngestDirectory:
    PYTHON = """
from langchain_core.tools import tool

@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

ALL = [add]
"""

    async def test_its_own_log_is_that_of_its_toolrag(self, run, tmp_path, embeddings, capsys):
        (tmp_path / "sums.py").write_text(self.PYTHON)
        data = tmp_path / "data"
        assert main(["ingest", "python", f"{tmp_path / 'sums.py'}:ALL", "--out", str(data)]) == 0
        capsys.readouterr()

        with ToolRAG.from_directory(data, embeddings=embeddings, usage_log=data / "usage") as rag:
            script = [says("", call("sums__add", a=1, b=2))]
            agent = AGENTS["middleware"](ScriptedModel(script=script), rag)
            await run.ask(agent, "add two numbers")

        assert main(["usage", "--data", str(data), "--json"]) == 0
        summary = json.loads(capsys.readouterr().out)
        assert (summary["searches"], summary["outcomes"]) == ({"select": 1}, {"ok": 1})
        assert (summary["tied"], summary["never_retrieved"]) == (1, [])


class TestOtherAgents:
    async def test_bigtools_agent_notes_calls_where_its_toolrag_has_a_log(
        self, rag_of, run, tools, noted
    ):
        registry = {tool.name: tool for tool in tools}
        asking = call("retrieve_tools", "r1", query=REQUEST)
        script = [says("", asking), says("", WEATHER, call("order_pizza", "o1"))]
        agent = create_bigtool_agent(ScriptedModel(script=script), registry, rag=rag_of()).compile()
        await run.ask(agent, REQUEST)

        assert sorted(outcomes(noted())) == [("", "refused"), ("weather/get_weather", "ok")]

    async def test_the_prebuilt_agent_notes_calls_of_tools_it_was_given(
        self, rag_of, run, tools, calls
    ):
        selector = ToolRAGNode(rag=rag_of())
        model = ScriptedModel(script=[says("", WEATHER)])
        agent = create_react_agent(model, tools, tool_selector=selector)
        await run.ask(agent, REQUEST)

        assert outcomes(calls()) == [("weather/get_weather", "ok")]


async def test_a_log_that_cannot_be_written_disturbs_no_step(agent_of, run, log, directory, caplog):
    shutil.rmtree(directory)
    directory.touch()
    looking = call("search_tools", "s1", query="plays a song on the speakers")
    agent = agent_of([says("", looking), says("", SONG, WEATHER)], search_tool=True)
    result = await run.ask(agent, REQUEST)
    log.close()

    answers = [each for each in result["messages"] if isinstance(each, ToolMessage)]
    assert [answer.status for answer in answers] == ["success"] * 3
    assert log.dropped == 4
    assert sum("cannot record everything" in each.message for each in caplog.records) == 1
