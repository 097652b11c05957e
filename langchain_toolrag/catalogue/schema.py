"""JSON schema of a tool's arguments in -> the words in it out.

Schemas come from other people's servers: `properties` may be missing or null, a `$ref` may
dangle or lead back to itself, and the root may be an array or a bare reference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_MAX_DEPTH = 6
_MAX_NODES = 2_000
_MAX_DIGITS = 8  # Of a position in a list; Python refuses to read numbers of thousands.
_COMPOSITIONS = ("allOf", "anyOf", "oneOf", "prefixItems")
_NESTED = ("items", "additionalProperties", "not", "if", "then", "else")


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
    levels = list(_levels(schema))
    arguments = (node for level in levels[1:] for node in level)
    return ArgumentWords(
        names=_distinct(str(name) for level in levels for node in level for name in _named(node)),
        values=_distinct(value for level in levels for node in level for value in _values(node)),
        descriptions=_distinct(text for node in arguments for text in _description(node)),
    )


def _levels(schema: object) -> Iterator[list[Mapping[str, Any]]]:
    """Walk the schema breadth-first: outer names come before inner ones."""
    level: list[object] = [schema]
    seen: set[int] = set()
    for _ in range(_MAX_DEPTH):
        nodes = list(_flat(level, schema, seen))
        yield nodes
        level = []
        for node in nodes:
            level += _named(node).values()
            level += (node[key] for key in _NESTED if key in node)


def _distinct(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))


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


def _named(node: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = node.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _description(node: Mapping[str, Any]) -> list[str]:
    text = node.get("description")
    return [text] if isinstance(text, str) and text.strip() else []


def _values(node: Mapping[str, Any]) -> list[str]:
    listed = node.get("enum")
    values = list(listed) if isinstance(listed, list) else []
    return [value for value in [*values, node.get("const")] if isinstance(value, str)]
