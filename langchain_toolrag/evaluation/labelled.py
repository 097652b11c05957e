"""Files of tools and labelled queries in -> checked labelled sets out."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from langchain_toolrag.catalogue.document import document_of, is_providers_own
from langchain_toolrag.catalogue.sources.files import read_tools
from langchain_toolrag.catalogue.sources.json_files import Line, first_fault, read_lines
from langchain_toolrag.errors import InvalidToolError, SourceError
from langchain_toolrag.types import Tool, ToolDocument, ToolId

_TOOLS = "tools.jsonl"
_QUERIES = "queries.jsonl"


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A request and the tools it needs.

    Attributes:
        id: Unique in its set.
        text: The user's words.
        relevant: Ids of the gold tools, at least one, without repeats.
        alternatives: By gold tool, the tools that do as well.
        history: The messages before the request; empty for a single request.
    """

    id: str
    text: str
    relevant: tuple[ToolId, ...]
    alternatives: Mapping[ToolId, Sequence[ToolId]]
    history: tuple[BaseMessage, ...] = ()

    @property
    def messages(self) -> list[BaseMessage]:
        """The conversation, the request at its end."""
        return [*self.history, HumanMessage(self.text)]

    @property
    def labelled(self) -> frozenset[ToolId]:
        """The gold tools and their alternatives."""
        return frozenset(self.relevant).union(*self.alternatives.values())


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """Tools, and queries whose tools are known.

    Attributes:
        name: What it is called in reports.
        source: Where its tools come from.
        tools: Everything that can be bound, in order.
        documents: What is indexed of those that are searched, at least one, in order; ids are
            unique.
        queries: At least one, in order; ids are unique.
    """

    name: str
    source: str
    tools: tuple[Tool, ...]
    documents: tuple[ToolDocument, ...]
    queries: tuple[LabelledQuery, ...]


def read_labelled(directory: Path) -> LabelledSet:
    """Read `tools.jsonl` and `queries.jsonl` of a folder; the set bears the folder's name.

    A line of the first is a tool's definition in any form that `read_tools` takes; it may have an
    `id`. A line of the second has `id`, `query` and `relevant` (a list of tool ids); it may have
    `alternatives` (by gold id, a list of tool ids) and `history` (a list of messages). Other keys
    and empty lines are passed over.

    Args:
        directory: The folder.

    Returns:
        The set.

    Raises:
        SourceError: If a file is missing or empty, or a line is malformed, repeats an id or names
            a tool that is not there; says which file and line.
    """
    if not directory.is_dir():
        raise SourceError(str(directory), "no such folder")
    for name in (_TOOLS, _QUERIES):
        if not (directory / name).is_file():
            raise SourceError(
                str(directory), f"no {name} there; wanted a folder with {_TOOLS} and {_QUERIES}"
            )
    name = directory.resolve().name
    return read_labelled_files(str(directory / _TOOLS), directory / _QUERIES, name=name)


def read_all_labelled(directories: Sequence[Path]) -> list[LabelledSet]:
    """Read several folders as `read_labelled` does.

    Args:
        directories: The folders.

    Returns:
        The sets, in order. Where two folders have one name, their sets bear their paths.

    Raises:
        SourceError: As in `read_labelled`, or if a folder is given twice.
    """
    counts = Counter(directory.resolve() for directory in directories)
    for directory, count in counts.items():
        if count > 1:
            raise SourceError(str(directory), "given twice; give each folder once")
    names = Counter(directory.name for directory in counts)
    return [
        replace(labelled, name=str(directory)) if names[labelled.name] > 1 else labelled
        for directory, labelled in ((path, read_labelled(path)) for path in directories)
    ]


def read_labelled_files(tools: str, queries: Path, *, name: str) -> LabelledSet:
    """Read a set from a source of tools and a file of queries.

    Args:
        tools: A `.jsonl` file as in `read_labelled`, or whatever else `read_tools` takes.
        queries: A file of JSON lines, as in `read_labelled`.
        name: What the set is called.

    Returns:
        The set.

    Raises:
        SourceError: As in `read_labelled`.
    """
    read = _tools_in(tools)
    documents = _documents(read, tools)
    known = {document.id for document in documents}
    labelled = [_query(line, known, tools) for line in read_lines(queries)]
    if not labelled:
        raise SourceError(str(queries), "no queries in it; wanted one a line")
    _refuse_repeats([(query.id, line) for query, line in labelled], str(queries), "queries")
    return LabelledSet(
        name,
        tools,
        tuple(tool for tool, _ in read),
        tuple(documents),
        tuple(query for query, _ in labelled),
    )


def _tools_in(source: str) -> list[tuple[Tool, int | None]]:
    """Return the tools of a source, each with its line where there are lines."""
    path = Path(source)
    if path.suffix == ".jsonl":
        return [(line.value, line.number) for line in read_lines(path)]
    return [(tool, None) for tool in read_tools(source)]


def _documents(tools: Iterable[tuple[Tool, int | None]], source: str) -> list[ToolDocument]:
    """Read the tools that are searched; a provider's own is not."""
    read: list[tuple[ToolDocument, int | None]] = []
    for tool, line in tools:
        if isinstance(tool, dict) and is_providers_own(tool) and "type" in tool:
            continue
        try:
            read.append((document_of(tool), line))
        except InvalidToolError as error:
            raise SourceError(source, str(error), line=line) from error
    if not read:
        raise SourceError(source, "no tools in it; wanted at least one")
    _refuse_repeats([(document.id, line) for document, line in read], source, "tools")
    return [document for document, _ in read]


def _refuse_repeats(ids: Iterable[tuple[str, int | None]], source: str, kind: str) -> None:
    first: dict[str, int | None] = {}
    for identity, line in ids:
        if identity in first:
            before = "" if line is None else f" (the other is on line {first[identity]})"
            problem = f"two {kind} have the id {identity!r}{before}; give each its own 'id'"
            raise SourceError(source, problem, line=line)
        first[identity] = line


class _QueryLine(BaseModel):
    model_config = ConfigDict(strict=True)

    id: str = Field(min_length=1)
    query: str = Field(min_length=1)
    relevant: list[str] = Field(min_length=1)
    alternatives: dict[str, list[str]] | None = None
    history: list[Any] | None = None


def _query(line: Line, known: set[ToolId], tools: str) -> tuple[LabelledQuery, int]:
    try:
        read = _QueryLine.model_validate(line.value)
    except ValidationError as error:
        raise line.fault(first_fault(error)) from error
    if not read.query.strip():
        raise line.fault("'query' is blank; wanted the user's words")
    alternatives = read.alternatives or {}
    _refuse_unknown(line, read.relevant, known, "'relevant'", tools)
    for gold, others in alternatives.items():
        if gold not in read.relevant:
            raise line.fault(
                f"'alternatives' has the key {gold!r}; wanted ids that stand in 'relevant'"
            )
        _refuse_unknown(line, others, known, "'alternatives'", tools)
    relevant = tuple(dict.fromkeys(read.relevant))
    history = _history(line, read.history or [])
    return LabelledQuery(read.id, read.query, relevant, alternatives, history), line.number


def _refuse_unknown(
    line: Line, ids: Iterable[str], known: set[ToolId], key: str, tools: str
) -> None:
    for identity in ids:
        if identity not in known:
            closest = difflib.get_close_matches(identity, known)
            hint = f" Closest: {', '.join(closest)}." if closest else ""
            raise line.fault(f"{key} names {identity!r}, an id that no tool of {tools} has.{hint}")


def _history(line: Line, history: list[Any]) -> tuple[BaseMessage, ...]:
    try:
        return tuple(convert_to_messages(history))
    # LangChain raises errors of many kinds for what is not a message.
    except Exception as error:
        reason = str(error).splitlines()[0]  # What follows is a link to its documentation.
        problem = f"'history' is not a list of messages: {type(error).__name__}: {reason}"
        raise line.fault(problem) from error
