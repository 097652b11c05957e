"""What a model's search came to -> the few words it is told out."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_toolrag.catalogue.catalogue import Entry
from langchain_toolrag.selection.conversation import LOADED_KEY
from langchain_toolrag.types import Finding, ToolId

FRUITLESS_KEY = "toolrag_fruitless"
"""Whether a search found nothing that fits, in its answer's artifact."""

TRIES = 2
"""After so many fruitless searches on end a model is told that there is no such tool."""

# Of the calibrated confidence. Below one half more likely than not no tool fits; of requests of at
# most eight words whose tool was among the five best, none was below 0.2 on eight public sets.
_WEAK, _NOTHING = 0.5, 0.2

_LONGEST, _HITS = 600, 5  # Characters of an answer with so many hits; each further hit adds a line.
_LINE = 90
_SHOWN_QUERY = 60
_CLOSEST = 3
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")


@dataclass(frozen=True, slots=True)
class Known:
    """What an answer is written from, besides what was found.

    Attributes:
        entries: The tools that the caller may see, by id.
        bound: Ids of the tools that the model sees already.
        unavailable: Why servers' tools are missing, by server.
        tries: Fruitless searches before this one, on end, in this turn.
    """

    entries: Mapping[ToolId, Entry]
    bound: Collection[ToolId] = ()
    unavailable: Mapping[str, str] = field(default_factory=dict)
    tries: int = 0


def answer(query: str, finding: Finding, known: Known) -> tuple[str, dict[str, Any]]:
    """Write the answer to a model's search.

    Args:
        query: What the model searched for.
        finding: What was found.
        known: What else there is to say.

    Returns:
        Text of under 600 characters for up to five tools, and the artifact from which a selection
        takes the tools to bind.
    """
    found = [hit.id for hit in finding.hits if hit.id in known.entries]
    weak = finding.confidence is not None and finding.confidence < _WEAK
    if not found or (weak and (known.tries >= TRIES or (finding.confidence or 0) < _NOTHING)):
        return _cut(_nothing(query, found, finding, known), 0), _artifact([], fruitless=True)
    text = "\n".join(_found(found, finding, known, weak=weak))
    return _cut(text, len(found)), _artifact(found, fruitless=weak)


def _artifact(ids: Sequence[ToolId], *, fruitless: bool) -> dict[str, Any]:
    return {LOADED_KEY: list(ids), FRUITLESS_KEY: fruitless}


def _found(found: Sequence[ToolId], finding: Finding, known: Known, *, weak: bool) -> Iterator[str]:
    new = [identity for identity in found if identity not in known.bound]
    if weak:
        yield "No close match; the nearest, which may not do it, are available from your next step:"
    elif new:
        yield "Available from your next step:"
    yield from (_line(known.entries[identity]) for identity in new)
    old = [_name(known, identity) for identity in found if identity in known.bound]
    if old:
        yield f"Already available: {', '.join(old)}."
    if finding.missing:
        yield _missing(finding.missing, known)
    if finding.server:
        yield from _rest_of_server(found, known)
    if finding.degraded:
        yield "Searched by words alone."


def _nothing(query: str, nearest: Sequence[ToolId], finding: Finding, known: Known) -> str:
    shown = repr(_shortened(query, _SHOWN_QUERY))
    if known.tries + 1 >= TRIES:
        return (
            f"Again no tool fits {shown}. There is no such tool: do not search for it any more, "
            "go on with the tools you have or say that it cannot be done."
        )
    names = _closest(query, known) + [_name(known, identity) for identity in nearest]
    closest = ", ".join(list(dict.fromkeys(names))[:_CLOSEST])
    parts = [
        _missing(finding.missing, known) if finding.missing else f"No tool fits {shown}.",
        f"Closest names: {closest}." if closest and not finding.missing else "",
        _servers(known),
        "Searched by words alone." if finding.degraded else "",
        "Search once more in other words, or load a tool by name with select:NAME.",
    ]
    return " ".join(part for part in parts if part)


def _missing(names: Sequence[str], known: Known) -> str:
    closest = dict.fromkeys(name for missing in names for name in _closest(missing, known))
    hint = f" Closest: {', '.join(list(closest)[:_CLOSEST])}." if closest else ""
    return f"No tool is named {', '.join(names)}.{hint}"


def _closest(name: str, known: Known) -> list[str]:
    names = [entry.document.bound_name for entry in known.entries.values()]
    return difflib.get_close_matches(name, names, _CLOSEST)


def _servers(known: Known) -> str:
    counts = Counter(e.document.server for e in known.entries.values() if e.document.server)
    named = ", ".join(name for name, _ in counts.most_common(_HITS))
    text = f"Servers: {named}." if named else ""
    if known.unavailable:
        text += f" Not available now: {_listed(known.unavailable)}."
    return text.strip()


def _listed(reasons: Mapping[str, str]) -> str:
    return ", ".join(f"{server} ({_shortened(why, 40)})" for server, why in reasons.items())


def _rest_of_server(found: Sequence[ToolId], known: Known) -> Iterator[str]:
    """Say what else there is of the server whose tools were found."""
    server = known.entries[found[0]].document.server
    of_server = [i for i, entry in known.entries.items() if entry.document.server == server]
    rest = [_name(known, identity) for identity in of_server if identity not in found]
    if rest and server:
        shown = rest[:_CLOSEST]
        more = f" and {len(rest) - len(shown)} more" if len(rest) > len(shown) else ""
        yield f"Also of {server}: {', '.join(shown)}{more} (select:NAME loads one)."


def _line(entry: Entry) -> str:
    document = entry.document
    sentence = _SENTENCE_END.split(document.description.strip(), maxsplit=1)[0]
    return _shortened(f"- {document.bound_name}: {sentence}".rstrip(": "), _LINE)


def _name(known: Known, identity: ToolId) -> str:
    return known.entries[identity].document.bound_name


def _cut(text: str, hits: int) -> str:
    return _shortened(text, _LONGEST - 1 + _LINE * max(0, hits - _HITS))


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"
