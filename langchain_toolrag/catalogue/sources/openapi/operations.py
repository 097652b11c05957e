"""The operations of an OpenAPI document in -> stored tools out."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from openapi_pydantic.v3.v3_1 import Operation

from langchain_toolrag.catalogue.document import tool_id
from langchain_toolrag.catalogue.names import split_words
from langchain_toolrag.catalogue.sources.openapi.arguments import checked, read_arguments
from langchain_toolrag.catalogue.sources.openapi.document import Node
from langchain_toolrag.catalogue.sources.openapi.request import READING_METHODS
from langchain_toolrag.catalogue.sources.stored import StoredTool
from langchain_toolrag.errors import SourceError

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_IDEMPOTENT = ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE")
_SHAPES_READ_ELSEWHERE = ("parameters", "requestBody", "responses", "callbacks", "externalDocs")
_LINE_ENDS = re.compile(r"\s*[\r\n]\s*")
_NO_NAME = re.compile(r"[\s\x00-\x1f\x7f]+")

logger = logging.getLogger("langchain_toolrag.catalogue.sources.openapi")


@dataclass(frozen=True, slots=True)
class Placed:
    """An operation and where it stands.

    Attributes:
        method: Its method, in capitals.
        path: Its path.
        node: The operation itself.
        item: The path item around it.
    """

    method: str
    path: str
    node: Node
    item: Node

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def read_operations(
    root: Node, source: str, credentials: Collection[tuple[str, str]], *, one_server: bool
) -> list[StoredTool]:
    """Read the operations of a document.

    Args:
        root: The document.
        source: The name of the source.
        credentials: Where credentials go, as (`header` or `query` or `cookie`, name).
        one_server: Whether all operations are on one server, whatever the document says.

    Returns:
        A tool for each operation, in the order of the document. One that is broken is left out,
        with a warning that names it.

    Raises:
        SourceError: If there are none, or all are broken.
    """
    faults: list[SourceError] = []
    operations = list(_operations(root, faults))
    names = _Names(operations)
    tools: list[StoredTool] = []
    for operation in operations:
        try:
            tools.append(_tool(operation, source, names, credentials, one_server))
        except SourceError as fault:
            logger.warning("%s is left out of %s: %s", operation, source, fault)
            faults.append(fault)
    if not tools:
        raise faults[0] if faults else root.fault("its paths have no operations to be tools")
    return tools


def _operations(root: Node, faults: list[SourceError]) -> Iterator[Placed]:
    for path, node in root.at("paths").entries():
        if not path.startswith("/"):  # An extension (`x-...`), or nothing that could be called.
            continue
        try:
            item = node.followed()
        except SourceError as fault:
            logger.warning("%s is left out: %s", path, fault)
            faults.append(fault)
            continue
        for method in item.value:
            if method in _METHODS:
                yield Placed(method.upper(), path, item.at(method), item)


class _Names:
    """Names of operations: what the document calls them, else their method and path."""

    def __init__(self, operations: Collection[Placed]) -> None:
        given = (_operation_id(operation) for operation in operations)
        self._given = {name for name in given if name}
        self._taken: dict[str, Placed] = {}

    def take(self, operation: Placed) -> str:
        """Return the operation's name, which no other has.

        Args:
            operation: The operation.

        Returns:
            Its name.

        Raises:
            SourceError: If it has the `operationId` of an earlier one.
        """
        name = _operation_id(operation)
        if name in self._taken:
            raise operation.node.fault(
                f"its operationId {name!r} is that of {self._taken[name]} too; wanted one for each"
            )
        name = name or self._derived(operation)
        self._taken[name] = operation
        return name

    def _derived(self, operation: Placed) -> str:
        stem = name = _name_of_path(operation)
        count = 1
        while name in self._taken or name in self._given:
            count += 1
            name = f"{stem}_{count}"
        return name


def _operation_id(operation: Placed) -> str:
    value = operation.node.value
    given = value.get("operationId") if isinstance(value, Mapping) else None
    return _NO_NAME.sub("_", given.strip()) if isinstance(given, str) else ""


def _name_of_path(operation: Placed) -> str:
    """Return words of method and path: `get_pets_by_id` for `GET /pets/{id}`."""
    words = [operation.method.lower()]
    for part in operation.path.replace("{", " {").split("/"):
        for piece in part.split():
            words += ["by"] if piece.startswith("{") else []
            words += split_words(piece)
    return "_".join(words)


def _tool(
    placed: Placed,
    source: str,
    names: _Names,
    credentials: Collection[tuple[str, str]],
    one_server: bool,
) -> StoredTool:
    operation = checked(Operation, placed.node, _SHAPES_READ_ELSEWHERE)
    name = names.take(placed)
    _check_callable(placed, one_server)
    try:
        arguments = read_arguments(placed.node, placed.item, placed.path, credentials)
    except RecursionError as error:
        raise placed.node.fault("its schemas are nested too deeply to be read") from error
    return StoredTool(
        id=tool_id(name, source),
        source=source,
        kind="openapi",
        name=name,
        description=_description(operation, placed.item),
        parameters=arguments.parameters,
        annotations=_annotations(placed.method, operation.summary),
        tags=tuple(dict.fromkeys(operation.tags or ())),
        call={
            "method": placed.method,
            "path": placed.path,
            "arguments": arguments.places,
            **({"body": arguments.body} if arguments.body else {}),
        },
    )


def _check_callable(placed: Placed, one_server: bool) -> None:
    if "?" in placed.path or "#" in placed.path:
        raise placed.node.fault("its path has a query or fragment; wanted those as parameters")
    own = placed.node.get("servers") or placed.item.get("servers")
    if own is None or not own.value or one_server:
        return
    url = own.items()[0].mapping().get("url")
    raise own.fault(
        f"it is on a server of its own, {url!r}, and calls of a source stay on one. Read the "
        "document once more under another name, with --base-url"
    )


def _description(operation: Operation, item: Node) -> str:
    """Return what the document says of an operation: its summary, then its description."""
    summary = _LINE_ENDS.sub(" ", operation.summary or item.value.get("summary") or "").strip()
    text = (operation.description or item.value.get("description") or "").strip()
    if summary and not text.startswith(summary):
        end = "" if summary.endswith((".", "!", "?", ":")) else "."
        text = f"{summary}{end} {text}".strip() if text else summary
    return f"Deprecated. {text}".strip() if operation.deprecated else text


def _annotations(method: str, summary: str | None) -> dict[str, Any]:
    """Return what the method says of an operation, in MCP's words."""
    reads = method in (*READING_METHODS, "OPTIONS", "TRACE")
    return {
        **({"title": summary.strip()} if summary and summary.strip() else {}),
        "readOnlyHint": reads,
        "destructiveHint": method in ("DELETE", "PUT", "PATCH"),
        "idempotentHint": method in _IDEMPOTENT,
        "openWorldHint": True,
    }
