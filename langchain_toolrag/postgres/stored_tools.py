"""What sources list in -> tools that every process can find and call, in the database, out."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from langchain_toolrag.catalogue.catalogue import build_catalogue
from langchain_toolrag.catalogue.document import document_of
from langchain_toolrag.catalogue.sources.directory_records import as_json, read_source, read_tool
from langchain_toolrag.catalogue.sources.directory_tools import definitions
from langchain_toolrag.catalogue.sources.merging import Merged, merged
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool
from langchain_toolrag.errors import DatabaseError
from langchain_toolrag.postgres.connection import Database, SyncConnection
from langchain_toolrag.postgres.edits import Edit, Placed, edited
from langchain_toolrag.postgres.known_vectors import PostgresVectors
from langchain_toolrag.postgres.places import placed
from langchain_toolrag.postgres.records import stored_id
from langchain_toolrag.postgres.tool_store import ToolTable
from langchain_toolrag.postgres.upgrade import refuse_old
from langchain_toolrag.types import Changes, ToolDocument

logger = logging.getLogger(__name__)

_REST_SECONDS = 5.0  # After trouble; so that not every call waits for a database that is down.


class DatabaseTools(ToolTable):
    """What `toolrag ingest --database` writes and everything else reads: a ToolStore.

    Tools of the tenant that were not ingested stay as they are, and are not read here. A plain
    `PostgresIndex` finds both.

    Args:
        database: The database; it is closed by `close`.

    Attributes:
        database: The database.
        name: Which one, without its password.
        tenant: Whose tools.

    Raises:
        DatabaseError: If it cannot be reached, or has not the tables that are needed.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        refuse_old(database)
        self.database = database
        self.name = database.name
        self.tenant = database.tenant
        self._sources: dict[str, StoredSource] | None = None
        self._failure = ""
        self._resumes_at = 0.0

    def tools(self) -> list[StoredTool]:
        """Read the tools that were ingested.

        Returns:
            The tools, in the order of the sources; none where nothing was ingested.

        Raises:
            DatabaseError: If they cannot be read.
        """
        with self._database.read() as connection:
            self._sources = self._read_sources(connection)
            tools = list(self._read_tools(connection).values())
        self._note("")
        return tools

    def sources(self) -> dict[str, StoredSource]:
        """Read the sources; while the database does not answer, those that were read last.

        Returns:
            The sources by name, in the order they were ingested first; none where nothing was
            ingested.

        Raises:
            DatabaseError: If they cannot be read and never were.
        """
        if self._sources is not None and time.monotonic() < self._resumes_at:
            return self._sources
        try:
            with self._database.read() as connection:
                self._sources = self._read_sources(connection)
        except DatabaseError as error:
            if self._sources is None:
                raise
            self._note(str(error))
        else:
            self._note("")
        return self._sources

    def fingerprint(self) -> str:
        """Return a short text that is another one once the tenant's tools have changed.

        Returns:
            The text, the same for every process; empty, with a warning, while the database does
            not answer.
        """
        try:
            stand = self.stand()
        except DatabaseError as error:
            self._note(str(error))
            return ""
        self._note("")
        return f"{stand.history[:8]}-{stand.version:x}"

    def replace(self, listings: Sequence[Listing], *, dry_run: bool = False) -> dict[str, Changes]:
        """Take in what sources listed, each in the place of what it listed before.

        It is one transaction: everybody sees all of it or nothing. A source whose listing failed
        keeps its tools and is marked; sources that are not listed stay as they are.

        Args:
            listings: What the sources listed.
            dry_run: Whether to write nothing and say only what would change, for which the right
                to read is enough.

        Returns:
            What changed, by source, in the order of the listings.

        Raises:
            DatabaseError: If the database cannot be read or written. The tools stay as they were.
            SourceError: If a source is listed twice, lists a name twice, or has the name of one
                of another kind.
        """
        if dry_run:
            with self._database.read() as connection:
                return self._merged(connection, listings)[0].changes
        with self._database.write() as connection:
            stand = self._locked(connection)
            after, known = self._merged(connection, listings)
            self._write_sources(connection, after.sources)
            tools = [tool for each in after.tools.values() for tool in each]
            edit, moved = self._edit(connection, tools, known)
            if edit:
                version = stand.version + 1
                _move(connection, self._database.tenant, moved, version)
                self._write(connection, edit, version)
        return after.changes

    def vectors(self, space: str) -> PostgresVectors:
        """Return where the vectors of a model are kept, for all processes of the tenant.

        Args:
            space: Names the model.

        Returns:
            The vectors.
        """
        return PostgresVectors(self._database, space)

    def close(self) -> None:
        """End the connections; they are opened again when they are needed."""
        self._database.close()

    def _merged(
        self, connection: SyncConnection, listings: Sequence[Listing]
    ) -> tuple[Merged, Mapping[str, StoredTool]]:
        """Return what is to be stored, and the tools that are."""
        known = self._read_tools(connection)
        sources = self._read_sources(connection)
        return merged(listings, sources, list(known.values()), place=self.name), known

    def _read_sources(self, connection: SyncConnection) -> dict[str, StoredSource]:
        query = """
            select name, described::text from toolrag.sources where tenant = %s order by position
        """
        found = connection.execute(query, [self._database.tenant])
        try:
            return {name: read_source(json.loads(text)) for name, text in found}
        except ValueError as error:
            raise DatabaseError(
                self.name, f"holds a source that cannot be read: {error}"
            ) from error

    def _read_tools(self, connection: SyncConnection) -> dict[str, StoredTool]:
        """Return the tools that were ingested by stored id, in order."""
        query = """
            select id, stored::text from toolrag.tools
            where tenant = %s and stored is not null order by position
        """
        found = connection.execute(query, [self._database.tenant])
        try:
            return {identity: read_tool(json.loads(text)) for identity, text in found}
        except ValueError as error:
            raise DatabaseError(self.name, f"holds a tool that cannot be read: {error}") from error

    def _edit(
        self,
        connection: SyncConnection,
        tools: Sequence[StoredTool],
        known: Mapping[str, StoredTool],
    ) -> tuple[Edit, Mapping[str, int]]:
        """Return what is to be written, and where tools go that were not ingested.

        Those stand behind the ingested ones, which only the end of the room in between moves.
        """
        rows, _ = self._rows(connection, None)
        stored = {stored_id(tool.id): tool for tool in tools}
        others = [identity for identity in rows if identity not in stored and identity not in known]
        order = [*stored, *others]
        places = placed([rows[i].place if i in rows else None for i in order])
        at = dict(zip(order, places, strict=True))
        documents = _documents(tools)
        wanted = {i: Placed(at[i], documents[tool.id]) for i, tool in stored.items()}
        base = edited(rows, wanted, [identity for identity in known if identity not in stored])
        renewed = {i: wanted[i] for i, tool in stored.items() if known.get(i) != tool}
        edit = replace(
            base,
            written={**base.written, **renewed},
            stored={i: json.dumps(as_json(tool)) for i, tool in stored.items() if i in renewed},
        )
        return edit, {i: at[i] for i in others if at[i] != rows[i].place}

    def _write_sources(
        self, connection: SyncConnection, sources: Mapping[str, StoredSource]
    ) -> None:
        query = """
            insert into toolrag.sources (tenant, name, position, described) values (%s, %s, %s, %s)
            on conflict (tenant, name) do update
            set position = excluded.position, described = excluded.described
        """
        tenant = self._database.tenant
        rows = [
            (tenant, name, position, json.dumps(as_json(source)))
            for position, (name, source) in enumerate(sources.items())
        ]
        with connection.cursor() as cursor:
            cursor.executemany(query, rows)

    def _note(self, failure: str) -> None:
        self._resumes_at = time.monotonic() + _REST_SECONDS if failure else 0.0
        if failure and not self._failure:
            logger.warning("what is known of the tools is gone on with: %s", failure)
        elif self._failure and not failure:
            logger.info("the database is there again")
        self._failure = failure


def open_database_tools(dsn: str, tenant: str = "") -> DatabaseTools:
    """Open the tools that were ingested into a database.

    Args:
        dsn: How it is reached: `postgresql://user@host/name`, or `key=value` pairs.
        tenant: Whose tools; empty for `default`.

    Returns:
        The tools; to be closed.

    Raises:
        DatabaseError: If the DSN cannot be read, the database cannot be reached, or has not the
            tables that are needed.
        ValueError: If the tenant has more than 200 characters, or some that cannot be stored.
    """
    database = Database(dsn, tenant)
    try:
        return DatabaseTools(database)
    except DatabaseError:
        database.close()
        raise


def _documents(tools: Sequence[StoredTool]) -> dict[str, ToolDocument]:
    """Return what is indexed of tools, by their ids, as of `ToolRAG(definitions(tools))`."""
    found = definitions(tools)
    catalogue = build_catalogue(found, on_duplicate="id")
    documents = {document.id: document for document in catalogue.documents}
    # A schema that cannot be given to a model does not keep a tool from being called.
    for definition in found:
        if definition["id"] in catalogue.rejected:
            documents[definition["id"]] = document_of(definition)
    return documents


def _move(connection: SyncConnection, tenant: str, places: Mapping[str, int], version: int) -> None:
    query = """
        update toolrag.tools set position = row.position, changed = %s
        from unnest(%s::text[], %s::bigint[]) as row (id, position)
        where tools.tenant = %s and tools.id = row.id
    """
    if places:
        connection.execute(query, [version, list(places), list(places.values()), tenant])
