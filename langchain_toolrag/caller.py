"""A run's config in -> whose conversation it is of out."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

from langchain_core.runnables import RunnableConfig


class Caller(NamedTuple):
    """Who asks.

    Attributes:
        session: Names the conversation, in plain; empty for unknown.
        tenant: Names whose data it is about, in plain; empty for unknown.
    """

    session: str = ""
    tenant: str = ""


def caller_of(config: RunnableConfig | None) -> Caller:
    """Return who asks: `thread_id` and `tenant_id` of a run's `configurable`, as text.

    Args:
        config: The run's config; None for none.

    Returns:
        The caller; what the config does not have, or has as blanks alone, is empty. Names that
        read the same are the same, as they are in the usage log.
    """
    configurable = (config or {}).get("configurable")
    if not isinstance(configurable, Mapping):
        return Caller()
    return Caller(_text(configurable.get("thread_id")), _text(configurable.get("tenant_id")))


def _text(value: object) -> str:
    return "" if value is None else unicodedata.normalize("NFC", str(value)).strip()
