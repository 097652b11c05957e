"""What the caller of a selection knows of it before it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_toolrag.types import ToolDocument, ToolId


@dataclass(frozen=True, slots=True)
class About:
    """What is known of a selection, or a search, before it is made.

    Attributes:
        options: The options that differ from the defaults, by name.
        heads: Digest of the heads that answer; empty for none.
        index: The version of the index that answers.
        catalogue: How many tools there are to choose from.
        describe: Returns a tool's document; None for a tool that is gone. Called only if somebody
            listens.
    """

    options: Mapping[str, Any]
    heads: str
    index: str
    catalogue: int
    describe: Callable[[ToolId], ToolDocument | None]
