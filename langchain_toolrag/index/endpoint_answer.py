"""Answer of an embeddings endpoint in -> vectors, or what is wrong with it, out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.index.embedding import unit_vectors
from langchain_toolrag.index.endpoint_client import Outcome
from langchain_toolrag.types import Vectors

_SHOWN = 200  # Characters of what a server says.
_LONGEST_PAUSE = 5.0  # Seconds; a server that asks for more is asked again all the same.


class EndpointError(EmbeddingError):
    """An embeddings endpoint that does not answer, or whose answer cannot be used.

    Args:
        url: Its address.
        problem: What it did, what was wanted and what to do.
        status: The HTTP status of its answer; None where there was none.

    Attributes:
        url: Its address.
        status: The HTTP status of its answer; None where there was none.
    """

    def __init__(self, url: str, problem: str, status: int | None = None) -> None:
        self.url = url
        self.status = status
        super().__init__(f"the embeddings endpoint {url} {problem}")


@dataclass(frozen=True, slots=True)
class Asked:
    """Who was asked for what.

    Attributes:
        url: The endpoint's address.
        model: The model's name there.
        count: How many texts were sent.
        timeout: How many seconds it had.
        key: The API key, which no message shows; empty for none.
    """

    url: str
    model: str
    count: int
    timeout: float
    key: str = field(repr=False)


def is_passing(outcome: Outcome) -> bool:
    """Return whether the same request may well be answered a moment later.

    A server that cannot be reached, or is silent, has had its time.
    """
    if isinstance(outcome, httpx.Response):
        return outcome.status_code in (408, 429) or outcome.status_code >= 500
    return isinstance(outcome, (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError))


def pause_before_another(outcome: Outcome, pause: float) -> float:
    """Return how many seconds to wait: what the server asks for, within reason, or `pause`."""
    asked = outcome.headers.get("retry-after", "") if isinstance(outcome, httpx.Response) else ""
    return min(float(asked), _LONGEST_PAUSE) if asked.isdecimal() else pause


def vectors_of(outcome: Outcome, asked: Asked, dim: int | None) -> Vectors:
    """Return the vectors that were asked for.

    Args:
        outcome: The answer, or why there is none.
        asked: Who was asked for what.
        dim: The dimension of the vectors that the endpoint gave before; None for the first.

    Returns:
        Unit vectors in the order of the texts, shape `(asked.count, dim)`.

    Raises:
        EndpointError: If there are none, too few or too many, or such that cannot be used.
    """
    if not isinstance(outcome, httpx.Response):
        raise EndpointError(asked.url, _unanswered(outcome, asked.timeout)) from outcome
    problem = "" if outcome.status_code == httpx.codes.OK else _refusal(outcome, asked)
    if problem:
        raise EndpointError(asked.url, problem, outcome.status_code)
    try:
        return _checked(_rows(outcome, asked), dim)
    except _UnusableError as error:
        raise EndpointError(asked.url, str(error), outcome.status_code) from error


class _UnusableError(Exception):
    """An answer that holds no usable vectors; says what it is, after "the endpoint"."""


def _unanswered(error: httpx.RequestError, timeout: float) -> str:
    if isinstance(error, httpx.TimeoutException):
        return (
            f"gave no answer within {timeout:g} s: raise the timeout, or lower the batch size "
            "if the model is slow"
        )
    if isinstance(error, httpx.ConnectError):
        return f"cannot be reached ({error}): is the server running, and the address right?"
    return f"broke the connection ({type(error).__name__}: {error}): look at the server's log"


def _refusal(response: httpx.Response, asked: Asked) -> str:
    """Say why there are no vectors in an answer that is not OK."""
    status, said = response.status_code, _said(response, asked.key)
    if status in (401, 403):
        had = "does not accept the API key" if asked.key else "wants an API key and was given none"
        return f"{had} (status {status}): check TOOLRAG_EMB_API_KEY, or api_key in Python"
    if status == 404 and "model" in said.lower():
        return f"has no model {asked.model!r}{_quoted(said)}: give the name it is served under"
    if status == 404:
        return "is not there (status 404): is the address that of an OpenAI-compatible server?"
    if status == 429:
        return f"is asked too much (status 429){_quoted(said)}: wait, or raise its limits"
    if response.is_redirect:
        place = response.headers.get("location", "")
        return f"leads on to {place!r:.{_SHOWN}}, which is not followed: give that address"
    if status in (400, 413, 422):
        too_long = "a text may be longer than the model reads: lower max_characters"
        return f"refuses the texts (status {status}){_quoted(said)}: {too_long}"
    return f"failed (status {status}){_quoted(said)}: look at the server's log"


def _quoted(said: str) -> str:
    return f', saying "{said}"' if said else ""


def _said(response: httpx.Response, key: str) -> str:
    """Return a server's own words; of an answer in no known form, such as a page, none."""
    try:
        body = response.json()
    except (ValueError, RecursionError):
        return ""
    words = body
    for name in ("error", "message", "detail"):
        if isinstance(words, Mapping):
            words = words.get(name, words)
    text = " ".join(words.split()) if isinstance(words, str) else ""
    hidden = text.replace(key, "***") if key else text
    return hidden if len(hidden) <= _SHOWN else f"{hidden[: _SHOWN - 1]}…"


def _rows(response: httpx.Response, asked: Asked) -> list[Any]:
    """Return the vectors as they were sent, in the order of the texts."""
    try:
        body = response.json()
    except (ValueError, RecursionError) as error:
        what = "answered something that is not JSON: is the address that of an embeddings endpoint?"
        raise _UnusableError(what) from error
    items = body.get("data") if isinstance(body, Mapping) else None
    if not isinstance(items, list) or not all(_is_item(item) for item in items):
        said = _said(response, asked.key)
        raise _UnusableError(
            f"answered without vectors{_quoted(said)}: wanted a list `data` of objects with "
            "`embedding`, as OpenAI's has"
        )
    if len(items) != asked.count:
        what = f"gave {len(items)} vectors for {asked.count} texts: it cannot be used"
        raise _UnusableError(what)
    return [item["embedding"] for item in _ordered(items)]


def _is_item(item: object) -> bool:
    return isinstance(item, Mapping) and "embedding" in item


def _ordered(items: list[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the items by their `index`; a server that numbers none keeps the order."""
    places = [item.get("index") for item in items]
    if all(place is None for place in places):
        return items
    numbered = [place for place in places if isinstance(place, int)]
    if sorted(numbered) != list(range(len(items))):
        raise _UnusableError(
            f"numbered {len(items)} vectors {places!r:.{_SHOWN}}: wanted each `index` from 0 once"
        )
    return sorted(items, key=lambda item: item["index"])


def _checked(rows: Sequence[Any], dim: int | None) -> Vectors:
    try:
        with np.errstate(over="ignore"):  # What is too large for float32 becomes infinite.
            vectors = np.array(rows, np.float32)
    except (TypeError, ValueError) as error:
        what = "gave vectors that are not lists of numbers, all of one length: it cannot be used"
        raise _UnusableError(what) from error
    if vectors.ndim != 2 or not vectors.shape[1] or (dim and vectors.shape[1] != dim):
        wanted = f"dimension {dim}, as before" if dim else "one row of numbers a text"
        raise _UnusableError(
            f"gave vectors of shape {vectors.shape}, wanted {wanted}: has its model been changed?"
        )
    if not np.isfinite(vectors).all():
        raise _UnusableError(
            "gave vectors with NaN or infinite numbers: is the model served in a precision that "
            "it does not bear (float16 for bfloat16)?"
        )
    return unit_vectors(list(vectors), len(vectors), dim)
