"""How a tool's call went, from where it is known -> where it is noted.

A tool tells the model of every failure in one way, as a ToolException. What kind of failure it
was goes beside it: through what was opened around the call, in whichever thread or task it ran.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar, Token

from langchain_toolrag.types import ToolId
from langchain_toolrag.usage.records import Outcome


class ToldOutcome:
    """What a tool tells of a call of it, while this is open.

    Args:
        tool: The tool; what others tell meanwhile, which it may call itself, is no matter.

    Attributes:
        failure: What kind of failure the last call was; None for none, or where nothing was told.
    """

    def __init__(self, tool: ToolId | None) -> None:
        self.failure: Outcome | None = None
        self._tool = tool
        self._token: Token[ToldOutcome | None] | None = None

    def open(self) -> None:
        """Take what is told from here on, in this context and in copies of it."""
        self._token = _listening.set(self)

    def close(self) -> None:
        """Listen no longer; whoever listened before does again."""
        if self._token is not None:
            # A coroutine that nobody awaits any more is closed in whatever context that happens.
            with contextlib.suppress(ValueError):
                _listening.reset(self._token)
            self._token = None

    def take(self, tool: ToolId, outcome: Outcome) -> None:
        """Take what a tool tells."""
        if tool == self._tool:
            self.failure = None if outcome == "ok" else outcome


_listening: ContextVar[ToldOutcome | None] = ContextVar("toolrag_outcome", default=None)


def tell_outcome(tool: ToolId, outcome: Outcome) -> None:
    """Tell how a call of a tool went, to whoever notes it.

    Args:
        tool: The tool.
        outcome: How the call went.
    """
    listening = _listening.get()
    if listening is not None:
        listening.take(tool, outcome)
