"""Text in -> the terms that lexical search counts."""

from __future__ import annotations

import functools
import re
import threading
import unicodedata
from typing import Literal, TypeAlias

import snowballstemmer

from langchain_toolrag.catalogue.names import clean, split_words

Analyser: TypeAlias = Literal["stemmed", "raw"]
"""`stemmed` splits identifiers, drops stop words and stems; `raw` splits at white space."""

# English words that a request has and that say nothing about which tool it needs.
_COMMON_WORDS = """
    a about all also am an and any are as at be been but by can could did do does doing done for
    from had has have how i if im in into is it its just let like me my need no not of or our
    out please should so some than that the their them then there these they this those to too us
    very want was we were what whats when where which who why will with would you your
"""
STOP_WORDS = frozenset(_COMMON_WORDS.split())

# Scripts written without spaces: their runs become overlapping pairs of characters.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uac00-\ud7af\uf900-\ufaff\U00020000-\U0002fa1f]+"
)
_ASCII_WORD = re.compile(r"[a-z]+")
_LONGEST_KEPT = 64  # In characters; longer ones are data, which would fill the memory.


class _Stemmer(threading.local):
    """One stemmer a thread: it keeps the word it works on in itself."""

    def __init__(self) -> None:
        self.english = snowballstemmer.stemmer("english")


_stemmer = _Stemmer()


def terms(text: str, analyser: Analyser = "stemmed") -> list[str]:
    """Return the terms of a text, in order, with repeats.

    Args:
        text: Any text, in any script.
        analyser: How to read it.

    Returns:
        Terms; empty where the text has none but stop words.
    """
    if analyser == "raw":
        return text.lower().split()
    return [
        term
        for part in text.split()
        for term in (_kept_terms(part) if len(part) <= _LONGEST_KEPT else _terms(part))
    ]


def query_terms(text: str, analyser: Analyser = "stemmed") -> list[str]:
    """Return the terms of a query; stemmed, each once: a long request repeats what it is about.

    Raw, they repeat as in ToolRAG.
    """
    found = terms(text, analyser)
    return found if analyser == "raw" else list(dict.fromkeys(found))


def _terms(part: str) -> tuple[str, ...]:
    """Return the terms of what has no white space in it."""
    words = (each for word in split_words(fold_accents(part)) for each in _pairs(word))
    wanted = (word for word in words if word not in STOP_WORDS)
    return tuple(_stem(word) if _ASCII_WORD.fullmatch(word) else word for word in wanted)


# The same words come again and again, in tools as in requests.
_kept_terms = functools.lru_cache(maxsize=50_000)(_terms)


def fold_accents(text: str) -> str:
    """Return the text with accents of Latin, Greek and Cyrillic letters taken off.

    Marks of other scripts are letters in their own right (Devanagari vowels) and stay.
    """
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", clean(text))
    kept = (char for char in decomposed if not "\u0300" <= char <= "\u036f")
    return unicodedata.normalize("NFC", "".join(kept))


def _pairs(word: str) -> list[str]:
    """Split a word at scripts without spaces, whose runs become pairs of characters."""
    if word.isascii():
        return [word]
    parts: list[str] = []
    position = 0
    for run in _UNSPACED.finditer(word):
        parts.append(word[position : run.start()])
        characters = run.group()
        width = range(max(1, len(characters) - 1))
        parts += [characters[start : start + 2] for start in width]
        position = run.end()
    return [part for part in [*parts, word[position:]] if part]


@functools.lru_cache(maxsize=50_000)
def _stem(word: str) -> str:
    stem: str = _stemmer.english.stemWord(word)
    return stem
