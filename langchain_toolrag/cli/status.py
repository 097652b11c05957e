"""`toolrag status`: a directory or database in -> its sources, and how far it is embedded, out."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from langchain_toolrag.catalogue.sources.directory_records import as_json
from langchain_toolrag.catalogue.sources.store import ToolStore
from langchain_toolrag.catalogue.sources.stored import StoredSource, StoredTool
from langchain_toolrag.cli.arguments import Commands, add_model_arguments
from langchain_toolrag.cli.directory import printable, rag_over
from langchain_toolrag.cli.stores import add_store_arguments, opened_store
from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.index.texts import view_texts
from langchain_toolrag.index.vector_space import vectors_in
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.vectors.cache import text_key


@dataclass(frozen=True, slots=True)
class _Vectors:
    """How many tools are embedded, and how many are to be."""

    cached: int
    missing: int


def register(commands: Commands) -> None:
    """Add the command to the parser."""
    command = commands.add_parser("status", help="say what was ingested")
    command.set_defaults(run=_status)
    add_store_arguments(command)
    add_model_arguments(command)
    command.add_argument("--json", action="store_true", help="print JSON")


def _status(arguments: argparse.Namespace) -> int:
    with opened_store(arguments) as store:
        sources = store.sources()
        tools = store.tools()
        vectors = None if arguments.lexical else _vectors(tools, store, arguments)
    counts = Counter(tool.source for tool in tools)
    if arguments.json:
        print(_as_json(sources, counts, vectors))
    else:
        print(_as_text(sources, counts, vectors))
    return 0


def _vectors(
    tools: Sequence[StoredTool], store: ToolStore, arguments: argparse.Namespace
) -> _Vectors | None:
    """Count the tools whose vectors are in the cache; None without the model's name."""
    try:
        with rag_over(tools, store, arguments) as rag:
            return _cached(rag, store)
    except EmbeddingError:
        return None


def _cached(rag: ToolRAG, store: ToolStore) -> _Vectors | None:
    index = rag.tool_index.local
    if index is None:
        return None
    cache = vectors_in(store, index.embedder.embeddings)
    if cache is None:
        return None
    keys = [
        [text_key(text) for text, _ in view_texts(document, index.options)]
        for document in index.documents
    ]
    known = cache.get([key for each in keys for key in each])
    cached = sum(all(key in known for key in each) for each in keys)
    return _Vectors(cached, len(keys) - cached)


def _as_json(
    sources: Mapping[str, StoredSource], counts: Counter[str], vectors: _Vectors | None
) -> str:
    described = [{**as_json(source), "tools": counts[name]} for name, source in sources.items()]
    value = {
        "tools": counts.total(),
        "vectors": None
        if vectors is None
        else {"cached": vectors.cached, "missing": vectors.missing},
        "sources": described,
    }
    return json.dumps(value, ensure_ascii=False, indent=2)


def _as_text(
    sources: Mapping[str, StoredSource], counts: Counter[str], vectors: _Vectors | None
) -> str:
    width = max((len(name) for name in sources), default=0)
    lines = [_row(source, counts[name], width) for name, source in sources.items()]
    lines.append(f"{counts.total()} tools of {len(sources)} sources")
    if vectors is not None:
        missing = f", {vectors.missing} to be made at the next search" if vectors.missing else ""
        lines.append(f"vectors of {vectors.cached} tools are cached{missing}")
    return "\n".join(lines)


def _row(source: StoredSource, tools: int, width: int) -> str:
    when = source.listed_at or "never"
    row = f"{source.name:{width}}  {source.kind:7}  {tools:5} tools  listed {when}  {source.origin}"
    failure = printable(source.failure)
    return f"{row}\n{'':{width}}  failed since: {failure}" if failure else row
