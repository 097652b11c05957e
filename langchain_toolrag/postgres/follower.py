"""Notices of the database in -> a copy that catches up out."""

from __future__ import annotations

import contextlib
import json
import logging
import selectors
import socket
import threading
import time
import weakref
from collections.abc import Callable

from langchain_toolrag.errors import DatabaseError
from langchain_toolrag.fork import reset_after_fork
from langchain_toolrag.postgres.connection import Database, SyncConnection
from langchain_toolrag.postgres.records import tenant_key
from langchain_toolrag.postgres.tool_store import CHANNEL

logger = logging.getLogger(__name__)

_LONGEST_REST = 1.0  # Seconds before the database is tried again.


class Follower:
    """A thread that has a copy catch up when the database says so, and every few seconds anyway.

    While the database cannot be reached it tries again every second. The thread ends with the
    copy, if nobody closes it; a forked child has a thread of its own from the first `ensure` on.

    Args:
        database: The database.
        catch_up: A method of the copy; raises a DatabaseError where it cannot.
        seconds: After how long to look without a notice: one may be lost, or never sent.

    Attributes:
        failure: Why the copy may lag behind; empty while it does not.
    """

    def __init__(self, database: Database, catch_up: Callable[[], object], seconds: float) -> None:
        self._database = database
        self._catch_up = weakref.WeakMethod(catch_up)
        self._seconds = seconds
        self._is_closed = False
        self.failure = ""
        self._thread: threading.Thread | None
        self._wake: socket.socket | None = None
        self.after_fork()
        reset_after_fork(self)

    def ensure(self) -> None:
        """Start the thread, unless it runs or was closed."""
        if self._is_running or self._is_closed:
            return
        with self._starting:
            if not self._is_running and not self._is_closed:
                self._wake, wakes = socket.socketpair()
                self._thread = threading.Thread(
                    target=self._follow, args=[wakes], name="toolrag-postgres", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        """End the thread and its connection."""
        with self._starting:
            self._is_closed = True
            thread, self._thread = self._thread, None
        if thread is not None and self._wake is not None:
            self._wake.close()  # The other end can be read then.
            thread.join()

    def after_fork(self) -> None:
        """Forget the parent's thread."""
        self._starting = threading.Lock()
        self._thread = None
        if self._wake is not None:
            self._wake.close()

    @property
    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _follow(self, wakes: socket.socket) -> None:
        with wakes:
            while not self._is_over():
                try:
                    with self._database.alone() as connection:
                        connection.execute(f"listen {CHANNEL}".encode())
                        self._listen(connection, wakes)
                except DatabaseError as error:
                    self._note(str(error))
                    _readable(min(self._seconds, _LONGEST_REST), wakes.fileno())

    def _listen(self, connection: SyncConnection, wakes: socket.socket) -> None:
        """Catch up with every notice until it is over."""
        while not self._is_over():
            self._have_caught_up()
            self._note("")
            due = time.monotonic() + self._seconds
            while (left := due - time.monotonic()) > 0 and not self._is_over():
                if not _readable(left, connection.fileno(), wakes.fileno()):
                    break
                if self._has_notice(connection):
                    break

    def _have_caught_up(self) -> None:
        catch_up = self._catch_up()
        if catch_up is not None:
            catch_up()

    def _has_notice(self, connection: SyncConnection) -> bool:
        """Return whether one of the notices that have come is about this tenant."""
        ours = tenant_key(self._database.tenant)
        return ours in [_tenant(notice.payload) for notice in connection.notifies(timeout=0)]

    def _is_over(self) -> bool:
        return self._is_closed or self._catch_up() is None

    def _note(self, failure: str) -> None:
        if failure and not self.failure:
            logger.warning("the tools may lag behind, what is known is searched: %s", failure)
        elif self.failure and not failure:
            logger.info("the database is there again")
        self.failure = failure


def _tenant(payload: str) -> str:
    with contextlib.suppress(ValueError):
        notice = json.loads(payload)
        if isinstance(notice, dict):
            return str(notice.get("tenant"))
    return ""


def _readable(seconds: float, *files: int) -> bool:
    """Wait until one of some files can be read; returns whether one can."""
    with selectors.DefaultSelector() as waiting:
        for file in files:
            waiting.register(file, selectors.EVENT_READ)
        return bool(waiting.select(seconds))
