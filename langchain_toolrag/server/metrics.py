"""What a server counts, in Prometheus' text form."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from langchain_toolrag.server.bodies import Mode
from langchain_toolrag.usage.records import Outcome

CONTENT_TYPE = CONTENT_TYPE_LATEST

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counts of one server; safe under threads."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._searches = self._histogram("search_seconds", "Searches and rankings.", "kind", "mode")
        self._calls = self._histogram("call_seconds", "Calls of tools.", "outcome")
        self._reloads = Counter(
            "toolrag_reloads",
            "New catalogues.",
            ["outcome"],
            registry=self._registry,
        )

    def searched(self, kind: str, mode: Mode, seconds: float) -> None:
        """Count a search, a ranking or a selection."""
        self._searches.labels(kind, mode).observe(seconds)

    def called(self, outcome: Outcome, seconds: float) -> None:
        """Count a call."""
        self._calls.labels(outcome).observe(seconds)

    def reloaded(self, *, failed: bool) -> None:
        """Count a new `tools.jsonl`."""
        self._reloads.labels("failed" if failed else "ok").inc()

    def watch(self, name: str, help: str, value: Callable[[], float]) -> None:
        """Show a value as it is whenever the metrics are read."""
        Gauge(f"toolrag_{name}", help, registry=self._registry).set_function(value)

    def render(self) -> bytes:
        """Return all counts as text."""
        return generate_latest(self._registry)

    def _histogram(self, name: str, help: str, *labels: str) -> Histogram:
        return Histogram(f"toolrag_{name}", help, labels, buckets=_BUCKETS, registry=self._registry)
