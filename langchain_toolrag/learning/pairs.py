"""Files of tools and labelled requests in -> training sets out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from langchain_toolrag.catalogue.catalogue import build_catalogue
from langchain_toolrag.catalogue.document import document_of
from langchain_toolrag.catalogue.sources.json_files import Line, first_fault, read_lines
from langchain_toolrag.errors import InvalidToolError, SourceError
from langchain_toolrag.evaluation.labelled import LabelledQuery, LabelledSet
from langchain_toolrag.types import ToolDocument, ToolId

_FEWEST_PAIRS = 20
_FEWEST_TOOLS = 2
_HELD_OUT = 0.2


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
        tools: The tools as they are defined, in the order of the documents.
    """

    name: str
    documents: tuple[ToolDocument, ...]
    requests: tuple[Request, ...]
    tools: tuple[dict[str, Any], ...] = ()


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
    kept = _kept(pairs, leave_out)
    names = dict.fromkeys(pair.set for _, pair in kept)
    catalogues = _catalogues(tools, {*names, *leave_out})
    sets: list[TrainingSet] = []
    for name in names:
        catalogue = catalogues.get(name, {})
        of_the_set = [item for item in kept if item[1].set == name]
        sets.append(_training_set(name, catalogue, of_the_set, lambda each: each))
    return tuple(sets)


def read_pairs_for(
    pairs: Path, tools: Sequence[dict[str, Any]], *, leave_out: Collection[str] = ()
) -> TrainingSet:
    """Read pairs that are all of one catalogue.

    Args:
        pairs: The file of requests, as for `read_pairs`; `relevant` has ids of tools, or the names
            that a model sees. Sets can be left out, and make no difference otherwise.
        tools: Definitions of the tools, each with its `id`.
        leave_out: Names of sets to pass over.

    Returns:
        One set, without a name.

    Raises:
        SourceError: As for `read_pairs`.
        InvalidToolError: If a definition is none.
    """
    kept = _kept(pairs, leave_out)
    known = build_catalogue(tools, on_duplicate="id")
    described = [(document_of(tool), tool) for tool in tools]
    catalogue = {document.id: (document, tool) for document, tool in described}
    return _training_set("", catalogue, kept, known.id_of)


def hold_out(
    sets: Sequence[TrainingSet], source: str
) -> tuple[list[TrainingSet], list[LabelledSet]]:
    """Keep the last fifth of each set's requests from being learned.

    Args:
        sets: The sets.
        source: Where they come from, for messages.

    Returns:
        The sets without those requests, and the requests as labelled sets.

    Raises:
        SourceError: If no set has two requests.
    """
    learned: list[TrainingSet] = []
    watched: list[LabelledSet] = []
    for each in sets:
        count = len(each.requests)
        held = max(1, round(_HELD_OUT * count)) if count > 1 else 0
        learned.append(replace(each, requests=each.requests[: count - held]))
        if held:
            watched.append(_labelled(each, each.requests[count - held :], source))
    if not watched:
        raise SourceError(source, "no set has two pairs, of which one could be held out: give some")
    return learned, watched


def _labelled(training: TrainingSet, requests: Sequence[Request], source: str) -> LabelledSet:
    queries = tuple(
        LabelledQuery(
            str(number),
            request.text,
            tuple(training.documents[place].id for place in sorted(request.wanted)),
            {},
        )
        for number, request in enumerate(requests)
    )
    name = training.name or "pairs"
    return LabelledSet(name, source, training.tools, training.documents, queries)


def _kept(pairs: Path, leave_out: Collection[str]) -> list[tuple[Line, _Pair]]:
    """Read the pairs of all sets but some."""
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
    return kept


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


_Catalogue: TypeAlias = dict[ToolId, tuple[ToolDocument, dict[str, Any]]]
"""Tools and their definitions by the ids that pairs name them by."""


def _catalogues(tools: Path, names: Iterable[str]) -> dict[str, _Catalogue]:
    """Read the tools of every set, by their ids as they are written."""
    known = set(names)
    catalogues: dict[str, _Catalogue] = {}
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
        catalogue[identity] = (document, definition)
    return catalogues


def _training_set(
    name: str,
    catalogue: _Catalogue,
    pairs: Iterable[tuple[Line, _Pair]],
    id_of: Callable[[str], ToolId | None],
) -> TrainingSet:
    places = {identity: place for place, identity in enumerate(catalogue)}
    requests: list[Request] = []
    for line, pair in pairs:
        found = {named: places.get(id_of(named) or "") for named in pair.relevant}
        missing = [named for named, place in found.items() if place is None]
        if missing:
            raise line.fault(f"'relevant' names {missing[0]!r}, an id that no tool of its set has")
        if len(places) < _FEWEST_TOOLS:
            raise line.fault("its set has a single tool: there is nothing to tell it from")
        wanted = frozenset(place for place in found.values() if place is not None)
        requests.append(Request(pair.query, wanted))
    documents, tools = zip(*catalogue.values(), strict=True) if catalogue else ((), ())
    return TrainingSet(name, documents, tuple(requests), tools)
