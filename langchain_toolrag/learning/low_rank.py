"""A sentence-transformers model in -> the same with a low-rank change of its layers out.

See `index.adapter` for the paper. Vectors are computed in bfloat16, which is three times as fast
on processors that know it and changes a cosine by a thousandth.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray
from torch import Tensor, nn

from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.index.adapter import Adapter
from langchain_toolrag.index.embedding import MiniLMEmbeddings
from langchain_toolrag.index.encoder import load_network
from langchain_toolrag.index.weights import base_identity
from langchain_toolrag.types import Vector, Vectors

_TRAINED_TOKENS = 96  # Enough for all but the longest texts, at half the time.
_ENCODE_BATCH = 64


class LowRankLearner:
    """A sentence-transformers model with a low-rank change of every layer of its encoder.

    Args:
        model: A hub name or a folder.
        rank: Rank of the changes.
        seed: Where the random start comes from; the change begins as nothing.

    Raises:
        EmbeddingError: If the model cannot be loaded or has no encoder to change.

    Attributes:
        scale: How much of what was learned is applied, 0 to 1.
    """

    def __init__(self, model: str, *, rank: int = 16, seed: int = 0) -> None:
        self._model = model
        self._base = base_identity(model)
        self._network: Any = load_network(model, None)
        self._tokenize = getattr(self._network, "preprocess", self._network.tokenize)
        for weight in self._network.parameters():
            weight.requires_grad_(False)
        transformer = getattr(self._network[0], "auto_model", None)
        with torch.random.fork_rng(devices=[]):  # The dice of others stay as they are.
            torch.manual_seed(seed)
            self._layers = _with_low_rank_layers(transformer, rank)
        if not self._layers:
            raise EmbeddingError(f"{model} has no encoder with linear layers: train heads instead")

    @property
    def scale(self) -> float:
        """How much of what was learned is applied."""
        return next(iter(self._layers.values())).scale

    @scale.setter
    def scale(self, scale: float) -> None:
        for layer in self._layers.values():
            layer.scale = scale

    def parameters(self) -> list[nn.Parameter]:
        """Return what is trained."""
        return [weight for layer in self._layers.values() for weight in (layer.down, layer.up)]

    def requests(self, texts: Sequence[str]) -> Tensor:
        """Return unit vectors of requests, shape `(n, dim)`."""
        return self._encoded(texts, _TRAINED_TOKENS)

    def tools(self, texts: Sequence[str]) -> Tensor:
        """Return unit vectors of tool texts, shape `(n, dim)`."""
        return self._encoded(texts, _TRAINED_TOKENS)

    def embeddings(self) -> Embeddings:
        """Return the model as it is now."""
        return _Encoding(self, self._model)

    def adapter(self, card: Mapping[str, Any]) -> Adapter:
        """Return what was learned."""
        tensors: dict[str, NDArray[np.floating[Any]]] = {}
        for name, layer in self._layers.items():
            tensors[f"{name}.down"] = layer.down.detach().numpy().copy()
            tensors[f"{name}.up"] = layer.up.detach().numpy().copy()
        return Adapter("low-rank", self._base, self.scale, tensors, card)

    @torch.no_grad()
    def encode(self, texts: list[str]) -> Vectors:
        """Return unit vectors, shape `(len(texts), dim)`, without a gradient."""
        by_length = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        batches: dict[int, Vector] = {}
        for start in range(0, len(texts), _ENCODE_BATCH):
            places = by_length[start : start + _ENCODE_BATCH]
            encoded = self._encoded([texts[place] for place in places], None)
            batches.update(zip(places, encoded.numpy(), strict=True))
        return np.stack([batches[place] for place in range(len(texts))])

    def _encoded(self, texts: Sequence[str], most_tokens: int | None) -> Tensor:
        with _cut_at(self._network, most_tokens), torch.autocast("cpu", torch.bfloat16):
            features = self._tokenize(list(texts))
            pooled: Tensor = self._network(features)["sentence_embedding"]
        return nn.functional.normalize(pooled.float(), dim=1)


class _Encoding(MiniLMEmbeddings):
    """A learner as LangChain sees it: a model of ours, to which requests are texts like others."""

    def __init__(self, learner: LowRankLearner, model: str) -> None:
        super().__init__(model, adapter=None)
        self._learner = learner

    def _encode(self, texts: list[str]) -> Vectors:
        return self._learner.encode(texts)


class _LowRank(nn.Module):
    """`W x + scale * up (down x)`; `up` begins as zero."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer
        self.scale = 1.0
        spread = layer.in_features**-0.5
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) * spread)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, inputs: Tensor) -> Tensor:
        changed: Tensor = self.layer(inputs) + self.scale * (inputs @ self.down.T @ self.up.T)
        return changed


def _with_low_rank_layers(network: Any, rank: int) -> dict[str, _LowRank]:
    """Put a change beside every linear layer of the encoder, and return them by layer."""
    linear = [
        name
        for name, module in (network.named_modules() if network is not None else ())
        if isinstance(module, nn.Linear) and name.startswith("encoder.")
    ]
    changed: dict[str, _LowRank] = {}
    for name in linear:
        parent, _, leaf = name.rpartition(".")
        changed[name] = _LowRank(network.get_submodule(name), rank)
        setattr(network.get_submodule(parent), leaf, changed[name])
    return changed


@contextlib.contextmanager
def _cut_at(network: Any, most_tokens: int | None) -> Iterator[None]:
    """Let a model read no more than so many tokens for a while; None for its own limit."""
    own = network.max_seq_length
    network.max_seq_length = own if most_tokens is None else min(own, most_tokens)
    try:
        yield
    finally:
        network.max_seq_length = own
