"""Tool document in -> what a search in the database reads of it out; a query's share likewise."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from langchain_toolrag.catalogue.names import comparable, split_words
from langchain_toolrag.index.analysis import query_terms, terms
from langchain_toolrag.index.keyword import (
    DESCRIPTION_POINTS,
    HINT_POINTS,
    NAME_POINTS,
    SERVER_POINTS,
    KeywordIndex,
    KeywordQuery,
    server_key,
)
from langchain_toolrag.index.texts import lexical_text
from langchain_toolrag.postgres.records import storable
from langchain_toolrag.types import ToolDocument

# The labels by which PostgreSQL tells what a word is worth to the keyword scorer.
_LABELS = {SERVER_POINTS: "A", NAME_POINTS: "B", HINT_POINTS: "C", DESCRIPTION_POINTS: "D"}
_MOST_POSITIONS = 255  # More of one word, or places beyond this, PostgreSQL does not keep.
_LAST_POSITION = 16_383
_LONGEST_WORD = 500  # In characters; PostgreSQL takes 2046 bytes.
_PUNCTUATION = "\"'`.,;:!?()[]{}<>*"
_TOKEN = re.compile(r"[A-Za-z0-9_./:-]+|[^\s,]+")
_MCP_PREFIX = "mcp__"


class SearchColumns(NamedTuple):
    """What the columns of `toolrag.tools` hold beside a document.

    Attributes:
        words: Its terms with their places, as the text of a tsvector.
        points: Its words, labelled by what the keyword scorer gives for them, as a tsvector's text.
        names: The comparable forms of the names it answers to, in order.
        server_key: The comparable form of its server's name; empty where it has none.
    """

    words: str
    points: str
    names: list[str]
    server_key: str


def search_columns(document: ToolDocument) -> SearchColumns:
    """Return what a search in the database reads of a tool."""
    index = KeywordIndex().with_tools([document])
    worth = {word: int(posting.values[0]) for word, posting in index.postings.by_word.items()}
    return SearchColumns(
        words=_with_places(map(_stored, terms(lexical_text(document)))),
        points=" ".join(
            f"{_quoted(_stored(word))}:1{_LABELS[points]}" for word, points in worth.items()
        ),
        names=[storable(name) for name in sorted(index.bearers)],
        server_key=storable(server_key(document)),
    )


def asked_terms(text: str) -> list[str]:
    """Return the distinct terms of a query as `words` has them."""
    return list(dict.fromkeys(map(_stored, query_terms(text))))


def asked_points(text: str) -> list[str]:
    """Return the words of a query as `points` has them; a repeat counts again."""
    return [_stored(word) for word in split_words(text)]


def any_of(words: Iterable[str]) -> str | None:
    """Return the tsquery of tools that have one of the words; None without words."""
    return " | ".join(map(_quoted, dict.fromkeys(words))) or None


def all_of(words: Iterable[str]) -> str | None:
    """Return the tsquery of tools that have all of the words; None without words."""
    return " & ".join(map(_quoted, dict.fromkeys(words))) or None


def asked_names(query: KeywordQuery) -> list[str]:
    """Return comparable forms of all that may be the name of a tool in a query, each once.

    They are more than are names: `KeywordIndex` decides over the tools that have them.
    """
    tokens = (*query.text.split(), *_TOKEN.findall(query.text))
    bare = [token.strip(_PUNCTUATION) for token in tokens]
    whole = [name.strip(_PUNCTUATION) for name in (query.text, *(query.selected or ()))]
    names = [*whole, *(token for token in bare if not _is_word(token))]
    forms = (comparable(each) for name in names for each in (name, name.removeprefix(_MCP_PREFIX)))
    return [storable(form) for form in dict.fromkeys(forms) if form]


def asked_server(query: KeywordQuery) -> str:
    """Return the comparable form of the server that the whole query may name."""
    text = query.text.strip(_PUNCTUATION + " \t\n")
    return storable(comparable(text.removeprefix(_MCP_PREFIX)))


def _stored(word: str) -> str:
    return storable(word)[:_LONGEST_WORD]


def _quoted(word: str) -> str:
    """Return a word as the text of a tsvector or tsquery has it."""
    escaped = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _is_word(token: str) -> bool:
    """Return whether a token cannot be an identifier: letters alone, none of them a capital."""
    return token.isalpha() and token.islower()


def _with_places(words: Iterable[str]) -> str:
    """Return the text of a tsvector of words at their places, from 1."""
    places: dict[str, list[str]] = {}
    for place, word in enumerate(words, 1):
        known = places.setdefault(_quoted(word), [])
        if len(known) < _MOST_POSITIONS and (place <= _LAST_POSITION or not known):
            known.append(str(min(place, _LAST_POSITION)))
    return " ".join(f"{word}:{','.join(known)}" for word, known in places.items())
