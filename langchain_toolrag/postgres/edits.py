"""Stored rows and the documents that are wanted in -> what has to be written out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from langchain_toolrag.postgres.records import document_digest
from langchain_toolrag.types import Changes, ToolDocument, ToolId


class Placed(NamedTuple):
    """A document and its place among the others, which order it."""

    place: int
    document: ToolDocument


class Row(NamedTuple):
    """What is known of a stored tool before it is written.

    Attributes:
        place: Its place among the others.
        digest: Its document's.
        identity: Its id, as its document has it.
    """

    place: int
    digest: bytes
    identity: ToolId


Rows: TypeAlias = Mapping[str, Row]
"""What is stored, by stored id."""


@dataclass(frozen=True, slots=True)
class Edit:
    """What is to be written, and what that changes.

    Attributes:
        changes: What changes.
        written: Documents to write, by stored id.
        removed: Stored ids of those that go.
        stored: JSON of the tools among them that were ingested, by stored id; the others keep
            what is stored.
    """

    changes: Changes
    written: Mapping[str, Placed]
    removed: Collection[str] = ()
    stored: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.written or self.removed)


def edited(rows: Rows, wanted: Mapping[str, Placed], gone: Collection[str] = ()) -> Edit:
    """Return what has to be written so that rows become what is wanted.

    Args:
        rows: What is stored, by stored id: at least what is wanted or gone of it.
        wanted: What is to be there, by stored id.
        gone: Stored ids of rows that are to go.

    Returns:
        What is to be written; nothing, where only the order is another one.
    """
    added = [i for i in wanted if i not in rows]
    digests = {i: document_digest(wanted[i].document) for i in wanted if i in rows}
    changed = [i for i, digest in digests.items() if digest != rows[i].digest]
    same = frozenset(digests).difference(changed)
    # Of those that stay as they are, some may have to move; nobody moves for the order alone.
    is_change = bool(added or changed or gone)
    moved = [i for i in same if is_change and wanted[i].place != rows[i].place]
    changes = Changes(
        added=tuple(wanted[i].document.id for i in added),
        changed=tuple(wanted[i].document.id for i in changed),
        removed=tuple(rows[i].identity for i in gone),
        kept=tuple(wanted[i].document.id for i in wanted if i in same),
    )
    return Edit(changes, {i: wanted[i] for i in (*added, *changed, *moved)}, gone)
