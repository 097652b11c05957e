"""Vectors of an embedding model in -> the same, moved by heads that can be trained, out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from langchain_toolrag.index.adapter import Adapter

_SMALLEST = 1e-9


class ResidualHeads:
    """A residual head for requests and one for tools: `index.heads.Heads` with a gradient.

    A head is `x + MLP(x)`; its last layer starts at zero, so that it begins as the identity.

    Args:
        dim: Dimension of the vectors.
        hidden: Width of the layer inside each head.
        seed: Where the random start comes from.
    """

    def __init__(self, dim: int, hidden: int, *, seed: int) -> None:
        with torch.random.fork_rng(devices=[]):  # The dice of others stay as they are.
            torch.manual_seed(seed)
            self._request = _MLP(dim, hidden)
            self._tool = _MLP(dim, hidden)

    def parameters(self) -> list[nn.Parameter]:
        """Return what is trained."""
        return [*self._request.parameters(), *self._tool.parameters()]

    def requests(self, vectors: Tensor) -> Tensor:
        """Return moved vectors of requests; unit ones stay unit, shape `(n, dim)`."""
        return nn.functional.normalize(vectors + self._request(vectors), dim=1)

    def rows(self, rows: Tensor) -> Tensor:
        """Return moved rows, each as long as it was, shape `(n, dim)`."""
        lengths = rows.norm(dim=1, keepdim=True)
        units = rows / lengths.clamp_min(_SMALLEST)
        moved: Tensor = lengths * nn.functional.normalize(units + self._tool(units), dim=1)
        return moved

    def adapter(self, base: str, scale: float, card: Mapping[str, Any]) -> Adapter:
        """Return what was learned so far, in the precision in which it is kept.

        Args:
            base: The model whose vectors it is for, as `embedding.model_name` names it.
            scale: How much of it is applied, 0 to 1.
            card: Where it comes from.

        Returns:
            A copy; it does not change any more.
        """
        tensors: dict[str, NDArray[np.floating[Any]]] = {
            f"{side}.{name}": weight.detach().numpy().astype(np.float16)
            for side, head in (("request", self._request), ("tool", self._tool))
            for name, weight in head.named_parameters()
        }
        return Adapter("heads", base, scale, tensors, card)


class _MLP(nn.Module):
    """What a head adds to a vector; nothing in the beginning, for its last layer is zero."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.first = nn.Linear(dim, hidden)
        self.second = nn.Linear(hidden, dim)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(self.second.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        moved: Tensor = self.second(nn.functional.relu(self.first(vectors)))
        return moved
