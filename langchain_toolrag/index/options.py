"""What an index is made of; saved with it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from langchain_toolrag.index.analysis import Analyser

ToolText: TypeAlias = Literal["plain", "json"]
"""`plain` embeds the views of a tool, in words; `json` one text, its definition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """Which texts of a tool are indexed, and how.

    The weights of the views add up to 1; a tool without a description shares that view's
    weight among the others. They count where `tool_text` is `plain`.

    Attributes:
        full: Weight of the vector of the whole text.
        name: Weight of the vector of server and name.
        description: Weight of the vector of the description.
        server_in_text: Whether the server's name is part of what is indexed.
        analyser: How lexical search reads texts and queries.
        tool_text: How a tool is written for the embedding model. `json` is for large models that
            know JSON, such as Qwen3-Embedding: server, name, description and arguments as one
            object, in this order; MiniLM wants `plain`.

    Raises:
        ValueError: If a weight is negative or all are 0, or `tool_text` is none of these.
    """

    full: float = 0.5
    name: float = 0.25
    description: float = 0.25
    server_in_text: bool = True
    analyser: Analyser = "stemmed"
    tool_text: ToolText = "plain"

    def __post_init__(self) -> None:
        weights = (self.full, self.name, self.description)
        if min(weights) < 0 or not sum(weights) > 0:
            raise ValueError(f"view weights are {weights}; wanted none below 0 and one above")
        if self.tool_text not in get_args(ToolText):
            raise ValueError(f"tool_text is {self.tool_text!r}; wanted 'plain' or 'json'")

    @classmethod
    def classic(cls) -> IndexOptions:
        """Return ToolRAG's index: one vector a tool, no server in it, BM25 over raw words."""
        return cls(full=1, name=0, description=0, server_in_text=False, analyser="raw")

    def as_json(self) -> dict[str, Any]:
        """Return the options as JSON values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
