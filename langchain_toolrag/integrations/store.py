"""A LangGraph store in -> a ToolRAG over the tools that are listed in it out; and tools into it."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore
from typing_extensions import Unpack

from langchain_toolrag.catalogue.bound_names import OnDuplicate
from langchain_toolrag.errors import ToolRAGError
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.integrations.store_items import (
    TOOLS_NAMESPACE,
    Registry,
    StoredTools,
    StoreItems,
)
from langchain_toolrag.selection.options import SelectionOptions
from langchain_toolrag.toolrag import Searching, ToolRAG, Watching, new_index
from langchain_toolrag.types import Changes, ToolDocument, ToolId

logger = logging.getLogger(__name__)

__all__ = ["StoreToolRAG", "afrom_store", "awrite_tools", "from_store", "write_tools"]


class StoreToolRAG(ToolRAG):
    """A ToolRAG over the tools that a LangGraph store lists; `from_store` makes it.

    It holds what was listed when it was last read. What is added to it or taken out otherwise
    stays so until then, and is not written to the store.

    Args:
        items: Where the tools are listed.
        stored: What was read there.
        on_duplicate: As in ToolRAG.
        cache_dir: As in ToolRAG.
        embeddings: As in ToolRAG.
        index_options: As in ToolRAG.
        background: As in ToolRAG.
        **watching: As in ToolRAG.

    Attributes:
        items: Where the tools are listed.
        left_out: Why items that are listed there are no tools, by key.
    """

    def __init__(
        self,
        items: StoreItems,
        stored: StoredTools,
        *,
        on_duplicate: OnDuplicate = "raise",
        cache_dir: str | Path | None = None,
        embeddings: Embeddings | str | None = None,
        index_options: IndexOptions | None = None,
        background: bool = False,
        **watching: Unpack[Watching],
    ) -> None:
        options = watching.get("options") or SelectionOptions()
        index = new_index(_IndexOfTexts, embeddings, index_options, cache_dir, background, options)
        self.items = items
        self.left_out = stored.left_out
        self._index_of_texts = index
        self._readings = itertools.count(1)
        self._newest = 0
        self._warned = ""
        index.texts = stored.texts
        super().__init__(stored.tools, index=index, on_duplicate=on_duplicate, **watching)
        self._warn(stored)

    def reload(self) -> Changes:
        """Read the store again; only what is new or changed is embedded again.

        Returns:
            Ids added, changed, removed and kept; none where a later call has been quicker.

        Raises:
            DuplicateToolError: If two of the tools have one name; the old ones stay.
            SourceError: If there are items and none is a tool; the old ones stay.
        """
        reading = next(self._readings)
        return self._take(self.items.read(), reading)

    async def areload(self) -> Changes:
        """Do what `reload` does, without blocking the event loop."""
        reading = next(self._readings)
        stored = await self.items.aread()
        return await asyncio.to_thread(self._take, stored, reading)

    def _take(self, stored: StoredTools, reading: int) -> Changes:
        with self._changing:
            if reading < self._newest:
                return Changes()
            changes = self._refreshed(stored)
            self._newest, self.left_out = reading, stored.left_out
            self._warn(stored)
        return changes

    def _warn(self, stored: StoredTools) -> None:
        """Say what is missing, once for as long as it stays so."""
        if stored.warning and stored.warning != self._warned:
            logger.warning("%s", stored.warning)
        self._warned = stored.warning

    def _refreshed(self, stored: StoredTools) -> Changes:
        index, before = self._index_of_texts, self._index_of_texts.texts
        index.texts = stored.texts
        try:
            return self.refresh(stored.tools)
        except ToolRAGError:
            index.texts = before
            raise


def from_store(
    store: BaseStore,
    namespace: tuple[str, ...] = TOOLS_NAMESPACE,
    *,
    registry: Registry | None = None,
    filter: Mapping[str, Any] | None = None,
    on_duplicate: OnDuplicate = "raise",
    cache_dir: str | Path | None = None,
    **searching: Unpack[Searching],
) -> StoreToolRAG:
    """Find the tools that a LangGraph store lists, such as langgraph-bigtool's catalogue.

    A tool is found by what its item says under `description`, and bound as it is. The vectors
    that the store may have are not used: they are of the store's own model, and a store does not
    hand them out. Tools are embedded here; `cache_dir` keeps that from process to process, and
    `embeddings=store.embeddings` has the store's model do it.

    Example:
        >>> rag = from_store(store, ("tools",), registry=tool_registry)
        >>> rag.select([("user", "calculate the arc cosine of 0.5")]).names

    Args:
        store: The store; of an async one, use `afrom_store` in its event loop.
        namespace: Where the items are, in sub-namespaces too.
        registry: The tools by the keys of their items, or a list of tools whose ids are the keys;
            those without an item are not found. None to read the definitions that `write_tools`
            has put there, which can be bound and not called.
        filter: Values that items must have, as `store.search` takes them.
        on_duplicate: As in ToolRAG.
        cache_dir: As in ToolRAG.
        **searching: As in ToolRAG.

    Returns:
        A ToolRAG; its `reload` reads the store again. Items that are no tools are in `left_out`,
        and the first of them in a warning.

    Raises:
        DuplicateToolError: If two of the tools have one name.
        SourceError: If there are items and none is a tool.
        TypeError: If the store is none, or the namespace a single string.
        ValueError: If the namespace is not one.
    """
    items = StoreItems(store, namespace, registry, filter)
    return StoreToolRAG(
        items, items.read(), on_duplicate=on_duplicate, cache_dir=cache_dir, **searching
    )


async def afrom_store(
    store: BaseStore,
    namespace: tuple[str, ...] = TOOLS_NAMESPACE,
    *,
    registry: Registry | None = None,
    filter: Mapping[str, Any] | None = None,
    on_duplicate: OnDuplicate = "raise",
    cache_dir: str | Path | None = None,
    **searching: Unpack[Searching],
) -> StoreToolRAG:
    """Do what `from_store` does, without blocking the event loop."""
    items = StoreItems(store, namespace, registry, filter)
    stored = await items.aread()
    return await asyncio.to_thread(
        lambda: StoreToolRAG(
            items, stored, on_duplicate=on_duplicate, cache_dir=cache_dir, **searching
        )
    )


def write_tools(store: BaseStore, namespace: tuple[str, ...], tools: Registry) -> Changes:
    """List tools in a LangGraph store, for `from_store` and for langgraph-bigtool.

    Only what is new or changed is put, and so embedded by the store: by its `description`. What
    else an item holds stays. To take a tool out, `store.delete` its item.

    Args:
        store: The store.
        namespace: Where to put the items.
        tools: The tools by the keys that their items get, such as a bigtool registry; or a list of
            tools, whose ids become the keys.

    Returns:
        Keys added, changed and kept. Where the store fails, what was put so far is there, and the
        same call goes on from it.

    Raises:
        DuplicateToolError: If two of the tools have one id.
        InvalidToolError: If one is no tool, or a provider's own.
        TypeError: If the store is none, or the namespace a single string.
        ValueError: If the namespace is not one.
    """
    return StoreItems(store, namespace).write(tools)


async def awrite_tools(store: BaseStore, namespace: tuple[str, ...], tools: Registry) -> Changes:
    """Do what `write_tools` does, without blocking the event loop."""
    return await StoreItems(store, namespace).awrite(tools)


class _IndexOfTexts(ToolIndex):
    """A local index that finds tools by what a store says of them, rather than they themselves.

    Attributes:
        texts: What is said, by id: `"<name>: <description>"`, or the description alone.
    """

    texts: Mapping[ToolId, str]

    def refresh(self, documents: Sequence[ToolDocument]) -> Changes:
        """Make the index hold exactly these documents, as the store describes them."""
        return super().refresh([self._as_said(document) for document in documents])

    def add(self, documents: Sequence[ToolDocument]) -> Changes:
        """Add documents, as the store describes them."""
        return super().add([self._as_said(document) for document in documents])

    def _as_said(self, document: ToolDocument) -> ToolDocument:
        said = self.texts.get(document.id, "").removeprefix(f"{document.name}:").strip()
        return replace(document, description=said) if said else document
