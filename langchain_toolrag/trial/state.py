"""`heads.json` in -> which heads are in use, on trial and a tenant's own out, and back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

_VERSION = 1
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Candidate:
    """Heads on trial.

    Attributes:
        heads: Their digest.
        since: When the trial began, in UTC.
        decided: Digests of the tenants that the trial has ended for, sorted.
    """

    heads: str
    since: datetime
    decided: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeadsState:
    """Which heads answer whom. Heads are named by the digest of their file; empty for none.

    Attributes:
        in_use: Those in use for everybody who has no others.
        previous: Those that were in use before them.
        candidate: Those on trial; None for none.
        tenants: Those of the tenants that have their own, by the tenant's digest.
    """

    in_use: str = ""
    previous: str = ""
    candidate: Candidate | None = None
    tenants: Mapping[str, str] = field(default_factory=dict)

    def of_tenant(self, tenant: str) -> str:
        """Return the heads that answer a tenant's sessions that are not on trial.

        Args:
            tenant: The tenant's digest; empty for none.

        Returns:
            Their digest; empty for none.
        """
        return self.tenants.get(tenant, self.in_use) if tenant else self.in_use

    def named(self) -> frozenset[str]:
        """Return the digests of all heads that are named."""
        on_trial = self.candidate.heads if self.candidate else ""
        named = {self.in_use, self.previous, on_trial, *self.tenants.values()}
        return frozenset(named - {""})


def state_as_json(state: HeadsState) -> bytes:
    """Return what `read_state` takes.

    Args:
        state: The state.

    Returns:
        A JSON object.
    """
    candidate = state.candidate
    value = {
        "v": _VERSION,
        "in_use": state.in_use,
        "previous": state.previous,
        "candidate": candidate
        and {
            "heads": candidate.heads,
            "since": candidate.since.isoformat(timespec="microseconds"),
            "decided": list(candidate.decided),
        },
        "tenants": dict(sorted(state.tenants.items())),
    }
    return json.dumps(value, indent=1).encode("ascii") + b"\n"


def read_state(content: bytes) -> HeadsState:
    """Return the state that a `heads.json` holds.

    Args:
        content: What `state_as_json` returned, or anything.

    Returns:
        The state.

    Raises:
        ValueError: If it is no state of this version; says what was found and wanted.
    """
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON ({error})") from error
    if not isinstance(value, dict) or value.get("v") != _VERSION:
        found = f"version {value.get('v')!r}" if isinstance(value, dict) else repr(value)
        raise ValueError(f"found {found[:80]}; wanted version {_VERSION}")
    return HeadsState(
        in_use=_heads(value, "in_use"),
        previous=_heads(value, "previous"),
        candidate=_candidate(value.get("candidate")),
        tenants=_tenants(value.get("tenants")),
    )


def _candidate(value: Any) -> Candidate | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError(f"its candidate is {value!r}; wanted an object or null")
    decided = value.get("decided")
    if not isinstance(decided, list) or not all(isinstance(each, str) for each in decided):
        raise ValueError(f"its candidate has decided {decided!r}; wanted a list of digests")
    heads = _heads(value, "heads")
    if not heads:
        raise ValueError("its candidate names no heads; wanted 64 hexadecimal digits, or null")
    return Candidate(heads, _time(value.get("since")), tuple(decided))


def _tenants(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"its tenants are {value!r}; wanted an object")
    return {tenant: _heads(value, tenant) for tenant in value}


def _heads(value: Mapping[str, Any], key: str) -> str:
    found = value.get(key)
    if not isinstance(found, str) or (found and not _DIGEST.fullmatch(found)):
        raise ValueError(f"the heads of {key!r} are {found!r}; wanted 64 hexadecimal digits or ''")
    return found


def _time(value: Any) -> datetime:
    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"its candidate is there since {value!r}; wanted an ISO time") from error
    if found.tzinfo is None:
        raise ValueError(f"its candidate is there since {value!r}; wanted a time with its zone")
    try:
        return found.astimezone(timezone.utc)
    except OverflowError as error:
        raise ValueError(f"its candidate is there since {value!r}; no time in UTC") from error
