"""What the commands' arguments have in common."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TypeAlias, TypedDict

from langchain_core.embeddings import Embeddings

from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.index.embedding import NoEmbeddings
from langchain_toolrag.index.options import IndexOptions

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class ModelArguments(TypedDict):
    """What a ToolRAG embeds with."""

    embeddings: Embeddings | None
    cache_dir: Path | None
    index_options: IndexOptions | None


def add_tools_argument(command: argparse.ArgumentParser) -> None:
    """Add where the tools are."""
    command.add_argument(
        "--tools",
        required=True,
        metavar="SOURCE",
        help="FILE.json, FILE.jsonl, FILE.py:ATTRIBUTE or module:attribute",
    )


def add_model_arguments(command: argparse.ArgumentParser) -> None:
    """Add by what to search."""
    command.add_argument("--lexical", action="store_true", help="search by words, load no model")
    _add_endpoint_arguments(command)


def add_cache_argument(command: argparse.ArgumentParser) -> None:
    """Add where vectors are kept from run to run; an ingest directory has its own place."""
    command.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        default=default_cache(),
        help="where embeddings are kept (default: %(default)s; TOOLRAG_CACHE sets it)",
    )


def default_cache() -> Path:
    """Return the user's cache, or what TOOLRAG_CACHE sets."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("TOOLRAG_CACHE") or Path(home) / "langchain-toolrag")


def model_of(arguments: argparse.Namespace) -> ModelArguments:
    """Return what the arguments want a ToolRAG to embed with.

    Args:
        arguments: The parsed arguments, those of `add_model_arguments` among them.

    Returns:
        Keywords of ToolRAG. Behind an endpoint are large models, for which tools are JSON.

    Raises:
        EmbeddingError: If an endpoint is given without its model, a model without its endpoint,
            or a key in TOOLRAG_EMB_API_KEY that cannot be one.
    """
    cache = getattr(arguments, "cache", None)
    if arguments.lexical:
        return {"embeddings": NoEmbeddings(), "cache_dir": None, "index_options": None}
    if not (arguments.emb_url or arguments.emb_model or arguments.emb_instruction):
        return {"embeddings": None, "cache_dir": cache, "index_options": None}
    return {
        "embeddings": _endpoint(arguments),
        "cache_dir": cache,
        "index_options": IndexOptions(tool_text="json"),
    }


def _add_endpoint_arguments(command: argparse.ArgumentParser) -> None:
    endpoint = command.add_argument_group(
        "embeddings endpoint",
        "TOOLRAG_EMB_URL, TOOLRAG_EMB_MODEL and TOOLRAG_EMB_INSTRUCTION set the defaults; "
        "TOOLRAG_EMB_API_KEY is the key.",
    )
    endpoint.add_argument(
        "--emb-url",
        type=_endpoint_url,
        metavar="URL",
        default=os.environ.get("TOOLRAG_EMB_URL") or None,
        help="embed by an OpenAI-compatible server, such as http://localhost:8000/v1",
    )
    endpoint.add_argument(
        "--emb-model",
        metavar="NAME",
        default=os.environ.get("TOOLRAG_EMB_MODEL", ""),
        help="the name it serves its model under",
    )
    endpoint.add_argument(
        "--emb-instruction",
        metavar="TEXT",
        default=os.environ.get("TOOLRAG_EMB_INSTRUCTION", ""),
        help="what requests are embedded with, for a model that was trained with instructions",
    )


def _endpoint_url(text: str) -> str:
    """Read an endpoint's address; a wrong one is an error of argparse."""
    from langchain_toolrag.index.endpoint import embeddings_url  # httpx: a fifth of a second.

    try:
        return embeddings_url(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _endpoint(arguments: argparse.Namespace) -> Embeddings:
    from langchain_toolrag.index.endpoint import EndpointEmbeddings

    if not arguments.emb_url:
        raise EmbeddingError(
            "--emb-model and --emb-instruction are for an embeddings endpoint: give its address "
            "by --emb-url or TOOLRAG_EMB_URL, or unset TOOLRAG_EMB_MODEL and "
            "TOOLRAG_EMB_INSTRUCTION"
        )
    if not arguments.emb_model:
        raise EmbeddingError(
            f"--emb-url {arguments.emb_url} needs to know which model: give the name it is served "
            "under by --emb-model or TOOLRAG_EMB_MODEL"
        )
    try:
        return EndpointEmbeddings(
            arguments.emb_url,
            model=arguments.emb_model,
            instruction=arguments.emb_instruction,
            api_key=os.environ.get("TOOLRAG_EMB_API_KEY"),
        )
    except ValueError as error:
        raise EmbeddingError(str(error)) from error


def at_least_one(text: str) -> int:
    """Read a number from 1; anything else is an error of argparse."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return number
