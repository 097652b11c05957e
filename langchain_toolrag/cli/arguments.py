"""What the commands' arguments have in common."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TypeAlias, TypedDict

from langchain_core.embeddings import Embeddings

from langchain_toolrag.index.embedding import NoEmbeddings

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class ModelArguments(TypedDict):
    """What a ToolRAG embeds with."""

    embeddings: Embeddings | None
    cache_dir: Path | None


def add_tools_argument(command: argparse.ArgumentParser) -> None:
    """Add where the tools are."""
    command.add_argument(
        "--tools",
        required=True,
        metavar="SOURCE",
        help="FILE.json, FILE.jsonl, FILE.py:ATTRIBUTE or module:attribute",
    )


def add_model_arguments(command: argparse.ArgumentParser) -> None:
    """Add by what to search, and where vectors are kept from run to run."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    command.add_argument("--lexical", action="store_true", help="search by words, load no model")
    command.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        default=Path(os.environ.get("TOOLRAG_CACHE") or Path(home) / "langchain-toolrag"),
        help="where embeddings are kept (default: %(default)s; TOOLRAG_CACHE sets it)",
    )


def model_of(arguments: argparse.Namespace) -> ModelArguments:
    """Return what the arguments want a ToolRAG to embed with."""
    if arguments.lexical:
        return {"embeddings": NoEmbeddings(), "cache_dir": None}
    return {"embeddings": None, "cache_dir": arguments.cache}


def at_least_one(text: str) -> int:
    """Read a number from 1; anything else is an error of argparse."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return number
