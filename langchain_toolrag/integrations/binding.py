"""Tools in -> a model with exactly these bound out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableBinding

from langchain_toolrag.types import Tool


def bind_tools(model: Any, tools: Sequence[Tool]) -> Runnable[Any, Any]:
    """Bind tools to a model, keeping what is bound to it already.

    LangChain's `bind_tools` on a bound model (`model.bind(stop=...)`, `model.with_config(...)`)
    forgets the options and configuration it was bound with; here they stay.

    Args:
        model: A chat model, or one wrapped by `bind`, `with_config` or `with_fallbacks`.
        tools: The tools; for none, tools that are bound already are taken off.

    Returns:
        The model with the tools.

    Raises:
        TypeError: If tools cannot be bound to it.
    """
    if isinstance(model, RunnableBinding) and not isinstance(model, BaseChatModel):
        inner = bind_tools(model.bound, tools)
        added = inner.kwargs if isinstance(inner, RunnableBinding) else {}
        options = {key: value for key, value in model.kwargs.items() if key != "tools"}
        return model.model_copy(
            update={
                "bound": inner.bound if isinstance(inner, RunnableBinding) else inner,
                "kwargs": {**added, **options},
            }
        )
    if not tools:
        runnable: Runnable[Any, Any] = model
        return runnable
    if not hasattr(model, "bind_tools"):
        raise TypeError(
            f"a {type(model).__name__} cannot take tools: wanted a chat model; wrap it with "
            "with_retry() and the like after the tools are bound"
        )
    bound: Runnable[Any, Any] = model.bind_tools(list(tools))
    return bound
