"""MCP servers in -> their tools, each with its server's name, out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_core.tools import BaseTool

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
    servers = list(client.connections)
    listings = [client.get_tools(server_name=server) for server in servers]
    # A server may fail in every way a subprocess or a network can.
    answers = await asyncio.gather(*listings, return_exceptions=True)
    tools: list[BaseTool] = []
    failed: dict[str, str] = {}
    for server, answer in zip(servers, answers, strict=True):
        if isinstance(answer, list):
            tools += [of_server(tool, server) for tool in answer]
        elif isinstance(answer, Exception):
            failed[server] = f"{type(answer).__name__}: {answer}"
            logger.warning("the MCP server %r is left out: %s", server, failed[server])
        else:  # Cancelled.
            raise answer
    return McpTools(tools, failed)


def of_server(tool: BaseTool, server: str) -> BaseTool:
    """Note whose a tool is, which langchain-mcp-adapters does not, and return the same tool."""
    tool.metadata = {**(tool.metadata or {}), "server": server}
    return tool
