"""One body of code for sync and async callers.

A plan is a generator that yields what it has to wait for and is sent the answer. It holds
all the logic; `run` and `arun` differ only in how they wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

from langchain_toolrag.errors import ToolRAGError

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")
ResultT = TypeVar("ResultT")


def run(plan: Generator[RequestT, AnswerT, ResultT], ask: Callable[[RequestT], AnswerT]) -> ResultT:
    """Carry a plan out, blocking where it waits.

    Args:
        plan: The plan.
        ask: Answers one request; a `ToolRAGError` it raises is raised inside the plan.

    Returns:
        What the plan returns.
    """
    try:
        request = next(plan)
        while True:
            try:
                answer = ask(request)
            except ToolRAGError as error:
                request = plan.throw(error)
            else:
                request = plan.send(answer)
    except StopIteration as done:
        result: ResultT = done.value
        return result


async def arun(
    plan: Generator[RequestT, AnswerT, ResultT], ask: Callable[[RequestT], Awaitable[AnswerT]]
) -> ResultT:
    """Carry a plan out, awaiting where it waits; otherwise as `run`.

    Args:
        plan: The plan.
        ask: Answers one request.

    Returns:
        What the plan returns.
    """
    try:
        request = next(plan)
        while True:
            try:
                answer = await ask(request)
            except ToolRAGError as error:
                request = plan.throw(error)
            else:
                request = plan.send(answer)
    except StopIteration as done:
        result: ResultT = done.value
        return result
