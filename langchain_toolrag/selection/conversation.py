"""Messages in -> what the user wants now and which tools were called out.

Histories come trimmed, summarised, deserialised and written by other frameworks: a call may
stand in any of half a dozen places, and a message of the user may not be the user's words.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, zip_longest
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
    convert_to_messages,
)

from langchain_toolrag.types import Messages, ToolId

LOADED_KEY = "toolrag_loaded"
"""Under this key the artifact of a tool's answer lists ids of tools to bind from now on."""

# What LangGraph's add_messages takes as "forget everything before".
_REMOVE_ALL = "__remove_all__"
# What LangChain's summarisation writes; its newer versions mark the message as well.
_SUMMARY_SOURCE = "summarization"
_SUMMARY_PREFIX = "Here is a summary of the conversation to date"
_CALL_BLOCKS = frozenset({"tool_use", "tool_call", "function_call", "invalid_tool_call"})
_RESULT_BLOCKS = frozenset({"tool_result", "function_call_output"})
_REMEMBERED_TURNS = 10  # User turns whose words are read.
_TEXT_BLOCKS = frozenset({"text", "input_text", "output_text"})


@dataclass(frozen=True, slots=True)
class Call:
    """One mention of a tool's call in the history.

    Attributes:
        name: The name the model called it by.
        turn: Assistant turns back, from 1: an assistant turn is all between two user turns.
        message: Assistant messages back, from 1, as ToolRAG counts.
        answered: Whether its result is in the history too.
    """

    name: str
    turn: int
    message: int
    answered: bool = True


@dataclass(frozen=True, slots=True)
class Load:
    """An answer that brought the model tools: that of its own search.

    Attributes:
        ids: The tools, best first; none where nothing was found.
        call: The id of the call that it answers.
        in_turn: Whether it was given in the current turn.
        message: Assistant messages back, from 1; equal for answers to calls in parallel.
    """

    ids: tuple[ToolId, ...]
    call: str
    in_turn: bool
    message: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """What selection needs to know of a list of messages.

    Attributes:
        query: The user's words of the current turn, or of the turn before where the current
            one has none (an image); empty where there are none.
        earlier: The user's words of the turns before that, latest first.
        assistant: The assistant's last words before the current turn; empty where there are none.
        turn_id: Names the user turn; empty where there is none.
        calls: Calls of tools, latest first; of a tool's calls the latest, and those without result.
        summarised: Whether a summary stands in the place of earlier messages.
        loads: Answers that brought tools, latest first.
    """

    query: str = ""
    earlier: tuple[str, ...] = ()
    assistant: str = ""
    turn_id: str = ""
    calls: tuple[Call, ...] = ()
    summarised: bool = False
    loads: tuple[Load, ...] = ()

    @property
    def previous_query(self) -> str:
        """The user's words of the turn before the current one; empty where there are none."""
        return self.earlier[0] if self.earlier else ""

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Names called without a result so far, latest first, without repeats."""
        return tuple(dict.fromkeys(call.name for call in self.calls if not call.answered))

    def loaded(self, call: str) -> tuple[ToolId, ...]:
        """Ids brought in this turn, or after the answer to a call; latest first, no repeats.

        Answers to calls in parallel are merged, the best of each first. Where that answer is not
        in the history, all count.
        """
        known = [load.call for load in self.loads]
        after = known.index(call) if call in known else len(known)
        new = (load for place, load in enumerate(self.loads) if load.in_turn or place < after)
        merged = (_merged(list(answers)) for _, answers in groupby(new, lambda load: load.message))
        return tuple(dict.fromkeys(chain.from_iterable(merged)))

    def sticky(self, window: int) -> tuple[str, ...]:
        """Names called in the last `window` assistant turns, latest first, without repeats."""
        return tuple(dict.fromkeys(call.name for call in self.calls if call.turn <= window))

    def classic_sticky(self, window: int) -> tuple[str, ...]:
        """The same for the last `window` assistant messages, ToolRAG's notion of a turn."""
        return tuple(dict.fromkeys(call.name for call in self.calls if call.message <= window))


def read_conversation(messages: Messages) -> Conversation:
    """Read a list of messages, latest first.

    Args:
        messages: Whatever `convert_to_messages` takes, or a string: the user's words.

    Returns:
        What it says; nothing where there is nothing. The messages are not changed.
    """
    reader = _Reader()
    for message in reversed(_as_messages(messages)):
        reader.read(message)
    return reader.conversation()


def message_text(message: BaseMessage) -> str:
    """Return the text of a message, its blocks joined by spaces; empty for an image alone."""
    content = message.content
    if isinstance(content, str):
        return content.strip()
    return " ".join(part for part in map(_block_text, content) if part).strip()


@dataclass(slots=True)
class _Reader:
    """Takes in messages from the last to the first."""

    users: list[HumanMessage | ChatMessage] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)
    turns: int = 0
    assistant_messages: int = 0
    in_turn: bool = False
    summarised: bool = False
    assistant: str = ""
    loads: list[Load] = field(default_factory=list)

    def read(self, message: BaseMessage) -> None:
        if isinstance(message, AIMessage):
            self._enter_turn()
            self.assistant_messages += 1
            self._add(_calls(message), self.assistant_messages)
            if self.users and not self.assistant:
                self.assistant = message_text(message)
        elif isinstance(message, (ToolMessage, FunctionMessage)):
            self._enter_turn()
            self.answered.add(getattr(message, "tool_call_id", ""))
            if isinstance(message, ToolMessage) and isinstance(message.artifact, Mapping):
                self._add_load(message.artifact.get(LOADED_KEY), message.tool_call_id)
            if message.name:
                self._add([(message.name, "")], self.assistant_messages + 1)
        elif isinstance(message, (HumanMessage, ChatMessage)):
            self.answered.update(_answered_in_blocks(message))
            if _is_summary(message):
                self.summarised = True
            elif _is_user_turn(message):
                self.in_turn = False
                self.users.append(message)

    def conversation(self) -> Conversation:
        texts = [message_text(user) for user in self.users[:_REMEMBERED_TURNS]]
        spoken = [text for text in texts if text]
        return Conversation(
            query=spoken[0] if spoken else "",
            earlier=tuple(spoken[1:]),
            assistant=self.assistant,
            turn_id=_turn_id(self.users[0], len(self.users)) if self.users else "",
            calls=tuple(self.calls),
            summarised=self.summarised,
            loads=tuple(self.loads),
        )

    def _add_load(self, ids: object, call: str) -> None:
        if isinstance(ids, (list, tuple)):
            found = tuple(identity for identity in ids if isinstance(identity, str))
            in_turn = not self.users
            self.loads.append(Load(found, call, in_turn, self.assistant_messages + 1))

    def _enter_turn(self) -> None:
        if not self.in_turn:
            self.in_turn = True
            self.turns += 1

    def _add(self, calls: Iterable[tuple[str, str]], message: int) -> None:
        for name, identity in calls:
            answered = not identity or identity in self.answered
            if name not in self.called or not answered:
                self.called.add(name)
                self.calls.append(Call(name, self.turns, message, answered))


def _merged(loads: Sequence[Load]) -> Iterator[ToolId]:
    """Yield the ids of loads, given latest first: the best of each, then the next best."""
    for rank in zip_longest(*(load.ids for load in reversed(loads))):
        yield from (identity for identity in rank if identity is not None)


def _as_messages(messages: Messages) -> list[BaseMessage]:
    if isinstance(messages, str):
        return [HumanMessage(messages)]
    if isinstance(messages, BaseMessage):
        return [messages]
    plain = isinstance(messages, (list, tuple)) and all(
        isinstance(message, BaseMessage) for message in messages
    )
    converted = list(messages) if plain else convert_to_messages(messages)
    if any(isinstance(message, RemoveMessage) for message in converted):
        return _without_removed(converted)
    return converted


def _without_removed(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Carry out what RemoveMessages ask for, as LangGraph's reducer will."""
    kept: list[BaseMessage] = []
    for message in messages:
        if not isinstance(message, RemoveMessage):
            kept.append(message)
        elif message.id == _REMOVE_ALL:
            kept.clear()
        else:
            kept = [other for other in kept if other.id != message.id]
    return kept


def _is_user_turn(message: HumanMessage | ChatMessage) -> bool:
    """Whether the user said it: not a notice, not a result written as a user's message."""
    if isinstance(message, ChatMessage) and message.role not in ("user", "human"):
        return False
    if message.additional_kwargs.get("lc_source"):
        return False
    content = message.content
    if isinstance(content, str):
        return True
    kinds = [block.get("type") for block in content if isinstance(block, dict)]
    return not (kinds and len(kinds) == len(content) and set(kinds) <= _RESULT_BLOCKS)


def _is_summary(message: BaseMessage) -> bool:
    if message.additional_kwargs.get("lc_source") == _SUMMARY_SOURCE:
        return True
    content = message.content
    text = content if isinstance(content, str) else message_text(message)
    return text.startswith(_SUMMARY_PREFIX)


def _answered_in_blocks(message: BaseMessage) -> Iterator[str]:
    if isinstance(message.content, list):
        for block in message.content:
            if isinstance(block, dict) and block.get("type") in _RESULT_BLOCKS:
                yield str(block.get("tool_use_id") or block.get("call_id") or "")


def _calls(message: AIMessage) -> list[tuple[str, str]]:
    """Return names and ids of the calls in a message, from every place they are written."""
    calls: dict[tuple[str, str], None] = {}
    for call in (*message.tool_calls, *message.invalid_tool_calls):
        _note(calls, call.get("name"), call.get("id"))
    if isinstance(message.content, list):
        for block in message.content:
            if isinstance(block, dict):
                _note_block(calls, block)
    if message.additional_kwargs:
        legacy = message.additional_kwargs.get("function_call")
        if isinstance(legacy, dict):
            _note(calls, legacy.get("name"), None)
    return list(calls)


def _note_block(calls: dict[tuple[str, str], None], block: dict[str, Any]) -> None:
    if block.get("type") in _CALL_BLOCKS:
        _note(calls, block.get("name"), block.get("call_id") or block.get("id"))
        return
    inner = block.get("functionCall") or block.get("function_call")  # Gemini's parts.
    if isinstance(inner, dict):
        _note(calls, inner.get("name"), inner.get("id"))


def _note(calls: dict[tuple[str, str], None], name: object, identity: object) -> None:
    """Add a call; one that stands in two places of a message is one call."""
    if not isinstance(name, str) or not name:
        return
    key = identity if isinstance(identity, str) else ""
    if not any(known == name and (not key or other in ("", key)) for known, other in calls):
        calls[name, key] = None


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block.strip()
    if isinstance(block, dict) and block.get("type", "text") in _TEXT_BLOCKS:
        text = block.get("text")
        return text.strip() if isinstance(text, str) else ""
    return ""


def _turn_id(user: BaseMessage, ordinal: int) -> str:
    """Name a user turn: by the message's id, or by its place and words where it has none."""
    key = user.id or f"{ordinal}:{message_text(user)}"
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:16]
