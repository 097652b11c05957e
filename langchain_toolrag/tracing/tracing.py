"""A selection in -> a run in LangChain's tracing tree, an OpenTelemetry span and metrics out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import (
    get_async_callback_manager_for_config,
    get_callback_manager_for_config,
)

from langchain_toolrag.caller import caller_of
from langchain_toolrag.tracing import runs
from langchain_toolrag.tracing.about import About
from langchain_toolrag.tracing.shown import Asked, Outcome, of_finding, of_selection
from langchain_toolrag.tracing.telemetry import Telemetry, Watched
from langchain_toolrag.types import Finding, Selection

if TYPE_CHECKING:
    from langchain_core.callbacks import AsyncCallbackManager, CallbackManager
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["About", "Tracing"]

ResultT = TypeVar("ResultT", Selection, Finding)
Read: TypeAlias = Callable[[ResultT, About, bool], Outcome]


class Tracing:
    """Who is told of selections and searches, and what.

    LangChain's callbacks are always told: each selection is a retriever run named
    `toolrag.select`, each search a `toolrag.search`, under the run whose config was passed, and so
    is in LangSmith's trees, in `astream_events` and wherever else runs are shown. Its documents
    are the bound tools in binding order, then what was found and left out; each says in its
    metadata `tool_name`, `server`, `score`, `rank`, `reason` and `bound`. The run's own metadata
    says the rest, under the names that the spans have too:

    - before: `toolrag.options` (those that differ from the defaults), `.heads`, `.index_version`,
      `.catalogue` (how many tools there are);
    - after a selection: `.bound`, `.passed_through`, `.tokens`, `.catalogue_tokens`,
      `.confidence`, `.degraded`, `.fresh`, `.prefix_changed`, `.search_id`, `.turn_id`, `.query`
      (what was searched for);
    - after a search: `.found`, `.missing`, `.server`, `.confidence`, `.degraded`, `.search_id`.

    What is empty or unknown is left out.

    With OpenTelemetry there is also a span, a child of the current one. Its name, `retrieval`, and
    its attributes follow the semantic conventions for generative AI, version 0.1.0, all of which
    are in development and may change: `gen_ai.operation.name`, `gen_ai.retrieval.query.text`,
    `gen_ai.retrieval.documents` (JSON), `gen_ai.retrieval.top_k`, `gen_ai.conversation.id`
    (`thread_id`), `error.type`. `toolrag.operation` is `select` or `search`; an event
    `toolrag.degraded` says what a degraded answer was made of. The metrics:

    - `toolrag.selection.duration`, histogram, s: what the work took, by `toolrag.operation`,
      `toolrag.fresh` and `error.type`;
    - `toolrag.selection.tools`, histogram, tools: what a selection bound;
    - `toolrag.selection.tokens_saved`, histogram, tokens: the catalogue's less what was bound;
    - `toolrag.selection.degraded`, counter: answers made without an embedding, by
      `toolrag.instead` (`lexical`, `previous`, `all`).

    Args:
        payloads: Whether to show what users and models wrote, turn ids (which may be digests of
            that), descriptions of tools and messages of errors. Without, ids and names of tools,
            scores, reasons, counts and the ids of conversations and searches stay. What LangChain's
            own runs show, of the model or of its search tool, is not decided here.
        opentelemetry: Whether to make spans and metrics; a provider says so too.
        tracer_provider: Makes the spans; None for the process's own.
        meter_provider: Keeps the metrics; None for the process's own.

    Raises:
        ModuleNotFoundError: If spans or metrics are wanted and OpenTelemetry is not installed.
    """

    def __init__(
        self,
        *,
        payloads: bool = True,
        opentelemetry: bool = False,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self._payloads = payloads
        self._telemetry: Telemetry | None = None
        if opentelemetry or tracer_provider is not None or meter_provider is not None:
            self._telemetry = Telemetry(tracer_provider, meter_provider, payloads=payloads)

    def select(
        self,
        work: Callable[[], Selection],
        words: Callable[[], str],
        about: About,
        config: RunnableConfig,
    ) -> Selection:
        """Make a selection and show it to whoever listens.

        Args:
            work: Makes the selection.
            words: Returns the user's words; called only if somebody listens and may see them.
            about: What is known of the selection before it is made.
            config: The run it is made in.

        Returns:
            What `work` returns; what it raises is raised.
        """
        return self._show("select", of_selection, work, words, about, config)

    async def aselect(
        self,
        work: Callable[[], Awaitable[Selection]],
        words: Callable[[], str],
        about: About,
        config: RunnableConfig,
    ) -> Selection:
        """Return the same as `select`, without blocking the event loop."""
        return await self._ashow("select", of_selection, work, words, about, config)

    def find(
        self, work: Callable[[], Finding], query: str, about: About, config: RunnableConfig
    ) -> Finding:
        """Make a search and show it to whoever listens.

        Args:
            work: Makes the search.
            query: What is searched for.
            about: What is known of the search before it is made.
            config: The run it is made in.

        Returns:
            What `work` returns; what it raises is raised.
        """
        return self._show("search", of_finding, work, lambda: query, about, config)

    async def afind(
        self,
        work: Callable[[], Awaitable[Finding]],
        query: str,
        about: About,
        config: RunnableConfig,
    ) -> Finding:
        """Return the same as `find`, without blocking the event loop."""
        return await self._ashow("search", of_finding, work, lambda: query, about, config)

    def _show(
        self,
        operation: str,
        read: Read[ResultT],
        work: Callable[[], ResultT],
        words: Callable[[], str],
        about: About,
        config: RunnableConfig,
    ) -> ResultT:
        manager = get_callback_manager_for_config(config)
        if not self._is_heard(manager):
            return work()
        asked = self._asked(operation, words, about, config)
        run = runs.start(manager, asked)
        try:
            with self._watch(asked) as watched:
                result = work()
                shown = self._shown(read, result, about, watched)
        except BaseException as error:
            run.on_retriever_error(self._error(error))
            raise
        runs.add_metadata(run, shown)
        run.on_retriever_end(runs.documents(shown))
        return result

    async def _ashow(
        self,
        operation: str,
        read: Read[ResultT],
        work: Callable[[], Awaitable[ResultT]],
        words: Callable[[], str],
        about: About,
        config: RunnableConfig,
    ) -> ResultT:
        manager = get_async_callback_manager_for_config(config)
        if not self._is_heard(manager):
            return await work()
        asked = self._asked(operation, words, about, config)
        run = await runs.astart(manager, asked)
        try:
            with self._watch(asked) as watched:
                result = await work()
                shown = self._shown(read, result, about, watched)
        except BaseException as error:
            await run.on_retriever_error(self._error(error))
            raise
        runs.add_metadata(run, shown)
        await run.on_retriever_end(runs.documents(shown))
        return result

    def _is_heard(self, manager: CallbackManager | AsyncCallbackManager) -> bool:
        by_handlers = any(not handler.ignore_retriever for handler in manager.handlers)
        return by_handlers or self._telemetry is not None

    def _asked(
        self, operation: str, words: Callable[[], str], about: About, config: RunnableConfig
    ) -> Asked:
        query = words() if self._payloads else ""
        return Asked(operation, query, caller_of(config).session, about)

    def _watch(self, asked: Asked) -> AbstractContextManager[Watched | None]:
        return self._telemetry.watch(asked) if self._telemetry else nullcontext()

    def _shown(
        self, read: Read[ResultT], result: ResultT, about: About, watched: Watched | None
    ) -> Outcome:
        if watched is None:
            return read(result, about, self._payloads)
        watched.stop()
        shown = read(result, about, self._payloads)
        watched.outcome = shown
        return shown

    def _error(self, error: BaseException) -> BaseException:
        # A message may quote what was to be embedded.
        return error if self._payloads else RuntimeError(f"{type(error).__name__}, payloads=False")
