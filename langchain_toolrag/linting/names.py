"""Tool names in -> those that say nothing or that the model sees changed out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from langchain_toolrag.catalogue.names import bound_name, is_bound_name
from langchain_toolrag.linting.finding import Finding, listed
from langchain_toolrag.types import ToolDocument

_WORDS = """
    a action api call custom default do endpoint exec execute func function generic get handle
    handler helper invoke main method misc my new operation perform process run stuff temp test
    the thing tmp tool untitled util
"""
_EMPTY_WORDS = frozenset(_WORDS.split())
# A version or number, one letter, or hex digits among which there are both kinds.
_NO_WORD = re.compile(r"v?\d+|[a-z]|(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{4,}")


def vague_names(documents: Sequence[ToolDocument]) -> Iterator[Finding]:
    """Yield the tools of whose names no word says what they do."""
    for document in documents:
        if all(_says_nothing(word) for word in document.words):
            yield Finding(
                "vague-name",
                document.id,
                f'no word of "{document.name}" says what it does',
                "name the action and its object, such as create_issue",
            )


def renamed(documents: Sequence[ToolDocument]) -> Iterator[Finding]:
    """Yield the tools that the model sees under another name than their own."""
    owners = Counter(document.name for document in documents)
    for document in documents:
        if document.bound_name == document.name or owners[document.name] > 1:
            continue
        if document.server and document.bound_name == bound_name(document.id):
            continue  # As on_duplicate="id" wants it.
        refused = not is_bound_name(document.name)
        reason = "which providers refuse" if refused else "which a provider's own tool has"
        yield Finding(
            "renamed",
            document.id,
            f'it is named "{document.name}", {reason}: the model sees "{document.bound_name}"',
            "choose a name of 1 to 64 of a-z A-Z 0-9 _ - that no other tool has",
        )


def duplicate_names(documents: Sequence[ToolDocument]) -> Iterator[Finding]:
    """Yield the first of the tools that have one name on several servers, with the others."""
    by_name: dict[str, list[ToolDocument]] = {}
    for document in documents:
        by_name.setdefault(document.name, []).append(document)
    for first, *rest in by_name.values():
        if rest:
            others = tuple(document.id for document in rest)
            yield Finding(
                "duplicate-name",
                first.id,
                f'the name "{first.name}" is also that of {listed(others)}',
                "rename all but one, or give ToolRAG on_duplicate='prefix', "
                "which puts the servers in front",
                others,
            )


def _says_nothing(word: str) -> bool:
    stem = word.rstrip("0123456789")
    return stem in _EMPTY_WORDS or _NO_WORD.fullmatch(word) is not None
