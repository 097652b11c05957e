"""What is stored, and what sources list now -> what is to be stored, and what that changes, out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool
from langchain_toolrag.errors import SourceError
from langchain_toolrag.types import Changes


@dataclass(frozen=True, slots=True)
class Merged:
    """What is to be stored.

    Attributes:
        changes: What changes, by source, in the order of the listings.
        sources: The sources by name, in the order they were ingested first.
        tools: The tools of each source.
    """

    changes: dict[str, Changes]
    sources: Mapping[str, StoredSource]
    tools: Mapping[str, Sequence[StoredTool]]


def merged(
    listings: Sequence[Listing],
    sources: Mapping[str, StoredSource],
    tools: Sequence[StoredTool],
    *,
    place: str,
) -> Merged:
    """Put what sources list in the place of what they listed before.

    A source whose listing failed keeps its tools and is marked; sources that are not listed stay
    as they are.

    Args:
        listings: What the sources listed.
        sources: The sources that are stored, by name.
        tools: The tools that are stored.
        place: Where they are stored, for messages.

    Returns:
        What is to be stored.

    Raises:
        SourceError: If a source is listed twice, lists a name twice, or has the name of one of
            another kind.
    """
    _check(listings)
    described = dict(sources)
    theirs: dict[str, Sequence[StoredTool]] = {**_by_source(sources, tools)}
    changes: dict[str, Changes] = {}
    for listing in listings:
        name = listing.source.name
        _check_kind(listing.source, sources.get(name), place)
        old = theirs.get(name, [])
        new = old if listing.failure else list(listing.tools)
        changes[name] = _changes(old, new)
        described[name] = _noted(listing, sources.get(name))
        theirs[name] = new
    return Merged(changes, described, theirs)


def repeated(names: Sequence[str]) -> str | None:
    """Return the first name that is there twice; None for none."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _by_source(
    sources: Mapping[str, StoredSource], tools: Sequence[StoredTool]
) -> dict[str, list[StoredTool]]:
    theirs: dict[str, list[StoredTool]] = {name: [] for name in sources}
    for tool in tools:
        theirs.setdefault(tool.source, []).append(tool)
    return theirs


def _check(listings: Sequence[Listing]) -> None:
    """Refuse two sources of one name, and two tools of one id."""
    seen: set[str] = set()
    for listing in listings:
        name = listing.source.name
        if name in seen:
            raise SourceError(name, "is listed twice; give each source a name of its own")
        seen.add(name)
        twice = repeated([tool.name for tool in listing.tools])
        if twice is not None:
            raise SourceError(name, f"lists the tool {twice!r} twice")


def _check_kind(source: StoredSource, known: StoredSource | None, place: str) -> None:
    if known is not None and known.kind != source.kind:
        raise SourceError(
            place,
            f"has a source {source.name!r} already that is of kind {known.kind} (from "
            f"{known.origin}), this one is of kind {source.kind}: give it another name",
        )


def _noted(listing: Listing, known: StoredSource | None) -> StoredSource:
    """Return the source as it is now known; one that failed stays as it was, with the failure."""
    if listing.failure:
        return replace(known or listing.source, failure=listing.failure)
    return replace(listing.source, tools=len(listing.tools), failure="")


def _changes(old: Sequence[StoredTool], new: Sequence[StoredTool]) -> Changes:
    before = {tool.id: tool for tool in old}
    after = {tool.id: tool for tool in new}
    same = {name for name, tool in after.items() if before.get(name) == tool}
    return Changes(
        added=tuple(name for name in after if name not in before),
        changed=tuple(name for name in after if name in before and name not in same),
        removed=tuple(name for name in before if name not in after),
        kept=tuple(name for name in after if name in same),
    )
