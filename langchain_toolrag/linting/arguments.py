"""JSON schema of a tool's arguments in -> every argument with its path and depth out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_MAX_NODES = 2_000
_COMPOSITIONS = ("allOf", "anyOf", "oneOf", "prefixItems")
_NESTED = ("items", "additionalProperties")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a tool, or a field of one.

    Attributes:
        path: Its names from the outermost on, joined by dots.
        depth: 1 for an argument, one more for each object it is inside of.
        schema: What its schema says; a boolean or worse says nothing, and is empty here.
    """

    path: str
    depth: int
    schema: Mapping[str, Any]


def arguments_of(schema: Mapping[str, Any]) -> Iterator[Argument]:
    """Yield the arguments of a schema without references, outermost first; 2,000 at most.

    Args:
        schema: A JSON schema; `properties` and the like may be of any type.

    Yields:
        The arguments; those of alternatives (`anyOf`) one after the other.
    """
    queue: deque[Argument] = deque([Argument("", 0, schema)])
    for _ in range(_MAX_NODES):
        if not queue:
            return
        node = queue.popleft()
        for name, inner in _mapping(node.schema.get("properties")).items():
            path = f"{node.path}.{name}" if node.path else str(name)
            argument = Argument(path, node.depth + 1, _mapping(inner))
            yield argument
            queue.append(argument)
        parts = (_parts(node.schema.get(key)) for key in _COMPOSITIONS)
        inside = [part for some in parts for part in some]
        inside += [node.schema[key] for key in _NESTED if key in node.schema]
        queue += [Argument(node.path, node.depth, _mapping(part)) for part in inside]


def _parts(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
