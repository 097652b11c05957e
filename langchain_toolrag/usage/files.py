"""Lines in -> the end of a day's file, whole lines whoever else writes or dies, out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import date
from io import FileIO
from pathlib import Path

from filelock import FileLock

from langchain_toolrag.atomic import write_or_undo

_LOCK_SECONDS = 5.0  # Longer than any process needs to write what it has.
_POLL_SECONDS = 0.005
_OWNER_ALONE = 0o600


def usage_files(directory: Path) -> Iterator[Path]:
    """Yield the days' files of a usage log, in no order."""
    return directory.glob("usage-????-??-??.jsonl")


def day_file(directory: Path, day: date) -> Path:
    """Return where the records of a day, in UTC, are."""
    return directory / f"usage-{day.isoformat()}.jsonl"


@contextlib.contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Hold the lock that whoever writes into a usage directory takes.

    Args:
        directory: The log's directory.

    Yields:
        Nothing; the lock is held.

    Raises:
        OSError: If the lock cannot be had: filelock's `Timeout` after 5 seconds.
    """
    lock = FileLock(directory / ".lock", mode=_OWNER_ALONE)
    with lock.acquire(timeout=_LOCK_SECONDS, poll_interval=_POLL_SECONDS):
        yield


def append(path: Path, lines: bytes) -> None:
    """Append lines, all of them or none; a line that a process died in is ended first.

    Args:
        path: The file; made where there is none, for its owner alone.
        lines: Whole lines, each with its end.

    Raises:
        OSError: If they cannot be written; what was there stays.
    """
    with writing(path.parent), FileIO(path, "ab+", opener=_open) as file:
        end = file.seek(0, os.SEEK_END)
        content = lines if _ends_a_line(file, end) else b"\n" + lines
        write_or_undo(file, content, end)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags, _OWNER_ALONE)


def _ends_a_line(file: FileIO, end: int) -> bool:
    if end == 0:
        return True
    file.seek(end - 1)
    return file.read(1) == b"\n"
