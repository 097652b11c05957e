"""Tool and tool document in -> what is bound and what is run out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_toolrag.catalogue.document import openai_definition
from langchain_toolrag.types import Tool, ToolDocument


def under_name(tool: Tool, document: ToolDocument) -> Tool:
    """Return the tool under its bound name; the user's own object is never renamed."""
    if isinstance(tool, dict):
        return openai_definition(tool, document.bound_name)
    if document.bound_name == document.name:
        return tool
    if isinstance(tool, BaseTool):
        return tool.model_copy(update={"name": document.bound_name})
    if isinstance(tool, type):
        return openai_definition(convert_to_openai_tool(tool), document.bound_name)
    return _structured(tool, document)


def _structured(function: Callable[..., Any], document: ToolDocument) -> StructuredTool:
    """Return a function as a tool under its bound name."""
    is_async = inspect.iscoroutinefunction(function)
    return StructuredTool.from_function(
        func=None if is_async else function,
        coroutine=function if is_async else None,
        name=document.bound_name,
        description=document.description or " ".join(document.words),
    )


def runnable_of(bound: Tool, document: ToolDocument) -> BaseTool | None:
    """Return the tool to run; a definition, or a class that stands for one, has none."""
    if isinstance(bound, (dict, type)):
        return None
    return bound if isinstance(bound, BaseTool) else _structured(bound, document)
