"""`toolrag list`: a directory or database in -> the tools in it out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from langchain_toolrag.catalogue.sources.directory_records import as_json
from langchain_toolrag.catalogue.sources.stored import StoredTool
from langchain_toolrag.cli.arguments import Commands
from langchain_toolrag.cli.directory import first_words, printable
from langchain_toolrag.cli.stores import add_store_arguments, opened_store
from langchain_toolrag.errors import SourceError


def register(commands: Commands) -> None:
    """Add the command to the parser."""
    command = commands.add_parser("list", help="list the tools that were ingested")
    command.set_defaults(run=_list)
    add_store_arguments(command)
    command.add_argument("--source", metavar="NAME", help="only this source's")
    command.add_argument("--json", action="store_true", help="print JSON")


def _list(arguments: argparse.Namespace) -> int:
    with opened_store(arguments) as store:
        sources = store.sources()
        if arguments.source is not None and arguments.source not in sources:
            raise SourceError(
                store.name,
                f"has no source {arguments.source!r}; it has {', '.join(sources) or 'none'}",
            )
        tools = [tool for tool in store.tools() if arguments.source in (None, tool.source)]
    if arguments.json:
        print(json.dumps([as_json(tool) for tool in tools], ensure_ascii=False, indent=2))
    else:
        print(_as_table(tools))
    return 0


def _as_table(tools: Sequence[StoredTool]) -> str:
    if not tools:
        return "no tools"
    rows = [(printable(tool.id), first_words(tool.description)) for tool in tools]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {description}".rstrip() for name, description in rows)
