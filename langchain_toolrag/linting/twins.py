"""Tool documents and their vectors in -> tools that a search cannot tell apart out.

Two tools are near twins if their descriptions are of the same words, or if

- their names and descriptions share most words (Jaccard),
- no word of either name is new to the other's text, so that `list_commits` and
  `list_branches` are told apart by their names, and
- the cosine of their vectors is high.

Words such as "get" and "fetch", which tell no two tools apart, count nowhere.

The numbers were chosen by reading every pair they find in the tool lists of mcp_dev,
toolalpaca, restbench, bfcl_live, apibank and metatool and in the examples (1,456 tools). At a
Jaccard index of 0.65 there were 29 pairs, 26 of them one tool twice and 3 that differ in the
order of their words (`fahrenheit_to_celsius`, `celsius_to_fahrenheit`) or in a plural; at 0.5
there were 60, among them siblings (`usergroups_list`, `usergroups_users_list`). The cosine of
the 29 was 0.82 or more, by all-MiniLM-L6-v2; the threshold is lower for other models' sake.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from langchain_toolrag.index.analysis import terms
from langchain_toolrag.linting.finding import Finding, listed
from langchain_toolrag.types import ToolDocument, ToolId, Vectors

Twins: TypeAlias = Mapping[ToolId, Sequence[ToolId]]
"""The near twins of each tool that has any, both ways, in the order of the catalogue."""

_Key = TypeVar("_Key", bound=Hashable)

_SHARED_WORDS = 0.65
_SHARED_WORDS_ALONE = 0.75  # Where there are no vectors to agree.
_COSINE = 0.75
_TELL_NOTHING = frozenset(
    terms(
        """
        api call fetch function get give given obtain provide retrieve return show specified
        specific tool v1 v2 v3 0 1 2 3 4 5 6 7 8 9
        """
    )
)


@dataclass(frozen=True, slots=True)
class _Words:
    """The terms of one tool that can tell it from another; of names without their numbers."""

    name: frozenset[str]
    description: frozenset[str]
    text: frozenset[str]


def find_twins(documents: Sequence[ToolDocument], vectors: Vectors | None) -> Twins:
    """Find the tools that a search cannot tell apart.

    Args:
        documents: The tools.
        vectors: Their rows in the index, shape `(len(documents), dim)`; None to go by words alone.

    Returns:
        The near twins of each tool that has any.
    """
    words = [_words(document) for document in documents]
    unit = None if vectors is None else _unit(vectors)
    found: dict[ToolId, set[int]] = {}
    for row, others in enumerate(_behind(words, unit)):
        for other in others:
            found.setdefault(documents[row].id, set()).add(other)
            found.setdefault(documents[other].id, set()).add(row)
    return {
        tool: [documents[other].id for other in sorted(others)] for tool, others in found.items()
    }


def near_twins(documents: Sequence[ToolDocument], twins: Twins) -> Iterator[Finding]:
    """Yield each pair of near twins once; of a whole group, its first tool with all others."""
    place = {document.id: row for row, document in enumerate(documents)}
    groups: dict[ToolId, set[ToolId]] = {}  # By tool, the first tools of the groups it is in.
    for document in documents:
        mine = groups.setdefault(document.id, set())
        later = (tool for tool in twins.get(document.id, ()) if place[tool] > place[document.id])
        others = tuple(tool for tool in later if mine.isdisjoint(groups.get(tool, ())))
        for tool in (document.id, *others) if others else ():
            groups.setdefault(tool, set()).add(document.id)
        if others:
            yield Finding(
                "near-twin",
                document.id,
                f"a search can hardly tell it from {listed(others)}",
                "keep one of them, or say in each what only that one does",
                others,
            )


def _words(document: ToolDocument) -> _Words:
    description = frozenset(terms(document.description)) - _TELL_NOTHING
    name = frozenset(terms(document.name)) - _TELL_NOTHING
    return _Words(_unnumbered(name), description, description | name)


def _unnumbered(words: frozenset[str]) -> frozenset[str]:
    """`update2` is `update`: numbers behind names are those of versions and copies."""
    return frozenset(word.rstrip("0123456789") or word for word in words) - _TELL_NOTHING


def _unit(vectors: Vectors) -> Vectors:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)


def _behind(words: Sequence[_Words], unit: Vectors | None) -> Iterator[list[int]]:
    """Yield for each tool the rows of its near twins that come after it."""
    sizes = np.array([len(of.text) for of in words], np.int64)
    by_term = _postings([of.text for of in words])
    by_description = _postings([{of.description} - {frozenset()} for of in words])
    least = _SHARED_WORDS_ALONE if unit is None else _SHARED_WORDS
    for row, of in enumerate(words):
        rows = [by_term[term] for term in of.text]
        shared = np.bincount(np.concatenate(rows), minlength=len(words)) if rows else 0 * sizes
        close = np.flatnonzero(shared >= least * np.maximum(sizes + sizes[row] - shared, 1))
        if unit is not None:
            close = close[unit[close] @ unit[row] >= _COSINE]
        twins = {other for other in close.tolist() if not _told_apart(of, words[other])}
        twins.update(by_description.get(of.description, ()))
        yield sorted(other for other in twins if other > row)


def _postings(keys: Sequence[Set[_Key]]) -> dict[_Key, NDArray[np.int64]]:
    """Return the rows that have each key."""
    rows: dict[_Key, list[int]] = {}
    for row, of_row in enumerate(keys):
        for key in of_row:
            rows.setdefault(key, []).append(row)
    return {key: np.array(having, np.int64) for key, having in rows.items()}


def _told_apart(one: _Words, other: _Words) -> bool:
    """Whether a name has a word that is new to the other tool's text."""
    return not (one.name <= _unnumbered(other.text) and other.name <= _unnumbered(one.text))
