"""Training sets and watched sets in -> an adapter with its card out."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from langchain_core.embeddings import Embeddings

from langchain_toolrag.errors import SourceError
from langchain_toolrag.evaluation.contender import BUILT_IN
from langchain_toolrag.evaluation.evaluate import Model, evaluate
from langchain_toolrag.evaluation.labelled import LabelledSet
from langchain_toolrag.index.adapter import Adapter, write_adapter
from langchain_toolrag.index.embedding import as_embeddings
from langchain_toolrag.index.weights import DEFAULT_MODEL
from langchain_toolrag.learning.heads import HeadsLearner
from langchain_toolrag.learning.learner import Learner
from langchain_toolrag.learning.low_rank import LowRankLearner
from langchain_toolrag.learning.pairs import TrainingSet
from langchain_toolrag.learning.training import Trained, TrainingOptions, Watch, train

_HEADS_RATE = 1e-3


@dataclass(frozen=True, slots=True)
class Finetuned:
    """What came of it.

    Attributes:
        trained: How training went.
        adapter: The adapter; None if the untrained model does best on the watched sets.
    """

    trained: Trained
    adapter: Adapter | None

    def write(self, path: Path) -> None:
        """Write the adapter; there must be one.

        Args:
            path: The file.

        Raises:
            SourceError: If the file cannot be written.
        """
        if self.adapter is None:
            raise ValueError("there is no adapter: the untrained model did best")
        try:
            write_adapter(self.adapter, path)
        except OSError as error:
            raise SourceError(str(path), f"cannot be written: {error.strerror}") from error


def finetune(
    sets: Sequence[TrainingSet],
    watched: Sequence[LabelledSet],
    *,
    model: str | Embeddings = DEFAULT_MODEL,
    heads: bool = False,
    steps: int = 400,
    seed: int = 0,
    progress: Callable[[int, float], None],
) -> Finetuned:
    """Train an adapter.

    Args:
        sets: What to learn from.
        watched: Sets that are not learned from; they decide the step and the scale.
        model: A hub name or a folder; for heads any LangChain model.
        heads: Whether to train residual heads rather than a low-rank change of the model.
        steps: How many batches.
        seed: Where the dice start; the same seed trains the same adapter on the same machine.
        progress: Told the step, from 1, and the running loss.

    Returns:
        What came of it.

    Raises:
        EmbeddingError: If the model cannot be loaded.
        TypeError: If a low-rank change of a model is wanted that is not loaded here.
    """
    learner: Learner
    if heads:
        learner = HeadsLearner(as_embeddings(model), seed=seed)
        options = TrainingOptions(steps=steps, rate=_HEADS_RATE, seed=seed)
    elif isinstance(model, str):
        learner = LowRankLearner(model, seed=seed)
        options = TrainingOptions(steps=steps, seed=seed)
    else:
        raise TypeError("a low-rank adapter needs the name or folder of a model; pass heads=True")
    trained = train(learner, sets, options, _watch(watched), progress)
    card = _card(sets, watched, options, trained)
    return Finetuned(trained, learner.adapter(card) if trained.scale else None)


def _watch(watched: Sequence[LabelledSet]) -> Watch:
    def measured(embeddings: Embeddings) -> float:
        results = (evaluate(each, BUILT_IN["semantic"], Model(embeddings)) for each in watched)
        return statistics.fmean(result.measures["ndcg@10"] or 0.0 for result in results)

    return measured


def _card(
    sets: Sequence[TrainingSet],
    watched: Sequence[LabelledSet],
    options: TrainingOptions,
    trained: Trained,
) -> dict[str, object]:
    return {
        "pairs": {each.name: len(each.requests) for each in sets},
        "watched": [each.name for each in watched],
        "options": asdict(options),
        "ndcg@10 of the watched sets": asdict(trained),
    }
