"""`toolrag eval`: tools and labelled queries in -> how well the tools are found out."""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Sequence
from pathlib import Path

from langchain_toolrag.cli.arguments import (
    Commands,
    add_cache_argument,
    add_model_arguments,
    model_of,
)
from langchain_toolrag.cli.contenders import OPTIONS, indexed, models_of, refuse_without_model
from langchain_toolrag.cli.progress import TaskBar
from langchain_toolrag.evaluation.comparison import Comparison, compare
from langchain_toolrag.evaluation.contender import Contender, read_contender
from langchain_toolrag.evaluation.evaluate import evaluate
from langchain_toolrag.evaluation.labelled import (
    LabelledSet,
    read_all_labelled,
    read_labelled_files,
)
from langchain_toolrag.evaluation.output import refuse_unwritable, write_whole
from langchain_toolrag.evaluation.plot import plot, refuse_unplottable
from langchain_toolrag.evaluation.report import Results, as_json, as_lines
from langchain_toolrag.evaluation.table import as_table


def register(commands: Commands) -> None:
    """Add the command to the parser."""
    command = commands.add_parser("eval", help="measure how well labelled queries find their tools")
    command.set_defaults(run=functools.partial(_evaluate, command))
    command.add_argument(
        "directories",
        nargs="*",
        type=Path,
        metavar="DIR",
        help="a folder with tools.jsonl and queries.jsonl",
    )
    command.add_argument(
        "--tools", metavar="SOURCE", help="instead of a DIR: tools, as for `toolrag select`"
    )
    command.add_argument("--queries", type=Path, metavar="FILE", help="and their queries.jsonl")
    contenders = command.add_mutually_exclusive_group()
    contenders.add_argument("--options", default="default", metavar="OPTIONS", help=OPTIONS)
    contenders.add_argument(
        "--compare", nargs=2, metavar=("A", "B"), help="two of these, and how B differs from A"
    )
    add_model_arguments(command)
    add_cache_argument(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument(
        "--per-query", type=Path, metavar="FILE", help="write a line of JSON for every query"
    )
    command.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw a chart, .png or .svg (extra: plot)"
    )


def _evaluate(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    model = model_of(arguments)
    contenders = [indexed(each, model["index_options"]) for each in _contenders(parser, arguments)]
    _refuse_files(arguments)
    sets = _sets(parser, arguments)
    models = models_of(contenders, model, arguments.cache)
    with TaskBar() as bar:
        results = {
            each.name: [evaluate(labelled, each, models[each.name], bar) for labelled in sets]
            for each in contenders
        }
    comparisons = list(map(compare, *results.values())) if arguments.compare else []
    _write_files(arguments, results)
    print(_report(results, comparisons, as_values=arguments.json))
    return 0


def _contenders(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> list[Contender]:
    names: Sequence[str] = arguments.compare or [arguments.options]
    if len(set(names)) < len(names):
        parser.error(f"--compare: {names[0]} is given twice; give two different ones")
    contenders = [read_contender(name) for name in names]
    refuse_without_model(parser, arguments, contenders)
    return contenders


def _sets(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> list[LabelledSet]:
    directories, tools, queries = arguments.directories, arguments.tools, arguments.queries
    if (tools is None) != (queries is None):
        parser.error("--tools and --queries belong together: give both")
    if bool(directories) == bool(tools):
        parser.error("give either folders, or --tools and --queries")
    if tools is None:
        return read_all_labelled(directories)
    return [read_labelled_files(tools, queries, name=queries.stem)]


def _refuse_files(arguments: argparse.Namespace) -> None:
    if arguments.plot:
        refuse_unplottable(arguments.plot)
    if arguments.per_query:
        refuse_unwritable(arguments.per_query)


def _write_files(arguments: argparse.Namespace, results: Results) -> None:
    if arguments.plot:
        plot(results, arguments.plot)
    if arguments.per_query:
        write_whole(arguments.per_query, as_lines(results))


def _report(results: Results, comparisons: Sequence[Comparison], *, as_values: bool) -> str:
    if as_values:
        return json.dumps(as_json(results, comparisons), ensure_ascii=False, indent=2)
    return as_table(results, comparisons)
