"""Results in -> a table that a person reads out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from langchain_toolrag.evaluation.comparison import CONFIDENCE, Comparison
from langchain_toolrag.evaluation.evaluate import SetResult, mean_measures
from langchain_toolrag.evaluation.labelled import LabelledQuery
from langchain_toolrag.evaluation.measures import Measures
from langchain_toolrag.evaluation.report import Results

_SHOWN = 90  # Characters of a query that a line has room for.
_GAP = "  "


@dataclass(frozen=True, slots=True)
class _Column:
    """A measure's column: the group and title above it, and how values are written."""

    measure: str
    group: str
    title: str
    form: str = ".3f"


_COLUMNS = (
    _Column("recall@1", "ranking", "R@1"),
    _Column("recall@3", "ranking", "R@3"),
    _Column("recall@5", "ranking", "R@5"),
    _Column("recall@10", "ranking", "R@10"),
    _Column("ndcg@10", "ranking", "NDCG@10"),
    _Column("mrr", "ranking", "MRR"),
    _Column("completeness@10", "ranking", "all@10"),
    _Column("wrong_sibling", "ranking", "sibling"),
    _Column("bound", "bound", "tools", ".1f"),
    _Column("bound_recall", "bound", "recall"),
    _Column("bound_completeness", "bound", "all"),
    _Column("milliseconds_p50", "time", "ms p50", ".1f"),
)

_LEGEND = """\
ranking  R@k: share of the needed tools among the first k. all@10: share of queries with all of
         theirs among the first 10. sibling: share of queries where a similar tool of the same
         server stands above a needed one; lower is better.
bound    What an agent would be given: how many tools, the share of the needed ones among
         them, the share of queries with all of theirs.
time     Milliseconds, the median, of the search for what to bind. Embeddings were kept from
         before: embedding the query is not counted."""


def as_table(results: Results, comparisons: Sequence[Comparison] = ()) -> str:
    """Return results as text: a row for each set and contender, with several sets their means.

    Args:
        results: The results.
        comparisons: What to say of below the table, in order.

    Returns:
        The text, without a line end.
    """
    names = list(results)
    rows = [_row(result) for of_a_set in zip(*results.values(), strict=True) for result in of_a_set]
    if len(results[names[0]]) > 1:
        rows += [_mean_row(name, results[name]) for name in names]
    titles = ["set", "options", "tools", "queries", *(column.title for column in _COLUMNS)]
    widths = [max(map(len, cells)) for cells in zip(titles, *rows, strict=True)]
    lines = [_group_line(widths), *(_line(cells, widths) for cells in [titles, *rows])]
    return "\n\n".join(["\n".join(lines), _LEGEND, *map(_paragraph, comparisons)])


def _row(result: SetResult) -> list[str]:
    size = [str(result.tools), str(len(result.queries))]
    return [result.name, result.contender, *size, *_cells(result.measures)]


def _mean_row(contender: str, results: Sequence[SetResult]) -> list[str]:
    means = mean_measures([result.measures for result in results])
    return ["mean", contender, "", "", *_cells(means)]


def _cells(measures: Measures) -> list[str]:
    values = ((measures[column.measure], column.form) for column in _COLUMNS)
    return ["-" if value is None else format(value, form) for value, form in values]


def _group_line(widths: Sequence[int]) -> str:
    """Return the line above the titles, which says what columns are about."""
    heads = len(widths) - len(_COLUMNS)
    line = " " * (sum(widths[:heads]) + len(_GAP) * (heads - 1))
    columns = zip(_COLUMNS, widths[heads:], strict=True)
    for group, members in groupby(columns, key=lambda member: member[0].group):
        inside = [width for _, width in members]
        line += _GAP + f" {group} ".center(sum(inside) + len(_GAP) * (len(inside) - 1), "-")
    return line


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return a row: the set and the contender to the left, numbers to the right."""
    padded = [
        cell.ljust(width) if place < 2 else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return _GAP.join(padded)


def _paragraph(comparison: Comparison) -> str:
    first, second = comparison.first, comparison.second
    lines = [
        f"{comparison.name}: {second} against {first}",
        f"  NDCG@10 {comparison.difference:+.3f}{_GAP}{_interval(comparison)}",
        f"  {second} is better on {comparison.better} queries, worse on {comparison.worse}, equal "
        f"on {comparison.equal}; sign test p = {comparison.p_value:.2g}",
        f"  all@10 flipped: {len(comparison.gained)} gained, {len(comparison.lost)} lost",
        *(f"    + {_shown(query)}" for query in comparison.gained),
        *(f"    - {_shown(query)}" for query in comparison.lost),
    ]
    return "\n".join(lines)


def _interval(comparison: Comparison) -> str:
    if comparison.interval is None:
        return "(one query: no interval)"
    low, high = comparison.interval
    return f"({CONFIDENCE:.0%} paired bootstrap interval {low:+.3f} to {high:+.3f})"


def _shown(query: LabelledQuery) -> str:
    text = " ".join(query.text.split())
    cut = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
    return f"{query.id}{_GAP}{cut}"
