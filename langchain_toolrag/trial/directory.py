"""A folder of heads: which of them answer, changed at once or not at all.

heads/
    heads.json                says which are in use, on trial, a tenant's own
    <digest>.safetensors      heads, never changed, named by the digest of the file
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from filelock import FileLock, Timeout

from langchain_toolrag.atomic import write_whole
from langchain_toolrag.errors import AdapterError
from langchain_toolrag.index.adapter import Adapter, content_digest, write_adapter
from langchain_toolrag.index.heads import Heads, read_heads
from langchain_toolrag.trial.state import Candidate, HeadsState, read_state, state_as_json

_PATIENCE = 10.0  # Seconds; longer than anybody needs to write one file of heads.
_NOTHING_ON_TRIAL = "nothing is on trial; `toolrag learn` makes heads"
_OURS = re.compile(r"([0-9a-f]{64})\.safetensors")
_PARTS = ("new.part", ".new.part.*", ".heads.json.*")


class HeadsDirectory:
    """A folder of heads, of which one small file says who is answered with which.

    Safe under threads and processes: of two changes at once the second changes what the first
    left, and whoever reads sees the old state or the new one, also after `kill -9` or a power
    cut at any moment.

    Args:
        path: The folder; made by the first `put_on_trial`. One without `heads.json`, or none,
            means the base model.

    Attributes:
        path: The folder.
        state_file: Its `heads.json`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.state_file = self.path / "heads.json"

    def state(self) -> HeadsState:
        """Read which heads answer whom.

        Returns:
            The state; an empty one where there is no file.

        Raises:
            AdapterError: If the file cannot be read, is torn or another version's.
        """
        try:
            return read_state(self.state_file.read_bytes())
        except FileNotFoundError:
            return HeadsState()
        except OSError as error:
            raise AdapterError(self.state_file, f"cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise AdapterError(
                self.state_file,
                f"{error}. Put back what was there, or remove the file to begin with the base "
                "model again",
            ) from error

    def read(self, digest: str, model: str = "") -> Heads:
        """Read heads.

        Args:
            digest: Their digest, 64 hexadecimal digits.
            model: What they must have been trained on (`index.embedding.model_name`); empty for
                any.

        Returns:
            The heads.

        Raises:
            AdapterError: If they are not there, were edited or damaged, or are another model's.
        """
        path = self._file_of(digest)
        try:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise AdapterError(path, f"cannot be read: {error.strerror}") from error
        if found != digest:
            raise AdapterError(
                path,
                f"its content has the digest {found}; wanted {digest}, its name. It was edited "
                "or damaged: put back the file, or take it out of use with `toolrag ab`",
            )
        return read_heads(path, model)

    def put_on_trial(self, adapter: Adapter) -> str:
        """Make heads the candidate, in the place of one that is there.

        Files that `heads.json` does not name any more are deleted.

        Args:
            adapter: What was learned, of kind `heads`.

        Returns:
            The digest of its file.

        Raises:
            AdapterError: If it cannot be used as heads, is in use already, or cannot be written.
        """
        with self._changing(make=True) as state:
            digest = self._write_heads(adapter, state)
            if digest == state.in_use:
                raise AdapterError(self._file_of(digest), "is in use already: nothing to try")
            own = sorted(tenant for tenant, heads in state.tenants.items() if heads == digest)
            candidate = Candidate(digest, datetime.now(timezone.utc), tuple(own))
            state = replace(state, candidate=candidate)
            self._write(state)
            self._delete_others(state)
        return digest

    def promote(self, tenant: str = "", *, candidate: str = "") -> None:
        """Take the candidate into use.

        For everybody the trial ends: tenants that decided about this candidate keep what they
        decided for, the others have what everybody has. For a tenant its own trial ends, and
        that of the others goes on.

        Args:
            tenant: Whose digest; empty for everybody.
            candidate: Digest of the heads that must be on trial; empty for any.

        Raises:
            AdapterError: If nothing is on trial, or other heads are, or it cannot be written.
        """
        with self._changing() as state:
            self._check_candidate(state, candidate)
            if state.candidate is None:
                raise AdapterError(self.path, _NOTHING_ON_TRIAL)
            if tenant:
                self._write(_decided(state, state.candidate, tenant, state.candidate.heads))
            else:
                self._write(_promoted(state, state.candidate))

    def roll_back(self, tenant: str = "", *, candidate: str = "") -> None:
        """End the trial and keep what is in use; without a trial, undo the last promotion.

        A tenant keeps its own heads, where it has taken the candidate into use those of
        everybody; without a trial it has those of everybody.

        Args:
            tenant: Whose digest; empty for everybody.
            candidate: Digest of the heads that must be on trial; empty for any or none.

        Raises:
            AdapterError: If there is nothing to end or undo, or other heads are on trial, or it
                cannot be written.
        """
        with self._changing() as state:
            self._check_candidate(state, candidate)
            self._write(_tenant_undone(state, tenant) if tenant else self._undone(state))

    def _check_candidate(self, state: HeadsState, wanted: str) -> None:
        """Refuse to decide about heads by what was seen of others."""
        found = state.candidate.heads if state.candidate else "nothing"
        if wanted and found != wanted:
            raise AdapterError(
                self.path, f"{found} is on trial by now; wanted {wanted}: look at the new one first"
            )

    def _undone(self, state: HeadsState) -> HeadsState:
        if state.candidate is not None:
            return replace(state, candidate=None)
        if state.in_use == state.previous:
            raise AdapterError(self.path, "nothing is on trial, and there is nothing to undo")
        return replace(state, in_use=state.previous)

    @contextlib.contextmanager
    def _changing(self, *, make: bool = False) -> Iterator[HeadsState]:
        """Keep others from changing the state, and clear away what one that died left."""
        try:
            if not make and not self.state_file.exists():
                raise AdapterError(self.path, _NOTHING_ON_TRIAL)  # And no folder is made for it.
            self.path.mkdir(parents=True, exist_ok=True)
            with FileLock(self.path / ".lock", timeout=_PATIENCE):
                for part in (part for pattern in _PARTS for part in self.path.glob(pattern)):
                    part.unlink(missing_ok=True)
                yield self.state()
        except Timeout as error:
            problem = f"another process has held its lock for {_PATIENCE:.0f} seconds"
            raise AdapterError(self.path, problem) from error
        except OSError as error:
            raise AdapterError(self.path, f"cannot be written: {error.strerror}") from error

    def _write_heads(self, adapter: Adapter, state: HeadsState) -> str:
        """Write heads under their digest, once they can be read again."""
        part = self.path / "new.part"
        try:
            write_adapter(adapter, part)
            heads = read_heads(part)
            digest = self._same(heads, state)
            if not digest:
                digest = heads.digest
                part.replace(self._file_of(digest))
        finally:
            part.unlink(missing_ok=True)
        _sync_names(self.path)
        return digest

    def _same(self, heads: Heads, state: HeadsState) -> str:
        """Return which heads of the state are the same ones; empty for none.

        What is written twice is not the same file: the order in its header is random.
        """
        content = content_digest(heads.adapter)
        for digest in sorted(state.named()):
            with contextlib.suppress(AdapterError):
                if content_digest(self.read(digest).adapter) == content:
                    return digest
        return ""

    def _write(self, state: HeadsState) -> None:
        write_whole(self.state_file, state_as_json(state))
        _sync_names(self.path)

    def _delete_others(self, state: HeadsState) -> None:
        named = state.named()
        for path in self.path.iterdir():
            ours = _OURS.fullmatch(path.name)
            if ours and ours[1] not in named:
                path.unlink(missing_ok=True)

    def _file_of(self, digest: str) -> Path:
        return self.path / f"{digest}.safetensors"


def _promoted(state: HeadsState, candidate: Candidate) -> HeadsState:
    own = {tenant: state.tenants[tenant] for tenant in candidate.decided if tenant in state.tenants}
    return HeadsState(in_use=candidate.heads, previous=state.in_use, tenants=own)


def _decided(state: HeadsState, candidate: Candidate, tenant: str, heads: str) -> HeadsState:
    decided = tuple(sorted({*candidate.decided, tenant}))
    return replace(
        state,
        candidate=replace(candidate, decided=decided),
        tenants={**state.tenants, tenant: heads},
    )


def _tenant_undone(state: HeadsState, tenant: str) -> HeadsState:
    own = state.of_tenant(tenant)
    if state.candidate is not None:
        heads = state.in_use if own == state.candidate.heads else own
        return _decided(state, state.candidate, tenant, heads)
    if tenant not in state.tenants:
        raise AdapterError(f"of tenant {tenant}", "nothing is on trial, and it has none of its own")
    return replace(state, tenants={key: own for key, own in state.tenants.items() if key != tenant})


def _sync_names(directory: Path) -> None:
    """Have the disk know a folder's names before anything that relies on them is written."""
    if os.name == "nt":  # Has no such thing.
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
