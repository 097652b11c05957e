"""What is shown of a selection in -> LangChain's retriever run out."""

from __future__ import annotations

from typing import Any, TypeAlias

from langchain_core.callbacks import (
    AsyncCallbackManager,
    AsyncCallbackManagerForRetrieverRun,
    CallbackManager,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.tracers.base import AsyncBaseTracer, BaseTracer

from langchain_toolrag.tracing.shown import Asked, Outcome, ShownTool, known_before

RetrieverRun: TypeAlias = CallbackManagerForRetrieverRun | AsyncCallbackManagerForRetrieverRun


def start(manager: CallbackManager, asked: Asked) -> CallbackManagerForRetrieverRun:
    """Start a run.

    Args:
        manager: Who is told; the run becomes a child of its run.
        asked: What was asked for.

    Returns:
        The run, to be ended.
    """
    manager.add_metadata(known_before(asked.about), inherit=False)
    return manager.on_retriever_start(None, asked.query, name=f"toolrag.{asked.operation}")


async def astart(
    manager: AsyncCallbackManager, asked: Asked
) -> AsyncCallbackManagerForRetrieverRun:
    """Return the same as `start`; handlers are awaited."""
    manager.add_metadata(known_before(asked.about), inherit=False)
    return await manager.on_retriever_start(None, asked.query, name=f"toolrag.{asked.operation}")


def documents(outcome: Outcome) -> list[Document]:
    """Return an outcome's tools as a `ToolRetriever` returns them, and why each is there."""
    return [
        Document(id=tool.id, page_content=tool.text, metadata=_metadata(tool))
        for tool in outcome.tools
    ]


def add_metadata(run: RetrieverRun, outcome: Outcome) -> None:
    """Add an outcome's facts to the metadata of its run, which has started.

    LangChain takes metadata at a run's start alone. Handlers are given the run's own dict, which
    is added to; a tracer may have copied it and has a run of its own, which is added to as well.

    Args:
        run: The run.
        outcome: What came of it.
    """
    query = {"toolrag.query": outcome.searched} if outcome.searched else {}
    facts = {**outcome.facts, **query}
    run.metadata.update(facts)
    for handler in run.handlers:
        if isinstance(handler, BaseTracer | AsyncBaseTracer):
            traced = handler.run_map.get(str(run.run_id))
            if traced is not None:
                traced.add_metadata(facts)


def _metadata(tool: ShownTool) -> dict[str, Any]:
    return {
        "tool_name": tool.name,
        "server": tool.server,
        "score": tool.score,
        "rank": tool.rank,
        "reason": tool.reason,
        "bound": tool.bound,
    }
