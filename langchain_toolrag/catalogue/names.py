"""Names in -> the words in them, a form to compare them by, a form a model can be given."""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata

MAX_BOUND_NAME = 64
"""Longest tool name that the providers take, in characters."""

_BOUND_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_INVISIBLE = re.compile(r"[\u00ad\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff]")
# A word starts at a capital after a small letter or digit (`getUser`), and at the last
# capital of an acronym (`HTTPServer` is HTTP + Server), unless that only has its plural or
# version behind it (`listPRs`, `IPv4`).
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z](?!s(?![a-z])|v\d)[a-z])")
_ASCII_SEPARATORS = {code: " " for code in range(128) if not chr(code).isalnum()}
_PATH = re.compile(r"[./:]+")
_HASH_LENGTH = 8
_LONGEST_KEPT = 64  # In characters; longer ones are data, which would fill the memory.


def clean(text: str) -> str:
    """Return the text in Unicode form NFKC without zero-width characters."""
    if text.isascii():
        return text
    return _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))


def _separators_to_spaces(text: str) -> str:
    """Letters, digits and combining marks (Devanagari vowels) make words; the rest parts them."""
    if text.isascii():
        return text.translate(_ASCII_SEPARATORS)
    return "".join(
        char if char.isalnum() or unicodedata.category(char)[0] == "M" else " " for char in text
    )


def split_words(name: str) -> tuple[str, ...]:
    """Split a name into lower-case words, in order.

    Snake, kebab, path, spaced, camel and Pascal case are understood, and acronyms inside
    them: `getHTTPResponse` is `get, http, response`.
    """
    return tuple(
        [
            word
            for part in name.split()
            for word in (_kept_words(part) if len(part) <= _LONGEST_KEPT else _words(part))
        ]
    )


def _words(part: str) -> tuple[str, ...]:
    """Split what has no white space in it."""
    spaced = _separators_to_spaces(clean(part))
    if not spaced.isascii() or spaced != spaced.lower():
        spaced = " ".join(_CAMEL.sub(" ", each) for each in spaced.split())
    return tuple(spaced.lower().split())


# The same words come again and again: in other tools, and in other fields of one.
_kept_words = functools.lru_cache(maxsize=50_000)(_words)


def comparable(name: str) -> str:
    """Return the form by which two spellings of one name are equal.

    `list_events`, `list-events`, `listEvents` and `List Events` are all `listevents`.
    """
    if name.isascii() and name.isalnum():
        return name.lower()
    folded = _separators_to_spaces(clean(name)).casefold()
    return "".join(folded.split())


def is_bound_name(name: str) -> bool:
    """Return whether every provider takes the name as it is."""
    return _BOUND_NAME.fullmatch(name) is not None


def bound_name(name: str) -> str:
    """Return a name that every provider takes, the same one if it is taken already.

    Path characters become two underscores, spaces one. Where that is not enough, what does
    not fit is cut out and eight hex digits of the name's SHA-256 keep it apart from others.
    """
    if is_bound_name(name):
        return name
    plain = _PATH.sub("__", name.strip()).replace(" ", "_")
    return plain if is_bound_name(plain) else hashed_name(name)


def hashed_name(name: str) -> str:
    """Return what a provider takes of a name, with eight hex digits of its SHA-256."""
    folded = unicodedata.normalize("NFKD", clean(name)).encode("ascii", "ignore").decode()
    kept = re.sub(r"[^a-zA-Z0-9-]+", "_", folded).strip("_-") or "tool"
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{kept[: MAX_BOUND_NAME - _HASH_LENGTH - 1]}_{digest}"
