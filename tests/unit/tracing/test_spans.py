"""A selection as a span and metrics of OpenTelemetry."""

import asyncio
import json
import subprocess
import sys

import pytest
from conversations import said, user
from fakes import BrokenEmbeddings
from opentelemetry import trace
from opentelemetry.sdk.metrics import Histogram
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Sampler
from opentelemetry.trace import SpanKind, StatusCode

from langchain_toolrag import SelectionOptions
from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.tracing.tracing import Tracing

WEATHER = "current weather in a city"
RAISE = SelectionOptions(on_error="raise")
THREAD = {"configurable": {"thread_id": "conversation-7"}}

WITHOUT_OPENTELEMETRY = """
import sys
sys.modules["opentelemetry"] = None  # As if it were not installed.
from langchain_toolrag.tracing.tracing import Tracing
Tracing()
try:
    Tracing(opentelemetry=True)
except ModuleNotFoundError as error:
    print(error.name, "-", error)
"""


def documents(span):
    return json.loads(span.attributes["gen_ai.retrieval.documents"])


class TestASpan:
    async def test_has_the_conventions_names(self, with_tracing, telemetry, select):
        rag = with_tracing(options=SelectionOptions(k=3))
        selection = await select(rag, WEATHER, config=THREAD)
        (span,) = telemetry.spans
        assert (span.name, span.kind) == ("retrieval", SpanKind.INTERNAL)
        assert span.status.status_code is StatusCode.UNSET
        said = {
            name: value
            for name, value in span.attributes.items()
            if name.startswith("gen_ai.") and name != "gen_ai.retrieval.documents"
        }
        assert said == {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.conversation.id": "conversation-7",
            "gen_ai.retrieval.query.text": WEATHER,
            "gen_ai.retrieval.top_k": 3,
        }
        assert [tool["id"] for tool in documents(span)] == selection.ids
        assert documents(span)[0] == {
            "id": "weather/get_weather",
            "score": selection.scores["get_weather"],
            "rank": 1,
            "reason": selection.reasons["get_weather"],
            "bound": True,
        }

    async def test_has_names_of_its_own_for_the_rest(self, with_tracing, telemetry, select):
        selection = await select(with_tracing(options=SelectionOptions(k=3)), WEATHER)
        attributes = telemetry.spans[0].attributes
        own = {name: value for name, value in attributes.items() if name.startswith("toolrag.")}
        assert own == {
            "toolrag.operation": "select",
            "toolrag.options": '{"k": 3}',
            "toolrag.catalogue": 12,
            "toolrag.index_version": "1",
            "toolrag.bound": 3,
            "toolrag.passed_through": 0,
            "toolrag.tokens": selection.tokens,
            "toolrag.catalogue_tokens": selection.catalogue_tokens,
            "toolrag.confidence": selection.confidence,
            "toolrag.fresh": True,
            "toolrag.prefix_changed": selection.prefix_changed,
            "toolrag.search_id": selection.search_id,
            "toolrag.turn_id": selection.turn_id,
        }

    async def test_is_made_of_a_search_too(self, with_tracing, telemetry):
        rag = with_tracing()
        found = rag.find(WEATHER)
        assert (await rag.afind(WEATHER)).hits == found.hits
        assert [span.attributes["toolrag.operation"] for span in telemetry.spans] == ["search"] * 2
        span = telemetry.spans[0]
        assert span.attributes["gen_ai.retrieval.query.text"] == WEATHER
        assert span.attributes["toolrag.found"] == len(found.hits)
        assert documents(span)[0] == {
            "id": found.hits[0].id,
            "score": found.hits[0].score,
            "rank": 1,
            "bound": False,
        }

    async def test_is_a_child_of_the_current_one(self, with_tracing, telemetry, select):
        rag = with_tracing()
        tracer = telemetry.tracer_provider.get_tracer("an agent")
        with tracer.start_as_current_span("step") as step:
            await select(rag, WEATHER)
        inner, outer = telemetry.spans
        assert (inner.name, outer.name) == ("retrieval", "step")
        assert inner.parent.span_id == step.get_span_context().span_id

    async def test_is_the_current_one_while_it_is_made(self, with_tracing, telemetry, embeddings):
        seen = []
        embed = embeddings.embed_query
        embeddings.embed_query = lambda text: seen.append(trace.get_current_span()) or embed(text)
        with_tracing(embeddings=embeddings).select(WEATHER)
        assert [span.name for span in seen] == ["retrieval"]
        assert not trace.get_current_span().get_span_context().is_valid

    async def test_of_concurrent_selections_does_not_nest(self, with_tracing, telemetry):
        rag = with_tracing()
        await asyncio.gather(*(rag.aselect(f"{WEATHER} {n}") for n in range(5)))
        assert len(telemetry.spans) == 5
        assert {span.parent for span in telemetry.spans} == {None}

    async def test_of_a_failure_has_the_error(self, with_tracing, telemetry, select):
        rag = with_tracing(embeddings=BrokenEmbeddings(), options=RAISE)
        with pytest.raises(EmbeddingError):
            await select(rag, WEATHER)
        (span,) = telemetry.spans
        assert span.status.status_code is StatusCode.ERROR
        assert "the model server is down" in span.status.description
        assert span.attributes["error.type"] == "langchain_toolrag.errors.EmbeddingError"
        assert [event.name for event in span.events] == ["exception"]
        assert "gen_ai.retrieval.documents" not in span.attributes

    async def test_of_a_degraded_selection_says_so(self, with_tracing, telemetry, select):
        selection = await select(with_tracing(embeddings=BrokenEmbeddings()), WEATHER)
        (span,) = telemetry.spans
        assert span.status.status_code is StatusCode.UNSET
        assert span.attributes["toolrag.degraded"] == selection.degraded
        (event,) = span.events
        assert (event.name, dict(event.attributes)) == (
            "toolrag.degraded",
            {"toolrag.instead": "lexical"},
        )

    def test_that_is_not_sampled_still_counts(self, with_tracing, telemetry):
        telemetry.tracer_provider.sampler = ALWAYS_OFF
        with_tracing().select(WEATHER)
        assert telemetry.spans == ()
        assert len(telemetry.metrics["toolrag.selection.duration"]) == 1

    def test_is_made_beside_langchains_run(self, with_tracing, telemetry, collector, config):
        selection = with_tracing().select(WEATHER, config=config)
        assert [run.name for run in collector.traced_runs] == ["toolrag.select"]
        assert telemetry.spans[0].attributes["toolrag.bound"] == len(selection.tools)


class TestMetrics:
    def test_tell_how_long_a_selection_takes(self, with_tracing, telemetry):
        rag = with_tracing()
        first = rag.select(WEATHER)
        rag.select([user(WEATHER), said("hm")], previous=first.state)
        points = telemetry.metrics["toolrag.selection.duration"]
        assert {tuple(attributes.values()): point.count for attributes, point in points} == {
            ("select", True): 1,
            ("select", False): 1,
        }
        _, point = points[0]
        assert 0 < point.sum < 10
        assert point.explicit_bounds[0] < 0.001
        assert point.explicit_bounds[-1] == 10

    def test_tell_how_many_tools_were_bound_and_tokens_saved(self, with_tracing, telemetry):
        selection = with_tracing().select(WEATHER)
        ((labels, tools),) = telemetry.metrics["toolrag.selection.tools"]
        ((_, saved),) = telemetry.metrics["toolrag.selection.tokens_saved"]
        assert labels == {"toolrag.operation": "select", "toolrag.fresh": True}
        assert tools.sum == len(selection.tools)
        assert saved.sum == selection.catalogue_tokens - selection.tokens

    @pytest.mark.parametrize(
        ("options", "instead"),
        [
            (SelectionOptions(), "lexical"),
            (SelectionOptions(on_error="all"), "all"),
            (SelectionOptions.classic(), "all"),
        ],
    )
    def test_count_degraded_selections_by_what_they_were_made_of(
        self, with_tracing, telemetry, options, instead
    ):
        rag = with_tracing(embeddings=BrokenEmbeddings(), options=options)
        rag.select(WEATHER)
        rag.select(WEATHER)
        ((labels, point),) = telemetry.metrics["toolrag.selection.degraded"]
        assert labels["toolrag.instead"] == instead
        assert point.value == 2

    def test_count_one_made_of_what_was_bound_before(self, with_tracing, telemetry):
        embeddings = BrokenEmbeddings(broken=False)
        rag = with_tracing(embeddings=embeddings, options=SelectionOptions(on_error="previous"))
        before = rag.select(WEATHER)
        embeddings.broken = True
        rag.select("play a song", previous=before.state)
        ((labels, point),) = telemetry.metrics["toolrag.selection.degraded"]
        assert (labels["toolrag.instead"], point.value) == ("previous", 1)

    def test_count_degraded_searches(self, with_tracing, telemetry):
        with_tracing(embeddings=BrokenEmbeddings()).find(WEATHER)
        ((labels, _),) = telemetry.metrics["toolrag.selection.degraded"]
        assert labels["toolrag.operation"] == "search"
        assert "toolrag.selection.tools" not in telemetry.metrics

    def test_tell_failures_from_selections(self, with_tracing, telemetry):
        rag = with_tracing(embeddings=BrokenEmbeddings(), options=RAISE)
        with pytest.raises(EmbeddingError):
            rag.select(WEATHER)
        ((labels, point),) = telemetry.metrics["toolrag.selection.duration"]
        assert labels == {
            "toolrag.operation": "select",
            "error.type": "langchain_toolrag.errors.EmbeddingError",
        }
        assert point.sum > 0

    def test_have_few_labels_however_many_conversations_there_are(self, with_tracing, telemetry):
        rag = with_tracing()
        for thread in range(20):
            rag.select(f"{WEATHER} {thread}", config={"configurable": {"thread_id": f"{thread}"}})
        assert {name: len(points) for name, points in telemetry.metrics.items()} == {
            "toolrag.selection.duration": 1,
            "toolrag.selection.tools": 1,
            "toolrag.selection.tokens_saved": 1,
        }


class TestWithoutProviders:
    def test_the_processs_own_are_used(self, with_tracing):
        rag = with_tracing(Tracing(opentelemetry=True))
        assert rag.select(WEATHER).names[0] == "get_weather"  # There are none: nothing happens.

    def test_what_is_not_installed_is_named_with_what_to_install(self):
        command = [sys.executable, "-c", WITHOUT_OPENTELEMETRY]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert printed.startswith("opentelemetry - spans and metrics need opentelemetry-api")
        assert "pip install 'langchain-toolrag[otel]'" in printed


def halves_in(value):
    """Yield the texts in a value that UTF-8 cannot hold."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            yield value
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from halves_in(each)


class BrokenExporter(SpanExporter):
    def export(self, spans):
        raise ConnectionError("nobody takes spans")


class BrokenProcessor(SpanProcessor):
    """Raises where a span begins, or where it ends."""

    def __init__(self, where):
        setattr(self, where, self.fail)

    def fail(self, *args, **given):
        raise ConnectionError(f"no place for a span about {WEATHER}")


class BrokenSampler(Sampler):
    def should_sample(self, *args, **given):
        raise ConnectionError("nobody knows whether to sample")

    def get_description(self):
        return "broken"


def broken_telemetry(what):
    provider = TracerProvider(sampler=BrokenSampler() if what == "sampler" else None)
    if what == "exporter":
        provider.add_span_processor(SimpleSpanProcessor(BrokenExporter()))
    elif what != "sampler":
        provider.add_span_processor(BrokenProcessor(what))
    return provider


class TestOpenTelemetryThatFails:
    @pytest.mark.parametrize("what", ["sampler", "on_start", "on_end", "exporter"])
    async def test_stops_no_selection_and_hides_no_error(self, with_tracing, select, what):
        tracing = Tracing(tracer_provider=broken_telemetry(what))
        rag = with_tracing(tracing, options=RAISE)
        assert (await select(rag, WEATHER)).names[0] == "get_weather"
        assert rag.find(WEATHER).hits
        broken = with_tracing(tracing, BrokenEmbeddings(), options=RAISE)
        with pytest.raises(EmbeddingError, match="the model server is down"):
            await select(broken, WEATHER)

    def test_in_its_metrics_stops_no_selection(self, with_tracing, telemetry, monkeypatch):
        def fail(*args, **given):
            raise ConnectionError("nobody counts")

        monkeypatch.setattr(Histogram, "record", fail)
        assert with_tracing().select(WEATHER).names[0] == "get_weather"
        assert len(telemetry.spans) == 1

    @pytest.mark.parametrize("payloads", [True, False])
    def test_is_warned_of_once_and_not_quoted_where_payloads_are_left_out(
        self, with_tracing, caplog, payloads
    ):
        tracing = Tracing(tracer_provider=broken_telemetry("on_end"), payloads=payloads)
        rag = with_tracing(tracing)
        rag.select(WEATHER)
        rag.select("send an email")
        (warning,) = caplog.records
        assert "OpenTelemetry raised a ConnectionError" in warning.getMessage()
        assert (WEATHER in caplog.text) == payloads


@pytest.mark.parametrize("request_", [f"{WEATHER} \ud83d", "select:get_weather,\udc4d"])
def test_half_an_emoji_is_shown_as_utf_8_can_hold_it(with_tracing, telemetry, quoting, request_):
    """An exporter drops all the spans that it was to send with one that it cannot encode."""
    rag = with_tracing()
    config = {"configurable": {"thread_id": "\ud83d"}}
    rag.select(request_, config=config)
    rag.find(request_, config=config)
    broken = with_tracing(embeddings=quoting, options=RAISE)
    with pytest.raises(EmbeddingError):
        broken.select(f"{WEATHER} \ud83d")
    assert len(telemetry.spans) == 3
    for span in telemetry.spans:
        events = [dict(event.attributes) for event in span.events]
        shown = [dict(span.attributes), events, span.status.description]
        assert not list(halves_in(shown))
