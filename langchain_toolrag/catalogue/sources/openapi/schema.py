"""A schema of an OpenAPI document in -> one JSON schema that stands alone out.

References are put in place, cycles are cut, `allOf` is merged where that says the same, and what
OpenAPI 3.0 says in its own way (`nullable`, `exclusiveMinimum: true`, `example`,
`format: binary`) is said as JSON schema says it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from langchain_toolrag.catalogue.sources.openapi.document import Node
from langchain_toolrag.catalogue.sources.openapi.media import is_json, is_text

Schema = dict[str, Any]

BINARY = "binary"
"""The format of what is sent as bytes, though a model writes it in base64."""

_NAMED = ("properties", "patternProperties", "dependentSchemas")
_SINGLE = (
    "items",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "propertyNames",
    "contains",
    "not",
    "if",
    "then",
    "else",
)
_LISTED = ("anyOf", "oneOf", "prefixItems")
_NESTED = frozenset((*_NAMED, *_SINGLE, *_LISTED, "allOf"))
# Said of the document rather than of the argument, or said in another way below.
_LEFT_OUT = frozenset(
    (
        *("$ref", "$schema", "$id", "$anchor", "$defs", "$comment", "definitions"),
        *("$dynamicRef", "$dynamicAnchor", "$vocabulary"),
        *("discriminator", "xml", "externalDocs", "nullable", "example", "examples"),
    )
)
_ANNOTATIONS = frozenset(
    ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly")
)
_LONGEST_EXAMPLE = 200  # Characters as JSON: an example of a whole object says little for its size.
_MOST_NODES = 4_000  # Schemas in one tool; with no end to it, references grow exponentially.


class SchemaReader:
    """Reads the schemas of one tool, down to a depth.

    Attributes:
        cut: Whether something below the depth was left out.
        full: Whether the tool had too many schemas: what was read after that is empty.
    """

    def __init__(self) -> None:
        self.cut = False
        self.full = False
        self._nodes = 0

    def read(self, node: Node, depth: int, above: tuple[int, ...] = ()) -> Schema:
        """Read one schema.

        Args:
            node: The schema.
            depth: How many levels of properties and items below it are read; with 0 an object
                is `{"type": "object"}`.
            above: Identities of the schemas around it; one that comes again is a cycle, of which
                the description stays.

        Returns:
            A JSON schema without references.

        Raises:
            SourceError: If it is no schema, or a reference in it leads nowhere.
        """
        if isinstance(node.value, bool):
            return {} if node.value else {"not": {}}
        value = node.mapping()
        if id(value) in above:
            return {key: value[key] for key in ("description",) if key in value}
        self._nodes += 1
        self.full = self.full or (self._nodes > _MOST_NODES and depth > 0)
        if self.full:
            return {}
        above = (*above, id(value))
        parts = [self.read(part, depth, above) for part in _parts(node)]
        own = {**_keywords(value), **self._nested(node, depth, above)}
        whole = merged([*parts, own])
        if whole is None:
            whole = {**own, "allOf": parts}
        return _nullable(whole) if value.get("nullable") is True else whole

    def _nested(self, node: Node, depth: int, above: tuple[int, ...]) -> Schema:
        """Read what stands below a schema: nothing at depth 0."""
        present = [key for key in node.value if key in _NESTED and key != "allOf"]
        nested: Schema = {}
        for key in present:
            read = self._below(node.at(key), key, depth - 1, above) if depth else None
            self.cut = self.cut or depth == 0
            if read is not None:
                nested[key] = read
        required = node.value.get("required")
        if isinstance(required, list) and (depth or "properties" not in node.value):
            nested["required"] = required
        return nested

    def _below(self, node: Node, key: str, depth: int, above: tuple[int, ...]) -> Any:
        if key in _NAMED:
            return {name: self.read(child, depth, above) for name, child in node.entries()}
        if key in _LISTED:
            return [self.read(child, depth, above) for child in node.items()]
        return node.value if isinstance(node.value, bool) else self.read(node, depth, above)


def merged(parts: Iterable[Schema]) -> Schema | None:
    """Merge schemas that must all hold into one.

    Args:
        parts: The schemas; of what only describes, the later one's word counts.

    Returns:
        One schema that says the same; None if they disagree in a way that needs `allOf`.
    """
    whole: Schema = {}
    for part in parts:
        for key, value in part.items():
            if key not in whole or whole[key] == value or key in _ANNOTATIONS:
                whole[key] = value
            elif key == "required":
                whole[key] = list(dict.fromkeys([*whole[key], *value]))
            elif key == "properties" and (both := _merged_properties(whole[key], value)):
                whole[key] = both
            else:
                return None
    return whole


def _merged_properties(first: Schema, second: Schema) -> Schema | None:
    both = dict(first)
    for name, schema in second.items():
        joined = merged([both[name], schema]) if name in both else schema
        if joined is None:
            return None
        both[name] = joined
    return both


def without_read_only(schema: Schema) -> Schema:
    """Return a schema without the properties that only answers have.

    Args:
        schema: What `SchemaReader.read` returned.

    Returns:
        The schema of a request; read-only properties are neither in it nor required.
    """
    kept: Schema = {}
    for key, value in schema.items():
        if key == "properties":
            kept[key] = {
                name: without_read_only(child)
                for name, child in value.items()
                if child.get("readOnly") is not True
            }
        elif key in _NESTED and isinstance(value, dict):
            kept[key] = without_read_only(value)
        elif key in _NESTED and isinstance(value, list):
            kept[key] = [without_read_only(one) for one in value]
        else:
            kept[key] = value
    answered = schema.get("properties", {}).keys() - kept.get("properties", {}).keys()
    if answered and "required" in kept:
        kept["required"] = [name for name in kept["required"] if name not in answered]
    return kept


def _parts(node: Node) -> list[Node]:
    """Return the schemas that must hold besides a schema's own words."""
    parts = [node.referred()] if "$ref" in node.value else []
    listed = node.get("allOf")
    return parts + (listed.items() if listed else [])


def _keywords(value: Mapping[str, Any]) -> Schema:
    """Return what a schema says of itself, in JSON schema's words."""
    kept = {
        key: said
        for key, said in value.items()
        if key not in _NESTED and key not in _LEFT_OUT and not key.startswith("x-")
    }
    kept.pop("required", None)  # A boolean in old documents; the list comes with the properties.
    if examples := _examples(value):
        kept["examples"] = examples
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(kept.get(exclusive), bool) and kept.pop(exclusive) and bound in kept:
            kept[exclusive] = kept.pop(bound)
    return _with_encoding(kept)


def _with_encoding(kept: Schema) -> Schema:
    """Say of bytes that a model writes them in base64.

    `format: binary`, and in OpenAPI 3.1 a media type without an encoding, are sent as bytes in the
    end and keep (or get) that format; `format: byte` is sent in base64.
    """
    bytes_of = kept.get("contentMediaType")
    if kept.get("type") != "string" or "contentEncoding" in kept:
        return kept
    if isinstance(bytes_of, str) and not is_text(bytes_of) and not is_json(bytes_of):
        kept["format"] = BINARY
    if kept.get("format") == BINARY:
        kept["contentEncoding"] = "base64"
    elif kept.get("format") == "byte":
        del kept["format"]
        kept["contentEncoding"] = "base64"
    return kept


def _examples(value: Mapping[str, Any]) -> list[Any]:
    listed = value.get("examples")
    examples = listed if isinstance(listed, list) else []
    if not examples and "example" in value:
        examples = [value["example"]]
    return [one for one in examples if len(json.dumps(one, default=str)) <= _LONGEST_EXAMPLE]


def _nullable(schema: Schema) -> Schema:
    kind = schema.get("type")
    if isinstance(kind, str):
        kind = [kind]
    if isinstance(kind, list):
        changed = {**schema, "type": list(dict.fromkeys([*kind, "null"]))}
        if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
            changed["enum"] = [*schema["enum"], None]
        return changed
    said = {key: value for key, value in schema.items() if key in _ANNOTATIONS}
    rest = {key: value for key, value in schema.items() if key not in _ANNOTATIONS}
    return {**said, "anyOf": [rest, {"type": "null"}]} if rest else schema
