"""Heads and labelled sets in -> whether they lose on one out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from langchain_core.embeddings import Embeddings

from langchain_toolrag.evaluation.contender import BUILT_IN
from langchain_toolrag.evaluation.evaluate import Model, Progress, evaluate
from langchain_toolrag.evaluation.labelled import LabelledSet
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.index.options import IndexOptions

_MEASURE = "ndcg@10"


@dataclass(frozen=True, slots=True)
class Guarded:
    """How good a labelled set is searched without heads and with them.

    Attributes:
        name: The set's name.
        before: NDCG@10 without.
        after: NDCG@10 with them.
    """

    name: str
    before: float
    after: float

    @property
    def drop(self) -> float:
        """How much is lost, in NDCG@10; below 0 where something is gained."""
        return self.before - self.after


def guard_sets(
    sets: Sequence[LabelledSet],
    heads: Heads,
    embeddings: Embeddings,
    options: IndexOptions,
    progress: Progress,
) -> tuple[Guarded, ...]:
    """Search labelled sets as the product does by default, without heads and with them.

    Args:
        sets: The sets.
        heads: The heads.
        embeddings: The model they were trained on.
        options: Which texts of a tool are indexed.
        progress: Told how far it is.

    Returns:
        What came of it, a set each.

    Raises:
        EmbeddingError: If the model fails.
        SourceError: If a tool that a query needs cannot be given to a model.
    """
    contender = replace(BUILT_IN["default"], index_options=options)
    base = Model(embeddings)
    guarded: list[Guarded] = []
    for labelled in sets:
        found = [
            evaluate(labelled, contender, model, progress).measures[_MEASURE] or 0.0
            for model in (base, replace(base, heads=heads))
        ]
        guarded.append(Guarded(labelled.name, *found))
    return tuple(guarded)
