"""What readers and writers of ingested tools need of where these are: a directory, a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool
from langchain_toolrag.types import Changes
from langchain_toolrag.vectors.cache import KnownVectors


class ToolStore(Protocol):
    """Where `toolrag ingest` puts tools; safe under threads and processes.

    Readers see the old tools or the new ones, and of two ingests at once the second changes what
    the first left.
    """

    @property
    def name(self) -> str:
        """Which one it is, for messages; holds no secret."""

    def tools(self) -> list[StoredTool]:
        """Read the tools, in the order of the sources."""

    def sources(self) -> Mapping[str, StoredSource]:
        """Read the sources by name, in the order they were ingested first."""

    def fingerprint(self) -> str:
        """Return a text that is another one once tools changed; empty where it cannot be told."""

    def replace(self, listings: Sequence[Listing], *, dry_run: bool = False) -> dict[str, Changes]:
        """Take in what sources listed, each in the place of what it listed before."""

    def vectors(self, space: str) -> KnownVectors:
        """Return where the vectors of a model, which the space names, are kept."""
