"""Tools in -> a catalogue that finds them by id and by the name they are bound under."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_toolrag.catalogue.document import document_of, is_definition, openai_definition
from langchain_toolrag.catalogue.names import bound_name, hashed_name
from langchain_toolrag.errors import DuplicateToolError
from langchain_toolrag.types import Tool, ToolDocument, ToolId, Tools

logger = logging.getLogger(__name__)

OnDuplicate: TypeAlias = Literal["raise", "prefix"]
"""What to do with two tools of one bound name: raise, or put the servers in front."""

_CHARS_PER_TOKEN = 4.0  # langchain_core's count_tokens_approximately uses the same.


@dataclass(frozen=True, slots=True)
class Entry:
    """One tool of a catalogue.

    Attributes:
        document: What is indexed of it.
        tool: The object that went in.
        bound: What is bound: the same object, or a copy under the bound name.
        runnable: The tool to run for a call of it; None for a definition.
        tokens: Approximate tokens of its definition.
    """

    document: ToolDocument
    tool: Tool
    bound: Tool
    runnable: BaseTool | None
    tokens: int


@dataclass(frozen=True, slots=True)
class Catalogue:
    """An immutable set of tools.

    Attributes:
        entries: The tools by id, in the order they came.
        passed_through: Provider tools (dicts such as a web search): never searched, always bound.
        rejected: Why a tool is left out, by id: its schema cannot be given to a model.
        digest: Names the content of the documents; equal in every process.
    """

    entries: Mapping[ToolId, Entry] = field(default_factory=dict)
    passed_through: tuple[Tool, ...] = ()
    rejected: Mapping[ToolId, str] = field(default_factory=dict)
    digest: str = ""
    _by_name: Mapping[str, ToolId] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    @property
    def documents(self) -> tuple[ToolDocument, ...]:
        """The tool documents, in order."""
        return tuple(entry.document for entry in self)

    @property
    def tokens(self) -> int:
        """Approximate tokens of the entries' definitions together."""
        return sum(entry.tokens for entry in self)

    def id_of(self, name: str) -> ToolId | None:
        """Return the id of the tool bound under a name, or else of the only one so named."""
        return self._by_name.get(name)


def build_catalogue(tools: Tools, *, on_duplicate: OnDuplicate = "raise") -> Catalogue:
    """Read tools into a catalogue.

    The same object twice counts once. A tool whose schema cannot be given to a model (a `$ref`
    that leads nowhere) is left out, with a warning that names it, so that it does not take
    the other tools down with it.

    Args:
        tools: LangChain tools, functions, definitions and provider tools.
        on_duplicate: What to do with two tools of one bound name.

    Returns:
        The catalogue, in the order of the tools.

    Raises:
        DuplicateToolError: If two tools have one id, or one bound name under `"raise"`.
        InvalidToolError: If something is not a tool.
    """
    passed_through: dict[int, Tool] = {}
    read: dict[ToolId, tuple[ToolDocument, Tool]] = {}
    for tool in tools:
        if _is_providers_own(tool):
            passed_through[id(tool)] = tool
            continue
        document = document_of(tool)
        known = read.get(document.id)
        if known is None:
            read[document.id] = (document, tool)
        elif known[1] is not tool:
            raise DuplicateToolError(document.id, (known[0].origin, document.origin))
    accepted, rejected = _bindable(read)
    return _named(accepted, tuple(passed_through.values()), rejected, on_duplicate)


def approximate_tokens(tool: Tool) -> int:
    """Return the approximate tokens of one definition, counted as langchain_core does.

    Raises:
        Exception: If the definition cannot be written as a schema; of any kind.
    """
    definition = tool if _is_providers_own(tool) else convert_to_openai_tool(tool)
    return math.ceil(len(json.dumps(definition)) / _CHARS_PER_TOKEN)


def _is_providers_own(tool: Tool) -> bool:
    return isinstance(tool, dict) and not is_definition(tool)


def _bindable(
    read: Mapping[ToolId, tuple[ToolDocument, Tool]],
) -> tuple[list[tuple[ToolDocument, Tool, int]], dict[ToolId, str]]:
    accepted: list[tuple[ToolDocument, Tool, int]] = []
    rejected: dict[ToolId, str] = {}
    for identity, (document, tool) in read.items():
        try:
            accepted.append((document, tool, approximate_tokens(tool)))
        # Whatever langchain_core raises here it would raise in bind_tools, in the middle of
        # a conversation and for all tools at once.
        except Exception as error:
            rejected[identity] = f"{type(error).__name__}: {error}"
            logger.warning("tool %r is left out, its schema is broken: %s", identity, error)
    return accepted, rejected


def _named(
    accepted: Iterable[tuple[ToolDocument, Tool, int]],
    passed_through: tuple[Tool, ...],
    rejected: Mapping[ToolId, str],
    on_duplicate: OnDuplicate,
) -> Catalogue:
    accepted = list(accepted)
    names = _bound_names([document for document, _, _ in accepted], on_duplicate)
    entries: dict[ToolId, Entry] = {}
    for (document, tool, tokens), name in zip(accepted, names, strict=True):
        named = dataclasses.replace(document, bound_name=name)
        bound = _under_name(tool, named)
        entries[document.id] = Entry(named, tool, bound, _runnable(bound, named), tokens)
    return Catalogue(
        MappingProxyType(entries),
        passed_through,
        MappingProxyType(dict(rejected)),
        _digest(entry.document for entry in entries.values()),
        _lookup(entries),
    )


def _bound_names(documents: list[ToolDocument], on_duplicate: OnDuplicate) -> list[str]:
    """Give every document a bound name of its own.

    A tool that bears its bound name already keeps it; one that was mapped to it (`a.b` to
    `a__b`) takes the hashed form instead. Two that both bear it are a duplicate.
    """
    natural = _count(document.bound_name for document in documents if _bears_it(document))
    mapped = _count(document.bound_name for document in documents)
    names: list[str] = []
    for document in documents:
        name = document.bound_name
        if natural.get(name, 0) > 1 and _bears_it(document):
            name = _prefixed(document, documents, on_duplicate)
        elif mapped[name] > 1 and not _bears_it(document):
            name = hashed_name(document.id)
        names.append(name)
    _raise_on_clash(documents, names)
    return names


def _prefixed(
    document: ToolDocument, documents: list[ToolDocument], on_duplicate: OnDuplicate
) -> str:
    if on_duplicate == "raise":
        twins = [other for other in documents if other.bound_name == document.bound_name]
        raise DuplicateToolError(document.name, [twin.origin for twin in twins])
    return bound_name(f"{document.server}_{document.name}") if document.server else document.name


def _raise_on_clash(documents: list[ToolDocument], names: list[str]) -> None:
    first: dict[str, ToolDocument] = {}
    for document, name in zip(documents, names, strict=True):
        if name in first:
            raise DuplicateToolError(name, (first[name].origin, document.origin))
        first[name] = document


def _bears_it(document: ToolDocument) -> bool:
    return document.bound_name == document.name


def _count(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


def _under_name(tool: Tool, document: ToolDocument) -> Tool:
    """Return the tool under its bound name; the user's own object is never renamed."""
    if isinstance(tool, dict) and "function" not in tool:
        return openai_definition(tool, document.bound_name)  # bind_tools drops MCP's inputSchema.
    if document.bound_name == document.name:
        return tool
    if isinstance(tool, BaseTool):
        return tool.model_copy(update={"name": document.bound_name})
    if isinstance(tool, dict):
        return openai_definition(tool, document.bound_name)
    return StructuredTool.from_function(
        tool, name=document.bound_name, description=document.description
    )


def _runnable(bound: Tool, document: ToolDocument) -> BaseTool | None:
    if isinstance(bound, (dict, type)):
        return None
    if isinstance(bound, BaseTool):
        return bound
    return StructuredTool.from_function(
        bound, name=document.bound_name, description=document.description
    )


def _digest(documents: Iterable[ToolDocument]) -> str:
    digest = hashlib.sha256()
    for document in documents:
        fields = asdict(document) | {"tags": sorted(document.tags), "origin": ""}
        digest.update(json.dumps(fields, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def _lookup(entries: Mapping[ToolId, Entry]) -> Mapping[str, ToolId]:
    """Map bound names to ids, and own names where only one tool has them."""
    own = _count(entry.document.name for entry in entries.values())
    lookup = {
        entry.document.name: identity
        for identity, entry in entries.items()
        if own[entry.document.name] == 1
    }
    lookup.update({entry.document.bound_name: identity for identity, entry in entries.items()})
    return MappingProxyType(lookup)
