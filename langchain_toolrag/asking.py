"""An index and who asks it -> evidence under the heads that the caller is given out."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from langchain_core.runnables import RunnableConfig

from langchain_toolrag.caller import Caller
from langchain_toolrag.index.contract import Index
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.search.rankings import Question
from langchain_toolrag.selection.bindable import within
from langchain_toolrag.types import Evidence, ToolId
from langchain_toolrag.usage.request_vectors import RequestVector


@dataclass(frozen=True, slots=True)
class Asking:
    """One search or selection while it is being made.

    Attributes:
        index: What is searched.
        own: The tools that may be found, should others have brought more into the index; empty for
            all.
        heads: The heads that move requests and tools; None for none.
        trial: Digest of the heads on trial that the caller's session is dealt out for, whether
            they are those or not; empty for none.
        caller: Who asks.
        config: The run's config.
    """

    index: Index
    own: Collection[ToolId]
    heads: Heads | None
    trial: str
    caller: Caller
    config: RunnableConfig

    @property
    def digest(self) -> str:
        """The digest of the heads; empty for none."""
        return "" if self.heads is None else self.heads.digest

    def ask(self, question: Question) -> Evidence:
        """Return the evidence for a question, of the own tools alone."""
        evidence = self._evidence(self._at_first(question))
        if self._is_own(evidence):
            return evidence
        return self._evidence(self._among_own(question))

    async def aask(self, question: Question) -> Evidence:
        """Return the same as `ask`, without blocking the event loop."""
        evidence = await self._aevidence(self._at_first(question))
        if self._is_own(evidence):
            return evidence
        return await self._aevidence(self._among_own(question))

    def vector(self, query: str) -> RequestVector | None:
        """Return the model's vector of a query that was asked lately; None where there is none."""
        vector = self.index.request_vector(query)
        return None if vector is None else RequestVector(self.index.model, vector)

    def _at_first(self, question: Question) -> Question:
        """Leave out others' tools where there are some by all that is known.

        It is quicker not to, and most have an index for themselves. What is known may be old: the
        evidence shows it.
        """
        has_others = 0 < len(self.own) < self.index.size
        return self._among_own(question) if has_others else question

    def _among_own(self, question: Question) -> Question:
        return replace(question, filter=within(self.own, question.filter))

    def _is_own(self, evidence: Evidence) -> bool:
        return not self.own or all(tool.id in self.own for tool in evidence.tools)

    def _evidence(self, question: Question) -> Evidence:
        return self.index.evidence(
            question.query,
            question.candidate_k,
            question.filter,
            dense=question.dense,
            along=question.along,
            heads=self.heads,
        )

    async def _aevidence(self, question: Question) -> Evidence:
        return await self.index.aevidence(
            question.query,
            question.candidate_k,
            question.filter,
            dense=question.dense,
            along=question.along,
            heads=self.heads,
        )
