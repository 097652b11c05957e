"""The front ends an agent can have, one factory each, and the two ways to run it."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from fake_model import ScriptedModel
from langchain.agents import create_agent
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from search_agents import AGENTS, toolrag

from langchain_toolrag import (
    ToolRAG,
    ToolRAGMiddleware,
    ToolRAGNode,
    ToolRAGState,
    create_react_agent,
)
from langchain_toolrag.integrations.binding import bind_tools


def _node(model, tools, *, options=None, filter=None, context_schema=None, **compiled):
    selector = ToolRAGNode(tools, options=options, filter=filter)

    def agent(state):
        bound = bind_tools(model, selector.tools_for(state))
        return {"messages": [bound.invoke(state["messages"])]}

    async def aagent(state):
        bound = bind_tools(model, selector.tools_for(state))
        return {"messages": [await bound.ainvoke(state["messages"])]}

    graph = StateGraph(ToolRAGState, context_schema=context_schema)
    graph.add_node(selector)
    graph.add_node("agent", RunnableLambda(agent, afunc=aagent))
    graph.add_node("tools", ToolNode([tool for tool in selector.tools if callable_tool(tool)]))
    graph.add_edge(START, "tool_selector")
    graph.add_edge("tool_selector", "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "tool_selector")
    return graph.compile(**compiled)


def _react(version):
    def build(model, tools, *, options=None, filter=None, **given):
        selector = ToolRAGNode(options=options, filter=filter)
        return create_react_agent(model, tools, tool_selector=selector, version=version, **given)

    return build


def _middleware_over_the_agents_tools(model, tools, *, before=(), after=(), **given):
    ours = ToolRAGMiddleware(**_taken(given, "options", "filter"))
    return create_agent(model, tools, middleware=[*before, ours, *after], **given)


def _middleware_with_tools(model, tools, *, before=(), after=(), **given):
    ours = ToolRAGMiddleware(tools, **_taken(given, "options", "filter"))
    return create_agent(model, middleware=[*before, ours, *after], **given)


def _middleware_with_rag(model, tools, *, before=(), after=(), **given):
    rag = ToolRAG(tools, **_taken(given, "options"))
    ours = ToolRAGMiddleware(rag=rag, **_taken(given, "filter"))
    return create_agent(model, middleware=[*before, ours, *after], **given)


def _taken(given, *keys):
    return {key: given.pop(key) for key in keys if key in given}


FRONT_ENDS = {
    "node in a graph": _node,
    "react agent v1": _react("v1"),
    "react agent v2": _react("v2"),
    "middleware over the agent's tools": _middleware_over_the_agents_tools,
    "middleware with tools": _middleware_with_tools,
    "middleware with a ToolRAG": _middleware_with_rag,
}


def callable_tool(tool):
    return not isinstance(tool, dict)


@dataclass(frozen=True)
class FrontEnd:
    """Builds an agent: `front_end(model, tools, options=..., filter=..., checkpointer=...)`.

    Those with the middleware take others `before` and `after` it.
    """

    build: Callable

    def __call__(self, model, tools, **given):
        return self.build(model, tools, **given)


@dataclass(frozen=True)
class Runner:
    """Runs an agent the sync or the async way."""

    asynchronous: bool

    async def invoke(self, agent, input, config=None, **given):
        if self.asynchronous:
            return await agent.ainvoke(input, config, **given)
        return agent.invoke(input, config, **given)

    async def stream(self, agent, input, config=None, **given):
        if self.asynchronous:
            return [part async for part in agent.astream(input, config, **given)]
        return list(agent.stream(input, config, **given))

    async def ask(self, agent, text, config=None, **given):
        """Return the result of one user turn."""
        return await self.invoke(agent, {"messages": [("user", text)]}, config, **given)


@pytest.fixture(params=FRONT_ENDS)
def front_end(request, default_embeddings):
    return FrontEnd(FRONT_ENDS[request.param])


@pytest.fixture(params=[name for name in FRONT_ENDS if "agent" in name or "middleware" in name])
def whole_agent(request, default_embeddings):
    """The front ends that build the whole agent."""
    return FrontEnd(FRONT_ENDS[request.param])


@pytest.fixture(params=[name for name in FRONT_ENDS if "middleware" in name])
def with_middleware(request, default_embeddings):
    """The front ends that are an agent with our middleware."""
    return FrontEnd(FRONT_ENDS[request.param])


@pytest.fixture(params=[name for name in FRONT_ENDS if "react" in name])
def react(request, default_embeddings):
    """LangGraph's prebuilt agent, both versions."""
    return FrontEnd(FRONT_ENDS[request.param])


@pytest.fixture(params=["sync", "async"])
def run(request):
    return Runner(request.param == "async")


@pytest.fixture
def default_embeddings(monkeypatch, embeddings):
    """The embeddings that whoever names none gets: here not MiniLM but the stand-in."""
    monkeypatch.setattr(
        "langchain_toolrag.index.embedding.MiniLMEmbeddings", lambda *_, **__: embeddings
    )
    return embeddings


@pytest.fixture
def model():
    """A model that calls no tool."""
    return ScriptedModel()


@pytest.fixture
def thread():
    return {"configurable": {"thread_id": "1"}}


@pytest.fixture(scope="module")
def five_hundred_tools():
    """500 made-up tools, indexed; tests must not change it."""
    rag = toolrag()
    rag.index()
    return rag


@pytest.fixture(params=AGENTS)
def agent_of(request, five_hundred_tools):
    """Make an agent: `agent_of(model, search_tool=..., unknown_tool=..., checkpointer=...)`."""

    def make(model, rag=None, **given):
        return AGENTS[request.param](model, rag or five_hundred_tools, **given)

    return make
