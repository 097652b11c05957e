"""A file or URL of an OpenAPI document in -> its values, each knowing its place, out.

PyYAML parses, `referencing` follows `$ref`, and what is read of the shapes in between is checked
by openapi-pydantic's models (in `arguments`). A document is other people's: it may lie
about its version, refer to what is not there, or contain itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import httpx
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable

from langchain_toolrag.catalogue.sources.openapi.text import parse_text
from langchain_toolrag.catalogue.sources.urls import is_url, without_secrets
from langchain_toolrag.errors import SourceError

_MOST_BYTES = 64 * 1024 * 1024  # The largest public document (Microsoft Graph) has about 40 MB.
_TIMEOUT = 30.0  # Seconds that a server may stay silent.
_LONGEST_CHAIN = 20  # References to references to ...


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a document.

    Attributes:
        value: The value, as JSON has it.
        place: The keys that lead to it, from the document or from the last `$ref`.
        document: The document, for messages.
        resolver: What follows references from where the value stands.
    """

    value: Any
    place: tuple[str, ...]
    document: str
    resolver: Any

    def at(self, key: str | int) -> Node:
        """Return what stands under a key or position that is there."""
        return replace(self, value=self.value[key], place=(*self.place, str(key)))

    def get(self, key: str) -> Node | None:
        """Return what stands under a key of an object; None where nothing does, or null."""
        return self.at(key) if self.mapping().get(key) is not None else None

    def entries(self) -> Iterator[tuple[str, Node]]:
        """Yield the keys and values of an object, in order.

        Yields:
            A key and what stands under it.

        Raises:
            SourceError: If this is not an object.
        """
        for key in self.mapping():
            yield str(key), self.at(key)

    def items(self) -> list[Node]:
        """Return the values of a list.

        Returns:
            The values, in order.

        Raises:
            SourceError: If this is not a list.
        """
        if not isinstance(self.value, list):
            raise self.fault(f"wanted a list, found {self.value!r:.80}")
        return [self.at(position) for position in range(len(self.value))]

    def mapping(self) -> Mapping[str, Any]:
        """Return the value where it is an object.

        Returns:
            The object.

        Raises:
            SourceError: If it is something else.
        """
        if not isinstance(self.value, Mapping):
            raise self.fault(f"wanted an object, found {self.value!r:.80}")
        return self.value

    def referred(self) -> Node:
        """Return what the `$ref` of this object refers to, which may be a reference again.

        Returns:
            The value there.

        Raises:
            SourceError: If nothing is there, or it may not be read.
        """
        reference = self.value["$ref"]
        if not isinstance(reference, str):
            raise self.fault(f"wanted a string as $ref, found {reference!r:.80}")
        try:
            found = self.resolver.lookup(reference)
        except Unresolvable as error:
            raise self.fault(f"$ref {reference!r} {_reason(error)}") from error
        return replace(self, value=found.contents, resolver=found.resolver, place=(reference,))

    def followed(self) -> Node:
        """Return this object, or what it refers to in the end.

        Returns:
            An object without `$ref`.

        Raises:
            SourceError: If it is none, nothing is there, or references lead round in a circle.
        """
        node = self
        for _ in range(_LONGEST_CHAIN):
            if "$ref" not in node.mapping():
                return node
            node = node.referred()
        raise self.fault("its $ref leads to another $ref without end")

    def fault(self, problem: str) -> SourceError:
        """Return an error that names the document and the place in it."""
        place = " > ".join(self.place)
        return SourceError(self.document, f"at {place}: {problem}" if place else problem)


def read_document(location: str | Path) -> Node:
    """Read an OpenAPI document.

    Args:
        location: A file, or an `http` or `https` URL; JSON or YAML.

    Returns:
        Its root. References to files resolve if they stay in the file's folder; none of a
        document from a URL leaves it.

    Raises:
        SourceError: If it cannot be read, or is not an OpenAPI document of version 3.0 or 3.1.
    """
    if is_url(location):
        uri, text = str(location), _fetched(str(location))
        shown = without_secrets(uri)
    else:
        path = Path(location)
        uri, text, shown = path.resolve().as_uri(), _file_text(path, str(path)), str(path)
    content = parse_text(text, shown)
    resource = Resource.opaque(content)
    # mypy does not see the alias that attrs gives the field `_retrieve`.
    registry: Registry[Any] = Registry(retrieve=_neighbours(uri))  # type: ignore[call-arg]
    registry = registry.with_resource(uri, resource)
    root = Node(content, (), shown, registry.resolver(base_uri=uri))
    _check_version(root)
    return root


def _check_version(root: Node) -> None:
    wanted = "wanted an OpenAPI document of version 3.0 or 3.1"
    if not isinstance(root.value, Mapping):
        raise root.fault(f"found {root.value!r:.80}, {wanted}")
    if "swagger" in root.value:
        raise root.fault(
            f"found Swagger {root.value['swagger']}, {wanted}. Convert it first, for example with "
            "https://converter.swagger.io or the npm package swagger2openapi"
        )
    version = root.value.get("openapi")
    if not isinstance(version, (str, float)) or not re.match(r"3\.[01](\.|$)", str(version)):
        raise root.fault(f"found openapi: {version!r}, {wanted}")
    paths = root.get("paths")
    if paths is None or not paths.mapping():
        raise root.fault("it has no paths, so there are no operations to be tools")


def _neighbours(uri: str) -> Any:
    """Return what reads a file that a document refers to, if it may be read at all."""
    folder = Path(url2pathname(urlsplit(uri).path)).parent if uri.startswith("file:") else None

    @cache
    def retrieve(other: str) -> Resource[Any]:
        if folder is None or urlsplit(other).scheme != "file":
            raise SourceError(other, "references to the web are not followed: put it in one file")
        path = Path(url2pathname(urlsplit(other).path)).resolve()
        if not path.is_relative_to(folder):
            raise SourceError(unquote(other), f"it is outside {folder}, so it is not read")
        return Resource.opaque(parse_text(_file_text(path, str(path)), str(path)))

    return retrieve


def _reason(error: BaseException | None) -> str:
    """Find what `retrieve` said under what `referencing` made of it."""
    while error is not None and not isinstance(error, SourceError):
        error = error.__cause__
    return "leads nowhere in the document" if error is None else f"cannot be followed: {error}"


def _file_text(path: Path, shown: str) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(shown, f"not UTF-8: {error.reason}") from error
    except OSError as error:
        raise SourceError(shown, f"cannot be read: {error.strerror}") from error


def _fetched(url: str) -> str:
    shown = without_secrets(url)
    try:
        with httpx.stream("GET", url, timeout=_TIMEOUT, follow_redirects=False) as response:
            _check_response(response, shown)
            return _body(response, shown).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(shown, f"not UTF-8: {error.reason}") from error
    # The last is what a name makes that no host can have, such as `a..b`.
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        raise SourceError(shown, f"cannot be fetched: {type(error).__name__}") from error


def _check_response(response: httpx.Response, shown: str) -> None:
    if response.is_redirect:
        target = without_secrets(response.headers.get("location", ""))
        raise SourceError(shown, f"it redirects to {target}: give that URL instead")
    if not response.is_success:
        raise SourceError(shown, f"cannot be fetched: HTTP {response.status_code}")


def _body(response: httpx.Response, shown: str) -> bytes:
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise SourceError(shown, f"it has more than {_MOST_BYTES // 2**20} MB: fetch it first")
    return bytes(body)
