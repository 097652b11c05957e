"""`toolrag search`: a query in the search language in -> the tools for it out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from langchain_toolrag.catalogue.sources.files import read_tools
from langchain_toolrag.cli.arguments import (
    Commands,
    add_cache_argument,
    add_model_arguments,
    at_least_one,
    model_of,
)
from langchain_toolrag.cli.directory import first_words, printable, rag_over, shown_warnings
from langchain_toolrag.cli.folders import add_heads_argument, heads_folder
from langchain_toolrag.cli.progress import progress_bar
from langchain_toolrag.cli.stores import add_store_arguments, opened_store, refuse_tenant
from langchain_toolrag.search.finding import closest_names
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.types import Finding, Hit


def register(commands: Commands) -> None:
    """Add the command to the parser."""
    search = commands.add_parser("search", help="find tools as an agent's own search does")
    search.set_defaults(run=_search)
    search.add_argument(
        "query",
        metavar="QUERY",
        help="words, names, a server's name, select:NAME,NAME, or words with +word",
    )
    where = add_store_arguments(
        search, help="what `toolrag ingest` wrote; its vectors are kept in it"
    )
    where.add_argument(
        "--tools",
        metavar="SOURCE",
        help="FILE.json, FILE.jsonl, FILE.py:ATTRIBUTE or module:attribute",
    )
    search.add_argument(
        "--max-results",
        type=at_least_one,
        metavar="N",
        default=5,
        help="at most so many (default: %(default)s); named tools are all found",
    )
    add_heads_argument(
        search,
        "rank by the heads in use there (default: heads in the directory; without one none)",
    )
    add_model_arguments(search)
    add_cache_argument(search)
    search.add_argument("--json", action="store_true", help="print JSON")


def _search(arguments: argparse.Namespace) -> int:
    with shown_warnings(), _opened_rag(arguments) as rag:
        if not arguments.lexical:
            with progress_bar("embedding") as advance:
                rag.index(progress=advance)
        finding = rag.find(arguments.query, arguments.max_results)
        print(
            json.dumps(_as_json(finding, rag), ensure_ascii=False, indent=2)
            if arguments.json
            else _as_table(finding, rag, by_id=arguments.tools is None)
        )
    return 0


@contextmanager
def _opened_rag(arguments: argparse.Namespace) -> Iterator[ToolRAG]:
    heads = None if arguments.lexical else heads_folder(arguments)
    if arguments.tools is not None:
        refuse_tenant(arguments)
        tools = read_tools(arguments.tools)
        with ToolRAG(tools, heads=heads, candidate_share=0, **model_of(arguments)) as rag:
            yield rag
        return
    with (
        opened_store(arguments) as store,
        rag_over(store.tools(), store, arguments, heads=heads) as rag,
    ):
        yield rag


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
        "closest": _closest(finding, rag),
        "confidence": finding.confidence,
        "degraded": finding.degraded,
    }


def _as_table(finding: Finding, rag: ToolRAG, *, by_id: bool) -> str:
    """Return the tools found; ingested ones by their ids, which `toolrag call` takes."""
    names = [
        printable(hit.id) if by_id else rag.catalogue.entries[hit.id].document.bound_name
        for hit in finding.hits
    ]
    width = max(map(len, ["tool", *names]))
    lines = [f"{'tool':{width}}  {'score':>6}  description"] if names else ["no tool was found"]
    lines += [_row(name, hit, rag, width) for name, hit in zip(names, finding.hits, strict=True)]
    if finding.missing:
        lines.append(f"no tool is named {', '.join(finding.missing)}")
    if closest := _closest(finding, rag):
        lines.append(f"closest: {', '.join(closest)}")
    if finding.confidence is not None and names:
        lines.append(f"\nconfidence {finding.confidence:.2f}")
    if finding.degraded:
        lines.append(f"degraded: {finding.degraded}")
    return "\n".join(lines)


def _closest(finding: Finding, rag: ToolRAG) -> list[str]:
    """Return the names closest to those that are missing; `select:` takes them as they are."""
    names = [entry.document.bound_name for entry in rag.catalogue]
    near = (each for name in finding.missing for each in closest_names(name, names))
    return list(dict.fromkeys(near))


def _row(name: str, hit: Hit, rag: ToolRAG, width: int) -> str:
    description = rag.catalogue.entries[hit.id].document.description
    return f"{name:{width}}  {hit.score:>6.3f}  {first_words(description)}"
