"""MCP servers in -> their tools, each with its server's name, out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_core.tools import BaseTool

from langchain_toolrag.catalogue.sources.mcp.sessions import problem_of
from langchain_toolrag.errors import SourceError

if TYPE_CHECKING:
    from langchain_mcp_adapters.client import MultiServerMCPClient

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class McpTools:
    """What was listed.

    Attributes:
        tools: The tools of the servers that answered.
        failed: Why the others did not, by server.
    """

    tools: list[BaseTool]
    failed: Mapping[str, str]


async def list_mcp_tools(client: MultiServerMCPClient) -> McpTools:
    """List the tools of every server a client knows, all at once; one that fails leaves the others.

    langchain-mcp-adapters does not record which server a tool is of. The name ranks well, so it
    is put into `metadata["server"]`, of tools made for this call.

    Args:
        client: The client.

    Returns:
        The tools, server by server, and the failures.
    """

    async def list_one(server: str) -> list[BaseTool]:
        return [of_server(tool, server) for tool in await client.get_tools(server_name=server)]

    return await list_each(list(client.connections), list_one)


async def list_each(
    servers: Sequence[str], list_one: Callable[[str], Awaitable[list[BaseTool]]]
) -> McpTools:
    """List servers all at once; one that fails leaves the others.

    Args:
        servers: Their names.
        list_one: Lists one.

    Returns:
        The tools, server by server, and the failures, of which each is logged.
    """
    # A server may fail in every way a subprocess or a network can.
    answers = await asyncio.gather(*map(list_one, servers), return_exceptions=True)
    tools: list[BaseTool] = []
    failed: dict[str, str] = {}
    for server, answer in zip(servers, answers, strict=True):
        if isinstance(answer, list):
            tools += answer
        elif isinstance(answer, Exception):
            failed[server] = failure_of(server, answer)
            logger.warning("the MCP server %s", failed[server])
        else:  # Cancelled.
            raise answer
    return McpTools(tools, failed)


def failure_of(server: str, error: Exception) -> str:
    """Return what a server failed with, its name in front."""
    return str(error) if isinstance(error, SourceError) else f"{server}: {problem_of(error)}"


def of_server(tool: BaseTool, server: str) -> BaseTool:
    """Note whose a tool is, which langchain-mcp-adapters does not, and return the same tool."""
    tool.metadata = {**(tool.metadata or {}), "server": server}
    return tool
