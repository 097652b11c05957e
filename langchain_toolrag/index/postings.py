"""Words of numbered tools in -> per word, the tools that have it, out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Slots: TypeAlias = NDArray[np.intp]
"""Shape `(n,)`: numbers that tools were given, each once, from 0."""


class Posting(NamedTuple):
    """The tools that have one word.

    Attributes:
        slots: Their slots, ascending; at least one.
        values: What the word is worth in each, in the order of `slots`; above 0.
    """

    slots: NDArray[np.int32]
    values: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """The posting of every word; immutable. A changed copy shares what did not change.

    Attributes:
        by_word: The postings, by word.
    """

    by_word: Mapping[str, Posting] = field(default_factory=dict)

    def with_tools(self, first: int, tools: Sequence[Mapping[str, int]]) -> Postings:
        """Return a copy with tools added.

        Args:
            first: Slot of the first; the others follow. It is above all that are there.
            tools: Per tool, what its words are worth.

        Returns:
            The copy.
        """
        following = dict(self.by_word)
        for word, added in _gathered(first, tools).items():
            known = following.get(word)
            following[word] = added if known is None else _joined(known, added)
        return Postings(following)

    def without(self, slots: Iterable[int], words: Iterable[str]) -> Postings:
        """Return a copy without tools.

        Args:
            slots: Their slots.
            words: Every word that any of them has.

        Returns:
            The copy.
        """
        gone = np.fromiter(slots, np.int32)
        following = dict(self.by_word)
        for word in set(words):
            known = following[word]
            stays = ~np.isin(known.slots, gone)
            if stays.any():
                following[word] = Posting(known.slots[stays], known.values[stays])
            else:
                del following[word]
        return Postings(following)

    def has(self, word: str, slots: Slots) -> NDArray[np.bool_]:
        """Return which of some slots have a word, in the order of `slots`."""
        posting = self.by_word.get(word)
        if posting is None:
            return np.zeros(len(slots), np.bool_)
        known = posting.slots
        places = np.searchsorted(known, slots.astype(np.int32))
        found: NDArray[np.bool_] = known[np.minimum(places, len(known) - 1)] == slots
        return found


def _gathered(first: int, tools: Sequence[Mapping[str, int]]) -> dict[str, Posting]:
    gathered: dict[str, tuple[list[int], list[int]]] = {}
    for slot, worth in enumerate(tools, first):
        for word, value in worth.items():
            slots, values = gathered.setdefault(word, ([], []))
            slots.append(slot)
            values.append(value)
    return {word: Posting(*map(_array, lists)) for word, lists in gathered.items()}


def _array(numbers: Sequence[int]) -> NDArray[np.int32]:
    return np.array(numbers, np.int32)


def _joined(first: Posting, second: Posting) -> Posting:
    parts: Any = zip(first, second, strict=True)
    return Posting(*map(np.concatenate, parts))
