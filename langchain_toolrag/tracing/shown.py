"""A selection or a search in -> what is shown of it out, whoever it is shown to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

from langchain_toolrag.selection.options import OnError
from langchain_toolrag.selection.state import read_state
from langchain_toolrag.tracing.about import About
from langchain_toolrag.types import Finding, SelectedTool, Selection, Source, ToolId

Facts: TypeAlias = dict[str, Any]
"""Values by name; each name begins with `toolrag.`, each value is JSON's. What is empty or unknown
is left out."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for.

    Attributes:
        operation: `select` or `search`.
        query: The user's words, or the model's; empty where payloads are left out.
        session: Names the conversation; empty for unknown.
        about: What is known before the answer.
    """

    operation: str
    query: str
    session: str
    about: About


@dataclass(frozen=True, slots=True)
class ShownTool:
    """One tool of an outcome.

    Attributes:
        id: The tool.
        name: Its own name; the name it is bound under where it is gone from the index.
        server: The server it belongs to; None for none.
        text: What is indexed of it; empty where payloads are left out.
        score: The search's score, higher is better; None where the search did not score it.
        rank: Its place in the search's ranking, from 1; None where the search did not find it.
        reason: Why it is bound; None where nothing is bound, as in a search.
        bound: Whether the model sees it.
    """

    id: ToolId
    name: str
    server: str | None
    text: str
    score: float | None
    rank: int | None
    reason: Source | None
    bound: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is shown of a selection or a search.

    Attributes:
        tools: A selection's tools in binding order, then what was found and is not bound, by rank;
            a search's hits, best first.
        facts: What is said of the whole.
        searched: What was searched for; empty where nothing was, or payloads are left out.
        instead: What a degraded answer was made of: `lexical`, `previous` or `all`; empty for one
            that is not degraded.
        bound: How many tools the model sees; None for a search.
        saved: Approximate tokens of the definitions that are not bound.
        fresh: Whether there was a search, rather than the turn's earlier one once more.
    """

    tools: tuple[ShownTool, ...]
    facts: Facts
    searched: str = ""
    instead: str = ""
    bound: int | None = None
    saved: int = 0
    fresh: bool = True


def present(facts: Mapping[str, Any]) -> Facts:
    """Return the facts that are known and not empty; 0 and False are."""
    return {name: value for name, value in facts.items() if value not in (None, "", [], {})}


def known_before(about: About) -> Facts:
    """Return what is shown of a selection before it is made."""
    return present(
        {
            "toolrag.options": {key: _as_json(value) for key, value in about.options.items()},
            "toolrag.heads": about.heads,
            "toolrag.index_version": about.index,
            "toolrag.catalogue": about.catalogue,
        }
    )


def of_selection(selection: Selection, about: About, payloads: bool) -> Outcome:
    """Return what is shown of a selection.

    Args:
        selection: The selection.
        about: What was known before it.
        payloads: Whether words of the user and descriptions of tools may be shown.

    Returns:
        What is shown.
    """
    instead = _instead(selection.degraded)
    facts = {
        "toolrag.bound": len(selection.tools),
        "toolrag.passed_through": len(selection.tools) - len(selection.selected),
        "toolrag.tokens": selection.tokens,
        "toolrag.catalogue_tokens": selection.catalogue_tokens,
        "toolrag.confidence": selection.confidence,
        "toolrag.degraded": selection.degraded if payloads else _without_cause(instead),
        "toolrag.fresh": selection.fresh,
        "toolrag.prefix_changed": selection.prefix_changed,
        "toolrag.search_id": selection.search_id,
        # A digest of the user's words where their message has no id: they can be guessed from it.
        "toolrag.turn_id": selection.turn_id if payloads else "",
        "toolrag.index_version": str(selection.index_version),
    }
    return Outcome(
        tools=tuple(_selected(selection, about, payloads)),
        facts=present(facts),
        searched=selection.query if payloads else "",
        instead=instead,
        bound=len(selection.tools),
        saved=max(0, selection.catalogue_tokens - selection.tokens),
        fresh=selection.fresh,
    )


def of_finding(finding: Finding, about: About, payloads: bool) -> Outcome:
    """Return what is shown of a search.

    Args:
        finding: What the search came to.
        about: What was known before it.
        payloads: As in `of_selection`; names that no tool has are words of the model.

    Returns:
        What is shown.
    """
    instead = "lexical" if finding.degraded else ""  # A search has no other way.
    facts = {
        "toolrag.found": len(finding.hits),
        "toolrag.missing": list(finding.missing) if payloads else len(finding.missing) or None,
        "toolrag.server": finding.server,
        "toolrag.confidence": finding.confidence,
        "toolrag.degraded": finding.degraded if payloads else _without_cause(instead),
        "toolrag.search_id": finding.search_id,
    }
    tools = [
        _shown(hit.id, about, payloads, score=hit.score, rank=hit.rank) for hit in finding.hits
    ]
    return Outcome(tuple(tools), present(facts), instead=instead)


def _selected(selection: Selection, about: About, payloads: bool) -> Iterator[ShownTool]:
    found = read_state(selection.state).found
    ranks = {identity: rank for rank, identity in enumerate(found, start=1)}
    bound = {tool.id for tool in selection.selected}
    for tool in selection.selected:
        score = None if math.isnan(tool.score) else tool.score
        rank = ranks.get(tool.id)
        yield _shown(tool.id, about, payloads, selected=tool, score=score, rank=rank)
    for identity, rank in ranks.items():
        if identity not in bound:
            yield _shown(identity, about, payloads, rank=rank)


def _shown(
    identity: ToolId,
    about: About,
    payloads: bool,
    *,
    selected: SelectedTool | None = None,
    score: float | None = None,
    rank: int | None = None,
) -> ShownTool:
    document = about.describe(identity)
    bound_name = selected.name if selected else identity
    return ShownTool(
        id=identity,
        name=document.name if document else bound_name,
        server=document.server if document else None,
        text=document.text() if document and payloads else "",
        score=score,
        rank=rank,
        reason=selected.source if selected else None,
        bound=selected is not None,
    )


def _instead(degraded: str) -> str:
    # A state that was stored may say anything; what is no such answer is not shown, nor counted by.
    instead = degraded.partition(" instead")[0]
    return instead if instead in get_args(OnError) else ""


def _without_cause(instead: str) -> str:
    # The cause is an error's message, which may quote what was to be embedded.
    return f"{instead} instead" if instead else ""


def _as_json(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
