"""A table of vectors in -> a file of the cache on disk out, and back.

A table is packed as safetensors; its metadata holds the format and a checksum. The snapshot is
one packed table, replaced as a whole; the other file is the `journal`. Writing needs the
cache's lock, reading does not.
"""

from __future__ import annotations

import itertools
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from langchain_toolrag.atomic import write_whole
from langchain_toolrag.errors import SourceError, StaleIndexError
from langchain_toolrag.types import Vectors

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Table:
    """Keys and their vectors.

    Attributes:
        keys: The keys; of equal ones the last counts.
        rows: Their vectors, shape `(len(keys), dim)`, finite and read-only.
    """

    keys: Sequence[bytes]
    rows: Vectors


class CacheFile(ABC):
    """A file of the cache, read again when another process changed it.

    Args:
        path: Where it is; it need not exist.

    Attributes:
        path: Where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] | None = None

    @property
    def changed(self) -> bool:
        """Whether it is not as it was when it was last read, written or marked as seen."""
        return self._signature() != self._seen

    def read(self, dim: int | None) -> list[Table]:
        """Return what is new in it since the last time.

        Args:
            dim: The dimension its vectors must have; None for any.

        Returns:
            Tables, oldest first; none where nothing changed or there is no file.

        Raises:
            SourceError: If it is damaged.
            StaleIndexError: If its format is newer than this code.
            OSError: If it cannot be read.
        """
        seen = self._signature()
        if seen is not None and seen == self._seen:
            return []
        try:
            tables = self._news(dim)
        except (FileNotFoundError, NotADirectoryError):
            self._forget()
            tables, seen = [], None
        except StaleIndexError:
            raise
        except ValueError as error:
            raise SourceError(str(self.path), str(error)) from error
        self._seen = seen
        return tables

    def mark_seen(self) -> None:
        """Take it as read, as it is now.

        Raises:
            OSError: If the disk does not say how it is.
        """
        self._seen = self._signature()

    def set_aside(self) -> Path:
        """Rename it to the first free `<name>.corrupt-<n>`.

        Returns:
            Its new path.

        Raises:
            OSError: If it cannot be renamed.
        """
        numbered = (f"{self.path.name}.corrupt-{number}" for number in itertools.count(1))
        candidates = (self.path.with_name(name) for name in numbered)
        return self.path.rename(next(path for path in candidates if not path.exists()))

    @abstractmethod
    def _news(self, dim: int | None) -> list[Table]:
        """Read what is new; a plain ValueError means damage."""

    @abstractmethod
    def _forget(self) -> None:
        """Note that there is no file."""

    def _signature(self) -> tuple[int, ...] | None:
        """Return what tells one state of the file from the next; None where there is no file."""
        try:
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns


class SnapshotFile(CacheFile):
    """Most of the vectors, in one safetensors file.

    Args:
        path: Where it is; it need not exist.

    Attributes:
        vectors: How many vectors it has, as last read or written.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.vectors = 0

    def write(self, table: Table) -> None:
        """Replace the file at once, whatever happens on the way.

        Args:
            table: All it is to hold.

        Raises:
            OSError: If it cannot be written; the old file stays.
        """
        write_whole(self.path, pack(table))
        self.mark_seen()
        self.vectors = len(table.keys)

    def _news(self, dim: int | None) -> list[Table]:
        table = unpack(self.path.read_bytes(), dim)
        self.vectors = len(table.keys)
        return [table]

    def _forget(self) -> None:
        self.vectors = 0


def pack(table: Table) -> bytes:
    """Return a table as safetensors.

    Args:
        table: The table.

    Returns:
        What `unpack` takes.
    """
    tensors: dict[str, NDArray[Any]] = {
        "rows": table.rows,
        "keys": np.frombuffer(b"".join(table.keys), np.uint8),
        "ends": np.cumsum([len(key) for key in table.keys], dtype=np.uint64),
    }
    return save(tensors, {"format": str(FORMAT), "crc32": _checksum(tensors)})


def unpack(packed: bytes, dim: int | None = None) -> Table:
    """Return the table that `pack` packed.

    Args:
        packed: What `pack` returned, or anything.
        dim: The dimension the vectors must have; None for any.

    Returns:
        The table.

    Raises:
        StaleIndexError: If its format is newer than this code.
        ValueError: If it is not what `pack` returned, or of another dimension.
    """
    try:
        metadata = _metadata(packed)
        check_format(int(metadata["format"]))
        tensors = load(packed)
        keys, rows = _keys(tensors, metadata["crc32"]), tensors["rows"]
    except (LookupError, TypeError, RecursionError, SafetensorError) as error:
        raise ValueError(f"it is not a table of vectors ({error!r})") from error
    _check_rows(rows, len(keys), dim)
    rows.flags.writeable = False
    return Table(keys, rows)


def check_format(found: int) -> None:
    """Refuse a format that this code does not know.

    Args:
        found: The format of a file.

    Raises:
        StaleIndexError: If it is newer than this code.
        ValueError: If there never was such a format.
    """
    if found > FORMAT:
        raise StaleIndexError("format", found, FORMAT)
    if found < FORMAT:
        raise ValueError(f"its format is {found}, wanted {FORMAT}")


def _metadata(packed: bytes) -> dict[str, str]:
    """Return the metadata in a safetensors header, which `load` does not give."""
    length = int.from_bytes(packed[:8], "little")
    metadata = json.loads(packed[8 : 8 + length])["__metadata__"]
    return {name: str(metadata[name]) for name in ("format", "crc32")}


def _checksum(tensors: dict[str, NDArray[Any]]) -> str:
    checksum = 0
    for name in ("rows", "keys", "ends"):
        checksum = zlib.crc32(tensors[name].data, checksum)
    return str(checksum)


def _keys(tensors: dict[str, NDArray[Any]], checksum: str) -> list[bytes]:
    if checksum != _checksum(tensors):
        raise ValueError("its content does not have its checksum")
    keys, ends = tensors["keys"].tobytes(), tensors["ends"].tolist()
    return [keys[start:end] for start, end in itertools.pairwise([0, *ends])]


def _check_rows(rows: NDArray[Any], count: int, dim: int | None) -> None:
    if rows.dtype != np.float32 or rows.ndim != 2 or len(rows) != count or not rows.shape[1]:
        raise ValueError(f"it has {rows.dtype} of shape {rows.shape} for {count} keys")
    if dim is not None and rows.shape[1] != dim:
        raise ValueError(f"its vectors have dimension {rows.shape[1]}, wanted {dim}")
    if not np.isfinite(rows).all():
        raise ValueError("some of its vectors are not finite")
