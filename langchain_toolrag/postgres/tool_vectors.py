"""Documents without vectors in -> several vectors a tool in the database, and their spread, out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from pgvector import HalfVector

from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.probes import PROBES
from langchain_toolrag.index.texts import view_texts
from langchain_toolrag.index.vector_space import vector_space
from langchain_toolrag.postgres.connection import Database, SyncConnection
from langchain_toolrag.postgres.records import read_document, space_key
from langchain_toolrag.postgres.spread import Spread
from langchain_toolrag.types import Vectors

_CHUNK = 500  # Tools whose vectors are made, and stored, at once.
_MOST_MEASURED = 20_000  # Tools; of more these are a sample, whose deviation is right within 1 %.
_CHANGED_SHARE = 0.01  # So much of a catalogue has to change for its spread to be measured anew.
_NEAREST = 10  # Of a probe; one of them has the best score.


class _Pending(NamedTuple):
    """A tool without vectors in this space."""

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

    @property
    def complete(self) -> bool:
        """Whether there are tools and every one has its vectors."""
        with self._database.read() as connection:
            found = connection.execute(_COMPLETE, self._about()).fetchone()
        return bool(found and found[0])

    def make(self, progress: Callable[[int, int], None] | None = None) -> None:
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
            while pending := self._pending():
                self._store(pending)
                done += len(pending)
                if progress:
                    progress(done, max(done, total))
            self._measure()
            with self._database.write() as connection:
                connection.execute(_NOTE, self._about())

    def missing(self) -> int:
        """Return how many tools have no vectors.

        Raises:
            DatabaseError: If it cannot be asked.
        """
        with self._database.read() as connection:
            found = connection.execute(_MISSING.format("count(*)", ""), self._about()).fetchone()
        return int(found[0]) if found else 0

    def _about(self) -> dict[str, Any]:
        return {"tenant": self._database.tenant, "space": self.space}

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        """Keep other processes out; a claim goes with its connection, even of a killed process."""
        with self._database.alone() as connection:
            # A lock of a transaction, which a pooler of connections hands on as well.
            with connection.transaction():
                connection.execute("set local idle_in_transaction_session_timeout = 0")
                connection.execute(_LOCK, [f"{self._database.tenant}\n{self.space}"])
                yield

    def _pending(self) -> list[_Pending]:
        query = _MISSING.format("t.id, t.digest, t.document::text", "order by t.position limit %(chunk)s")
        with self._database.read() as connection:
            rows = connection.execute(query, {**self._about(), "chunk": _CHUNK}).fetchall()
        return [_Pending(*row) for row in rows]

    def _store(self, pending: Sequence[_Pending]) -> None:
        """Make and store vectors, but for tools that have changed meanwhile."""
        views = [view_texts(read_document(tool.document), self._options) for tool in pending]
        vectors = self._embedder.documents([text for of_one in views for text, _ in of_one])
        rows = [
            {
                **self._about(),
                **tool._asdict(),
                "view": view,
                "weight": weight,
                "vector": HalfVector(vectors[text]),
            }
            for tool, of_one in zip(pending, views, strict=True)
            for view, (text, weight) in enumerate(of_one)
        ]
        with self._database.write() as connection, connection.cursor() as cursor:
            cursor.executemany(_STORE, rows)

    def _measure(self) -> None:
        """Measure how the rows lie, if that may have changed."""
        with self._database.read() as connection:
            row = connection.execute(_MEASURED, self._about()).fetchone()
            found = _Measured(*row) if row else None
            if found is None or not found.tools or found.changed <= found.tools * _share(found):
                return
            rows = self._rows(connection, 1 + found.tools // _MOST_MEASURED)
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
        rows: dict[str, Any] = {}
        for identity, weight, vector in found:
            rows[identity] = rows.get(identity, 0) + np.float32(weight) * vector.to_numpy()
        return np.array(list(rows.values()), np.float32)

    def _outside(self, probes: Vectors) -> float:
        """Return the median of the best scores that the probes reach."""
        vectors = [HalfVector(probe) for probe in probes]
        values = {**self._about(), "probes": vectors, "nearest": _NEAREST}
        with self._database.read() as connection:
            row = connection.execute(_OUTSIDE, values).fetchone()
        return float(row[0]) if row and row[0] is not None else 0.0


def _share(measured: _Measured) -> float:
    """Return which share of a catalogue may change unmeasured; none of a small one."""
    return _CHANGED_SHARE if measured.tools > _MOST_MEASURED else 0.0


_LOCK = "select pg_advisory_xact_lock(hashtextextended(%s, 1))"
_COMPLETE = """
    select s.embedded = c.version and exists (select from toolrag.tools where tenant = %(tenant)s)
    from toolrag.catalogues as c join toolrag.spreads as s using (tenant)
    where tenant = %(tenant)s and s.space = %(space)s
"""
# A tool that has not changed since all had their vectors has them.
_MISSING = """
    select {} from toolrag.tools as t
    where t.tenant = %(tenant)s
        and t.changed > coalesce((
            select embedded from toolrag.spreads where tenant = %(tenant)s and space = %(space)s
        ), -1)
        and not exists (
            select from toolrag.tool_vectors as v
            where v.tenant = %(tenant)s and v.space = %(space)s and v.id = t.id
        )
    {}
"""
_STORE = """
    insert into toolrag.tool_vectors (tenant, space, id, view, weight, vector)
    select tenant, %(space)s, id, %(view)s, %(weight)s, %(vector)s::halfvec
    from toolrag.tools
    where tenant = %(tenant)s and id = %(id)s and digest = %(digest)s
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
        (select count(*) from toolrag.tools where tenant = %(tenant)s),
        (select count(*) from toolrag.tools where tenant = %(tenant)s
            and changed > coalesce(s.version, -1))
        + (select count(*) from toolrag.removed where tenant = %(tenant)s
            and version > coalesce(s.version, -1))
    from toolrag.catalogues as c
    left join toolrag.spreads as s on s.tenant = c.tenant and s.space = %(space)s
    where c.tenant = %(tenant)s
"""
_ROWS = """
    select id, weight, vector from toolrag.tool_vectors
    where tenant = %(tenant)s and space = %(space)s
        and abs(hashtext(id)::bigint) %% %(every)s = 0
"""
_OUTSIDE = """
    select percentile_cont(0.5) within group (order by best) from (
        select max(score) as best
        from unnest(%(probes)s::halfvec[]) with ordinality as p (vector, number)
        cross join lateral toolrag.by_meaning(
            p.vector, %(space)s, null, null, null, %(nearest)s) as near (id)
        cross join lateral (
            select sum(v.weight * -(v.vector <#> p.vector)) as score
            from toolrag.tool_vectors as v
            where v.tenant = %(tenant)s and v.space = %(space)s and v.id = near.id
        ) as s
        group by p.number
    ) as peaks
"""
_KEEP = """
    insert into toolrag.spreads (tenant, space, version, outside, mean, covariance)
    values (%(tenant)s, %(space)s, %(version)s, %(outside)s, %(mean)s, %(covariance)s)
    on conflict (tenant, space) do update set version = excluded.version,
        outside = excluded.outside, mean = excluded.mean, covariance = excluded.covariance
"""
