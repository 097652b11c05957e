"""A query in -> the evidence for it, found by one SQL query in the database, out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple, TypeAlias

from pgvector import HalfVector

from langchain_toolrag.errors import AdapterError, EmbeddingError, StillLoadingError
from langchain_toolrag.index.contract import CANDIDATES
from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.embedding import model_name
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.index.keyword import KeywordQuery, OfServer, parse_query
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.plans import arun, run
from langchain_toolrag.postgres.candidates import Candidates, Row
from langchain_toolrag.postgres.connection import Database
from langchain_toolrag.postgres.loading import Loading
from langchain_toolrag.postgres.records import storable, stored_id
from langchain_toolrag.postgres.search_columns import (
    all_of,
    any_of,
    asked_names,
    asked_points,
    asked_server,
    asked_terms,
)
from langchain_toolrag.postgres.spread import UNKNOWN, Spread
from langchain_toolrag.postgres.tool_vectors import ToolVectors
from langchain_toolrag.types import (
    Evidence,
    ScoreStatistics,
    ToolFilter,
    Vector,
)

logger = logging.getLogger(__name__)

_HYBRID = (resources.files("langchain_toolrag.postgres") / "hybrid_query.sql").read_text("utf-8")
_ANY = """
    select from toolrag.tools where tenant = current_setting('toolrag.tenant', true) limit 1
"""
_SPREAD = """
    select version, outside, mean, covariance from toolrag.spreads
    where tenant = current_setting('toolrag.tenant', true) and space = %(space)s
        and mean is not null
"""
_RANKED = 1_000  # About how many tools are ranked by words; all of a catalogue that is no larger.
_COMPARED = 20_000  # How often a word is looked up in a tool: of a long request fewer are ranked.
_WIDER = 4  # How many times as many candidates are asked for, if too few pass a predicate.


class _Question(NamedTuple):
    """A query in SQL, and its values."""

    query: str
    values: dict[str, Any]


_Answers: TypeAlias = Sequence[tuple[Any, ...]]
_Search: TypeAlias = Generator[_Question, _Answers, Evidence]


@dataclass(frozen=True, slots=True)
class _Request:
    """What is searched for.

    Attributes:
        query: The query, taken apart.
        vector: Its vector; None to leave meaning out.
        candidates: How many tools each source puts forward.
        filter: Which tools may be returned.
    """

    query: KeywordQuery
    vector: Vector | None
    candidates: int
    filter: ToolFilter


class RemoteSearch:
    """Search in the database; nothing of the catalogue is kept here. Safe under threads.

    Args:
        database: The database.
        embedder: What makes the vectors of tools and of requests.
        options: Which texts of a tool are embedded.
        background: Whether the model is loaded, and tools are embedded, by a thread of its own;
            until it is done, a search that needs vectors raises a StillLoadingError.

    Attributes:
        vectors: The tools' vectors.
        version: The catalogue's version, as far as it was learnt; 0 at first.
        size: How many tools it had then.

    Raises:
        ValueError: If the options ask for raw words: the database holds stemmed ones.
    """

    def __init__(
        self,
        database: Database,
        embedder: Embedder,
        options: IndexOptions,
        *,
        background: bool = False,
    ) -> None:
        if options.analyser != "stemmed" or not options.server_in_text:
            raise ValueError(
                "a search in the database reads stemmed words, the server's name among them; the "
                f"options are {options}: use mode='replica'"
            )
        self.vectors = ToolVectors(database, embedder, options)
        self.version = 0
        self.size = 0
        self._database = database
        self._embedder = embedder
        self._spread = UNKNOWN
        self._read_only_at = -1
        self._loading = Loading(embedder, self.vectors) if background else None

    def evidence(
        self,
        query: str,
        candidate_k: int = CANDIDATES,
        filter: ToolFilter | None = None,
        *,
        dense: bool = True,
        along: Sequence[str] = (),
        heads: Heads | None = None,
    ) -> Evidence:
        """Return what speaks for the best tools of every source.

        Args:
            query: A request; `select:A,B` and `+word` are understood.
            candidate_k: How many tools each source puts forward.
            filter: Which tools may be returned. The database looks at servers, tags, ids and an
                `OfServer`; for another predicate more and more tools are read, until enough pass or
                all were asked.
            dense: Whether to embed the query; tools without vectors are embedded first.
            along: Queries that will be asked too; they may be embedded in one run with this one.
            heads: None, or `dense` is not asked for: tools' vectors are the model's own here.

        Returns:
            Evidence for at most three times `candidate_k` tools and every exactly named one.

        Raises:
            AdapterError: If `dense` and there are heads.
            DatabaseError: If the database cannot be asked.
            EmbeddingError: If `dense` and embedding fails.
        """
        refuse_heads(heads if dense else None)
        parsed = parse_query(query)
        vector = None
        if dense and run(self._has_tools(), self._asked):
            self._refuse_to_wait()
            vector = self._embedder.query(parsed.text, _texts(along))
        request = _Request(parsed, vector, candidate_k, filter or ToolFilter())
        found = run(self._search(request), self._asked)
        if self._lacks_vectors(found, vector) and self._makes_them(found):
            found = run(self._search(request), self._asked)
        return found

    async def aevidence(
        self,
        query: str,
        candidate_k: int = CANDIDATES,
        filter: ToolFilter | None = None,
        *,
        dense: bool = True,
        along: Sequence[str] = (),
        heads: Heads | None = None,
    ) -> Evidence:
        """Return the same as `evidence`, without blocking the event loop.

        Args:
            query: A request; `select:A,B` and `+word` are understood.
            candidate_k: How many tools each source puts forward.
            filter: Which tools may be returned.
            dense: Whether to embed the query; tools without vectors are embedded first.
            along: Queries that will be asked too; they may be embedded in one run with this one.
            heads: None, or `dense` is not asked for: tools' vectors are the model's own here.

        Returns:
            Evidence, as `evidence` returns it.

        Raises:
            AdapterError: If `dense` and there are heads.
            DatabaseError: If the database cannot be asked.
            EmbeddingError: If `dense` and embedding fails.
        """
        refuse_heads(heads if dense else None)
        parsed = parse_query(query)
        vector = None
        if dense and await arun(self._has_tools(), self._aasked):
            self._refuse_to_wait()
            vector = await self._embedder.aquery(parsed.text, _texts(along))
        request = _Request(parsed, vector, candidate_k, filter or ToolFilter())
        found = await arun(self._search(request), self._aasked)
        if self._lacks_vectors(found, vector) and await asyncio.to_thread(self._makes_them, found):
            found = await arun(self._search(request), self._aasked)
        return found

    def learn(self, version: int, size: int) -> None:
        """Note how the catalogue is now; every search learns it too.

        Args:
            version: Its version; 0 while nothing was ever written.
            size: How many tools it has.
        """
        self.version, self.size = version, size

    def _asked(self, question: _Question) -> _Answers:
        with self._database.read() as connection:
            return connection.execute(*question).fetchall()

    async def _aasked(self, question: _Question) -> _Answers:
        async with self._database.aread() as connection:
            return await (await connection.execute(*question)).fetchall()

    def _has_tools(self) -> Generator[_Question, _Answers, bool]:
        """Return whether there is anything to embed a query for; asked until it was seen."""
        if self.size:
            return True
        return bool((yield _Question(_ANY, {})))

    def _search(self, request: _Request) -> _Search:
        """Search; a plan that asks the database once, unless a predicate lets too few pass."""
        rows, candidates = yield from self._candidates(request)
        if not rows:
            self.learn(0, 0)
            return Evidence((), ScoreStatistics(), 0, dense_ready=False)
        state = rows[0]
        self.learn(state.version, state.tools)
        self._refuse_another(request.vector, state.dims)
        spread = yield from self._measured(state.measured)
        names = candidates.names(request.query)
        return Evidence(
            tools=candidates.best(request.query, request.candidates),
            statistics=_statistics(request.vector, state, spread),
            version=state.version,
            dense_ready=request.vector is not None and state.embedded == state.version,
            script_known=self._embedder.knows(request.query.text),
            names_alone=names.is_names(request.query),
            server=names.server(request.query),
        )

    def _candidates(
        self, request: _Request
    ) -> Generator[_Question, _Answers, tuple[list[Row], Candidates]]:
        """Return the rows of what all sources put forward; more of them as long as too few pass."""
        asked = request.candidates
        while True:
            answers = yield _Question(_HYBRID, self._values(request, asked))
            rows = [Row(*answer) for answer in answers]
            found = Candidates.of(rows, request.filter)
            if request.filter.predicate is None or found.suffice(request.candidates, asked):
                return rows, found
            asked *= _WIDER

    def _measured(self, version: int) -> Generator[_Question, _Answers, Spread]:
        """Return the spread that was measured at a version; it is read when it is another one."""
        if version != self._spread.version:
            answers = yield _Question(_SPREAD, {"space": self.vectors.space})
            self._spread = Spread.read(*answers[0]) if answers else UNKNOWN
        return self._spread

    def _values(self, request: _Request, candidates: int) -> dict[str, Any]:
        query, filter, predicate = request.query, request.filter, request.filter.predicate
        words, terms = asked_points(query.text), asked_terms(query.text)
        ranked = min(_RANKED, _COMPARED // max(len(terms), 1))
        return {
            "vector": None if request.vector is None else HalfVector(request.vector),
            "space": self.vectors.space,
            "terms": terms,
            "point_words": words,
            "any_point": any_of(words),
            "names": asked_names(query),
            "server": asked_server(query),
            "servers": _stored(filter.servers),
            "tags": _stored(filter.tags),
            "of_server": storable(predicate.key) if isinstance(predicate, OfServer) else None,
            "ids": None if filter.ids is None else _array(map(stored_id, filter.ids)),
            "required": all_of(asked_points(" ".join(query.required))),
            "candidates": candidates,
            "ranked": max(ranked, candidates),
            "documents": predicate is not None,
        }

    def _lacks_vectors(self, found: Evidence, vector: Vector | None) -> bool:
        """Return whether a search has missed vectors that may be made here."""
        return not (vector is None or found.dense_ready or found.version == self._read_only_at)

    def _makes_them(self, found: Evidence) -> bool:
        """Make the vectors that a search has missed; whether it is worth repeating."""
        if not self.vectors.may_be_made:
            self._read_only_at = found.version
            logger.warning(
                "tools without vectors are found by words alone until someone who may write to "
                "the database (%s) has made them",
                self._database.name,
            )
            return False
        if self._loading is not None:
            self._loading.start()
            raise StillLoadingError(self.vectors.missing())
        self.vectors.make()
        return True

    def _refuse_another(self, vector: Vector | None, dims: int | None) -> None:
        """Raise if a request's vector cannot be compared to those of tools."""
        if vector is not None and dims not in (None, len(vector)):
            raise EmbeddingError(
                f"{model_name(self._embedder.embeddings)} gave a vector of dimension "
                f"{len(vector)}, and the database has vectors of dimension {dims} by a model of "
                "this name: use the same dimension, or give the model another name"
            )

    def _refuse_to_wait(self) -> None:
        if self._loading is not None and not self._embedder.ready:
            self._embedder.raise_if_resting()
            self._loading.start()
            raise StillLoadingError(0)


def refuse_heads(heads: Heads | None) -> None:
    """Refuse heads, which move the vectors of tools.

    Args:
        heads: The heads; None for none.

    Raises:
        AdapterError: If there are any.
    """
    if heads is not None:
        raise AdapterError(
            heads.digest,
            "moves the vectors of tools, and a search in the database reads those the model made: "
            "use mode='replica', or no heads",
        )


def _statistics(vector: Vector | None, state: Row, spread: Spread) -> ScoreStatistics:
    dense = (0.0, 0.0) if vector is None else spread.scores(vector)
    lexical = state.lexical_mean or 0.0, state.lexical_deviation or 0.0
    return ScoreStatistics(*dense, *lexical, spread.outside)


def _stored(names: Collection[str] | None) -> list[str] | None:
    return None if names is None else sorted(map(storable, names))


def _array(texts: Iterable[str]) -> str:
    """Return the text of an array, which psycopg takes ten times as long to make of a list."""
    escaped = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "{" + ",".join(f'"{text}"' for text in escaped) + "}"


def _texts(queries: Sequence[str]) -> list[str]:
    """Return what is embedded of queries."""
    return [parse_query(query).text for query in queries]
