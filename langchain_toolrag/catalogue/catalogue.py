"""Tools in -> a catalogue that finds them by id and by the name they are bound under."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_core.utils.json_schema import dereference_refs

from langchain_toolrag.catalogue.bound_names import (
    OnDuplicate,
    claimed,
    give_names,
    wanted_name,
)
from langchain_toolrag.catalogue.bound_tools import runnable_of, under_name
from langchain_toolrag.catalogue.content import content_of
from langchain_toolrag.catalogue.document import (
    document_of,
    identify,
    is_providers_own,
)
from langchain_toolrag.errors import DuplicateToolError
from langchain_toolrag.types import Tool, ToolDocument, ToolId, Tools

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_content = attrgetter(*sorted(each.name for each in fields(ToolDocument) if each.compare))
_as_json = json.JSONEncoder(default=sorted).encode  # Of sets: the tags.


def _none() -> MappingProxyType[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Entry:
    """One tool of a catalogue.

    Attributes:
        document: What is indexed of it.
        tool: The object that went in.
        bound: What is bound: the same object, or a copy under the bound name.
        runnable: The tool to run for a call of it; None for a definition.
        tokens: Approximate tokens of its definition.
        digest: Names the content of the document; equal in every process.
        key: Names what was read of the tool; see `Content`.
    """

    document: ToolDocument
    tool: Tool
    bound: Tool
    runnable: BaseTool | None
    tokens: int
    digest: bytes
    key: bytes | None


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

    entries: MappingProxyType[ToolId, Entry] = field(default_factory=_none)
    passed_through: tuple[dict[str, Any], ...] = ()
    rejected: MappingProxyType[ToolId, str] = field(default_factory=_none)
    digest: str = ""
    originals: tuple[Tool, ...] = ()
    bound: MappingProxyType[ToolId, Tool] = field(default_factory=_none)
    tokens: int = 0
    _by_name: MappingProxyType[str, ToolId] = field(default_factory=_none)
    _sharing: Mapping[str, tuple[ToolId, ...]] = field(default_factory=_none)
    _claims: MappingProxyType[str, int] = field(default_factory=_none)

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

    def is_current(self, tool: Tool) -> bool:
        """Return whether an entry is of this very object, which has not changed since."""
        entry = self.entries.get(identify(tool))
        if entry is None or entry.tool is not tool or entry.key is None:
            return False
        return entry.key == content_of(tool).key


class _Read(NamedTuple):
    """A tool that was read; `known` is the entry of another catalogue with the same content."""

    document: ToolDocument
    tool: Tool
    key: bytes | None
    may_refer: bool
    known: Entry | None


def build_catalogue(
    tools: Tools, *, on_duplicate: OnDuplicate = "raise", known: Catalogue | None = None
) -> Catalogue:
    """Read tools into a catalogue.

    The same object twice counts once. A tool whose schema cannot be given to a model (a `$ref`
    that leads nowhere) is left out, with a warning that names it, so that it does not take
    the other tools down with it.

    Args:
        tools: LangChain tools, functions, definitions and provider tools.
        on_duplicate: What to do with two tools of one bound name.
        known: A catalogue that may have most of them, which is quicker: what was made of a tool
            is taken from it where the content is the same. The result is the same without.

    Returns:
        The catalogue, in the order of the tools.

    Raises:
        DuplicateToolError: If two tools have one id, or one bound name under `"raise"`.
        InvalidToolError: If something is not a tool.
    """
    passed_through, read = _read(tools, known or Catalogue())
    taken = {str(tool.get("name") or "") for tool in passed_through} - {""}
    documents = [each.document for each in read.values()]
    names = give_names(documents, taken, on_duplicate)
    entries, rejected = _entries(read, names.by_id)
    return Catalogue(
        entries=MappingProxyType(entries),
        passed_through=passed_through,
        rejected=MappingProxyType(rejected),
        digest=_digest(entries.values()),
        originals=(*passed_through, *(each.tool for each in read.values())),
        bound=_bound(entries),
        tokens=_tokens(entries),
        _by_name=_lookup(entries),
        _sharing=_sharing(entries),
        _claims=MappingProxyType(names.claims),
    )


def extended(
    catalogue: Catalogue, tools: Tools, *, on_duplicate: OnDuplicate = "raise"
) -> Catalogue:
    """Return a catalogue with more tools.

    Where no name of theirs has to do with one that is there, they alone are read, and what is
    there stays as it is. It is all read again otherwise.

    Args:
        catalogue: A catalogue.
        tools: The tools to add.
        on_duplicate: What to do with two tools of one bound name.

    Returns:
        What `build_catalogue` makes of the tools of the catalogue and these.

    Raises:
        DuplicateToolError: If two tools have one id, or one bound name under `"raise"`.
        InvalidToolError: If something is not a tool.
    """
    if not tools:
        return catalogue
    read = _apart(tools, catalogue, on_duplicate)
    if not read:
        together = (*catalogue.originals, *tools)
        return build_catalogue(together, on_duplicate=on_duplicate, known=catalogue)
    names = {each.document.id: each.document.bound_name for each in read.values()}
    new, rejected = _entries(read, names)
    entries = catalogue.entries | new
    claims = chain.from_iterable(claimed(each.document, on_duplicate) for each in read.values())
    return replace(
        catalogue,
        entries=MappingProxyType(entries),
        rejected=MappingProxyType(catalogue.rejected | rejected),
        digest=_digest(entries.values()),
        originals=(*catalogue.originals, *(each.tool for each in read.values())),
        bound=MappingProxyType(catalogue.bound | _bound(new)),
        tokens=catalogue.tokens + _tokens(new),
        _by_name=MappingProxyType(catalogue._by_name | _lookup(new)),
        _claims=MappingProxyType(catalogue._claims | dict.fromkeys(claims, 1)),
    )


def reduced(
    catalogue: Catalogue, ids: Collection[ToolId], *, on_duplicate: OnDuplicate = "raise"
) -> Catalogue:
    """Return a catalogue without some tools.

    Where no name of theirs has to do with another tool, none is read; all are otherwise.

    Args:
        catalogue: A catalogue.
        ids: Ids of entries.
        on_duplicate: What to do with two tools of one bound name.

    Returns:
        What `build_catalogue` makes of the other tools of the catalogue.

    Raises:
        DuplicateToolError: If two of those have one id or name, having changed since.
        InvalidToolError: If one is not a tool any more.
    """
    leaving = [catalogue.entries[identity] for identity in ids]
    gone = {id(entry.tool) for entry in leaving}
    originals = tuple(tool for tool in catalogue.originals if id(tool) not in gone)
    claims = set().union(*(claimed(entry.document, on_duplicate) for entry in leaving))
    if any(catalogue._claims.get(name) != 1 for name in claims):
        return build_catalogue(originals, on_duplicate=on_duplicate, known=catalogue)
    entries = _without(catalogue.entries, ids)
    return replace(
        catalogue,
        entries=MappingProxyType(entries),
        digest=_digest(entries.values()),
        originals=originals,
        bound=MappingProxyType(_without(catalogue.bound, ids)),
        tokens=catalogue.tokens - sum(entry.tokens for entry in leaving),
        _by_name=MappingProxyType(_without(catalogue._by_name, claims)),
        _claims=MappingProxyType(_without(catalogue._claims, claims)),
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


def _read(tools: Tools, known: Catalogue) -> tuple[tuple[dict[str, Any], ...], dict[ToolId, _Read]]:
    """Return the provider tools and what was read of the others, each object once."""
    entries = {entry.key: entry for entry in known if entry.key is not None}
    passed_through: dict[int, dict[str, Any]] = {}
    read: dict[ToolId, _Read] = {}
    for tool in tools:
        if isinstance(tool, dict) and is_providers_own(tool):
            passed_through[id(tool)] = tool
            continue
        key, may_refer = content_of(tool)
        entry = entries.get(key or b"")
        document = document_of(tool) if entry is None else entry.document
        first = read.setdefault(document.id, _Read(document, tool, key, may_refer, entry))
        if first.tool is not tool:
            raise DuplicateToolError(document.id, (first.document.origin, document.origin))
    return tuple(passed_through.values()), read


def _apart(tools: Tools, catalogue: Catalogue, on_duplicate: OnDuplicate) -> dict[ToolId, _Read]:
    """Return what is read of tools whose names have nothing to do with a catalogue's.

    Empty if those of any have, or with one another's, if any is a provider tool, or was given
    before and has changed since.
    """
    given = {id(tool) for tool in catalogue.originals}
    if any(is_providers_own(tool) or id(tool) in given for tool in tools):
        return {}
    read = {i: _named(each, on_duplicate) for i, each in _read(tools, Catalogue())[1].items()}
    claims = Counter(
        chain.from_iterable(claimed(each.document, on_duplicate) for each in read.values())
    )
    apart = claims.total() == len(claims) and catalogue._claims.keys().isdisjoint(claims)
    return read if apart else {}


def _named(read: _Read, on_duplicate: OnDuplicate) -> _Read:
    """Return a tool under the name that it is bound under if nobody else has its name."""
    name = wanted_name(read.document, on_duplicate, shared=False)
    same = read.document.bound_name == name
    return read if same else read._replace(document=replace(read.document, bound_name=name))


def _entries(
    read: Mapping[ToolId, _Read], names: Mapping[ToolId, str]
) -> tuple[dict[ToolId, Entry], dict[ToolId, str]]:
    """Return the entries, and why the other tools cannot be given to a model."""
    entries: dict[ToolId, Entry] = {}
    rejected: dict[ToolId, str] = {}
    for identity, each in read.items():
        try:
            entries[identity] = _entry(each, names[identity])
        # Whatever langchain_core raises here it would raise in bind_tools, in the middle of
        # a conversation and for all tools at once.
        except Exception as error:
            rejected[identity] = f"{type(error).__name__}: {error}"
            logger.warning("tool %r is left out, its schema is broken: %s", identity, error)
    return entries, rejected


def _entry(read: _Read, name: str) -> Entry:
    document, tool, key, may_refer, known = read
    if document.bound_name != name:
        document, known = replace(document, bound_name=name), None
    bound = under_name(tool, document)
    runnable = runnable_of(bound, document)
    if known is not None:
        return replace(known, tool=tool, bound=bound, runnable=runnable)
    parameters = convert_to_openai_tool(bound)["function"]["parameters"]
    if isinstance(bound, dict) and may_refer:
        dereference_refs(parameters)  # Those of dicts are left as they are.
    digest = hashlib.sha256(_as_json(_content(document)).encode()).digest()
    tokens = approximate_tokens(bound)
    return Entry(document, tool, bound, runnable, tokens, digest, key)


def _digest(entries: Iterable[Entry]) -> str:
    return hashlib.sha256(b"".join(entry.digest for entry in entries)).hexdigest()[:16]


def _bound(entries: Mapping[ToolId, Entry]) -> MappingProxyType[ToolId, Tool]:
    return MappingProxyType({identity: entry.bound for identity, entry in entries.items()})


def _tokens(entries: Mapping[ToolId, Entry]) -> int:
    return sum(entry.tokens for entry in entries.values())


def _without(mapping: MappingProxyType[str, _T], keys: Iterable[str]) -> dict[str, _T]:
    staying = mapping.copy()
    for key in keys:
        staying.pop(key, None)
    return staying


def _sharing(entries: Mapping[ToolId, Entry]) -> dict[str, tuple[ToolId, ...]]:
    """Return the ids of the tools of one own name, by the names that several have."""
    documents = [entry.document for entry in entries.values()]
    bearers = Counter(document.name for document in documents)
    sharing: dict[str, tuple[ToolId, ...]] = {}
    for document in documents:
        if bearers[document.name] > 1:
            sharing[document.name] = (*sharing.get(document.name, ()), document.id)
    return sharing


def _lookup(entries: Mapping[ToolId, Entry]) -> MappingProxyType[str, ToolId]:
    """Map ids and bound names to ids, and own names where only one tool has them."""
    documents = [entry.document for entry in entries.values()]
    bearers = Counter(document.name for document in documents)
    lookup = {each.name: each.id for each in documents if bearers[each.name] == 1}
    lookup.update((document.bound_name, document.id) for document in documents)
    lookup.update((document.id, document.id) for document in documents)
    return MappingProxyType(lookup)
