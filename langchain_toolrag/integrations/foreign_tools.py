"""An agent's tools in -> those that another middleware brought out.

`create_agent` mixes the tools of all middlewares with the agent's own and keeps no record of
which is whose. A planner's `write_todos` must stay bound whatever the user asks for, so it
has to be told apart from the tools to select from. The middlewares of a running agent are
alive, and each still holds the very objects it brought.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable

from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import BaseTool


def brought_by_others(tools: Iterable[BaseTool], ours: type[AgentMiddleware]) -> set[int]:
    """Return the identities (`id`) of tools that a middleware of another class holds.

    Walks all objects the garbage collector knows, some hundred milliseconds in a large process:
    to be done once for a set of tools.

    Args:
        tools: The tools of a request.
        ours: The class of middleware that selects, whose own tools are not meant.

    Returns:
        A subset of the tools' identities.
    """
    held: set[int] = set()
    for thing in gc.get_objects():
        kind = type(thing)  # isinstance would run the __class__ of proxies and mocks.
        if issubclass(kind, AgentMiddleware) and not issubclass(kind, ours):
            held.update(id(tool) for tool in getattr(thing, "tools", None) or ())
    return held & {id(tool) for tool in tools}
