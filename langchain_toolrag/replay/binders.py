"""Contenders and tools in -> what each of them binds for a request or a conversation out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage

from langchain_toolrag.catalogue.bound_names import OnDuplicate
from langchain_toolrag.catalogue.catalogue import Catalogue
from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.evaluation.answering import answering_of
from langchain_toolrag.evaluation.contender import Contender
from langchain_toolrag.evaluation.evaluate import Model
from langchain_toolrag.evaluation.labelled import LabelledQuery
from langchain_toolrag.index.embedding import NoEmbeddings
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.replay.meaning import MeaningIndex
from langchain_toolrag.replay.moments import Side
from langchain_toolrag.selection.conversation import read_conversation
from langchain_toolrag.selection.options import OnError
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.types import ToolId, Tools

Progress: TypeAlias = Callable[[int, int], None]
"""Called with how much is done and how much there is."""

_LEAST_RESULTS = 5  # What a model's own search finds at most unless it asks for another number.


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is bound in a model step.

    Attributes:
        tools: Ids, in binding order.
        state: What to hand back at the next step; None for contenders without a memory.
    """

    tools: Sequence[ToolId]
    state: Mapping[str, Any] | None = None


class Binder:
    """A contender that holds the tools of an agent, and can be asked again what it was asked.

    Args:
        contender: The contender.
        rag: The tools, as the contender wants them.

    Attributes:
        contender: The contender.
        rag: The tools.
    """

    def __init__(self, contender: Contender, rag: ToolRAG) -> None:
        self.contender = contender
        self.rag = rag
        self._selects = contender.way in ("product", "classic")

    @property
    def catalogue(self) -> Catalogue:
        """The tools."""
        return self.rag.catalogue

    @property
    def has_model(self) -> bool:
        """Whether requests are embedded."""
        local = self.rag.tool_index.local
        return local is not None and not isinstance(local.embedder.embeddings, NoEmbeddings)

    def select(
        self, messages: Sequence[BaseMessage], previous: Mapping[str, Any] | None = None
    ) -> Chosen:
        """Return what is bound for a conversation.

        Args:
            messages: The conversation.
            previous: The state of the step before; None at the start.

        Returns:
            The tools. Rankings by meaning or words alone know the last user turn alone.

        Raises:
            EmbeddingError: If the model fails.
        """
        if self._selects:
            selection = self.rag.select(list(messages), previous=previous)
            return Chosen(selection.ids, selection.state)
        return Chosen(self._ranked(read_conversation(list(messages)).query))

    def search(self, query: str, shown: int = 0) -> Sequence[ToolId]:
        """Return what a model's own search finds.

        Args:
            query: What was searched for.
            shown: How many tools the search showed then: how many it asked for is not known, but
                that it was at least so many.

        Returns:
            Ids, best first.

        Raises:
            EmbeddingError: If the model fails.
        """
        if self._selects:
            found = self.rag.find(query, max(_LEAST_RESULTS, shown))
            if found.degraded and self.has_model:  # Not the search that was to be made.
                raise EmbeddingError(found.degraded)
            return [hit.id for hit in found.hits]
        return self._ranked(query)

    def by_meaning(self) -> ByMeaning | None:
        """Return the same contender for requests without text; None for one that goes by words."""
        local = self.rag.tool_index.local
        if local is None or not self.has_model:
            return None
        by_vector = MeaningIndex(local)
        rag = ToolRAG(
            self.catalogue.originals,
            index=by_vector,
            options=self.rag.options,
            on_duplicate=self.rag.on_duplicate,
            heads=self.rag.heads_for(),
        )
        return ByMeaning(Binder(self.contender, rag), by_vector)

    def _ranked(self, query: str) -> Sequence[ToolId]:
        answering = answering_of(self.contender, self.rag, by_words=not self.has_model)
        return answering.bind(LabelledQuery("", query, (), {}))


@dataclass(frozen=True, slots=True)
class ByMeaning:
    """A contender for requests without text.

    Attributes:
        binder: The contender; it is asked by `meaning.request_name`.
        index: Where the vectors of the requests go first.
    """

    binder: Binder
    index: MeaningIndex


def binders(
    contenders: Mapping[Side, Contender],
    tools: Tools,
    models: Mapping[str, Model],
    *,
    on_duplicate: OnDuplicate = "prefix",
    progress: Progress | None = None,
) -> dict[Side, Binder]:
    """Give contenders the tools of an agent, and make the tools' vectors.

    Contenders that index the same of a tool, by one model, share an index: the tools are embedded
    once, and a request is.

    Args:
        contenders: The contenders, by side.
        tools: The tools.
        models: The models by contender's name, as `evaluate.models_for` returns them.
        on_duplicate: What names the tools are bound under, as the agent had it.
        progress: Told how many tools have vectors.

    Returns:
        The contenders with their tools, by side.

    Raises:
        AdapterError: If heads cannot be read or are another model's.
        DuplicateToolError: If two tools have one name, under `"raise"`.
        EmbeddingError: If the model cannot be loaded or fails.
        UnknownToolError: If `always_include` names a tool that is not there.
    """
    indexes: dict[tuple[int, IndexOptions], ToolIndex] = {}
    made: dict[Side, Binder] = {}
    for side, contender in contenders.items():
        model = models[contender.name]
        embeddings: Embeddings = NoEmbeddings() if contender.way == "text" else model.embeddings
        by_words = isinstance(embeddings, NoEmbeddings)
        key = (0 if by_words else id(embeddings), contender.indexed_by)
        if key not in indexes:
            # Of users' requests nothing is kept on the disk.
            known = None if by_words else model.known
            indexes[key] = ToolIndex(embeddings, options=contender.indexed_by, cache=known)
        # A search that was quietly made by words would be taken for one of another kind.
        on_error: OnError = "lexical" if by_words else "raise"
        rag = ToolRAG(
            tools,
            index=indexes[key],
            options=replace(contender.options, on_error=on_error),
            on_duplicate=on_duplicate,
            heads=contender.heads,
        )
        if not by_words:
            rag.index(progress=progress)
        made[side] = Binder(contender, rag)
    return made
