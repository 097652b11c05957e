"""A progress bar on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm
from typing_extensions import Self


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how far something is with tools; on a terminal only.

    Args:
        what: What is being done.

    Yields:
        To be called with how many tools are done and how many there are.
    """
    with tqdm(desc=what, unit=" tools", disable=None, leave=False) as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield advance


class TaskBar:
    """A progress bar on a terminal, a new one whenever something else is being done."""

    def __init__(self) -> None:
        self._doing = ""
        self._bar = tqdm(disable=True)

    def __call__(self, doing: str, done: int, total: int) -> None:
        """Show how far something is.

        Args:
            doing: What is being done.
            done: How much of it is done.
            total: How much there is.
        """
        if doing != self._doing:
            self._bar.close()
            self._doing = doing
            self._bar = tqdm(desc=doing, total=total, disable=None, leave=False)
        self._bar.update(done - self._bar.n)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()
