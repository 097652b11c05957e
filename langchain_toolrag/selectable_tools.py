"""Searchable tools and a conversation -> the tools of an agent's next step out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig

from langchain_toolrag.asking import Asking
from langchain_toolrag.plans import arun, run
from langchain_toolrag.searchable_tools import SearchableTools
from langchain_toolrag.selection import selector
from langchain_toolrag.selection.bindable import Bindable, Filter, bindable
from langchain_toolrag.selection.conversation import read_conversation
from langchain_toolrag.types import Messages, SelectedTool, Selection, Tools


class SelectableTools(SearchableTools):
    """Tools that can be selected from before each step of an agent; made as `SearchableTools`."""

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
        config: RunnableConfig | None = None,
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
            config: The run's config: its callbacks are told, its `thread_id` and `tenant_id` say
                who asks. None for that of the run this is a part of.

        Returns:
            The tools to bind, and why.

        Raises:
            EmbeddingError: If embedding fails and `on_error` is `"raise"`.
        """
        asking, messages = self._asking(config), _kept(messages)
        offer = bindable(self._catalogue, tools, filter, besides)
        plan = self._selecting(messages, offer, previous, required, deferred=deferred)
        noted = self._noted(plan, asking)
        return self._tracing.select(
            lambda: run(noted, asking.ask),
            lambda: read_conversation(messages).query,
            self._about(asking),
            asking.config,
        )

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
        config: RunnableConfig | None = None,
    ) -> Selection:
        """Return the same as `select`, without blocking the event loop."""
        asking, messages = self._asking(config), _kept(messages)
        offer = bindable(self._catalogue, tools, filter, besides)
        plan = self._selecting(messages, offer, previous, required, deferred=deferred)
        noted = self._noted(plan, asking)
        return await self._tracing.aselect(
            lambda: arun(noted, asking.aask),
            lambda: read_conversation(messages).query,
            self._about(asking),
            asking.config,
        )

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
        return selector.by_score(run(plan, self._asking().ask))

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
        return selector.by_score(await arun(plan, self._asking().aask))

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

    def _noted(self, plan: selector.Selecting, asking: Asking) -> selector.Selecting:
        """Return the plan of a selection that is noted once it is made."""
        started = time.perf_counter()
        selection = yield from plan
        if self._search_log is not None:
            self._search_log.selected(selection, asking, self._changed_options(), started)
        return replace(selection, heads=asking.digest) if asking.heads else selection


def _kept(messages: Messages) -> Messages:
    """Return messages that can be read more than once: for the selection and for its trace."""
    return list(messages) if isinstance(messages, Iterator) else messages
