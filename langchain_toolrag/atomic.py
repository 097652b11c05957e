"""Bytes in -> a file that has them whole or not at all out."""

from __future__ import annotations

import contextlib
import os
from io import FileIO
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all, power cuts included.

    Args:
        path: Where to.
        content: What it is to hold.

    Raises:
        OSError: If it cannot be written; an old file stays.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def write_or_undo(file: FileIO, content: bytes, end: int) -> None:
    """Write everything at the end of a file, or cut it off at `end` again.

    Args:
        file: An open file, unbuffered.
        content: What to write.
        end: Where the file ended before.

    Raises:
        OSError: If it cannot be written; the file is as it was, if it can be cut off.
    """
    remaining = memoryview(content)
    try:
        while remaining:
            remaining = remaining[file.write(remaining) :]
    except OSError:
        with contextlib.suppress(OSError):
            file.truncate(end)
        raise
