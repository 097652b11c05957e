"""The parameters and request body of an operation in -> a tool's arguments out.

Every argument stands in one object, for that is how models call: parameters first, then what the
body has. `call` of the stored tool says where each goes:

    {"method": "POST", "path": "/pets/{petId}",
     "arguments": {"petId": {"in": "path"},
                   "filter_name": {"in": "query", "name": "filter[name]", "style": "deepObject"},
                   "photo": {"in": "body", "binary": True}},
     "body": {"type": "multipart/form-data", "required": True}}

`name` is left out where it is the argument's own, `style` and `explode` where they are OpenAPI's
defaults. `{"in": "body", "whole": True}` is the body itself rather than one property of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from openapi_pydantic.v3.v3_1 import Encoding, Parameter, RequestBody
from pydantic import BaseModel, ValidationError

from langchain_toolrag.catalogue.sources.json_files import first_fault
from langchain_toolrag.catalogue.sources.openapi.document import Node
from langchain_toolrag.catalogue.sources.openapi.media import (
    FORM,
    MULTIPART,
    bare_type,
    best_media_type,
    is_json,
    is_text,
)
from langchain_toolrag.catalogue.sources.openapi.schema import (
    BINARY,
    Schema,
    SchemaReader,
    without_read_only,
)

MOST_CHARACTERS = 10_000
"""Longest JSON schema of a tool's arguments that is read in all its depth; about 2,500 tokens."""

_MOST_DEPTH = 8
_LONGEST_NAME = 64
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_.-]+")  # Providers refuse a tool with such an argument.
_STYLES = {
    "path": ("simple",),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
# OpenAPI says to ignore the first three; the others are the connection's own.
_IGNORED_HEADERS = frozenset(
    (
        *("accept", "content-type", "authorization", "host", "cookie", "connection", "expect"),
        *("content-length", "transfer-encoding", "proxy-authorization", "upgrade", "te", "trailer"),
    )
)
# An object with one of these is more than its properties, so it stays in one piece.
_MORE_THAN_PROPERTIES = (
    *("anyOf", "oneOf", "allOf", "not", "if", "patternProperties", "dependentSchemas"),
)

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a tool takes and where it goes.

    Attributes:
        parameters: JSON schema of the arguments, an object's.
        places: Where each argument goes, by its name.
        body: `type` and `required` of the request body; empty for none.
    """

    parameters: Schema
    places: Mapping[str, Mapping[str, Any]]
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Given:
    """A parameter, or the whole body, as the document has it."""

    name: str
    schema: Node | None
    required: bool
    place: Mapping[str, Any]
    description: str = ""
    deprecated: bool = False


@dataclass(frozen=True, slots=True)
class _Body:
    media_type: str
    whole: _Given
    encodings: Mapping[str, Mapping[str, Any]]


@dataclass(slots=True)
class _Arguments:
    """Arguments that are being put together."""

    properties: dict[str, Schema] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    places: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def add(self, name: str, schema: Schema, *, required: bool, place: Mapping[str, Any]) -> None:
        wire = {} if place.get("whole") else {"name": name}
        argument = self._free(argument_name(name), str(place["in"]))
        self.properties[argument] = schema
        self.places[argument] = {**place, **(wire if argument != name else {})}
        if required:
            self.required.append(argument)

    def _free(self, name: str, where: str) -> str:
        free = name if name not in self.properties else f"{where}_{name}"[:_LONGEST_NAME]
        count = 2
        while free in self.properties:
            free, count = f"{where}_{name[: _LONGEST_NAME - 16]}_{count}", count + 1
        return free


def argument_name(name: str) -> str:
    """Return a parameter's name as the providers take it: 1-64 of `a-z A-Z 0-9 _ . -`."""
    return _NOT_IN_NAMES.sub("_", name).strip("_")[:_LONGEST_NAME] or "argument"


def checked(model: type[Model], node: Node, leaving: Collection[str] = ()) -> Model:
    """Check an object of a document.

    Args:
        model: What it should be.
        node: The object.
        leaving: Keys that are not looked at.

    Returns:
        The object as the model.

    Raises:
        SourceError: If it is something else; says what and where.
    """
    given = {key: value for key, value in node.mapping().items() if key not in leaving}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise node.fault(first_fault(error)) from error


def read_arguments(
    operation: Node, item: Node, path: str, credentials: Collection[tuple[str, str]]
) -> Arguments:
    """Read what an operation takes, as deep as fits into `MOST_CHARACTERS`.

    Nesting is followed eight levels down, and less where that would be too long: then the
    deepest level goes first, and of what it held the type and the description stay. Where even
    the arguments by themselves are too long, they lose their descriptions and examples.

    Args:
        operation: The operation.
        item: The path item around it, whose parameters it takes too.
        path: The path, with `{name}` where a parameter goes.
        credentials: Where credentials go, as (`header` or `query` or `cookie`, name): what a
            model has no business to fill in.

    Returns:
        The arguments. A name in the path that no parameter has is a string.

    Raises:
        SourceError: If a part of it is broken.
    """
    given = _parameters(operation, item, path, credentials)
    body = _body(operation)
    best, reader = _at_depth(given, body, 0)
    if _length(best) > MOST_CHARACTERS:
        return _bare(best)
    for depth in range(1, _MOST_DEPTH + 1):
        if not reader.cut:
            break
        deeper, reader = _at_depth(given, body, depth)
        if reader.full or _length(deeper) > MOST_CHARACTERS:
            break
        best = deeper
    return best


def _at_depth(
    given: list[_Given], body: _Body | None, depth: int
) -> tuple[Arguments, SchemaReader]:
    """Read the arguments down to a depth; the reader knows whether that is all there is."""
    reader, found = SchemaReader(), _Arguments()
    for one in given:
        schema = _described(reader, one, depth)
        found.add(one.name, schema, required=one.required, place=one.place)
    if body is not None:
        _add_body(found, body, _described(reader, body.whole, depth + 1))
    parameters: Schema = {
        "type": "object",
        "properties": found.properties,
        **({"required": found.required} if found.required else {}),
        "additionalProperties": False,
    }
    told = {} if body is None else {"type": body.media_type, "required": body.whole.required}
    return Arguments(parameters, found.places, told), reader


def _length(arguments: Arguments) -> int:
    return len(json.dumps(arguments.parameters, default=str))


def _bare(arguments: Arguments) -> Arguments:
    kept = ("type", "enum", "format", "contentEncoding")
    properties = {
        name: {key: schema[key] for key in kept if key in schema}
        for name, schema in arguments.parameters["properties"].items()
    }
    parameters = {**arguments.parameters, "properties": properties}
    return Arguments(parameters, arguments.places, arguments.body)


def _described(reader: SchemaReader, given: _Given, depth: int) -> Schema:
    """Read an argument's schema, with what the parameter itself says of it."""
    schema = without_read_only(reader.read(given.schema, depth)) if given.schema else {}
    if given.description:
        schema = {**schema, "description": given.description}
    return {**schema, "deprecated": True} if given.deprecated else schema


def _add_body(found: _Arguments, body: _Body, schema: Schema) -> None:
    properties = schema.get("properties") if _is_plain_object(schema) else None
    form = body.media_type in (FORM, MULTIPART)
    clash = not form and any(argument_name(name) in found.properties for name in properties or ())
    if not properties or clash:
        name = "request_body" if "body" in found.properties else "body"
        place = {**body.whole.place, **_binary(schema)}
        found.add(name, schema, required=body.whole.required, place=place)
        return
    wanted = schema.get("required", ()) if body.whole.required else ()
    for name, one in properties.items():
        place = {"in": "body", **body.encodings.get(name, {}), **_binary(one)}
        found.add(name, one, required=name in wanted, place=place)


def _is_plain_object(schema: Schema) -> bool:
    """Return whether an object is its properties and nothing else."""
    kind = schema.get("type", "object")
    return (
        (kind == "object" or (isinstance(kind, list) and "object" in kind))
        and not any(key in schema for key in _MORE_THAN_PROPERTIES)
        and schema.get("additionalProperties", False) is False
    )


def _binary(schema: Schema) -> dict[str, Any]:
    """Mark what is sent as bytes: a file, or each of a list of files."""
    items = schema.get("items")
    one = items if isinstance(items, dict) else schema
    return {"binary": True} if one.get("format") == BINARY else {}


def _parameters(
    operation: Node, item: Node, path: str, credentials: Collection[tuple[str, str]]
) -> list[_Given]:
    """Return the parameters: the path item's, replaced by the operation's of the same name."""
    found: dict[tuple[str, str], _Given] = {}
    for owner in (item, operation):
        listed = owner.get("parameters")
        for node in listed.items() if listed else ():
            given = _parameter(node.followed())
            where = str(given.place["in"])
            key = (where, given.name.lower() if where == "header" else given.name)
            if key in credentials or _is_ignored(where, given.name, path):
                continue
            found[where, given.name] = given
    for name in re.findall(r"\{([^{}]+)\}", path):
        found.setdefault(("path", name), _path_parameter(name, operation))
    return list(found.values())


def _path_parameter(name: str, operation: Node) -> _Given:
    schema = Node({"type": "string"}, operation.place, operation.document, operation.resolver)
    return _Given(name, schema, required=True, place={"in": "path"})


def _is_ignored(where: str, name: str, path: str) -> bool:
    if where == "header":
        return name.lower() in _IGNORED_HEADERS
    return where == "path" and f"{{{name}}}" not in path


def _parameter(node: Node) -> _Given:
    parameter = checked(Parameter, node, ("schema", "content", "example", "examples"))
    where = parameter.param_in.value
    place: dict[str, Any] = {"in": where}
    schema, content = node.get("schema"), node.get("content")
    if schema is None and content is not None:
        media = next((media for _, media in content.entries()), None)
        schema = media.get("schema") if media is not None else None
        place["json"] = True  # The value is written as one JSON text.
    else:
        place.update(_style(parameter, where, node))
    return _Given(
        name=parameter.name,
        schema=schema,
        required=parameter.required or where == "path",
        place=place,
        description=(parameter.description or "").strip(),
        deprecated=parameter.deprecated,
    )


def _style(given: Parameter | Encoding, where: str, node: Node) -> dict[str, Any]:
    """Return style and explode where they differ from what OpenAPI says goes without saying."""
    default = _STYLES[where][0]
    style = given.style or default
    if style not in _STYLES[where]:
        raise node.fault(
            f"style {style!r} in the {where} is not supported; wanted one of "
            f"{', '.join(_STYLES[where])}"
        )
    place: dict[str, Any] = {} if style == default else {"style": style}
    if given.explode is not None and given.explode != (style == "form"):
        place["explode"] = given.explode
    return place


def _body(operation: Node) -> _Body | None:
    found = operation.get("requestBody")
    if found is None:
        return None
    node = found.followed()
    body = checked(RequestBody, Node({**node.mapping(), "content": {}}, *_rest(node)))
    content = node.get("content")
    if content is None or not content.mapping():
        return None
    media_type = best_media_type(list(content.value))
    media = content.at(media_type)
    whole = _Given(
        name="body",
        schema=_body_schema(media, media_type),
        required=body.required,
        place={"in": "body", "whole": True},
        description=(body.description or "").strip(),
    )
    return _Body(bare_type(media_type), whole, _encodings(media))


def _rest(node: Node) -> tuple[tuple[str, ...], str, Any]:
    return node.place, node.document, node.resolver


def _body_schema(media: Node, media_type: str) -> Node | None:
    """Return the schema of a body; one that is neither JSON nor a form is a string."""
    if is_json(media_type) or bare_type(media_type) in (FORM, MULTIPART):
        return media.get("schema")
    kind = {"type": "string", **({} if is_text(media_type) else {"format": BINARY})}
    return Node(kind, *_rest(media))


def _encodings(media: Node) -> dict[str, Mapping[str, Any]]:
    listed = media.get("encoding")
    found: dict[str, Mapping[str, Any]] = {}
    for name, node in listed.entries() if listed else ():
        encoding = checked(Encoding, node, ("headers",))
        found[name] = _style(encoding, "query", node)
    return found
