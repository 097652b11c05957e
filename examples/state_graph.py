"""A hand-built LangGraph graph with a tool selector in front of the model.

START -> tool_selector -> agent -> tools -> tool_selector; run it with
`python examples/state_graph.py`.
"""

from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import tools_condition
from stand_in import StandInModel
from tools import TOOLS

from langchain_toolrag import ToolRAGNode, ToolRAGState


def build() -> Any:
    """Return the compiled graph."""
    selector = ToolRAGNode(TOOLS)
    model = StandInModel()

    def agent(state: ToolRAGState) -> dict[str, Any]:
        bound = model.bind_tools(selector.tools_for(state))
        return {"messages": [bound.invoke(state["messages"])]}

    graph = StateGraph(ToolRAGState)
    graph.add_node("tool_selector", selector)
    graph.add_node("agent", agent)
    graph.add_node("tools", selector.tool_node())
    graph.add_edge(START, "tool_selector")
    graph.add_edge("tool_selector", "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "tool_selector")
    return graph.compile(checkpointer=InMemorySaver())


def main() -> None:
    """Ask twice; the second question makes sense only after the first."""
    graph = build()
    thread: Any = {"configurable": {"thread_id": "1"}}
    for question in ("whats the weather in durgapur?", "do it for kolkata too"):
        result = graph.invoke({"messages": [("user", question)]}, thread)
        print(f"you> {question}")
        print(f"     bound: {', '.join(result['selected_tools'])}")
        print(f"bot> {result['messages'][-1].text}")


if __name__ == "__main__":
    main()
