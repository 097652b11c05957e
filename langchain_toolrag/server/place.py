"""Where a server's tools are, and where it keeps what is its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from typing_extensions import Self

from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.store import ToolStore


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server's tools are, and where it keeps what is its own.

    Attributes:
        store: Where tools were ingested into.
        cache: Keeps the model as it is run; None for the user's cache.
        usage: Keeps the usage log; None for none.
        heads: Has the heads to follow; None for none.
    """

    store: ToolStore
    cache: Path | None = None
    usage: Path | None = None
    heads: Path | None = None

    @classmethod
    def of_directory(cls, path: str | Path) -> Self:
        """Return an ingest directory, which has all of it."""
        store = ToolDirectory(path)
        return cls(store, store.cache, store.usage, store.heads)
