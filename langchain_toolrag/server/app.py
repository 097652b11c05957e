"""The Starlette application: REST, MCP over HTTP, and what stands in front of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from langchain_toolrag.server.answers import http_failure
from langchain_toolrag.server.inspector import inspector_routes
from langchain_toolrag.server.rest import rest_routes
from langchain_toolrag.server.security import Guard
from langchain_toolrag.server.services import Services

if TYPE_CHECKING:
    from langchain_toolrag.server.mcp_endpoint import MCPEndpoint


def create_app(services: Services) -> Starlette:
    """Return the application of a server.

    Args:
        services: What answers; runs as long as the application does.

    Returns:
        An ASGI application.
    """
    mcp = _LateMCP(services)
    routes: list[BaseRoute] = [
        *rest_routes(services),
        *inspector_routes(services),
        Route("/mcp", mcp, methods=["POST"]),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with services.running(), mcp.running():
            yield

    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, options=services.options)],
        exception_handlers={HTTPException: http_failure},
        lifespan=lifespan,
    )


class _LateMCP:
    """The MCP endpoint, imported beside the first requests: the SDK takes a third of a second."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (await asyncio.shield(self._ready))(scope, receive, send)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._ready: asyncio.Future[MCPEndpoint] = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(self._run())
        try:
            yield
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    async def _run(self) -> None:
        try:
            endpoint = await asyncio.to_thread(_endpoint, self._services)
        except Exception as error:  # Else its requests would wait for ever.
            self._ready.set_exception(error)
            return
        async with endpoint.running():
            self._ready.set_result(endpoint)
            await asyncio.Event().wait()


def _endpoint(services: Services) -> MCPEndpoint:
    from langchain_toolrag.server.mcp_endpoint import MCPEndpoint

    return MCPEndpoint(services)
