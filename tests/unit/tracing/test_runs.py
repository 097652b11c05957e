"""A selection as a run of LangChain's tracing tree."""

import asyncio
import logging
import timeit

import pytest
from conversations import said, turn, user
from fakes import BrokenEmbeddings, make_tool
from langchain_core.callbacks import (
    AsyncCallbackHandler,
    AsyncCallbackManager,
    BaseCallbackHandler,
    CallbackManager,
)
from langchain_core.runnables import RunnableLambda, ensure_config
from langchain_core.tracers.base import AsyncBaseTracer
from langchain_core.tracers.langchain import LangChainTracer
from langsmith.run_helpers import tracing_context

from langchain_toolrag import SelectionOptions, ToolRAG
from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.tracing.tracing import About, Tracing
from langchain_toolrag.types import Finding, Selection

WEATHER = "current weather in a city"
EMPTY = Selection((), (), "", {}, "s", "t", 1)
ABOUT = About({}, "", "1", 0, {}.get)


class Awaited(AsyncCallbackHandler):
    """Takes its time over each event."""

    def __init__(self):
        self.events = []

    async def on_retriever_start(self, *args, **kwargs):
        await asyncio.sleep(0)
        self.events.append("start")

    async def on_retriever_end(self, *args, **kwargs):
        await asyncio.sleep(0)
        self.events.append("end")


class TakesNoRetrievers(BaseCallbackHandler):
    """Is told of models and chains alone."""

    ignore_retriever = True


class AsyncCollector(AsyncBaseTracer):
    """LangChain's asynchronous tracer, in memory."""

    def __init__(self):
        super().__init__()
        self.traced_runs = []

    async def _persist_run(self, run):
        self.traced_runs.append(run)


class Client:
    """A LangSmith client that sends nothing."""

    def __init__(self):
        self.ended = []

    def create_run(self, *args, **kwargs):
        pass

    def update_run(self, *args, **kwargs):
        self.ended.append(kwargs)


@pytest.fixture(params=["sync", "async"])
def find(request):
    async def ask(rag, *args, **given):
        if request.param == "async":
            return await rag.afind(*args, **given)
        return rag.find(*args, **given)

    return ask


def metadata(run):
    return {
        name.removeprefix("toolrag."): value
        for name, value in run.extra.get("metadata", {}).items()
        if name.startswith("toolrag.")
    }


class TestASelection:
    async def test_is_a_retriever_run_of_the_users_words(self, rag, collector, config, select):
        await select(rag, [*turn("hello"), user(WEATHER)], config=config)
        (run,) = collector.traced_runs
        assert (run.run_type, run.name) == ("retriever", "toolrag.select")
        assert run.inputs == {"query": WEATHER}
        assert run.error is None
        assert run.end_time >= run.start_time

    async def test_shows_each_bound_tool_and_why(self, rag, collector, config, select):
        selection = await select(
            rag, [*turn("lamp", "turn_on_light"), user(WEATHER)], config=config
        )
        shown = collector.traced_runs[0].outputs["documents"]
        bound = [document for document in shown if document.metadata["bound"]]
        assert [document.id for document in bound] == selection.ids
        first, sticky = bound[0], bound[-1]
        assert first.page_content.startswith("weather. get_weather. get. weather: Current weather")
        assert first.metadata == {
            "tool_name": "get_weather",
            "server": "weather",
            "score": selection.scores["get_weather"],
            "rank": 1,
            "reason": selection.reasons["get_weather"],
            "bound": True,
        }
        assert (sticky.id, sticky.metadata["reason"]) == ("home/turn_on_light", "sticky")

    async def test_says_in_metadata_what_it_was_and_cost(self, rag, collector, config, select):
        selection = await select(rag, WEATHER, config=config)
        assert metadata(collector.traced_runs[0]) == {
            "catalogue": 12,
            "index_version": str(selection.index_version),
            "bound": len(selection.tools),
            "passed_through": 0,
            "tokens": selection.tokens,
            "catalogue_tokens": selection.catalogue_tokens,
            "confidence": selection.confidence,
            "fresh": True,
            "prefix_changed": selection.prefix_changed,
            "search_id": selection.search_id,
            "turn_id": selection.turn_id,
            "query": WEATHER,
        }

    def test_names_the_options_that_differ_from_the_defaults(self, tools, embeddings, config):
        options = SelectionOptions(k=2, always_include=("send_email",))
        rag = ToolRAG(tools, embeddings=embeddings, options=options)
        rag.select(WEATHER, config=config)
        (run,) = config["callbacks"][0].traced_runs
        assert metadata(run)["options"] == {"k": 2, "always_include": ["send_email"]}

    def test_shows_what_was_found_and_found_no_place(self, tools, embeddings, config):
        options = SelectionOptions(k=5, max_tools=2)
        rag = ToolRAG(tools, embeddings=embeddings, options=options)
        selection = rag.select("weather forecast for a city", config=config)
        shown = config["callbacks"][0].traced_runs[0].outputs["documents"]
        left_out = [document for document in shown if not document.metadata["bound"]]
        assert len(selection.tools) == 2
        assert [document.metadata["rank"] for document in left_out] == [3, 4, 5]
        assert {document.metadata["reason"] for document in left_out} == {None}

    async def test_that_reuses_the_turns_search_says_so(self, rag, collector, config, select):
        messages = [user(WEATHER)]
        first = await select(rag, messages, config=config)
        again = await select(rag, [*messages, said("hm")], previous=first.state, config=config)
        runs = collector.traced_runs
        assert [metadata(run)["fresh"] for run in runs] == [True, False]
        assert {metadata(run)["search_id"] for run in runs} == {first.search_id}
        assert [document.id for document in runs[1].outputs["documents"]] == again.ids
        assert runs[1].outputs["documents"][0].metadata["rank"] == 1

    async def test_that_is_degraded_says_why(self, tools, collector, config, select):
        rag = ToolRAG(tools, embeddings=BrokenEmbeddings())
        selection = await select(rag, WEATHER, config=config)
        (run,) = collector.traced_runs
        assert metadata(run)["degraded"] == selection.degraded
        assert "the model server is down" in selection.degraded
        assert "confidence" not in metadata(run)
        assert run.error is None

    async def test_of_classic_is_shown_too(self, tools, embeddings, collector, config, select):
        classic = SelectionOptions.classic()
        rag = ToolRAG(tools, embeddings=embeddings, options=classic)
        selection = await select(rag, WEATHER, config=config)
        (run,) = collector.traced_runs
        assert [document.id for document in run.outputs["documents"]] == selection.ids
        assert metadata(run)["options"]["algorithm"] == "classic"

    def test_counts_tools_that_pass_through(self, rag, tools, config):
        mine = make_tool("mine", "Is not in the catalogue.")
        rag.select(WEATHER, tools=[*tools, mine], config=config)
        (run,) = config["callbacks"][0].traced_runs
        assert metadata(run)["passed_through"] == 1
        assert metadata(run)["bound"] == len(run.outputs["documents"]) + 1

    def test_keeps_the_tags_and_metadata_of_its_config(self, rag, collector, config):
        rag.select(WEATHER, config={**config, "tags": ["mine"], "metadata": {"who": "me"}})
        (run,) = collector.traced_runs
        assert run.tags == ["mine"]
        assert run.extra["metadata"]["who"] == "me"

    async def test_that_fails_ends_its_run_with_the_error(self, tools, collector, config, select):
        options = SelectionOptions(on_error="raise")
        rag = ToolRAG(tools, embeddings=BrokenEmbeddings(), options=options)
        with pytest.raises(EmbeddingError, match="server is down"):
            await select(rag, WEATHER, config=config)
        (run,) = collector.traced_runs
        assert "the model server is down" in run.error
        assert run.outputs is None or not run.outputs

    async def test_that_is_cancelled_ends_its_run(self, collector, config):
        started = asyncio.Event()

        async def forever():
            started.set()
            await asyncio.Event().wait()

        work = Tracing().aselect(forever, lambda: "", ABOUT, config)
        task = asyncio.create_task(work)
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "CancelledError" in collector.traced_runs[0].error


class TestASearch:
    async def test_is_a_retriever_run_of_its_query(self, rag, collector, config, find):
        found = await find(rag, WEATHER, config=config)
        (run,) = collector.traced_runs
        assert (run.run_type, run.name) == ("retriever", "toolrag.search")
        assert run.inputs == {"query": WEATHER}
        assert [
            (document.id, document.metadata["score"], document.metadata["rank"])
            for document in run.outputs["documents"]
        ] == [(hit.id, hit.score, hit.rank) for hit in found.hits]
        assert metadata(run) == {
            "catalogue": 12,
            "index_version": "1",
            "found": len(found.hits),
            "confidence": found.confidence,
        }

    def test_says_which_names_no_tool_has(self, rag, collector, config):
        rag.find("select:get_weather,no_such_tool", config=config)
        assert metadata(collector.traced_runs[0])["missing"] == ["no_such_tool"]

    def test_of_a_server_names_it(self, rag, collector, config):
        rag.find("github", config=config)
        assert metadata(collector.traced_runs[0])["server"] == "github"

    async def test_that_is_degraded_says_why(self, tools, collector, config, find):
        rag = ToolRAG(tools, embeddings=BrokenEmbeddings())
        await find(rag, WEATHER, config=config)
        assert "the model server is down" in metadata(collector.traced_runs[0])["degraded"]


class TestItsPlaceInTheTree:
    def test_is_under_the_run_whose_config_it_is_given(self, rag, collector, config):
        def agent(words, config):
            return rag.select(words, config=config).names

        RunnableLambda(agent).invoke(WEATHER, config)
        (run,) = collector.traced_runs
        assert run.name == "agent"
        assert [child.name for child in run.child_runs] == ["toolrag.select"]
        assert run.child_runs[0].parent_run_id == run.id

    def test_is_under_the_run_it_is_part_of_where_it_is_given_none(self, rag, collector, config):
        RunnableLambda(lambda words: rag.select(words).names).invoke(WEATHER, config)
        (run,) = collector.traced_runs
        assert [child.name for child in run.child_runs] == ["toolrag.select"]

    async def test_is_under_an_asynchronous_run(self, rag, collector, config):
        async def agent(words, config):
            await rag.afind(words, config=config)
            return (await rag.aselect(words, config=config)).names

        await RunnableLambda(agent).ainvoke(WEATHER, config)
        (run,) = collector.traced_runs
        assert [child.name for child in run.child_runs] == ["toolrag.search", "toolrag.select"]

    async def test_is_among_the_events_of_a_stream(self, rag):
        async def agent(words, config):
            return (await rag.aselect(words, config=config)).names

        events = [
            event async for event in RunnableLambda(agent).astream_events(WEATHER, version="v2")
        ]
        ours = [event for event in events if event["name"] == "toolrag.select"]
        assert [event["event"] for event in ours] == ["on_retriever_start", "on_retriever_end"]
        assert ours[1]["data"]["output"][0].id == "weather/get_weather"
        assert ours[1]["metadata"]["toolrag.bound"] > 0

    def test_leaves_the_parents_metadata_alone(self, rag, collector, config):
        RunnableLambda(lambda words: rag.select(words).names).invoke(WEATHER, config)
        assert metadata(collector.traced_runs[0]) == {}


class TestHandlers:
    async def test_that_are_asynchronous_are_awaited(self, rag):
        handler = Awaited()
        await rag.aselect(WEATHER, config={"callbacks": [handler]})
        assert handler.events == ["start", "end"]

    async def test_that_are_asynchronous_hear_of_a_selection_made_without_awaiting(self, rag):
        handler = Awaited()
        manager = AsyncCallbackManager([handler], [handler])
        rag.select(WEATHER, config={"callbacks": manager})
        assert handler.events == ["start", "end"]

    async def test_of_a_synchronous_manager_hear_of_an_awaited_selection(self, rag, collector):
        manager = CallbackManager([collector], [collector])
        await rag.aselect(WEATHER, config={"callbacks": manager})
        assert [run.name for run in collector.traced_runs] == ["toolrag.select"]

    async def test_that_trace_asynchronously_get_the_metadata_too(self, rag):
        tracer = AsyncCollector()
        selection = await rag.aselect(WEATHER, config={"callbacks": [tracer]})
        assert metadata(tracer.traced_runs[0])["bound"] == len(selection.tools)

    @pytest.mark.parametrize("event", ["on_retriever_start", "on_retriever_end"])
    async def test_that_fail_break_nothing(self, rag, recorder, select, event, caplog):
        def fail(*args, **kwargs):
            raise OSError("the disk is full")

        setattr(recorder, event, fail)
        with caplog.at_level(logging.WARNING):
            selection = await select(rag, WEATHER, config={"callbacks": [recorder]})
        assert selection.names[0] == "get_weather"
        assert "the disk is full" in caplog.text

    @pytest.mark.parametrize("event", ["on_retriever_start", "on_retriever_end"])
    async def test_that_ask_for_it_may_raise(self, rag, recorder, select, event):
        def fail(*args, **kwargs):
            raise OSError("the disk is full")

        setattr(recorder, event, fail)
        recorder.raise_error = True
        with pytest.raises(OSError, match="disk is full"):
            await select(rag, WEATHER, config={"callbacks": [recorder]})
        assert "error" not in recorder.events

    def test_that_keep_what_they_are_given_see_the_metadata_at_the_end(self, rag, recorder):
        selection = rag.select(WEATHER, config={"callbacks": [recorder]})
        (_, _, started), _ = recorder.calls
        assert started["metadata"]["toolrag.tokens"] == selection.tokens

    def test_that_take_no_retrievers_are_nobody(self):
        asked, config = [], {"callbacks": [TakesNoRetrievers()]}
        Tracing().select(lambda: EMPTY, lambda: asked.append("words"), ABOUT, config)
        assert asked == []


class TestLangSmith:
    def test_is_sent_the_metadata_of_the_end(self, rag):
        client = Client()
        tracer = LangChainTracer(client=client)
        selection = rag.select(WEATHER, config={"callbacks": [tracer]})
        (sent,) = client.ended
        assert sent["outputs"]["documents"][0].id == "weather/get_weather"
        assert sent["extra"]["metadata"]["toolrag.tokens"] == selection.tokens

    def test_is_sent_it_though_the_tracer_copies_what_it_was_given(self, rag):
        client = Client()
        tracer = LangChainTracer(client=client)
        with tracing_context(metadata={"release": "7"}):
            selection = rag.select(WEATHER, config={"callbacks": [tracer]})
        sent = client.ended[0]["extra"]["metadata"]
        assert sent["release"] == "7"
        assert sent["toolrag.tokens"] == selection.tokens

    def test_is_told_where_the_environment_asks_for_it(self, rag):
        client = Client()
        with tracing_context(enabled=True, client=client):
            rag.select(WEATHER)
        assert [sent["name"] for sent in client.ended] == ["toolrag.select"]


class TestWithNobodyListening:
    def test_the_words_are_not_asked_for(self):
        asked = []
        tracing = Tracing()
        tracing.select(lambda: EMPTY, lambda: asked.append("words"), ABOUT, ensure_config())
        assert asked == []

    def test_what_the_work_returns_is_returned(self):
        finding = Finding()
        assert Tracing().select(lambda: EMPTY, str, ABOUT, ensure_config()) is EMPTY
        assert Tracing().find(lambda: finding, "", ABOUT, ensure_config()) is finding

    def test_it_costs_microseconds(self):
        tracing, config = Tracing(), ensure_config()

        def traced():
            tracing.select(lambda: EMPTY, str, ABOUT, config)

        traced()  # LangChain imports what it needs.
        took = min(timeit.repeat(traced, number=200, repeat=10)) / 200
        assert took < 100e-6  # Some 10 on a machine of its own.
