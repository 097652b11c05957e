"""A terminal chatbot with 161 tools, of which each step sees a few.

python examples/chatbot.py --demo                      a scripted conversation, no key needed
python examples/chatbot.py                             talk to the stand-in, no key needed
python examples/chatbot.py --model openai:gpt-5-mini   talk to a real model
"""

import time
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from terminal import chat_model, options, said
from tools import TOOLS

from langchain_toolrag import Selection, ToolRAG, ToolRAGNode, create_react_agent

DEMO = (
    "whats the weather in durgapur?",
    "do it for kolkata too",
    "list calendar",
    "skip this song",
    "get_exchange_rate from USD to INR",
    "whats the feel in pune? warm or cold",
    "turn on the light in the kitchen",
)
THREAD: Any = {"configurable": {"thread_id": "chat"}}


def main() -> None:
    """Chat until the input ends."""
    arguments = options(__doc__)
    model = chat_model(arguments.model)
    rag = ToolRAG(TOOLS)
    start = time.perf_counter()
    rag.index()
    print(f"{len(TOOLS)} tools indexed in {time.perf_counter() - start:.1f} s\n")
    agent = create_react_agent(
        model, TOOLS, tool_selector=ToolRAGNode(rag=rag), checkpointer=InMemorySaver()
    )
    for text in said(DEMO if arguments.demo else None):
        _turn(agent, rag, text)


def _turn(agent: Any, rag: ToolRAG, text: str) -> None:
    """Show what the turn will bind and why, then let the agent take it."""
    state = agent.get_state(THREAD).values
    messages = [*state.get("messages", ()), HumanMessage(text)]
    start = time.perf_counter()
    memory = state.get("toolrag_state", {}).get("tool_selector")
    selection = rag.select(messages, previous=memory)
    _show(selection, (time.perf_counter() - start) * 1000)
    result = agent.invoke({"messages": [HumanMessage(text)]}, THREAD)
    for message in result["messages"][len(messages) :]:
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                print(f"     calls {call['name']}({call['args']})")
    print(f"bot> {result['messages'][-1].text}\n")


def _show(selection: Selection, milliseconds: float) -> None:
    saved = 1 - selection.tokens / selection.catalogue_tokens
    print(
        f"     {len(selection.names)} tools bound, {selection.tokens:,} of "
        f"{selection.catalogue_tokens:,} tokens ({saved:.0%} saved), {milliseconds:.0f} ms"
    )
    by_reason: dict[str, list[str]] = {}
    for name, reason in selection.reasons.items():
        by_reason.setdefault(reason, []).append(name)
    for why, names in by_reason.items():
        print(f"       {why:8} {', '.join(names)}")


if __name__ == "__main__":
    main()
