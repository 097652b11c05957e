"""What a model or a person types into a search of tools in -> the tools for it out.

The language of such a query, for a search box, a command line and a model's own search:

    list_issues                a name in any spelling, or several: these tools alone
    select:A,B                 the same, whatever else the words might mean
    github, mcp__github        a server: its tools
    issues +github             `github` must be among the tool's words
    anything else              meaning, words and names together
"""

from __future__ import annotations

import difflib
from collections.abc import Generator, Iterable
from dataclasses import replace
from typing import TypeAlias

from langchain_toolrag.catalogue.names import split_words
from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.index.contract import CANDIDATES
from langchain_toolrag.index.keyword import KeywordQuery, OfServer, parse_query
from langchain_toolrag.search.confidence import confidence
from langchain_toolrag.search.cutoff import Cutoff
from langchain_toolrag.search.fusion import average_score
from langchain_toolrag.search.rankings import Question, by_everything
from langchain_toolrag.types import Evidence, Finding, ToolFilter

Search: TypeAlias = Generator[Question, Evidence, Finding]
"""A plan that ends with what was found."""


def find(
    query: str, cutoff: Cutoff, filter: ToolFilter | None = None, *, dense: bool = True
) -> Search:
    """Find tools; a plan (see `plans`).

    Args:
        query: The query, in the language above.
        cutoff: How much of the ranking is returned; what the query names is, unless `k` is given.
        filter: Which tools may be returned.
        dense: Whether to embed the query.

    Returns:
        What was found; nothing for an empty query.
    """
    if not query.strip():
        return Finding()
    fused = yield from by_everything(query, max(CANDIDATES, cutoff.limit), filter, dense=dense)
    evidence, hits = fused.evidence, fused.hits
    named = [hit for hit in hits if hit.evidence.exact]
    parsed = parse_query(query)
    if evidence.names_alone and (named or parsed.selected is not None):
        found = named if cutoff.k is None else named[: cutoff.k]
        missing = yield from _missing(parsed.selected or (), filter)
        return Finding(tuple(found), missing=missing, confidence=1.0 if found else 0.0)
    if evidence.server:
        listed = yield from _of_server(query, cutoff, filter, evidence.server, dense=dense)
        if listed.hits:
            return listed
    found = cutoff.apply(hits, average_score(evidence))
    if _is_demand(parsed):
        found = hits[: cutoff.limit]
    return Finding(tuple(found), confidence=confidence(evidence, hits))


def _is_demand(query: KeywordQuery) -> bool:
    """Whether a query says no more than which words must occur."""
    return bool(query.required) and set(split_words(query.text)) <= {*query.required}


def find_or_by_words(query: str, cutoff: Cutoff, filter: ToolFilter | None = None) -> Search:
    """Find tools; by words and names alone where the query cannot be embedded.

    Args:
        query: As in `find`.
        cutoff: As in `find`.
        filter: As in `find`.

    Returns:
        What was found, and in `degraded` why it is not what it should be.
    """
    try:
        return (yield from find(query, cutoff, filter))
    except EmbeddingError as error:
        failure = str(error)
    by_words = yield from find(query, cutoff, filter, dense=False)
    return replace(by_words, degraded=failure)


def closest_names(name: str, names: Iterable[str], most: int = 3) -> list[str]:
    """Return the names that are spelled most like one that was not found, in upper or lower case.

    Args:
        name: The name.
        names: The names that there are.
        most: At most so many, above 0.

    Returns:
        The closest first; none where none is much like it.
    """
    known = {each.lower(): each for each in names}
    return [known[alike] for alike in difflib.get_close_matches(name.lower(), known, most)]


def _of_server(
    query: str, cutoff: Cutoff, filter: ToolFilter | None, key: str, *, dense: bool
) -> Search:
    """Find the tools of the server that the query names."""
    wanted = filter or ToolFilter()
    within = replace(wanted, predicate=OfServer(key, wanted.predicate))
    listed = yield from by_everything(query, max(CANDIDATES, cutoff.limit), within, dense=dense)
    return Finding(tuple(listed.hits[: cutoff.limit]), server=key, confidence=1.0)


def _missing(
    names: Iterable[str], filter: ToolFilter | None
) -> Generator[Question, Evidence, tuple[str, ...]]:
    """Return which names no tool answers to, each once."""
    missing = []
    for name in dict.fromkeys(names):
        evidence = yield Question(f"select:{name}", filter, 1, dense=False)
        if not any(tool.exact for tool in evidence.tools):
            missing.append(name)
    return tuple(missing)
