"""One thing that keeps a tool from being found or called well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from langchain_toolrag.types import ToolId

Code: TypeAlias = Literal[
    "rejected",
    "duplicate-name",
    "renamed",
    "vague-name",
    "no-description",
    "placeholder-description",
    "short-description",
    "repeats-name",
    "long-description",
    "near-twin",
    "not-self-retrieving",
    "schema-not-object",
    "schema-required",
    "schema-untyped",
    "schema-undescribed",
    "schema-vague-parameter",
    "schema-long-enum",
    "schema-deep",
    "schema-large",
]
"""Names of the rules; what costs a tool most comes first."""

CODES: tuple[Code, ...] = get_args(Code)
"""Every code, in the order the findings of one tool come in."""

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that keeps a tool from being found or called well.

    Attributes:
        code: The rule that found it.
        tool: The tool's id.
        message: What was found, without the tool's id.
        suggestion: What the tool's author can do, one sentence.
        others: Ids of the other tools it is about.
    """

    code: Code
    tool: ToolId
    message: str
    suggestion: str
    others: tuple[ToolId, ...] = ()


def listed(names: tuple[str, ...] | list[str]) -> str:
    """Return the first three names for a message, and how many more there are."""
    shown, more = list(names[:_MOST_NAMED]), len(names) - _MOST_NAMED
    if more > 0:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
