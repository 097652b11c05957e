"""What requests want of a catalogue, by vectors alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from langchain_toolrag.types import Vectors


@dataclass(frozen=True, slots=True)
class Example:
    """One request and what is known of tools for it. Tools are places of rows.

    Attributes:
        request: The place of its vector.
        wanted: The tools it wants, at least one, with how sure that is, above 0 and at most 1.
        unwanted: Tools that it was seen not to want.
        unknown: Tools of which nothing is known; they count neither way. Of all others it is taken
            that they are not wanted.
        weight: What the example counts, above 0.
    """

    request: int
    wanted: Mapping[int, float]
    unwanted: tuple[int, ...] = ()
    unknown: frozenset[int] = field(default_factory=frozenset)
    weight: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class ExampleSet:
    """Examples of one catalogue.

    Attributes:
        requests: Unit vectors, shape `(n, dim)`.
        rows: Rows of the tools (`index.rows`), shape `(tools, dim)`.
        examples: The examples; may be none.
    """

    requests: Vectors
    rows: Vectors
    examples: Sequence[Example]
