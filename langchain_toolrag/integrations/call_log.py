"""Calls that an agent makes of its tools -> lines of the usage log out."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

from langchain_core.messages import HumanMessage, ToolCall, ToolMessage
from langgraph.errors import GraphBubbleUp
from typing_extensions import Self

from langchain_toolrag.integrations.search_answer import SEARCH_KEY
from langchain_toolrag.selection.conversation import LOADED_KEY
from langchain_toolrag.selection.state import read_state
from langchain_toolrag.types import ToolId
from langchain_toolrag.usage.log import UsageLog, usable_id
from langchain_toolrag.usage.outcomes import ToldOutcome
from langchain_toolrag.usage.records import Outcome

ShownBy: TypeAlias = Callable[[ToolId, Any], str]
"""Returns the id of the search that showed a tool to the model, by the tool and the graph's state;
empty where that is not known."""

_TIMEOUTS = (TimeoutError, asyncio.TimeoutError, concurrent.futures.TimeoutError)  # One from 3.11.

_AnswerT = TypeVar("_AnswerT")


def search_of(tool: ToolId, messages: Iterable[Any], memory: Mapping[str, Any] | None) -> str:
    """Return the id of the latest search that showed a tool to the model; nothing is guessed.

    Args:
        tool: The tool.
        messages: The conversation, with the answers to the model's own searches.
        memory: What the selector remembers of the conversation; None for nothing.

    Returns:
        The id of a search of the model's own, or of the selection; empty where none showed it.
    """
    state = read_state(memory)
    is_bound = tool in state.bound
    is_found = is_bound and tool in state.found
    for message in reversed(list(messages)):
        # What the selector found for this turn it found later than any search of a turn before.
        if is_found and isinstance(message, HumanMessage):
            break
        if isinstance(message, ToolMessage) and (search_id := _loading(message, tool)):
            return search_id
    return state.search_id if is_bound else ""


class CallLog:
    """Notes calls of tools in a usage log.

    Args:
        usage_log: The log; None for none.
        shown_by: Tells which search showed a tool; None where that is never known.
    """

    def __init__(self, usage_log: UsageLog | None, shown_by: ShownBy | None) -> None:
        self._usage_log = usage_log
        self._shown_by = shown_by

    def open(
        self, call: ToolCall, tool: ToolId | None, state: object, tenant: str = ""
    ) -> OpenCall:
        """Begin a call, which is noted at the end of the context that it is.

        Args:
            call: The model's call.
            tool: The tool of the catalogue that it is for; None for none of these.
            state: The graph's state.
            tenant: Names the tenant whose run it is; empty for none.

        Returns:
            The call.
        """
        return OpenCall(self, call, tool, state, tenant)

    def note(self, call: OpenCall, outcome: Outcome, latency_ms: float | None) -> None:
        """Note a call that has ended.

        Args:
            call: The call.
            outcome: How it went.
            latency_ms: How long it took, in milliseconds; None for one that was refused.
        """
        if self._usage_log is None:
            return
        tool, shown_by = call.tool, self._shown_by
        self._usage_log.call(
            call_id=usable_id(call.call.get("id") or "") or f"c-{uuid.uuid4().hex}",
            tool=tool or "",
            outcome=outcome,
            search_id="" if tool is None or shown_by is None else shown_by(tool, call.state),
            arguments=call.call["args"],
            latency_ms=latency_ms,
            tenant=call.tenant,
        )


class OpenCall:
    """A call that is being made; a context, at whose end it is noted.

    An error that leaves the context is the call's outcome, unless the tool itself tells what kind
    of failure it was. An interrupt or a cancellation is none, and nothing is noted. Of tools that
    are not the catalogue's, refusals alone are.

    Args:
        log: Where it is noted.
        call: The model's call.
        tool: The tool of the catalogue that it is for; None for none of these.
        state: The graph's state.
        tenant: Names the tenant whose run it is; empty for none.

    Attributes:
        call: The model's call.
        tool: The tool; None for none of the catalogue's.
        state: The graph's state.
        tenant: Names the tenant; empty for none.
    """

    def __init__(
        self, log: CallLog, call: ToolCall, tool: ToolId | None, state: object, tenant: str
    ) -> None:
        self.call = call
        self.tool = tool
        self.state = state
        self.tenant = tenant
        self._log = log
        self._told = ToldOutcome(tool)
        self._outcome: Outcome | None = None
        self._started = time.perf_counter()

    def __enter__(self) -> Self:
        self._told.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._told.close()
        outcome = self._outcome if error is None else _outcome_of(error)
        if outcome == "tool_error":
            outcome = self._told.failure or outcome
        if outcome == "refused":
            self._log.note(self, outcome, None)
        elif outcome is not None and self.tool is not None:
            self._log.note(self, outcome, 1000 * (time.perf_counter() - self._started))

    def refused(self, answer: _AnswerT) -> _AnswerT:
        """Take the answer for a refusal, and return it."""
        self._outcome = "refused"
        return answer

    def answered(self, answer: _AnswerT) -> _AnswerT:
        """Take the answer for the tool's, and return it."""
        self._outcome = "tool_error" if _is_error(answer) else "ok"
        return answer


def _loading(message: ToolMessage, tool: ToolId) -> str:
    """Return the id of the search that a message answers, if it brought the tool."""
    artifact = message.artifact
    if not isinstance(artifact, Mapping) or not isinstance(artifact.get(LOADED_KEY), (list, tuple)):
        return ""
    search_id = artifact.get(SEARCH_KEY)
    return search_id if isinstance(search_id, str) and tool in artifact[LOADED_KEY] else ""


def _outcome_of(error: BaseException) -> Outcome | None:
    if isinstance(error, GraphBubbleUp) or not isinstance(error, Exception):
        return None
    return "timeout" if isinstance(error, _TIMEOUTS) else "tool_error"


def _is_error(answer: object) -> bool:
    return isinstance(answer, ToolMessage) and answer.status == "error"
