"""JSON schema of a tool's arguments in -> the words in it out.

Schemas come from other people's servers: `properties` may be missing or null, a `$ref` may
dangle or lead back to itself, and the root may be an array or a bare reference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

_MAX_DEPTH = 6
_MAX_NODES = 2_000
_MAX_DIGITS = 8  # Of a position in a list; Python refuses to read numbers of thousands.
_COMPOSITIONS = ("allOf", "anyOf", "oneOf", "prefixItems")
_NESTED = ("items", "additionalProperties", "not", "if", "then", "else")


def argument_words(schema: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names and the enumerated values of a schema's arguments.

    Args:
        schema: A JSON schema; anything that is not a mapping has no arguments.

    Returns:
        Argument names, outermost level first, and the strings of enums and constants;
        each without repeats, in the order of the schema. Defaults, titles and examples are
        not words to be found by.
    """
    names: dict[str, None] = {}
    values: dict[str, None] = {}
    for found_names, found_values in _levels(schema):
        names.update(dict.fromkeys(found_names))
        values.update(dict.fromkeys(found_values))
    return tuple(names), tuple(values)


def _levels(schema: object) -> Iterator[tuple[list[str], list[str]]]:
    """Walk the schema breadth-first: outer names come before inner ones."""
    level: list[object] = [schema]
    seen: set[int] = set()
    for _ in range(_MAX_DEPTH):
        following: list[object] = []
        for node in _flat(level, schema, seen):
            properties = _mapping(node.get("properties"))
            yield [str(name) for name in properties], _values(node)
            following += properties.values()
            following += (node[key] for key in _NESTED if key in node)
        level = following


def _flat(level: list[object], root: object, seen: set[int]) -> Iterator[Mapping[str, Any]]:
    """Yield the level's schemas and those that they are composed of, each once."""
    queue = deque(level[:_MAX_NODES])
    while queue and len(seen) < _MAX_NODES:
        node = queue.popleft()
        if not isinstance(node, Mapping) or id(node) in seen:
            continue
        seen.add(id(node))
        if "$ref" in node:
            queue.append(_resolve(node["$ref"], root))
        for key in _COMPOSITIONS:
            parts = node.get(key)
            queue += parts[:_MAX_NODES] if isinstance(parts, list) else []
        yield node


def _resolve(reference: object, root: object) -> object:
    """Follow a local JSON pointer; None where it leads nowhere or out of the document."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    node = root
    for part in reference[1:].strip("/").split("/") if reference != "#" else ():
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping):
            node = node.get(key)
        elif isinstance(node, list) and _is_position(key) and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node


def _is_position(key: str) -> bool:
    return key.isascii() and key.isdecimal() and len(key) < _MAX_DIGITS


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _values(node: Mapping[str, Any]) -> list[str]:
    listed = node.get("enum")
    values = list(listed) if isinstance(listed, list) else []
    return [value for value in [*values, node.get("const")] if isinstance(value, str)]
