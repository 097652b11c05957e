"""Keep objects with locks and threads usable in a forked child."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Protocol


class Forkable(Protocol):
    """Something with locks or timers that do not survive a fork."""

    def after_fork(self) -> None:
        """Make new locks and drop timers; called in the child."""


_forkables: weakref.WeakSet[Forkable] = weakref.WeakSet()


def reset_after_fork(forkable: Forkable) -> None:
    """Have an object's `after_fork` called in every forked child, as long as it lives."""
    _forkables.add(forkable)


def _after_fork_in_child() -> None:
    for forkable in list(_forkables):
        forkable.after_fork()


def call_after_fork(function: Callable[[], None]) -> None:
    """Have a function called in every forked child; on Windows, which has no fork, never."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


call_after_fork(_after_fork_in_child)
