"""ToolRAG: the one object that holds catalogue, index and selection together."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

from langchain_core.embeddings import Embeddings
from typing_extensions import Self, Unpack

from langchain_toolrag.catalogue.bound_names import OnDuplicate
from langchain_toolrag.catalogue.catalogue import Catalogue
from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.store import ToolStore
from langchain_toolrag.index.contract import Index
from langchain_toolrag.index.embedding import PACKAGED_ADAPTER, as_embeddings
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.storage import load_index
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.index.vector_space import cache_in
from langchain_toolrag.indexed_tools import Edit
from langchain_toolrag.selection.options import SelectionOptions
from langchain_toolrag.sourced_tools import SourcedTools
from langchain_toolrag.tracing.tracing import Tracing
from langchain_toolrag.types import Changes, Tools
from langchain_toolrag.usage.log import UsageLog

if TYPE_CHECKING:
    from langchain_mcp_adapters.client import MultiServerMCPClient

    from langchain_toolrag.catalogue.sources.directory_tools import OpenTools
    from langchain_toolrag.postgres.followed_tools import FollowedTools

logger = logging.getLogger(__name__)

_LocalIndex = TypeVar("_LocalIndex", bound=ToolIndex)


class Watching(TypedDict, total=False):
    """How a ToolRAG selects and who watches it: keywords of its constructor."""

    options: SelectionOptions | None
    usage_log: UsageLog | str | Path | None
    heads: Heads | str | Path | None
    candidate_share: float
    tracing: Tracing | None


class Searching(Watching, total=False):
    """What a ToolRAG finds tools by, besides: keywords of its constructor."""

    embeddings: Embeddings | str | None
    index_options: IndexOptions | None
    background: bool


class ToolRAG(SourcedTools):
    """Finds the few tools an agent's next step needs.

    Tools can be found by words at once. Their vectors are made at the first search that needs
    them, or by `index`. Safe under threads and after a fork.

    Example:
        >>> rag = ToolRAG(tools)
        >>> rag.select([("user", "do it for kolkata too")]).names
        ['get_weather']

    Args:
        tools: LangChain tools, functions, definitions as dicts; provider tools (dicts such as
            a web search) pass through every selection.
        embeddings: Any LangChain model, a sentence-transformers name or folder, or None for
            all-MiniLM-L6-v2.
        index: An index to use instead of a new one; it brings its own embeddings and options.
        index_options: What is indexed of a tool; None for what `options` needs.
        options: How tools are selected.
        cache_dir: A folder that keeps the vectors of tools, and the model as it is run, from
            process to process: what was embedded once is not embedded again. None for none.
        background: Whether to load the model and embed tools in the background, from the first
            search on: until that is done words and names answer, and selections say so in
            `degraded`.
        on_duplicate: What to do with two tools of one name: `"raise"`, or `"prefix"` to bind
            them under `<server>_<name>`; `"id"` binds all tools as `<server>__<name>`.
        debounce_ms: How long `reindex` waits for further calls, in milliseconds.
        usage_log: A folder, or a `UsageLog`: selections, the model's own searches, and the calls
            that agents make of the tools leave a line each there, requests and arguments as keyed
            digests. `close` closes the log of a folder. None for none.
        heads: What `toolrag learn` made of a usage log: a folder of heads, whose promoted ones are
            used from the moment they are, and a candidate's by a share of the sessions; or one
            file of them. None for none.
        candidate_share: Which share of the sessions (`thread_id` of a run's config) is answered by
            heads on trial, 0 to 1.
        tracing: What is told of selections, and to whom: `Tracing(payloads=False)` leaves out
            users' words, `Tracing(opentelemetry=True)` makes spans and metrics. None for
            LangChain's callbacks alone.

    Raises:
        AdapterError: If a file of heads cannot be read, or is of another model's.
        DuplicateToolError: If two tools have one name.
        InvalidToolError: If something is not a tool.
        SourceError: If the usage log's key cannot be read, or is missing beside records.
        TypeError: If `usage_log` is something else.
        UnknownToolError: If `always_include` names a tool that is not there.
        ValueError: If options contradict each other, or `candidate_share` is not 0 to 1.
    """

    def __init__(
        self,
        tools: Tools | None = None,
        *,
        embeddings: Embeddings | str | None = None,
        index: Index | None = None,
        index_options: IndexOptions | None = None,
        options: SelectionOptions | None = None,
        cache_dir: str | Path | None = None,
        background: bool = False,
        on_duplicate: OnDuplicate = "raise",
        debounce_ms: int = 100,
        usage_log: UsageLog | str | Path | None = None,
        heads: Heads | str | Path | None = None,
        candidate_share: float = 0.1,
        tracing: Tracing | None = None,
    ) -> None:
        options = options or SelectionOptions()
        if index is None:
            index = new_index(ToolIndex, embeddings, index_options, cache_dir, background, options)
        elif (embeddings, index_options, cache_dir, background) != (None, None, None, False):
            raise ValueError(
                "an index brings its own embeddings, options, cache and background: give it alone"
            )
        _check_index(index, options)
        super().__init__(
            index,
            options,
            on_duplicate=on_duplicate,
            debounce_ms=debounce_ms,
            usage_log=usage_log,
            heads=heads,
            candidate_share=candidate_share,
            tracing=tracing,
        )
        if tools is not None:
            self.refresh(tools)
            self.known_ids(options.always_include, where="always_include")

    @classmethod
    def load(
        cls,
        directory: str | Path,
        tools: Tools | None = None,
        *,
        embeddings: Embeddings | str | None = None,
        on_duplicate: OnDuplicate = "raise",
        **watching: Unpack[Watching],
    ) -> Self:
        """Read what `save` wrote and give the documents their tools again, by id.

        Args:
            directory: Where it was saved.
            tools: The tools; only new and changed ones are embedded. None for an index that can
                be searched but has nothing to bind.
            embeddings: The model it was saved with.
            on_duplicate: As in the constructor.
            **watching: As in the constructor.

        Returns:
            A ToolRAG that embeds nothing that was embedded before.

        Raises:
            SourceError: If the directory holds no index or a damaged one.
            StaleIndexError: If it was made by another model or version.
        """
        options = watching.get("options") or SelectionOptions()
        index = load_index(Path(directory), _model(embeddings, options))
        return cls(tools, index=index, on_duplicate=on_duplicate, **watching)

    @classmethod
    def from_directory(
        cls,
        directory: str | Path,
        *,
        environment: Mapping[str, str] = os.environ,
        allow_write: bool = True,
        timeout: float = 30.0,
        **searching: Unpack[Searching],
    ) -> Self:
        """Read the tools that `toolrag ingest` wrote, ready to be called, sync or async.

        A call is made once. Sessions with MCP servers are opened by the first call and kept;
        `close` ends them. A call comes to a text, with the structured result as artifact.

        Args:
            directory: The directory; its `cache` keeps the vectors.
            environment: The variables that the sources name as `${NAME}`.
            allow_write: Whether operations other than GET and HEAD, and tools that say that they
                are destructive, may be called.
            timeout: How long a call may take, in seconds, once its server has started.
            **searching: As in the constructor. The directory's own usage log is its folder
                `usage`; its own heads, in `heads`, are followed if none are given.

        Returns:
            A ToolRAG over the tools, each under the server that its source is. Python modules that
            cannot be imported are in `status.unavailable`.

        Raises:
            SourceError: If the directory cannot be read.
        """
        from langchain_toolrag.catalogue.sources.directory_tools import open_tools

        store = ToolDirectory(directory)
        opened = open_tools(
            store, environment=environment, allow_write=allow_write, timeout=timeout
        )
        searching.setdefault("heads", store.heads)
        rag = cls(opened.tools, cache_dir=store.cache, on_duplicate="id", **searching)
        rag._closers.append(opened.calls.close)
        for server, problem in opened.missing.items():
            rag.report_server(server, problem)
        return rag

    @classmethod
    def from_database(
        cls,
        dsn: str,
        *,
        tenant: str = "",
        cache_dir: str | Path | None = None,
        environment: Mapping[str, str] = os.environ,
        allow_write: bool = True,
        timeout: float = 30.0,
        **searching: Unpack[Searching],
    ) -> Self:
        """Read the tools that `toolrag ingest --database` wrote, and follow them as they change.

        They are called as those of `from_directory`, and searched in memory; their vectors are made
        once for all processes. The database gives notice of a change. While it cannot be reached,
        what is known is searched and called. `close` ends connections and sessions.

        Args:
            dsn: How the database is reached: `postgresql://user@host/name`.
            tenant: Whose tools; empty for `default`.
            cache_dir: A folder that keeps the model as it is run; None for the user's cache.
            environment: The variables that the sources name as `${NAME}`.
            allow_write: As in `from_directory`.
            timeout: As in `from_directory`.
            **searching: As in the constructor.

        Returns:
            A ToolRAG over the tools, each under the server that its source is. Python modules that
            cannot be imported here are in `status.unavailable`.

        Raises:
            DatabaseError: If the database cannot be reached, or has not the tables that are needed.
            ValueError: If the tenant has more than 200 characters, or some that cannot be stored.
        """
        from langchain_toolrag.catalogue.sources.directory_tools import open_tools
        from langchain_toolrag.postgres.followed_tools import FollowedTools  # An extra.
        from langchain_toolrag.postgres.stored_tools import open_database_tools

        options = searching.get("options") or SelectionOptions()
        model = _model(searching.pop("embeddings", None), options, cache_dir)
        own, background = searching.pop("index_options", None), searching.pop("background", False)
        with ExitStack() as closing:
            store = open_database_tools(dsn, tenant)
            closing.callback(store.close)
            followed = FollowedTools(store)
            index = followed.index(model, own or _own_options(options), background=background)
            opened = open_tools(
                store, environment=environment, allow_write=allow_write, timeout=timeout
            )
            closing.callback(opened.calls.close)
            rag = cls(opened.tools, index=index, on_duplicate="id", **searching)
            rag._closers.extend([opened.calls.close, followed.close])
            closing.pop_all()
        rag._follow(followed, store, opened)
        return rag

    @classmethod
    async def from_mcp(
        cls,
        client: MultiServerMCPClient,
        *,
        cache_dir: str | Path | None = None,
        on_duplicate: OnDuplicate = "prefix",
        debounce_ms: int = 100,
        **searching: Unpack[Searching],
    ) -> Self:
        """List the servers of a client, all at once, and follow them as their tools change.

        A server that fails leaves the others working and is in `status.unavailable`. One that
        says that its tools changed is listed again, it alone; if that fails the old tools stay.
        One session a server is kept open, over which its tools are called; `close` ends them.

        Args:
            client: The client.
            cache_dir: As in the constructor.
            on_duplicate: As in the constructor.
            debounce_ms: As in the constructor; for further changes of a server, too.
            **searching: As in the constructor.

        Returns:
            A ToolRAG over the tools of the servers that answered.

        Raises:
            DuplicateToolError: If two tools have one name, under `"raise"`.
        """
        from langchain_toolrag.catalogue.sources.mcp.live import LiveServers  # MCP SDK.

        servers = LiveServers(client, debounce_ms / 1000)
        with ExitStack() as closing:
            closing.callback(servers.close)
            listed = await servers.list_all()
            rag = cls(
                listed.tools,
                cache_dir=cache_dir,
                on_duplicate=on_duplicate,
                debounce_ms=debounce_ms,
                **searching,
            )
            rag._closers.append(servers.close)
            closing.pop_all()
        for server, problem in listed.failed.items():
            rag.report_server(server, problem)
        servers.watch(rag._take_changes)
        return rag

    def _follow(self, followed: FollowedTools, store: ToolStore, opened: OpenTools) -> None:
        """Take what a store holds now whenever it has changed."""
        from langchain_toolrag.catalogue.sources.directory_tools import callable_tools

        def take() -> None:
            # The tools first: sources that are as old as an outage may be without a new tool's.
            stored, sources = store.tools(), store.sources()
            tools, missing = callable_tools(stored, sources, opened.calls)
            self._take_ingested(tools)
            for server in sources:
                self.report_server(server, missing.get(server, ""))

        self._ingested = opened.tools
        for server, problem in opened.missing.items():
            self.report_server(server, problem)
        followed.start(take)

    def _change(self, catalogue: Catalogue, edit: Edit | None = None) -> Changes:
        changes = super()._change(catalogue, edit)
        for name in self.options.always_include if catalogue.entries else ():
            if catalogue.id_of(name) is None:
                logger.warning("always_include names %r, which is not among the tools", name)
        return changes


def _model(
    embeddings: Embeddings | str | None,
    options: SelectionOptions,
    cache_dir: str | Path | None = None,
) -> Embeddings:
    """Return the model to embed with; ToolRAG's algorithm has no adapter of its own accord."""
    adapter = None if options.algorithm == "classic" else PACKAGED_ADAPTER
    return as_embeddings(embeddings, adapter=adapter, cache_dir=cache_dir)


def new_index(
    kind: type[_LocalIndex],
    embeddings: Embeddings | str | None,
    index_options: IndexOptions | None,
    cache_dir: str | Path | None,
    background: bool,
    options: SelectionOptions,
) -> _LocalIndex:
    """Return an empty index in memory, made of what ToolRAG's constructor was given."""
    own = index_options or _own_options(options)
    model = _model(embeddings, options, cache_dir)
    cache = cache_in(cache_dir, model) if cache_dir is not None else None
    return kind(model, options=own, cache=cache, background=background)


def _own_options(options: SelectionOptions) -> IndexOptions:
    """Return what is indexed of a tool where nothing else is said."""
    return IndexOptions.classic() if options.algorithm == "classic" else IndexOptions()


def _check_index(index: Index, options: SelectionOptions) -> None:
    """Refuse what ToolRAG's algorithm is not made for."""
    if options.algorithm == "classic" and index.options != IndexOptions.classic():
        raise ValueError(
            f"SelectionOptions.classic() needs IndexOptions.classic(), found {index.options}"
        )
