"""Who may ask a server what: every request passes here before anything of it is read."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Iterable
from http import HTTPStatus
from typing import TypeAlias

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from langchain_toolrag.server.answers import failure
from langchain_toolrag.server.options import ServerOptions, bracketed, host_of

OPEN_PATHS = ("/", "/livez", "/healthz")
"""What is answered without a key: it tells nothing of the tools. The page at / asks for the key."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_EVERY_ADDRESS = ("0.0.0.0", "::", "")
_BODILESS = ("GET", "HEAD", "OPTIONS", "DELETE")
_BODY_SECONDS = 30.0  # Longer ones come from nobody who wants an answer.
_Refusal: TypeAlias = tuple[int, str]


class Guard:
    """Passes on what is allowed and answers the rest with an error.

    A page of the web that a user has open may not use the user's own server: its requests have an
    origin that is not the server's, or, with a name that it has let point here, a host that is not.

    Args:
        app: What requests are passed on to.
        options: What is allowed.
    """

    def __init__(self, app: ASGIApp, options: ServerOptions) -> None:
        self._app = app
        self._key = options.api_key.encode()
        self._most_bytes = options.most_request_bytes
        self._named = frozenset(host_of(bracketed(name)) for name in options.allowed_hosts)
        own = () if options.host in _EVERY_ADDRESS else (host_of(bracketed(options.host)),)
        self._hosts = self._named.union(_LOOPBACK, own)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._refusal(headers, scope["path"], scope["method"])
        if refused is None and scope["method"] not in _BODILESS:
            try:
                read = await self._read(headers, receive)
            except ClientDisconnect:  # Half a request is none.
                return
            refused, receive = (None, read) if isinstance(read, _Replayed) else (read, receive)
        answer = self._app if refused is None else failure(*refused)
        await answer(scope, receive, send)

    def _refusal(self, headers: Headers, path: str, method: str) -> _Refusal | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or host_of(hosts[0]) not in self._hosts:
            return HTTPStatus.MISDIRECTED_REQUEST, (
                "this server has another name: start it with --allowed-host NAME to be reached so"
            )
        foreign = [each for each in headers.getlist("origin") if not self._is_own(each, hosts[0])]
        if foreign or _is_embedded(headers):
            return HTTPStatus.FORBIDDEN, "requests of other origins are not answered"
        if self._key and path not in OPEN_PATHS and not self._has_key(headers):
            return HTTPStatus.UNAUTHORIZED, (
                "send the server's key, as Authorization: Bearer KEY or X-API-Key: KEY"
            )
        if method not in _BODILESS and not _is_json(headers.get("content-type", "")):
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send JSON, Content-Type: application/json"
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether an origin is this server's: the very host and port, or a name that was given."""
        scheme, _, authority = origin.partition("://")
        if scheme not in ("http", "https"):
            return False
        return authority.lower() == host.lower() or host_of(authority) in self._named

    def _has_key(self, headers: Headers) -> bool:
        bearer = [
            value[len("bearer ") :].strip()
            for value in headers.getlist("authorization")
            if value.lower().startswith("bearer ")
        ]
        return _any_equal([*bearer, *headers.getlist("x-api-key")], self._key)

    async def _read(self, headers: Headers, receive: Receive) -> _Replayed | _Refusal:
        try:
            body = await asyncio.wait_for(self._body(headers, receive), _BODY_SECONDS)
        except asyncio.TimeoutError:
            return HTTPStatus.REQUEST_TIMEOUT, f"the body took more than {_BODY_SECONDS:g} seconds"
        if body is None:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {self._most_bytes:,} bytes"
        return _Replayed(body, receive)

    async def _body(self, headers: Headers, receive: Receive) -> bytes | None:
        """Return the body; None for one that is too long, of which no more is read."""
        length = headers.get("content-length", "")
        if length.isdecimal() and float(length) > self._most_bytes:
            return None
        chunks, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise ClientDisconnect
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > self._most_bytes:
                return None
            more = message.get("more_body", False)
        return b"".join(chunks)


class _Replayed:
    """Hands out a body that was read already."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _any_equal(given: Iterable[str], key: bytes) -> bool:
    """Compare in a time that does not tell how much of a key is right."""
    return any([hmac.compare_digest(value.encode("latin-1"), key) for value in given])


def _is_embedded(headers: Headers) -> bool:
    """Whether a page of another origin asks, as for an image, which browsers say without Origin."""
    site, mode = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
    return site in ("cross-site", "same-site") and mode != "navigate"


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"
