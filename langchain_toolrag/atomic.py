"""Bytes in -> a file that is there whole or not at all out."""

from __future__ import annotations

import contextlib
import os
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
