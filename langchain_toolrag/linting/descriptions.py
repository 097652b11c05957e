"""Descriptions in -> those that a search has too little, or too much, to read of out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from langchain_toolrag.index.analysis import terms
from langchain_toolrag.linting.finding import Finding
from langchain_toolrag.types import ToolDocument

_FILLER = frozenset(
    terms(
        """
        action api available bar baz blah data description describe details dummy empty endpoint
        example fetch fixme foo function func get here info information ipsum lorem method missing
        n na nil none null operation placeholder provided result retrieve return sample tba tbd
        test thing todo tool undefined undocumented unknown untitled xxx your
        0 1 2 3 4 5 6 7 8 9
        """
    )
)
_PLACEHOLDER_START = re.compile(r"\W*(todo|tbd|fixme|lorem ipsum)\b", re.IGNORECASE)
# MiniLM's tokenizer makes 1.07 to 1.15 word pieces of each of these, counted over 3,700
# descriptions of public tools; of each CJK character it makes one.
_PIECE = re.compile(r"[A-Za-z0-9]+|[^\sA-Za-z0-9]")
_PIECES_EACH = 1.1
_READ_PIECES = 256

_DO_DESCRIBE = "say in one sentence what it does, to what, and when to use it"


def poor_descriptions(documents: Sequence[ToolDocument]) -> Iterator[Finding]:
    """Yield the tools whose descriptions add nothing to their names; one finding a tool."""
    for document in documents:
        finding = _poor(document)
        if finding is not None:
            yield finding


def long_descriptions(documents: Sequence[ToolDocument]) -> Iterator[Finding]:
    """Yield the tools whose descriptions are longer than what the default model reads.

    The length is an estimate: 1.1 word pieces for each word or mark.
    """
    for document in documents:
        pieces = round(_PIECES_EACH * len(_PIECE.findall(document.description)))
        if pieces > _READ_PIECES:
            yield Finding(
                "long-description",
                document.id,
                f"the description is about {pieces:,} word pieces long; "
                f"the default embedding model reads the first {_READ_PIECES}",
                "put what it does and the words people ask with first, and move manuals elsewhere",
            )


def _poor(document: ToolDocument) -> Finding | None:
    description = document.description
    found = set(terms(description))
    if not description:
        return Finding("no-description", document.id, "it has no description", _DO_DESCRIBE)
    quoted = f'"{description if len(description) <= 60 else description[:57] + "..."}"'
    if not found - _FILLER or _PLACEHOLDER_START.match(description):
        message = f"{quoted} stands where a description should"
        return Finding("placeholder-description", document.id, message, _DO_DESCRIBE)
    if not found - _FILLER - set(terms(document.name)):
        message = f"{quoted} only repeats the name"
        return Finding(
            "repeats-name",
            document.id,
            message,
            "add what the name does not say: the service, the kind of data, the words people use",
        )
    if len(found) == 1:
        message = f"{quoted} is one word to be found by"
        return Finding("short-description", document.id, message, _DO_DESCRIBE)
    return None
