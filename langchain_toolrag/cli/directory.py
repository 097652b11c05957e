"""What the commands do with an ingest directory."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.directory_tools import definitions
from langchain_toolrag.cli.arguments import model_of
from langchain_toolrag.toolrag import ToolRAG

_DESCRIPTION = 80  # Characters of a description in a table.


def add_data_argument(command: argparse.ArgumentParser) -> None:
    """Add which directory to read."""
    command.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="what `toolrag ingest` wrote"
    )


def printable(text: str) -> str:
    """Return a server's words without what would move a terminal's cursor or change its colours."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def first_words(description: str) -> str:
    """Return as much of a description as a line of a table has room for, printable."""
    line = printable(" ".join(description.split()))
    return line if len(line) <= _DESCRIPTION else f"{line[: _DESCRIPTION - 1]}…"


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Show this package's warnings, such as of an operation that is left out, and no others.

    The MCP SDK logs a trace for every line that a server should not have printed.

    Yields:
        Nothing.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("toolrag: %(message)s"))
    handler.setLevel(logging.WARNING)
    handlers = {"langchain_toolrag": handler, "mcp": logging.NullHandler()}
    for name, each in handlers.items():
        logging.getLogger(name).addHandler(each)
    try:
        yield
    finally:
        for name, each in handlers.items():
            logging.getLogger(name).removeHandler(each)


def rag_over(directory: ToolDirectory, arguments: argparse.Namespace) -> ToolRAG:
    """Return a ToolRAG that finds the tools of a directory and cannot call them.

    Args:
        directory: The directory; its cache is used.
        arguments: The parsed arguments, those of `add_model_arguments` among them.

    Returns:
        The ToolRAG; nothing is imported or connected for it. It ranks by the directory's heads that
        are in use, not by a candidate's.

    Raises:
        SourceError: If the directory cannot be read.
    """
    model = model_of(arguments)
    if arguments.lexical:
        return ToolRAG(definitions(directory.tools()), on_duplicate="id", **model)
    model["cache_dir"] = directory.cache
    return ToolRAG(
        definitions(directory.tools()),
        heads=directory.heads,
        candidate_share=0,
        on_duplicate="id",
        **model,
    )
