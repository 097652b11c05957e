"""Training sets and watched sets in -> an adapter with its card out."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from langchain_core.embeddings import Embeddings

from langchain_toolrag.errors import SourceError
from langchain_toolrag.evaluation.contender import BUILT_IN
from langchain_toolrag.evaluation.evaluate import Model, evaluate
from langchain_toolrag.evaluation.labelled import LabelledSet
from langchain_toolrag.index.adapter import Adapter, write_adapter
from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.embedding import as_embeddings, model_name
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.rows import tool_rows
from langchain_toolrag.index.weights import DEFAULT_MODEL
from langchain_toolrag.learning.examples import Example, ExampleSet
from langchain_toolrag.learning.heads import ResidualHeads
from langchain_toolrag.learning.heads_training import Material, Step, train_heads
from langchain_toolrag.learning.held_out import choose_scale, mean_of_sets, reciprocal_ranks
from langchain_toolrag.learning.keeping import (
    labelled_examples,
    own_pairs,
    request_vectors,
    still_vectors,
)
from langchain_toolrag.learning.low_rank import LowRankLearner
from langchain_toolrag.learning.options import LearnOptions
from langchain_toolrag.learning.pairs import TrainingSet, hold_out
from langchain_toolrag.learning.training import (
    Trained,
    TrainingOptions,
    Watch,
    mistaken_tools,
    train,
)
from langchain_toolrag.vectors.cache import VectorMemory

_Told = Callable[[int, float], None]


@dataclass(frozen=True, slots=True)
class Finetuned:
    """What came of it.

    Attributes:
        trained: How training went.
        adapter: The adapter; None if the untrained model does best on the watched sets.
        measure: What the figures of the training are.
    """

    trained: Trained
    adapter: Adapter | None
    measure: str

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
    watched: Sequence[LabelledSet] = (),
    *,
    model: str | Embeddings = DEFAULT_MODEL,
    heads: bool = False,
    steps: int = 400,
    seed: int = 0,
    progress: _Told,
) -> Finetuned:
    """Train an adapter.

    Heads are trained as `learn.learn` trains them: a request's tools are wanted, and others that
    the untrained model ranks high are not.

    Args:
        sets: What to learn from.
        watched: Sets that are not learned from; they decide how much is applied, and for a low-rank
            change the step. Without any, the last fifth of each set's pairs is held out for that.
        model: A hub name or a folder; for heads any LangChain model.
        heads: Whether to train residual heads rather than a low-rank change of the model.
        steps: How many batches.
        seed: Where the dice start; the same seed trains the same adapter on the same machine.
        progress: Told the step, from 1, and the running loss.

    Returns:
        What came of it.

    Raises:
        EmbeddingError: If the model cannot be loaded.
        SourceError: If nothing is watched and nothing can be held out.
        TypeError: If a low-rank change of a model is wanted that is not loaded here.
    """
    learned, chosen_by = (sets, watched) if watched else hold_out(sets, "the pairs")
    if heads:
        options = LearnOptions(steps=steps, seed=seed)
        return _Pairs(learned, chosen_by, as_embeddings(model), options).learn(progress)
    if not isinstance(model, str):
        raise TypeError("a low-rank adapter needs the name or folder of a model; pass heads=True")
    learner = LowRankLearner(model, seed=seed)
    low_rank = TrainingOptions(steps=steps, seed=seed)
    trained = train(learner, learned, low_rank, _watch(chosen_by), progress)
    card = _card(learned, chosen_by, asdict(low_rank), trained, "ndcg@10")
    adapter = learner.adapter(card) if trained.scale else None
    return Finetuned(trained, adapter, "mean NDCG@10")


class _Pairs:
    """Labelled pairs by the vectors of one model, each text embedded once."""

    def __init__(
        self,
        sets: Sequence[TrainingSet],
        watched: Sequence[LabelledSet],
        model: Embeddings,
        options: LearnOptions,
    ) -> None:
        self._sets = sets
        self._watched = watched
        self._options = options
        self._base = model_name(model)
        self._embedder = Embedder(model, cache=VectorMemory(), keep_requests=True)

    def learn(self, progress: _Told) -> Finetuned:
        """Train heads and choose how much of them is applied."""
        learned = [self._examples(each) for each in self._sets]
        own = [
            own_pairs(each.documents, examples.rows, self._embedder, seed=self._options.seed)
            for each, examples in zip(self._sets, learned, strict=True)
        ]
        material = Material(learned, own, (), still_vectors(own, self._embedder))
        tests = [labelled_examples(each, self._embedder, IndexOptions()) for each in self._watched]
        checks: dict[int, float] = {}

        def told(step: Step, heads: ResidualHeads) -> None:
            if step.is_check:
                moved = Heads(heads.adapter(self._base, 1.0, {}))
                checks[step.number] = mean_of_sets([reciprocal_ranks(e, moved) for e in tests])
            progress(step.number, step.loss)

        heads = train_heads(material, self._options, told)
        chosen = choose_scale(lambda scale: heads.adapter(self._base, scale, {}), tests)
        scales = {scale: value for scale, value in chosen.scales.items() if scale}
        trained = Trained(chosen.scales[0.0], checks, scales, self._options.steps, chosen.scale)
        options, measure = asdict(self._options), "mean reciprocal rank"
        card = _card(self._sets, self._watched, options, trained, measure)
        adapter = heads.adapter(self._base, chosen.scale, card) if chosen.scale else None
        return Finetuned(trained, adapter, measure)

    def _examples(self, training: TrainingSet) -> ExampleSet:
        rows = tool_rows(training.documents, self._embedder, IndexOptions())
        vectors = request_vectors([each.text for each in training.requests], self._embedder)
        mistaken = mistaken_tools(training.requests, vectors, rows)
        examples = [
            Example(number, dict.fromkeys(sorted(request.wanted), 1.0), tuple(wrong))
            for number, (request, wrong) in enumerate(zip(training.requests, mistaken, strict=True))
        ]
        return ExampleSet(vectors, rows, examples)


def _watch(watched: Sequence[LabelledSet]) -> Watch:
    def measured(embeddings: Embeddings) -> float:
        results = (evaluate(each, BUILT_IN["semantic"], Model(embeddings)) for each in watched)
        return statistics.fmean(result.measures["ndcg@10"] or 0.0 for result in results)

    return measured


def _card(
    sets: Sequence[TrainingSet],
    watched: Sequence[LabelledSet],
    options: Mapping[str, object],
    trained: Trained,
    measure: str,
) -> dict[str, object]:
    return {
        "pairs": {each.name: len(each.requests) for each in sets},
        "watched": [each.name for each in watched],
        "options": options,
        f"{measure} of the watched sets": asdict(trained),
    }
