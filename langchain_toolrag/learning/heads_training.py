"""Examples in -> trained heads out.

Besides the examples there is what must stay as it is. The pairs of a catalogue's own texts are
replayed beside every batch [1], and so are general pairs where there are some; and general vectors,
mixed and blurred so that they are never the same, are held where they are [2].

References:
    [1] Rolnick et al. Experience Replay for Continual Learning. NeurIPS 2019.
    https://doi.org/10.48550/arXiv.1811.11682
    [2] Li and Hoiem. Learning without Forgetting. ECCV 2016.
    https://doi.org/10.1007/978-3-319-46493-0_37
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from langchain_toolrag.learning.examples import Example, ExampleSet
from langchain_toolrag.learning.heads import ResidualHeads
from langchain_toolrag.learning.loss import SHARPNESS, contrastive_loss
from langchain_toolrag.learning.options import LearnOptions
from langchain_toolrag.types import Vectors

_WARM_UP = 20
_DECAY = 0.01
_LONGEST_GRADIENT = 1.0
_MOST_TOOLS = 2000  # Of a larger catalogue a batch sees a part.
_EVENNESS = 0.3  # The power of a set's size: 1 would leave small sets unseen, 0 repeats them.
_REPLAYED = 64  # Pairs, and vectors that are held, a batch.
_GENERAL = 0.5  # What general pairs count, beside an example.
_MIXED = 3  # Vectors in a mixture,
_EVEN_MIXTURE = 0.5  # of which one is the most of it more often than not,
_BLUR = 1.5  # and how long the noise in it is.
_CHECKS = 6


@dataclass(frozen=True, slots=True, eq=False)
class Material:
    """What heads are trained with.

    Attributes:
        sets: What is to be learned; at least one example.
        own: For each of these sets, pairs of its catalogue's own texts, by the same rows.
        general: Pairs of other catalogues, not to be forgotten.
        still: Unit vectors not to be moved by either head, shape `(n, dim)`.
    """

    sets: Sequence[ExampleSet]
    own: Sequence[ExampleSet]
    general: Sequence[ExampleSet]
    still: Vectors


class Step(NamedTuple):
    """Where training is.

    Attributes:
        number: The step, from 1.
        loss: The running loss of the examples alone.
        is_check: Whether it is one of a few at which one may look how good the heads are; the
            last is.
    """

    number: int
    loss: float
    is_check: bool


def train_heads(
    material: Material, options: LearnOptions, told: Callable[[Step, ResidualHeads], None]
) -> ResidualHeads:
    """Train heads by a softmax over the catalogue's tools.

    Args:
        material: What to train with.
        options: How; the same seed trains the same heads on the same machine.
        told: Called after every step.

    Returns:
        The heads after the last step.
    """
    with _one_thread():
        return _trained(material, options, told)


def _trained(
    material: Material, options: LearnOptions, told: Callable[[Step, ResidualHeads], None]
) -> ResidualHeads:
    dice = np.random.default_rng(options.seed)
    heads = ResidualHeads(material.still.shape[1], options.hidden, seed=options.seed)
    optimiser = torch.optim.AdamW(heads.parameters(), lr=options.rate, weight_decay=_DECAY)
    batches = _Batches(material, options, dice)
    checked = {max(1, round(options.steps * look / _CHECKS)) for look in range(1, _CHECKS + 1)}
    running = None
    for number in range(1, options.steps + 1):
        for group in optimiser.param_groups:
            falling = 1 - (number - 1) / options.steps
            group["lr"] = options.rate * min(1, number / _WARM_UP) * falling
        learned, kept = batches.losses(heads)
        optimiser.zero_grad()
        (learned + kept).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(heads.parameters(), _LONGEST_GRADIENT)
        optimiser.step()
        running = learned.item() if running is None else 0.95 * running + 0.05 * learned.item()
        told(Step(number, running, number in checked), heads)
    return heads


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread for a while.

    Heads are too small for more: on a busy machine threads that wait for each other took 28 to
    219 seconds for what one does in 12.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Batches:
    """Draws batches and says what heads lose on them."""

    def __init__(
        self, material: Material, options: LearnOptions, dice: np.random.Generator
    ) -> None:
        self._options = options
        self._dice = dice
        self._still = torch.from_numpy(material.still)
        self._catalogues = [
            (_Tensors(learned), _Deck(learned, dice), _Tensors(own), _Deck(own, dice))
            for learned, own in zip(material.sets, material.own, strict=True)
        ]
        sizes = np.array([len(each.examples) for each in material.sets], np.float64)
        self._chances = sizes**_EVENNESS * (sizes > 0)
        self._chances /= self._chances.sum()
        self._general = [(_Tensors(each), _Deck(each, dice)) for each in material.general]
        self._drawn = 0

    def losses(self, heads: ResidualHeads) -> tuple[Tensor, Tensor]:
        """Return the loss of the next examples, and of what must stay as it is."""
        number = int(self._dice.choice(len(self._catalogues), p=self._chances))
        tensors, deck, own, own_deck = self._catalogues[number]
        batch = deck.draw(self._options.batch)
        replayed = own_deck.draw(_REPLAYED) if self._options.replay else []
        columns = _columns([*batch, *replayed], len(tensors.rows), self._dice)
        rows = heads.rows(tensors.rows[columns])
        learned = _loss(heads, tensors.requests, rows, batch, columns)
        kept = self._options.stillness * self._movement(heads)
        if replayed:
            lost = _loss(heads, own.requests, rows, replayed, columns)
            kept = kept + self._options.replay * lost
        if self._general:
            kept = kept + _GENERAL * self._forgotten(heads)
        return learned, kept

    def _forgotten(self, heads: ResidualHeads) -> Tensor:
        """Return the loss of general pairs, of one set after the other."""
        tensors, deck = self._general[self._drawn % len(self._general)]
        self._drawn += 1
        batch = deck.draw(_REPLAYED)
        columns = _columns(batch, len(tensors.rows), self._dice)
        return _loss(heads, tensors.requests, heads.rows(tensors.rows[columns]), batch, columns)

    def _movement(self, heads: ResidualHeads) -> Tensor:
        """Return how far vectors that nobody asked for are moved, squared."""
        as_requests, as_tools = self._mixtures(), self._mixtures()
        moved = heads.requests(as_requests) - as_requests, heads.rows(as_tools) - as_tools
        return sum((each.square().sum(dim=1).mean() for each in moved), torch.zeros(()))

    def _mixtures(self) -> Tensor:
        """Return unit vectors from where general vectors are: mixtures of a few, with noise."""
        count, dim = 2 * _REPLAYED, self._still.shape[1]
        shares = self._dice.dirichlet(np.full(_MIXED, _EVEN_MIXTURE), count)
        chosen = self._dice.integers(0, len(self._still), (count, _MIXED))
        noise = self._dice.standard_normal((count, dim)) * (_BLUR / dim**0.5)
        of_each = torch.from_numpy(shares.astype(np.float32))[:, :, None]
        mixed = (of_each * self._still[torch.from_numpy(chosen)]).sum(dim=1)
        return nn.functional.normalize(mixed + torch.from_numpy(noise.astype(np.float32)), dim=1)


class _Tensors:
    """A set's vectors for torch."""

    def __init__(self, examples: ExampleSet) -> None:
        self.requests = torch.from_numpy(np.ascontiguousarray(examples.requests, np.float32))
        self.rows = torch.from_numpy(np.ascontiguousarray(examples.rows, np.float32))


class _Deck:
    """Draws examples, every one before any comes again."""

    def __init__(self, examples: ExampleSet, dice: np.random.Generator) -> None:
        self._examples = examples.examples
        self._dice = dice
        self._waiting: list[int] = []

    def draw(self, count: int) -> list[Example]:
        """Return so many examples, or all where there are fewer."""
        wanted = min(count, len(self._examples))
        if len(self._waiting) < wanted:
            self._waiting += self._dice.permutation(len(self._examples)).tolist()
        drawn, self._waiting = self._waiting[:wanted], self._waiting[wanted:]
        return [self._examples[number] for number in drawn]


def _columns(batch: Sequence[Example], tools: int, dice: np.random.Generator) -> Tensor:
    """Return the places of the tools that a batch is shown, ascending."""
    if tools <= _MOST_TOOLS:
        return torch.arange(tools)
    needed = {place for each in batch for place in (*each.wanted, *each.unwanted)}
    others = dice.choice(tools, max(0, _MOST_TOOLS - len(needed)), replace=False)
    return torch.tensor(sorted(needed | set(others.tolist())))


def _loss(
    heads: ResidualHeads,
    requests: Tensor,
    rows: Tensor,
    batch: Sequence[Example],
    columns: Tensor,
) -> Tensor:
    """Return the loss of examples over the moved rows of some tools."""
    shown = {place: column for column, place in enumerate(columns.tolist())}
    wanted = torch.zeros(len(batch), len(columns))
    unknown = torch.zeros(len(batch), len(columns), dtype=torch.bool)
    for number, each in enumerate(batch):
        for place, sureness in each.wanted.items():
            wanted[number, shown[place]] = sureness
        for place in each.unknown & shown.keys():
            unknown[number, shown[place]] = True
    moved = heads.requests(requests[[each.request for each in batch]])
    weights = torch.tensor([each.weight for each in batch])
    return contrastive_loss(SHARPNESS * moved @ rows.T, wanted, unknown, weights)
