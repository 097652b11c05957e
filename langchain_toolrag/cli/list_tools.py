"""`toolrag list`: a directory in -> the tools in it out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.directory_records import as_json
from langchain_toolrag.catalogue.sources.stored import StoredTool
from langchain_toolrag.cli.arguments import Commands
from langchain_toolrag.cli.directory import add_data_argument, first_words, printable
from langchain_toolrag.errors import SourceError


def register(commands: Commands) -> None:
    """Add the command to the parser."""
    command = commands.add_parser("list", help="list the tools of a directory")
    command.set_defaults(run=_list)
    add_data_argument(command)
    command.add_argument("--source", metavar="NAME", help="only this source's")
    command.add_argument("--json", action="store_true", help="print JSON")


def _list(arguments: argparse.Namespace) -> int:
    directory = ToolDirectory(arguments.data)
    sources = directory.sources()
    if arguments.source is not None and arguments.source not in sources:
        raise SourceError(
            str(arguments.data),
            f"has no source {arguments.source!r}; it has {', '.join(sources) or 'none'}",
        )
    tools = [tool for tool in directory.tools() if arguments.source in (None, tool.source)]
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
