"""The inspector: a page that shows what an agent would get to see, and what the page asks for."""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import itertools
import logging
import re
from collections.abc import Sequence
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from langchain_toolrag.errors import EmbeddingError, SourceError
from langchain_toolrag.server.answers import BadRequestError, JSONAnswer, failure
from langchain_toolrag.server.bodies import (
    LintAnswer,
    LintFinding,
    MapAnswer,
    MapBody,
    Mode,
    PlaceAnswer,
    RecentAnswer,
    RecentCall,
    RecentSearch,
    ToolPlace,
)
from langchain_toolrag.server.rest import guarded, read_body
from langchain_toolrag.server.services import Services
from langchain_toolrag.server.serving import Served
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.types import Vector
from langchain_toolrag.usage.reading import read_usage
from langchain_toolrag.usage.records import CallRecord, SearchRecord, UsageRecord

if TYPE_CHECKING:
    from langchain_toolrag.linting.finding import Finding
    from langchain_toolrag.server.mapping import CatalogueMap

logger = logging.getLogger(__name__)

_MOST_RECENT = 200
_RECENT = 50
_TOOLS_NAMED = 5  # Of a recent search.
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def inspector_routes(services: Services) -> list[Route]:
    """Return the routes of the page and of what it asks for beyond the REST endpoints.

    Args:
        services: What answers.

    Returns:
        One route a path and method.
    """
    inspector = _Inspector(services)
    gets = {"/v1/map": inspector.map, "/v1/lint": inspector.lint, "/v1/recent": inspector.recent}
    return [
        Route("/", _page, methods=["GET"]),
        Route("/v1/map", guarded(inspector.place), methods=["POST"]),
        *(Route(path, guarded(endpoint), methods=["GET"]) for path, endpoint in gets.items()),
    ]


@functools.cache
def page() -> str:
    """Return the page, which holds its style and script and asks no other server for anything."""
    return files(__package__).joinpath("inspector.html").read_text("utf-8")


@functools.cache
def page_headers() -> dict[str, str]:
    """Return the headers of the page: it may run what it holds, and ask this server alone."""
    hashes: dict[str, list[str]] = {"script": [], "style": []}
    for kind, content in _INLINE.findall(page()):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        hashes[kind].append(f"'sha256-{digest}'")
    policy = {
        "default-src": "'none'",
        "script-src": " ".join(hashes["script"]),
        "style-src": " ".join(hashes["style"]),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }


async def _page(request: Request) -> Response:
    return HTMLResponse(page(), headers=page_headers())


class _Inspector:
    """What the page asks for; maps and findings are made once a catalogue."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._serving = services.serving
        self._map: CatalogueMap | None = None
        self._mapping = asyncio.Lock()
        self._findings: tuple[str, Mode, Sequence[Finding]] | None = None
        self._linting = asyncio.Lock()

    async def map(self, request: Request) -> Response:
        served = self._serving.current
        found = await self._map_of(served)
        places = [] if found.places is None else found.places.tolist()
        answer = MapAnswer(
            index=served.fingerprint,
            tools=[
                ToolPlace(id=tool, server=served.tools[tool].source, x=x, y=y)
                for tool, (x, y) in zip(found.ids, places, strict=True)
            ],
            missing=len(served.tools) - len(found.ids),
            shown=found.plane.shown if found.plane else 0.0,
        )
        return JSONAnswer(answer)

    async def place(self, request: Request) -> Response:
        body, served = await read_body(request, MapBody), self._serving.current
        plane = (await self._map_of(served)).plane
        vector = await self._vector(served, body.query) if plane else None
        if plane is None or vector is None:
            problem = "there is no map: requests cannot be embedded now"
            return failure(HTTPStatus.SERVICE_UNAVAILABLE, problem)
        ((x, y),) = plane.places(vector[None, :]).tolist()
        return JSONAnswer(PlaceAnswer(index=served.fingerprint, x=x, y=y))

    async def lint(self, request: Request) -> Response:
        served, mode = self._serving.current, self._serving.mode
        async with self._linting:
            known = self._findings
            if known is None or known[:2] != (served.fingerprint, mode):
                # Seconds for a large catalogue: in a thread that no search waits for.
                found = await asyncio.to_thread(_lint, served.rag, mode)
                known = self._findings = served.fingerprint, mode, found
        findings = [_finding(finding) for finding in known[2]]
        return JSONAnswer(LintAnswer(index=served.fingerprint, mode=mode, findings=findings))

    async def recent(self, request: Request) -> Response:
        usage = self._services.place.usage
        most = _count(request.query_params.get("n"))
        if usage is None:
            return JSONAnswer(RecentAnswer(recording=False, records=[]))
        try:
            records = await asyncio.to_thread(
                lambda: list(itertools.islice(read_usage(usage, newest_first=True), most))
            )
        except SourceError as error:
            logger.warning("%s", error)
            problem = "the usage log cannot be read; the server's log says why"
            return failure(HTTPStatus.SERVICE_UNAVAILABLE, problem)
        recording = self._services.recorder.usage is not None
        return JSONAnswer(RecentAnswer(recording=recording, records=[*map(_recent, records)]))

    async def _map_of(self, served: Served) -> CatalogueMap:
        async with self._mapping:
            if self._map is None or not self._map.is_of(served):
                self._map = await asyncio.to_thread(_map_of, served)
            return self._map

    async def _vector(self, served: Served, query: str) -> Vector | None:
        """Return the vector of a request; None where it cannot be embedded now."""
        index = served.rag.tool_index.local
        if self._serving.mode == "lexical" or index is None:
            return None
        try:
            return await self._serving.in_thread(lambda: index.embedder.query(query))
        except EmbeddingError:
            return None


# Their libraries take half a second to import, which a server that starts need not wait for.
def _map_of(served: Served) -> CatalogueMap:
    from langchain_toolrag.server.mapping import CatalogueMap

    return CatalogueMap.of(served)


def _lint(rag: ToolRAG, mode: Mode) -> Sequence[Finding]:
    from langchain_toolrag.linting.lint import lint

    return lint(rag, lexical=mode == "lexical")


def _count(given: str | None) -> int:
    """Read how many records are asked for."""
    if given is None:
        return _RECENT
    if not given.isdecimal() or not 1 <= float(given) <= _MOST_RECENT:
        raise BadRequestError(f"n: wanted a number from 1 to {_MOST_RECENT}")
    return int(given)


def _finding(finding: Finding) -> LintFinding:
    return LintFinding(
        tool=finding.tool,
        code=finding.code,
        message=finding.message,
        suggestion=finding.suggestion,
    )


def _recent(record: UsageRecord) -> RecentSearch | RecentCall:
    return _recent_call(record) if isinstance(record, CallRecord) else _recent_search(record)


def _recent_search(record: SearchRecord) -> RecentSearch:
    return RecentSearch(
        type="search",
        time=record.time.isoformat(),
        search_id=record.search_id,
        kind=record.kind,
        mode=record.mode,
        text=record.text,
        tools=[*(record.bound or (hit.tool for hit in record.retrieved))][:_TOOLS_NAMED],
        found=len(record.bound or record.retrieved),
        confidence=record.confidence,
        took_ms=record.took_ms,
    )


def _recent_call(record: CallRecord) -> RecentCall:
    return RecentCall(
        type="call",
        time=record.time.isoformat(),
        search_id=record.search_id,
        tool=record.tool,
        outcome=record.outcome,
        text=record.text,
        took_ms=record.latency_ms,
    )
