"""What is shown of a selection in -> an OpenTelemetry span and metrics out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from langchain_toolrag.tracing.shown import Asked, Facts, Outcome, ShownTool, known_before, present

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import Span, TracerProvider

_SCOPE = "langchain_toolrag"
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_TOOLS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
_TOKENS = (0, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000)


class Telemetry:
    """Makes a span of each selection, and counts.

    Args:
        tracer_provider: Makes the spans; None for the process's own.
        meter_provider: Keeps the metrics; None for the process's own.
        payloads: Whether messages of errors may be shown.

    Raises:
        ModuleNotFoundError: If OpenTelemetry is not installed.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        *,
        payloads: bool,
    ) -> None:
        try:
            from opentelemetry import metrics, trace
        except ModuleNotFoundError as missing:
            raise ModuleNotFoundError(
                "spans and metrics need opentelemetry-api, which is not installed: "
                "pip install 'langchain-toolrag[otel]'",
                name=missing.name,
            ) from missing

        release = version("langchain-toolrag")
        self._payloads = payloads
        self._tracer = trace.get_tracer(_SCOPE, release, tracer_provider)
        self._meter = metrics.get_meter(_SCOPE, release, meter_provider)
        self._seconds = self._histogram("duration", "s", _SECONDS, "How long it took.")
        self._tools = self._histogram("tools", "{tool}", _TOOLS, "Tools that were bound.")
        self._saved = self._histogram(
            "tokens_saved", "{token}", _TOKENS, "Approximate tokens of what was not bound."
        )
        self._degraded = self._meter.create_counter(
            "toolrag.selection.degraded", "{selection}", "Answers made without an embedding."
        )

    @contextmanager
    def watch(self, asked: Asked) -> Iterator[Watched]:
        """Make a span of what is done inside, the current one meanwhile, and count it.

        Args:
            asked: What was asked for.

        Yields:
            What is to be told that the work is done, and what came of it.
        """
        with self._tracer.start_as_current_span(
            "retrieval",
            attributes=_asked(asked),
            record_exception=False,  # Its message may quote the user.
            set_status_on_exception=False,
        ) as span:
            watched = Watched(span)
            try:
                yield watched
            except BaseException as error:
                watched.stop()
                self._fail(span, error)
                self._count(asked.operation, watched, error=_type(error))
                raise
            self._count(asked.operation, watched)

    def _histogram(self, name: str, unit: str, edges: tuple[float, ...], says: str) -> Histogram:
        return self._meter.create_histogram(
            f"toolrag.selection.{name}", unit, says, explicit_bucket_boundaries_advisory=edges
        )

    def _count(self, operation: str, watched: Watched, error: str = "") -> None:
        labels: dict[str, str | bool] = {"toolrag.operation": operation}
        outcome = watched.outcome
        if outcome is None:
            self._seconds.record(watched.seconds, {**labels, "error.type": error})
            return
        labels["toolrag.fresh"] = outcome.fresh
        self._seconds.record(watched.seconds, labels)
        if outcome.bound is not None:
            self._tools.record(outcome.bound, labels)
            self._saved.record(outcome.saved, labels)
        if outcome.instead:
            self._degraded.add(1, {**labels, "toolrag.instead": outcome.instead})

    def _fail(self, span: Span, error: BaseException) -> None:
        from opentelemetry.trace import Status, StatusCode

        span.set_attribute("error.type", _type(error))
        if self._payloads:
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, str(error)))
        else:
            span.add_event("exception", {"exception.type": _type(error)})
            span.set_status(Status(StatusCode.ERROR))


class Watched:
    """One piece of work and its span.

    Args:
        span: The span.

    Attributes:
        outcome: What came of the work; None where it failed.
        seconds: How long the work took, in seconds; 0 while it is not done.
    """

    def __init__(self, span: Span) -> None:
        self._span = span
        self._started = time.perf_counter()
        self.seconds = 0.0
        self.outcome: Outcome | None = None

    def stop(self) -> None:
        """Take the time: what follows is not work."""
        self.seconds = self.seconds or time.perf_counter() - self._started

    def show(self, outcome: Outcome) -> None:
        """Put on the span what came of the work."""
        self.outcome = outcome
        if not self._span.is_recording():
            return
        self._span.set_attributes(_flat(outcome.facts))
        self._span.set_attribute("gen_ai.retrieval.documents", _documents(outcome))
        if outcome.searched:
            self._span.set_attribute("gen_ai.retrieval.query.text", outcome.searched)
        if outcome.instead:
            self._span.add_event("toolrag.degraded", {"toolrag.instead": outcome.instead})


def _asked(asked: Asked) -> dict[str, Any]:
    top_k = asked.about.options.get("k")
    known = {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.conversation.id": asked.session,
        "gen_ai.retrieval.query.text": asked.query,
        "gen_ai.retrieval.top_k": top_k if asked.operation == "select" else None,
        "toolrag.operation": asked.operation,
    }
    return {**present(known), **_flat(known_before(asked.about))}


def _flat(facts: Facts) -> dict[str, Any]:
    """Return facts as attributes, which are strings, numbers, and lists of strings."""
    return {
        name: json.dumps(value) if isinstance(value, dict) else value
        for name, value in facts.items()
    }


def _documents(outcome: Outcome) -> str:
    """Return the tools in the conventions' form, as JSON, and in it what they have no word for."""
    return json.dumps([_document(tool) for tool in outcome.tools])


def _document(tool: ShownTool) -> dict[str, Any]:
    said = {"rank": tool.rank, "reason": tool.reason}
    return {"id": tool.id, "score": tool.score, **present(said), "bound": tool.bound}


def _type(error: BaseException) -> str:
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else (f"{kind.__module__}.{kind.__qualname__}")
    )
