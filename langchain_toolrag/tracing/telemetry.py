"""What is shown of a selection in -> an OpenTelemetry span and metrics out."""

from __future__ import annotations

import json
import logging
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_toolrag.tracing.shown import Asked, Facts, Outcome, ShownTool, known_before, present

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import Span, TracerProvider

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_SCOPE = "langchain_toolrag"
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_TOOLS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
_TOKENS = (0, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000)


class Telemetry:
    """Makes a span of each selection, and counts; what OpenTelemetry raises stops no selection.

    A sampler or a processor of spans may raise where the work is done. Of each kind of error there
    is one warning.

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
        self._warned: set[str] = set()
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
        from opentelemetry.trace import INVALID_SPAN, use_span

        def begin() -> Span:
            return self._tracer.start_span("retrieval", attributes=_asked(asked))

        span = self._quietly(begin) or INVALID_SPAN
        watched = Watched()
        # The message of an error may quote the user: what is said of it is said in `_fail`.
        with use_span(span, record_exception=False, set_status_on_exception=False):
            try:
                yield watched
            except BaseException as error:
                watched.stop()
                failure = error
                self._quietly(lambda: self._fail(span, failure))
                self._quietly(lambda: self._count(asked.operation, watched, _type(failure)))
                raise
            else:
                self._quietly(lambda: _show(span, watched.outcome))
                self._quietly(lambda: self._count(asked.operation, watched))
            finally:
                self._quietly(span.end)

    def _quietly(self, tell: Callable[[], _T]) -> _T | None:
        """Return what OpenTelemetry answers; None, with a warning, where it raises."""
        try:
            return tell()
        except Exception as error:
            if _type(error) not in self._warned:
                self._warned.add(_type(error))
                problem = "spans and metrics may be missing: OpenTelemetry raised a %s"
                logger.warning(problem, _type(error), exc_info=self._payloads)
            return None

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
            message, trace = map(
                _encodable, (str(error), "".join(traceback.format_exception(error)))
            )
            known = {"exception.message": message, "exception.stacktrace": trace}
            span.record_exception(error, known)
            span.set_status(Status(StatusCode.ERROR, message))
        else:
            span.add_event("exception", {"exception.type": _type(error)})
            span.set_status(Status(StatusCode.ERROR))


class Watched:
    """One piece of work.

    Attributes:
        outcome: What came of the work; None where it failed.
        seconds: How long the work took, in seconds; 0 while it is not done.
    """

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self.seconds = 0.0
        self.outcome: Outcome | None = None

    def stop(self) -> None:
        """Take the time: what follows is not work."""
        self.seconds = self.seconds or time.perf_counter() - self._started


def _show(span: Span, outcome: Outcome | None) -> None:
    if outcome is None or not span.is_recording():
        return
    query = {"gen_ai.retrieval.query.text": outcome.searched} if outcome.searched else {}
    documents = {"gen_ai.retrieval.documents": _documents(outcome)}
    span.set_attributes(_flat({**outcome.facts, **documents, **query}))
    if outcome.instead:
        span.add_event("toolrag.degraded", {"toolrag.instead": outcome.instead})


def _asked(asked: Asked) -> dict[str, Any]:
    top_k = asked.about.options.get("k")
    known = {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.conversation.id": asked.session,
        "gen_ai.retrieval.query.text": asked.query,
        "gen_ai.retrieval.top_k": top_k if asked.operation == "select" else None,
        "toolrag.operation": asked.operation,
    }
    return _flat({**present(known), **known_before(asked.about)})


def _flat(facts: Facts) -> dict[str, Any]:
    """Return facts as attributes, which are strings, numbers, and lists of strings."""
    return {name: _attribute(value) for name, value in facts.items()}


def _attribute(value: object) -> Any:
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, list):
        return [_attribute(each) for each in value]
    return _encodable(value) if isinstance(value, str) else value


def _encodable(text: str) -> str:
    """Return a text as UTF-8 can hold it; of half an emoji exporters send nothing at all."""
    return text.encode("utf-8", "replace").decode()


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
