"""Tools in -> findings in the order of the tools out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from langchain_toolrag.catalogue.catalogue import Catalogue
from langchain_toolrag.catalogue.document import identify
from langchain_toolrag.index.contract import Progress
from langchain_toolrag.index.embedding import NoEmbeddings
from langchain_toolrag.linting.descriptions import long_descriptions, poor_descriptions
from langchain_toolrag.linting.finding import CODES, Finding
from langchain_toolrag.linting.names import duplicate_names, renamed, vague_names
from langchain_toolrag.linting.retrieval import Search, not_self_retrieving
from langchain_toolrag.linting.schemas import schema_troubles
from langchain_toolrag.linting.twins import find_twins, near_twins
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.types import ToolId, Tools, Vectors


def lint(
    tools: ToolRAG | Tools, *, lexical: bool = False, progress: Progress | None = None
) -> list[Finding]:
    """Find what keeps tools from being found or called well.

    Args:
        tools: A ToolRAG, or tools to make one of; there two tools of one name are a finding
            rather than an error, as long as their servers differ.
        lexical: Whether to search by words alone, without an embedding model.
        progress: Called with how many tools have been searched for and how many there are.

    Returns:
        Findings in the order of the tools; of one tool, in the order of `CODES`.

    Raises:
        DuplicateToolError: If two tools of one server have one name.
        EmbeddingError: If the model cannot be loaded or fails.
        InvalidToolError: If something is not a tool.
    """
    if isinstance(tools, ToolRAG):
        return _in_order(_findings(tools, lexical, progress), tools.catalogue)
    embeddings = NoEmbeddings() if lexical else None
    with ToolRAG(tools, embeddings=embeddings, on_duplicate="prefix") as rag:
        return _in_order(_findings(rag, lexical, progress), rag.catalogue)


def _findings(rag: ToolRAG, lexical: bool, progress: Progress | None) -> Iterator[Finding]:
    documents = rag.catalogue.documents
    if not lexical:
        rag.index()
    twins = find_twins(documents, None if lexical else _vectors(rag))
    poor = list(poor_descriptions(documents))
    yield from _rejected(rag.catalogue)
    yield from vague_names(documents)
    yield from duplicate_names(documents)
    yield from renamed(documents)
    yield from poor
    yield from long_descriptions(documents)
    yield from near_twins(documents, twins)
    search: Search = rag.text_search if lexical else rag.search
    skipped = {finding.tool for finding in poor}
    yield from not_self_retrieving(documents, search, twins, skipped, progress)
    yield from schema_troubles(rag.catalogue)


def _rejected(catalogue: Catalogue) -> Iterator[Finding]:
    for identity, reason in catalogue.rejected.items():
        yield Finding(
            "rejected",
            identity,
            f"it is left out of every selection, its schema is broken: {reason}",
            "repair the schema, most often a $ref that leads nowhere",
        )


def _vectors(rag: ToolRAG) -> Vectors | None:
    """Return the rows of the catalogue's tools; None for an index that does not show them all."""
    local = rag.tool_index.local
    snapshot = None if local is None else local.snapshot
    if snapshot is None or snapshot.dense is None:
        return None
    if not rag.catalogue.entries.keys() <= snapshot.keys.keys():
        return None  # Another process has taken some out.
    return snapshot.dense.rows([snapshot.keys[document.id] for document in rag.catalogue.documents])


def _in_order(findings: Iterable[Finding], catalogue: Catalogue) -> list[Finding]:
    tools: dict[ToolId, int] = {}
    for place, tool in enumerate(catalogue.originals):
        tools[identify(tool)] = place
    return sorted(findings, key=lambda of: (tools[of.tool], CODES.index(of.code)))
