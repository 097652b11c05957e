"""The agent that is being made in -> the tools its other middlewares bring out.

`create_agent` mixes the tools of all middlewares with the agent's own and keeps no record of
which is whose. A planner's `write_todos` must stay bound whatever the user asks for, so it
has to be told apart from the tools to select from. The only moment at which that is known
is the call of `create_agent` itself, which reads the `tools` of every middleware.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FrameType

from langchain.agents.middleware import AgentMiddleware

from langchain_toolrag.selection.bindable import tool_name
from langchain_toolrag.types import Tool

_MAKER = ("langchain.agents.factory", "create_agent")
_ARGUMENT = "middleware"


def middlewares_of_agent() -> tuple[object, ...]:
    """Return the middlewares of the agent that is being made; none where none is.

    To be called while `create_agent` reads our `tools`: it looks for that call among its callers
    and reads its `middleware` argument.
    """
    call = _call_of_maker(sys._getframe(1))
    return () if call is None else tuple(call.f_locals.get(_ARGUMENT, ()))


def brought_by_others(ours: AgentMiddleware, middlewares: Iterable[object]) -> list[Tool]:
    """Return the tools that an agent's other middlewares bring.

    Args:
        ours: The middleware that is asked for its tools.
        middlewares: The agent's middlewares.

    Returns:
        Tools of the others.
    """
    others = (other for other in middlewares if not isinstance(other, type(ours)))
    return [tool for other in others for tool in getattr(other, "tools", None) or ()]


def is_one_of(tool: Tool, tools: Iterable[Tool]) -> bool:
    """Whether a tool of a running agent is one of those it was made with.

    LangChain turns functions into tools, so that these are known by name alone.
    """
    return any(
        tool is other or (callable_only(other) and tool_name(tool) == tool_name(other))
        for other in tools
    )


def callable_only(tool: Tool) -> bool:
    """Whether a tool is a plain function."""
    return callable(tool) and not hasattr(tool, "name")


def _call_of_maker(frame: FrameType | None) -> FrameType | None:
    while frame is not None:
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) == _MAKER:
            return frame
        frame = frame.f_back
    return None
