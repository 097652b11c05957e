"""JSON schema of a tool's arguments in -> the words in it out.

Schemas come from other people's servers: `properties` may be missing or null, a `$ref` may
dangle or lead back to itself, and the root may be an array or a bare reference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_MAX_DEPTH = 6
_MAX_NODES = 2_000
_MAX_DIGITS = 8  # Of a position in a list; Python refuses to read numbers of thousands.
_COMPOSITIONS = ("allOf", "anyOf", "oneOf", "prefixItems")
_NESTED = ("items", "additionalProperties", "not", "if", "then", "else")
_MAPPING = (dict, Mapping)  # Asked in this order: of an abstract class it takes much longer.
_COMPOUND = frozenset(("$ref", *_COMPOSITIONS))
_WITH_MORE = frozenset(("properties", *_NESTED))
_WORDY = frozenset(("properties", "enum", "const"))


@dataclass(frozen=True, slots=True)
class ArgumentWords:
    """The words in a schema; each tuple without repeats, in the order of the schema.

    Attributes:
        names: Argument names, outermost level first.
        values: The strings of enums and constants.
        descriptions: What the schema says of the arguments.
    """

    names: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    descriptions: tuple[str, ...] = ()


def argument_words(schema: object) -> ArgumentWords:
    """Return the words a schema's arguments can be found by.

    Args:
        schema: A JSON schema; anything that is not a mapping has no arguments.

    Returns:
        Names, values and descriptions. Defaults, titles and examples are not words to be found
        by, and the schema's own description is most often the tool's once more.
    """
    names: dict[str, None] = {}
    values: dict[str, None] = {}
    descriptions: dict[str, None] = {}
    for depth, node in _nodes(schema):
        if not _WORDY.isdisjoint(node):  # Most nodes are leaves: a type and a description.
            names.update(dict.fromkeys(map(str, _named(node))))
            values.update(dict.fromkeys(_values(node)))
        text = node.get("description") if depth else None
        if isinstance(text, str) and text.strip():
            descriptions[text] = None
    return ArgumentWords(tuple(names), tuple(values), tuple(descriptions))


def _nodes(schema: object) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Walk the schema breadth-first, with the depth: outer names come before inner ones."""
    level: list[object] = [schema]
    seen: set[int] = set()
    for depth in range(_MAX_DEPTH):
        following: list[object] = []
        for node in _flat(level, schema, seen):
            yield depth, node
            if not _WITH_MORE.isdisjoint(node):
                following += _named(node).values()
                following += [node[key] for key in _NESTED if key in node]
        if not following:
            return
        level = following


def _flat(level: list[object], root: object, seen: set[int]) -> Iterator[Mapping[str, Any]]:
    """Yield the level's schemas and those that they are composed of, each once."""
    queue = deque(level[:_MAX_NODES])
    while queue and len(seen) < _MAX_NODES:
        node = queue.popleft()
        if not isinstance(node, _MAPPING) or id(node) in seen:
            continue
        seen.add(id(node))
        if not _COMPOUND.isdisjoint(node):
            queue += _composed_of(node, root)
        yield node


def _composed_of(node: Mapping[str, Any], root: object) -> Iterator[object]:
    if "$ref" in node:
        yield _resolve(node["$ref"], root)
    for key in _COMPOSITIONS:
        parts = node.get(key)
        yield from parts[:_MAX_NODES] if isinstance(parts, list) else ()


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


def _named(node: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = node.get("properties")
    return properties if properties and isinstance(properties, _MAPPING) else {}


def _values(node: Mapping[str, Any]) -> list[str]:
    listed, constant = node.get("enum"), node.get("const")
    values = listed if isinstance(listed, list) else ()
    return [value for value in (*values, constant) if isinstance(value, str)]
