"""Tables of vectors in -> an append-only file of the cache out, and back.

A header, then a block for each `append`: the length of a packed table with a checksum, then the
table. A block is whole or it does not count, so that a process may die while it writes one.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from langchain_toolrag.atomic import write_or_undo, write_whole
from langchain_toolrag.errors import StaleIndexError
from langchain_toolrag.vectors.cache_files import (
    FORMAT,
    CacheFile,
    Table,
    check_format,
    pack,
    unpack,
)

_MAGIC = b"toolragv"
_BEGINNING = struct.Struct("<8sI")  # Magic and format, as every later format must begin too.
_HEADER = struct.Struct("<12sI16s")  # Beginning, its checksum, identity.
_LENGTH = struct.Struct("<Q")  # Of the packed table, in bytes.
_HEAD = struct.Struct("<8sI")  # Length, its checksum.


class Position(NamedTuple):
    """How far a journal has been read.

    Attributes:
        identity: Which journal it is, 16 random bytes; empty where there is none.
        end: Where its last whole block ends, in bytes.
        vectors: How many vectors stand before that.
    """

    identity: bytes = b""
    end: int = 0
    vectors: int = 0


class JournalFile(CacheFile):
    """What was put since the snapshot was made.

    Args:
        path: Where it is; it need not exist.

    Attributes:
        position: How far it has been read.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.position = Position()
        self._sound = 0  # Where the damage began that `read` found.

    def append(self, table: Table) -> Position:
        """Add a block after the last whole one; all that is there must have been read.

        Args:
            table: What to add.

        Returns:
            The position behind the block, for the caller to store.

        Raises:
            OSError: If it cannot be written; what was there stays.
        """
        packed = pack(table)
        identity, end, vectors = self.position
        identity = identity or os.urandom(16)
        length = _LENGTH.pack(len(packed))
        block = _HEAD.pack(length, zlib.crc32(length)) + packed
        content = block if end else _header(identity) + block
        with self.path.open("ab", buffering=0) as file:
            file.truncate(end)  # What stands behind was left by a process that died.
            write_or_undo(file, content, end)
        return Position(identity, end + len(content), vectors + len(table.keys))

    def remove(self) -> None:
        """Delete it, once a snapshot holds what it has.

        Raises:
            OSError: If it cannot be deleted.
        """
        self.path.unlink(missing_ok=True)

    def set_aside(self) -> Path:
        """Rename it, and begin a new one with the blocks before the damage.

        Returns:
            Its new path.

        Raises:
            OSError: If it cannot be renamed.
        """
        with self.path.open("rb") as file:
            sound = file.read(self._sound)[_HEADER.size :]
        aside = super().set_aside()
        self.position = Position()
        if sound:
            with contextlib.suppress(OSError):  # The blocks are lost then, which is no harm.
                write_whole(self.path, _header(os.urandom(16)) + sound)
        return aside

    def _news(self, dim: int | None) -> list[Table]:
        """Read on from `position`, or from the start where it is another journal."""
        with self.path.open("rb") as file:
            self._sound = 0
            identity = _identity(file.read(_HEADER.size))
            last = self.position
            if identity != last.identity or file.seek(0, os.SEEK_END) < last.end:
                last = Position(identity, _HEADER.size if identity else 0)
            file.seek(last.end)
            content = file.read() if identity else b""
        tables, length, problem = _blocks(content, dim)
        if problem:
            self._sound = last.end + length
            raise ValueError(problem)
        added = sum(len(table.keys) for table in tables)
        self.position = Position(identity, last.end + length, last.vectors + added)
        return tables

    def _forget(self) -> None:
        self.position = Position()


def _header(identity: bytes) -> bytes:
    beginning = _BEGINNING.pack(_MAGIC, FORMAT)
    return _HEADER.pack(beginning, zlib.crc32(beginning), identity)


def _identity(header: bytes) -> bytes:
    """Return which journal it is; empty where its header was left unfinished."""
    if len(header) < _HEADER.size:
        return b""
    beginning, checksum, identity = _HEADER.unpack(header)
    magic, found = _BEGINNING.unpack(beginning)
    if magic != _MAGIC or checksum != zlib.crc32(beginning):
        raise ValueError("it does not begin as a journal does")
    check_format(found)
    return bytes(identity)


def _blocks(content: bytes, dim: int | None) -> tuple[list[Table], int, str]:
    """Return the tables of the whole blocks, their length in bytes, and what is damaged.

    An unfinished block at the end is no damage: the text is empty then.
    """
    tables: list[Table] = []
    end = 0
    while len(content) - end >= _HEAD.size:
        start = end + _HEAD.size
        packed_length, checksum = _HEAD.unpack_from(content, end)
        if checksum != zlib.crc32(packed_length):
            return tables, end, "the length of a block is damaged"
        stop = start + _LENGTH.unpack(packed_length)[0]
        if stop > len(content):
            break
        try:
            tables.append(unpack(content[start:stop], dim))
        except StaleIndexError:
            raise
        except ValueError as error:
            return tables, end, str(error)
        dim, end = tables[-1].rows.shape[1], stop
    return tables, end, ""
