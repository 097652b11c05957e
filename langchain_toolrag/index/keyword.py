"""Names and words in a query -> exact names and points out.

The points are ToolSearch's: for each word of the query 12 if it is in the name of an MCP
tool or names a tool's server, else 10 if it is in the name, else 4 if in the search hint,
else 2 if in the description. Words are whole words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from langchain_toolrag.catalogue.names import comparable, split_words
from langchain_toolrag.index.postings import Postings
from langchain_toolrag.types import ToolDocument

SERVER_POINTS = 12
NAME_POINTS = 10
HINT_POINTS = 4
DESCRIPTION_POINTS = 2

_MCP_PREFIX = "mcp__"
_SELECT = re.compile(r"\s*select:(?P<names>.*)", re.IGNORECASE | re.DOTALL)
_REQUIRED = re.compile(r"(?:^|(?<=\s))\+(?=[^\W\d])(?P<term>\S+)")
_PUNCTUATION = "\"'`.,;:!?()[]{}<>*"
_LISTED = re.compile(r"[\s,]+")
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


class _Bearer(NamedTuple):
    """A tool that answers to a name; `forms` are the words of all its names."""

    slot: int
    forms: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class KeywordIndex:
    """Exact names and points over one catalogue; immutable.

    Tools are numbered in the order they come. The number (slot) of one that is taken out stays
    empty.

    Attributes:
        postings: What each word is worth in each tool.
        bearers: The tools that answer to a name, by its comparable form.
        servers: How many tools a server has, by the comparable form of its name.
        slots: How many slots there are, empty ones included.
    """

    postings: Postings = field(default_factory=Postings)
    bearers: Mapping[str, tuple[_Bearer, ...]] = field(default_factory=dict)
    servers: Mapping[str, int] = field(default_factory=dict)
    slots: int = 0

    def with_tools(self, documents: Sequence[ToolDocument]) -> KeywordIndex:
        """Return a copy with tools added, in the slots that follow the last."""
        added: dict[str, list[_Bearer]] = {}
        for slot, document in enumerate(documents, self.slots):
            forms = _word_forms(document)
            for name in _spellings(forms):
                added.setdefault(name, []).append(_Bearer(slot, forms))
        joined = {name: (*self.bearers.get(name, ()), *new) for name, new in added.items()}
        points = [_word_points(document) for document in documents]
        return KeywordIndex(
            self.postings.with_tools(self.slots, points),
            {**self.bearers, **joined},
            Counter(self.servers) + Counter(map(server_key, documents)),
            self.slots + len(documents),
        )

    def without(self, documents: Mapping[int, ToolDocument]) -> KeywordIndex:
        """Return a copy without tools, given by slot."""
        bearers = dict(self.bearers)
        for name in {name for doc in documents.values() for name in _spellings(_word_forms(doc))}:
            staying = tuple(bearer for bearer in bearers[name] if bearer.slot not in documents)
            if staying:
                bearers[name] = staying
            else:
                del bearers[name]
        words = (word for document in documents.values() for word in _word_points(document))
        return KeywordIndex(
            self.postings.without(documents, words),
            bearers,
            Counter(self.servers) - Counter(map(server_key, documents.values())),
            self.slots,
        )

    def exact(self, query: KeywordQuery) -> set[int]:
        """Return the slots of the tools whose names the query gives, in any spelling.

        A name counts where it is the whole query, is listed after `select:`, or stands in
        the text written as an identifier of the same words (`list_events`, `listEvents`,
        `list-events`; an "e-mail" is not a tool named `email`).
        """
        if query.selected is not None:
            return {tool.slot for name in query.selected for tool in self._named(name)}
        slots = {tool.slot for tool in self._named(query.text)}
        for token in {*query.text.split(), *_IDENTIFIER.findall(query.text)}:
            bare = token.strip(_PUNCTUATION)
            if _looks_like_identifier(bare):
                forms = {split_words(bare), split_words(_plain(bare))}
                slots.update(t.slot for t in self._named(bare) if not forms.isdisjoint(t.forms))
        return slots

    def is_names(self, query: KeywordQuery) -> bool:
        """Return whether a query is names of tools and nothing else."""
        if query.selected is not None or self._named(query.text):
            return True
        tokens = (token.strip(_PUNCTUATION) for token in _LISTED.split(query.text))
        return all(_looks_like_identifier(token) and self._named(token) for token in tokens)

    def server(self, query: KeywordQuery) -> str:
        """Return the key of the server that the whole query names, `mcp__` before it or not.

        Empty where it names none, or a tool.
        """
        text = query.text.strip(_PUNCTUATION + " \t\n")
        key = comparable(text.removeprefix(_MCP_PREFIX))
        return (
            key if key in self.servers and not query.required and not self.is_names(query) else ""
        )

    def points(self, query: KeywordQuery) -> NDArray[np.float32]:
        """Return ToolSearch's points by slot, shape `(slots,)`.

        They are 0 for a tool without a required word, and in empty slots.
        """
        scores = np.zeros(self.slots, np.float32)
        for word in split_words(query.text):
            posting = self.postings.by_word.get(word)
            if posting is not None:
                scores[posting.slots] += posting.values
        if query.required:
            scores[~self.has_required(query)] = 0
        return scores

    def has_required(self, query: KeywordQuery) -> NDArray[np.bool_]:
        """Return by slot which tools have every required word, shape `(slots,)`."""
        has = np.ones(self.slots, np.bool_)
        for word in query.required:
            has &= self.postings.has(word, np.arange(self.slots))
        return has

    def _named(self, name: str) -> tuple[_Bearer, ...]:
        """Models write `mcp__github__list_issues` for a server's tool, whatever it is called."""
        known = self.bearers.get(comparable(name), ())
        return known or self.bearers.get(comparable(_plain(name)), ())


def server_name(document: ToolDocument) -> str:
    """Return the name of a tool's server; empty where it has none.

    That of a tool named `mcp__github__list_issues` is `github`, where nothing else is known.
    """
    if document.server:
        return document.server
    return _mcp_server(document) if document.name.startswith(_MCP_PREFIX) else ""


def server_key(document: ToolDocument) -> str:
    """Return the comparable form of the name of a tool's server; empty where it has none."""
    return comparable(server_name(document))


@dataclass(frozen=True, slots=True)
class OfServer:
    """A filter's predicate that lets the tools of one server pass; a database knows it as well.

    Attributes:
        key: The comparable form of the server's name.
        also: What else is demanded of a tool; None for nothing.
    """

    key: str
    also: Callable[[ToolDocument], bool] | None = None

    def __call__(self, document: ToolDocument) -> bool:
        """Return whether a tool passes."""
        return server_key(document) == self.key and (self.also is None or self.also(document))


def _mcp_server(document: ToolDocument) -> str:
    return document.name[len(_MCP_PREFIX) :].split("__")[0]


def _plain(name: str) -> str:
    """Return `github__list_issues` of `mcp__github__list_issues`, and any other name as it is."""
    plain = name.strip(_PUNCTUATION).removeprefix(_MCP_PREFIX)
    return plain if "__" in plain else name


def _looks_like_identifier(token: str) -> bool:
    return bool(_CAMEL_HUMP.search(token)) or any(mark in token for mark in "_-./:")


def _spellings(forms: Iterable[tuple[str, ...]]) -> set[str]:
    """Return the comparable forms of a tool's names."""
    return {comparable("".join(words)) for words in forms} - {""}


def _word_forms(document: ToolDocument) -> tuple[tuple[str, ...], ...]:
    """Return the words of what a tool answers to: name, id, and the name without its server."""
    names = {document.name, document.id, document.bound_name}
    return tuple({*map(split_words, names), *_leaves(document)})


def _leaves(document: ToolDocument) -> Iterator[tuple[str, ...]]:
    """Yield the words of the name with the server taken off its front, as often as it is there.

    `mcp__github__github_list_issues` is also `github list issues` and `list issues`.
    """
    words = document.words
    server = split_words(document.server or "")
    if document.name.startswith(_MCP_PREFIX):
        server = split_words(_mcp_server(document))
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
