"""What one selection leaves for the next: a small JSON value of names and ids."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_toolrag.types import Source, ToolId

logger = logging.getLogger(__name__)

_VERSION = 2


@dataclass(frozen=True, slots=True)
class SelectionState:
    """The memory of a conversation's selections.

    Attributes:
        query: The user's words in the last turn that was searched for.
        searched: What was searched for; empty where nothing was.
        turn_id: The user turn it was searched in.
        search_id: That search's name.
        offer: Digest of what could be bound when it was searched.
        turn: How many searches there were; the clock of `used`.
        degraded: Why that search was not what it should be; empty if it was.
        confidence: How sure that search was that a tool fits; None where it could not say.
        whole: Whether everything that could be bound was to be.
        front: Names of what passed through, in front of the bound tools.
        bound: Ids of the bound tools, in binding order.
        found: What the last search found, in rank order, and by what.
        loaded: Ids of bound tools that the model has searched for itself.
        answered: The call whose answer was the last to load tools; empty for none.
        used: The turn in which each bound tool was last found or called.
    """

    query: str = ""
    searched: str = ""
    turn_id: str = ""
    search_id: str = ""
    offer: str = ""
    turn: int = 0
    degraded: str = ""
    confidence: float | None = None
    whole: bool = False
    front: tuple[str, ...] = ()
    bound: tuple[ToolId, ...] = ()
    found: Mapping[ToolId, Source] = field(default_factory=dict)
    loaded: tuple[ToolId, ...] = ()
    answered: str = ""
    used: Mapping[ToolId, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "version": _VERSION,
            "query": self.query,
            "searched": self.searched,
            "turn_id": self.turn_id,
            "search_id": self.search_id,
            "offer": self.offer,
            "turn": self.turn,
            "degraded": self.degraded,
            "confidence": self.confidence,
            "whole": self.whole,
            "front": list(self.front),
            "bound": list(self.bound),
            "found": [list(pair) for pair in self.found.items()],
            "loaded": list(self.loaded),
            "answered": self.answered,
            "used": dict(self.used),
        }


def read_state(previous: Mapping[str, Any] | None) -> SelectionState:
    """Read what `as_json` wrote.

    Args:
        previous: `Selection.state` of the conversation's last step; None at its start.

    Returns:
        The state; an empty one, with a warning, where the value is of another version or cannot be
        read: the conversation goes on as if it began here.
    """
    if not previous:
        return SelectionState()
    try:
        if previous["version"] != _VERSION:
            raise ValueError(f"version {previous['version']!r}, wanted {_VERSION}")
        return _read(previous)
    except (KeyError, TypeError, ValueError) as error:
        logger.warning("a selection state is ignored, it cannot be read: %r", error)
        return SelectionState()


def _read(previous: Mapping[str, Any]) -> SelectionState:
    return SelectionState(
        query=str(previous["query"]),
        searched=str(previous["searched"]),
        turn_id=str(previous["turn_id"]),
        search_id=str(previous["search_id"]),
        offer=str(previous["offer"]),
        turn=int(previous["turn"]),
        degraded=str(previous["degraded"]),
        confidence=None if previous["confidence"] is None else float(previous["confidence"]),
        whole=bool(previous["whole"]),
        front=tuple(map(str, previous["front"])),
        bound=tuple(map(str, previous["bound"])),
        found=dict(previous["found"]),
        loaded=tuple(map(str, previous["loaded"])),
        answered=str(previous["answered"]),
        used={str(key): int(turn) for key, turn in dict(previous["used"]).items()},
    )
