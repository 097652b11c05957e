"""Tools in -> a catalogue and an index that stay in step out."""

from __future__ import annotations

import asyncio
import difflib
import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from langchain_core.tools import BaseTool
from typing_extensions import Self

from langchain_toolrag.catalogue.bound_names import OnDuplicate
from langchain_toolrag.catalogue.catalogue import (
    Catalogue,
    Entry,
    build_catalogue,
    extended,
    reduced,
)
from langchain_toolrag.catalogue.document import document_of, identify, is_providers_own
from langchain_toolrag.errors import DuplicateToolError, ToolRAGError, UnknownToolError
from langchain_toolrag.fork import reset_after_fork
from langchain_toolrag.index.contract import Index, Progress
from langchain_toolrag.index.storage import save_index
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.types import Changes, Tool, ToolId, Tools

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Status:
    """How a ToolRAG is doing.

    Attributes:
        ready: Whether the embedding model is loaded.
        indexed: Whether every tool has its vector.
        tools: How many tools can be found.
        version: The state of the index.
        failure: Why embedding, or the last debounced re-index, failed; empty if it did not.
        rejected: Why tools are left out, by id.
        unavailable: Why the tools of servers are missing, by server.
        heads: Digest of the learned heads in use; empty for none.
        heads_problem: Why newer heads are not in use; empty if there are none.
    """

    ready: bool
    indexed: bool
    tools: int
    version: int
    failure: str
    rejected: Mapping[ToolId, str]
    unavailable: Mapping[str, str]
    heads: str = ""
    heads_problem: str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of some of a catalogue's tools, for an index that others may share.

    Others' tools stay in the index then, and what others have taken out stays out.

    Attributes:
        before: The catalogue before.
        asked_for: Tools that are to be in the index even if they were in the catalogue before.
    """

    before: Catalogue
    asked_for: Collection[ToolId] = ()


class IndexedTools:
    """A catalogue of tools and the index that finds them, changed together.

    Args:
        index: The index; it is made to hold the tools.
        on_duplicate: What to do with two tools of one name.
        debounce_ms: How long `reindex` waits for further calls, in milliseconds.

    Attributes:
        tool_index: The index.
        on_duplicate: What is done with two tools of one name.
        debounce_ms: How long `reindex` waits, in milliseconds.
    """

    def __init__(self, index: Index, *, on_duplicate: OnDuplicate, debounce_ms: int) -> None:
        self.tool_index = index
        self.on_duplicate = on_duplicate
        self.debounce_ms = debounce_ms
        self._catalogue = Catalogue()
        self._unavailable: Mapping[str, str] = {}
        self._timer: threading.Timer | None = None
        self._reindex_failure = ""
        self.after_fork()
        reset_after_fork(self)

    @property
    def catalogue(self) -> Catalogue:
        """The tools as they are now; it does not change any more."""
        return self._catalogue

    @property
    def tools(self) -> list[BaseTool]:
        """Everything that can be run, under bound names: what an agent's ToolNode needs."""
        runnable = (entry.runnable for entry in self._catalogue)
        return [tool for tool in runnable if tool is not None]

    @property
    def ready(self) -> bool:
        """Whether the embedding model is loaded."""
        return self.tool_index.ready

    @property
    def indexed(self) -> bool:
        """Whether there are tools and every one has its vector."""
        return self.tool_index.indexed

    @property
    def status(self) -> Status:
        """How it is doing."""
        return Status(
            ready=self.ready,
            indexed=self.indexed,
            tools=len(self._catalogue) or self.tool_index.size,
            version=self.tool_index.version,
            failure=self.tool_index.failure or self._reindex_failure,
            rejected=self._catalogue.rejected,
            unavailable=self._unavailable,
        )

    def report_server(self, server: str, problem: str) -> None:
        """Note why a server's tools are missing: a model that searches for them is told.

        Args:
            server: The server.
            problem: Why, such as "still connecting"; empty once they are there.
        """
        with self._changing:
            others = {name: why for name, why in self._unavailable.items() if name != server}
            self._unavailable = {**others, server: problem} if problem else others

    def save(self, directory: str | Path) -> None:
        """Write documents and vectors, not the tools themselves, into a directory.

        Args:
            directory: Where to; made where it is missing.

        Raises:
            TypeError: If the index is not a local one.
        """
        if not isinstance(self.tool_index, ToolIndex):
            raise TypeError(f"a {type(self.tool_index).__name__} keeps its tools itself")
        save_index(self.tool_index, Path(directory))

    def add(self, tools: Tools) -> Changes:
        """Add tools; one that is there already, unchanged, is harmless.

        Whether another tool has changed is not asked for, unless their names have to do with
        each other: `refresh` does that. What the index lacks of these tools, as another process
        has taken it out, is there again.

        Args:
            tools: The tools to add.

        Returns:
            What changed.

        Raises:
            DuplicateToolError: If a tool of another content has the same id or bound name.
        """
        with self._changing:
            known = self._catalogue
            given = {id(tool) for tool in known.originals}
            new = [tool for tool in tools if not _is_known(tool, known, given)]
            following = extended(known, new, on_duplicate=self.on_duplicate)
            asked_for = {identify(tool) for tool in tools if not is_providers_own(tool)}
            return self._change(following, Edit(known, asked_for))

    def remove(self, names: Iterable[str]) -> Changes:
        """Take tools out; as with `add`, it is not asked whether others have changed.

        Args:
            names: Names or ids.

        Returns:
            What changed.

        Raises:
            UnknownToolError: If there is no such tool; none is taken out then.
        """
        with self._changing:
            leaving = self.known_ids(names, where="remove()")
            known = self._catalogue
            following = reduced(known, leaving, on_duplicate=self.on_duplicate)
            return self._change(following, Edit(known))

    def refresh(self, tools: Tools) -> Changes:
        """Make the catalogue hold exactly these tools; what is unchanged keeps its vectors.

        So does the index, where others share it: `exchange` and `add` leave their tools there.

        Args:
            tools: The tools.

        Returns:
            Ids added, changed, removed and kept.

        Raises:
            DuplicateToolError: If two of them have one name; the old catalogue stays.
        """
        with self._changing:
            return self._change(self._built(tools))

    def exchange(self, tools: Tools) -> Changes:
        """Have these tools and no others, as after `refresh`, but leave others' in the index.

        Args:
            tools: The tools.

        Returns:
            Ids added, changed, removed and kept.

        Raises:
            DuplicateToolError: If two of them have one name; the old catalogue stays.
        """
        with self._changing:
            return self._change(self._built(tools), Edit(self._catalogue))

    def reindex(self, tools: Tools) -> None:
        """Refresh and embed in the background once no further call comes for `debounce_ms`.

        A burst of calls, as when several servers connect, costs one update, to the last tools
        given. A failure is logged and shown in `status`.

        Args:
            tools: The tools.
        """
        given = list(tools)
        with self._timing:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(self.debounce_ms / 1000, self._reindex_now, [given])
            self._timer.daemon = True
            self._timer.start()

    def index(self, tools: Tools | None = None, progress: Progress | None = None) -> Changes:
        """Make the vectors now rather than at the first search.

        Args:
            tools: Tools to refresh with first; None to leave the catalogue as it is.
            progress: Called with how many tools have vectors now and how many were to get them.

        Returns:
            What the refresh changed.

        Raises:
            EmbeddingError: If the model cannot be loaded or its vectors cannot be used.
        """
        changes = Changes() if tools is None else self.refresh(tools)
        self.tool_index.embed(progress)
        return changes

    async def aindex(self, tools: Tools | None = None, progress: Progress | None = None) -> Changes:
        """Do what `index` does, without blocking the event loop."""
        return await asyncio.to_thread(self.index, tools, progress)

    def known_ids(self, names: Iterable[str], *, where: str) -> set[ToolId]:
        """Return the ids of tools.

        Args:
            names: Names or ids.
            where: What gave the names, for the message.

        Returns:
            Their ids.

        Raises:
            UnknownToolError: If there is no such tool.
            TypeError: If `names` is a single string.
        """
        if isinstance(names, str):
            raise TypeError(f"{where} was given the string {names!r}; wanted a list of names")
        known, unknown = set(), []
        for name in names:
            identity = self._catalogue.id_of(name)
            if identity is None:
                unknown.append(name)
            else:
                known.add(identity)
        if unknown:
            bound = [entry.document.bound_name for entry in self._catalogue]
            closest = difflib.get_close_matches(unknown[0], bound)
            raise UnknownToolError(unknown, closest, where=where)
        return known

    def close(self) -> None:
        """Drop a re-index that has not begun; what is indexed can still be searched."""
        with self._timing:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def after_fork(self) -> None:
        """Forget locks and timers that the parent process may have held."""
        self._changing = threading.RLock()
        self._timing = threading.Lock()
        self._timer = None

    def _built(self, tools: Tools) -> Catalogue:
        """Return a catalogue of these tools; those that are known are not read again."""
        return build_catalogue(tools, on_duplicate=self.on_duplicate, known=self._catalogue)

    def _change(self, catalogue: Catalogue, edit: Edit | None = None) -> Changes:
        """Swap catalogue and index; a hit that the catalogue lacks for a moment is not bound.

        The index holds exactly the catalogue's tools then; of an edit it takes over no more.
        """
        if edit is None:
            changes = self.tool_index.refresh(catalogue.documents)
        else:
            changes = _edited(self.tool_index, catalogue, edit)
        self._catalogue = catalogue
        self._reindex_failure = ""
        return changes

    def _reindex_now(self, tools: Tools) -> None:
        try:
            changes = self.index(tools)
        except ToolRAGError as error:
            self._reindex_failure = str(error)
            logger.warning("re-indexing failed, the old tools stay: %s", error)
        else:
            logger.info("re-indexed: %s", changes)


def _is_known(tool: Tool, catalogue: Catalogue, given: Collection[int]) -> bool:
    """Whether a tool is in a catalogue, the same object unchanged or one of the same content.

    Another content under its id is a DuplicateToolError. `given` are the objects' `id`s.
    """
    if is_providers_own(tool):
        return False
    if id(tool) in given:
        return catalogue.is_current(tool)
    document = document_of(tool)
    entry = catalogue.entries.get(document.id)
    if entry is None:
        return False
    if replace(document, bound_name=entry.document.bound_name) != entry.document:
        raise DuplicateToolError(document.id, (entry.document.origin, document.origin))
    return True


def _edited(index: Index, catalogue: Catalogue, edit: Edit) -> Changes:
    """Have an index take over what an edit made of a catalogue.

    The new is added first: where an index fails between the two, nothing is missing.
    """
    known, wanted = edit.before.entries, catalogue.entries
    entering = [
        entry.document
        for identity, entry in wanted.items()
        if identity in edit.asked_for or _is_new(entry, known.get(identity))
    ]
    leaving = [identity for identity in known if identity not in wanted]
    added = index.add(entering) if entering else Changes()
    removed = index.remove(leaving).removed if leaving else ()
    changed = {*added.added, *added.changed}
    kept = tuple(identity for identity in wanted if identity not in changed)
    return Changes(added.added, added.changed, removed, kept)


def _is_new(entry: Entry, known: Entry | None) -> bool:
    if entry is known:  # Most are: their documents need not be compared.
        return False
    return known is None or entry.document != known.document
