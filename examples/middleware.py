"""Tool selection in LangChain's `create_agent`, with a filter made from the caller's rights.

Run it with `python examples/middleware.py`.
"""

from dataclasses import dataclass
from typing import Any

from langchain.agents import create_agent
from stand_in import StandInModel
from tools import TOOLS

from langchain_toolrag import ToolRAGMiddleware
from langchain_toolrag.types import ToolFilter


@dataclass
class Caller:
    """Who is asking."""

    servers: frozenset[str]


def permitted(runtime: Any) -> ToolFilter:
    """Return a filter for the servers that the caller may use."""
    return ToolFilter(servers=runtime.context.servers)


def build() -> Any:
    """Return the agent."""
    return create_agent(
        StandInModel(),
        TOOLS,
        middleware=[ToolRAGMiddleware(filter=permitted)],
        context_schema=Caller,
    )


def main() -> None:
    """Ask the same of one who may use the bank and of one who may not."""
    agent = build()
    question = "what is the balance of my account?"
    for servers in (frozenset({"bank", "weather"}), frozenset({"weather"})):
        result = agent.invoke({"messages": [("user", question)]}, context=Caller(servers))
        print(f"{', '.join(sorted(servers))}> {question}")
        print(f"bot> {result['messages'][-1].text}")


if __name__ == "__main__":
    main()
