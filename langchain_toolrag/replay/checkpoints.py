"""A thread's LangGraph checkpoints in -> its model steps, each with what the model had read, out.

A checkpoint is what a graph's state was after a step; a thread has one for every step, each with
all messages that there were. So a model step is read from the checkpoint in which its answer came:
the model had read the messages before it, as they were then. Where a summary has taken the place
of earlier messages, these are still in the checkpoints before.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig

from langchain_toolrag.integrations.memory import bound_ids
from langchain_toolrag.selection.conversation import message_text, read_conversation
from langchain_toolrag.types import ToolId

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

MESSAGES_KEY = "messages"

_GIVEN = ("input", "update", "fork")  # Sources of checkpoints whose messages no model step made.

_Key: TypeAlias = str


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of the model.

    Attributes:
        thread: The conversation.
        namespace: The subgraph it was given in, as LangGraph names it; empty for the graph itself.
        number: Which step of the namespace it is, from 1.
        time: When the checkpoint was written, ISO 8601.
        read: The messages that the model had read.
        called: Names of the tools it called, each once, in order.
        bound: Ids that the selectors of the graph had bound, in no order; None where that is not
            known.
    """

    thread: str
    namespace: str
    number: int
    time: str
    read: Sequence[BaseMessage]
    called: tuple[str, ...]
    bound: frozenset[ToolId] | None


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation.

    Attributes:
        id: Its name.
        steps: Its model steps by namespace, in order of time: first those of the namespace that
            was begun first.
        problem: Why it, or what is older than its steps, cannot be read; empty if it can.
    """

    id: str
    steps: tuple[Step, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _State:
    """What is kept of a checkpoint: its messages by key, in order, and what was bound."""

    id: str
    parent: str
    time: str
    source: str
    messages: Mapping[_Key, BaseMessage]
    bound: frozenset[ToolId] | None


@dataclass(slots=True)
class _Reader:
    """Takes in a thread's checkpoints from the last to the first.

    Of a message that is in many checkpoints one object is kept.
    """

    messages_key: str
    branches: dict[str, list[_State]] = field(default_factory=dict)
    _known: dict[_Key, BaseMessage] = field(default_factory=dict)

    def read(self, saved: CheckpointTuple) -> None:
        namespace = _configured(saved.config, "checkpoint_ns")
        branch = self.branches.get(namespace, [])
        # Of a thread that was taken up again at an earlier point, the branch that is its end.
        if not branch or branch[-1].parent == saved.checkpoint["id"]:
            branch.append(self._state(saved))
            self.branches[namespace] = branch

    def _state(self, saved: CheckpointTuple) -> _State:
        values = saved.checkpoint["channel_values"]
        bound = bound_ids(values)
        return _State(
            id=saved.checkpoint["id"],
            parent=_configured(saved.parent_config, "checkpoint_id"),
            time=saved.checkpoint["ts"],
            source=(saved.metadata or {}).get("source", ""),
            messages=self._messages(saved),
            bound=None if bound is None else frozenset(bound),
        )

    def _messages(self, saved: CheckpointTuple) -> dict[_Key, BaseMessage]:
        checkpoint, key = saved.checkpoint, self.messages_key
        found = checkpoint["channel_values"].get(key)
        if key not in checkpoint["channel_values"] and key in checkpoint["channel_versions"]:
            raise ValueError(f"the messages in {key!r} are stored as changes (DeltaChannel)")
        messages = convert_to_messages(found) if isinstance(found, list) else []
        return {
            name: self._one(name, message)
            for name, message in ((_key(n, each), each) for n, each in enumerate(messages))
        }

    def _one(self, key: _Key, message: BaseMessage) -> BaseMessage:
        known = self._known.setdefault(key, message)
        return known if known == message else message


def thread_ids(saver: BaseCheckpointSaver[Any]) -> list[str]:
    """Return the names of all threads of a store.

    All checkpoints are read for it, one at a time. Where the store can be asked in another way
    (`SELECT DISTINCT thread_id`), that is quicker.

    Args:
        saver: The store.

    Returns:
        The names, in the store's order: a database's begins with the thread that was used last.
    """
    names = (_configured(saved.config, "thread_id") for saved in saver.list(None))
    return list(dict.fromkeys(names))


def read_thread(
    saver: BaseCheckpointSaver[Any], thread: str, messages_key: str = MESSAGES_KEY
) -> Thread:
    """Read the model steps of a thread; nothing is written.

    An answer that came with a graph's input, or by `update_state`, is no step. One that a subgraph
    gave and its parent took over is the subgraph's. Of a thread that was forked the last branch is
    read. Where older checkpoints were deleted, the steps before the oldest that is left are read
    from its messages: what a summary took out of these is gone.

    Args:
        saver: The store; it is asked for one thread alone.
        thread: The thread's name.
        messages_key: Where in the graph's state the messages are.

    Returns:
        The thread; without steps where its state has no messages.
    """
    reader, problem = _Reader(messages_key), ""
    config: RunnableConfig = {"configurable": {"thread_id": thread}}
    try:
        for saved in saver.list(config):
            reader.read(saved)
    # What is stored may be anything, and so is what a store raises that reads it. The newest
    # checkpoint comes first and has all messages: what has been read is worth having.
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    branches = {name: states[::-1] for name, states in reader.branches.items()}
    made = {name: list(_made(states)) for name, states in branches.items()}
    owners = _owners(made)
    steps = [
        step
        for name in sorted(made, key=lambda name: branches[name][0].id)
        for step in _steps(thread, name, made[name], owners)
    ]
    return Thread(thread, tuple(steps), problem)


@dataclass(frozen=True, slots=True)
class _Answer:
    """A model's answer: its key, the checkpoint it came in, what was read before."""

    key: _Key
    message: AIMessage
    state: _State
    read: Sequence[BaseMessage]
    bound: frozenset[ToolId] | None


def _made(states: Sequence[_State]) -> Iterator[_Answer]:
    """Yield the answers of the model in a branch, oldest first."""
    before: _State | None = None
    for state in states:
        if before is None:
            is_given = state.source in _GIVEN and not state.parent  # Else what is older is gone.
        else:
            is_given = state.source in _GIVEN or before.source == "input"
        if not is_given:
            yield from _new_answers(state, {} if before is None else before.messages)
        before = state


def _new_answers(state: _State, known: Mapping[_Key, BaseMessage]) -> Iterator[_Answer]:
    keys = list(state.messages)
    messages = list(state.messages.values())
    new = [
        place
        for place, message in enumerate(messages)
        if isinstance(message, AIMessage) and keys[place] not in known
    ]
    for place in new:
        message = messages[place]
        if isinstance(message, AIMessage):
            # What is remembered was bound for the last of them.
            bound = state.bound if place == new[-1] else None
            yield _Answer(keys[place], message, state, messages[:place], bound)


def _owners(made: Mapping[str, Iterable[_Answer]]) -> dict[_Key, tuple[str, str]]:
    """Return for each answer the first checkpoint that has it, and that one's namespace."""
    owners: dict[_Key, tuple[str, str]] = {}
    for namespace, answers in made.items():
        for each in answers:
            owner = (each.state.id, namespace)
            if each.message.id:  # Without one, it cannot be told from another's.
                owners[each.key] = min(owners.get(each.key, owner), owner)
    return owners


def _steps(
    thread: str,
    namespace: str,
    answers: Iterable[_Answer],
    owners: Mapping[_Key, tuple[str, str]],
) -> Iterator[Step]:
    own = (each for each in answers if owners.get(each.key, ("", namespace))[1] == namespace)
    for number, answer in enumerate(own, start=1):
        calls = read_conversation([answer.message]).calls
        names = dict.fromkeys(call.name for call in reversed(calls))
        yield Step(
            thread=thread,
            namespace=namespace,
            number=number,
            time=answer.state.time,
            read=answer.read,
            called=tuple(names),
            bound=answer.bound,
        )


def _configured(config: RunnableConfig | None, key: str) -> str:
    return str((config or {}).get("configurable", {}).get(key) or "")


def _key(place: int, message: BaseMessage) -> _Key:
    """Name a message by its id, or by its place and words where it has none.

    A name is in all checkpoints after: one object of it is kept.
    """
    return sys.intern(message.id or f"{place}:{message.type}:{message_text(message)}")
