"""A filter for one call, made from the run it is in."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from langchain_toolrag.selection.bindable import Filter
from langchain_toolrag.types import ToolFilter

RuntimeFilter: TypeAlias = Filter | Callable[[Any], Filter | None]
"""A ToolFilter, a function of a tool document, or a function of the run's `Runtime` that returns
one of these (or None). The two kinds of function are told apart by the name of their parameter:
`runtime` for the last."""


def filter_of(filter: RuntimeFilter | None, runtime: object) -> Filter | None:
    """Return the filter of one call.

    Args:
        filter: What the user gave.
        runtime: The run's `Runtime`, with the user's context; None outside a run.

    Returns:
        A filter of tool documents, or None.
    """
    if filter is None or isinstance(filter, ToolFilter):
        return filter
    if _first_parameter(filter) == "runtime":
        made: Filter | None = filter(runtime)  # type: ignore[arg-type,assignment]
        return made
    return filter  # type: ignore[return-value]


def _first_parameter(function: Callable[..., Any]) -> str:
    try:
        return next(iter(inspect.signature(function).parameters), "")
    except (TypeError, ValueError):  # Some builtins have no signature.
        return ""
