"""What answers the requests of one server, over HTTP and over stdio alike."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from langchain_core.embeddings import Embeddings

from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.server.bodies import MOST_SECONDS
from langchain_toolrag.server.metrics import Metrics
from langchain_toolrag.server.options import ServerOptions
from langchain_toolrag.server.place import Place
from langchain_toolrag.server.ranking import Rankings
from langchain_toolrag.server.recording import Recorder
from langchain_toolrag.server.serving import Serving
from langchain_toolrag.usage.log import UsageLog

if TYPE_CHECKING:
    from langchain_toolrag.catalogue.sources.calls import SourceCalls


class Services:
    """What answers the requests of one server.

    Args:
        place: Where what `toolrag ingest` wrote is; a directory has all that a server keeps.
        options: How it answers.
        embeddings: As in ToolRAG.
        index_options: As in ToolRAG.
        environment: The variables that sources name.

    Attributes:
        place: Where its tools are.
        options: How it answers.
        serving: The catalogue.
        recorder: Told of every search and call.
        rankings: Ranks callers' tools.

    Raises:
        DatabaseError: If the tools are in a database that cannot be read.
        SourceError: If the directory, or the key of its usage log, cannot be read.
    """

    def __init__(
        self,
        place: str | Path | Place,
        options: ServerOptions,
        *,
        embeddings: Embeddings | str | None = None,
        index_options: IndexOptions | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        metrics = Metrics()
        self.place = place if isinstance(place, Place) else Place.of_directory(place)
        self.options = options
        self.serving = Serving(
            self.place,
            metrics,
            embeddings=embeddings,
            index_options=index_options,
            candidate_share=options.candidate_share,
        )
        self.recorder = Recorder(metrics, self._usage_log())
        self.rankings = Rankings(self.serving, self.recorder)
        self._environment = environment
        self._calls: asyncio.Future[SourceCalls] | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the catalogue up to date as long as this is open, then end what is open."""
        try:
            async with self.serving.running():
                yield
        finally:
            if self._calls is not None:
                await (await self._calls).aclose()
            if self.recorder.usage is not None:
                await asyncio.to_thread(self.recorder.usage.close)

    async def calls(self) -> SourceCalls:
        """Return what calls the catalogue's tools; made when it is first asked for."""
        if self._calls is None:
            self._calls = asyncio.ensure_future(asyncio.to_thread(self._open_calls))
        return await asyncio.shield(self._calls)

    def _usage_log(self) -> UsageLog | None:
        if self.place.usage is None or not self.options.usage_log:
            return None
        return UsageLog(self.place.usage, log_text=self.options.log_text)

    def _open_calls(self) -> SourceCalls:
        # Imports the MCP SDK, for which searches need not wait when the server starts.
        from langchain_toolrag.catalogue.sources.calls import SourceCalls

        return SourceCalls(
            self.place.store,
            environment=self._environment,
            allow_write=self.options.allow_write,
            allow_private=self.options.allow_private,
            timeout=MOST_SECONDS,  # Each call has a time of its own, which is shorter.
        )
