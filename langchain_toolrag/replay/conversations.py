"""Stored conversations and options -> what would have been bound at each model step out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_toolrag.replay.binders import Binder
from langchain_toolrag.replay.checkpoints import MESSAGES_KEY, Step, Thread, read_thread, thread_ids
from langchain_toolrag.replay.moments import (
    STEPS,
    THEN,
    A,
    B,
    Binding,
    Moment,
    Replay,
    Side,
    Tally,
    binding,
    binding_then,
    called_tools,
)
from langchain_toolrag.replay.untraced import untraced
from langchain_toolrag.selection.conversation import read_conversation

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

_Memories: TypeAlias = dict[Side, Mapping[str, Any] | None]


def replay_threads(
    saver: BaseCheckpointSaver[Any],
    options: Mapping[Side, Binder],
    *,
    threads: Iterable[str] | None = None,
    messages_key: str = MESSAGES_KEY,
    progress: Callable[[str], object] | None = None,
) -> Replay:
    """Select again, under other options, what was selected in stored conversations.

    A conversation is walked from its start, step by step, each selection with the memory of the one
    before, as an agent does it. What an agent passes besides the messages is not stored: a filter,
    a `tool_choice`, tools of other middlewares, whether it searched at all (`"deferred"`).

    Example:
        >>> contenders = {A: read_contender("default"), B: read_contender("new.json")}
        >>> made = binders(contenders, tools, models_for([*contenders.values()], cache_dir))
        >>> replay = replay_threads(PostgresSaver(connection), made)

    Args:
        saver: The conversations, whatever keeps them; nothing is written.
        options: The options with the agent's tools: `A` and `B`, compared with each other, or `A`
            alone, compared with what was bound then, where the checkpoints say so.
        threads: Names of threads; None for all, see `checkpoints.thread_ids`.
        messages_key: Where in the graph's state the messages are.
        progress: Told each thread that is done.

    Returns:
        The model steps.

    Raises:
        EmbeddingError: If the model fails.
    """
    tally, moments, number = Tally(), list[Moment](), 0
    with untraced():
        for name in thread_ids(saver) if threads is None else threads:
            thread = read_thread(saver, name, messages_key)
            number += 1
            moments += _moments(thread, options, tally)
            if progress:
                progress(name)
    return Replay(
        STEPS,
        {side: binder.contender.name for side, binder in options.items()},
        (A, B) if B in options else (THEN, A),
        tuple(moments),
        tally,
        number,
    )


def _moments(thread: Thread, options: Mapping[Side, Binder], tally: Tally) -> Iterator[Moment]:
    if thread.problem:
        tally.unreadable[thread.id] = thread.problem
    elif not thread.steps:
        tally.left_out["threads without an answer of a model"] += 1
    memories: _Memories = {}
    namespace = ""
    for step in thread.steps:
        if step.namespace != namespace:  # Each run of a subgraph begins anew.
            memories, namespace = {}, step.namespace
        yield _moment(step, options, memories, tally)


def _moment(
    step: Step, options: Mapping[Side, Binder], memories: _Memories, tally: Tally
) -> Moment:
    catalogue = next(iter(options.values())).catalogue
    bound: dict[Side, Binding] = {}
    if step.bound is not None:
        bound[THEN] = binding_then(sorted(step.bound), catalogue, tally)
    for side, binder in options.items():
        chosen = binder.select(step.read, memories.get(side))
        memories[side] = chosen.state
        bound[side] = binding(chosen.tools, catalogue)
    place: dict[str, str | int] = {"thread": step.thread, "step": step.number, "time": step.time}
    if step.namespace:
        place["namespace"] = step.namespace
    called = called_tools(dict.fromkeys(step.called, ""), catalogue, tally)
    return Moment(place, read_conversation(list(step.read)).query, bound, called)
