"""Argument schemas in -> what a model will not fill in rightly out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_core.utils.json_schema import dereference_refs

from langchain_toolrag.catalogue.catalogue import Entry, approximate_tokens
from langchain_toolrag.catalogue.names import split_words
from langchain_toolrag.index.analysis import terms
from langchain_toolrag.linting.arguments import Argument, arguments_of
from langchain_toolrag.linting.finding import Finding, listed
from langchain_toolrag.types import ToolDocument

_MAX_VALUES = 50
_MAX_DEPTH = 4
_MAX_TOKENS = 1_000
_MANY_UNDESCRIBED = 4

# What gives an argument a type, if only by the values it may take.
_TYPED = ("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "properties", "items")
# What explains an argument that is not described.
_EXPLAINED = ("description", "enum", "const", "default", "format", "examples")

_SAYS_NOTHING = re.compile(r"[a-z]|(arg|field|param|parameter|val|value|var|variable)\d*|[a-z]\d+")
_COORDINATES = {"x", "y", "z"}
# Names that say something beside others, and nothing alone.
_LONELY_WORDS = """
    args arguments body config content data dict info input inputs item items json kwargs
    obj object option options params parameters payload req request values
"""
_NOTHING_ALONE = frozenset(_LONELY_WORDS.split())


@dataclass(frozen=True, slots=True)
class _Schema:
    """What the rules look at: one tool's schema, references followed."""

    document: ToolDocument
    definition: dict[str, Any]
    root: Mapping[str, Any]
    arguments: tuple[Argument, ...]

    @property
    def outermost(self) -> list[Argument]:
        """The arguments themselves, without the fields of objects."""
        return [argument for argument in self.arguments if argument.depth == 1]


def schema_troubles(entries: Iterable[Entry]) -> Iterator[Finding]:
    """Yield what is wrong with the schemas of tools; each rule at most once a tool.

    Args:
        entries: Tools of a catalogue.

    Yields:
        Findings, tool by tool.
    """
    for entry in entries:
        schema = _schema(entry)
        for rule in _RULES:
            finding = rule(schema)
            if finding is not None:
                yield finding


def _schema(entry: Entry) -> _Schema:
    definition = convert_to_openai_tool(entry.bound)
    parameters = definition["function"]["parameters"]
    root = dereference_refs(parameters) if isinstance(parameters, dict) else {}
    return _Schema(entry.document, definition, root, tuple(arguments_of(root)))


def _not_object(schema: _Schema) -> Finding | None:
    kind = schema.root.get("type")
    if kind == "object":
        return None
    found = f"has type {kind!r}" if "type" in schema.root else "has no type"
    return Finding(
        "schema-not-object",
        schema.document.id,
        f"the top of the schema {found}; providers take an object",
        'set "type": "object" at the top and put the arguments into its "properties"',
    )


def _required(schema: _Schema) -> Finding | None:
    required = schema.root.get("required")
    if not isinstance(required, list):
        return None
    there = {argument.path for argument in schema.outermost}
    missing = [str(name) for name in required if str(name) not in there]
    if not missing:
        return None
    return Finding(
        "schema-required",
        schema.document.id,
        f'"required" names {listed(missing)}, which "properties" does not have',
        'define it in "properties" or take it out of "required": a model cannot give it',
    )


def _untyped(schema: _Schema) -> Finding | None:
    untyped = [
        argument.path
        for argument in schema.arguments
        if not any(key in argument.schema for key in _TYPED)
    ]
    if not untyped:
        return None
    return Finding(
        "schema-untyped",
        schema.document.id,
        f"no type is given for {listed(untyped)}",
        'give each a "type", or annotate the function\'s arguments',
    )


def _undescribed(schema: _Schema) -> Finding | None:
    """Find arguments that nothing explains: no description, and no word of the tool's text."""
    said = set(terms(f"{schema.document.name} {schema.document.description}"))
    bare = [
        argument.path
        for argument in schema.outermost
        if not _is_explained(argument) and not set(terms(argument.path)) <= said
    ]
    if len(bare) < _MANY_UNDESCRIBED or 2 * len(bare) <= len(schema.outermost):
        return None
    return Finding(
        "schema-undescribed",
        schema.document.id,
        f"nothing explains {listed(bare)}",
        "describe each argument: what it means, its format, an example",
    )


def _vague_parameter(schema: _Schema) -> Finding | None:
    names = [argument.path for argument in schema.outermost]
    vague = [
        argument.path
        for argument in schema.outermost
        if not _is_explained(argument) and _is_vague(argument.path, names)
    ]
    if not vague:
        return None
    return Finding(
        "schema-vague-parameter",
        schema.document.id,
        f"nothing says what to give for {listed(vague)}",
        "name the argument for what it holds, such as city or invoice_id, or describe it",
    )


def _long_enum(schema: _Schema) -> Finding | None:
    long = [
        (argument.path, len(values))
        for argument in schema.arguments
        if isinstance(values := argument.schema.get("enum"), list) and len(values) > _MAX_VALUES
    ]
    if not long:
        return None
    path, count = long[0]
    return Finding(
        "schema-long-enum",
        schema.document.id,
        f"{path} lists {count} values, more than {_MAX_VALUES}; every request pays for them",
        "take a free string with the format and a few examples in its description",
    )


def _deep(schema: _Schema) -> Finding | None:
    deepest = max(schema.arguments, key=lambda argument: argument.depth, default=None)
    if deepest is None or deepest.depth <= _MAX_DEPTH:
        return None
    return Finding(
        "schema-deep",
        schema.document.id,
        f"{deepest.path} is {deepest.depth} levels deep, more than {_MAX_DEPTH}",
        "flatten the arguments, or split the tool: models fill deep objects in wrongly",
    )


def _large(schema: _Schema) -> Finding | None:
    bare = {**schema.definition["function"], "description": ""}
    tokens = approximate_tokens({"type": "function", "function": bare})
    if tokens <= _MAX_TOKENS:
        return None
    return Finding(
        "schema-large",
        schema.document.id,
        f"the schema takes about {tokens:,} tokens, more than {_MAX_TOKENS:,}",
        "take out arguments that are hardly used and shorten descriptions, or split the tool",
    )


def _is_explained(argument: Argument) -> bool:
    is_flag = argument.schema.get("type") == "boolean"
    return is_flag or any(argument.schema.get(key) for key in _EXPLAINED)


def _is_vague(name: str, names: Sequence[str]) -> bool:
    words = split_words(name)
    if len(words) != 1:
        return not words
    if words[0] in _COORDINATES and len(_COORDINATES.intersection(names)) > 1:
        return False
    alone = len(names) == 1 and words[0] in _NOTHING_ALONE
    return alone or _SAYS_NOTHING.fullmatch(words[0]) is not None


_RULES: tuple[Callable[[_Schema], Finding | None], ...] = (
    _not_object,
    _required,
    _untyped,
    _undescribed,
    _vague_parameter,
    _long_enum,
    _deep,
    _large,
)
