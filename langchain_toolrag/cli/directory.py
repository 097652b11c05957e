"""What the commands do with ingested tools."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.directory_tools import definitions
from langchain_toolrag.catalogue.sources.store import ToolStore
from langchain_toolrag.catalogue.sources.stored import StoredTool
from langchain_toolrag.cli.arguments import default_cache, model_of
from langchain_toolrag.index.embedding import as_embeddings
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.index.vector_space import vectors_in
from langchain_toolrag.toolrag import ToolRAG

_DESCRIPTION = 80  # Characters of a description in a table.


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

    The MCP SDK logs a trace for every line that a server should not have printed, psycopg a line
    for what is raised as an error besides.

    Yields:
        Nothing.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("toolrag: %(message)s"))
    handler.setLevel(logging.WARNING)
    silent = logging.NullHandler()
    handlers = {"langchain_toolrag": handler, "mcp": silent, "psycopg": silent}
    for name, each in handlers.items():
        logging.getLogger(name).addHandler(each)
    try:
        yield
    finally:
        for name, each in handlers.items():
            logging.getLogger(name).removeHandler(each)


def rag_over(
    tools: Sequence[StoredTool],
    store: ToolStore,
    arguments: argparse.Namespace,
    *,
    heads: Path | None = None,
) -> ToolRAG:
    """Return a ToolRAG that finds tools that were ingested and cannot call them.

    Args:
        tools: The tools.
        store: The directory or database; vectors are kept in it.
        arguments: The parsed arguments, those of `add_model_arguments` among them.
        heads: Has learned heads; those in use rank, not a candidate's. None for none.

    Returns:
        The ToolRAG; nothing is imported or connected for it.
    """
    return ToolRAG(
        definitions(tools),
        index=_index_over(store, arguments),
        heads=heads,
        candidate_share=0,
        on_duplicate="id",
    )


def _index_over(store: ToolStore, arguments: argparse.Namespace) -> ToolIndex:
    """Return an empty index whose vectors are kept in a store."""
    given = model_of(arguments)
    model = as_embeddings(given["embeddings"], cache_dir=model_folder(store, arguments))
    cache = None if arguments.lexical else vectors_in(store, model)
    return ToolIndex(model, options=given["index_options"], cache=cache)


def model_folder(store: ToolStore, arguments: argparse.Namespace) -> Path:
    """Return where the model is kept as it is run: in the directory, or in the user's cache."""
    if isinstance(store, ToolDirectory):
        return store.cache
    given: Path | None = getattr(arguments, "cache", None)
    return given or default_cache()
