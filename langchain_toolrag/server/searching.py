"""Requests -> tools of the catalogue that fit them."""

from __future__ import annotations

from dataclasses import dataclass

from langchain_toolrag.server.answers import Stopwatch, finite
from langchain_toolrag.server.bodies import Mode, SearchAnswer, ToolAnswer
from langchain_toolrag.server.recording import Recorder
from langchain_toolrag.server.serving import Served, Serving
from langchain_toolrag.types import Finding, ToolId

BY_WORDS = "Searched by words and names alone: requests cannot be embedded now."


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
    finding = await serving.in_thread(lambda: served.rag.find(query, k))
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
