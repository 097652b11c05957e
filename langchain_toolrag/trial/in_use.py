"""A session in -> the heads that answer it, followed as they change, out."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from langchain_toolrag.errors import AdapterError
from langchain_toolrag.fork import reset_after_fork
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.trial.directory import HeadsDirectory
from langchain_toolrag.trial.state import HeadsState

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_CLOSE_SECONDS = 5.0
_BITS = 53  # As many as a float has.

_Signature: TypeAlias = tuple[int, ...] | None
_UNREAD: _Signature = ()  # No file has it.


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What `heads.json` says, with the heads themselves; None is the base model."""

    in_use: Heads | None = None
    candidate: Heads | None = None
    decided: frozenset[str] = frozenset()
    tenants: Mapping[str, Heads | None] = field(default_factory=dict)

    def on_trial_for(self, session: str, tenant: str) -> Heads | None:
        """Return the heads that are on trial for a session; None for none."""
        return self.candidate if session and tenant not in self.decided else None

    def by_digest(self) -> dict[str, Heads]:
        """Return all of them, by digest."""
        every = (self.in_use, self.candidate, *self.tenants.values())
        return {heads.digest: heads for heads in every if heads is not None}


class HeadsInUse:
    """The heads of a folder, those on trial for a share of the sessions.

    `chosen` takes a few microseconds. Once a second it looks whether `heads.json` is another one;
    then a thread reads it and its heads, which are in use once they can be used. Where they
    cannot, there is one warning for each cause, the old ones stay, and it is tried again.

    Safe under threads and forks.

    Args:
        directory: The folder; one that is not there means the base model.
        model: What the heads must have been trained on (`index.embedding.model_name`).
        candidate_share: Which share of the sessions the heads on trial answer, 0 to 1. The same
            session always has the same heads, and a larger share has the sessions of a smaller.
        prepare: Called in the thread with each of the new heads before they are in use; they
            are also if it raises.

    Raises:
        ValueError: If the share is not 0 to 1.
    """

    def __init__(
        self,
        directory: Path,
        model: str,
        *,
        candidate_share: float = 0.1,
        prepare: Callable[[Heads], None] | None = None,
    ) -> None:
        refuse_share(candidate_share)
        self._directory = HeadsDirectory(directory)
        self._model = model
        self._share = candidate_share
        self._prepare = prepare
        self._loaded = _Loaded()
        self._problem = ""
        self._warned: set[str] = set()
        self._closed = False
        self.after_fork()
        reset_after_fork(self)
        self._load(prepare=None)  # The first search builds what it needs.
        self._next_look = time.monotonic() + _LOOK_SECONDS

    @property
    def digest(self) -> str:
        """Digest of the heads in use for everybody; empty for the base model."""
        in_use = self._loaded.in_use
        return "" if in_use is None else in_use.digest

    @property
    def has_tenants(self) -> bool:
        """Whether some tenants have heads of their own: if not, a tenant makes no difference."""
        return bool(self._loaded.tenants)

    @property
    def problem(self) -> str:
        """Why the newest heads cannot be used; empty if they can."""
        return self._problem

    def chosen(self, session: str, tenant: str = "") -> Heads | None:
        """Return the heads that answer a session.

        Args:
            session: Names it; an empty one is never on trial.
            tenant: The digest of its tenant; empty for none.

        Returns:
            The heads; None for the base model.
        """
        if time.monotonic() >= self._next_look:
            self._look()
        loaded = self._loaded
        candidate = loaded.on_trial_for(session, tenant)
        if candidate is not None and _place(session, candidate.digest) < self._share:
            return candidate
        return loaded.tenants.get(tenant, loaded.in_use) if tenant else loaded.in_use

    def trial_of(self, session: str, tenant: str = "") -> str:
        """Return which heads are on trial for a session, whether they answer it or others.

        Where they cannot be used, or answer nobody, they are on trial for none.

        Args:
            session: Names it, as for `chosen`.
            tenant: The digest of its tenant, as for `chosen`.

        Returns:
            Their digest; empty for none.
        """
        candidate = self._loaded.on_trial_for(session, tenant)
        return "" if candidate is None else candidate.digest

    def close(self) -> None:
        """Look no more for changes; what is in use stays."""
        with self._lock:
            self._closed = True
            thread = self._thread
        if thread is not None:
            thread.join(_CLOSE_SECONDS)

    def after_fork(self) -> None:
        """Forget the parent's thread and lock, and look anew."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._seen: _Signature = _UNREAD
        self._next_look = 0.0

    def _look(self) -> None:
        self._next_look = math.inf if self._closed else time.monotonic() + _LOOK_SECONDS
        if not self._closed and self._signature() != self._seen:
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._closed or (self._thread is not None and self._thread.is_alive()):
                return
            thread = threading.Thread(
                target=self._load, args=(self._prepare,), name="toolrag-heads", daemon=True
            )
            with contextlib.suppress(RuntimeError):  # The process ends.
                thread.start()
                self._thread = thread

    def _load(self, prepare: Callable[[Heads], None] | None) -> None:
        """Read what is there now, and take it into use as far as it can be used."""
        seen = self._signature()
        loaded, problems = self._read()
        if problems and self._signature() != seen:  # Replaced meanwhile, the old files deleted.
            seen = self._signature()
            loaded, problems = self._read()
        self._prepare_new(loaded, prepare)
        if not self._closed:
            self._loaded = loaded
            self._problem = "; ".join(problems)
            self._seen = _UNREAD if problems else seen
        for problem in problems:
            self._warn_once(f"{problem}. Heads that were in use before stay so")

    def _read(self) -> tuple[_Loaded, list[str]]:
        """Return what can be used, the old in place of what cannot, and what is wrong with that."""
        try:
            return self._read_all(self._directory.state())
        except AdapterError as error:
            return self._loaded, [str(error)]

    def _read_all(self, state: HeadsState) -> tuple[_Loaded, list[str]]:
        old, problems = self._loaded, {}
        known = old.by_digest()

        def heads(digest: str, instead: Heads | None) -> Heads | None:
            if digest and digest not in known and digest not in problems:
                try:
                    known[digest] = self._directory.read(digest, self._model)
                except AdapterError as error:
                    problems[digest] = str(error)
            return instead if digest in problems else known.get(digest)

        in_use = heads(state.in_use, old.in_use)
        candidate = state.candidate if self._share else None
        loaded = _Loaded(
            in_use,
            heads(candidate.heads, None) if candidate else None,
            frozenset(candidate.decided if candidate else ()),
            {key: heads(own, old.tenants.get(key, in_use)) for key, own in state.tenants.items()},
        )
        return loaded, list(problems.values())

    def _prepare_new(self, loaded: _Loaded, prepare: Callable[[Heads], None] | None) -> None:
        if prepare is None:
            return
        known = self._loaded.by_digest()
        for digest, heads in loaded.by_digest().items():
            if digest not in known and not self._closed:
                try:
                    prepare(heads)
                except Exception as error:  # It only makes the first search faster.
                    self._warn_once(
                        f"heads {digest} could not be prepared for: {type(error).__name__}: "
                        f"{error}. They are in use; the first search with them takes longer"
                    )

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            logger.warning("%s", message)

    def _signature(self) -> _Signature:
        """Return what tells one `heads.json` from the next; None where there is none."""
        try:
            found = self._directory.state_file.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            return (error.errno or 0,)
        return found.st_ino, found.st_size, found.st_mtime_ns


def _place(session: str, candidate: str) -> float:
    """Return where a session stands among all, as good as drawn anew for each candidate: 0 to 1."""
    name = (session + candidate).encode("utf-8", "surrogatepass")
    drawn = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big")
    return (drawn >> (64 - _BITS)) / (1 << _BITS)


def refuse_share(candidate_share: float) -> None:
    """Refuse what is no share.

    Args:
        candidate_share: A share of the sessions.

    Raises:
        ValueError: If it is not 0 to 1.
    """
    if not 0 <= candidate_share <= 1:
        raise ValueError(f"candidate_share is {candidate_share}; wanted 0 to 1")
