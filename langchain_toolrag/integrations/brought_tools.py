"""Tools that requests bring, rather than a catalogue -> those that each request needs out.

What the same agent brings again is embedded once. A selection is made of the tools and the
conversation alone: a process that has not seen the conversation goes through its last turns again,
and so selects what another would. What is remembered saves that work.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage

from langchain_toolrag.fork import reset_after_fork
from langchain_toolrag.index.embedding import PACKAGED_ADAPTER, as_embeddings
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.index.vector_space import cache_in
from langchain_toolrag.integrations.proxied_request import ProxiedRequest
from langchain_toolrag.selection.conversation import read_conversation
from langchain_toolrag.selection.options import SelectionOptions
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.vectors.cache import VectorMemory

_MOST_VECTORS = 20_000  # In memory, where there is no folder; 1.5 KB each.
_MOST_STATES = 4096  # Turns of conversations, some 2 KB each.
_REPLAYED_TURNS = 8  # What a process has not seen of a conversation: an embedding each.
# A hanging model takes a thread for as long as it hangs: these are not the proxy's own.
_PREPARING, _SELECTING = 2, 4

ValueT = TypeVar("ValueT")
ResultT = TypeVar("ResultT")


class Latest(Generic[ValueT]):
    """Values by key, of which those used last are kept; safe under threads.

    Args:
        most: How many are kept, at least 1.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[str, ValueT] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> ValueT | None:
        """Return a value, which counts as used by that; None where there is none."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: str, value: ValueT) -> None:
        """Keep a value; the one that was used the longest ago goes where there are too many."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._most:
                self._values.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _Preparation:
    """Tools that are being indexed, or are.

    Attributes:
        done: The ToolRAG of them, or why there is none.
        until: How long requests wait for it, on the monotonic clock.
    """

    done: Future[ToolRAG | Exception]
    until: float

    def failed(self) -> bool:
        return self.done.done() and isinstance(self.done.result(), Exception)


class BroughtTools:
    """Selects among the tools that requests bring.

    Args:
        embeddings: Any LangChain model, a name or folder, or None for all-MiniLM-L6-v2.
        index_options: What is indexed of a tool; None for what `options` needs.
        options: How tools are selected. Of `always_include` counts what a request brings;
            `on_error` does not count: what fails is raised.
        cache_dir: A folder that keeps vectors from process to process; None for none.
        max_catalogues: How many sets of tools are kept indexed.
        timeout: How long requests wait for their tools to be indexed, in seconds.
    """

    def __init__(
        self,
        embeddings: Embeddings | str | None,
        *,
        index_options: IndexOptions | None,
        options: SelectionOptions,
        cache_dir: str | Path | None,
        max_catalogues: int,
        timeout: float,
    ) -> None:
        classic = options.algorithm == "classic"
        adapter = None if classic else PACKAGED_ADAPTER
        own = IndexOptions.classic() if classic else IndexOptions()
        self._model = as_embeddings(embeddings, adapter=adapter, cache_dir=cache_dir)
        self._index_options = index_options or own
        self._options = replace(options, on_error="raise")
        kept = None if cache_dir is None else cache_in(cache_dir, self._model)
        self._vectors = VectorMemory(_MOST_VECTORS) if kept is None else kept
        self._max_catalogues = max_catalogues
        self._timeout = timeout
        self.after_fork()
        reset_after_fork(self)

    async def needed(self, request: ProxiedRequest) -> frozenset[str]:
        """Return the names of the tools that a request needs.

        Args:
            request: The request.

        Returns:
            Names of its tools, those whose schema cannot be read among them.

        Raises:
            ToolRAGError: If its tools cannot be indexed, or its words cannot be embedded.
            TimeoutError: If its tools are still being indexed.
        """
        offer = await self.in_thread(lambda: _digest(request.definitions))
        rag = await self._prepared(offer, request)
        return await self.in_thread(lambda: self._select(offer, rag, request.messages))

    async def in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        """Do something that takes long in a thread, of which there are few."""
        return await asyncio.get_running_loop().run_in_executor(self._selecting, work)

    def close(self) -> None:
        """End the threads once they have done what they are at."""
        for threads in (self._preparing, self._selecting):
            threads.shutdown(wait=False)

    def after_fork(self) -> None:
        """Forget threads and locks of the parent, and what its threads were at."""
        self._lock = threading.Lock()
        self._preparing = ThreadPoolExecutor(_PREPARING, "toolrag-prepare")
        self._selecting = ThreadPoolExecutor(_SELECTING, "toolrag-select")
        self._catalogues: Latest[_Preparation] = Latest(self._max_catalogues)
        self._states: Latest[Mapping[str, Any]] = Latest(_MOST_STATES)

    async def _prepared(self, offer: str, request: ProxiedRequest) -> ToolRAG:
        """Wait for a request's tools; only those wait that came before its time was up.

        Otherwise each request of an agent with many new tools would be late.
        """
        preparation = self._preparation(offer, request)
        indexing = asyncio.wrap_future(preparation.done)
        left = max(0.0, preparation.until - time.monotonic())
        # Who gives up waiting does not end it for the others: `wait` cancels nothing.
        if not indexing.done() and not (await asyncio.wait([indexing], timeout=left))[0]:
            raise TimeoutError(f"{len(request.definitions)} tools are still being indexed")
        rag = indexing.result()
        if isinstance(rag, Exception):
            raise rag
        return rag

    def _preparation(self, offer: str, request: ProxiedRequest) -> _Preparation:
        with self._lock:
            known = self._catalogues.get(offer)
            if known is None or known.failed():
                done = self._preparing.submit(self._prepare, request.definitions)
                known = _Preparation(done, time.monotonic() + self._timeout)
                self._catalogues.put(offer, known)
            return known

    def _prepare(self, definitions: Mapping[str, dict[str, Any]]) -> ToolRAG | Exception:
        """Index tools; what fails is returned, as nobody may be waiting for it any more."""
        try:
            index = ToolIndex(self._model, options=self._index_options, cache=self._vectors)
            always = tuple(name for name in self._options.always_include if name in definitions)
            options = replace(self._options, always_include=always)
            rag = ToolRAG(list(definitions.values()), index=index, options=options)
            rag.index()
        except Exception as error:  # Also what a schema nobody foresaw makes libraries raise.
            return error
        return rag

    def _select(self, offer: str, rag: ToolRAG, messages: Sequence[BaseMessage]) -> frozenset[str]:
        state = self._state(offer, rag, messages)
        selection = rag.select(messages, previous=state)
        return frozenset({*selection.ids, *rag.catalogue.rejected})

    def _state(
        self, offer: str, rag: ToolRAG, messages: Sequence[BaseMessage]
    ) -> Mapping[str, Any] | None:
        """Select for the user's turns one after another, from the last one that is remembered."""
        state, missing = None, []
        for end in reversed(_turn_ends(messages)[-_REPLAYED_TURNS:]):
            key = _turn_key(offer, messages[:end])
            state = self._states.get(key)
            if state is not None:
                break
            missing.append((key, end))
        for key, end in reversed(missing):
            state = rag.select(messages[:end], previous=state).state
            self._states.put(key, state)
        return state


def _turn_ends(messages: Sequence[BaseMessage]) -> list[int]:
    """Return the lengths of the conversation's beginnings that end with words of the user."""
    return [
        place + 1 for place, message in enumerate(messages) if read_conversation([message]).turn_id
    ]


def _turn_key(offer: str, beginning: Sequence[BaseMessage]) -> str:
    """Name a turn by all that selection reads of it."""
    return _hash(f"{offer} {read_conversation(beginning)!r}")


def _digest(definitions: Mapping[str, dict[str, Any]]) -> str:
    return _hash(json.dumps(list(definitions.values()), sort_keys=True))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
