"""A request to an embeddings endpoint in -> its answer, or why there is none, out."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, Mapping
from typing import Any, TypeAlias

import httpx

from langchain_toolrag.fork import reset_after_fork

Outcome: TypeAlias = httpx.Response | httpx.RequestError
"""An answer that was read to its end, or what kept it from coming."""


class EndpointClient:
    """Keeps connections to one address open; safe under threads, event loops and forks.

    Redirects are not followed: what is sent, a key included, goes to this address alone.

    Args:
        url: The address that is posted to.
        headers: What every request carries.
        timeout: How many seconds the server may be silent.
    """

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        self._url = url
        # Whoever waits for a connection waits for others, each of whom has a timeout.
        self._timeout = httpx.Timeout(timeout, pool=None)
        self._headers = dict(headers)
        self._client: httpx.Client | None = None
        self._of_loops: dict[asyncio.AbstractEventLoop, _Lent] = {}
        self._lock = threading.Lock()
        reset_after_fork(self)

    def post(self, body: Mapping[str, Any]) -> Outcome:
        """Send JSON and wait for the answer."""
        try:
            return self._opened().post(self._url, json=body)
        except httpx.RequestError as error:
            return error

    async def apost(self, body: Mapping[str, Any]) -> Outcome:
        """Send JSON and wait for the answer, without blocking the event loop."""
        client = await self._aopened()
        try:
            return await client.post(self._url, json=body)
        except httpx.RequestError as error:
            return error

    def after_fork(self) -> None:
        """Leave the parent its connections: two processes on one would read each other's answers.

        Those of event loops stay as they are: a child cannot run the loops they belong to.
        """
        self._lock = threading.Lock()
        if self._client is not None:
            self._closing.detach()
            self._client = None

    def _opened(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                self._client = httpx.Client(headers=self._headers, timeout=self._timeout)
                self._closing = weakref.finalize(self, self._client.close)
            return self._client

    async def _aopened(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        known = self._of_loops.get(loop)
        if known is not None:
            return known[0]
        lending = _lend(httpx.AsyncClient(headers=self._headers, timeout=self._timeout))
        client = await anext(lending)  # Gives way to no other task, which would open one too.
        with self._lock:
            alive = {each: lent for each, lent in self._of_loops.items() if not each.is_closed()}
            self._of_loops = {**alive, loop: (client, lending)}
        return client


_Lent: TypeAlias = tuple[httpx.AsyncClient, AsyncGenerator[httpx.AsyncClient, None]]


async def _lend(client: httpx.AsyncClient) -> AsyncGenerator[httpx.AsyncClient, None]:
    """Yield the client, and close it with the event loop, which ends its generators at last."""
    async with client:
        yield client
