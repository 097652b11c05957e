"""Learner and batches in -> a trained learner out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch
from langchain_core.embeddings import Embeddings
from torch import Tensor, nn

from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.rows import tool_rows
from langchain_toolrag.learning.batches import Batch, Batches
from langchain_toolrag.learning.keeping import request_vectors
from langchain_toolrag.learning.loss import SHARPNESS, contrastive_loss
from langchain_toolrag.learning.low_rank import LowRankLearner
from langchain_toolrag.learning.pairs import Request, TrainingSet
from langchain_toolrag.types import Vectors
from langchain_toolrag.vectors.cache import VectorMemory

Watch: TypeAlias = Callable[[Embeddings], float]
"""How good a model is on sets that it is not trained on; higher is better."""

_MISTAKEN = slice(2, 38)  # The very best ranks hold twins of the right tool: they are not wrong.
_WARM_UP = 20
_DECAY = 0.01
_LONGEST_GRADIENT = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """How to train.

    Attributes:
        steps: How many batches.
        rate: Learning rate at its highest, after which it falls in a line to 0.
        batch: Requests a batch.
        checks: How often the watched sets are looked at, at even distances.
        scales: How much of what was learned may be applied; the best on the watched sets is.
        seed: Where the dice start.
    """

    steps: int = 400
    rate: float = 3e-4
    batch: int = 48
    checks: int = 4
    scales: tuple[float, ...] = (0.4, 0.7, 1.0)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "rate", "batch", "checks"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; wanted more than 0")
        if not self.scales or not all(0 < scale <= 1 for scale in self.scales):
            raise ValueError(f"scales are {self.scales}; wanted some above 0, none above 1")

    @property
    def checked_steps(self) -> frozenset[int]:
        """The steps after which the watched sets are looked at, the last among them."""
        looks = range(1, self.checks + 1)
        return frozenset(max(1, round(self.steps * look / self.checks)) for look in looks)


@dataclass(slots=True)
class Trained:
    """How training went.

    Attributes:
        before: What the watched sets said of the untrained model.
        checks: The same at scale 1 for the steps at which they were looked at.
        scales: The same at the best step, for every scale.
        step: The best step.
        scale: The best scale, which the learner has now; 0 if the untrained model wins.
    """

    before: float
    checks: dict[int, float] = field(default_factory=dict)
    scales: dict[float, float] = field(default_factory=dict)
    step: int = 0
    scale: float = 0.0


def train(
    learner: LowRankLearner,
    sets: Sequence[TrainingSet],
    options: TrainingOptions,
    watch: Watch,
    progress: Callable[[int, float], None],
) -> Trained:
    """Train by a softmax over each batch's tools [1], and keep the best of what came by.

    Args:
        learner: What to train; it ends with the best weights and scale.
        sets: What to learn from.
        options: How.
        watch: Tells how good a model is; decides the step and the scale.
        progress: Told the step, from 1, and the running loss.

    Returns:
        How it went.

    References:
        [1] Karpukhin et al. Dense Passage Retrieval for Open-Domain Question Answering. EMNLP 2020.
        https://doi.org/10.18653/v1/2020.emnlp-main.550
    """
    learner.scale = 0.0
    trained = Trained(before=watch(learner.embeddings()))
    batches = Batches(
        sets,
        [_mistaken(learner.embeddings(), each) for each in sets],
        size=options.batch,
        seed=options.seed,
    )
    learner.scale = 1.0
    best = _copies(learner)
    for step, loss in _steps(learner, batches, options):
        progress(step, loss)
        if step in options.checked_steps:
            found = trained.checks[step] = watch(learner.embeddings())
            if found > max((trained.checks[s] for s in trained.checks if s != step), default=-1.0):
                trained.step, best = step, _copies(learner)
    with torch.no_grad():
        for weight, kept in zip(learner.parameters(), best, strict=True):
            weight.copy_(kept)
    _choose_scale(learner, options, watch, trained)
    return trained


def _copies(learner: LowRankLearner) -> list[Tensor]:
    return [weight.detach().clone() for weight in learner.parameters()]


def _steps(
    learner: LowRankLearner, batches: Batches, options: TrainingOptions
) -> Iterator[tuple[int, float]]:
    optimiser = torch.optim.AdamW(learner.parameters(), lr=options.rate, weight_decay=_DECAY)
    running = None
    for step in range(1, options.steps + 1):
        for group in optimiser.param_groups:
            group["lr"] = options.rate * min(1, step / _WARM_UP) * (1 - (step - 1) / options.steps)
        loss = _loss(learner, batches.draw())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(learner.parameters(), _LONGEST_GRADIENT)
        optimiser.step()
        running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
        yield step, running


def _loss(learner: LowRankLearner, batch: Batch) -> Tensor:
    requests, tools = learner.requests(batch.requests), learner.tools(batch.texts)
    wanted = torch.from_numpy(batch.wanted.astype(np.float32))
    return batch.weight * contrastive_loss(SHARPNESS * requests @ tools.T, wanted)


def _choose_scale(
    learner: LowRankLearner, options: TrainingOptions, watch: Watch, trained: Trained
) -> None:
    for scale in options.scales:
        learner.scale = scale
        trained.scales[scale] = watch(learner.embeddings())
    best = max(trained.scales, key=lambda scale: trained.scales[scale])
    trained.scale = best if trained.scales[best] > trained.before else 0.0
    learner.scale = trained.scale


def _mistaken(embeddings: Embeddings, training: TrainingSet) -> list[list[int]]:
    embedder = Embedder(embeddings, cache=VectorMemory(), keep_requests=True)
    rows = tool_rows(training.documents, embedder, IndexOptions())
    vectors = request_vectors([request.text for request in training.requests], embedder)
    return mistaken_tools(training.requests, vectors, rows)


def mistaken_tools(requests: Sequence[Request], vectors: Vectors, rows: Vectors) -> list[list[int]]:
    """Return for every request tools that the untrained model ranks high and that are not wanted.

    Args:
        requests: The requests.
        vectors: Their vectors, shape `(len(requests), dim)`.
        rows: The rows of their set's tools, shape `(tools, dim)`.

    Returns:
        Places of tools, best first. Those at the very top are left out: among them are twins of
        the right tool.
    """
    mistaken: list[list[int]] = []
    for request, vector in zip(requests, vectors, strict=True):
        order = np.argsort(-(rows @ vector), kind="stable")[:50].tolist()
        mistaken.append([place for place in order if place not in request.wanted][_MISTAKEN])
    return mistaken
