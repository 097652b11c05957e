"""`toolrag search`: a query in the search language in -> the tools for it out."""

from __future__ import annotations

import argparse
import json
from typing import Any

from langchain_toolrag.catalogue.sources.files import read_tools
from langchain_toolrag.cli.arguments import (
    Commands,
    add_model_arguments,
    add_tools_argument,
    at_least_one,
    model_of,
)
from langchain_toolrag.cli.progress import progress_bar
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.types import Finding, Hit

_DESCRIPTION = 80  # Characters of a description in the table.


def register(commands: Commands) -> None:
    """Add the command to the parser."""
    search = commands.add_parser("search", help="find tools as an agent's own search does")
    search.set_defaults(run=_search)
    search.add_argument(
        "query",
        metavar="QUERY",
        help="words, names, a server's name, select:NAME,NAME, or words with +word",
    )
    add_tools_argument(search)
    search.add_argument(
        "--max-results",
        type=at_least_one,
        metavar="N",
        default=5,
        help="at most so many (default: %(default)s); named tools are all found",
    )
    add_model_arguments(search)
    search.add_argument("--json", action="store_true", help="print JSON")


def _search(arguments: argparse.Namespace) -> int:
    with ToolRAG(read_tools(arguments.tools), **model_of(arguments)) as rag:
        if not arguments.lexical:
            with progress_bar("embedding") as advance:
                rag.index(progress=advance)
        finding = rag.find(arguments.query, arguments.max_results)
        print(
            json.dumps(_as_json(finding, rag), ensure_ascii=False, indent=2)
            if arguments.json
            else _as_table(finding, rag)
        )
    return 0


def _as_json(finding: Finding, rag: ToolRAG) -> dict[str, Any]:
    documents = {hit.id: rag.catalogue.entries[hit.id].document for hit in finding.hits}
    return {
        "tools": [
            {
                "id": hit.id,
                "name": documents[hit.id].bound_name,
                "description": documents[hit.id].description,
                "score": hit.score,
            }
            for hit in finding.hits
        ],
        "missing": list(finding.missing),
        "confidence": finding.confidence,
        "degraded": finding.degraded,
    }


def _as_table(finding: Finding, rag: ToolRAG) -> str:
    names = [rag.catalogue.entries[hit.id].document.bound_name for hit in finding.hits]
    width = max(map(len, ["tool", *names]))
    lines = [f"{'tool':{width}}  {'score':>6}  description"] if names else ["no tool was found"]
    lines += [_row(hit, rag, width) for hit in finding.hits]
    if finding.missing:
        lines.append(f"no tool is named {', '.join(finding.missing)}")
    if finding.confidence is not None and names:
        lines.append(f"\nconfidence {finding.confidence:.2f}")
    if finding.degraded:
        lines.append(f"degraded: {finding.degraded}")
    return "\n".join(lines)


def _row(hit: Hit, rag: ToolRAG, width: int) -> str:
    document = rag.catalogue.entries[hit.id].document
    line = " ".join(document.description.split())
    shown = line if len(line) <= _DESCRIPTION else f"{line[: _DESCRIPTION - 1]}…"
    return f"{document.bound_name:{width}}  {hit.score:>6.3f}  {shown}"
