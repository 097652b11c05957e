"""The records of ingested tools: what was listed, and how it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from langchain_toolrag.errors import SourceError
from langchain_toolrag.types import ToolId
from langchain_toolrag.usage.records import Outcome

Kind: TypeAlias = Literal["mcp", "openapi", "python"]
"""What a source is: an MCP server, an OpenAPI document, or tools of a Python module."""


@dataclass(frozen=True, slots=True)
class StoredTool:
    """One tool that was ingested.

    Attributes:
        id: `<source>/<name>`.
        source: The name of its source, which is its server.
        kind: What its source is.
        name: Its name there.
        description: Its description; may be empty.
        parameters: JSON schema of its arguments, an object's.
        annotations: What the source says of its nature, in MCP's words: `title`, `readOnlyHint`,
            `destructiveHint`, `idempotentHint`, `openWorldHint`.
        tags: Labels of the source.
        call: What it takes to call it, besides its source: for an operation `method`, `path` and
            where each argument goes; nothing for an MCP tool.
    """

    id: ToolId
    source: str
    kind: Kind
    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    call: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredSource:
    """One source that was ingested; holds no secret.

    Attributes:
        name: Its name.
        kind: What it is.
        origin: Where it is listed from: a command, a URL, a file or `module:attribute`.
        connection: How it is reached; values of the environment by name, as `${NAME}`.
        config: The configuration file that literal values are read from again; empty for none.
        base_url: Where an OpenAPI document's operations are; empty for other kinds.
        listed_at: When it was listed last with success, ISO 8601 in UTC; empty for never.
        tools: How many tools it had then.
        failure: Why it could not be listed since; empty if it could.
    """

    name: str
    kind: Kind
    origin: str
    connection: Mapping[str, Any] = field(default_factory=dict)
    config: str = ""
    base_url: str = ""
    listed_at: str = ""
    tools: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """What one source had to say when it was listed.

    Attributes:
        source: The source.
        tools: Its tools, in its order; none where it failed.
        failure: Why it could not be listed; empty if it could.
    """

    source: StoredSource
    tools: Sequence[StoredTool] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call came to.

    Attributes:
        outcome: How it went.
        content: What the tool says, or what went wrong, as text.
        structured: The same as JSON, where the tool gives it and it is not too long.
        status: The HTTP status of an operation; None for others.
    """

    outcome: Outcome
    content: str
    structured: Any = None
    status: int | None = None


def checked_name(name: str, where: str) -> str:
    """Return the name of a source.

    Args:
        name: The name.
        where: What gave it, for the message.

    Returns:
        The same name.

    Raises:
        SourceError: If it is empty, has spaces around it or a slash or control character in it.
    """
    if not name or name != name.strip() or "/" in name or not name.isprintable():
        raise SourceError(
            where, f"a source cannot be named {name!r}: a tool's id is SOURCE/NAME, give it a word"
        )
    return name
