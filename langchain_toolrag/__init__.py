"""Tools in once; before every model step, only the few it needs are bound."""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_toolrag.errors import ToolRAGError
    from langchain_toolrag.integrations.agent import create_react_agent
    from langchain_toolrag.integrations.middleware import ToolRAGMiddleware
    from langchain_toolrag.integrations.node import ToolRAGNode, ToolRAGState
    from langchain_toolrag.integrations.retriever import ToolRetriever
    from langchain_toolrag.integrations.search_tool import create_search_tool
    from langchain_toolrag.selection.options import SelectionOptions
    from langchain_toolrag.toolrag import ToolRAG
    from langchain_toolrag.types import Hit, Selection, ToolDocument

logging.getLogger(__name__).addHandler(logging.NullHandler())

# Resolved at first use (PEP 562): importing the package imports none of these.
_HOMES = {
    "Hit": "types",
    "Selection": "types",
    "SelectionOptions": "selection.options",
    "ToolDocument": "types",
    "ToolRAG": "toolrag",
    "ToolRAGError": "errors",
    "ToolRAGMiddleware": "integrations.middleware",
    "ToolRAGNode": "integrations.node",
    "ToolRAGState": "integrations.node",
    "ToolRetriever": "integrations.retriever",
    "create_react_agent": "integrations.agent",
    "create_search_tool": "integrations.search_tool",
}

__all__ = [
    "Hit",
    "Selection",
    "SelectionOptions",
    "ToolDocument",
    "ToolRAG",
    "ToolRAGError",
    "ToolRAGMiddleware",
    "ToolRAGNode",
    "ToolRAGState",
    "ToolRetriever",
    "create_react_agent",
    "create_search_tool",
]


def __getattr__(name: str) -> Any:
    """Import a public name from where it lives."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
