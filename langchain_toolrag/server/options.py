"""How a server answers, and to whom."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field

from langchain_toolrag.trial.in_use import refuse_share

_AUTHORITY = re.compile(
    r"(?:\[([0-9a-f]*:[0-9a-f:.]*)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?", re.IGNORECASE
)
_KEY = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a server answers, and to whom.

    Attributes:
        host: The address to listen on.
        port: The port to listen on; 0 for any that is free.
        api_key: What a caller must send; empty for nothing, which only a loopback address may have.
        allowed_hosts: Names, besides `host` and the loopback's, that callers may reach it by.
        allow_write: Whether tools that change something may be called.
        allow_private: Whether operations at private addresses may be called, though it is the
            document rather than the user that names the address.
        usage_log: Whether searches and calls are logged.
        log_text: Whether the log has requests and arguments as they are, not digests alone.
        candidate_share: Which share of the sessions is answered by heads on trial, 0 to 1.
        call_timeout: How long a call may take that names no time of its own, in seconds.
        most_request_bytes: The longest body of a request.
        most_result_characters: How much of a tool's result is passed on.
        drain_seconds: How long requests may go on once the server is told to stop.

    Raises:
        ValueError: If there is no key and the address is not a loopback address, if the key could
            not be sent as it is, if an allowed host is no name, or if the share is not 0 to 1.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    api_key: str = field(default="", repr=False)
    allowed_hosts: tuple[str, ...] = ()
    allow_write: bool = False
    allow_private: bool = False
    usage_log: bool = True
    log_text: bool = False
    candidate_share: float = 0.1
    call_timeout: float = 30.0
    most_request_bytes: int = 1_000_000
    most_result_characters: int = 200_000
    drain_seconds: int = 10

    def __post_init__(self) -> None:
        if self.api_key and not _KEY.fullmatch(self.api_key):
            raise ValueError(
                "the key has spaces, line ends or characters beyond ASCII, which headers do not "
                "carry as they are: wanted letters, digits and signs"
            )
        if not self.api_key and not is_loopback(self.host):
            raise ValueError(
                f"host is {self.host!r} and there is no key: anybody who reaches it could call "
                "the tools. Set TOOLRAG_API_KEY, or listen on 127.0.0.1"
            )
        refuse_share(self.candidate_share)
        for name in self.allowed_hosts:
            if not host_of(bracketed(name)):
                raise ValueError(
                    f"the allowed host {name!r} is no name: wanted one as in tools.example.com, "
                    "without https:// and path, and without *"
                )


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address; an unknown name is no such address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_of(authority: str) -> str:
    """Return the name or address in a Host header, or after the scheme of an origin.

    Args:
        authority: What was sent.

    Returns:
        It in lower case, without port and brackets; empty for what is none.
    """
    found = _AUTHORITY.fullmatch(authority)
    return (found[1] or found[2]).lower() if found else ""


def bracketed(host: str) -> str:
    """Return a host as headers have it: an IPv6 address in brackets."""
    is_address = host.count(":") > 1 and "[" not in host
    return f"[{host}]" if is_address else host
