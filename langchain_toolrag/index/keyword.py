"""Names and words in a query -> exact names and points out.

The points are ToolSearch's: for each word of the query 12 if it is in the name of an MCP
tool or names a tool's server, else 10 if it is in the name, else 4 if in the search hint,
else 2 if in the description. Words are whole words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from langchain_toolrag.catalogue.names import comparable, split_words
from langchain_toolrag.types import ToolDocument

SERVER_POINTS = 12
NAME_POINTS = 10
HINT_POINTS = 4
DESCRIPTION_POINTS = 2

_MCP_PREFIX = "mcp__"
_SELECT = re.compile(r"\s*select:(?P<names>.*)", re.IGNORECASE | re.DOTALL)
_REQUIRED = re.compile(r"(?:^|(?<=\s))\+(?=[^\W\d])(?P<term>\S+)")
_PUNCTUATION = "\"'`.,;:!?()[]{}<>*"
_IDENTIFIER = re.compile(r"[A-Za-z0-9_./:-]+")
_CAMEL_HUMP = re.compile(r"[a-z0-9][A-Z]")


@dataclass(frozen=True, slots=True)
class KeywordQuery:
    """A query taken apart.

    Attributes:
        text: The query without its operators, to search by meaning and words.
        selected: Names after `select:`; None where the query is not a selection.
        required: Words that a tool must have, from `+word`.
    """

    text: str
    selected: tuple[str, ...] | None = None
    required: tuple[str, ...] = ()


def parse_query(query: str) -> KeywordQuery:
    """Take a query apart: `select:A,B` names tools, `+word` demands a word."""
    selection = _SELECT.fullmatch(query)
    if selection:
        names = [name.strip(_PUNCTUATION + " \t\n") for name in selection["names"].split(",")]
        return KeywordQuery(" ".join(names), tuple(name for name in names if name))
    required = [word for term in _REQUIRED.findall(query) for word in split_words(term)]
    return KeywordQuery(_REQUIRED.sub(r"\g<term>", query), None, tuple(required))


class KeywordIndex:
    """Exact names and points over one catalogue; immutable.

    Args:
        documents: The tools, in the order of the catalogue.
    """

    def __init__(self, documents: Sequence[ToolDocument]) -> None:
        self.size = len(documents)
        self._rows_by_name: dict[str, list[int]] = {}
        self._points: dict[str, dict[int, int]] = {}
        self._word_forms = [_word_forms(document) for document in documents]
        for row, document in enumerate(documents):
            for name in _spellings(document):
                self._rows_by_name.setdefault(name, []).append(row)
            for word, points in _word_points(document).items():
                self._points.setdefault(word, {})[row] = points

    def exact(self, query: KeywordQuery) -> set[int]:
        """Return the rows of the tools whose names the query gives, in any spelling.

        A name counts where it is the whole query, is listed after `select:`, or stands in
        the text written as an identifier of the same words (`list_events`, `listEvents`,
        `list-events`; an "e-mail" is not a tool named `email`).
        """
        if query.selected is not None:
            return {row for name in query.selected for row in self._named(name)}
        rows = set(self._named(query.text))
        for token in {*query.text.split(), *_IDENTIFIER.findall(query.text)}:
            bare = token.strip(_PUNCTUATION)
            if _looks_like_identifier(bare):
                words = split_words(bare)
                rows.update(row for row in self._named(bare) if words in self._word_forms[row])
        return rows

    def points(self, query: KeywordQuery) -> NDArray[np.float32]:
        """Return ToolSearch's points, shape `(size,)`; 0 for a tool without a required word."""
        scores = np.zeros(self.size, np.float32)
        for word in split_words(query.text):
            for row, points in self._points.get(word, {}).items():
                scores[row] += points
        if query.required:
            scores[~self.has_required(query)] = 0
        return scores

    def has_required(self, query: KeywordQuery) -> NDArray[np.bool_]:
        """Return which tools have every required word, shape `(size,)`."""
        has = np.ones(self.size, np.bool_)
        for word in query.required:
            with_word = np.zeros(self.size, np.bool_)
            with_word[list(self._points.get(word, ()))] = True
            has &= with_word
        return has

    def _named(self, name: str) -> Iterable[int]:
        return self._rows_by_name.get(comparable(name), ())


def _looks_like_identifier(token: str) -> bool:
    return bool(_CAMEL_HUMP.search(token)) or any(mark in token for mark in "_-./:")


def _spellings(document: ToolDocument) -> set[str]:
    """Return the comparable forms a tool answers to: name, id, and the name without its server."""
    return {comparable("".join(words)) for words in _word_forms(document)} - {""}


def _word_forms(document: ToolDocument) -> set[tuple[str, ...]]:
    names = (document.name, document.id, document.bound_name)
    return {*map(split_words, names), *_leaves(document)}


def _leaves(document: ToolDocument) -> Iterator[tuple[str, ...]]:
    """Yield the words of the name with the server taken off its front, as often as it is there.

    `mcp__github__github_list_issues` is also `github list issues` and `list issues`.
    """
    words = document.words
    server = split_words(document.server or "")
    if document.name.startswith(_MCP_PREFIX):
        server = split_words(document.name[len(_MCP_PREFIX) :].split("__")[0])
        words = words[1:]
    while server and words[: len(server)] == server and len(words) > len(server):
        words = words[len(server) :]
        yield words


def _word_points(document: ToolDocument) -> dict[str, int]:
    is_mcp = document.name.startswith(_MCP_PREFIX)
    points = dict.fromkeys(split_words(document.description), DESCRIPTION_POINTS)
    points.update(dict.fromkeys(split_words(document.hint), HINT_POINTS))
    points.update(dict.fromkeys(document.words, SERVER_POINTS if is_mcp else NAME_POINTS))
    points.update(dict.fromkeys(split_words(document.server or ""), SERVER_POINTS))
    return points
