"""A DSN and a tenant in -> transactions that see this tenant's rows out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple, TypeAlias

import psycopg
from pgvector.psycopg import register_vector, register_vector_async
from psycopg import AsyncConnection, Connection, IsolationLevel
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from langchain_toolrag.fork import reset_after_fork
from langchain_toolrag.postgres.dsn import parameters_of, shown
from langchain_toolrag.postgres.faults import translated
from langchain_toolrag.postgres.records import storable

SyncConnection: TypeAlias = Connection[Any]
AwaitedConnection: TypeAlias = AsyncConnection[Any]
_SyncPool: TypeAlias = ConnectionPool[SyncConnection]
_AsyncPool: TypeAlias = AsyncConnectionPool[AwaitedConnection]
_AsyncPools: TypeAlias = weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, "_LoopsPool"]

DEFAULT_TENANT = "default"
"""Whose rows they are where nobody says whose."""

_LONGEST_TENANT = 200
_LONGEST_IDLE = 300.0  # Seconds; then a connection is given back to the server.
# What is read is of one moment; writers wait for each other, and then see what was written.
_ISOLATION = {True: IsolationLevel.REPEATABLE_READ, False: IsolationLevel.READ_COMMITTED}
# Whoever hangs in the middle of a change does not keep the others waiting for ever.
_BEGIN = """
    select set_config('toolrag.tenant', %s, true), set_config('lock_timeout', '60s', true),
        set_config('idle_in_transaction_session_timeout', '60s', true)
"""

# A pool and connections of the parent process: collected here, they would speak to its server.
_left_behind: list[object] = []


class Database:
    """One tenant's rows of a database, by transactions; safe under threads, event loops, forks.

    Connections are opened when they are needed, checked before they are handed out, and closed
    after five minutes without use.

    Args:
        dsn: How it is reached: `postgresql://user@host/name`, or `key=value` pairs.
        tenant: Whose rows; empty for `default`.
        pool_size: At most so many connections of this process, and of each event loop.
        timeout: How long to wait for a connection, in seconds.

    Attributes:
        tenant: Whose rows.
        name: The DSN without its password, for messages.
        timeout: How long to wait for a connection, in seconds.

    Raises:
        DatabaseError: If the DSN cannot be read.
        ValueError: If the tenant has more than 200 characters, or some that cannot be stored, or a
            number is not above 0.
    """

    def __init__(
        self, dsn: str, tenant: str = "", *, pool_size: int = 4, timeout: float = 5.0
    ) -> None:
        if pool_size < 1 or not timeout > 0:
            raise ValueError(
                f"pool_size is {pool_size} and timeout {timeout}; wanted at least 1 and above 0"
            )
        self.tenant = _checked(tenant or DEFAULT_TENANT)
        self.timeout = timeout
        self._parameters = parameters_of(dsn, timeout)
        self.name = shown(self._parameters)
        self._pool_size = pool_size
        self._pool: _SyncPool | None
        self._async_pools: _AsyncPools
        self._new_pools()
        reset_after_fork(self)

    def __repr__(self) -> str:
        return f"Database({self.name!r}, {self.tenant!r})"

    @contextmanager
    def read(self) -> Iterator[SyncConnection]:
        """Give a connection that reads one state of the database and writes nothing.

        Yields:
            The connection, in a transaction that ends with the block.

        Raises:
            DatabaseError: If it cannot be reached, or something asked of it fails.
        """
        with self._transaction(read_only=True) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[SyncConnection]:
        """Give a connection whose changes are kept if the block ends without an error.

        Yields:
            The connection, in a transaction that ends with the block.

        Raises:
            DatabaseError: If it cannot be reached, or something asked of it fails.
        """
        with self._transaction(read_only=False) as connection:
            yield connection

    @asynccontextmanager
    async def aread(self) -> AsyncIterator[AwaitedConnection]:
        """Do what `read` does, without blocking the event loop.

        Yields:
            The connection, in a transaction that ends with the block.

        Raises:
            DatabaseError: If it cannot be reached, or something asked of it fails.
        """
        async with self._atransaction(read_only=True) as connection:
            yield connection

    @asynccontextmanager
    async def awrite(self) -> AsyncIterator[AwaitedConnection]:
        """Do what `write` does, without blocking the event loop.

        Yields:
            The connection, in a transaction that ends with the block.

        Raises:
            DatabaseError: If it cannot be reached, or something asked of it fails.
        """
        async with self._atransaction(read_only=False) as connection:
            yield connection

    @contextmanager
    def alone(self) -> Iterator[SyncConnection]:
        """Give a connection outside the pool, for what takes long: a lock, or listening.

        Yields:
            The connection, which commits every statement; it is closed with the block.

        Raises:
            DatabaseError: If it cannot be reached, or something asked of it fails.
        """
        with translated(self.name):
            connection = Connection.connect(**self._parameters, autocommit=True)
            self._opened.add(connection)
            with contextlib.closing(connection):
                connection.execute("select set_config('toolrag.tenant', %s, false)", [self.tenant])
                yield connection

    def close(self) -> None:
        """Close what is open; the database can be used again, which opens anew."""
        with self._opening:
            pool, self._pool = self._pool, None
            others, self._async_pools = dict(self._async_pools), weakref.WeakKeyDictionary()
        if pool is not None:
            pool.close()
        for loop, own in others.items():
            if loop.is_running():
                loop.call_soon_threadsafe(own.keeper.cancel)

    async def aclose(self) -> None:
        """Close what is open, and wait for the connections of this event loop."""
        own = self._async_pools.pop(asyncio.get_running_loop(), None)
        if own is not None:
            own.keeper.cancel()
            await own.pool.close()
        self.close()

    def after_fork(self) -> None:
        """Leave the parent's connections to the parent: both would speak on one line."""
        for connection in list(self._opened):
            # A child that lives on would keep the parent's locks, should the parent be killed.
            with contextlib.suppress(OSError, psycopg.Error):
                os.close(connection.fileno())
        _left_behind.append((self._pool, dict(self._async_pools), list(self._opened)))
        self._new_pools()

    def _new_pools(self) -> None:
        self._opening = threading.Lock()
        self._pool = None
        self._async_pools = weakref.WeakKeyDictionary()
        self._opened: weakref.WeakSet[SyncConnection | AwaitedConnection] = weakref.WeakSet()
        # Whether the server may be gone. A pool only says that it waited; connecting says why.
        self._is_doubtful = True

    @contextmanager
    def _transaction(self, *, read_only: bool) -> Iterator[SyncConnection]:
        with translated(self.name):
            pool, connection = self._begun(read_only)
            try:
                with connection:  # Commits or rolls back; closing it is the pool's business.
                    yield connection
            finally:
                pool.putconn(connection)

    @asynccontextmanager
    async def _atransaction(self, *, read_only: bool) -> AsyncIterator[AwaitedConnection]:
        with translated(self.name):
            pool, connection = await self._abegun(read_only)
            try:
                async with connection:
                    yield connection
            finally:
                await pool.putconn(connection)

    def _begun(self, read_only: bool) -> tuple[_SyncPool, SyncConnection]:
        """Return a connection that answers, in a transaction of the tenant, and its pool."""
        cut = 0
        while True:
            if self._is_doubtful:
                self._try_server()
            pool = self._own_pool()
            connection = self._taken(pool)
            try:
                if connection not in self._opened:
                    register_vector(connection)
                    connection.rollback()
                    self._opened.add(connection)
                connection.read_only = read_only
                connection.isolation_level = _ISOLATION[read_only]
                connection.execute(_BEGIN, [self.tenant])
            except BaseException as error:
                pool.putconn(connection)
                cut += 1
                if cut > self._pool_size or not _is_cut(connection, error):
                    raise
                self._is_doubtful = True
            else:
                return pool, connection

    async def _abegun(self, read_only: bool) -> tuple[_AsyncPool, AwaitedConnection]:
        """Do what `_begun` does, waiting."""
        cut = 0
        while True:
            if self._is_doubtful:
                await self._atry_server()
            pool = await self._loops_pool()
            connection = await self._ataken(pool)
            try:
                if connection not in self._opened:
                    await register_vector_async(connection)
                    await connection.rollback()
                    self._opened.add(connection)
                await connection.set_read_only(read_only)
                await connection.set_isolation_level(_ISOLATION[read_only])
                await connection.execute(_BEGIN, [self.tenant])
            except BaseException as error:
                await pool.putconn(connection)
                cut += 1
                if cut > self._pool_size or not _is_cut(connection, error):
                    raise
                self._is_doubtful = True
            else:
                return pool, connection

    def _taken(self, pool: _SyncPool) -> SyncConnection:
        try:
            return pool.getconn()
        except PoolTimeout:
            self._is_doubtful = True
            self._try_server()
            raise

    async def _ataken(self, pool: _AsyncPool) -> AwaitedConnection:
        try:
            return await pool.getconn()
        except PoolTimeout:
            self._is_doubtful = True
            await self._atry_server()
            raise

    def _try_server(self) -> None:
        """Raise what keeps one from connecting, which a pool does not tell."""
        Connection.connect(**self._parameters).close()
        self._is_doubtful = False

    async def _atry_server(self) -> None:
        """Do what `_try_server` does, waiting."""
        await (await AsyncConnection.connect(**self._parameters)).close()
        self._is_doubtful = False

    def _own_pool(self) -> _SyncPool:
        with self._opening:
            if self._pool is None:
                self._pool = ConnectionPool(**self._of_pool(), connection_class=Connection)
                self._pool.open()
            return self._pool

    async def _loops_pool(self) -> _AsyncPool:
        """Return the pool of the running event loop: connections cannot be moved to another."""
        loop = asyncio.get_running_loop()
        own = self._async_pools.get(loop)
        if own is None:
            pool = AsyncConnectionPool(**self._of_pool(), connection_class=AsyncConnection)
            own = _LoopsPool(pool, loop.create_task(_close_when_cancelled(pool)))
            self._async_pools[loop] = own  # Before waiting: another task may come meanwhile.
            await pool.open()
        return own.pool

    def _of_pool(self) -> dict[str, Any]:
        return {
            "kwargs": self._parameters,
            "min_size": 0,
            "max_size": self._pool_size,
            "timeout": self.timeout,
            "reconnect_timeout": self.timeout,
            "max_idle": _LONGEST_IDLE,
            "open": False,
        }


class _LoopsPool(NamedTuple):
    """An event loop's pool, and the task that closes it when the loop ends."""

    pool: _AsyncPool
    keeper: asyncio.Task[None]


async def _close_when_cancelled(pool: _AsyncPool) -> None:
    """Close a pool at the end of its event loop, which cancels all tasks and waits for them.

    Before Python 3.12 the pool's own may miss that, and `asyncio.run` would not return.
    """
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        await pool.close()
        raise


def _is_cut(connection: SyncConnection | AwaitedConnection, error: BaseException) -> bool:
    """Whether an error is that the server left while nobody used the connection."""
    return isinstance(error, psycopg.OperationalError) and connection.broken


def _checked(tenant: str) -> str:
    if storable(tenant) != tenant or len(tenant) > _LONGEST_TENANT:
        raise ValueError(
            f"the tenant is {tenant!r:.80}; wanted at most {_LONGEST_TENANT} characters, no NUL "
            "and no half of a surrogate pair"
        )
    return tenant
