"""Any embedding model in -> the same with residual heads on its vectors out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray
from torch import Tensor, nn

from langchain_toolrag.index.adapter import Adapter, Side
from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.embedding import model_name
from langchain_toolrag.types import Vector
from langchain_toolrag.vectors.cache import VectorMemory

_HIDDEN = 512


class HeadsLearner:
    """Any model, left as it is, with a residual head for requests and one for tools.

    A head is `x + scale * MLP(x)`; its last layer starts at zero, so that it begins as the
    identity.

    Args:
        base: The model.
        seed: Where the random start comes from.

    Attributes:
        scale: As in `Learner`.
    """

    def __init__(self, base: Embeddings, *, seed: int = 0) -> None:
        self.scale = 1.0
        self._base = base
        self._embedder = Embedder(base, cache=VectorMemory(), keep_requests=True)
        dim = len(self._embedder.query("a request"))
        with torch.random.fork_rng(devices=[]):  # The dice of others stay as they are.
            torch.manual_seed(seed)
            self._heads: dict[Side, _MLP] = {"request": _MLP(dim), "tool": _MLP(dim)}

    def parameters(self) -> list[nn.Parameter]:
        """Return what is trained."""
        return [weight for head in self._heads.values() for weight in head.parameters()]

    def requests(self, texts: Sequence[str]) -> Tensor:
        """Return unit vectors of requests, shape `(n, dim)`."""
        self._embedder.requests(texts)
        return self._moved([self._embedder.query(text) for text in texts], "request")

    def tools(self, texts: Sequence[str]) -> Tensor:
        """Return unit vectors of tool texts, shape `(n, dim)`."""
        made = self._embedder.documents(texts)
        return self._moved([made[text] for text in texts], "tool")

    def embeddings(self) -> Embeddings:
        """Return the model as it is now."""
        return _Headed(self)

    def adapter(self, card: Mapping[str, Any]) -> Adapter:
        """Return what was learned."""
        tensors: dict[str, NDArray[np.floating[Any]]] = {}
        for side, head in self._heads.items():
            for name, weight in head.named_parameters():
                tensors[f"{side}.{name}"] = weight.detach().numpy().copy()
        return Adapter("heads", model_name(self._base), self.scale, tensors, card)

    def _moved(self, rows: Sequence[Vector], side: Side) -> Tensor:
        vectors = torch.from_numpy(np.stack(rows))
        return nn.functional.normalize(vectors + self.scale * self._heads[side](vectors), dim=1)


class _Headed(Embeddings):
    """A learner as LangChain sees it."""

    def __init__(self, learner: HeadsLearner) -> None:
        self._learner = learner

    @torch.no_grad()
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._learner.tools(texts).tolist()
        return vectors

    @torch.no_grad()
    def embed_query(self, text: str) -> list[float]:
        vector: list[float] = self._learner.requests([text])[0].tolist()
        return vector


class _MLP(nn.Module):
    """What a head adds to a vector; nothing in the beginning, for its last layer is zero."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = nn.Linear(dim, _HIDDEN)
        self.second = nn.Linear(_HIDDEN, dim)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(self.second.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        moved: Tensor = self.second(nn.functional.relu(self.first(vectors)))
        return moved
