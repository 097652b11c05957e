"""Tool documents in -> the names they are bound under out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeAlias

from langchain_toolrag.catalogue.names import bound_name, hashed_name
from langchain_toolrag.errors import DuplicateToolError
from langchain_toolrag.types import ToolDocument, ToolId

OnDuplicate: TypeAlias = Literal["raise", "prefix", "id"]
"""What to do with two tools of one name: raise, or put the servers in front. Or bind every tool
under its id, so that its name does not depend on what others there are."""


@dataclass(frozen=True, slots=True)
class BoundNames:
    """The names that tools are bound under.

    Attributes:
        by_id: A name of its own for every document.
        claims: How many documents and provider tools have to do with a name or id, by that. A
            document whose claims are its own alone comes and goes without a change to others.
    """

    by_id: dict[ToolId, str]
    claims: dict[str, int]


def give_names(
    documents: Sequence[ToolDocument], taken: Collection[str], on_duplicate: OnDuplicate
) -> BoundNames:
    """Give every document a bound name of its own, none that a provider tool has taken.

    A tool that bears its bound name already keeps it; one that was mapped to it (`a.b` to
    `a__b`) takes the hashed form instead.

    Args:
        documents: The documents; their own `bound_name` is not read.
        taken: Names of provider tools.
        on_duplicate: What to do with a name that several have.

    Returns:
        The names.

    Raises:
        DuplicateToolError: If two have one name, and that is to raise.
    """
    bearers = Counter(document.name for document in documents)
    bearers.update(taken)
    wanted: dict[ToolId, str] = {}
    for document in documents:
        shared = bearers[document.name] > 1
        if shared and on_duplicate == "raise":
            raise DuplicateToolError(document.name, _origins(document.name, documents, taken))
        wanted[document.id] = wanted_name(document, on_duplicate, shared=shared)
    claimants = Counter(wanted.values())
    claimants.update(taken)
    names = dict(wanted)
    for document in documents:
        name = wanted[document.id]
        if claimants[name] > 1 and (document.name != name or name in taken):
            names[document.id] = hashed_name(document.id)
    return BoundNames(names, _claims(documents, wanted, names, taken))


def wanted_name(document: ToolDocument, on_duplicate: OnDuplicate, *, shared: bool) -> str:
    """Return the name a document is bound under unless another takes it.

    Args:
        document: The document.
        on_duplicate: What to do with a name that several have.
        shared: Whether others have its own name.

    Returns:
        A name that every provider takes.
    """
    if on_duplicate == "id":
        return bound_name(document.id)
    in_front = f"{document.server}_" if shared and document.server is not None else ""
    return bound_name(in_front + document.name)


def claimed(document: ToolDocument, on_duplicate: OnDuplicate) -> set[str]:
    """Return the names and ids that a document has to do with if nobody else has its name."""
    wanted = wanted_name(document, on_duplicate, shared=False)
    return {document.id, document.name, wanted, document.bound_name}


def _origins(name: str, documents: Sequence[ToolDocument], taken: Collection[str]) -> list[str]:
    origins = [document.origin for document in documents if document.name == name]
    return [*origins, *(["a provider's own tool"] if name in taken else [])]


def _claims(
    documents: Sequence[ToolDocument],
    wanted: Mapping[ToolId, str],
    names: Mapping[ToolId, str],
    taken: Collection[str],
) -> dict[str, int]:
    of_each = (
        {document.id, document.name, wanted[document.id], names[document.id]}
        for document in documents
    )
    return Counter(chain(taken, chain.from_iterable(of_each)))
