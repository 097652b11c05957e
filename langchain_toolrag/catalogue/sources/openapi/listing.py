"""An OpenAPI document in -> a source and its tools out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from openapi_pydantic.v3.v3_1 import SecurityScheme, Server

from langchain_toolrag.catalogue.names import split_words
from langchain_toolrag.catalogue.sources.directory import now
from langchain_toolrag.catalogue.sources.openapi.addresses import has_private_address
from langchain_toolrag.catalogue.sources.openapi.arguments import checked
from langchain_toolrag.catalogue.sources.openapi.document import Node, read_document
from langchain_toolrag.catalogue.sources.openapi.operations import read_operations
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, checked_name
from langchain_toolrag.catalogue.sources.urls import is_url, without_secrets

_SAYS_NOTHING = frozenset(("openapi", "swagger", "api", "apis", "spec", "schema", "index", "docs"))
_TEMPLATE = re.compile(r"\{([^{}]*)\}")
_COOKIE = "Cookie"
_GIVE_BASE_URL = "say where the operations are with --base-url https://..."


def read_openapi(
    location: str | Path, *, name: str | None = None, base_url: str | None = None
) -> Listing:
    """Read an OpenAPI document of version 3.0 or 3.1.

    Args:
        location: A file, or an `http` or `https` URL; JSON or YAML.
        name: What to call the source; None for the file's name, or the document's title where
            that says nothing (`openapi.json`).
        base_url: Where the operations are; None for the first of the document's servers.

    Returns:
        The source and a tool for each operation. Operations that are broken are left out, with
        a warning that names them. `connection` of the source has the credentials that the
        document asks for, each as a `${NAME}` of the environment: `headers`, and `query` where
        a key goes into the URL; and `address_given`, whether the user named a host that may be a
        private one: with `base_url`, or by a document that was read from such a host itself.

    Raises:
        SourceError: If it cannot be read, is something else, does not say where its operations
            are, or has none that can be called; names the place in the document.
    """
    root = read_document(location)
    source = _source_name(name, location, root)
    url = _base_url(base_url, location, root)
    connection = _connection(root, source)
    tools = read_operations(root, source, _credentials(connection), one_server=base_url is not None)
    given = base_url is not None or _is_on_private_host(url, str(location))
    return Listing(
        StoredSource(
            name=source,
            kind="openapi",
            origin=without_secrets(str(location)) if is_url(location) else _absolute(location),
            connection={**connection, "address_given": given},
            base_url=url,
            listed_at=now(),
            tools=len(tools),
        ),
        tools,
    )


def _absolute(location: str | Path) -> str:
    return str(Path(location).resolve())


def _source_name(name: str | None, location: str | Path, root: Node) -> str:
    if name is not None:
        return checked_name(name, root.document)
    info = root.value.get("info")
    title = info.get("title") if isinstance(info, Mapping) else None
    parts = urlsplit(str(location))
    path = parts.path if is_url(location) else str(location)
    for words in (split_words(Path(path).stem), split_words(str(title or "")), _host_words(parts)):
        if not _SAYS_NOTHING.issuperset(words):
            return "-".join(words)
    raise root.fault("nothing in it says what to call it: give it a name with --name")


def _host_words(parts: Any) -> tuple[str, ...]:
    return split_words(parts.hostname or "")


def _base_url(given: str | None, location: str | Path, root: Node) -> str:
    """Return where the operations are, without a slash at the end."""
    url = given if given is not None else _first_server(root)
    if given is None and is_url(location):
        url = urljoin(str(location), url or "/")  # `/` is OpenAPI's default.
    if not url or not is_url(url):
        found = f"the server {url!r} is no whole URL" if url else "it names no server"
        raise root.fault(f"{found}: {_GIVE_BASE_URL}")
    return _checked_url(url, root)


def _checked_url(url: str, root: Node) -> str:
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError as error:
        # Neither the URL nor what is wrong with it: it may have a password in it.
        raise root.fault(f"the server is no URL: {_GIVE_BASE_URL}") from error
    if "@" in parts.netloc or parts.query or parts.fragment or not usable:
        raise root.fault(
            f"the server {without_secrets(url)!r} has a user, a password, a query or a fragment, "
            "or no host; wanted scheme, host and path alone. Credentials go in --header"
        )
    return parts._replace(path=parts.path.rstrip("/")).geturl()


def _first_server(root: Node) -> str:
    listed = root.get("servers")
    if listed is None or not listed.items():
        return ""
    node = listed.at(0)
    server = checked(Server, node)
    values = {name: variable.default for name, variable in (server.variables or {}).items()}
    missing = [name for name in _TEMPLATE.findall(server.url) if name not in values]
    if missing:
        raise node.fault(f"the server's {missing[0]!r} has no default: {_GIVE_BASE_URL}")
    return _TEMPLATE.sub(lambda match: values[match[1]], server.url)


def _is_on_private_host(url: str, location: str) -> bool:
    """Return whether a URL is on the host that the document was read from, and that is private.

    A public host is not trusted to stay one: its name may lead to a private address later.
    """
    host = urlsplit(location).netloc.rpartition("@")[2]
    same = is_url(location) and urlsplit(url).netloc == host
    return same and has_private_address(urlsplit(url).hostname or "")


def _connection(root: Node, source: str) -> dict[str, dict[str, str]]:
    """Return the credentials that the document asks for, by name, never by value."""
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    for name, node in _schemes_in_use(root):
        scheme = checked(SecurityScheme, node, ("flows",))
        variable = f"${{{_variable(source, _credential(name, scheme))}}}"
        if scheme.type == "apiKey" and scheme.name and scheme.security_scheme_in == "query":
            query.setdefault(scheme.name, variable)
        elif scheme.type == "apiKey" and scheme.name and scheme.security_scheme_in == "cookie":
            headers.setdefault(_COOKIE, f"{scheme.name}={variable}")
        elif scheme.type == "apiKey" and scheme.name:
            headers.setdefault(scheme.name, variable)
        elif scheme.type in ("http", "oauth2", "openIdConnect"):
            kind = "Basic" if (scheme.scheme or "").lower() == "basic" else "Bearer"
            headers.setdefault("Authorization", f"{kind} {variable}")
    parts = {"headers": headers, "query": query}
    return {key: names for key, names in parts.items() if names}


def _credential(name: str, scheme: SecurityScheme) -> str:
    """Return what to call a credential: its scheme's name, `TOKEN` for a bearer's."""
    if scheme.type == "apiKey":
        return name
    return "BASIC" if (scheme.scheme or "").lower() == "basic" else "TOKEN"


def _variable(source: str, credential: str) -> str:
    words = "_".join((*split_words(source), *split_words(credential))).upper()
    plain = re.sub(r"[^A-Z0-9_]", "", words)
    return plain if not plain[:1].isdigit() else f"_{plain}"


def _schemes_in_use(root: Node) -> list[tuple[str, Node]]:
    """Return the security schemes of the first way each operation, or the document, offers."""
    components = root.get("components")
    defined = components.get("securitySchemes") if components is not None else None
    if defined is None:
        return []
    used = dict.fromkeys(name for way in _ways_in(root) for name in way)
    return [(name, defined.at(name).followed()) for name in used if name in defined.mapping()]


def _ways_in(root: Node) -> list[Mapping[str, Any]]:
    owners = [root.value]
    for item in root.value["paths"].values():
        owners += item.values() if isinstance(item, Mapping) else []
    listed = (owner.get("security") for owner in owners if isinstance(owner, Mapping))
    asked = (next(filter(None, ways), None) for ways in listed if isinstance(ways, list))
    return [way for way in asked if isinstance(way, Mapping)]


def _credentials(connection: Mapping[str, Mapping[str, str]]) -> set[tuple[str, str]]:
    """Return where credentials go, so that no argument goes there too."""
    headers = connection.get("headers", {})
    return {
        *(("header", name.lower()) for name in headers),
        *(("query", name) for name in connection.get("query", ())),
        *(
            ("cookie", value.partition("=")[0])
            for name, value in headers.items()
            if name == _COOKIE
        ),
    }
