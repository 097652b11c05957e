"""Telling an agent's own tools from those that another middleware brought."""

import pytest
from fakes import make_tool
from langchain.agents.middleware import AgentMiddleware, TodoListMiddleware

from langchain_toolrag import ToolRAGMiddleware
from langchain_toolrag.integrations.foreign_tools import brought_by_others


class Brings(AgentMiddleware):
    def __init__(self, *tools):
        super().__init__()
        self.tools = list(tools)


class OfItsClass(AgentMiddleware):
    tools = [make_tool("of_the_class")]  # noqa: RUF012


class WithoutTools(AgentMiddleware):
    tools = None


class Ours(ToolRAGMiddleware):
    """A user's subclass."""


def foreign(tools):
    held = brought_by_others(tools, ToolRAGMiddleware)
    return [tool.name for tool in tools if id(tool) in held]


def test_a_tool_that_an_instance_holds_is_found(tools):
    other = Brings(tools[3])

    assert foreign(tools) == ["create_calendar_event"]
    assert other.tools


def test_a_tool_that_a_class_holds_is_found(tools):
    other = OfItsClass()

    assert foreign([*tools, *other.tools]) == ["of_the_class"]


def test_the_planners_tool_is_found(tools):
    planner = TodoListMiddleware()

    assert foreign([*tools, *planner.tools]) == ["write_todos"]


def test_tools_of_several_middlewares_are_found(tools):
    others = [Brings(tools[0], tools[1]), Brings(tools[2])]

    assert foreign(tools[:4]) == [tool.name for tool in tools[:3]]
    assert len(others) == 2


@pytest.mark.parametrize("kind", [ToolRAGMiddleware, Ours], ids=["itself", "a subclass"])
def test_what_a_selecting_middleware_brings_is_not_foreign(rag, kind):
    ours = kind(rag=rag)

    assert foreign(list(ours.tools)) == []


def test_a_tool_of_the_same_name_is_not_taken_for_it(tools):
    other = Brings(make_tool("get_weather", tools[0].description))

    assert foreign(tools) == []
    assert other.tools


def test_a_middleware_without_tools_is_no_matter(tools):
    others = [WithoutTools(), Brings()]

    assert foreign(tools) == []
    assert len(others) == 2


def test_only_what_was_asked_about_is_returned(tools):
    other = Brings(*tools)

    assert brought_by_others(tools[:1], ToolRAGMiddleware) == {id(tools[0])}
    assert brought_by_others([], ToolRAGMiddleware) == set()
    assert other.tools


def test_objects_that_pretend_to_be_something_else_are_not_touched(tools):
    class Proxy:
        @property
        def __class__(self):
            raise RuntimeError("not inside a request")

        def __getattr__(self, name):
            raise RuntimeError("not inside a request")

    proxies = [Proxy() for _ in range(3)]

    assert foreign(tools) == []
    assert len(proxies) == 3
