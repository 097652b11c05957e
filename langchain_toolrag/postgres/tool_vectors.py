"""Documents without vectors in -> a row a tool in the database, and how these lie, out.

A tool's row is what the local index holds: the weighted sum of the vectors of its texts (see
`dense`); those themselves are in `toolrag.vectors`. Looking rows up finds more of the nearest tools
in less time than looking up the vectors of each text. Of 10,000 made-up tools, HNSW found all ten
nearest in 1 ms by their rows, and 89 % of them in 7 ms by three vectors each: a tool may have the
best sum and no text that is near.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from pgvector import HalfVector

from langchain_toolrag.fork import reset_after_fork
from langchain_toolrag.index.contract import Progress
from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.probes import PROBES
from langchain_toolrag.index.rows import tool_rows
from langchain_toolrag.index.vector_space import vector_space
from langchain_toolrag.postgres.connection import Database, SyncConnection
from langchain_toolrag.postgres.records import read_document, space_key
from langchain_toolrag.postgres.spread import Spread
from langchain_toolrag.types import Vectors

_CHUNK = 100  # Tools whose rows are made, and stored, at once; changes wait meanwhile.
_LISTED = 10_000  # Tools without rows that are listed at once.
_MOST_MEASURED = 20_000  # Tools; of more these are a sample, whose deviation is right within 1 %.
_SMALL = 1_000  # So few tools are measured after every change,
_CHANGED_SHARE = 0.01  # of more, after so much of them has changed.
_NEAREST = 10  # Of a probe; one of them has the best score.


class _Tool(NamedTuple):
    """A tool without a row in this space."""

    id: str
    digest: bytes
    document: str


class _Measured(NamedTuple):
    """What was measured, and what is there now."""

    version: int
    tools: int
    changed: int


class ToolVectors:
    """The vectors of one tenant's tools, by one model, in the database; safe under processes.

    Args:
        database: The database.
        embedder: What makes the vectors.
        options: Which texts of a tool count, and how much.

    Attributes:
        space: Names these vectors among others: those of the same model and texts.
    """

    def __init__(self, database: Database, embedder: Embedder, options: IndexOptions) -> None:
        self._database = database
        self._embedder = embedder
        self._options = options
        model = vector_space(embedder.embeddings) or type(embedder.embeddings).__name__
        self.space = space_key(json.dumps([model, options.as_json()], sort_keys=True))
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Forget that a thread of the parent was making vectors."""
        self._making = threading.Lock()

    @property
    def complete(self) -> bool:
        """Whether there are tools and every one has its vectors."""
        with self._database.read() as connection:
            found = connection.execute(_COMPLETE, self._about()).fetchone()
        return bool(found and found[0])

    @property
    def may_be_made(self) -> bool:
        """Whether they can be stored: not by a user who only reads, nor in a server's copy."""
        with self._database.read() as connection:
            found = connection.execute(_MAY_STORE).fetchone()
        return bool(found and found[0])

    def make(self, progress: Progress | None = None) -> None:
        """Make the vectors that are missing; of several processes one does it, others wait.

        What is made is kept, chunk by chunk, should the model or the process fail on the way.

        Args:
            progress: Called after every chunk, with how many tools are done and how many were
                to be.

        Raises:
            EmbeddingError: If the model fails.
            DatabaseError: If the vectors cannot be stored.
        """
        with self._claimed():
            done, total = 0, self.missing()
            for tools in self._pending():
                self._store(tools)
                done += len(tools)
                if progress:
                    progress(done, max(done, total))
            self._measure()
            about = self._about_missing()
            with self._database.write() as connection:
                connection.execute(_NOTE, about)

    def missing(self) -> int:
        """Return how many tools have no vectors.

        Returns:
            Their number.

        Raises:
            DatabaseError: If it cannot be asked.
        """
        about = self._about_missing()
        with self._database.read() as connection:
            found = connection.execute(_MISSING.format("count(*)", ""), about).fetchone()
        return int(found[0]) if found else 0

    def _about(self) -> dict[str, Any]:
        return {"tenant": self._database.tenant, "space": self.space}

    def _about_missing(self) -> dict[str, Any]:
        """Return the values of `_MISSING`; its plan is a good one if it is told the version."""
        with self._database.read() as connection:
            found = connection.execute(_EMBEDDED, self._about()).fetchone()
        return {**self._about(), "embedded": found[0] if found else -1}

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        """Keep other threads and processes out; a killed process's claim goes with its connection.

        Yields:
            Nothing.
        """
        # A lock of a transaction, which a pooler of connections hands on as well.
        # Of the threads of a process one asks for it: the others need no connection to wait.
        with self._making, self._database.alone() as connection, connection.transaction():
            connection.execute("set local idle_in_transaction_session_timeout = 0")
            connection.execute("set local lock_timeout = 0")
            connection.execute(_LOCK, [f"{self._database.tenant}\n{self.space}"])
            yield

    def _pending(self) -> Iterator[list[_Tool]]:
        """Yield tools without rows, chunk by chunk, until there are none."""
        query = _MISSING.format("t.id", "order by t.position limit %(most)s")
        values = {**self._about_missing(), "most": _LISTED}
        while True:
            with self._database.read() as connection:
                ids = [identity for (identity,) in connection.execute(query, values)]
            if not ids:
                return
            for start in range(0, len(ids), _CHUNK):
                yield self._tools(ids[start : start + _CHUNK])

    def _tools(self, ids: Sequence[str]) -> list[_Tool]:
        with self._database.read() as connection:
            rows = connection.execute(_TOOLS, {**self._about(), "ids": ids}).fetchall()
        return [_Tool(*row) for row in rows]

    def _store(self, tools: Sequence[_Tool]) -> None:
        """Make and store rows, but for tools that have changed meanwhile."""
        if not tools:
            return
        documents = [read_document(tool.document) for tool in tools]
        rows = tool_rows(documents, self._embedder, self._options)
        values = {
            "ids": [tool.id for tool in tools],
            "digests": [tool.digest for tool in tools],
            "vectors": [HalfVector(row) for row in rows],
        }
        with self._database.write() as connection:
            # Whoever changes tools waits for this row: none of them can go meanwhile.
            connection.execute(_KEEP_OUT, self._about())
            connection.execute(_STORE, {**self._about(), **values})

    def _measure(self) -> None:
        """Measure how the rows lie, if that may have changed."""
        with self._database.read() as connection:
            row = connection.execute(_MEASURED, self._about()).fetchone()
            found = _Measured(*row) if row else None
            if found is None or not found.tools or found.changed <= found.tools * _share(found):
                return
            rows = self._rows(connection, 1 + found.tools // _MOST_MEASURED)
        if not len(rows):
            return
        probes = self._embedder.probes(PROBES)
        spread = Spread.of(found.version, self._outside(probes), rows)
        mean, covariance = spread.written()
        values = {
            "version": spread.version,
            "outside": spread.outside,
            "mean": mean,
            "covariance": covariance,
        }
        with self._database.write() as connection:
            connection.execute(_KEEP, {**self._about(), **values})

    def _rows(self, connection: SyncConnection, every: int) -> Vectors:
        """Return the rows of one tool in so many, shape `(n, dim)`."""
        found = connection.execute(_ROWS, {**self._about(), "every": every}, binary=True)
        return np.array([vector.to_numpy() for (vector,) in found], np.float32)

    def _outside(self, probes: Vectors) -> float:
        """Return the median of the best scores that the probes reach."""
        vectors = [HalfVector(probe) for probe in probes]
        values = {**self._about(), "probes": vectors, "nearest": _NEAREST}
        with self._database.read() as connection:
            row = connection.execute(_OUTSIDE, values).fetchone()
        return float(row[0]) if row and row[0] is not None else 0.0


def _share(measured: _Measured) -> float:
    """Return which share of a catalogue may change unmeasured; none of a small one."""
    return _CHANGED_SHARE if measured.tools > _SMALL else 0.0


_LOCK = "select pg_advisory_xact_lock(hashtextextended(%s, 1))"
_MAY_STORE = """
    select has_table_privilege('toolrag.tool_vectors', 'insert') and not pg_is_in_recovery()
"""
_COMPLETE = """
    select s.embedded = c.version and exists (select from toolrag.tools where tenant = %(tenant)s)
    from toolrag.catalogues as c join toolrag.spreads as s using (tenant)
    where tenant = %(tenant)s and s.space = %(space)s
"""
_EMBEDDED = """
    select embedded from toolrag.spreads where tenant = %(tenant)s and space = %(space)s
"""
# A tool that has not changed since all had their vectors has them.
_MISSING = """
    select {} from toolrag.tools as t
    where t.tenant = %(tenant)s
        and t.changed > %(embedded)s
        and not exists (
            select from toolrag.tool_vectors as v
            where v.tenant = %(tenant)s and v.space = %(space)s and v.id = t.id
        )
    {}
"""
_KEEP_OUT = "select from toolrag.catalogues where tenant = %(tenant)s for update"
_TOOLS = """
    select id, digest, document::text from toolrag.tools
    where tenant = %(tenant)s and id = any(%(ids)s)
"""
_STORE = """
    insert into toolrag.tool_vectors (tenant, space, id, vector)
    select t.tenant, %(space)s, t.id, made.vector
    from unnest(%(ids)s::text[], %(digests)s::bytea[], %(vectors)b::halfvec[])
        as made (id, digest, vector)
    join toolrag.tools as t
        on t.tenant = %(tenant)s and t.id = made.id and t.digest = made.digest
    on conflict do nothing
"""
# One statement sees one state: no tool can come between the question and the note.
_NOTE = f"""
    insert into toolrag.spreads as known (tenant, space, embedded)
    select tenant, %(space)s, version from toolrag.catalogues
    where tenant = %(tenant)s and not exists ({_MISSING.format("", "")})
    on conflict (tenant, space) do update set embedded = excluded.embedded
"""
_MEASURED = """
    select c.version,
        coalesce((
            select tools from toolrag.word_counts where tenant = %(tenant)s and word = ''
        ), 0),
        (select count(*) from toolrag.tools where tenant = %(tenant)s
            and changed > coalesce(s.version, -1))
        + (select count(*) from toolrag.removed where tenant = %(tenant)s
            and version > coalesce(s.version, -1))
    from toolrag.catalogues as c
    left join toolrag.spreads as s on s.tenant = c.tenant and s.space = %(space)s
    where c.tenant = %(tenant)s
"""
_ROWS = """
    select vector from toolrag.tool_vectors
    where tenant = %(tenant)s and space = %(space)s
        and abs(hashtext(id)::bigint) %% %(every)s = 0
"""
_OUTSIDE = """
    select percentile_cont(0.5) within group (order by best) from (
        select max(-(v.vector <#> p.vector)) as best
        from unnest(%(probes)b::halfvec[]) with ordinality as p (vector, number)
        cross join lateral toolrag.by_meaning(
            p.vector, %(space)s, null, null, null, null, %(nearest)s) as near (id)
        join toolrag.tool_vectors as v
            on v.tenant = %(tenant)s and v.space = %(space)s and v.id = near.id
        group by p.number
    ) as peaks
"""
_KEEP = """
    insert into toolrag.spreads (tenant, space, version, outside, mean, covariance)
    values (%(tenant)s, %(space)s, %(version)s, %(outside)s, %(mean)s, %(covariance)s)
    on conflict (tenant, space) do update set version = excluded.version,
        outside = excluded.outside, mean = excluded.mean, covariance = excluded.covariance
"""
