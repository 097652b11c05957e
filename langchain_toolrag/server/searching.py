"""Requests -> tools of the catalogue that fit them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TypeVar

from langchain_toolrag.index.contract import Index
from langchain_toolrag.plans import run
from langchain_toolrag.search.cutoff import Cutoff
from langchain_toolrag.search.finding import Search, find
from langchain_toolrag.search.rankings import Question
from langchain_toolrag.server.answers import Stopwatch, finite
from langchain_toolrag.server.bodies import Mode, SearchAnswer, ToolAnswer
from langchain_toolrag.server.recording import Recorder
from langchain_toolrag.server.serving import Served, Serving
from langchain_toolrag.types import Evidence, Finding, ToolFilter, ToolId

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
    serving: Serving, recorder: Recorder, query: str, k: int, session: str = ""
) -> Found:
    """Search the catalogue.

    Args:
        serving: The catalogue.
        recorder: Told of the search.
        query: In the language of `search.finding`.
        k: At most so many tools; those that the query names are found all.
        session: Names the caller's session in the usage log.

    Returns:
        What was found.
    """
    served, watch = serving.current, Stopwatch()
    finding = await serving.search_in_time(
        lambda: served.rag.find(query, k), lambda: _by_words(served, query, k)
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
        session=session,
    )
    return Found(search_id, served, finding, mode_of(finding.degraded), took_ms)


def run_over(index: Index, plan: Generator[Question, Evidence, _FoundT]) -> _FoundT:
    """Carry out the plan of a search.

    Args:
        index: What is searched.
        plan: The plan.

    Returns:
        What it comes to.
    """

    def ask(question: Question) -> Evidence:
        return index.evidence(
            question.query, question.candidate_k, question.filter, dense=question.dense
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


def _by_words(served: Served, query: str, k: int) -> Finding:
    cutoff = replace(served.rag.options.cutoff, k=None, max_k=k, min_k=1)
    return run_over(served.rag.tool_index, by_words(query, cutoff))


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
