"""A report in -> a chart of it out."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from langchain_toolrag.evaluation.output import write_whole
from langchain_toolrag.learning.report import LearnReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INCHES = (12.0, 3.6)
_BASE = {"color": "grey", "linestyle": "--", "label": "base"}


def plot_learning(report: LearnReport, path: Path) -> None:
    """Draw how learning went: loss and held-out figures over the steps, and the choice of scale.

    Args:
        report: The report.
        path: The file to write, `.png` or `.svg`.

    Raises:
        SourceError: If it cannot be written.
    """
    from matplotlib.figure import Figure  # An extra, and half a second of import.

    figure = Figure(figsize=_INCHES, layout="constrained")
    losses, checks, scales = figure.subplots(1, 3)
    for name, (course, _) in report.courses.items():
        losses.plot(range(1, len(course.losses) + 1), course.losses, label=name)
        steps = {0: report.base, **course.checks}
        checks.plot(list(steps), list(steps.values()), marker="o", markersize=3, label=name)
        line = scales.plot(list(course.scales), list(course.scales.values()), label=name)
        scales.plot(course.scale, course.value, "o", color=line[0].get_color())
    for axes in (checks, scales):
        axes.axhline(report.base, **_BASE)
    _name(losses, "Loss of the examples", "step", "running mean")
    _name(checks, f"Newest {report.held_out} searches, at scale 1", "step", "mean reciprocal rank")
    _name(scales, "Choice of the scale", "scale (0: base)", "mean reciprocal rank")
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:].lower(), dpi=150)
    write_whole(path, drawn.getvalue())


def _name(axes: Axes, title: str, across: str, up: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(across, fontsize=9)
    axes.set_ylabel(up, fontsize=9)
    axes.legend(fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
