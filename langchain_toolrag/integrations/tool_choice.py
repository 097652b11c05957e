"""A request and what was selected for it in -> a request whose `tool_choice` fits its tools out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain.agents.middleware import ModelRequest

from langchain_toolrag.selection.bindable import tool_name
from langchain_toolrag.types import Selection


def chosen_names(choice: object) -> tuple[str, ...]:
    """Return the tools that a `tool_choice` names, in any provider's form."""
    if isinstance(choice, str):
        return (choice,)  # "auto", "any" and the like are not tools, and so change nothing.
    if not isinstance(choice, Mapping):
        return ()
    listed = choice.get("tools")
    if isinstance(listed, list):
        return tuple(name for part in listed for name in chosen_names(part))
    inner = choice.get("function")
    named = inner if isinstance(inner, Mapping) else choice
    name = named.get("name")
    return (name,) if isinstance(name, str) else ()


def with_selected(request: ModelRequest[Any], selection: Selection) -> ModelRequest[Any]:
    """Return the request with the selected tools.

    A `tool_choice` goes where nothing is bound, or where it names a tool of the request that is
    not: providers refuse it then.
    """
    tools: list[Any] = list(selection.tools)
    bound = {tool_name(tool) for tool in tools}
    left_out = {tool_name(tool) for tool in request.tools} - bound
    if not tools or left_out.intersection(chosen_names(request.tool_choice)):
        return request.override(tools=tools, tool_choice=None)
    return request.override(tools=tools)
