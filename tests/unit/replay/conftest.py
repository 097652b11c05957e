import pytest
from fake_model import ScriptedModel, says
from fakes import NamedEmbeddings
from langgraph.checkpoint.memory import InMemorySaver
from search_agents import AGENTS, TWO, five_hundred, toolrag, uses

from langchain_toolrag import SelectionOptions
from langchain_toolrag.evaluation.contender import Contender
from langchain_toolrag.evaluation.evaluate import Model
from langchain_toolrag.replay.binders import binders
from langchain_toolrag.replay.moments import A, B

TOOLS = [tool for tool in five_hundred() if tool.name.endswith(("_badge", "_fleet"))]
TALK = {
    "please archive the badge": uses("archive_badge"),
    "now close the fleet": uses("close_fleet", start=10),
}


@pytest.fixture
def tools():
    """Fifty tools, on two servers."""
    return TOOLS


@pytest.fixture
def saver():
    return InMemorySaver()


@pytest.fixture
def talk():
    """Have a conversation of two turns with an agent of a kind; returns its model."""

    def have(kind, saver, thread="1", *, rag=None, requests=TALK, **given):
        script = [answer for calls in requests.values() for answer in (calls, says("ok"))]
        model = ScriptedModel(script=script)
        agent = AGENTS[kind](model, rag or toolrag(tools=TOOLS), checkpointer=saver, **given)
        for request in requests:
            agent.invoke({"messages": [("user", request)]}, {"configurable": {"thread_id": thread}})
        return model

    return have


@pytest.fixture
def options():
    """Options with the tools, `A` and `B`, over one stand-in for a model."""

    def make(*contenders, tools=TOOLS, model=None, **given):
        sides = dict(zip((A, B), contenders, strict=False))
        shared = Model(model or NamedEmbeddings())
        return binders(sides, tools, {each.name: shared for each in contenders}, **given)

    return make


@pytest.fixture
def two():
    """The options that the agents have."""
    return Contender("two", options=TWO)


@pytest.fixture
def six():
    return Contender("six", options=SelectionOptions(k=6))
