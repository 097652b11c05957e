"""A server's answer in -> what a call came to out."""

from __future__ import annotations

import codecs
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from langchain_toolrag.catalogue.sources.openapi.media import is_json
from langchain_toolrag.catalogue.sources.stored import CallResult

_LONGEST_ERROR = 1_000  # Characters of an error's body that a model is shown.
_SHORTEST_SECRET = 8  # Characters; shorter ones are found in any text.
_LONGEST_CHARACTER = 4  # Bytes of UTF-8.
_NOT_ALLOWED = (401, 403)
_COMPRESSIONS = ("gzip", "deflate")
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_TOLD_OF_HEAD = ("content-type", "content-length", "last-modified", "etag")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered.

    Attributes:
        response: Status and headers.
        body: The body, decompressed, up to the most bytes that were asked for.
        whole: Whether that is all of it.
    """

    response: httpx.Response
    body: bytes
    whole: bool


class Secrets:
    """Values that no message may have.

    Args:
        values: The values as they are sent, `Bearer` and the like in front.
    """

    def __init__(self, values: Sequence[str]) -> None:
        bare = {part for value in values for part in (value, value.rpartition(" ")[2])}
        parts = {*bare, *(quote(part, safe="") for part in bare)}
        # Longest first, so that nothing is left of a value that holds another.
        found = (part for part in parts if len(part) >= _SHORTEST_SECRET)
        self._values = sorted(found, key=len, reverse=True)

    def hidden(self, text: str) -> str:
        """Return the text with `***` in place of the values."""
        for value in self._values:
            text = text.replace(value, "***")
        return text


async def read_answer(response: httpx.Response, most_bytes: int) -> Answer:
    """Read a body, and no more of it than was asked for.

    Args:
        response: The response, not read yet.
        most_bytes: The most bytes of the body that are kept, decompressed.

    Returns:
        The answer. Of a body that is compressed in a way not asked for, there is nothing.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    raw = bytearray()
    # Not `aiter_bytes`, which decompresses a chunk to whatever it expands to.
    async for chunk in response.aiter_raw():
        raw += chunk
        if len(raw) > most_bytes:
            break
    whole = len(raw) <= most_bytes
    if encoding == "identity":
        return Answer(response, bytes(raw[:most_bytes]), whole)
    if encoding not in _COMPRESSIONS:
        return Answer(response, b"", False)
    body, all_of_it = _decompressed(bytes(raw), most_bytes)
    return Answer(response, body, whole and all_of_it)


def _decompressed(raw: bytes, most_bytes: int) -> tuple[bytes, bool]:
    inflating = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        body = inflating.decompress(raw, most_bytes + 1)
    except zlib.error:
        return b"", False
    return body[:most_bytes], len(body) <= most_bytes


def result_of(answer: Answer, schema: str, credentials: str, secrets: Secrets) -> CallResult:
    """Say what a call came to.

    Args:
        answer: The answer.
        schema: What a model needs to correct itself, said with an error.
        credentials: Where credentials come from, said where they were not enough.
        secrets: What the answer may not say, should the server repeat it.

    Returns:
        `ok` below status 300, else `tool_error`.
    """
    response = answer.response
    status = response.status_code
    said = f"HTTP {status} {response.reason_phrase}".strip()
    if "location" in response.headers and 300 <= status < 400:
        target = secrets.hidden(response.headers["location"])
        text = f"{said}: it redirects to {target}, and redirects are not followed."
        return CallResult("tool_error", text, status=status)
    if status >= 300:
        lines = (
            said + _error_text(answer, secrets),
            credentials if status in _NOT_ALLOWED else "",
            schema,
        )
        return CallResult("tool_error", "\n".join(filter(None, lines)), status=status)
    return _success(answer, said, secrets)


def _error_text(answer: Answer, secrets: Secrets) -> str:
    text = secrets.hidden(_decoded(answer) or "").strip()
    short = text if len(text) <= _LONGEST_ERROR else f"{text[:_LONGEST_ERROR]} ... (cut)"
    return f": {short}" if short else ""


def _success(answer: Answer, said: str, secrets: Secrets) -> CallResult:
    status = answer.response.status_code
    text = _decoded(answer)
    if text is None:
        kind = answer.response.headers.get("content-type", "an unknown type")
        size = f"{len(answer.body):,} bytes" if answer.whole else "too large or unreadable"
        return CallResult("ok", f"{said}: a binary answer, {kind}, {size}.", status=status)
    text = secrets.hidden(text)
    if not text:
        return CallResult("ok", _headers(answer.response, said), status=status)
    if not answer.whole:
        text += f"\n... (cut: the answer is longer than {len(answer.body):,} bytes)"
        return CallResult("ok", text, status=status)
    return CallResult("ok", text, _parsed(text, answer.response), status)


def _headers(response: httpx.Response, said: str) -> str:
    """Tell what an answer without a body says of what it is about."""
    told = (
        f"{name}: {response.headers[name]}" for name in _TOLD_OF_HEAD if name in response.headers
    )
    return "\n".join([said, *(told if response.request.method == "HEAD" else ())])


def _parsed(text: str, response: httpx.Response) -> Any:
    if not is_json(response.headers.get("content-type", "")):
        return None
    try:
        return json.loads(text)
    # Not JSON after all, or nested too deeply.
    except (ValueError, RecursionError):
        return None


def _decoded(answer: Answer) -> str | None:
    """Return the body as text; None where it is not text, whatever it says it is."""
    charset = _charset(answer.response)
    try:
        text = answer.body.decode(charset)
    except UnicodeDecodeError as error:
        # A body that was cut may end inside a character; other faults make it binary.
        if answer.whole or len(answer.body) - error.start >= _LONGEST_CHARACTER:
            return None
        text = answer.body[: error.start].decode(charset)
    unread = not answer.whole and not answer.body
    return None if "\0" in text or unread else text


def _charset(response: httpx.Response) -> str:
    named = response.charset_encoding or "utf-8"
    try:
        return codecs.lookup(named).name
    except LookupError:
        return "utf-8"
