"""A chatbot over three MCP servers, each a process of its own, spoken to over stdio.

python examples/mcp_chatbot.py --demo                      a scripted conversation
python examples/mcp_chatbot.py --model openai:gpt-5-mini   talk to a real model
"""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

from langchain.chat_models import init_chat_model
from langchain_mcp_adapters.client import MultiServerMCPClient
from langgraph.checkpoint.memory import InMemorySaver
from stand_in import NOTICE, StandInModel

from langchain_toolrag import create_react_agent
from langchain_toolrag.catalogue.sources.mcp import list_mcp_tools

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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", help="provider:name, as init_chat_model takes it")
    parser.add_argument("--demo", action="store_true", help="play a scripted conversation")
    arguments = parser.parse_args()
    model = init_chat_model(arguments.model) if arguments.model else StandInModel()
    if not arguments.model:
        print(f"{NOTICE} Answers come from fixed rules; pass --model for a real one.\n")
    listed = await list_mcp_tools(client())
    print(f"{len(listed.tools)} tools on {len(list(SERVERS.glob('*_server.py')))} servers\n")
    agent = create_react_agent(model, listed.tools, checkpointer=InMemorySaver())
    for text in DEMO if arguments.demo else iter(lambda: input("you> "), ""):
        result = await agent.ainvoke({"messages": [("user", text)]}, THREAD)
        print(f"you> {text}" if arguments.demo else "", end="\n" if arguments.demo else "")
        print(f"     bound: {', '.join(result['selected_tools'])}")
        print(f"bot> {result['messages'][-1].text}\n")


if __name__ == "__main__":
    asyncio.run(main())
