"""An index and who asks it -> evidence under the heads that the caller is given out."""

from __future__ import annotations

from dataclasses import dataclass

from langchain_core.runnables import RunnableConfig

from langchain_toolrag.caller import Caller
from langchain_toolrag.index.contract import Index
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.search.rankings import Question
from langchain_toolrag.types import Evidence
from langchain_toolrag.usage.request_vectors import RequestVector


@dataclass(frozen=True, slots=True)
class Asking:
    """One search or selection while it is being made.

    Attributes:
        index: What is searched.
        heads: The heads that move requests and tools; None for none.
        trial: Digest of the heads on trial that the caller's session is dealt out for, whether
            they are those or not; empty for none.
        caller: Who asks.
        config: The run's config.
    """

    index: Index
    heads: Heads | None
    trial: str
    caller: Caller
    config: RunnableConfig

    @property
    def digest(self) -> str:
        """The digest of the heads; empty for none."""
        return "" if self.heads is None else self.heads.digest

    def ask(self, question: Question) -> Evidence:
        """Return the evidence for a question."""
        return self.index.evidence(
            question.query,
            question.candidate_k,
            question.filter,
            dense=question.dense,
            along=question.along,
            heads=self.heads,
        )

    async def aask(self, question: Question) -> Evidence:
        """Return the same as `ask`, without blocking the event loop."""
        return await self.index.aevidence(
            question.query,
            question.candidate_k,
            question.filter,
            dense=question.dense,
            along=question.along,
            heads=self.heads,
        )

    def vector(self, query: str) -> RequestVector | None:
        """Return the model's vector of a query that was asked lately; None where there is none."""
        vector = self.index.request_vector(query)
        return None if vector is None else RequestVector(self.index.model, vector)
