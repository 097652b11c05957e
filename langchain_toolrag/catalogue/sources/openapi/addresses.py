"""A host in -> its addresses, and whether they are public, out."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # An IPv4 address in the last 32 bits.

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


async def resolve(host: str, port: int) -> list[str]:
    """Resolve a host.

    Args:
        host: A name, or an address in any spelling the system takes (`0x7f.1` is one).
        port: The port.

    Returns:
        Its addresses, best first, without repeats.

    Raises:
        OSError: If it has none.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(where[0]) for *_, where in found))


def has_private_address(host: str) -> bool:
    """Return whether a host has an address now that is not public; False for one without any."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return not all(is_public(str(where[0])) for *_, where in found)


def is_public(address: str) -> bool:
    """Return whether an address is one of the open internet.

    Private, loopback, link-local, shared, multicast and reserved addresses are not, whether
    written as IPv4, as IPv6, or as IPv4 inside IPv6 (mapped, 6to4, Teredo, NAT64).
    """
    parsed = ipaddress.ip_address(address)
    return all(one.is_global and not one.is_multicast for one in (parsed, *_inside(parsed)))


def _inside(address: Address) -> list[Address]:
    """Return the IPv4 addresses that an IPv6 address leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    inside: list[Address | None] = [address.ipv4_mapped, address.sixtofour]
    inside += address.teredo or ()
    if address in _NAT64:
        inside.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [one for one in inside if one is not None]
