"""A searchable catalogue in -> tools that their own words do not find out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeAlias

from langchain_toolrag.catalogue.names import split_words
from langchain_toolrag.index.analysis import terms
from langchain_toolrag.index.contract import Progress
from langchain_toolrag.index.texts import lexical_text
from langchain_toolrag.linting.finding import Finding, listed
from langchain_toolrag.linting.twins import Twins
from langchain_toolrag.types import Hit, ToolDocument, ToolId

Search: TypeAlias = Callable[[str, int], list[Hit]]
"""Query and `k` in, hits out."""

_FIRST = 3
"""A tool that finds itself is among so many."""

_NAMED_WORDS = 3
_SHORTEST_WORD = 3
_ABBREVIATED = "".join(f"(?<!{word})" for word in (r"\be\.g", r"\bi\.e", r"\betc", r"\bvs"))
_SENTENCE = re.compile(rf"\s*(.+?)(?:{_ABBREVIATED}[.!?]+(?=\s|$)|[。！？]|\n\s*\n|$)", re.DOTALL)
_OPERATOR = re.compile(r"^\s*select:|(?<!\S)\+(?=\S)", re.IGNORECASE)


def first_sentence(description: str) -> str:
    """Return the first sentence of a description, without its full stop.

    A sentence also ends at an empty line, and not behind "e.g.", "i.e.", "etc." and "vs.".
    """
    found = _SENTENCE.match(description)
    return found[1] if found else ""


def not_self_retrieving(
    documents: Sequence[ToolDocument],
    search: Search,
    twins: Twins,
    skipped: Collection[ToolId] = (),
    progress: Progress | None = None,
) -> Iterator[Finding]:
    """Yield the tools that are not among the first three for their own first sentence.

    Near twins are not counted against each other.

    Args:
        documents: The catalogue.
        search: How the catalogue is searched.
        twins: Near twins, which have a finding of their own.
        skipped: Tools whose descriptions are known to say nothing.
        progress: Called with how many tools have been searched for and how many there are.

    Yields:
        A finding for each such tool, which names the tools that stand before it.
    """
    known = {document.id: document for document in documents}
    common = Counter(term for document in documents for term in set(_terms(document)))
    for done, document in enumerate(documents, 1):
        if progress:
            progress(done, len(documents))
        if document.id in skipped:
            continue
        sentence = first_sentence(document.description)
        mine = twins.get(document.id, ())
        hits = search(_OPERATOR.sub(" ", sentence), _FIRST + len(mine))
        first = [hit.id for hit in hits if hit.id not in mine][:_FIRST]
        if document.id not in first:
            rivals = [known[identity] for identity in first]
            yield _finding(document, sentence, rivals, common)


def _finding(
    document: ToolDocument, sentence: str, rivals: Sequence[ToolDocument], common: Counter[str]
) -> Finding:
    others = tuple(rival.id for rival in rivals)
    shown = sentence if len(sentence) <= 50 else sentence[:47] + "..."
    return Finding(
        "not-self-retrieving",
        document.id,
        f'"{shown}" finds {listed(others)} before it'
        if others
        else f'"{shown}" has no word to be found by',
        _suggestion(document, sentence, rivals, common),
        others,
    )


def _suggestion(
    document: ToolDocument, sentence: str, rivals: Sequence[ToolDocument], common: Counter[str]
) -> str:
    said = set(terms(sentence))
    server = document.server or ""
    if not said.issuperset(terms(server)) and all(rival.server != server for rival in rivals):
        return f'name "{server}" in the first sentence: what is found is of other servers'
    theirs = said.union(*(_terms(rival) for rival in rivals))
    own = {term: word for term, word in _own_words(document).items() if term not in theirs}
    rarest = sorted(own, key=lambda term: common[term])[:_NAMED_WORDS]
    if not rarest:
        return "say in the first sentence what it does that the others do not"
    words = ", ".join(f'"{own[term]}"' for term in rarest)
    return f"say in the first sentence what only this tool is about, such as {words}"


def _own_words(document: ToolDocument) -> dict[str, str]:
    """Return the words of a tool by their terms, as they are first written."""
    text = " ".join((document.name, document.description, *document.parameters))
    words: dict[str, str] = {}
    for word in split_words(text):
        for term in terms(word) if word.isalpha() and len(word) >= _SHORTEST_WORD else ():
            words.setdefault(term, word)
    return words


def _terms(document: ToolDocument) -> list[str]:
    return terms(lexical_text(document))
