"""MCP over standard input and output, until the input ends or a signal comes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import anyio
from mcp.server.stdio import stdio_server

from langchain_toolrag.server.mcp_endpoint import mcp_server
from langchain_toolrag.server.services import Services

_BLOCK = 65_536


async def serve_stdio(services: Services) -> None:
    """Answer MCP over standard input and output until the input ends.

    SIGINT and SIGTERM end it too, once what is open has been closed. What tools and their
    subprocesses print goes to the error output: it is none of the protocol.

    Args:
        services: What answers.
    """
    server = mcp_server(services, session=uuid.uuid4().hex)  # One process, one session.
    with _ended_by_signals(), os.fdopen(os.dup(1), "w", encoding="utf-8") as written:
        os.dup2(2, 1)
        read = cast("Any", _lines(0))  # All that the SDK does with a file is to go through it.
        async with (
            services.running(),
            stdio_server(read, anyio.wrap_file(written)) as (incoming, outgoing),
        ):
            await server.run(incoming, outgoing, server.create_initialization_options())


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Have signals end the task that this is open in, without an error."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    received: list[int] = []

    def end(number: int) -> None:
        received.append(number)
        if task is not None:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # As on Windows.
            loop.add_signal_handler(number, end, number)
    try:
        yield
    except asyncio.CancelledError:
        if not received:
            raise


async def _lines(descriptor: int) -> AsyncIterator[str]:
    """Yield the lines of a file.

    They are read in a thread that the end of the process does not wait for, which it would of
    anyio's and Python's own while no line comes.
    """
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def put(line: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # The loop has ended: nobody asks any more.
            loop.call_soon_threadsafe(lines.put_nowait, line)

    def read() -> None:
        rest = b""
        while block := os.read(descriptor, _BLOCK):
            *whole, rest = (rest + block).split(b"\n")
            for line in whole:
                put(line.decode("utf-8", "replace"))
        put(rest.decode("utf-8", "replace"))
        put(None)

    threading.Thread(target=read, name="toolrag-stdin", daemon=True).start()
    while (line := await lines.get()) is not None:
        if line.strip():
            yield line
