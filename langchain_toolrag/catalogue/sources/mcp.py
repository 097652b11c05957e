"""MCP servers in -> their tools, each with its server's name, out."""

from __future__ import annotations

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
    """List the tools of every server a client knows; one that fails leaves the others.

    langchain-mcp-adapters does not record which server a tool is of. The name ranks well, so it
    is put into `metadata["server"]`, of tools made for this call.

    Args:
        client: The client.

    Returns:
        The tools, server by server, and the failures.
    """
    tools: list[BaseTool] = []
    failed: dict[str, str] = {}
    for server in client.connections:
        try:
            listed = await client.get_tools(server_name=server)
        # A server may fail in every way a subprocess or a network can.
        except Exception as error:
            failed[server] = f"{type(error).__name__}: {error}"
            logger.warning("the MCP server %r is left out: %s", server, failed[server])
            continue
        for tool in listed:
            tool.metadata = {**(tool.metadata or {}), "server": server}
        tools += listed
    return McpTools(tools, failed)
