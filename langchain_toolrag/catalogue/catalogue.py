"""Tools in -> a catalogue that finds them by id and by the name they are bound under."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_core.utils.json_schema import dereference_refs

from langchain_toolrag.catalogue.document import (
    document_of,
    is_providers_own,
    openai_definition,
)
from langchain_toolrag.catalogue.names import bound_name, hashed_name
from langchain_toolrag.errors import DuplicateToolError
from langchain_toolrag.types import Tool, ToolDocument, ToolId, Tools

logger = logging.getLogger(__name__)

_DIGESTED = sorted(each.name for each in fields(ToolDocument) if each.compare)

OnDuplicate: TypeAlias = Literal["raise", "prefix"]
"""What to do with two tools of one bound name: raise, or put the servers in front."""


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
        originals: Everything that was given, rejected and provider tools included.
        bound: What is bound for each tool, by id.
        tokens: Approximate tokens of the entries' definitions together.
    """

    entries: Mapping[ToolId, Entry] = field(default_factory=dict)
    passed_through: tuple[dict[str, Any], ...] = ()
    rejected: Mapping[ToolId, str] = field(default_factory=dict)
    digest: str = ""
    originals: tuple[Tool, ...] = ()
    _by_name: Mapping[str, ToolId] = field(default_factory=dict)
    _sharing: Mapping[str, tuple[ToolId, ...]] = field(default_factory=dict)
    bound: Mapping[ToolId, Tool] = field(default_factory=dict)
    tokens: int = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    @property
    def documents(self) -> tuple[ToolDocument, ...]:
        """The tool documents, in order."""
        return tuple(entry.document for entry in self)

    def id_of(self, name: str) -> ToolId | None:
        """Return the id of the tool of that id, or bound under that name, or alone so named."""
        return self._by_name.get(name)

    def called(self, name: str) -> tuple[ToolId, ...]:
        """Return the ids of the tools that a call of this name may have meant.

        One for a name that is known; all that bear it where several do and are bound under others,
        as in a history from before that was so; none for any other.
        """
        known = self._by_name.get(name)
        return (known,) if known is not None else self._sharing.get(name, ())


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
    passed_through: dict[int, dict[str, Any]] = {}
    read: dict[ToolId, tuple[ToolDocument, Tool]] = {}
    for tool in tools:
        if isinstance(tool, dict) and is_providers_own(tool):
            passed_through[id(tool)] = tool
            continue
        document = document_of(tool)
        known = read.get(document.id)
        if known is None:
            read[document.id] = (document, tool)
        elif known[1] is not tool:
            raise DuplicateToolError(document.id, (known[0].origin, document.origin))
    taken = {str(tool.get("name") or "") for tool in passed_through.values()} - {""}
    names = _bound_names([document for document, _ in read.values()], taken, on_duplicate)
    entries, rejected = _entries(read, names)
    return Catalogue(
        MappingProxyType(entries),
        tuple(passed_through.values()),
        MappingProxyType(rejected),
        _digest(entry.document for entry in entries.values()),
        (*passed_through.values(), *(tool for _, tool in read.values())),
        _lookup(entries),
        _sharing(entries),
        MappingProxyType({identity: entry.bound for identity, entry in entries.items()}),
        sum(entry.tokens for entry in entries.values()),
    )


def approximate_tokens(tool: Tool) -> int:
    """Return the approximate tokens of one definition, counted by langchain_core.

    Args:
        tool: Any tool that langchain_core can write as a schema.

    Returns:
        An estimate, not the count of any model's tokenizer.

    Raises:
        Exception: If the definition cannot be written as a schema; of any kind.
    """
    counted = tool if isinstance(tool, (BaseTool, dict)) else convert_to_openai_tool(tool)
    return count_tokens_approximately([], tools=[counted])


def _entries(
    read: Mapping[ToolId, tuple[ToolDocument, Tool]], names: Mapping[ToolId, str]
) -> tuple[dict[ToolId, Entry], dict[ToolId, str]]:
    """Return the entries, and why the other tools cannot be given to a model."""
    entries: dict[ToolId, Entry] = {}
    rejected: dict[ToolId, str] = {}
    for identity, (document, tool) in read.items():
        try:
            entries[identity] = _entry(replace(document, bound_name=names[identity]), tool)
        # Whatever langchain_core raises here it would raise in bind_tools, in the middle of
        # a conversation and for all tools at once.
        except Exception as error:
            rejected[identity] = f"{type(error).__name__}: {error}"
            logger.warning("tool %r is left out, its schema is broken: %s", identity, error)
    return entries, rejected


def _entry(document: ToolDocument, tool: Tool) -> Entry:
    bound = _under_name(tool, document)
    definition = convert_to_openai_tool(bound)
    dereference_refs(definition["function"]["parameters"])  # Those of dicts are left as they are.
    return Entry(document, tool, bound, _runnable(bound, document), approximate_tokens(bound))


def _bound_names(
    documents: Sequence[ToolDocument], taken: set[str], on_duplicate: OnDuplicate
) -> dict[ToolId, str]:
    """Give every document a bound name of its own, none that a provider tool has taken.

    A tool that bears its bound name already keeps it; one that was mapped to it (`a.b` to
    `a__b`) takes the hashed form instead. Under `"raise"`, two tools of one name are a
    DuplicateToolError.
    """
    twins = _by(documents, lambda document: document.name)
    names: dict[ToolId, str] = {}
    for document in documents:
        origins = [twin.origin for twin in twins[document.name]]
        origins += ["a provider's own tool"] if document.name in taken else []
        if len(origins) > 1 and on_duplicate == "raise":
            raise DuplicateToolError(document.name, origins)
        needs_prefix = len(origins) > 1 and document.server is not None
        own = f"{document.server}_{document.name}" if needs_prefix else document.name
        names[document.id] = bound_name(own)
    for name, claimants in _by(documents, lambda document: names[document.id]).items():
        for document in claimants if len(claimants) > 1 or name in taken else ():
            if document.name != name or name in taken:
                names[document.id] = hashed_name(document.id)
    return names


def _by(
    documents: Iterable[ToolDocument], key: Callable[[ToolDocument], str]
) -> dict[str, list[ToolDocument]]:
    groups: dict[str, list[ToolDocument]] = {}
    for document in documents:
        groups.setdefault(key(document), []).append(document)
    return groups


def _under_name(tool: Tool, document: ToolDocument) -> Tool:
    """Return the tool under its bound name; the user's own object is never renamed."""
    if isinstance(tool, dict):
        return openai_definition(tool, document.bound_name)
    if document.bound_name == document.name:
        return tool
    if isinstance(tool, BaseTool):
        return tool.model_copy(update={"name": document.bound_name})
    if isinstance(tool, type):
        return openai_definition(convert_to_openai_tool(tool), document.bound_name)
    return _structured(tool, document)


def _structured(function: Callable[..., Any], document: ToolDocument) -> StructuredTool:
    """Return a function as a tool under its bound name."""
    is_async = inspect.iscoroutinefunction(function)
    return StructuredTool.from_function(
        func=None if is_async else function,
        coroutine=function if is_async else None,
        name=document.bound_name,
        description=document.description or " ".join(document.words),
    )


def _runnable(bound: Tool, document: ToolDocument) -> BaseTool | None:
    """Return the tool to run; a definition, or a class that stands for one, has none."""
    if isinstance(bound, (dict, type)):
        return None
    return bound if isinstance(bound, BaseTool) else _structured(bound, document)


def _digest(documents: Iterable[ToolDocument]) -> str:
    digest = hashlib.sha256()
    for document in documents:
        content = {name: getattr(document, name) for name in _DIGESTED}
        content["tags"] = sorted(document.tags)
        digest.update(json.dumps(content).encode())
    return digest.hexdigest()[:16]


def _sharing(entries: Mapping[ToolId, Entry]) -> dict[str, tuple[ToolId, ...]]:
    """Return the ids of the tools of one own name, by the names that several have."""
    bearers = _by([entry.document for entry in entries.values()], lambda document: document.name)
    return {
        name: tuple(document.id for document in same)
        for name, same in bearers.items()
        if len(same) > 1
    }


def _lookup(entries: Mapping[ToolId, Entry]) -> Mapping[str, ToolId]:
    """Map ids and bound names to ids, and own names where only one tool has them."""
    documents = [entry.document for entry in entries.values()]
    twins = _by(documents, lambda document: document.name)
    lookup = {name: same[0].id for name, same in twins.items() if len(same) == 1}
    lookup.update((document.bound_name, document.id) for document in documents)
    lookup.update((document.id, document.id) for document in documents)
    return MappingProxyType(lookup)
