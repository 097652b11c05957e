"""Requests' vectors in -> the same vectors, by the digests of the requests, out."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from langchain_toolrag.errors import SourceError, StaleIndexError, ToolRAGError
from langchain_toolrag.fork import reset_after_fork
from langchain_toolrag.types import Vector
from langchain_toolrag.usage.files import writing
from langchain_toolrag.vectors.cache_files import Table
from langchain_toolrag.vectors.journal import JournalFile

logger = logging.getLogger(__name__)

_KEY_BYTES = 16  # Of a digest's 32.


class RequestVector(NamedTuple):
    """A request as a model sees it.

    Attributes:
        model: Names the model (`index.embedding.model_name`).
        vector: What the model, and nothing after it, made of the request.
    """

    model: str
    vector: Vector


class DatedVector(NamedTuple):
    """The vector of one request.

    Attributes:
        day: Whose file it belongs to, in UTC.
        request: The digest of the request's text, 64 hexadecimal digits.
        vector: The vector.
    """

    day: date
    request: str
    vector: RequestVector


class RequestVectors:
    """The vectors of a usage log's requests, in its folder `vectors`: a file a day and a model.

    Args:
        directory: The log's directory; one that is not there has no vectors.
    """

    def __init__(self, directory: Path) -> None:
        self._folder = vector_folder(directory)

    def get(self, model: str, digests: Iterable[str]) -> dict[str, Vector]:
        """Return the vectors that are known, whichever process logged the requests.

        A file that is damaged is renamed to `<name>.corrupt-<n>`, with a warning; what stood in
        front of the damage is kept.

        Args:
            model: Names the model.
            digests: Digests of requests, as records have them; others are no matter.

        Returns:
            Read-only vectors of shape `(dim,)` by digest, in the order of the digests.
        """
        wanted = {_key(digest): digest for digest in digests if _is_digest(digest)}
        found: dict[bytes, Vector] = {}
        files = self._folder.glob(f"????-??-??-{_name(model)}.journal")
        for path in sorted(files, reverse=True):  # The latest first: most are found there.
            missing = wanted.keys() - found.keys()
            if not missing:
                break
            for table in _tables(path):
                rows = zip(table.keys, table.rows, strict=True)
                found.update((key, row) for key, row in rows if key in missing)
        return {digest: found[key] for key, digest in wanted.items() if key in found}


class VectorFiles:
    """Where the vectors of requests are written, each once a day; safe under processes and forks.

    Args:
        directory: The log's directory.
    """

    def __init__(self, directory: Path) -> None:
        self._folder = vector_folder(directory)
        self.after_fork()
        reset_after_fork(self)

    def write(self, vectors: Sequence[DatedVector]) -> int:
        """Write the first of some vectors: those of one day and one model.

        Args:
            vectors: The vectors; at least one.

        Returns:
            How many there were of that day and model. Those that are no finite vectors of the
            model's dimension are left out, with a warning; so are all where a newer version of
            this package has begun the file.

        Raises:
            OSError: If they cannot be written.
        """
        (day, model), first = next(groupby(vectors, lambda each: (each.day, each.vector.model)))
        batch = list(first)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file(day, model).append({_key(each.request): each.vector.vector for each in batch})
        return len(batch)

    def after_fork(self) -> None:
        """Forget how far files have been read: the parent may have been reading on."""
        self._files: dict[Path, _VectorFile] = {}

    def _file(self, day: date, model: str) -> _VectorFile:
        path = self._folder / f"{day.isoformat()}-{_name(model)}.journal"
        if path not in self._files:
            begun = {path: file for path, file in self._files.items() if path.name[:10] == str(day)}
            self._files = {**begun, path: _VectorFile(path)}
        return self._files[path]


class _VectorFile:
    """A journal of vectors of which the keys alone are kept in memory."""

    def __init__(self, path: Path) -> None:
        self._journal = JournalFile(path)
        self._keys: set[bytes] = set()
        self._identity = b""
        self._dim: int | None = None
        self._has_warned = False

    def append(self, vectors: Mapping[bytes, Vector]) -> None:
        with writing(self._journal.path.parent):
            try:
                self._look()
            except StaleIndexError as error:
                return self._warn_once(f"vectors are left out: {error}")
            table = self._new(vectors)
            if table.keys:
                self._journal.position = self._journal.append(table)
                self._know([table])

    def _look(self) -> None:
        """Learn what other processes wrote; the caller has the lock."""
        tables = _read(self._journal, self._dim)
        if self._journal.position.identity != self._identity:  # The file was taken away.
            self._keys, self._dim = set(), None
        self._know(tables)

    def _know(self, tables: Iterable[Table]) -> None:
        self._identity = self._journal.position.identity
        for table in tables:
            self._keys.update(table.keys)
            self._dim = table.rows.shape[1]

    def _new(self, vectors: Mapping[bytes, Vector]) -> Table:
        """Return the vectors that are not there yet and can be written."""
        dim, new = self._dim, {}
        for key, vector in vectors.items():
            if not _is_usable(vector, dim):
                wanted = "dim" if dim is None else dim
                self._warn_once(
                    f"a request's vector is left out: it has shape {vector.shape}; wanted finite "
                    f"numbers of shape ({wanted},). Its line is written all the same"
                )
            elif key not in self._keys:
                dim, new[key] = len(vector), vector
        return Table(list(new), np.array(list(new.values()), np.float32))

    def _warn_once(self, problem: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("usage log %s: %s", self._journal.path, problem)


def vector_folder(directory: Path) -> Path:
    """Return where the vectors of a usage log's requests are."""
    return directory / "vectors"


def _tables(path: Path) -> Iterator[Table]:
    """Yield what a file holds; one that cannot be read holds nothing, with a warning."""
    journal = JournalFile(path)
    try:
        try:
            yield from journal.read(None)
        except SourceError:  # It may be half written: only the lock tells.
            with writing(path.parent):
                yield from _read(journal, None)
    except (OSError, ToolRAGError) as error:
        logger.warning("usage log: the vectors in %s cannot be read: %s", path, error)


def _read(journal: JournalFile, dim: int | None) -> list[Table]:
    """Return what is new in a journal, which is repaired; the caller has the lock."""
    try:
        return journal.read(dim)
    except SourceError as damage:
        aside = journal.set_aside()
        logger.warning("usage log: %s; it is set aside as %s", damage, aside.name)
        return journal.read(None)


def _name(model: str) -> str:
    return hashlib.blake2b(model.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _is_digest(text: str) -> bool:
    return len(text) == 4 * _KEY_BYTES and set(text) <= set("0123456789abcdef")


def _key(digest: str) -> bytes:
    return bytes.fromhex(digest[: 2 * _KEY_BYTES])


def _is_usable(vector: Vector, dim: int | None) -> bool:
    if vector.ndim != 1 or not len(vector) or (dim is not None and len(vector) != dim):
        return False
    return bool(np.isfinite(vector).all())
