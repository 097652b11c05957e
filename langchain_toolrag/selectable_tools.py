"""Searchable tools and a conversation -> the tools of an agent's next step out."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_toolrag.plans import arun, run
from langchain_toolrag.searchable_tools import SearchableTools
from langchain_toolrag.selection import selector
from langchain_toolrag.selection.bindable import Bindable, Filter, bindable
from langchain_toolrag.selection.conversation import read_conversation
from langchain_toolrag.selection.state import SelectionState, read_state
from langchain_toolrag.types import Messages, SelectedTool, Selection, ToolId, Tools
from langchain_toolrag.usage.log import UsageLog


class SelectableTools(SearchableTools):
    """Tools that can be selected from before each step of an agent.

    Args:
        index: The index; it is made to hold the tools.
        options: How tools are searched and selected.
        on_duplicate: What to do with two tools of one name.
        debounce_ms: How long `reindex` waits for further calls, in milliseconds.
        usage_log: Where selections and the model's own searches are noted; None for nowhere.
    """

    def select(
        self,
        messages: Messages,
        *,
        tools: Tools | None = None,
        previous: Mapping[str, Any] | None = None,
        filter: Filter | None = None,
        required: Sequence[str] = (),
        besides: Tools = (),
        deferred: bool = False,
    ) -> Selection:
        """Select the tools of an agent's next step.

        Args:
            messages: The conversation, the current user turn included: whatever LangChain takes
                for messages, or a string.
            tools: What can be bound in this step; tools that the catalogue does not have pass
                through. None for the whole catalogue.
            previous: `Selection.state` of the step before; keeps the bound list stable.
            filter: Which tools the caller may see.
            required: Names of tools that must be bound, such as `tool_choice`'s.
            besides: Tools that are bound in front of all others, such as `create_search_tool`'s.
            deferred: Whether to search for nothing and leave that to the model: what it has loaded
                by a search of its own, called, or must have is bound.

        Returns:
            The tools to bind, and why.

        Raises:
            EmbeddingError: If embedding fails and `on_error` is `"raise"`.
        """
        offer = bindable(self._catalogue, tools, filter, besides)
        plan = self._selecting(messages, offer, previous, required, deferred=deferred)
        return run(self._logged_selection(plan), self._ask)

    async def aselect(
        self,
        messages: Messages,
        *,
        tools: Tools | None = None,
        previous: Mapping[str, Any] | None = None,
        filter: Filter | None = None,
        required: Sequence[str] = (),
        besides: Tools = (),
        deferred: bool = False,
    ) -> Selection:
        """Return the same as `select`, without blocking the event loop."""
        offer = bindable(self._catalogue, tools, filter, besides)
        plan = self._selecting(messages, offer, previous, required, deferred=deferred)
        return await arun(self._logged_selection(plan), self._aask)

    def explain(
        self,
        messages: Messages,
        *,
        tools: Tools | None = None,
        previous: Mapping[str, Any] | None = None,
        filter: Filter | None = None,
    ) -> list[SelectedTool]:
        """Select, and return the tools by score, best first, those without a score last.

        It is for people who look, and so leaves no line in the usage log.

        Args:
            messages: As in `select`.
            tools: As in `select`.
            previous: As in `select`.
            filter: As in `select`.

        Returns:
            Each tool with its scores and the reason it is bound for.
        """
        plan = self._selecting(messages, bindable(self._catalogue, tools, filter), previous)
        return selector.by_score(run(plan, self._ask))

    async def aexplain(
        self,
        messages: Messages,
        *,
        tools: Tools | None = None,
        previous: Mapping[str, Any] | None = None,
        filter: Filter | None = None,
    ) -> list[SelectedTool]:
        """Return the same as `explain`, without blocking the event loop."""
        plan = self._selecting(messages, bindable(self._catalogue, tools, filter), previous)
        return selector.by_score(await arun(plan, self._aask))

    def extract_sticky(self, messages: Messages, window: int | None = None) -> set[str]:
        """Return the names of the tools called in the last assistant turns.

        Args:
            messages: The conversation.
            window: How many turns; None for `sticky_window`.

        Returns:
            Names as the model wrote them, in this catalogue or not.
        """
        turns = self.options.sticky_window if window is None else window
        return set(read_conversation(messages).sticky(turns))

    def _selecting(
        self,
        messages: Messages,
        offer: Bindable,
        previous: Mapping[str, Any] | None,
        required: Sequence[str] = (),
        *,
        deferred: bool = False,
    ) -> selector.Selecting:
        return selector.select(
            messages,
            offer,
            self.options,
            index_version=self.tool_index.version,
            previous=previous,
            required=required,
            deferred=deferred,
        )

    def _logged_selection(self, plan: selector.Selecting) -> selector.Selecting:
        """Note a selection once it is made; one that reuses a search, or has nothing, is none."""
        started = time.perf_counter()
        selection = yield from plan
        nothing = not (selection.query or selection.selected)
        if self.usage_log is not None and selection.fresh and not nothing:
            self._log_selection(self.usage_log, selection, started)
        return selection

    def _log_selection(self, log: UsageLog, selection: Selection, started: float) -> None:
        state = read_state(selection.state)
        retrieved = list(_retrieved(selection, state))
        # Where the tools of an earlier search had to do, `query` is that search's.
        searched = "" if selection.degraded and not retrieved else selection.query
        log.search(
            search_id=selection.search_id,
            kind="select",
            mode="lexical" if selection.degraded else "semantic",
            query=searched or state.query,
            retrieved=retrieved,
            bound=selection.ids,
            confidence=selection.confidence,
            options=self._logged_options(),
            index=str(selection.index_version),
            took_ms=1000 * (time.perf_counter() - started),
        )


def _retrieved(selection: Selection, state: SelectionState) -> Iterator[tuple[ToolId, int, float]]:
    """Yield what the search found and the model sees: tool, rank, score."""
    scores = {tool.id: tool.score for tool in selection.selected if not math.isnan(tool.score)}
    for rank, identity in enumerate(state.found, start=1):
        if identity in scores:
            yield identity, rank, scores[identity]
