"""Selections of others' words, again, and nobody told of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from langsmith import tracing_context


@contextmanager
def untraced() -> Iterator[None]:
    """Send no runs to LangSmith, even where the environment says so: they were sent then.

    Yields:
        Nothing.
    """
    with tracing_context(enabled=False):
        yield
