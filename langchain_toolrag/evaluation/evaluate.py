"""A contender and a labelled set in -> what it found and how good that is out."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from langchain_core.embeddings import Embeddings

from langchain_toolrag.evaluation.answering import Answer, answer, answering_of, build
from langchain_toolrag.evaluation.contender import Contender, Way
from langchain_toolrag.evaluation.labelled import LabelledQuery, LabelledSet
from langchain_toolrag.evaluation.measures import Measures, Siblings, measure
from langchain_toolrag.index.embedding import NoEmbeddings, as_embeddings, model_name
from langchain_toolrag.index.heads import Heads, read_heads
from langchain_toolrag.index.vector_space import cache_in
from langchain_toolrag.search.request import parts_of, request_in
from langchain_toolrag.selection.conversation import read_conversation
from langchain_toolrag.selection.follow_up import with_context
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.vectors.cache import KnownVectors, VectorMemory

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done and how much there is."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """One query's answer and its measures."""

    query: LabelledQuery
    answer: Answer
    measures: Measures


@dataclass(frozen=True, slots=True)
class SetResult:
    """How a contender did on a set.

    Attributes:
        contender: The contender's name.
        name: The set's name.
        tools: How many tools were searched.
        queries: The queries, in order.
    """

    contender: str
    name: str
    tools: int
    queries: tuple[QueryResult, ...]

    @property
    def measures(self) -> Measures:
        """The means over the queries, and `milliseconds_p50`, the median time."""
        times = [result.answer.milliseconds for result in self.queries]
        of_the_queries = [result.measures for result in self.queries]
        return {**mean_measures(of_the_queries), "milliseconds_p50": statistics.median(times)}


def mean_measures(measures: Sequence[Measures]) -> dict[str, float | None]:
    """Return the mean of every measure; None where it has no meaning in any.

    Args:
        measures: At least one, each with the same names.

    Returns:
        Means by name; what has no meaning is left out of them.
    """
    means: dict[str, float | None] = {}
    for name in measures[0]:
        values = [value for each in measures if (value := each[name]) is not None]
        means[name] = statistics.fmean(values) if values else None
    return means


@dataclass(frozen=True, slots=True)
class Model:
    """An embedding model and what it embedded before.

    Attributes:
        embeddings: The model; NoEmbeddings to search by words alone.
        known: Its vectors, of tools and of requests.
        heads: Heads that move its vectors, in a file or not; None for a contender's own.
    """

    embeddings: Embeddings
    known: KnownVectors = field(default_factory=VectorMemory)
    heads: Heads | None = None

    def for_contender(self, contender: Contender) -> Model:
        """Return the model with a contender's heads.

        Args:
            contender: The contender.

        Returns:
            The same model, its vectors shared, with the heads that the contender names.

        Raises:
            AdapterError: If they cannot be read or are another model's.
        """
        if contender.heads is None:
            return self
        return replace(self, heads=read_heads(Path(contender.heads), model_name(self.embeddings)))


def models_for(contenders: Sequence[Contender], cache_dir: Path) -> dict[str, Model]:
    """Return the models to evaluate with: ToolRAG's default, to which a text is given once.

    ToolRAG's algorithm goes without the adapter, which is not ToolRAG's.

    Args:
        contenders: The contenders; those that can share a model do.
        cache_dir: Where vectors are kept from run to run.

    Returns:
        A model by contender's name; it is loaded at its first use.

    Raises:
        AdapterError: If a contender's adapter or heads cannot be read, or are another model's.
    """
    adapters = {each.adapter for each in contenders}
    models = {adapter: _model(adapter, cache_dir) for adapter in adapters}
    return {each.name: models[each.adapter].for_contender(each) for each in contenders}


def _model(adapter: str | None, cache_dir: Path) -> Model:
    embeddings = as_embeddings(None, adapter=adapter, cache_dir=cache_dir)
    cache = cache_in(cache_dir, embeddings)
    return Model(embeddings) if cache is None else Model(embeddings, cache)


def warm(rag: ToolRAG, way: Way, queries: Sequence[LabelledQuery]) -> None:
    """Embed what a search of the queries embeds, in batches, which is quicker than one by one.

    Args:
        rag: The tools the queries are for.
        way: By what tools are found.
        queries: The queries.

    Raises:
        EmbeddingError: If the model fails.
    """
    texts = [query.text for query in queries]
    if way == "product":
        texts += [text for query in queries for text in _searched(query)]
    local = rag.tool_index.local
    if local is not None:
        local.embedder.requests(list(dict.fromkeys(texts)))


def _searched(query: LabelledQuery) -> Iterator[str]:
    request = request_in(query.text)
    yield request
    yield from parts_of(request)
    if query.history:
        yield with_context(read_conversation(query.messages)) or request


def evaluate(
    labelled: LabelledSet,
    contender: Contender,
    model: Model,
    progress: Progress | None = None,
) -> SetResult:
    """Let a contender answer every query of a set.

    Args:
        labelled: The set.
        contender: The contender.
        model: The model to embed with, and the heads to search by.
        progress: Told how far it is.

    Returns:
        Its answers, in the order of the queries, and their measures.

    Raises:
        AdapterError: If the heads are another model's.
        EmbeddingError: If the model cannot be loaded or fails.
        SourceError: If a tool that a query needs cannot be given to a model.
        UnknownToolError: If `always_include` names a tool that the set does not have.
    """
    told = progress or _silence
    rag = build(contender, labelled, model.embeddings, model.known, model.heads)
    by_words = contender.way == "text" or isinstance(model.embeddings, NoEmbeddings)
    if not by_words:
        rag.index(progress=lambda done, total: told(f"{labelled.name}: embedding", done, total))
        warm(rag, contender.way, labelled.queries)
    answering = answering_of(contender, rag, by_words=by_words)
    answer(answering, labelled.queries[0])  # The first answer is slow, and is not to be timed.
    answers: list[Answer] = []
    for query in labelled.queries:
        answers.append(answer(answering, query))
        told(f"{labelled.name}: {contender.name}", len(answers), len(labelled.queries))
    measures = measure(labelled.queries, answers, Siblings(labelled.documents))
    results = map(QueryResult, labelled.queries, answers, measures)
    return SetResult(contender.name, labelled.name, len(labelled.documents), tuple(results))


def _silence(doing: str, done: int, total: int) -> None:
    """Tell nobody."""
