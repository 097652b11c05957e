"""The server's own OpenAPI document."""

from __future__ import annotations

import functools
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel, TypeAdapter

from langchain_toolrag.server import bodies
from langchain_toolrag.server.callers import MOST_NAME, TENANT

_REF = "#/components/schemas/{model}"
_JSON = "application/json"
_WRONG = {"400": "What is wrong with the request"}
_FAILURES = {
    "401": "The key is missing or wrong",
    "403": "A page of another origin asks",
    "421": "The server has another name",
    "500": "The server failed",
}
_BODY_FAILURES = {
    **_WRONG,
    "408": "The body comes too slowly",
    "413": "The body is too long",
    "415": "The body is no JSON",
}
_NOT_THERE = {"404": "There is no such tool"}


@functools.cache
def document() -> dict[str, Any]:
    """Return the document, OpenAPI 3.1; it is the same for every server.

    Returns:
        The document. What it holds is not to be changed.
    """
    schemas: dict[str, Any] = {}
    paths = {**_searching(schemas), **_inspecting(schemas), **_serving(schemas)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "toolrag", "version": version("langchain-toolrag")},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
        "security": [{}, {"bearer": []}, {"key": []}],
    }


def _searching(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the paths of searches and calls."""

    def post(identity: str, summary: str, body: type[BaseModel], answer: Any) -> dict[str, Any]:
        operation = _operation(schemas, identity, summary, body, answer, _NOT_THERE)
        return {"post": _of_a_tenant(operation)}

    search = _operation(schemas, "search", "Find tools", bodies.SearchBody, bodies.SearchAnswer)
    return {
        "/v1/search": {"post": _of_a_tenant(search)},
        "/v1/rank": post(
            "rank",
            "Rank tools that the caller brings or names",
            bodies.RankBody,
            bodies.RankAnswer,
        ),
        "/v1/call": post("call", "Call a tool", bodies.CallBody, bodies.CallAnswer),
        "/v1/feedback": post(
            "feedback",
            "Tell how a call went that the caller made itself",
            bodies.FeedbackBody,
            bodies.FeedbackAnswer,
        ),
        "/v1/tools": {"get": _listing(schemas)},
        "/v1/tools/{id}": {"get": _one_tool(schemas)},
    }


def _inspecting(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the paths that the inspector asks."""
    why = "Select tools for a conversation and say why"
    explain = _operation(schemas, "explain", why, bodies.ExplainBody, bodies.ExplainAnswer)
    place = _operation(
        schemas,
        "place",
        "Where a request is on the plane of the tools",
        bodies.MapBody,
        bodies.PlaceAnswer,
        {"503": "Requests cannot be embedded now"},
    )
    tools = _operation(schemas, "map", "Where tools are on a plane", None, bodies.MapAnswer)
    return {
        "/v1/explain": {"post": explain},
        "/v1/map": {"get": tools, "post": place},
        "/v1/lint": {"get": _operation(schemas, "lint", "Lint the tools", None, bodies.LintAnswer)},
        "/v1/recent": {"get": _recent(schemas)},
    }


def _serving(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the paths that say how the server is doing."""
    live = _operation(schemas, "live", "Whether it answers", None, bodies.LiveAnswer)
    return {
        "/healthz": {"get": _open(_health(schemas))},
        "/livez": {"get": _open(live)},
        "/metrics": {"get": _text(schemas, "metrics", "Counts, in Prometheus' form")},
        "/openapi.json": {"get": _text(schemas, "openapi", "This document")},
    }


def _operation(
    schemas: dict[str, Any],
    identity: str,
    summary: str,
    body: type[BaseModel] | None,
    answer: Any,
    errors: dict[str, str] | None = None,
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": identity,
        "summary": summary,
        "responses": {
            "200": _response(schemas, "The answer", answer),
            **_failures(schemas, (_BODY_FAILURES if body else {}) | (errors or {})),
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _content(schemas, body)}
    return operation


def _of_a_tenant(operation: dict[str, Any]) -> dict[str, Any]:
    """Return an operation with the header that names whose data it is about."""
    meaning = "Names the tenant: calls are tied to searches of the same tenant alone"
    schema = {"type": "string", "maxLength": MOST_NAME}
    return {**operation, "parameters": [_parameter(TENANT, "header", meaning, schema)]}


def _listing(schemas: dict[str, Any]) -> dict[str, Any]:
    operation = _operation(schemas, "list_tools", "List the tools", None, bodies.ToolsAnswer)
    operation["parameters"] = [
        _parameter("server", "query", "Only this server's", {"type": "string"}),
        _parameter("full", "query", "With what each takes", {"type": "boolean"}),
    ]
    return operation


def _recent(schemas: dict[str, Any]) -> dict[str, Any]:
    operation = _operation(
        schemas,
        "recent",
        "List the last searches and calls of the usage log",
        None,
        bodies.RecentAnswer,
        {**_WRONG, "503": "The log cannot be read"},
    )
    operation["parameters"] = [_parameter("n", "query", "At most so many", {"type": "integer"})]
    return operation


def _one_tool(schemas: dict[str, Any]) -> dict[str, Any]:
    operation = _operation(
        schemas, "get_tool", "Describe one tool", None, bodies.ToolAnswer, _NOT_THERE
    )
    operation["parameters"] = [_parameter("id", "path", "Its API name or id", {"type": "string"})]
    return operation


def _health(schemas: dict[str, Any]) -> dict[str, Any]:
    operation = _operation(
        schemas, "health", "Whether it searches by meaning yet", None, bodies.HealthAnswer
    )
    operation["responses"]["503"] = _response(schemas, "Not yet", bodies.HealthAnswer)
    return operation


def _open(operation: dict[str, Any]) -> dict[str, Any]:
    """Return an operation as one that is answered without a key."""
    del operation["responses"]["401"]
    return {**operation, "security": [{}]}


def _failures(schemas: dict[str, Any], further: dict[str, str]) -> dict[str, Any]:
    return {
        status: _response(schemas, meaning, bodies.ErrorAnswer)
        for status, meaning in (_FAILURES | further).items()
    }


def _text(schemas: dict[str, Any], identity: str, summary: str) -> dict[str, Any]:
    responses = {"200": {"description": "The answer"}, **_failures(schemas, {})}
    return {"operationId": identity, "summary": summary, "responses": responses}


def _parameter(name: str, place: str, meaning: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": meaning,
        "schema": schema,
    }


def _response(schemas: dict[str, Any], meaning: str, answer: Any) -> dict[str, Any]:
    return {"description": meaning, "content": _content(schemas, answer)}


def _content(schemas: dict[str, Any], kind: Any) -> dict[str, Any]:
    """Note the schema of a body or an answer, and those it is made of; return what refers to it."""
    schema = TypeAdapter(kind).json_schema(ref_template=_REF)
    schemas.update(schema.pop("$defs", {}))
    schemas[kind.__name__] = schema
    return {_JSON: {"schema": {"$ref": _REF.format(model=kind.__name__)}}}
