"""Tools in their order, with the places some have -> places for all, few of them new, out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

GAP = 1 << 40
"""How far apart places are given out, so that others fit in between; a bigint holds millions."""

_STEP = 1 << 20  # In between: tools that come one by one, each behind the last, find room for long.


def placed(known: Sequence[int | None]) -> list[int]:
    """Return a place for each of some things, growing in their order.

    As many as can keep the place they have; the others go in between. Where there is no room all
    are placed anew, `GAP` apart.

    Args:
        known: The place that each has, in the order they are wanted; None for none. No two are
            the same.

    Returns:
        Their places.
    """
    kept = _longest_growing(known)
    if not kept:
        return _apart(len(known))
    first, last = kept[0], kept[-1]
    places: list[int] = [place or 0 for place in known]
    for place in range(first):
        places[place] = places[first] - GAP * (first - place)
    for place in range(last + 1, len(known)):
        places[place] = places[last] + GAP * (place - last)
    for before, after in pairwise(kept):
        between = after - before - 1
        step = min((places[after] - places[before]) // (between + 1), _STEP)
        if not step and between:
            return _apart(len(known))
        for number in range(1, between + 1):
            places[before + number] = places[before] + step * number
    return places


def _apart(count: int) -> list[int]:
    return [GAP * (number + 1) for number in range(count)]


def _longest_growing(known: Sequence[int | None]) -> list[int]:
    """Return where the longest growing run of places stands, not counting what is in between.

    For each length the smallest place that a run of it can end with is kept, as in patience
    sorting.
    """
    ends: list[int] = []
    at: list[int] = []
    before: list[int] = [-1] * len(known)
    for index, place in enumerate(known):
        if place is None:
            continue
        length = bisect_left(ends, place)
        before[index] = at[length - 1] if length else -1
        ends[length : length + 1] = [place]
        at[length : length + 1] = [index]
    run = []
    index = at[-1] if at else -1
    while index >= 0:
        run.append(index)
        index = before[index]
    return run[::-1]
