"""A contender and a labelled set in -> its answers to the queries out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from langchain_core.embeddings import Embeddings

from langchain_toolrag.errors import SourceError
from langchain_toolrag.evaluation.contender import Contender
from langchain_toolrag.evaluation.labelled import LabelledQuery, LabelledSet
from langchain_toolrag.index.embedding import NoEmbeddings
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.search.cutoff import Cutoff
from langchain_toolrag.selection.options import OnError, SelectionOptions
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.types import Hit, ToolId
from langchain_toolrag.vectors.cache import KnownVectors

DEPTH = 10
"""How much of a ranking is looked at."""

_TOOLRANKS_MARGIN = 0.2


@dataclass(frozen=True, slots=True)
class Answer:
    """What a contender makes of one query.

    Attributes:
        ranking: Ids, best first, at most `DEPTH`.
        bound: Ids of what would be bound, in binding order.
        milliseconds: How long it took to find what to bind, with every text embedded before.
    """

    ranking: tuple[ToolId, ...]
    bound: tuple[ToolId, ...]
    milliseconds: float


class Answering(Protocol):
    """A contender that holds a set's tools."""

    def rank(self, query: LabelledQuery) -> Sequence[ToolId]:
        """Return ids, best first, at most `DEPTH`."""

    def bind(self, query: LabelledQuery) -> Sequence[ToolId]:
        """Return the ids of what would be bound, in binding order."""


def build(
    contender: Contender,
    labelled: LabelledSet,
    embeddings: Embeddings,
    known: KnownVectors,
    heads: Heads | None = None,
) -> ToolRAG:
    """Give a contender the tools of a set; their vectors are not made yet.

    A query that cannot be embedded is an error, unless the model is NoEmbeddings: figures of a
    search that was quietly made by words would be taken for those of another.

    Args:
        contender: The contender; one that goes by words alone is given no model.
        labelled: The set.
        embeddings: The model.
        known: What it embedded before.
        heads: Heads to search by; None for the contender's.

    Returns:
        The tools, indexed as the contender wants them.

    Raises:
        AdapterError: If the contender's heads cannot be read or are another model's.
        SourceError: If a tool that a query needs cannot be given to a model.
        UnknownToolError: If `always_include` names a tool that is not there.
    """
    by_words = contender.way == "text"
    model = NoEmbeddings() if by_words else embeddings
    on_error: OnError = "lexical" if isinstance(model, NoEmbeddings) else "raise"
    rag = ToolRAG(
        labelled.tools,
        index=ToolIndex(model, options=contender.indexed_by, cache=known, keep_requests=True),
        options=replace(contender.options, on_error=on_error),
        on_duplicate="prefix",
        heads=None if by_words else heads or contender.heads,
    )
    for identity, reason in rag.status.rejected.items():
        if any(identity in query.labelled for query in labelled.queries):
            problem = f"the tool {identity!r}, which a query needs, cannot be bound: {reason}"
            raise SourceError(labelled.source, problem)
    return rag


def answering_of(contender: Contender, rag: ToolRAG, *, by_words: bool) -> Answering:
    """Return a contender that answers.

    Args:
        contender: The contender.
        rag: Its tools, from `build`.
        by_words: Whether there is no embedding model.

    Returns:
        What answers as the contender does.
    """
    if contender.way == "classic":
        return _Classic(rag)
    if contender.way == "semantic":
        return _Semantic(rag)
    if contender.way == "text":
        return _Text(rag)
    return _Product(rag, by_words=by_words)


def answer(answering: Answering, query: LabelledQuery) -> Answer:
    """Return a contender's answer to a query."""
    ranking = tuple(answering.rank(query))  # First, for it embeds what the timed part embeds.
    start = time.perf_counter()
    bound = answering.bind(query)
    milliseconds = (time.perf_counter() - start) * 1000
    return Answer(ranking, tuple(bound), milliseconds)


class _Product:
    """ToolRAG: a single request is ranked by `search`, a conversation by `select`.

    Without a model `search` has no answer, and `select` ranks both.
    """

    def __init__(self, rag: ToolRAG, *, by_words: bool) -> None:
        self._rag = rag
        self._by_words = by_words
        self._ranking = ToolRAG(
            rag.catalogue.originals,
            index=rag.tool_index,
            options=_ranking_all(rag.options),
            on_duplicate="prefix",
            heads=rag.heads_for(),
        )

    def rank(self, query: LabelledQuery) -> list[ToolId]:
        if query.history or self._by_words:
            return [tool.id for tool in self._ranking.explain(query.messages)][:DEPTH]
        return _ids(self._rag.search(query.text, k=DEPTH))

    def bind(self, query: LabelledQuery) -> list[ToolId]:
        return self._rag.select(query.messages).ids


class _Classic:
    """ToolRAG's algorithm, which has no ranking but the order it binds in."""

    def __init__(self, rag: ToolRAG) -> None:
        self._rag = rag

    def rank(self, query: LabelledQuery) -> list[ToolId]:
        return self.bind(query)[:DEPTH]

    def bind(self, query: LabelledQuery) -> list[ToolId]:
        return self._rag.select(query.messages).ids


class _Semantic:
    """Meaning alone, of the last user turn alone; bound is what toolrank's margin leaves."""

    def __init__(self, rag: ToolRAG) -> None:
        self._rag = rag

    def rank(self, query: LabelledQuery) -> list[ToolId]:
        return _ids(self._rag.semantic_search(query.text, k=DEPTH))

    def bind(self, query: LabelledQuery) -> list[ToolId]:
        return _ids(
            Cutoff(margin=_TOOLRANKS_MARGIN).apply(self._rag.semantic_search(query.text, k=DEPTH))
        )


class _Text:
    """Words alone (BM25), of the last user turn alone.

    A margin on the scale of the cosine says nothing about BM25's scores: the whole ranking is
    bound.
    """

    def __init__(self, rag: ToolRAG) -> None:
        self._rag = rag

    def rank(self, query: LabelledQuery) -> list[ToolId]:
        return self.bind(query)

    def bind(self, query: LabelledQuery) -> list[ToolId]:
        return _ids(self._rag.text_search(query.text, k=DEPTH))


def _ranking_all(options: SelectionOptions) -> SelectionOptions:
    """Return options under which a selection is a ranking of `DEPTH`.

    Not `k=DEPTH`: a catalogue of no more tools would be bound whole, unranked.
    """
    return replace(
        options,
        k=None,
        min_k=DEPTH,
        max_k=DEPTH,
        max_tools=max(options.max_tools, DEPTH),
        min_catalogue=0,
    )


def _ids(hits: Sequence[Hit]) -> list[ToolId]:
    return [hit.id for hit in hits]
