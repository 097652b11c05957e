"""`toolrag learn`: ingested tools and a usage log in -> heads on trial out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from langchain_toolrag.cli.arguments import Commands, add_model_arguments, at_least_one
from langchain_toolrag.cli.directory import rag_over, shown_warnings
from langchain_toolrag.cli.folders import (
    add_heads_argument,
    add_usage_argument,
    as_options,
    needed_heads_folder,
    needed_usage_folder,
)
from langchain_toolrag.cli.progress import TaskBar
from langchain_toolrag.cli.stores import add_store_arguments, opened_store
from langchain_toolrag.evaluation.labelled import read_all_labelled
from langchain_toolrag.evaluation.output import refuse_unwritable, write_whole
from langchain_toolrag.evaluation.plot import refuse_unplottable
from langchain_toolrag.trial.directory import HeadsDirectory

if TYPE_CHECKING:
    from langchain_toolrag.index.adapter import Adapter
    from langchain_toolrag.learning.held_out import Difference
    from langchain_toolrag.learning.learn import Learned
    from langchain_toolrag.learning.report import Course, LearnReport

_NOTHING_LEARNED = 1


def register(commands: Commands) -> None:
    """Add the command to the parser."""
    learn = commands.add_parser("learn", help="learn from what was searched for and called")
    learn.set_defaults(run=_learn)
    add_store_arguments(learn)
    add_usage_argument(learn)
    add_heads_argument(learn)
    learn.add_argument(
        "--guard",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="labelled sets, as for eval, on which nothing much may be lost",
    )
    learn.add_argument(
        "--max-drop",
        type=_share,
        default=0.01,
        metavar="NDCG",
        help="how much may be, 0 to 1 (default: %(default)s)",
    )
    learn.add_argument(
        "--general",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="labelled sets that are learned beside the log, not to be forgotten",
    )
    learn.add_argument("--promote", action="store_true", help="use what is learned at once")
    learn.add_argument("--steps", type=at_least_one, default=300, help="default: %(default)s")
    learn.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    learn.add_argument("--report", type=Path, metavar="FILE.json", help="write the figures")
    learn.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw them, .png or .svg (extra: plot)"
    )
    add_model_arguments(learn)


def _learn(arguments: argparse.Namespace) -> int:
    _refuse_files(arguments)
    usage, heads = needed_usage_folder(arguments), needed_heads_folder(arguments)
    learned = _learned(usage, arguments)
    _write_files(arguments, learned.report)
    print("\n".join(_as_lines(learned.report)))
    if learned.adapter is None:
        print(f"nothing is put on trial: {learned.report.refusal}", file=sys.stderr)
        return _NOTHING_LEARNED
    print(_put_on_trial(HeadsDirectory(heads), learned.adapter, arguments))
    return 0


def _learned(usage: Path, arguments: argparse.Namespace) -> Learned:
    guard, general = read_all_labelled(arguments.guard), read_all_labelled(arguments.general)
    with (
        shown_warnings(),
        opened_store(arguments) as store,
        rag_over(store.tools(), store, arguments) as rag,
        TaskBar() as bar,
    ):
        from langchain_toolrag.learning.learn import LearnOptions, learn  # Imports torch.

        return learn(
            rag,
            usage,
            options=LearnOptions(steps=arguments.steps, seed=arguments.seed),
            guard=guard,
            max_drop=arguments.max_drop,
            general=general,
            progress=bar,
        )


def _put_on_trial(heads: HeadsDirectory, adapter: Adapter, arguments: argparse.Namespace) -> str:
    digest = heads.put_on_trial(adapter)
    compare = f"toolrag ab {as_options(arguments)}"
    if arguments.promote:
        heads.promote(candidate=digest)
        return f"in use: heads {digest[:12]}; to undo it: `{compare} --roll-back`"
    return f"on trial: heads {digest[:12]}; to see how they do: `{compare}`"


def _refuse_files(arguments: argparse.Namespace) -> None:
    if arguments.plot:
        refuse_unplottable(arguments.plot)
    if arguments.report:
        refuse_unwritable(arguments.report)


def _write_files(arguments: argparse.Namespace, report: LearnReport) -> None:
    if arguments.plot:
        from langchain_toolrag.learning.plot import plot_learning

        plot_learning(report, arguments.plot)
    if arguments.report:
        written = json.dumps(report.as_json(), ensure_ascii=False, indent=2)
        write_whole(arguments.report, written.encode() + b"\n")


def _as_lines(report: LearnReport) -> Iterator[str]:
    yield f"{report.examples:,} searches with a called tool, over {report.tools:,} tools"
    for what, number in report.skipped.items():
        yield f"  of no use: {number:,} {what}"
    yield f"mean reciprocal rank of the called tools in the newest {report.held_out:,}"
    yield f"  {'base':10} {report.base:.4f}"
    for name, (course, found) in report.courses.items():
        yield _course(name, course, found)
    for guarded in report.guard:
        yield f"NDCG@10 of {guarded.name}: {guarded.before:.4f} to {guarded.after:.4f}"


def _course(name: str, course: Course, found: Difference) -> str:
    better = "better than base" if name == "candidate" else "candidate better"
    return (
        f"  {name:10} {course.value:.4f}  scale {course.scale:g}, {better} by {found.mean:+.4f} "
        f"with a standard error of {found.error:.4f}"
    )


def _share(text: str) -> float:
    """Read a number from 0 to 1; anything else is an error of argparse."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return share
