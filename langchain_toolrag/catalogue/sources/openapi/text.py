"""JSON or YAML in -> values as JSON has them out.

YAML is read by the rules of its version 1.2, as OpenAPI asks: `NO` is a country and not false,
`2020-01-01` is a string, and every key is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import yaml

from langchain_toolrag.errors import SourceError

_MOST_VALUES = (
    20_000_000  # Once aliases are written out; the largest public document has 2 million.
)
_JSON_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str", "seq", "map")
)
_KEPT_TAGS = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")
# What a plain word must look like to be more than text, and what it can begin with.
_RULES_1_2 = (
    ("tag:yaml.org,2002:bool", "(true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("tag:yaml.org,2002:int", r"-?(0|[1-9][0-9]*)$", "-0123456789"),
    ("tag:yaml.org,2002:float", r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$", "-0123456789"),
)


def parse_text(text: str, source: str) -> Any:
    """Parse a text.

    Args:
        text: JSON or YAML.
        source: Where it comes from, for messages.

    Returns:
        Its value.

    Raises:
        SourceError: If it is neither; names the line at fault.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as fault:
        return _as_yaml(text, source, fault)
    # Too many digits, or too deeply nested.
    except (ValueError, RecursionError) as error:
        raise SourceError(source, f"cannot be read: {error}") from error


def _as_yaml(text: str, source: str, fault: json.JSONDecodeError) -> Any:
    """Read what is not JSON; if it is not YAML either, its first character says what was meant."""
    try:
        value = _yaml(text)
        _check_aliases(value)
        return value
    except yaml.YAMLError as error:
        if text.lstrip()[:1] == "{":
            raise SourceError(source, f"not JSON: {fault.msg}", line=fault.lineno) from fault
        raise _yaml_fault(error, source) from error
    except (ValueError, RecursionError) as error:
        raise SourceError(source, f"cannot be read: {error}") from error


def _yaml(text: str) -> Any:
    loader = _loader_class()(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _loader_class() -> Any:
    """Return PyYAML's safe loader, the fast one where it is built, with the rules of YAML 1.2."""
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers: dict[str, list[Any]] = {
        first: [rule for rule in rules if rule[0] in _KEPT_TAGS]
        for first, rules in base.yaml_implicit_resolvers.items()
    }
    for tag, pattern, firsts in _RULES_1_2:
        for first in firsts:
            resolvers.setdefault(first, []).append((tag, re.compile(pattern)))
    # Not `!!binary`, `!!set` and the like, which make what JSON does not have.
    constructors = {
        tag: construct
        for tag, construct in base.yaml_constructors.items()
        if tag is None or tag in _JSON_TAGS
    }
    members = {
        "yaml_implicit_resolvers": resolvers,
        "yaml_constructors": constructors,
        "construct_mapping": _mapping,
    }
    return type("OpenApiLoader", (base,), members)


def _mapping(loader: Any, node: yaml.MappingNode, deep: bool = False) -> dict[str, Any]:
    """Construct a mapping whose keys are the text that stands there (`200:` is "200")."""
    loader.flatten_mapping(node)
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem="wanted text as a key", problem_mark=key.start_mark)
    return {key.value: loader.construct_object(value, deep=deep) for key, value in node.value}


def _check_aliases(value: Any) -> None:
    """Refuse what aliases (`*name`) make endless, or so large that nobody could write it out."""
    counts: dict[int, int] = {}

    def count(one: Any) -> int:
        if not isinstance(one, (dict, list)):
            return 1
        if id(one) not in counts:
            counts[id(one)] = _MOST_VALUES  # What it is for as long as it holds itself.
            within: Iterable[Any] = one.values() if isinstance(one, dict) else one
            counts[id(one)] = 1 + sum(map(count, within))
        return counts[id(one)]

    if count(value) > _MOST_VALUES:
        raise ValueError("its aliases (*name) make it endless, or too large to be read")


def _yaml_fault(error: yaml.YAMLError, source: str) -> SourceError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    line = None if mark is None else mark.line + 1
    return SourceError(source, f"not JSON and not YAML: {problem}", line=line)
