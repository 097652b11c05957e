"""Tools -> items of a LangGraph store -> tools.

The items are langgraph-bigtool's: the key is a tool's id in a registry, `description` what it is
found by, `"<name>: <description>"`. Those written here hold the tool's definition besides, under
`tool` as a text of JSON, so that they can be read without a registry.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.store.base import BaseStore, GetOp, Item, PutOp, SearchItem

from langchain_toolrag.catalogue.catalogue import Entry, build_catalogue
from langchain_toolrag.catalogue.document import (
    document_of,
    identify,
    is_definition,
    is_providers_own,
    tool_id,
)
from langchain_toolrag.errors import DuplicateToolError, InvalidToolError, SourceError
from langchain_toolrag.types import Changes, Tool, ToolId, Tools

TOOLS_NAMESPACE = ("tools",)
"""Where langgraph-bigtool keeps its items if it is not told otherwise."""

Registry: TypeAlias = Mapping[str, Tool] | Tools
"""Tools by the keys of their items; of a list, the keys are the tools' ids."""

_TEXT = "description"
_DEFINITION = "tool"
# More than any catalogue has. Pages would not do: a PostgresStore orders items by the time they
# were put, which all of one batch share, so that one may be on two pages and another on none.
_MOST_ITEMS = 1_000_000
_AT_ONCE = 500  # PostgreSQL takes 65,535 values a statement, an item up to nine.
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class StoredTools:
    """What the items of a store stand for.

    Attributes:
        tools: The tools, in the registry's order, or without one in order of namespace and key.
        texts: What the items say of them, by id of the tool: `"<name>: <description>"`.
        left_out: Why items are no tools, by key.
        warning: What their user should know; empty for nothing.
    """

    tools: tuple[Tool, ...] = ()
    texts: Mapping[ToolId, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    warning: str = ""


@dataclass(frozen=True, slots=True)
class StoreItems:
    """The items under a namespace of a store, those of its sub-namespaces among them.

    Attributes:
        store: The store.
        namespace: Where in it the items are.
        registry: The tools by the items' keys; None to read the definitions that items hold.
        filter: Values that items must have, as `store.search` takes them.

    Raises:
        TypeError: If one of them is something else.
        ValueError: If the namespace is empty, or a label of it is or has a dot.
    """

    store: BaseStore
    namespace: tuple[str, ...] = TOOLS_NAMESPACE
    registry: Registry | None = None
    filter: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _check_store(self.store)
        object.__setattr__(self, "namespace", _checked(self.namespace))
        keyed(self.registry or ())

    def read(self) -> StoredTools:
        """Read all items there are.

        Returns:
            The tools. Of several items with one key the one nearest to the namespace counts.

        Raises:
            SourceError: If there are items and none is a tool.
        """
        found: _Found = {}
        while _has_taken(found, self.store.search(self.namespace, **self._page(found))):
            pass
        return self._tools(found.values())

    async def aread(self) -> StoredTools:
        """Do what `read` does, without blocking the event loop."""
        found: _Found = {}
        while _has_taken(found, await self.store.asearch(self.namespace, **self._page(found))):
            pass
        return self._tools(found.values())

    def write(self, tools: Registry) -> Changes:
        """Put tools into the namespace; what is there unchanged is not put again.

        Args:
            tools: Tools by key, or a list of them.

        Returns:
            Keys added, changed and kept; none is removed.

        Raises:
            DuplicateToolError: If two of the tools have one id.
            InvalidToolError: If one is no tool, or a provider's own.
        """
        changes = Changes()
        for values in _portions(values_of(keyed(tools))):
            known = self.store.batch([GetOp(self.namespace, key) for key in values])
            puts, made = self._puts(values, known)
            if puts:
                self.store.batch(puts)
            changes = _together(changes, made)
        return changes

    async def awrite(self, tools: Registry) -> Changes:
        """Do what `write` does, without blocking the event loop."""
        changes = Changes()
        for values in _portions(values_of(keyed(tools))):
            known = await self.store.abatch([GetOp(self.namespace, key) for key in values])
            puts, made = self._puts(values, known)
            if puts:
                await self.store.abatch(puts)
            changes = _together(changes, made)
        return changes

    def _page(self, found: _Found) -> dict[str, Any]:
        """Return what to ask for next: everything, and then what a store that caps that held back.

        Its own default would be ten items.
        """
        wanted = dict(self.filter) if self.filter is not None else None
        return {"filter": wanted, "limit": _MOST_ITEMS, "offset": len(found)}

    def _tools(self, items: Iterable[SearchItem]) -> StoredTools:
        # A PostgresStore before 3.2 finds those of ("tools2",) under ("tools",), too.
        within = [item for item in items if item.namespace[: len(self.namespace)] == self.namespace]
        ordered = sorted(within, key=lambda item: (len(item.namespace), item.namespace, item.key))
        values: dict[str, Mapping[str, Any]] = {}
        for item in ordered:
            values.setdefault(item.key, item.value)
        if self.registry is None:
            stored = _by_definition(values)
        else:
            stored = _by_registry(values, keyed(self.registry))
        return replace(stored, warning=self._warning(stored, len(values)))

    def _warning(self, stored: StoredTools, items: int) -> str:
        """Say what is missing; that items were found and no tool is an error."""
        place = f"the store's namespace {self.namespace}"
        if not items:
            return f"{place} has no items: there are no tools to be found"
        if not stored.left_out:
            return ""
        first = list(stored.left_out.items())[:_SHOWN]
        shown = "; ".join(f"{key!r}: {why}" for key, why in first)
        if not stored.tools:
            raise SourceError(place, f"none of its {items} items is a tool ({shown})")
        return f"{place}: {len(stored.left_out)} of {items} items are left out ({shown})"

    def _puts(
        self, values: Mapping[str, dict[str, Any]], known: Sequence[Any]
    ) -> tuple[list[PutOp], Changes]:
        """Return what is to be put, given what is known of the same keys."""
        # As store.put() has it.
        ttl = (self.store.ttl_config or {}).get("default_ttl")
        old = {item.key: item.value for item in known if isinstance(item, Item)}
        # What else there is in an item may be what the store is filtered by.
        new = {key: {**old.get(key, {}), **value} for key, value in values.items()}
        changed = [key for key in new if key in old and new[key] != old[key]]
        added = [key for key in new if key not in old]
        puts = [
            PutOp(self.namespace, key, new[key], index=[_TEXT], ttl=ttl)
            for key in (*added, *changed)
        ]
        kept = [key for key in new if key in old and new[key] == old[key]]
        return puts, Changes(tuple(added), tuple(changed), kept=tuple(kept))


def keyed(registry: Registry) -> Mapping[str, Tool]:
    """Return tools by key.

    Args:
        registry: Tools by key, or a list of tools.

    Returns:
        The tools by key; those of a list by id.

    Raises:
        DuplicateToolError: If two of a list have one id.
        InvalidToolError: If something in a list is no tool.
        TypeError: If it is neither, or a key is no text.
    """
    if isinstance(registry, Mapping):
        for key in registry:
            if not isinstance(key, str):
                raise TypeError(f"{key!r} is a key of the tools; wanted texts, as the store's are")
        return registry
    if not isinstance(registry, Sequence) or isinstance(registry, str):
        kind = type(registry).__name__
        raise TypeError(f"the tools are a {kind}; wanted a dict of tools by key, or a list")
    tools: dict[str, Tool] = {}
    for tool in registry:
        first = tools.setdefault(identify(tool), tool)
        if first is not tool:
            origins = document_of(first).origin, document_of(tool).origin
            raise DuplicateToolError(identify(tool), origins)
    return tools


def values_of(tools: Mapping[str, Tool]) -> dict[str, dict[str, Any]]:
    """Return what is put of tools.

    Args:
        tools: Tools by key.

    Returns:
        A value a key, of JSON. A tool whose schema cannot be given to a model is left out, with a
        warning.

    Raises:
        DuplicateToolError: If two of the tools have one id.
        InvalidToolError: If one is no tool, or a provider's own.
    """
    for key, tool in tools.items():
        if is_providers_own(tool):
            raise InvalidToolError(
                f"{key!r} is a provider's own tool, which is not searched for: give it to the "
                f"model beside the others; found {tool!r:.100}",
                tool,
            )
    catalogue = build_catalogue(list(tools.values()), on_duplicate="id")
    entries = {key: catalogue.entries.get(identify(tool)) for key, tool in tools.items()}
    return {key: _value(entry) for key, entry in entries.items() if entry is not None}


_Found: TypeAlias = dict[tuple[tuple[str, ...], str], SearchItem]


def _has_taken(found: _Found, page: Iterable[SearchItem]) -> bool:
    """Add a page to what was found; whether it had anything new."""
    before = len(found)
    found.update(((item.namespace, item.key), item) for item in page)
    return len(found) > before


def _by_registry(values: Mapping[str, Mapping[str, Any]], tools: Mapping[str, Tool]) -> StoredTools:
    known = {key: tool for key, tool in tools.items() if key in values}
    texts = {identify(tool): _text(values[key]) for key, tool in known.items()}
    unknown = {key: "the registry has no such key" for key in values if key not in tools}
    return StoredTools(tuple(known.values()), texts, unknown)


def _by_definition(values: Mapping[str, Mapping[str, Any]]) -> StoredTools:
    read = {key: _definition(value) for key, value in values.items()}
    known: dict[str, Tool] = {key: tool for key, tool in read.items() if tool is not None}
    texts = {identify(tool): _text(values[key]) for key, tool in known.items()}
    why = f"it has no definition under {_DEFINITION!r}, give the tools as registry={{key: tool}}"
    return StoredTools(tuple(known.values()), texts, {key: why for key in read if key not in known})


def _text(value: Mapping[str, Any]) -> str:
    text = value.get(_TEXT)
    return text if isinstance(text, str) else ""


def _definition(value: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the definition that an item holds; None where it holds none."""
    text = value.get(_DEFINITION)
    if not isinstance(text, str):
        return None
    try:
        definition = json.loads(text)
    except ValueError:
        return None
    return definition if is_definition(definition) else None


def _value(entry: Entry) -> dict[str, Any]:
    document = entry.document
    own_id = document.id if document.id != tool_id(document.name, document.server) else None
    beside = {
        "id": own_id,
        "server": document.server,
        "title": document.title,
        "search_hint": document.hint,
        "tags": sorted(document.tags),
    }
    definition = {
        **convert_to_openai_tool(entry.bound)["function"],
        "name": document.name,
        "description": document.description,
        **{name: value for name, value in beside.items() if value},
    }
    # As a text: PostgreSQL does not keep the order of an object's keys, nor so of the arguments.
    written = json.dumps(definition, ensure_ascii=False)
    return {_TEXT: f"{document.name}: {document.description}", _DEFINITION: written}


def _portions(values: dict[str, dict[str, Any]]) -> Iterator[dict[str, dict[str, Any]]]:
    keys = list(values)
    for start in range(0, len(keys), _AT_ONCE):
        yield {key: values[key] for key in keys[start : start + _AT_ONCE]}


def _together(first: Changes, then: Changes) -> Changes:
    return Changes(
        first.added + then.added, first.changed + then.changed, kept=first.kept + then.kept
    )


def _check_store(store: object) -> None:
    if not isinstance(store, BaseStore):
        raise TypeError(
            f"the store is a {type(store).__name__}; wanted a LangGraph store, such as "
            "InMemoryStore() or what `with PostgresStore.from_conn_string(...) as store` gives"
        )


def _checked(namespace: object) -> tuple[str, ...]:
    if isinstance(namespace, str) or not isinstance(namespace, Sequence):
        raise TypeError(f"namespace is {namespace!r}; wanted a tuple of labels as in ('tools',)")
    labels = tuple(namespace)
    bad = [each for each in labels if not isinstance(each, str) or not each or "." in each]
    if bad or not labels:
        raise ValueError(
            f"namespace is {labels!r}; wanted at least one label, each a text without dots"
        )
    return labels
