"""Texts' vectors in -> the same vectors out, in every process of a tenant."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal, TypeAlias

import numpy as np
from pgvector import Vector as StoredVector

from langchain_toolrag.errors import DatabaseError
from langchain_toolrag.fork import reset_after_fork
from langchain_toolrag.postgres.connection import Database, SyncConnection
from langchain_toolrag.postgres.faults import translated
from langchain_toolrag.postgres.records import space_key
from langchain_toolrag.types import Vector

logger = logging.getLogger(__name__)

_Done: TypeAlias = Literal["read", "written"]

_POLL_SECONDS = 0.1
_PATIENCE_SECONDS = 60.0  # Whoever embeds and has made nothing for so long is not waited for.
_REST_SECONDS = 5.0  # After trouble; so that not every search waits for a database that is down.


class PostgresVectors:
    """Vectors of texts by opaque keys, all of one model; safe under threads, processes and forks.

    As with the cache on the disk the database never makes a call fail: while it cannot be reached
    vectors are kept in memory, with one warning for each cause, and written later.

    Args:
        database: Where they are.
        space: Any string that names the model: vectors of two spaces never mix.
    """

    def __init__(self, database: Database, space: str) -> None:
        self._database = database
        self._space = space_key(space)
        self._unsaved: dict[bytes, Vector] = {}
        self._warned: set[Hashable] = set()
        self._resumes_at = {"read": 0.0, "written": 0.0}
        self._is_closed = False
        self._claim: _Claim | None
        self.after_fork()
        reset_after_fork(self)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        """Return the vectors that are known, whichever process made them.

        Within `claim` it waits while another process makes those that are missing.

        Args:
            keys: Keys, in any order; repeats are no matter.

        Returns:
            Vectors of shape `(dim,)`, in the order of the keys.
        """
        found = self._known(keys)
        missing = [key for key in keys if key not in found]
        claim = self._claim
        if missing and claim is not None and claim.thread == threading.get_ident():
            found |= self._known_or_claimed(missing, claim)
        return {key: found[key] for key in keys if key in found}

    def put(self, vectors: Mapping[bytes, Vector]) -> None:
        """Keep vectors; those that are known stay as they are.

        Args:
            vectors: Finite vectors of shape `(dim,)` by key.
        """
        with self._state:
            self._unsaved.update(vectors)
            batch = dict(self._unsaved)
        if not batch or self._rests("written"):
            return
        # In one order: two processes that wait for each other's rows would wait for ever.
        rows = [
            (self._database.tenant, self._space, key, StoredVector(np.asarray(batch[key])))
            for key in sorted(batch)
        ]
        try:
            with self._database.write() as connection, connection.cursor() as cursor:
                cursor.executemany(_PUT, rows)
        except DatabaseError as error:
            self._trouble("written", "they are kept in memory", error)
            return
        with self._state:
            self._unsaved = {
                key: vector for key, vector in self._unsaved.items() if batch.get(key) is not vector
            }

    @contextmanager
    def claim(self) -> Iterator[None]:
        """See to it that of all processes one makes the vectors that several find missing.

        The first `get` of this thread that misses something claims the space, for the rest of the
        block; in other processes `get` waits for what the holder makes. What a holder leaves
        undone, the next one does: its claim goes with its connection, even if it is killed. Without
        a database, or if nothing is made for a minute, everybody makes what is missing.

        Yields:
            Nothing.
        """
        with self._one_at_a_time, ExitStack() as held:
            self._claim = _Claim(held)
            try:
                yield
            finally:
                self._claim = None

    def close(self) -> None:
        """Wait for nobody any more."""
        self._is_closed = True

    def after_fork(self) -> None:
        """Forget locks and a claim that a thread of the parent may hold."""
        self._state = threading.Lock()
        self._one_at_a_time = threading.Lock()
        self._claim = None

    def _known(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        with self._state:
            found = {key: self._unsaved[key] for key in keys if key in self._unsaved}
        if len(found) == len(keys) or self._rests("read"):
            return found
        values = [self._database.tenant, self._space, list(keys)]
        try:
            with self._database.read() as connection:
                rows = connection.execute(_GET, values, binary=True)
                found.update((key, vector.to_numpy()) for key, vector in rows)
        except DatabaseError as error:
            self._trouble("read", "what is missing is embedded here", error)
        return found

    def _known_or_claimed(self, keys: Sequence[bytes], claim: _Claim) -> dict[bytes, Vector]:
        """Return vectors, when all are known or this process has the claim."""
        if claim.is_held:
            return {}
        try:
            with ExitStack() as waiting:
                connection = waiting.enter_context(self._database.alone())
                with translated(self._database.name):
                    found = self._awaited(keys, claim, connection)
                if claim.is_held:
                    claim.held.push(waiting.pop_all())
                return found
        except DatabaseError as error:
            self._trouble("read", "what is missing is embedded here", error)
            return {}

    def _awaited(
        self, keys: Sequence[bytes], claim: _Claim, connection: SyncConnection
    ) -> dict[bytes, Vector]:
        # A lock of a transaction, which a pooler of connections hands on as well.
        connection.execute("begin")
        connection.execute("set local idle_in_transaction_session_timeout = 0")
        most, until = 0, time.monotonic() + _PATIENCE_SECONDS
        name = f"{self._database.tenant}\n{self._space}"
        while True:
            may_write, claim.is_held = connection.execute(_LOCK, [name]).fetchone() or (
                False,
                False,
            )
            found = self._known(keys)
            if len(found) > most:
                most, until = len(found), time.monotonic() + _PATIENCE_SECONDS
            # Who may not write makes nothing for others, and may be alone: it does not wait.
            is_over = claim.is_held or not may_write or time.monotonic() > until
            if is_over or self._is_closed or len(found) == len(set(keys)):
                return found
            time.sleep(_POLL_SECONDS)

    def _rests(self, done: _Done) -> bool:
        return time.monotonic() < self._resumes_at[done]

    def _trouble(self, done: _Done, instead: str, error: DatabaseError) -> None:
        self._resumes_at[done] = time.monotonic() + _REST_SECONDS
        cause = (done, type(error.__cause__))
        if cause not in self._warned:
            self._warned.add(cause)
            logger.warning("vectors cannot be %s (%s): %s", done, error, instead)


class _Claim:
    """A thread's right to make what is missing, once it has it."""

    def __init__(self, held: ExitStack) -> None:
        self.held = held
        self.thread = threading.get_ident()
        self.is_held = False


_GET = """
    select key, vector from toolrag.vectors
    where tenant = %s and space = %s and key = any(%s::bytea[])
"""
_PUT = """
    insert into toolrag.vectors (tenant, space, key, vector) values (%s, %s, %s, %s)
    on conflict do nothing
"""
_LOCK = """
    select may_write, case
        when may_write then pg_try_advisory_xact_lock(hashtextextended(%s, 0)) else false
    end
    from has_table_privilege('toolrag.vectors', 'insert') as may_write
"""
