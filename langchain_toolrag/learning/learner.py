"""What can be trained: a model, and what is learned on top of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from langchain_core.embeddings import Embeddings
from torch import Tensor, nn

from langchain_toolrag.index.adapter import Adapter


class Learner(Protocol):
    """What can be trained.

    Attributes:
        scale: How much of what was learned is applied, 0 to 1.
    """

    scale: float

    def parameters(self) -> list[nn.Parameter]:
        """Return what is trained."""

    def requests(self, texts: Sequence[str]) -> Tensor:
        """Return unit vectors of requests, shape `(n, dim)`, with a gradient."""

    def tools(self, texts: Sequence[str]) -> Tensor:
        """Return unit vectors of tool texts, shape `(n, dim)`, with a gradient."""

    def embeddings(self) -> Embeddings:
        """Return the model as it is now, at `scale`."""

    def adapter(self, card: Mapping[str, Any]) -> Adapter:
        """Return what was learned, at `scale`."""
