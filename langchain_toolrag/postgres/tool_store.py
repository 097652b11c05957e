"""Tool documents in -> rows that all processes share, and what has changed in them, out."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from langchain_toolrag.errors import DatabaseError
from langchain_toolrag.postgres.connection import Database, SyncConnection
from langchain_toolrag.postgres.edits import Edit, Placed, Row, Rows, edited
from langchain_toolrag.postgres.places import GAP, placed
from langchain_toolrag.postgres.records import (
    document_digest,
    read_document,
    storable,
    stored_id,
    tenant_key,
    written,
)
from langchain_toolrag.postgres.search_columns import search_columns
from langchain_toolrag.types import Changes, ToolDocument, ToolId

CHANNEL = "toolrag_changes"
"""Where every change is announced, as `{"tenant": <digest>, "version": <number>}`."""

REMEMBERED = 1000
"""For how many versions it is known what was removed: a copy that is older is read anew."""

_BATCH = 500  # Tools a statement; triggers run once for each.


class Stand(NamedTuple):
    """How far somebody has read a catalogue.

    Attributes:
        history: Names the catalogue: one that was dropped and made anew has another.
        version: Counts its changes.
    """

    history: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True)
class News:
    """What a catalogue has that was not known.

    Attributes:
        stand: How far it is read now.
        whole: Whether `written` is all there is; what it lacks is gone.
        written: Documents that are new, changed or moved, by stored id.
        removed: Stored ids that are gone.
    """

    stand: Stand
    whole: bool
    written: Mapping[str, Placed]
    removed: Collection[str] = ()


_Decide: TypeAlias = Callable[[Rows, int], Edit]
"""Given stored rows and the last place of all, says what is to be written."""


class ToolTable:
    """One tenant's tools in the database; safe under threads and processes.

    A change is one transaction: readers see all of it or nothing, and changes of one tenant come
    one after the other, each with the next version.

    Args:
        database: The database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def stand(self) -> Stand:
        """Return which version is there now.

        Returns:
            The catalogue and its version; no history and 0 while nothing was ever written.

        Raises:
            DatabaseError: If it cannot be asked.
        """
        with self._database.read() as connection:
            return self._stand(connection)[0]

    def count(self) -> int:
        """Return how many tools there are.

        Returns:
            Their number.

        Raises:
            DatabaseError: If it cannot be asked.
        """
        with self._database.read() as connection:
            query = "select count(*) from toolrag.tools where tenant = %s"
            return int(_one(connection, query, [self._database.tenant])[0])

    def documents_of(self, ids: Iterable[ToolId]) -> dict[ToolId, ToolDocument]:
        """Return the documents of some tools.

        Args:
            ids: Which ones.

        Returns:
            The documents by id; of ids that are not there, none.

        Raises:
            DatabaseError: If it cannot be asked.
        """
        query = "select document::text from toolrag.tools where tenant = %s and id = any(%s)"
        values = [self._database.tenant, list(map(stored_id, ids))]
        with self._database.read() as connection:
            found = [self._document(text) for (text,) in connection.execute(query, values)]
        return {document.id: document for document in found}

    def since(self, known: Stand) -> News:
        """Return what has changed since.

        Args:
            known: How far it was read.

        Returns:
            The news; the whole catalogue if so much has changed, or if it is another one.

        Raises:
            DatabaseError: If it cannot be asked.
        """
        tenant = self._database.tenant
        with self._database.read() as connection:
            stand, forgotten = self._stand(connection)
            if stand == known:
                return News(stand, False, {})
            if stand.history != known.history or not forgotten <= known.version < stand.version:
                return News(stand, True, self._written(connection, -1))
            gone = "select id from toolrag.removed where tenant = %s and version > %s"
            removed = connection.execute(gone, [tenant, known.version])
            written = self._written(connection, known.version)
            return News(stand, False, written, [identity for (identity,) in removed])

    def add(self, documents: Sequence[ToolDocument]) -> Changes:
        """Add documents; one whose id is known replaces the old one, in its place.

        Args:
            documents: Documents to add; of two with one id the last counts.

        Returns:
            What changed; nothing is removed.

        Raises:
            DatabaseError: If they cannot be written.
        """
        wanted = {stored_id(document.id): document for document in documents}

        def decide(rows: Rows, last: int) -> Edit:
            new = (identity for identity in wanted if identity not in rows)
            places = {identity: last + GAP * n for n, identity in enumerate(new, 1)}
            places.update((identity, row.place) for identity, row in rows.items())
            return edited(rows, {i: Placed(places[i], doc) for i, doc in wanted.items()})

        return self._change(decide, list(wanted))

    def remove(self, ids: Iterable[ToolId]) -> Changes:
        """Take documents out; unknown ids are no matter.

        Args:
            ids: Ids of the documents to take out.

        Returns:
            What changed; what stays is not told.

        Raises:
            DatabaseError: If they cannot be written.
        """
        leaving = list(dict.fromkeys(map(stored_id, ids)))
        return self._change(lambda rows, last: edited(rows, {}, rows), leaving)

    def refresh(self, documents: Sequence[ToolDocument]) -> Changes:
        """Make the catalogue hold exactly these documents, in this order.

        As in the local index the order alone is no change.

        Args:
            documents: All documents it is to hold; none empties it.

        Returns:
            What changed.

        Raises:
            DatabaseError: If they cannot be written.
        """
        wanted = {stored_id(document.id): document for document in documents}

        def decide(rows: Rows, last: int) -> Edit:
            places = placed([rows[i].place if i in rows else None for i in wanted])
            entries = zip(wanted, map(Placed, places, wanted.values()), strict=True)
            gone = [identity for identity in rows if identity not in wanted]
            return edited(rows, dict(entries), gone)

        return self._change(decide, None)

    def _change(self, decide: _Decide, ids: Sequence[str] | None) -> Changes:
        """Write what is decided over the rows of some ids, or of all; nothing, if it is nothing.

        It is decided while others may write, for that needs neither a lock nor the right to write,
        and once more if they did.
        """
        with self._database.read() as connection:
            seen, _ = self._stand(connection)
            edit = decide(*self._rows(connection, ids))
        if not edit:
            return edit.changes
        with self._database.write() as connection:
            stand = self._locked(connection)
            if stand != seen:
                edit = decide(*self._rows(connection, ids))
            if edit:
                self._write(connection, edit, stand.version + 1)
        return edit.changes

    def _stand(self, connection: SyncConnection) -> tuple[Stand, int]:
        query = "select history, version, forgotten from toolrag.catalogues where tenant = %s"
        row = connection.execute(query, [self._database.tenant]).fetchone()
        return (Stand(str(row[0]), row[1]), row[2]) if row else (Stand(), 0)

    def _locked(self, connection: SyncConnection) -> Stand:
        """Keep other writers out until the transaction ends."""
        query = """
            insert into toolrag.catalogues as known (tenant) values (%s)
            on conflict (tenant) do update set version = known.version
            returning history, version
        """
        history, version = _one(connection, query, [self._database.tenant])
        return Stand(str(history), version)

    def _rows(self, connection: SyncConnection, ids: Sequence[str] | None) -> tuple[Rows, int]:
        """Return the rows of some ids, or of all, in their order, and the last place of all."""
        tenant = self._database.tenant
        query = """
            select id, position, digest, case when id like E'\\x01%%' then document::text end
            from toolrag.tools where tenant = %s and (%s::text[] is null or id = any(%s))
            order by position
        """
        last = "select coalesce(max(position), 0) from toolrag.tools where tenant = %s"
        rows = {
            identity: Row(place, digest, self._document(text).id if text else identity)
            for identity, place, digest, text in connection.execute(query, [tenant, ids, ids])
        }
        return rows, int(_one(connection, last, [tenant])[0])

    def _written(self, connection: SyncConnection, since: int) -> dict[str, Placed]:
        query = """
            select id, position, document::text from toolrag.tools
            where tenant = %s and changed > %s order by position
        """
        found = connection.execute(query, [self._database.tenant, since])
        return {identity: Placed(place, self._document(text)) for identity, place, text in found}

    def _document(self, text: str) -> ToolDocument:
        try:
            return read_document(text)
        except ValueError as error:
            raise DatabaseError(self._database.name, f"holds a row that {error}") from error

    def _write(self, connection: SyncConnection, edit: Edit, version: int) -> None:
        about = {"tenant": self._database.tenant, "version": version}
        if edit.removed:
            connection.execute(_REMOVE, {**about, "ids": list(edit.removed)})
        for batch in _batches(edit.written.items(), _BATCH):
            columns = (_columns(identity, *entry) for identity, entry in batch)
            stored = (edit.stored.get(identity) for identity, _ in batch)
            rows = json.dumps(
                [{**row, "stored": it} for row, it in zip(columns, stored, strict=True)]
            )
            connection.execute(_WRITE, {**about, "rows": rows})
        if edit.written:
            connection.execute(_REMEMBER, {**about, "ids": list(edit.written)})
        connection.execute(_COUNT, {**about, "forgotten": version - REMEMBERED})
        notice = {"tenant": tenant_key(self._database.tenant), "version": version}
        connection.execute("select pg_notify(%s, %s)", [CHANNEL, json.dumps(notice)])


_REMOVE = """
    with gone as (
        delete from toolrag.tools where tenant = %(tenant)s and id = any(%(ids)s) returning id
    )
    insert into toolrag.removed (tenant, id, version)
    select %(tenant)s, id, %(version)s from gone
    on conflict (tenant, id) do update set version = excluded.version
"""
_REMEMBER = "delete from toolrag.removed where tenant = %(tenant)s and id = any(%(ids)s)"
# What was ingested stays: how a tool is called is not the index's to forget.
_WRITE = """
    insert into toolrag.tools as known (
        tenant, id, position, name, server, tags, document, stored, digest, changed,
        words, points, names, server_key
    )
    select %(tenant)s, id, position, name, server, tags, document::json, stored::json,
        decode(digest, 'hex'), %(version)s, words::tsvector, points::tsvector, names, server_key
    from json_to_recordset(%(rows)s::json) as row (
        id text, position bigint, name text, server text, tags text[], document text, stored text,
        digest text, words text, points text, names text[], server_key text
    )
    on conflict (tenant, id) do update set
        position = excluded.position, name = excluded.name, server = excluded.server,
        tags = excluded.tags, document = excluded.document,
        stored = coalesce(excluded.stored, known.stored), digest = excluded.digest,
        changed = excluded.changed, words = excluded.words, points = excluded.points,
        names = excluded.names, server_key = excluded.server_key
"""
_COUNT = """
    with forgotten as (
        delete from toolrag.removed where tenant = %(tenant)s and version <= %(forgotten)s
    )
    update toolrag.catalogues
    set version = %(version)s, forgotten = greatest(forgotten, %(forgotten)s)
    where tenant = %(tenant)s
"""


def _columns(identity: str, place: int, document: ToolDocument) -> dict[str, Any]:
    return {
        "id": identity,
        "position": place,
        "name": storable(document.name),
        "server": None if document.server is None else storable(document.server),
        "tags": sorted(map(storable, document.tags)),
        "document": written(document),
        "digest": document_digest(document).hex(),
        **search_columns(document)._asdict(),
    }


def _batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def _one(connection: SyncConnection, query: str, values: Sequence[object]) -> tuple[Any, ...]:
    """Return the one row that a query always has."""
    row: tuple[Any, ...] | None = connection.execute(query, values).fetchone()
    if row is None:
        raise LookupError(query)
    return row
