"""A request or a conversation -> what an agent would get to see for it, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_messages

from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.selection import fresh
from langchain_toolrag.selection.conversation import Conversation, read_conversation
from langchain_toolrag.selection.selector import by_score
from langchain_toolrag.server.answers import BadRequestError, Stopwatch, finite
from langchain_toolrag.server.bodies import ExplainAnswer, ExplainedTool, UncutTool
from langchain_toolrag.server.searching import BY_WORDS, mode_of, run_over
from langchain_toolrag.server.serving import Served, Serving
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.types import Hit, SelectedTool, Selection, ToolId

_SHOWN = 20  # Tools that were found at all: enough to see how the ranking falls off.


async def explain(serving: Serving, messages: str | Sequence[dict[str, Any]]) -> ExplainAnswer:
    """Select the tools of an agent's next step and say why each is there.

    Nothing of it is logged: what a person tries out is no search of an agent's.

    Args:
        serving: The catalogue.
        messages: A request, or a conversation as JSON.

    Returns:
        The selection, by score, and what ranks under its cut.

    Raises:
        BadRequestError: If it is no conversation.
    """
    served = serving.current
    return await serving.in_thread(lambda: _explained_now(served, messages))


def _explained_now(served: Served, messages: str | Sequence[dict[str, Any]]) -> ExplainAnswer:
    given = messages if isinstance(messages, str) else _read(messages)
    watch = Stopwatch()
    selection = served.rag.select(given)
    took_ms = watch.milliseconds()
    conversation = read_conversation(given)
    below = _below(served.rag, conversation, selection)
    return _answer(served, selection, below, _sticky(served.rag, conversation), took_ms)


def _read(messages: Sequence[dict[str, Any]]) -> list[BaseMessage]:
    try:
        return convert_to_messages(messages)
    # LangChain raises errors of many kinds for what it cannot read.
    except Exception as error:
        problem = "messages: wanted a conversation, each with role and content"
        raise BadRequestError(problem) from error


def _sticky(rag: ToolRAG, conversation: Conversation) -> set[ToolId]:
    called = conversation.sticky(rag.options.sticky_window)
    return {tool for name in called for tool in rag.catalogue.called(name)}


def _below(rag: ToolRAG, conversation: Conversation, selection: Selection) -> list[Hit]:
    """Return the hits that are not bound, best first: the selection's own search, cut later."""
    most = len(selection.selected) + _SHOWN
    plan = fresh.hybrid(
        conversation, replace(rag.options, k=most), None, dense=not selection.degraded
    )
    try:
        hits = run_over(rag.tool_index, plan, rag.heads_for()).hits
    except EmbeddingError:  # It failed just now; what is bound can be shown all the same.
        return []
    bound = set(selection.ids)
    return [hit for hit in hits if hit.id not in bound][:_SHOWN]


def _answer(
    served: Served,
    selection: Selection,
    below: Sequence[Hit],
    sticky: set[ToolId],
    took_ms: float,
) -> ExplainAnswer:
    answer = ExplainAnswer(
        query=selection.query,
        mode=mode_of(selection.degraded),
        took_ms=took_ms,
        index=served.fingerprint,
        tools=[_explained(served, tool, tool.id in sticky) for tool in by_score(selection)],
        below=[_uncut(served, hit) for hit in below if hit.id in served.tools],
        confidence=finite(selection.confidence),
        tokens=selection.tokens,
        catalogue_tokens=selection.catalogue_tokens,
    )
    if selection.degraded:
        answer["note"] = BY_WORDS
    return answer


def _explained(served: Served, tool: SelectedTool, sticky: bool) -> ExplainedTool:
    return ExplainedTool(
        id=tool.id,
        name=served.names[tool.id],
        server=served.tools[tool.id].source,
        description=tool.description,
        source=tool.source,
        sticky=sticky,
        score=finite(tool.score),
        dense=finite(tool.dense),
        lexical=finite(tool.lexical),
        keyword=finite(tool.keyword),
    )


def _uncut(served: Served, hit: Hit) -> UncutTool:
    tool, found = served.tools[hit.id], hit.evidence
    return UncutTool(
        id=hit.id,
        name=served.names[hit.id],
        server=tool.source,
        description=tool.description,
        score=finite(hit.score),
        dense=finite(found.dense),
        lexical=finite(found.lexical),
        keyword=finite(found.keyword),
    )
