"""A progress bar on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm


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
