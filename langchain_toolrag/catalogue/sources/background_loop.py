"""Coroutines in -> their results, from an event loop on a thread of its own, out."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from langchain_toolrag.fork import reset_after_fork

ResultT = TypeVar("ResultT")

_JOIN_SECONDS = 15  # A subprocess that ignores the end of its input is killed after four.


class BackgroundLoop:
    """An event loop for what outlives the loops of its callers, such as sessions.

    The thread is started by the first coroutine and does not keep the process alive. In a forked
    child there is a new one.

    Args:
        name: The thread's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.after_fork()
        reset_after_fork(self)

    def submit(self, coroutine: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        """Start a coroutine.

        Args:
            coroutine: What to run.

        Returns:
            Its result; cancelling that cancels the coroutine.
        """
        with self._turn:  # A loop that is being stopped would never begin it.
            return asyncio.run_coroutine_threadsafe(coroutine, self._running())

    def wait(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine and block until it is done; not to be called on the loop itself."""
        return self.submit(coroutine).result()

    async def run(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine without blocking the caller's own event loop."""
        return await asyncio.wrap_future(self.submit(coroutine))

    def close(self) -> None:
        """Cancel what is running and end the thread; a later coroutine starts another."""
        with self._turn:
            loop, thread = self._loop, self._thread
            self._loop, self._thread = None, None
            if loop is None or thread is None:
                return
            loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(_JOIN_SECONDS)

    def after_fork(self) -> None:
        """Forget the loop, whose thread is the parent process's."""
        self._turn = threading.Lock()
        self._loop = None
        self._thread = None

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_run, args=[self._loop], name=self._name, daemon=True
            )
            self._thread.start()
        return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped, then let its tasks clean up after themselves."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_cancel_all())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*others, return_exceptions=True)
