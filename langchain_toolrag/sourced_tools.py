"""Selectable tools, and the servers they are of -> tools that change as their servers do out."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from langchain_core.tools import BaseTool

from langchain_toolrag.catalogue.bound_names import OnDuplicate
from langchain_toolrag.catalogue.document import server_of
from langchain_toolrag.errors import ToolRAGError
from langchain_toolrag.index.contract import Index
from langchain_toolrag.index.heads import Heads, read_heads
from langchain_toolrag.selectable_tools import SelectableTools
from langchain_toolrag.selection.options import SelectionOptions
from langchain_toolrag.tracing.tracing import Tracing
from langchain_toolrag.trial.in_use import HeadsInUse, refuse_share
from langchain_toolrag.types import Tool
from langchain_toolrag.usage.log import UsageLog

logger = logging.getLogger(__name__)


class SourcedTools(SelectableTools):
    """Tools that are of servers; what it has opened it closes.

    Args:
        index: The index; it is made to hold the tools.
        options: How much of a ranking is returned, and by what it is.
        on_duplicate: What to do with two tools of one name.
        debounce_ms: How long `reindex` waits for further calls, in milliseconds.
        usage_log: A usage log, or the folder of one to open; None for none.
        heads: Learned heads, the file of some, or the folder of those to be used at a time; None
            for none.
        candidate_share: Which share of the sessions is answered by heads on trial, 0 to 1.
        tracing: Who is told of selections; None for LangChain's callbacks alone.

    Raises:
        AdapterError: If the file of heads cannot be read, or is of another model's.
        SourceError: If the log in that folder cannot be gone on with.
        TypeError: If `usage_log` is something else.
        ValueError: If `candidate_share` is not 0 to 1.
    """

    def __init__(
        self,
        index: Index,
        options: SelectionOptions,
        *,
        on_duplicate: OnDuplicate,
        debounce_ms: int,
        usage_log: UsageLog | str | os.PathLike[str] | None,
        heads: Heads | str | os.PathLike[str] | None,
        candidate_share: float,
        tracing: Tracing | None,
    ) -> None:
        self._closers: list[Callable[[], None]] = []
        self._ingested: Sequence[BaseTool] = ()
        super().__init__(
            index,
            options,
            on_duplicate=on_duplicate,
            debounce_ms=debounce_ms,
            usage_log=self._opened_log(usage_log),
            heads=self._opened_heads(heads, index, candidate_share),
            tracing=tracing or Tracing(),
        )

    def close(self) -> None:
        """Drop a re-index that has not begun, end sessions, and the usage log and followed heads.

        Searches still answer. A call opens a session again, which another `close` ends.
        """
        super().close()
        with ExitStack() as closing:
            for close in self._closers:
                closing.callback(close)

    def _opened_log(self, usage_log: UsageLog | str | os.PathLike[str] | None) -> UsageLog | None:
        if isinstance(usage_log, (str, os.PathLike)):
            opened = UsageLog(Path(usage_log))
            self._closers.append(opened.close)
            return opened
        if usage_log is not None and not isinstance(usage_log, UsageLog):
            raise TypeError(f"usage_log is {usage_log!r}; wanted a folder, a UsageLog or None")
        return usage_log

    def _opened_heads(
        self, heads: Heads | str | os.PathLike[str] | None, index: Index, candidate_share: float
    ) -> Heads | HeadsInUse | None:
        refuse_share(candidate_share)
        if heads is None:
            return None
        if isinstance(heads, Heads):
            heads.refuse_unless_of(index.model, heads.digest)
            return heads
        if Path(heads).suffix == ".safetensors":
            return read_heads(Path(heads), index.model)
        followed = HeadsInUse(
            Path(heads), index.model, candidate_share=candidate_share, prepare=index.prepare
        )
        self._closers.append(followed.close)
        return followed

    def _take_changes(self, server: str, listed: list[BaseTool] | str) -> None:
        """Put what a server lists now in the place of its tools, and embed what is new.

        A text says why it cannot be listed. The tools stay then, and `status.unavailable` says it.
        """
        problem = listed if isinstance(listed, str) else self._problem_with(server, listed)
        if problem:
            problem = f"{problem}; its tools are those it had before"
            logger.warning("the MCP server %s", problem)
        self.report_server(server, problem)

    def _take_ingested(self, tools: Sequence[BaseTool]) -> None:
        """Put what was ingested in the place of what was before, and embed what is new."""
        try:
            with self._changing:
                known = set(map(id, self._ingested))
                others = [tool for tool in self._catalogue.originals if id(tool) not in known]
                self.refresh([*tools, *others])
                self._ingested = tools
            self.index()
        except ToolRAGError as error:
            logger.warning("what was ingested now is not searched as it is to be: %s", error)

    def _problem_with(self, server: str, listed: list[BaseTool]) -> str:
        """Take in a server's tools, or return why that cannot be done."""
        try:
            with self._changing:
                self.refresh(_replaced(self._catalogue.originals, server, listed))
            self.index()
        except ToolRAGError as error:
            return f"{server}: {error}"
        return ""


def _replaced(tools: Sequence[Tool], server: str, listed: Sequence[BaseTool]) -> list[Tool]:
    """Return the tools with those of a server replaced, in their place."""
    theirs = [isinstance(tool, BaseTool) and server_of(tool.metadata) == server for tool in tools]
    first = theirs.index(True) if True in theirs else len(tools)
    others = [tool for tool, is_theirs in zip(tools, theirs, strict=True) if not is_theirs]
    return [*others[:first], *listed, *others[first:]]
