"""A chatbot over three MCP servers, each a process of its own, spoken to over stdio.

python examples/mcp_chatbot.py --demo                      a scripted conversation
python examples/mcp_chatbot.py --model openai:gpt-5-mini   talk to a real model
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from langchain_mcp_adapters.client import MultiServerMCPClient
from langgraph.checkpoint.memory import InMemorySaver
from terminal import chat_model, options, said

from langchain_toolrag import create_react_agent
from langchain_toolrag.catalogue.sources.mcp.client import list_mcp_tools

SERVERS = Path(__file__).parent / "servers"
DEMO = ("whats the weather in durgapur?", "do it for kolkata too", "list calendar events")
THREAD: Any = {"configurable": {"thread_id": "chat"}}


def client() -> MultiServerMCPClient:
    """Return a client of the servers in `examples/servers`."""
    connections: dict[str, Any] = {
        name: {
            "transport": "stdio",
            "command": sys.executable,
            "args": [str(SERVERS / f"{name}_server.py")],
        }
        for name in ("weather", "calendar", "music")
    }
    return MultiServerMCPClient(connections)


async def main() -> None:
    """Chat until the input ends."""
    arguments = options(__doc__)
    model = chat_model(arguments.model)
    servers = client()
    listed = await list_mcp_tools(servers)
    print(f"{len(listed.tools)} tools on {len(servers.connections)} servers\n")
    agent = create_react_agent(model, listed.tools, checkpointer=InMemorySaver())
    for text in said(DEMO if arguments.demo else None):
        result = await agent.ainvoke({"messages": [("user", text)]}, THREAD)
        print(f"     bound: {', '.join(result['selected_tools'])}")
        print(f"bot> {result['messages'][-1].text}\n")


if __name__ == "__main__":
    asyncio.run(main())
