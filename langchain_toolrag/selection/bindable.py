"""A catalogue and one call's tools in -> what can be bound in this call out."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from langchain_core.tools import BaseTool

from langchain_toolrag.catalogue.catalogue import Catalogue
from langchain_toolrag.catalogue.document import identify, is_providers_own
from langchain_toolrag.types import Tool, ToolDocument, ToolFilter, ToolId, Tools

logger = logging.getLogger(__name__)

Filter: TypeAlias = ToolFilter | Callable[[ToolDocument], bool]
"""Which tools a caller may see; a function is called on every tool document."""


@dataclass(frozen=True, slots=True)
class Bindable:
    """What can be bound in one call.

    Attributes:
        catalogue: The catalogue the tools are of.
        tools: Catalogue tools that are there and permitted, by id, in catalogue order.
        passed_through: Tools that are not the catalogue's: bound as they are, in front.
        filter: The same restriction for the index; None where nothing is restricted.
        digest: Names the content of what can be bound; equal digests, equal search results.
    """

    catalogue: Catalogue
    tools: Mapping[ToolId, Tool]
    passed_through: tuple[Tool, ...]
    filter: ToolFilter | None
    digest: str

    def ids(self, names: Iterable[str]) -> list[ToolId]:
        """Return the ids of the tools that can be bound among names (or ids), in their order."""
        found = (self.id_of(name) for name in names)
        return [identity for identity in found if identity is not None]

    def called(self, names: Iterable[str]) -> list[ToolId]:
        """Return the ids of the tools that can be bound and that calls of names may have meant."""
        meant = (identity for name in names for identity in self.catalogue.called(name))
        return [identity for identity in meant if identity in self.tools]

    def id_of(self, name: str) -> ToolId | None:
        """Return the id of a tool that can be bound; None for any other."""
        identity = self.catalogue.id_of(name)
        return identity if identity in self.tools else None


def bindable(
    catalogue: Catalogue, tools: Tools | None, filter: Filter | None, besides: Tools = ()
) -> Bindable:
    """Work out what can be bound.

    Args:
        catalogue: All tools.
        tools: The tools of this call; None for the whole catalogue. Those that the catalogue
            does not have, and provider tools, pass through.
        filter: Which of the catalogue's tools the caller may see.
        besides: Tools that pass through in front of all others.

    Returns:
        What can be bound. A tool that the filter keeps out does not pass through either.
    """
    if tools is None:
        present: Mapping[ToolId, Tool] = catalogue.bound
        passed: list[Tool] = list(catalogue.passed_through)
    else:
        present, passed = _matched(catalogue, tools)
    passed = [*besides, *passed]
    present = _without_clashes(catalogue, present, passed)
    wanted = as_filter(filter)
    restricted = wanted
    if len(present) < len(catalogue):
        restricted = within(present, wanted)
    if wanted is not None:
        admits = wanted.admits
        entries = catalogue.entries
        present = {key: tool for key, tool in present.items() if admits(entries[key].document)}
    digest = catalogue.digest if len(present) == len(catalogue) else _digest(catalogue, present)
    return Bindable(catalogue, present, tuple(passed), restricted, digest)


def as_filter(filter: Filter | None) -> ToolFilter | None:
    """Return a filter as a ToolFilter; None for no restriction.

    Args:
        filter: A filter, a function of a tool document, or None.

    Returns:
        The filter; a function becomes its predicate.

    Raises:
        TypeError: If it is neither a filter nor a function.
    """
    if filter is None or isinstance(filter, ToolFilter):
        return filter
    if callable(filter):
        return ToolFilter(predicate=filter)
    raise TypeError(
        f"filter is a {type(filter).__name__}; wanted a ToolFilter or a function of a ToolDocument"
    )


def within(ids: Collection[ToolId], filter: ToolFilter | None) -> ToolFilter:
    """Return a filter that only lets some tools pass, if the other does.

    Args:
        ids: Which tools may pass.
        filter: What else is demanded; None for nothing.

    Returns:
        The filter.
    """
    if filter is None:
        return ToolFilter(ids=ids)
    return replace(
        filter, ids=ids if filter.ids is None else frozenset(ids).intersection(filter.ids)
    )


def _matched(catalogue: Catalogue, tools: Tools) -> tuple[dict[ToolId, Tool], list[Tool]]:
    """Tell the catalogue's tools from the others; the objects of this call are the ones bound."""
    present: dict[ToolId, Tool] = {}
    passed: list[Tool] = []
    for tool in tools:
        name = "" if is_providers_own(tool) else tool_name(tool)
        identity = catalogue.id_of(name) if name else None
        if identity is None and name:
            identity = catalogue.id_of(identify(tool))
        if identity is None and name and identify(tool) in catalogue.rejected:
            continue  # Its schema would take the request down.
        if identity is None:
            passed.append(tool)
        elif identity not in present:
            entry = catalogue.entries[identity]
            as_given = name == entry.document.bound_name and not isinstance(tool, dict)
            present[identity] = tool if as_given else entry.bound
    order = {identity: position for position, identity in enumerate(catalogue.entries)}
    return {key: present[key] for key in sorted(present, key=order.__getitem__)}, passed


def _without_clashes(
    catalogue: Catalogue, present: Mapping[ToolId, Tool], passed: Iterable[Tool]
) -> Mapping[ToolId, Tool]:
    """Leave out tools that what passes through has the names of: a request takes a name once."""
    taken = {tool_name(tool) for tool in passed} - {""}
    if not taken:
        return present
    clashing = [i for i in present if catalogue.entries[i].document.bound_name in taken]
    for identity in clashing:
        logger.warning("tool %r is left out: another tool of its name passes through", identity)
    return {key: tool for key, tool in present.items() if key not in clashing}


def tool_name(tool: Tool) -> str:
    """Return the name a tool is called by; empty for a provider tool without one."""
    if isinstance(tool, BaseTool):
        return tool.name
    if isinstance(tool, dict):
        function = tool.get("function")
        named = function if isinstance(function, dict) else tool
        return str(named.get("name") or "")
    return getattr(tool, "__name__", "")


def _digest(catalogue: Catalogue, present: Iterable[ToolId]) -> str:
    key = "\0".join([catalogue.digest, *present])
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:16]
