"""A SQLite file of LangGraph checkpoints in -> its threads, read only, out."""

from __future__ import annotations

import importlib.util
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_toolrag.errors import SourceError

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

# https://www.sqlite.org/fileformat.html: the first bytes, and where "written ahead" is said.
_MAGIC = b"SQLite format 3\x00"
_WRITE_VERSION = 18
_WRITTEN_AHEAD = 2

_TABLES = frozenset({"checkpoints", "writes"})
_NAMES = "SELECT thread_id FROM checkpoints GROUP BY thread_id ORDER BY max(checkpoint_id) DESC"


class StoredThreads(NamedTuple):
    """Conversations on the disk.

    Attributes:
        saver: What reads them.
        names: Their names, the one that was used last first.
    """

    saver: BaseCheckpointSaver[Any]
    names: list[str]


@contextmanager
def open_sqlite(path: Path) -> Iterator[StoredThreads]:
    """Open a file that LangGraph's SqliteSaver or AsyncSqliteSaver wrote; nothing is written.

    An agent may be using it, but may not begin to write to it meanwhile. Values of a graph's state
    that are of other classes than messages and the like are not made: that would import the
    modules that the file names.

    Args:
        path: The file.

    Yields:
        Its threads.

    Raises:
        SourceError: If there is no such file, it is no SQLite database, it holds no checkpoints,
            the package that reads them is not installed, or, at the end, if an agent has begun to
            write to the file since: what was read is not to be relied upon.
    """
    _refuse_uninstalled(path)
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
    from langgraph.checkpoint.sqlite import SqliteSaver

    before = _signature(path)
    is_closed = _is_closed(path)
    with closing(_connected(path, is_closed=is_closed)) as connection:
        names = _names(path, connection)
        serializer = JsonPlusSerializer(allowed_msgpack_modules=None)
        saver = SqliteSaver(connection, serde=serializer)
        saver.is_setup = True  # It would make tables, and cannot.
        yield StoredThreads(saver, names)
    if is_closed and _signature(path) != before:
        raise SourceError(str(path), "was written to while it was read: read it again")


def _refuse_uninstalled(path: Path) -> None:
    try:
        found = importlib.util.find_spec("langgraph.checkpoint.sqlite")
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise SourceError(
            str(path),
            "LangGraph's checkpoints in SQLite are read by a package that is not installed: "
            "pip install 'langchain-toolrag[replay]'",
        )


def _is_closed(path: Path) -> bool:
    """Return whether what is written to the file is written ahead, and nobody has it open."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except OSError as error:
        raise SourceError(str(path), f"cannot be read: {error.strerror}") from error
    if not head.startswith(_MAGIC):
        raise SourceError(
            str(path), "is no SQLite database; wanted the file that a SqliteSaver was given"
        )
    log = path.with_name(f"{path.name}-wal")
    return head[_WRITE_VERSION] == _WRITTEN_AHEAD and not log.exists()


def _signature(path: Path) -> tuple[int, ...] | None:
    """Return what tells one state of the file from the next; None where there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _connected(path: Path, *, is_closed: bool) -> sqlite3.Connection:
    address = f"{path.resolve().as_uri()}?mode=ro"
    # To read a file that is written ahead, SQLite makes two more beside it, which its owner may
    # not be able to write then. Where nobody has it open they are not there, and not needed; but
    # SQLite does not look then whether somebody writes to it.
    if is_closed:
        address += "&immutable=1"
    try:
        return sqlite3.connect(address, uri=True, check_same_thread=False)
    except sqlite3.Error as error:
        raise SourceError(str(path), f"cannot be opened: {error}") from error


def _names(path: Path, connection: sqlite3.Connection) -> list[str]:
    try:
        listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        tables = {name for (name,) in listed}
        if not tables >= _TABLES:
            found = ", ".join(sorted(map(repr, tables))) or "none"
            raise SourceError(
                str(path),
                f"holds no LangGraph checkpoints: it has no tables 'checkpoints' and 'writes'; "
                f"found {found:.200}",
            )
        return [str(name) for (name,) in connection.execute(_NAMES)]
    except sqlite3.Error as error:
        raise SourceError(str(path), f"cannot be read: {error}") from error
