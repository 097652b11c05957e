"""Results in -> JSON, and lines of it for every query, out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from langchain_toolrag.evaluation.comparison import COMPARED, Comparison
from langchain_toolrag.evaluation.evaluate import QueryResult, SetResult
from langchain_toolrag.evaluation.labelled import LabelledQuery
from langchain_toolrag.evaluation.measures import Measures

Results: TypeAlias = Mapping[str, Sequence[SetResult]]
"""Results by contender, each for the same sets in the same order."""

_DIGITS = 6


def as_json(results: Results, comparisons: Sequence[Comparison] = ()) -> dict[str, Any]:
    """Return results as JSON values.

    Args:
        results: The results.
        comparisons: Those of two contenders, one a set; empty for one contender.

    Returns:
        By set: its tools and queries (how many) and its measures. With comparisons, one such
        object by contender, and under `comparison` what the comparison says, by set.
    """
    by_contender: dict[str, Any] = {
        contender: {result.name: _set(result) for result in sets}
        for contender, sets in results.items()
    }
    if not comparisons:
        (only,) = by_contender.values()
        return dict(only)
    return by_contender | {"comparison": {each.name: _comparison(each) for each in comparisons}}


def as_lines(results: Results) -> bytes:
    """Return a line of JSON for every contender, set and query, in UTF-8.

    Args:
        results: The results.

    Returns:
        The lines; half a surrogate pair stays the escape it came as.
    """
    lines = (
        json.dumps(_query(result, each), ensure_ascii=False)
        for sets in results.values()
        for result in sets
        for each in result.queries
    )
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def _set(result: SetResult) -> dict[str, Any]:
    return {
        "tools": result.tools,
        "queries": len(result.queries),
        "measures": _rounded(result.measures),
    }


def _query(result: SetResult, each: QueryResult) -> dict[str, Any]:
    return {
        "set": result.name,
        "options": result.contender,
        "id": each.query.id,
        "query": each.query.text,
        "relevant": each.query.relevant,
        "ranking": each.answer.ranking,
        "bound": each.answer.bound,
        "measures": _rounded(each.measures),
        "milliseconds": round(each.answer.milliseconds, 2),
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    interval = comparison.interval
    shown = asdict(comparison) | {
        "measure": COMPARED,
        "difference": round(comparison.difference, _DIGITS),
        "interval": interval and [round(end, _DIGITS) for end in interval],
        "gained": _flipped(comparison.gained),
        "lost": _flipped(comparison.lost),
    }
    del shown["name"]  # It is the key.
    return shown


def _flipped(queries: Sequence[LabelledQuery]) -> list[dict[str, str]]:
    return [{"id": query.id, "query": query.text} for query in queries]


def _rounded(measures: Measures) -> dict[str, float | None]:
    return {
        name: None if value is None else round(value, _DIGITS) for name, value in measures.items()
    }
