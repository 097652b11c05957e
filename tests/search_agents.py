"""Agents over 500 tools whose model can search for them, one factory a front end.

Run as a script it is another process that goes on with stored conversations, one with every agent
in every mode, and prints what was bound, answered and remembered:

    python tests/search_agents.py DATABASE REQUEST [NAME...]

The model calls the tools of the given names; `search_tools:words` is a search.
"""

import functools
import json
import sys

from fake_model import ScriptedModel, call, says
from fakes import HashingEmbeddings, make_tool
from langchain.agents import create_agent
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import tools_condition
from pydantic import BaseModel

from langchain_toolrag import (
    SelectionOptions,
    ToolRAG,
    ToolRAGMiddleware,
    ToolRAGNode,
    ToolRAGState,
    create_react_agent,
)
from langchain_toolrag.integrations.binding import bind_tools

VERBS = tuple(
    word
    for line in (
        "archive assign cancel close copy count delete export fetch find import invite list",
        "lock merge move open print rename restore send sort tag undo update",
    )
    for word in line.split()
)
THINGS = tuple(
    word
    for line in (
        "badge bill cargo claim coupon deed fence fleet grant invoice",
        "ledger lease parcel permit planet receipt route ticket vessel voucher",
    )
    for word in line.split()
)
TWO = SelectionOptions(k=2)


class Arguments(BaseModel):
    """What each of the tools takes; LangGraph makes a class of every schema that is a dict."""

    which: str


@functools.cache
def five_hundred():
    """One tool for each verb and thing, on twenty servers."""
    return tuple(
        make_tool(
            f"{verb}_{thing}", f"Does {verb} for a {thing}.", server=f"{thing}s_server"
        ).model_copy(update={"args_schema": Arguments})
        for thing in THINGS
        for verb in VERBS
    )


def toolrag(options=TWO, tools=None):
    given = five_hundred() if tools is None else tools
    return ToolRAG(given, embeddings=HashingEmbeddings(), options=options)


def answers(result):
    """What tools answered."""
    return [message for message in result["messages"] if message.type == "tool"]


def _middleware(model, rag, *, middleware=(), search_prompt=False, **given):
    compiled = {key: given.pop(key) for key in _COMPILED if key in given}
    ours = ToolRAGMiddleware(rag=rag, search_prompt=search_prompt, **given)
    return create_agent(model, middleware=[ours, *middleware], **compiled)


def _node(model, rag, *, context_schema=None, checkpointer=None, **given):
    selector = ToolRAGNode(rag=rag, **given)

    def agent(state):
        bound = bind_tools(model, selector.tools_for(state))
        return {"messages": [bound.invoke(state["messages"])]}

    async def aagent(state):
        bound = bind_tools(model, selector.tools_for(state))
        return {"messages": [await bound.ainvoke(state["messages"])]}

    graph = StateGraph(ToolRAGState, context_schema=context_schema)
    graph.add_node(selector)
    graph.add_node("agent", RunnableLambda(agent, afunc=aagent))
    graph.add_node("tools", selector.tool_node())
    graph.add_edge(START, "tool_selector")
    graph.add_edge("tool_selector", "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "tool_selector")
    return graph.compile(checkpointer=checkpointer)


def _react(model, rag, **given):
    compiled = {key: given.pop(key) for key in _COMPILED if key in given}
    selector = ToolRAGNode(rag=rag, **given)
    return create_react_agent(model, rag.tools, tool_selector=selector, **compiled)


_COMPILED = ("checkpointer", "context_schema", "system_prompt")
AGENTS = {"middleware": _middleware, "node": _node, "react agent": _react}


def memory_of(agent, thread):
    """What the agent's selector remembers of a conversation."""
    values = agent.get_state(thread).values
    (memory,) = (values.get("toolrag") or values.get("toolrag_state")).values()
    return memory


def searches(*queries, start=0):
    """An answer of the model that searches for each query, in parallel."""
    calls = [call("search_tools", f"s{start + n}", query=query) for n, query in enumerate(queries)]
    return says("", *calls)


def uses(*names, start=0):
    """An answer of the model that calls each tool."""
    return says("", *(call(name, f"u{start + n}", which="7") for n, name in enumerate(names)))


def _go_on(agent_name, mode, saver, request, names):
    script = [
        searches(name.partition(":")[2], start=10 * n) if ":" in name else uses(name, start=10 * n)
        for n, name in enumerate(names)
    ]
    model = ScriptedModel(script=script)
    thread = {"configurable": {"thread_id": f"{agent_name} {mode}"}}
    agent = AGENTS[agent_name](model, toolrag(), search_tool=mode, checkpointer=saver)
    result = agent.invoke({"messages": [("user", request)]}, thread)
    answers = [message.content for message in result["messages"] if message.type == "tool"]
    return {"bound": model.bound, "answers": answers, "memory": memory_of(agent, thread)}


def _main(database, request, *names):
    from langgraph.checkpoint.sqlite import SqliteSaver  # Not every test environment has it.

    with SqliteSaver.from_conn_string(database) as saver:
        stored = {
            f"{agent_name} {mode}": _go_on(agent_name, mode, saver, request, names)
            for agent_name in AGENTS
            for mode in ("auto", "deferred")
        }
    json.dump(stored, sys.stdout)


if __name__ == "__main__":
    _main(*sys.argv[1:])
