"""Every search and call -> the server's counts and the usage log."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from langchain_core.runnables import RunnableConfig

from langchain_toolrag.caller import Caller
from langchain_toolrag.server.bodies import Mode
from langchain_toolrag.server.metrics import Metrics
from langchain_toolrag.types import Hit, ToolId
from langchain_toolrag.usage.log import UsageLog
from langchain_toolrag.usage.records import Outcome, SearchKind
from langchain_toolrag.usage.request_vectors import RequestVector

NOBODY = Caller()
"""Who asks where that is not known."""


class Recorder:
    """Names, counts and logs searches and calls.

    Args:
        metrics: Where they are counted.
        usage: Where they are logged; None for nowhere.

    Attributes:
        metrics: Where they are counted.
        usage: Where they are logged; None for nowhere.
    """

    def __init__(self, metrics: Metrics, usage: UsageLog | None) -> None:
        self.metrics = metrics
        self.usage = usage
        if usage is not None:
            metrics.watch("usage_dropped", "Lines the usage log lost.", lambda: usage.dropped)

    def config(self, caller: Caller) -> RunnableConfig:
        """Return what tells a search who asks; the tenant as the log's digest, which heads go by.

        Args:
            caller: Who asks.

        Returns:
            The config of a run. Without a log no tenant has heads of its own.
        """
        tenant = self.usage.digest("tenant", caller.tenant) if self.usage is not None else ""
        return {"configurable": {"thread_id": caller.session, "tenant_id": tenant}}

    def search(
        self,
        kind: SearchKind,
        mode: Mode,
        query: str,
        hits: Iterable[Hit],
        *,
        took_ms: float,
        confidence: float | None = None,
        index: str = "",
        heads: str = "",
        trial: str = "",
        caller: Caller = NOBODY,
        vector: RequestVector | None = None,
    ) -> str:
        """Note a search.

        Args:
            kind: What was asked.
            mode: How it was answered.
            query: The request.
            hits: What was shown of the catalogue, best first.
            took_ms: How long it took, in milliseconds.
            confidence: How sure it was that some tool fits; None for unknown.
            index: Which catalogue answered.
            heads: Digest of the learned heads that answered; empty for none.
            trial: Digest of those on trial for the caller's session; empty for none.
            caller: Who asks.
            vector: The request's vector; None where there is none at hand.

        Returns:
            Its name, which calls of what it found can give.
        """
        search_id = f"s-{uuid.uuid4().hex}"
        self.metrics.searched(kind, mode, took_ms / 1000)
        if self.usage is not None:
            self.usage.search(
                search_id=search_id,
                kind=kind,
                mode=mode,
                query=query,
                retrieved=[(hit.id, hit.rank, hit.score) for hit in hits],
                confidence=confidence,
                index=index,
                heads=heads,
                trial=trial,
                session=caller.session,
                tenant=caller.tenant,
                took_ms=took_ms,
                vector=vector,
            )
        return search_id

    def call(
        self,
        tool: ToolId,
        outcome: Outcome,
        *,
        search_id: str,
        arguments: Any = None,
        took_ms: float | None = None,
        tenant: str = "",
    ) -> str:
        """Note a call that has ended.

        Args:
            tool: The tool; empty for a name that the catalogue does not have.
            outcome: How it went.
            search_id: The search that found it; empty for unknown.
            arguments: What it was called with; None for unknown.
            took_ms: How long it took, in milliseconds; None for a call the caller made itself.
            tenant: Names the tenant, as for the search; empty for none.

        Returns:
            Its name.
        """
        call_id = f"c-{uuid.uuid4().hex}"
        if took_ms is not None:
            self.metrics.called(outcome, took_ms / 1000)
        if self.usage is not None:
            self.usage.call(
                call_id=call_id,
                tool=tool,
                outcome=outcome,
                search_id=search_id,
                arguments=arguments,
                latency_ms=took_ms,
                tenant=tenant,
            )
        return call_id
