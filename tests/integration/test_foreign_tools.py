"""Telling an agent's own tools from those that another middleware brought."""

import gc

import pytest
from fake_model import ScriptedModel
from fakes import make_tool
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, TodoListMiddleware

from langchain_toolrag import SelectionOptions, ToolRAGMiddleware

ONE = SelectionOptions(k=1)
ASKS = {"messages": [("user", "current weather in a city")]}


class Brings(AgentMiddleware):
    def __init__(self, *tools, name="Brings"):
        super().__init__()
        self.tools = list(tools)
        self._name = name

    @property
    def name(self):
        return self._name


class OfItsClass(AgentMiddleware):
    tools = [make_tool("of_the_class")]  # noqa: RUF012


class Ours(ToolRAGMiddleware):
    """A user's subclass."""


@pytest.fixture(autouse=True)
def _hashing_embeddings(monkeypatch, embeddings):
    monkeypatch.setattr(
        "langchain_toolrag.index.embedding.MiniLMEmbeddings", lambda *_, **__: embeddings
    )


def bound(ours, *others, tools):
    """What is bound for a request that needs one tool, others before and after ours."""
    model = ScriptedModel()
    create_agent(model, tools, middleware=[*others[:1], ours, *others[1:]]).invoke(ASKS)
    return model.bound[0]


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (Brings(make_tool("of_the_instance")), "of_the_instance"),
        (OfItsClass(), "of_the_class"),
        (TodoListMiddleware(), "write_todos"),
    ],
    ids=["instance", "class", "planner"],
)
@pytest.mark.parametrize("kind", [ToolRAGMiddleware, Ours], ids=["ours", "subclass"])
def test_what_another_middleware_brings_is_bound_and_never_searched(tools, other, name, kind):
    ours = kind(options=ONE)
    assert bound(ours, other, tools=tools) == [name, "get_weather"]
    assert len(ours.rag.catalogue) == len(tools)


def test_several_middlewares_before_and_after_ours_are_all_seen(tools):
    others = [Brings(make_tool(name), name=name) for name in ("first", "second", "third")]
    expected = ["first", "second", "third", "get_weather"]
    assert bound(ToolRAGMiddleware(options=ONE), *others, tools=tools) == expected


def test_a_middleware_that_nobody_keeps_is_remembered(tools):
    model, ours = ScriptedModel(), ToolRAGMiddleware(options=ONE)
    agent = create_agent(model, tools, middleware=[ours, Brings(make_tool("kept"))])
    gc.collect()
    agent.invoke(ASKS)
    assert model.bound == [["kept", "get_weather"]]


def test_a_tool_that_another_agents_middleware_holds_is_searched_here(tools):
    create_agent(ScriptedModel(), [], middleware=[Brings(*tools), ToolRAGMiddleware()])
    assert bound(ToolRAGMiddleware(options=ONE), tools=tools) == ["get_weather"]
