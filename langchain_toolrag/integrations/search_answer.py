"""What a model's search came to -> the few words it is told out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_toolrag.catalogue.catalogue import Entry
from langchain_toolrag.index.keyword import server_key, server_name
from langchain_toolrag.search.finding import closest_names
from langchain_toolrag.selection.conversation import LOADED_KEY
from langchain_toolrag.types import Finding, ToolId

FRUITLESS_KEY = "toolrag_fruitless"
"""Whether a search found nothing that fits, in its answer's artifact."""

SEARCH_KEY = "toolrag_search"
"""The search's id in the usage log, in its answer's artifact; not there without a log."""

TRIES = 2
"""After so many fruitless searches on end a model is told that there is no such tool."""

# Of the calibrated confidence. Below one half more likely than not no tool fits; of requests of at
# most eight words whose tool was among the five best, none was below 0.2 on eight public sets.
_WEAK, _NOTHING = 0.5, 0.2

_LONGEST, _HITS = 600, 5  # Characters of an answer with so many hits; each further hit adds a line.
_LINE = 90
_SHOWN_QUERY = 60
_CLOSEST = 3
_REASON = 40
_NEAREST = "No close match; the nearest, which may not do it, are available from your next step:"
_LAST_NEAREST = (
    "Again no close match. If none of these does it there is no such tool; do not search for it "
    "any more:"
)
_NO_ROOM = "No tool more can be made available, the others take all places"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")


@dataclass(frozen=True, slots=True)
class Known:
    """What an answer is written from, besides what was found.

    Attributes:
        entries: The tools that the caller may see, by id.
        bound: Ids of the tools that the model sees already.
        unavailable: Why servers' tools are missing, by server.
        tries: Fruitless searches before this one, on end, in this turn.
        places: How many tools can be loaded at once.
    """

    entries: Mapping[ToolId, Entry]
    bound: Collection[ToolId] = ()
    unavailable: Mapping[str, str] = field(default_factory=dict)
    tries: int = 0
    places: int = 20


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
    there = [hit.id for hit in finding.hits if hit.id in known.entries]
    found, crowded = there[: known.places], there[known.places :]
    weak = finding.confidence is not None and finding.confidence < _WEAK
    if not there or (weak and (known.tries >= TRIES or (finding.confidence or 0) < _NOTHING)):
        text = " ".join(_fitting(_nothing(query, found, finding, known), _LONGEST))
        return text, _artifact([], finding, fruitless=True)
    room = _LONGEST + _LINE * max(0, len(found) - _HITS)
    parts = [*_found(found, finding, known, weak=weak), _crowded(crowded, known)]
    text = "\n".join(_fitting(parts, room))
    return text, _artifact(found, finding, fruitless=weak)


def _fitting(parts: Iterable[Sequence[str]], room: int) -> Iterator[str]:
    """Yield of each part the first of its wordings that fits; leave out one that has none."""
    for wordings in parts:
        for wording in wordings:
            if wording and len(wording) + 1 < room:
                room -= len(wording) + 1
                yield wording
                break


def _artifact(ids: Sequence[ToolId], finding: Finding, *, fruitless: bool) -> dict[str, Any]:
    logged = {SEARCH_KEY: finding.search_id} if finding.search_id else {}
    return {LOADED_KEY: list(ids), FRUITLESS_KEY: fruitless, **logged}


def _found(
    found: Sequence[ToolId], finding: Finding, known: Known, *, weak: bool
) -> Iterator[Sequence[str]]:
    new = [identity for identity in found if identity not in known.bound]
    if weak:
        yield [_LAST_NEAREST if known.tries + 1 >= TRIES else _NEAREST]
    elif new:
        yield ["Available from your next step:"]
    yield from ([_line(known.entries[identity])] for identity in new)
    old = [_name(known, identity) for identity in found if identity in known.bound]
    if old:
        yield [f"Already available: {', '.join(old)}."]
    if finding.missing:
        yield _missing(finding.missing, known)
    if finding.server:
        yield list(_rest_of_server(found, known)) if found else []
    if finding.degraded:
        yield ["Searched by words alone."]


def _crowded(left_out: Sequence[ToolId], known: Known) -> list[str]:
    if not left_out:
        return []
    number = "1 tool" if known.places == 1 else f"{known.places} tools"
    said = f"Only {number} can be available at once" if known.places else _NO_ROOM
    names = ", ".join(_name(known, identity) for identity in left_out)
    return [f"{said}; not these: {names}.", f"{said}."]


def _nothing(
    query: str, nearest: Sequence[ToolId], finding: Finding, known: Known
) -> Iterator[Sequence[str]]:
    shown = repr(_shortened(query, _SHOWN_QUERY))
    again = known.tries + 1 >= TRIES
    unfound = f"Again no tool fits {shown}." if again else f"No tool fits {shown}."
    yield _missing(finding.missing, known) if finding.missing else [unfound]
    if again:
        yield [
            "There is no such tool: do not search for it any more, go on with the tools you have "
            "or say that it cannot be done."
        ]
        return
    yield ["Search once more in other words, or load a tool by name with select:NAME."]
    if not finding.missing:
        names = _closest(query, known) + [_name(known, identity) for identity in nearest]
        yield _named("Closest names: {}.", list(dict.fromkeys(names))[:_CLOSEST])
    counts = Counter(server_name(entry.document) for entry in known.entries.values())
    servers = [name for name, _ in counts.most_common(_HITS + 1) if name]
    yield _named("Servers: {}.", servers[:_HITS])
    down = known.unavailable
    listed = [f"{server} ({_shortened(why, _REASON)})" for server, why in down.items()]
    number = f"{len(down)} servers are not available now." if down else ""
    yield [*_named("Not available now: {}.", listed), number]
    if finding.degraded:
        yield ["Searched by words alone."]


def _named(sentence: str, names: Sequence[str]) -> list[str]:
    return [sentence.format(", ".join(names))] if names else []


def _missing(names: Sequence[str], known: Known) -> list[str]:
    """Name what is not there, and the closest that is, to a few of the names."""
    shown = [_shortened(name, _SHOWN_QUERY) for name in names[:_CLOSEST]]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    closest = dict.fromkeys(name for missing in shown for name in _closest(missing, known))
    text = f"No tool is named {', '.join(shown)}{more}."
    hint = f"{text} Closest: {', '.join(list(closest)[:_CLOSEST])}."
    return [hint, text] if closest else [text]


def _closest(name: str, known: Known) -> list[str]:
    return closest_names(name, (_name(known, identity) for identity in known.entries), _CLOSEST)


def _rest_of_server(found: Sequence[ToolId], known: Known) -> Iterator[str]:
    """Say what else there is of the server whose tools were found, the longest wording first."""
    document = known.entries[found[0]].document
    server, key = server_name(document), server_key(document)
    of_server = [i for i, entry in known.entries.items() if server_key(entry.document) == key]
    rest = [_name(known, identity) for identity in of_server if identity not in found]
    for shown in range(min(_CLOSEST, len(rest)), 0, -1):
        more = f" and {len(rest) - shown} more" if len(rest) > shown else ""
        yield f"Also of {server}: {', '.join(rest[:shown])}{more} (select:NAME loads one)."
    if rest:
        yield f"There are {len(rest)} more of this server; say what they should do."


def _line(entry: Entry) -> str:
    document = entry.document
    sentence = _SENTENCE_END.split(document.description.strip(), maxsplit=1)[0]
    return _shortened(f"- {document.bound_name}: {sentence}".rstrip(": "), _LINE)


def _name(known: Known, identity: ToolId) -> str:
    return known.entries[identity].document.bound_name


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"
