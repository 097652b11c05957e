"""Results in -> a chart of them out."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from langchain_toolrag.errors import SourceError
from langchain_toolrag.evaluation.evaluate import SetResult
from langchain_toolrag.evaluation.output import refuse_unwritable, write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SUFFIXES = (".png", ".svg")
_BARS = {
    "recall@1": "R@1",
    "recall@3": "R@3",
    "recall@5": "R@5",
    "recall@10": "R@10",
    "completeness@10": "all\n@10",
}
_COLUMNS = 3
_INCHES = (4.2, 2.8)
_BARS_WIDTH = 0.8  # Of the place each measure has.


def refuse_unplottable(path: Path) -> None:
    """Say now that a chart could not be written, rather than after the work.

    Args:
        path: The chart's file.

    Raises:
        SourceError: If its suffix is neither .png nor .svg, it cannot be written, or matplotlib is
            not installed.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise SourceError(str(path), f"wanted a file that ends in {' or '.join(_SUFFIXES)}")
    refuse_unwritable(path)
    if importlib.util.find_spec("matplotlib") is None:
        raise SourceError(
            str(path),
            "a chart needs matplotlib, which is not installed: "
            "pip install 'langchain-toolrag[plot]'",
        )


def plot(results: Mapping[str, Sequence[SetResult]], path: Path) -> None:
    """Draw recall and completeness as bars, a panel a set, the contenders side by side.

    Args:
        results: Results by contender, each for the same sets in the same order.
        path: The file to write, `.png` or `.svg`.

    Raises:
        SourceError: If it cannot be written.
    """
    from matplotlib.figure import Figure  # An extra, and half a second of import.

    sets = list(zip(*results.values(), strict=True))
    columns = min(_COLUMNS, len(sets))
    rows = -(-len(sets) // columns)
    figure = Figure(figsize=(_INCHES[0] * columns, _INCHES[1] * rows + 0.4), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for axes, of_the_set in zip(grid.flat, sets, strict=False):
        _draw(axes, of_the_set)
    for axes in grid.flat[len(sets) :]:
        axes.set_visible(False)
    legend = grid.flat[0].get_legend_handles_labels()
    figure.legend(*legend, loc="outside upper center", ncols=len(results))
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:].lower(), dpi=150)
    write_whole(path, drawn.getvalue())


def _draw(axes: Axes, results: Sequence[SetResult]) -> None:
    width = _BARS_WIDTH / len(results)
    for number, result in enumerate(results):
        values = [result.measures[name] or 0.0 for name in _BARS]
        shift = (number - (len(results) - 1) / 2) * width
        bars = axes.bar(
            [place + shift for place in range(len(_BARS))], values, width, label=result.contender
        )
        axes.bar_label(bars, fmt="%.2f", fontsize=7, padding=1)
    title = f"{results[0].name} ({len(results[0].queries)} queries, {results[0].tools} tools)"
    axes.set_title(title, fontsize=9, parse_math=False)
    axes.set_xticks(range(len(_BARS)), list(_BARS.values()), fontsize=8)
    axes.set_ylim(0, 1.1)
    axes.spines[["top", "right"]].set_visible(False)
