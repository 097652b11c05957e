"""The catalogue as a LangChain retriever."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever, LangSmithRetrieverParams
from pydantic import ConfigDict, Field

from langchain_toolrag.selection.bindable import Filter
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.types import Hit, Tool


class ToolRetriever(BaseRetriever):
    """Retrieves tools as documents, by meaning, words and name together.

    Example:
        >>> retriever = ToolRetriever(rag=ToolRAG(tools), k=3)
        >>> [document.id for document in retriever.invoke("is it raining in Delhi?")]

    Attributes:
        rag: Where the tools are.
        k: How many documents; None for adaptive.
        filter: Which tools may be retrieved.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    rag: ToolRAG = Field(exclude=True, repr=False)
    k: int | None = Field(default=None, ge=1)
    filter: Any = Field(default=None, exclude=True, repr=False)

    def get_tools(self, query: str, *, k: int | None = None) -> list[Tool]:
        """Return the tools themselves, best first.

        Args:
            query: A request.
            k: How many; None for the retriever's own `k`.

        Returns:
            Tools that can be bound to a model.
        """
        entries = self.rag.catalogue.entries
        hits = self.rag.search(query, self._wanted(k), self._filter)
        return [entries[hit.id].bound for hit in hits if hit.id in entries]

    async def aget_tools(self, query: str, *, k: int | None = None) -> list[Tool]:
        """Return the same as `get_tools`, without blocking the event loop."""
        entries = self.rag.catalogue.entries
        hits = await self.rag.asearch(query, self._wanted(k), self._filter)
        return [entries[hit.id].bound for hit in hits if hit.id in entries]

    @property
    def _filter(self) -> Filter | None:
        chosen: Filter | None = self.filter
        return chosen

    def _wanted(self, k: int | None) -> int | None:
        return self.k if k is None else k

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        return self._documents(self.rag.search(query, self._wanted(k), self._filter))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        hits = await self.rag.asearch(query, self._wanted(k), self._filter)
        if self.rag.tool_index.local is None:
            return await asyncio.to_thread(self._documents, hits)
        return self._documents(hits)

    def _documents(self, hits: list[Hit]) -> list[Document]:
        indexed = self.rag.tool_index.documents_of([hit.id for hit in hits])
        return [
            Document(
                id=hit.id,
                page_content=indexed[hit.id].text(),
                metadata={
                    "tool_name": indexed[hit.id].name,
                    "server": indexed[hit.id].server,
                    "score": hit.score,
                    "rank": hit.rank,
                },
            )
            for hit in hits
            if hit.id in indexed
        ]

    def _get_ls_params(self, **kwargs: Any) -> LangSmithRetrieverParams:
        return LangSmithRetrieverParams(
            ls_retriever_name="toolrag", ls_vector_store_provider="faiss"
        )
