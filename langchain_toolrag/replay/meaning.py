"""Requests' vectors, without their text, in -> what speaks for tools by meaning alone out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.index.contract import CANDIDATES
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.index.keyword import parse_query
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.types import Evidence, ToolFilter, Vector

_LETTERS = 4
_NO_WORDS = parse_query("")


class MeaningIndex(ToolIndex):
    """An index that is asked by the name of a request, of which it knows the vector alone.

    Words and names do not count: a name has none that mean anything.

    Args:
        index: Where the tools and their vectors are from.

    Attributes:
        vectors: The model's vectors of requests, by `request_name`.
    """

    def __init__(self, index: ToolIndex) -> None:
        super().__init__(index.embedder.embeddings, snapshot=index.snapshot)
        self.vectors: Mapping[str, Vector] = {}

    def evidence(
        self,
        query: str,
        candidate_k: int = CANDIDATES,
        filter: ToolFilter | None = None,
        *,
        dense: bool = True,
        along: Sequence[str] = (),
        heads: Heads | None = None,
    ) -> Evidence:
        """Return what speaks for the tools closest in meaning.

        Args:
            query: The name of a request.
            candidate_k: How many tools are put forward.
            filter: Which tools may be returned.
            dense: Whether meaning counts.
            along: Not used.
            heads: What moves the vectors of requests and tools.

        Returns:
            The evidence.

        Raises:
            EmbeddingError: If it does not know the request's vector.
        """
        if query not in self.vectors:
            raise EmbeddingError("a request without text and vector cannot be searched for")
        vector = self.vectors[query] if dense else None
        return self._answer(_NO_WORDS, vector, candidate_k, filter, heads)


def request_name(digest: str) -> str:
    """Return what stands for a request of which there is no text.

    It is long enough not to be taken for small talk, and has nothing that could be taken for the
    parts of a request.

    Args:
        digest: Its digest, in hexadecimal.

    Returns:
        The digest in groups of four.
    """
    groups = (digest[start : start + _LETTERS] for start in range(0, len(digest), _LETTERS))
    return " ".join(groups)
