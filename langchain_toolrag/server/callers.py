"""A request's headers -> who asks."""

from __future__ import annotations

from starlette.datastructures import Headers

from langchain_toolrag.server.answers import BadRequestError

TENANT = "X-Toolrag-Tenant"
"""The header that names whose data a request is about. It is believed: whoever has the server's
key may name any tenant, so let what stands in front of the server set it."""

SESSION = "Mcp-Session-Id"
"""MCP's own header, which a client sends back as it was given."""

MOST_NAME = 256
"""Characters that the name of a session or a tenant may have."""


def tenant_of(headers: Headers) -> str:
    """Return the tenant that a request names.

    Args:
        headers: The request's headers.

    Returns:
        The tenant; empty for none.

    Raises:
        BadRequestError: If the name is too long.
    """
    return _named(headers, TENANT)


def session_of(headers: Headers) -> str:
    """Return the MCP session that a request names.

    Args:
        headers: The request's headers.

    Returns:
        The session; empty for none.

    Raises:
        BadRequestError: If the name is too long.
    """
    return _named(headers, SESSION)


def _named(headers: Headers, header: str) -> str:
    name = headers.get(header, "").strip()
    if len(name) > MOST_NAME:
        raise BadRequestError(f"{header}: found {len(name)} characters; wanted at most {MOST_NAME}")
    return name
