"""A stored operation and its arguments in -> one HTTP request, and what it came to, out.

What is sent is decided by other people's documents, servers and models, so: it stays under the
source's base URL; nothing but reading happens unless writing is allowed; no redirect is followed;
an address that is not public is refused unless the user named it; credentials go into the request
and into no message; and what comes back is no longer than asked for.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import httpx

from langchain_toolrag.catalogue.sources.openapi.addresses import is_public, resolve
from langchain_toolrag.catalogue.sources.openapi.answer import Secrets, read_answer, result_of
from langchain_toolrag.catalogue.sources.openapi.request import (
    READING_METHODS,
    Outgoing,
    outgoing,
)
from langchain_toolrag.catalogue.sources.stored import CallResult, StoredSource, StoredTool

_CONNECTING = 5.0  # Seconds for an address where there are more.
_STEP = re.compile(r"[/\\]")
_PORTS = {"https": 443, "http": 80}
_HEADERS = {
    "Accept": "application/json, text/*;q=0.9, */*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
    "User-Agent": "langchain-toolrag",
}


def operations_client() -> httpx.AsyncClient:
    """Return a client to call operations with.

    It takes no proxy, no certificates and no passwords from the environment, for a proxy would
    choose the address itself.
    """
    return httpx.AsyncClient(trust_env=False, follow_redirects=False)


async def call_operation(
    client: httpx.AsyncClient,
    source: StoredSource,
    tool: StoredTool,
    arguments: Mapping[str, Any],
    *,
    headers: Mapping[str, str],
    query: Mapping[str, str] | None = None,
    timeout: float,
    allow_write: bool,
    allow_private: bool,
    most_bytes: int,
) -> CallResult:
    """Call an operation, once.

    Args:
        client: What sends it; see `operations_client`.
        source: The tool's source.
        tool: The tool, of an OpenAPI document.
        arguments: What the model gives, by name.
        headers: Headers with credentials, filled in; they win over arguments.
        query: Credentials that go into the query, filled in. httpx logs URLs, but not these.
        timeout: Seconds that all of it may take.
        allow_write: Whether anything but GET and HEAD is sent.
        allow_private: Whether it is sent to an address that is not public. That of a base URL
            whose host the user named (`address_given` of the source) always is.
        most_bytes: The most bytes of an answer that are kept.

    Returns:
        `ok` for a status below 300. `refused` for what was not sent because it may not be;
        `tool_error` for arguments that do not fit, a server that cannot be reached, a redirect,
        and a status from 300, with the schema of the arguments where they may be to blame;
        `timeout` where it took too long, and whether it was done is not known.
    """
    method = str(tool.call["method"])
    if method not in READING_METHODS and not allow_write:
        return CallResult("refused", _write_refused(tool, method))
    secrets = Secrets(_secret_values(source, headers, query or {}))
    unsendable = [name for name, value in headers.items() if not _is_sendable(value)]
    if unsendable:
        text = f"the value for the header {unsendable[0]} is not one line of ASCII: not sent"
        return CallResult("tool_error", text)
    try:
        sent = outgoing(tool, arguments)
    except ValueError as error:
        return CallResult("tool_error", f"{tool.name} was not called: {error}.\n{_schema(tool)}")
    url = _url(source.base_url, sent)
    if url is None:
        return CallResult("refused", f"{tool.name} leads out of {source.base_url}: not sent")
    all_headers = _all_headers(sent, headers)
    call = _Call(
        client,
        method,
        url,
        sent,
        all_headers,
        query or {},
        timeout,
        most_bytes,
        (_schema(tool), _credentials(source)),
        secrets,
    )
    private = allow_private or bool(source.connection.get("address_given"))
    return await _in_time(call.anywhere() if private else call.in_public(), timeout, tool, secrets)


@dataclass(frozen=True, slots=True)
class _Call:
    client: httpx.AsyncClient
    method: str
    url: httpx.URL
    sent: Outgoing
    headers: httpx.Headers
    secret_query: Mapping[str, str]
    timeout: float
    most_bytes: int
    hints: tuple[str, str]
    secrets: Secrets

    async def anywhere(self) -> CallResult:
        return await self._exchange(None, self.timeout)

    async def in_public(self) -> CallResult:
        """Send it to an address that was checked: the name could lead elsewhere a moment later."""
        port = self.url.port or _PORTS[self.url.scheme]
        addresses = await resolve(self.url.host, port)
        if not all(map(is_public, addresses)):
            return CallResult("refused", _private_refused(self.url.host))
        for address in addresses[:-1]:
            try:
                return await self._exchange(address, min(_CONNECTING, self.timeout))
            except (httpx.ConnectError, httpx.ConnectTimeout):  # Nothing was sent yet.
                continue
        return await self._exchange(addresses[-1], self.timeout)

    async def _exchange(self, address: str | None, connecting: float) -> CallResult:
        request = self._request(address)
        # Else httpx takes the client's, which is five seconds.
        request.extensions["timeout"] = httpx.Timeout(self.timeout, connect=connecting).as_dict()
        response = await self.client.send(request, stream=True, auth=None, follow_redirects=False)
        try:
            answer = await read_answer(response, self.most_bytes)
        finally:
            await response.aclose()
        return result_of(answer, *self.hints, self.secrets)

    def _request(self, address: str | None) -> httpx.Request:
        extensions: dict[str, Any] = {}
        url = self.url
        if address is not None:  # TLS still asks for the name.
            url = url.copy_with(host=address)
            extensions["sni_hostname"] = self.url.raw_host.decode("ascii")
        if self.secret_query:  # Not in the URL, which httpx logs.
            added = str(httpx.QueryParams(self.secret_query)).encode("ascii")
            between = b"&" if self.url.query else b"?"
            extensions["target"] = self.url.raw_path + between + added
        request = httpx.Request(
            self.method,
            url,
            headers=self.headers,
            content=self.sent.content,
            files=self.sent.parts,
            extensions=extensions,
        )
        request.headers["Host"] = self.url.netloc.decode("ascii")
        if address is not None:
            # httpx would take the connection for one to any host at that address, although its
            # certificate was checked for this one.
            request.headers["Connection"] = "close"
        return request


async def _in_time(
    sending: Coroutine[Any, Any, CallResult], timeout: float, tool: StoredTool, secrets: Secrets
) -> CallResult:
    try:
        return await asyncio.wait_for(sending, timeout)
    except (asyncio.TimeoutError, httpx.TimeoutException):
        return CallResult("timeout", f"{tool.name} did not answer within {timeout:g} seconds")
    # A name that no host can have, such as `a..b`, is the last.
    except (httpx.ConnectError, OSError, UnicodeError) as error:
        text = f"the server of {tool.name} could not be reached: {secrets.hidden(str(error))}"
        return CallResult("tool_error", text)
    # What httpx says of a request that breaks off or cannot be written may quote its headers.
    except httpx.HTTPError as error:
        return CallResult("tool_error", f"{tool.name} broke off: {type(error).__name__}")


def _all_headers(sent: Outgoing, credentials: Mapping[str, str]) -> httpx.Headers:
    headers = httpx.Headers({**_HEADERS, **sent.headers})
    own = [value for name, value in credentials.items() if name.lower() == "cookie"]
    headers.update(dict(credentials))
    cookies = [*own, *sent.cookies]
    if cookies:
        headers["Cookie"] = "; ".join(cookies)
    return headers


def _url(base_url: str, sent: Outgoing) -> httpx.URL | None:
    """Return the URL of a request; None if it is not under the base URL."""
    base = base_url.rstrip("/")
    try:
        root = httpx.URL(base)
        url = httpx.URL(f"{base}{sent.path}" + (f"?{sent.query}" if sent.query else ""))
    except httpx.InvalidURL:
        return None
    # httpx takes dot segments out itself: what is left of them was encoded.
    path = unquote(unquote(url.raw_path.partition(b"?")[0].decode("ascii")))
    same = (root.scheme, root.raw_host, root.port) == (url.scheme, url.raw_host, url.port)
    prefix = root.raw_path.rstrip(b"/") + b"/"
    inside = url.raw_path.startswith(prefix) and not url.userinfo
    return url if same and inside and not {".", ".."}.intersection(_STEP.split(path)) else None


def _private_refused(host: str) -> str:
    return (
        f"{host} has a private or local address, which a document by itself is not trusted to "
        "name: not sent. If it is meant, read the document again with --base-url"
    )


def _write_refused(tool: StoredTool, method: str) -> str:
    return (
        f"{tool.name} is {method} {tool.call['path']}, which may change things: not sent. Only "
        "GET and HEAD are, unless whoever runs this allows writing with --allow-write"
    )


def _schema(tool: StoredTool) -> str:
    return f"Arguments of {tool.name}: {json.dumps(tool.parameters, ensure_ascii=False)}"


def _credentials(source: StoredSource) -> str:
    """Say where a source's credentials come from, by name."""
    names = {**source.connection.get("headers", {}), **source.connection.get("query", {})}
    named = ", ".join(f"{name} from {value}" for name, value in names.items() if "${" in value)
    return f"Credentials of {source.name}: {named}." if named else ""


def _secret_values(
    source: StoredSource, headers: Mapping[str, str], query: Mapping[str, str]
) -> list[str]:
    """Return the values that are not written in the directory for all to read."""
    written = {*source.connection.get("headers", {}).values()}
    cookies = [value for name, value in headers.items() if name.lower() == "cookie"]
    values = (*headers.values(), *query.values(), *(one.partition("=")[2] for one in cookies))
    return [value for value in values if value not in written]


def _is_sendable(value: str) -> bool:
    return value.isascii() and value.isprintable()
