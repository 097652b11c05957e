"""How selectors' memories are kept in a graph's state: one for each selector, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from langchain_toolrag.types import ToolId

NODE_KEY = "toolrag_state"
"""Where a graph's state holds the memories of its `ToolRAGNode`s."""

MIDDLEWARE_KEY = "toolrag"
"""Where an agent's state holds the memories of its `ToolRAGMiddleware`s."""

T = TypeVar("T")


def merge_memories(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Any]:
    """Merge an update into the memories; several selectors may write in one step."""
    return {**(old or {}), **(new or {})}


def latest(old: T, new: T) -> T:
    """Keep the newer of two values."""
    return new


def read(state: Any, key: str) -> Any:
    """Read a state that is a mapping, a pydantic model or a dataclass; None where it is missing."""
    if isinstance(state, Mapping):
        return state.get(key)
    return getattr(state, key, None)


def memory_of(state: Any, key: str, name: str | None) -> Mapping[str, Any] | None:
    """Return what a selector remembers of a conversation.

    Args:
        state: The graph's state.
        key: Where in it the memories are.
        name: The selector's name.

    Returns:
        Its memory; None for none.
    """
    memories: Mapping[Any, Mapping[str, Any]] = read(state, key) or {}
    return memories.get(name)


def in_front(state: Any) -> int | None:
    """Return how many tools passed through the selectors of a state, at most; None before any."""
    memories = _memories(state)
    return max((len(memory.get("front", ())) for memory in memories), default=None)


def bound_ids(state: Any) -> set[ToolId] | None:
    """Return the ids of the tools that the selectors of a state bound last; None before any did."""
    memories = _memories(state)
    if not memories:
        return None
    return {identity for memory in memories for identity in memory.get("bound", ())}


def _memories(state: Any) -> list[Mapping[str, Any]]:
    return [
        memory for key in (NODE_KEY, MIDDLEWARE_KEY) for memory in (read(state, key) or {}).values()
    ]
