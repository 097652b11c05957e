"""Values -> HTTP answers in JSON."""

from __future__ import annotations

import json
import logging
import math
import time
import traceback
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

logger = logging.getLogger(__name__)


class BadRequestError(ValueError):
    """A request that cannot be answered as it is; the caller is told what is wrong with it."""


class JSONAnswer(JSONResponse):
    """JSON in ASCII: half a surrogate pair in a tool's result is no reason to fail."""

    def render(self, content: Any) -> bytes:
        """Return the bytes of a value."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def failure(status: int, error: str, **more: Any) -> Response:
    """Return the answer to a request that fails.

    Args:
        status: The HTTP status.
        error: What was found, what was wanted and what to do.
        **more: Further keys of the answer.

    Returns:
        `{"error": ...}`.
    """
    headers = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None
    return JSONAnswer({"error": error, **more}, status, headers)


def unforeseen(error: Exception, what: str) -> str:
    """Log where an error arose that nobody foresaw.

    Its text is neither logged nor told: it may hold what nobody may know, such as a key in a URL.

    Args:
        error: The error.
        what: What the server was at.

    Returns:
        What the caller is told.
    """
    where = "".join(traceback.format_tb(error.__traceback__))
    logger.error("%s at %s\n%s", type(error).__name__, what, where)
    return "the server failed; its log says why"


async def http_failure(request: Request, error: Exception) -> Response:
    """Answer what the router refuses: a path that is not there, a method that is not meant."""
    if not isinstance(error, HTTPException):
        raise error
    response = failure(error.status_code, f"{error.detail}: {request.method} {request.url.path}")
    response.headers.update(dict(error.headers or {}))
    return response


def finite(value: float | None) -> float | None:
    """Return a number that JSON has, else None."""
    return value if value is not None and math.isfinite(value) else None


class Stopwatch:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def milliseconds(self) -> float:
        """Return for how long it has run."""
        return round((time.perf_counter() - self._start) * 1000, 3)
