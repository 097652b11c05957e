"""How selectors' memories are kept in a graph's state: one for each selector, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def merge_memories(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Any]:
    """Merge an update into the memories; several selectors may write in one step."""
    return {**(old or {}), **(new or {})}


def latest(old: T, new: T) -> T:
    """Keep the newer of two values."""
    return new
