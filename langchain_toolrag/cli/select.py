"""`toolrag select`: a request and its history in -> the tools for it and why out."""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from langchain_toolrag.catalogue.sources.files import read_tools
from langchain_toolrag.catalogue.sources.json_files import read_json
from langchain_toolrag.cli.arguments import (
    Commands,
    add_cache_argument,
    add_model_arguments,
    add_tools_argument,
    at_least_one,
    model_of,
)
from langchain_toolrag.cli.progress import progress_bar
from langchain_toolrag.errors import SourceError
from langchain_toolrag.selection.options import SelectionOptions
from langchain_toolrag.selection.selector import by_score
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.types import SelectedTool, Selection


def register(commands: Commands) -> None:
    """Add the command to the parser."""
    select = commands.add_parser("select", help="choose tools for a request and say why")
    select.set_defaults(run=_select)
    select.add_argument("query", metavar="QUERY", help="the user's words")
    add_tools_argument(select)
    select.add_argument(
        "--history", type=Path, metavar="FILE", help="JSON list of the messages before the query"
    )
    select.add_argument("--k", type=at_least_one, metavar="N", help="how many (default: adaptive)")
    select.add_argument("--classic", action="store_true", help="ToolRAG's algorithm")
    add_model_arguments(select)
    add_cache_argument(select)
    select.add_argument("--json", action="store_true", help="print JSON")


def _select(arguments: argparse.Namespace) -> int:
    messages = [*_history(arguments.history), {"role": "user", "content": arguments.query}]
    tools = read_tools(arguments.tools)
    model = model_of(arguments)
    if arguments.classic:
        model["index_options"] = None  # ToolRAG's algorithm has an index of its own.
    with ToolRAG(tools, options=_options(arguments), **model) as rag:
        if not arguments.lexical:
            _embed(rag)
        start = time.perf_counter()
        selection = rag.select(messages)
        milliseconds = (time.perf_counter() - start) * 1000
        print(
            json.dumps(_as_json(selection, milliseconds), ensure_ascii=False, indent=2)
            if arguments.json
            else _as_table(selection, len(rag.catalogue), milliseconds)
        )
    return 0


def _embed(rag: ToolRAG) -> None:
    """Make the vectors, with a progress bar on a terminal, and warm the model up."""
    with progress_bar("embedding") as advance:
        rag.index(progress=advance)
    rag.select("warm up")  # A model's first query is slow, and is not what is to be timed.


def _options(arguments: argparse.Namespace) -> SelectionOptions:
    if arguments.classic:
        return SelectionOptions.classic()
    return SelectionOptions(k=arguments.k)


def _history(path: Path | None) -> list[Any]:
    if path is None:
        return []
    messages = read_json(path)
    if not isinstance(messages, list):
        raise SourceError(str(path), "wanted a list of messages")
    return messages


def _as_json(selection: Selection, milliseconds: float) -> dict[str, Any]:
    return {
        "query": selection.query,
        "tools": [_without_nan(asdict(tool)) for tool in by_score(selection)],
        "tokens": selection.tokens,
        "catalogue_tokens": selection.catalogue_tokens,
        "degraded": selection.degraded,
        "milliseconds": round(milliseconds, 2),
    }


def _without_nan(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: a score that there is not becomes null."""
    return {
        key: None if isinstance(value, float) and math.isnan(value) else value
        for key, value in values.items()
    }


def _as_table(selection: Selection, catalogue_size: int, milliseconds: float) -> str:
    tools = by_score(selection)
    width = max([len("tool"), *(len(tool.name) for tool in tools)])
    lines = [f"{'tool':{width}}  {'score':>6}  {'dense':>6}  {'words':>6}  {'names':>6}  reason"]
    lines += [_row(tool, width) for tool in tools]
    saved = 1 - selection.tokens / max(1, selection.catalogue_tokens)
    lines += [
        "",
        f"{len(tools)} of {catalogue_size} tools, {selection.tokens:,} of "
        f"{selection.catalogue_tokens:,} tokens ({saved:.1%} saved), {milliseconds:.1f} ms",
        f"searched for: {selection.query}",
    ]
    if selection.degraded:
        lines.append(f"degraded: {selection.degraded}")
    return "\n".join(lines)


def _row(tool: SelectedTool, width: int) -> str:
    scores = (tool.score, tool.dense, tool.lexical, tool.keyword)
    cells = ("-" if math.isnan(score) else f"{score:.3f}" for score in scores)
    return f"{tool.name:{width}}  {'  '.join(f'{cell:>6}' for cell in cells)}  {tool.source}"
