"""A server process, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib

import uvicorn

from langchain_toolrag.server.app import create_app
from langchain_toolrag.server.services import Services


def run_http(services: Services) -> None:
    """Answer REST and MCP over HTTP until a signal ends the process.

    Requests that came before a SIGTERM or SIGINT are answered, as long as that takes no more than
    `drain_seconds`.

    Args:
        services: What answers.
    """
    options = services.options
    config = uvicorn.Config(
        create_app(services),
        host=options.host,
        port=options.port,
        timeout_graceful_shutdown=options.drain_seconds,
        ws="none",
        lifespan="on",  # Else a start that fails would go on without what answers.
        access_log=False,  # Addresses can hold what callers would not have logged.
        server_header=False,
    )
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run()


def run_stdio(services: Services) -> None:
    """Answer MCP over standard input and output until the input or a signal ends it.

    Args:
        services: What answers.
    """
    from langchain_toolrag.server.stdio import serve_stdio  # The SDK: only if needed.

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve_stdio(services))
