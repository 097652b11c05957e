"""An mcp.json, or a command line, in -> sources that hold no secret, and their connections, out.

What is stored of a source that an mcp.json describes is what names nothing private: its command
or address, and the names of its variables and headers. The rest is read again from the file
when a session is opened. A value written `${NAME}` is stored as it is, and means the variable
of the environment.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from langchain_toolrag.catalogue.sources.json_files import first_fault, read_json
from langchain_toolrag.catalogue.sources.stored import StoredSource, checked_name
from langchain_toolrag.catalogue.sources.urls import is_url, split_url, without_secrets
from langchain_toolrag.errors import SourceError

_TRANSPORTS = {
    "stdio": "stdio",
    "http": "streamable_http",
    "streamable-http": "streamable_http",
    "streamable_http": "streamable_http",
    "streamablehttp": "streamable_http",
    "sse": "sse",
}
_VARIABLE = re.compile(r"\$\{(?:env:)?(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}")
# A variable alone, or behind a word such as `Bearer`: nothing else of it can be a secret.
_TEMPLATE = re.compile(r"(?:[A-Za-z]+ )?\$\{(?:env:)?[A-Za-z_]\w*\}")
_PRIVATE = re.compile(r"(?i)key$|token$|secret|passw|credential|signature|\bauth(?!ors?\b)")
# What well-known services begin their keys with, and the parts of an address that no one chose.
_KEY = re.compile(r"\b(?:sk-|gh[opsu]_|github_pat_|glpat-|xox[abprs]-|AKIA|eyJ)[\w-]{12,}")
_CHANCE = re.compile(r"(?=.*\d)(?=.*[a-z])(?=.*[A-Z])[\w-]{20,}|[0-9a-f-]{24,}")
_HEADER = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9-]*):(?!//)\s*(?P<value>.+)")
_HIDDEN = "***"


class _Server(BaseModel):
    """One server of an mcp.json, as Claude, Cursor and VS Code write it."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    type: str | None = Field(None, validation_alias=AliasChoices("type", "transport"))
    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    disabled: bool = False


def configured_sources(config: str | Path) -> list[StoredSource]:
    """Read the servers of an mcp.json.

    Args:
        config: The file: an object with `mcpServers` or, as VS Code has it, `servers`.

    Returns:
        One source a server, without those that are disabled, in the order of the file.

    Raises:
        SourceError: If it cannot be read or a server's description makes no sense.
    """
    path = Path(config).resolve()
    connections = {
        name: _connection(server, f"{path}: server {name!r}")
        for name, server in _servers(path).items()
        if not server.disabled
    }
    if not connections:
        raise SourceError(str(path), "describes no server that is not disabled")
    return [
        StoredSource(
            name=checked_name(name, str(path)),
            kind="mcp",
            origin=_origin(connection),
            connection=_without_secrets(connection),
            config=str(path),
        )
        for name, connection in connections.items()
    ]


def given_source(text: str) -> StoredSource:
    """Read a server that is given on a command line.

    Args:
        text: `NAME=COMMAND` with arguments, quoted as for a shell, or `NAME=URL`.

    Returns:
        The source. What it takes to reach it is stored as it is given.

    Raises:
        SourceError: If it is neither, or holds what looks like a secret.
    """
    name, _, given = text.partition("=")
    given = given.strip()
    # A command without a name may have a `=` in it, too.
    if not given or len(name.split()) > 1 or name.startswith("-"):
        raise SourceError("--server", 'wanted NAME="COMMAND ARGUMENTS" or NAME=URL')
    checked_name(name, "--server")
    connection = _address(given) if is_url(given) else _command(given, name)
    found = _literal_secret(connection)
    if found is not None:
        raise SourceError(
            name,
            f"{found} looks like a secret, which would be stored as it is: write '${{NAME}}' and "
            "set NAME in the environment, or describe the server in an mcp.json (--config)",
        )
    return StoredSource(name=name, kind="mcp", origin=given, connection=connection)


def connection_of(source: StoredSource, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what it takes to reach a source now, as langchain-mcp-adapters takes it.

    Args:
        source: The source.
        environment: The variables that `${NAME}` means.

    Returns:
        The connection; it may hold secrets.

    Raises:
        SourceError: If a variable is not set, or the configuration no longer describes the source.
    """
    connection: Mapping[str, Any] = source.connection
    if source.config:
        server = _servers(Path(source.config)).get(source.name)
        if server is None:
            raise SourceError(
                source.config,
                f"describes no server {source.name!r} any more: put it back, or ingest again",
            )
        again = _connection(server, f"{source.config}: server {source.name!r}")
        connection = {"cwd": source.connection.get("cwd"), **again}
    return {
        key: expanded(value, environment, where=f"{source.name}: {key}")
        for key, value in connection.items()
        if value is not None
    }


def expanded(value: Any, environment: Mapping[str, str], *, where: str) -> Any:
    """Return a value with the variables it names put in.

    Args:
        value: A text, or a list or mapping of texts; `${NAME}` and `${env:NAME}` mean a variable,
            `${NAME:-TEXT}` one that need not be set.
        environment: The variables.
        where: What holds the value, for the message.

    Returns:
        The same with the variables' values.

    Raises:
        SourceError: If a variable is not set; names it.
    """
    if isinstance(value, Mapping):
        return {
            key: expanded(each, environment, where=f"{where} {key}") for key, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [expanded(each, environment, where=where) for each in value]
    if not isinstance(value, str):
        return value
    if "${input:" in value:
        raise SourceError(where, "asks for an input of VS Code; write ${NAME} for a variable")

    def put_in(found: re.Match[str]) -> str:
        name, default = found["name"], found["default"]
        known = environment.get(name, default)
        if known is None:
            raise SourceError(where, f"needs the environment variable {name}, which is not set")
        return known

    return _VARIABLE.sub(put_in, value)


def is_template(value: str) -> bool:
    """Return whether a text is `${NAME}`, or that behind one word, such as `Bearer ${NAME}`."""
    return _TEMPLATE.fullmatch(value) is not None


def _servers(path: Path) -> dict[str, _Server]:
    value = read_json(path)
    listed = _listed(value)
    if listed is None:
        raise SourceError(
            str(path), "wanted an object with 'mcpServers' (or VS Code's 'servers') of servers"
        )
    servers = {}
    for name, each in listed.items():
        try:
            servers[str(name)] = _Server.model_validate(each)
        except ValidationError as error:
            raise SourceError(str(path), f"server {name!r}: {_fault(error)}") from error
    return servers


def _listed(value: Any) -> Mapping[str, Any] | None:
    for key in ("mcpServers", "servers"):
        if isinstance(value, dict) and isinstance(value.get(key), dict):
            listed: Mapping[str, Any] = value[key]
            return listed
    return None


def _fault(error: ValidationError) -> str:
    """Say what is wrong without what was found, which may be a secret."""
    return first_fault(error).split("; found ")[0]


def _connection(server: _Server, where: str) -> dict[str, Any]:
    """Return a server's connection, with everything it needs that is not the current folder."""
    if (server.command is None) == (server.url is None):
        raise SourceError(where, "wanted either a 'command' or a 'url'")
    transport = _transport(server, where)
    if transport == "stdio":
        if server.command is None:
            raise SourceError(where, "is of type 'stdio' and has no 'command'")
        connection: dict[str, Any] = {"command": server.command, "args": server.args}
        connection.update(env=server.env or None, cwd=server.cwd)
    else:
        if server.url is None:
            raise SourceError(where, f"is of type {server.type!r} and has no 'url'")
        connection = {"url": server.url, "headers": server.headers or None}
    given = {key: value for key, value in connection.items() if value is not None}
    return {"transport": transport, **given}


def _transport(server: _Server, where: str) -> str:
    if server.type is None:
        if server.url is None:
            return "stdio"
        return str(_address(server.url)["transport"])
    transport = _TRANSPORTS.get(server.type.lower())
    if transport is None:
        raise SourceError(
            where, f"is of type {server.type!r}; wanted 'stdio', 'http' (streamable) or 'sse'"
        )
    return transport


def _address(url: str) -> dict[str, Any]:
    """Return the connection of a URL; one that ends in `/sse` is the older transport."""
    older = split_url(url).path.rstrip("/").endswith("/sse")
    return {"transport": "sse" if older else "streamable_http", "url": url}


def _command(text: str, name: str) -> dict[str, Any]:
    """Return the connection of a command; it is run in the current folder, later too."""
    try:
        command, *arguments = shlex.split(text)
    except ValueError as error:
        raise SourceError(name, f"the command cannot be read: {error}") from error
    return {
        "transport": "stdio",
        "command": command,
        "args": arguments,
        "cwd": str(Path.cwd()),
    }


def _origin(connection: Mapping[str, Any]) -> str:
    """Return what a source is listed from: the command's name, or the address."""
    if "url" in connection:
        return _shown(connection["url"])
    return str(connection["command"])


def _without_secrets(connection: Mapping[str, Any]) -> dict[str, Any]:
    """Return what may be stored of a connection: values that are no templates become None."""
    stored = {key: connection[key] for key in ("transport", "command") if key in connection}
    if "url" in connection:
        stored["url"] = _shown(connection["url"])
    else:
        stored["cwd"] = connection.get("cwd") or str(Path.cwd())
    for key in ("env", "headers"):
        if key in connection:
            values = connection[key].items()
            stored[key] = {name: each if is_template(each) else None for name, each in values}
    return stored


def _shown(url: str) -> str:
    """Return an address without what may be secret; some services put a key into the path."""
    parts = split_url(without_secrets(url))
    steps = (_HIDDEN if _CHANCE.fullmatch(step) else step for step in parts.path.split("/"))
    return parts._replace(path="/".join(steps)).geturl()


def _literal_secret(connection: Mapping[str, Any]) -> str | None:
    """Return which part of a connection looks like a secret; None for none."""
    if "url" in connection:
        return _secret_of_address(connection["url"])
    arguments = [*connection["args"], ""]
    for argument, following in itertools.pairwise(arguments):
        name, value = _named_value(argument, following)
        if _PRIVATE.search(name) and value and "${" not in value:
            return f"the value of {name}"
        if "://" in argument and (found := _secret_of_address(argument)):
            return found
        if _KEY.search(argument):
            return "one of the arguments"
    return None


def _named_value(argument: str, following: str) -> tuple[str, str]:
    """Return what an argument says and of what: an option's, a variable's, a header's value."""
    header = _HEADER.fullmatch(argument)
    if header is not None:
        return header["name"], header["value"]
    name, equals, value = argument.partition("=")
    if equals:
        return name, value
    if argument.startswith("-") and not following.startswith("-"):
        return argument, following
    return "", ""


def _secret_of_address(url: str) -> str | None:
    parts, shown = split_url(url), _shown(url)
    user = parts.netloc.rpartition("@")[0]
    if ":" in user and "${" not in user:
        return f"the password of {shown}"
    for name, value in parse_qsl(parts.query):
        if (_PRIVATE.search(name) or _KEY.search(value)) and "${" not in value:
            return f"{name!r} of {shown}"
    return f"{_HIDDEN} of {shown}" if _HIDDEN in shown else None
