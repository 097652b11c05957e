"""A directory of ingested tools: what sources listed, and where each is listed from.

    tools.jsonl   one tool a line, in the order of the sources
    sources.json  the sources; no secrets
    cache/        vectors of the tools, and the embedding model as it is run
    index/        what `save_index` writes
    usage/        the usage log

`tools.jsonl` is what counts: it is replaced as a whole, after `sources.json`, so that a process
killed between the two leaves the old tools with the new ways to reach them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from langchain_toolrag.atomic import write_whole
from langchain_toolrag.catalogue.sources.directory_records import as_json, read_source, read_tool
from langchain_toolrag.catalogue.sources.json_files import read_json, read_lines
from langchain_toolrag.catalogue.sources.merging import Merged, merged
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool
from langchain_toolrag.errors import SourceError
from langchain_toolrag.types import Changes, ToolId
from langchain_toolrag.vectors.cache import VectorCache

VERSION = 1
"""The newest form of a directory that this code reads; it writes this one."""

_PATIENCE = 60  # Seconds; another ingest holds the lock for less than one.


class ToolDirectory:
    """What `toolrag ingest` writes and everything else reads.

    Safe under threads and processes: readers see the old tools or the new ones, and of two
    ingests at once the second changes what the first left.

    Args:
        path: The directory; made by the first `replace`.

    Attributes:
        path: The directory.
        name: The same, for messages.
        cache: Where vectors and the model as it is run are kept.
        index: Where a saved index is kept.
        usage: Where the usage log is kept.
        heads: Where the heads that were learned from it are kept.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.name = str(self.path)
        self.cache = self.path / "cache"
        self.index = self.path / "index"
        self.usage = self.path / "usage"
        self.heads = self.path / "heads"
        self._tools = self.path / "tools.jsonl"
        self._sources = self.path / "sources.json"

    def tools(self) -> list[StoredTool]:
        """Read the tools.

        Returns:
            The tools, in the order of the sources.

        Raises:
            SourceError: If nothing was ingested here, the directory is a newer version's, or a
                line is no tool; names the line.
        """
        self.sources()  # Refuses what is not ours to read.
        return self._read_tools()

    def sources(self) -> dict[str, StoredSource]:
        """Read the sources.

        Returns:
            The sources by name, in the order they were ingested first.

        Raises:
            SourceError: If nothing was ingested here, or the directory is a newer version's.
        """
        if not _is_there(self._sources):
            raise SourceError(
                str(self.path),
                "holds no ingested tools (no sources.json); ingest some with "
                f"`toolrag ingest ... --out {self.path}`",
            )
        return self._read_sources()

    def fingerprint(self) -> str:
        """Return a short text that is another one once `tools.jsonl` was replaced.

        Returns:
            The text; empty while there is no such file.
        """
        try:
            found = self._tools.stat()
        except OSError:
            return ""
        return f"{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}"

    def replace(self, listings: Sequence[Listing], *, dry_run: bool = False) -> dict[str, Changes]:
        """Take in what sources listed, each in the place of what it listed before.

        A source whose listing failed keeps its tools and is marked; sources that are not listed
        stay as they are.

        Args:
            listings: What the sources listed.
            dry_run: Whether to write nothing and say only what would change.

        Returns:
            What changed, by source, in the order of the listings.

        Raises:
            SourceError: If a source is listed twice, lists a name twice, or has the name of one of
                another kind; if the directory cannot be read or written, or is somebody else's.
                The tools stay as they were then.
        """
        if dry_run:
            return self._merged(listings).changes
        with self._locked():
            after = self._merged(listings)
            self._write(after.sources, after.tools)
        return after.changes

    def vectors(self, space: str) -> VectorCache:
        """Return where the vectors of a model are kept.

        Args:
            space: Names the model.

        Returns:
            The cache of its vectors.
        """
        return VectorCache(self.cache, space)

    def _merged(self, listings: Sequence[Listing]) -> Merged:
        sources = self._read_sources() if self._is_ours() else {}
        tools = self._read_tools() if sources else []
        return merged(listings, sources, tools, place=str(self._sources))

    def _is_ours(self) -> bool:
        """Return whether tools were ingested here; a `tools.jsonl` of something else is no place.

        An ingest that is killed leaves `sources.json` alone, never `tools.jsonl` alone.
        """
        if not _is_there(self._sources) and _is_there(self._tools):
            raise SourceError(
                str(self._tools),
                "is there without the sources.json that an ingest writes beside it, and would be "
                "lost: move it away, or ingest into another directory",
            )
        return _is_there(self._sources)

    def _read_sources(self) -> dict[str, StoredSource]:
        value = read_json(self._sources)
        place = str(self._sources)
        if not isinstance(value, dict) or not isinstance(value.get("sources"), dict):
            raise SourceError(place, "wanted an object with 'version' and 'sources'")
        version = value.get("version")
        if version != VERSION:
            raise SourceError(
                place,
                f"is of version {version!r}, this langchain-toolrag reads version {VERSION}: "
                "upgrade langchain-toolrag, or ingest into another directory",
            )
        return {name: _source(name, each, place) for name, each in value["sources"].items()}

    def _read_tools(self) -> list[StoredTool]:
        if not _is_there(self._tools):
            return []
        tools: dict[ToolId, StoredTool] = {}
        for line in read_lines(self._tools):
            try:
                tool = read_tool(line.value)
            except ValueError as error:
                raise line.fault(f"is no tool: {error}") from error
            if tool.id in tools:
                raise line.fault(f"a second tool with the id {tool.id!r}")
            tools[tool.id] = tool
        return list(tools.values())

    def _write(
        self, sources: Mapping[str, StoredSource], tools: Mapping[str, Sequence[StoredTool]]
    ) -> None:
        described = {name: as_json(source) for name, source in sources.items()}
        content = _encoded({"version": VERSION, "sources": described}, indent=1)
        listed = [as_json(tool) for each in tools.values() for tool in each]
        written = b"".join(_encoded(tool) + b"\n" for tool in listed)
        try:
            write_whole(self._sources, content)
            # A file that is not replaced keeps its fingerprint: nobody need read it again.
            if not self._tools.exists() or self._tools.read_bytes() != written:
                write_whole(self._tools, written)
        except OSError as error:
            raise SourceError(str(self.path), f"cannot be written: {error.strerror}") from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other ingests out, and clear away what one that was killed left half-written."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / ".lock", timeout=_PATIENCE)
            with lock:
                for file in (self._sources, self._tools):
                    for part in self.path.glob(f".{file.name}.*"):
                        part.unlink(missing_ok=True)
                yield
        except Timeout as error:
            problem = f"another ingest has held its lock for {_PATIENCE} seconds"
            raise SourceError(str(self.path), problem) from error
        except OSError as error:
            raise SourceError(str(self.path), f"cannot be written: {error.strerror}") from error


def now() -> str:
    """Return the time, ISO 8601 in UTC, in whole seconds."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _is_there(path: Path) -> bool:
    """Return whether a file is there; a directory that may not be entered is an error."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise SourceError(str(path), f"cannot be read: {error.strerror}") from error
    return True


def _source(name: str, value: Any, place: str) -> StoredSource:
    try:
        return read_source(value)
    except ValueError as error:
        raise SourceError(place, f"{name!r} is no source: {error}") from error


def _encoded(value: Mapping[str, Any], indent: int | None = None) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent).encode()
    except UnicodeEncodeError:  # A lone surrogate, which JSON can hold and UTF-8 cannot.
        return json.dumps(value, indent=indent).encode()
