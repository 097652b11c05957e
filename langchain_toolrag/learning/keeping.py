"""Tools and an embedding model in -> what heads must leave as it is out."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import numpy as np

from langchain_toolrag.evaluation.labelled import LabelledQuery, LabelledSet
from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.probes import PROBES
from langchain_toolrag.index.rows import tool_rows
from langchain_toolrag.learning.examples import Example, ExampleSet
from langchain_toolrag.selection.conversation import read_conversation
from langchain_toolrag.selection.follow_up import with_context
from langchain_toolrag.types import ToolDocument, Vectors

_SENTENCE_END = re.compile(r"(?<=[.!?])\s")
_MOST_TOOLS = 1000  # Of a larger catalogue some stand for all: their texts have to be embedded.
_MOST_BETTER = 10  # A text that finds so many other tools first does not find its own.


def first_sentence(description: str) -> str:
    """Return the first sentence of a description; empty for none."""
    return _SENTENCE_END.split(description.strip())[0]


def own_pairs(
    documents: Sequence[ToolDocument], rows: Vectors, embedder: Embedder, *, seed: int
) -> ExampleSet:
    """Return what a catalogue's own texts find: a tool's name and first sentence its row.

    What scores better than the tool now may go on to do so. A text that does not find its tool
    is left out.

    Args:
        documents: The tools, at least one.
        rows: Their rows, in the same order.
        embedder: What made them.
        seed: Which tools stand for all, where there are more than 1,000.

    Returns:
        The pairs as examples.

    Raises:
        EmbeddingError: If embedding fails.
    """
    places = list(range(len(documents)))
    if len(places) > _MOST_TOOLS:
        places = sorted(random.Random(seed).sample(places, _MOST_TOOLS))
    texts = [
        (text, place)
        for place in places
        for text in dict.fromkeys(_texts(documents[place]))
        if text.strip()
    ]
    requests = embedder.probes([text for text, _ in texts])
    examples: list[Example] = []
    for number, (_, place) in enumerate(texts):
        scores = rows @ requests[number]
        better = np.flatnonzero(scores >= scores[place])
        if len(better) <= _MOST_BETTER:
            unknown = frozenset(better.tolist()) - {place}
            examples.append(Example(number, {place: 1.0}, unknown=unknown))
    return ExampleSet(requests, rows, examples)


def labelled_examples(
    labelled: LabelledSet, embedder: Embedder, options: IndexOptions
) -> ExampleSet:
    """Return a labelled set by vectors.

    Args:
        labelled: The set.
        embedder: What makes the vectors; it keeps those of requests.
        options: Which texts of a tool count.

    Returns:
        One example a query; what does as well as a gold tool is unknown.

    Raises:
        EmbeddingError: If embedding fails.
    """
    rows = tool_rows(labelled.documents, embedder, options)
    texts = [_searched(query) for query in labelled.queries]
    places = {document.id: place for place, document in enumerate(labelled.documents)}
    examples = [
        Example(
            number,
            {places[tool]: 1.0 for tool in query.relevant},
            unknown=frozenset(places[tool] for tool in query.labelled - set(query.relevant)),
        )
        for number, query in enumerate(labelled.queries)
    ]
    return ExampleSet(request_vectors(texts, embedder), rows, examples)


def request_vectors(texts: Sequence[str], embedder: Embedder) -> Vectors:
    """Embed requests that are nobody's secret.

    Args:
        texts: The requests, at least one.
        embedder: What makes the vectors.

    Returns:
        Unit vectors, shape `(len(texts), dim)`, in the order of the texts.

    Raises:
        EmbeddingError: If embedding fails.
    """
    embedder.requests(list(dict.fromkeys(texts)))
    return np.stack([embedder.query(text) for text in texts])


def still_vectors(own: Sequence[ExampleSet], embedder: Embedder) -> Vectors:
    """Return vectors that stand for what is asked of other catalogues, shape `(n, dim)`.

    Args:
        own: Pairs of the catalogues' own texts.
        embedder: What makes the vectors.

    Returns:
        Those of the probes (`index.probes`) and of the texts.

    Raises:
        EmbeddingError: If embedding fails.
    """
    still: Vectors = np.concatenate([embedder.probes(PROBES), *(pairs.requests for pairs in own)])
    return still


def _texts(document: ToolDocument) -> tuple[str, str]:
    return document.text("name") or document.name, first_sentence(document.description)


def _searched(query: LabelledQuery) -> str:
    """Return what a search embeds of a query first."""
    return (with_context(read_conversation(query.messages)) if query.history else "") or query.text
