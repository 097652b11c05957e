"""Contenders and the commands' model arguments in -> what each of them embeds with out."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from langchain_toolrag.cli.arguments import ModelArguments
from langchain_toolrag.evaluation.contender import Contender
from langchain_toolrag.evaluation.evaluate import Model, models_for
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.vector_space import cache_in

OPTIONS = (
    "default, classic (ToolRAG's algorithm), semantic, text, or a .json file with "
    '{"selection": {...}, "index": {...}, "adapter": FILE or null, "heads": FILE or null}, the '
    "first two with fields of SelectionOptions and IndexOptions"
)
"""What an argument that names a contender takes, for its help."""


def refuse_without_model(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, contenders: Sequence[Contender]
) -> None:
    """End with an error of argparse where `--lexical` leaves a contender nothing."""
    for contender in contenders:
        if arguments.lexical and contender.needs_vectors:
            parser.error(f"--lexical: {contender.name} is nothing without an embedding model")


def indexed(contender: Contender, options: IndexOptions | None) -> Contender:
    """Return the contender with what a model wants indexed, unless it says so itself."""
    says_so = contender.index_options is not None or contender.way == "classic"
    return contender if says_so else replace(contender, index_options=options)


def models_of(
    contenders: Sequence[Contender], given: ModelArguments, cache: Path
) -> dict[str, Model]:
    """Return the model of each contender; one that is given is every one's.

    Args:
        contenders: The contenders.
        given: What `arguments.model_of` returned.
        cache: Where vectors are kept from run to run.

    Returns:
        Models by contender's name.

    Raises:
        AdapterError: If a contender's adapter or heads cannot be read, or are another model's.
    """
    embeddings, cache_dir = given["embeddings"], given["cache_dir"]
    if embeddings is None:
        return models_for(contenders, cache)
    known = None if cache_dir is None else cache_in(cache_dir, embeddings)
    model = Model(embeddings) if known is None else Model(embeddings, known)
    return {each.name: model.for_contender(each) for each in contenders}
