"""Requests -> tools of the catalogue that fit them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TypeVar

from langchain_core.runnables import RunnableConfig

from langchain_toolrag.caller import Caller
from langchain_toolrag.index.contract import Index
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.plans import run
from langchain_toolrag.search.cutoff import Cutoff
from langchain_toolrag.search.finding import Search, find
from langchain_toolrag.search.rankings import Question
from langchain_toolrag.server.answers import Stopwatch, finite
from langchain_toolrag.server.bodies import Mode, SearchAnswer, ToolAnswer
from langchain_toolrag.server.recording import NOBODY, Recorder
from langchain_toolrag.server.serving import Served, Serving
from langchain_toolrag.types import Evidence, Finding, ToolFilter, ToolId
from langchain_toolrag.usage.request_vectors import RequestVector

BY_WORDS = "Searched by words and names alone: requests cannot be embedded now."

_FoundT = TypeVar("_FoundT")


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to.

    Attributes:
        search_id: Its name in the usage log.
        served: The catalogue it was answered from.
        finding: What was found.
        mode: How.
        took_ms: How long it took, in milliseconds.
    """

    search_id: str
    served: Served
    finding: Finding
    mode: Mode
    took_ms: float

    def answer(self) -> SearchAnswer:
        """Return what REST answers."""
        answer = SearchAnswer(
            search_id=self.search_id,
            mode=self.mode,
            took_ms=self.took_ms,
            tools=[
                described(self.served, hit.id, score=finite(hit.score)) for hit in self.finding.hits
            ],
            confidence=finite(self.finding.confidence),
            missing=list(self.finding.missing),
        )
        if self.finding.degraded:
            answer["note"] = BY_WORDS
        return answer


async def search(
    serving: Serving, recorder: Recorder, query: str, k: int, caller: Caller = NOBODY
) -> Found:
    """Search the catalogue.

    Args:
        serving: The catalogue.
        recorder: Told of the search.
        query: In the language of `search.finding`.
        k: At most so many tools; those that the query names are found all.
        caller: Who asks.

    Returns:
        What was found.
    """
    served, watch, config = serving.current, Stopwatch(), recorder.config(caller)
    finding = await serving.search_in_time(
        lambda: served.rag.find(query, k, config=config),
        lambda: _by_words(served, query, k, config),
    )
    took_ms = watch.milliseconds()
    search_id = recorder.search(
        "search",
        mode_of(finding.degraded),
        query,
        finding.hits,
        took_ms=took_ms,
        confidence=finding.confidence,
        index=served.fingerprint,
        heads=finding.heads,
        trial=served.rag.trial_for(config),
        caller=caller,
        vector=None if finding.degraded else vector_of(served.rag.tool_index, query),
    )
    return Found(search_id, served, finding, mode_of(finding.degraded), took_ms)


def vector_of(index: Index, query: str) -> RequestVector | None:
    """Return the model's vector of a request that was searched for just now.

    Args:
        index: What was searched.
        query: The request.

    Returns:
        The vector; None where it is not at hand, as where names were asked for.
    """
    vector = index.request_vector(query)
    return None if vector is None else RequestVector(index.model, vector)


def run_over(
    index: Index, plan: Generator[Question, Evidence, _FoundT], heads: Heads | None = None
) -> _FoundT:
    """Carry out the plan of a search.

    Args:
        index: What is searched.
        plan: The plan.
        heads: The learned heads that rank; None for none.

    Returns:
        What it comes to.
    """

    def ask(question: Question) -> Evidence:
        return index.evidence(
            question.query,
            question.candidate_k,
            question.filter,
            dense=question.dense,
            heads=heads,
        )

    return run(plan, ask)


def by_words(query: str, cutoff: Cutoff, within: ToolFilter | None = None) -> Search:
    """Search by words and names alone, as while the model is loading or takes too long.

    Args:
        query: In the language of `search.finding`.
        cutoff: How much of the ranking is returned.
        within: Which tools may be returned.

    Returns:
        A plan, as those of `search.finding`; what it finds is marked.
    """
    found = yield from find(query, cutoff, within, dense=False)
    return replace(found, degraded="the model takes too long")


def digest_of(heads: Heads | None) -> str:
    """Return what the usage log names heads by; empty for none."""
    return "" if heads is None else heads.digest


def _by_words(served: Served, query: str, k: int, config: RunnableConfig) -> Finding:
    cutoff = replace(served.rag.options.cutoff, k=None, max_k=k, min_k=1)
    found = run_over(served.rag.tool_index, by_words(query, cutoff))
    # They were to answer: heads on trial are not to look better for being slow.
    return replace(found, heads=digest_of(served.rag.heads_for(config)))


def described(
    served: Served, identity: ToolId, *, score: float | None = None, full: bool = True
) -> ToolAnswer:
    """Return what callers are told of a tool.

    Args:
        served: The catalogue.
        identity: The tool's id.
        score: How well it fits; None where it was not searched for.
        full: Whether to tell what it takes.

    Returns:
        The tool, as JSON.
    """
    tool = served.tools[identity]
    answer = ToolAnswer(
        name=served.names[identity],
        id=tool.id,
        server=tool.source,
        kind=tool.kind,
        description=tool.description,
    )
    if score is not None:
        answer["score"] = score
    if full:
        answer["inputSchema"] = dict(tool.parameters)
    if full and tool.annotations:
        answer["annotations"] = dict(tool.annotations)
    return answer


def mode_of(degraded: str) -> Mode:
    """Return how a search was answered that is degraded for this reason, or for none."""
    return "lexical" if degraded else "semantic"
