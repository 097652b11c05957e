"""The REST endpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from langchain_toolrag.caller import Caller
from langchain_toolrag.errors import InvalidToolError, UnknownToolError
from langchain_toolrag.server.answers import BadRequestError, JSONAnswer, failure, unforeseen
from langchain_toolrag.server.bodies import (
    CallBody,
    ExplainBody,
    FeedbackAnswer,
    FeedbackBody,
    HealthAnswer,
    LiveAnswer,
    RankBody,
    SearchBody,
    ToolsAnswer,
)
from langchain_toolrag.server.callers import tenant_of
from langchain_toolrag.server.calling import call
from langchain_toolrag.server.explaining import explain
from langchain_toolrag.server.metrics import CONTENT_TYPE
from langchain_toolrag.server.openapi import document
from langchain_toolrag.server.searching import described, search
from langchain_toolrag.server.services import Services

_HEADS_DIGITS = 16  # As many as the usage log has of a digest.

_BodyT = TypeVar("_BodyT", bound=BaseModel)
_Endpoint = Callable[[Request], Awaitable[Response]]


def rest_routes(services: Services) -> list[Route]:
    """Return the routes of the REST endpoints.

    Args:
        services: What answers.

    Returns:
        One route a path.
    """
    rest = _Rest(services)
    posts = {
        "/v1/search": rest.search,
        "/v1/rank": rest.rank,
        "/v1/call": rest.call,
        "/v1/feedback": rest.feedback,
        "/v1/explain": rest.explain,
    }
    gets = {
        "/v1/tools": rest.tools,
        "/v1/tools/{id:path}": rest.tool,
        "/healthz": rest.health,
        "/livez": rest.live,
        "/metrics": rest.metrics,
        "/openapi.json": rest.openapi,
    }
    return [
        *(Route(path, guarded(endpoint), methods=["POST"]) for path, endpoint in posts.items()),
        *(Route(path, guarded(endpoint), methods=["GET"]) for path, endpoint in gets.items()),
    ]


class _Rest:
    """What each path answers."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._serving = services.serving

    async def search(self, request: Request) -> Response:
        body = await read_body(request, SearchBody)
        caller = Caller(body.session, tenant_of(request.headers))
        found = await search(self._serving, self._services.recorder, body.query, body.k, caller)
        return JSONAnswer(found.answer())

    async def rank(self, request: Request) -> Response:
        body, rankings = await read_body(request, RankBody), self._services.rankings
        tenant = tenant_of(request.headers)
        if body.tools is not None:
            return JSONAnswer(await rankings.rank(body.query, body.tools, tenant))
        return JSONAnswer(await rankings.rank_known(body.query, body.tool_ids or [], tenant))

    async def call(self, request: Request) -> Response:
        body = await read_body(request, CallBody)
        answer = await call(
            self._services,
            body.name,
            body.arguments,
            search_id=body.search_id,
            timeout=body.timeout,
            tenant=tenant_of(request.headers),
        )
        return JSONAnswer(answer)

    async def feedback(self, request: Request) -> Response:
        body, recorder = await read_body(request, FeedbackBody), self._services.recorder
        tool = await self._serving.tool(self._serving.current, body.name)
        call_id = recorder.call(
            tool.id, body.outcome, search_id=body.search_id, tenant=tenant_of(request.headers)
        )
        recorded = recorder.usage is not None
        return JSONAnswer(FeedbackAnswer(call_id=call_id, recorded=recorded))

    async def explain(self, request: Request) -> Response:
        body = await read_body(request, ExplainBody)
        return JSONAnswer(await explain(self._serving, body.query or body.messages or []))

    async def tools(self, request: Request) -> Response:
        served = self._serving.current
        server, full = request.query_params.get("server"), request.query_params.get("full", "")
        found = [
            described(served, tool.id, full=full.lower() in ("1", "true"))
            for tool in served.tools.values()
            if server is None or tool.source == server
        ]
        return JSONAnswer(ToolsAnswer(tools=found, total=len(found)))

    async def tool(self, request: Request) -> Response:
        served = self._serving.current
        tool = await self._serving.tool(served, request.path_params["id"])
        return JSONAnswer(described(served, tool.id))

    async def health(self, request: Request) -> Response:
        serving = self._serving
        status = serving.current.rag.status
        answer = HealthAnswer(
            ready=serving.ready,
            mode=serving.mode,
            tools=len(serving.current.tools),
            heads=status.heads[:_HEADS_DIGITS],
            heads_problem=bool(status.heads_problem),
        )
        ready = HTTPStatus.OK if answer["ready"] else HTTPStatus.SERVICE_UNAVAILABLE
        return JSONAnswer(answer, ready)

    async def live(self, request: Request) -> Response:
        return JSONAnswer(LiveAnswer(alive=True))

    async def metrics(self, request: Request) -> Response:
        content = self._services.recorder.metrics.render()
        return Response(content, headers={"Content-Type": CONTENT_TYPE})

    async def openapi(self, request: Request) -> Response:
        return JSONAnswer(document())


async def read_body(request: Request, body: type[_BodyT]) -> _BodyT:
    """Return the body of a request; raises a BadRequestError for one that is not as wanted."""
    content = await request.body()
    try:
        from_json(content, allow_inf_nan=False)  # Pydantic takes NaN, which JSON does not have.
        return body.model_validate_json(content)
    except ValidationError as error:
        raise BadRequestError(_problems(error)) from error
    except ValueError as error:
        raise BadRequestError(f"body: Invalid JSON: {error}") from error


def guarded(endpoint: _Endpoint) -> _Endpoint:
    """Answer errors as JSON: the caller's with what is wrong, others without what is inside."""

    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except UnknownToolError as error:
            return failure(HTTPStatus.NOT_FOUND, str(error), closest=list(error.closest))
        except (BadRequestError, InvalidToolError) as error:
            return failure(HTTPStatus.BAD_REQUEST, str(error))
        except Exception as error:
            told = unforeseen(error, request.url.path)
            return failure(HTTPStatus.INTERNAL_SERVER_ERROR, told)

    return answered


def _problems(error: ValidationError) -> str:
    """Say what is wrong with a body, without what is in it."""
    problems = [
        f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}"
        for each in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    return "; ".join(problems)
