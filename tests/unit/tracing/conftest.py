"""Whoever may listen to selections, and tools to select from."""

import pytest
from fakes import HashingEmbeddings
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from langchain_toolrag import ToolRAG
from langchain_toolrag.tracing.tracing import Tracing


class Recorder(BaseCallbackHandler):
    """Keeps the name and the arguments of each call, as text too."""

    def __init__(self):
        self.calls = []

    def on_retriever_start(self, *args, **kwargs):
        self.calls.append(("start", args, kwargs))

    def on_retriever_end(self, *args, **kwargs):
        self.calls.append(("end", args, kwargs))

    def on_retriever_error(self, *args, **kwargs):
        self.calls.append(("error", args, kwargs))

    @property
    def events(self):
        return [name for name, _, _ in self.calls]


class QuotingEmbeddings(HashingEmbeddings):
    """Quotes what it could not embed, as some providers do."""

    def embed_query(self, text):
        raise ConnectionError(f"no vector for {text!r}")


class Telemetry:
    """What OpenTelemetry was given, and the providers to give it."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meter_provider = MeterProvider([self.reader])

    def tracing(self, **options):
        return Tracing(
            tracer_provider=self.tracer_provider, meter_provider=self.meter_provider, **options
        )

    @property
    def spans(self):
        return self.exporter.get_finished_spans()

    @property
    def metrics(self):
        """The points of each metric: attributes and point."""
        data = self.reader.get_metrics_data()
        found = data.resource_metrics[0].scope_metrics[0].metrics
        return {
            metric.name: [(dict(point.attributes), point) for point in metric.data.data_points]
            for metric in found
        }

    def shutdown(self):
        self.tracer_provider.shutdown()
        self.meter_provider.shutdown()


@pytest.fixture
def collector():
    return RunCollectorCallbackHandler()


@pytest.fixture
def config(collector):
    return {"callbacks": [collector]}


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def telemetry():
    telemetry = Telemetry()
    yield telemetry
    telemetry.shutdown()


@pytest.fixture
def quoting():
    return QuotingEmbeddings()


@pytest.fixture
def with_tracing(tools, telemetry):
    """Make a ToolRAG that OpenTelemetry is told of: `with_tracing(embeddings=..., ...)`."""
    opened = []

    def make(tracing=None, embeddings=None, **given):
        rag = ToolRAG(
            tools,
            embeddings=embeddings or HashingEmbeddings(),
            tracing=tracing or telemetry.tracing(),
            **given,
        )
        opened.append(rag)
        return rag

    yield make
    for rag in opened:
        rag.close()


@pytest.fixture(params=["sync", "async"])
def select(request):
    """Select one way or the other: `await select(rag, messages, ...)`."""

    async def ask(rag, *args, **given):
        if request.param == "async":
            return await rag.aselect(*args, **given)
        return rag.select(*args, **given)

    return ask
