"""Content in -> a whole file, or an error that names it, out."""

from __future__ import annotations

import os
from pathlib import Path

from langchain_toolrag import atomic
from langchain_toolrag.errors import SourceError


def refuse_unwritable(path: Path) -> None:
    """Say now that a file could not be written, rather than after the work.

    Args:
        path: The file.

    Raises:
        SourceError: If its folder is not there or cannot be written to, or if it is there and no
            ordinary file: a device would be replaced by one.
    """
    if path.exists() and not path.is_file():
        raise SourceError(str(path), "is no ordinary file; wanted the name of a file to write")
    if not path.parent.is_dir():
        raise SourceError(str(path), f"cannot be written: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise SourceError(str(path), f"cannot be written: no permission to write in {path.parent}")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file at once: what is there is the old content or all of the new.

    Args:
        path: The file; one that is there is replaced.
        content: What it is to hold.

    Raises:
        SourceError: If it cannot be written.
    """
    try:
        atomic.write_whole(path.resolve(), content)
    except OSError as error:
        raise SourceError(str(path), f"cannot be written: {error.strerror}") from error
