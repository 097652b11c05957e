"""Files of tools and labelled requests in -> training sets out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from langchain_toolrag.catalogue.document import document_of
from langchain_toolrag.catalogue.sources.json_files import Line, first_fault, read_lines
from langchain_toolrag.errors import InvalidToolError, SourceError
from langchain_toolrag.types import ToolDocument, ToolId

_FEWEST_PAIRS = 20
_FEWEST_TOOLS = 2


@dataclass(frozen=True, slots=True)
class Request:
    """A request and the tools it needs.

    Attributes:
        text: The user's words.
        wanted: Places of its tools in the set's documents; at least one.
    """

    text: str
    wanted: frozenset[int]


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """One catalogue and requests to it.

    Attributes:
        name: The set's name; empty where the files name none.
        documents: The tools.
        requests: The requests, at least one.
    """

    name: str
    documents: tuple[ToolDocument, ...]
    requests: tuple[Request, ...]


def read_pairs(
    pairs: Path, tools: Path, *, leave_out: Collection[str] = ()
) -> tuple[TrainingSet, ...]:
    """Read training sets.

    A line of `pairs` has `query` and `relevant` (ids of tools); it may have `set`, the name of the
    catalogue it was asked of: tools of another catalogue are not known to be wrong for it. A line
    of `tools` is a tool's definition with an `id`; it belongs to the set that it names by `set`, or
    by an id such as `<set>:<name>`.

    Args:
        pairs: The file of requests.
        tools: The file of tools.
        leave_out: Names of sets to pass over.

    Returns:
        The sets, in the order of the pairs.

    Raises:
        SourceError: If a line is malformed or names a tool that is not there, a set to leave out is
            not there, or there are fewer than 20 pairs; says which file and line.
    """
    read = [(line, _pair(line)) for line in read_lines(pairs)]
    names = dict.fromkeys(pair.set for _, pair in read)
    unknown = sorted(set(leave_out) - set(names))
    if unknown:
        known = ", ".join(filter(None, names)) or "no names"
        raise SourceError(str(pairs), f"has no set {unknown[0]!r} to leave out; it has {known}")
    kept = [(line, pair) for line, pair in read if pair.set not in leave_out]
    if len(kept) < _FEWEST_PAIRS:
        raise SourceError(
            str(pairs), f"{len(kept)} pairs are too few to learn from; wanted {_FEWEST_PAIRS}"
        )
    catalogues = _catalogues(tools, names)
    return tuple(
        _training_set(
            name, catalogues.get(name, {}), [item for item in kept if item[1].set == name]
        )
        for name in names
        if name not in leave_out
    )


class _Pair(BaseModel):
    model_config = ConfigDict(strict=True)

    query: str = Field(pattern=r"\S")
    relevant: list[str] = Field(min_length=1)
    set: str = ""


def _pair(line: Line) -> _Pair:
    try:
        return _Pair.model_validate(line.value)
    except ValidationError as error:
        raise line.fault(first_fault(error)) from error


def _catalogues(tools: Path, names: Iterable[str]) -> dict[str, dict[ToolId, ToolDocument]]:
    """Read the tools of every set, by their ids as they are written."""
    known = set(names)
    catalogues: dict[str, dict[ToolId, ToolDocument]] = {}
    for line in read_lines(tools):
        identity, named = line.value.get("id"), line.value.get("set")
        if named is not None and not isinstance(named, str):
            raise line.fault(f"'set' is {named!r}; wanted the name of a set")
        if not isinstance(identity, str):
            raise line.fault(f"'id' is {identity!r}; wanted the id that pairs name it by")
        prefix = identity.partition(":")[0]
        name = named if named is not None else prefix if prefix in known else ""
        definition = {key: value for key, value in line.value.items() if key != "set"}
        try:
            document = document_of(definition)
        except InvalidToolError as error:
            raise line.fault(str(error)) from error
        catalogue = catalogues.setdefault(name, {})
        if identity in catalogue:
            raise line.fault(f"two tools have the id {identity!r}; give each its own 'id'")
        catalogue[identity] = document
    return catalogues


def _training_set(
    name: str, catalogue: Mapping[ToolId, ToolDocument], pairs: Iterable[tuple[Line, _Pair]]
) -> TrainingSet:
    places = {identity: place for place, identity in enumerate(catalogue)}
    requests: list[Request] = []
    for line, pair in pairs:
        missing = [identity for identity in pair.relevant if identity not in places]
        if missing:
            raise line.fault(f"'relevant' names {missing[0]!r}, an id that no tool of its set has")
        if len(places) < _FEWEST_TOOLS:
            raise line.fault("its set has a single tool: there is nothing to tell it from")
        requests.append(Request(pair.query, frozenset(places[i] for i in pair.relevant)))
    return TrainingSet(name, tuple(catalogue.values()), tuple(requests))
