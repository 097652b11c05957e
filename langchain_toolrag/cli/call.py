"""`toolrag call`: a tool's id and arguments in -> what the call comes to out."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import sys
from collections.abc import Sequence
from typing import Any

from langchain_toolrag.catalogue.catalogue import build_catalogue
from langchain_toolrag.catalogue.sources.directory_tools import definitions
from langchain_toolrag.catalogue.sources.stored import StoredTool
from langchain_toolrag.cli.arguments import Commands, at_least_one
from langchain_toolrag.cli.directory import shown_warnings
from langchain_toolrag.cli.stores import add_store_arguments, opened_store
from langchain_toolrag.errors import SourceError, UnknownToolError

_FAILED = 1


def register(commands: Commands) -> None:
    """Add the command to the parser."""
    call = commands.add_parser("call", help="call an ingested tool, once")
    call.set_defaults(run=_call)
    call.add_argument("id", metavar="ID", help="SOURCE/NAME, or the name a model sees")
    call.add_argument(
        "arguments", metavar="JSON", nargs="?", default="{}", help="an object (default: {})"
    )
    add_store_arguments(call)
    call.add_argument(
        "--timeout",
        type=at_least_one,
        default=30,
        metavar="SECONDS",
        help="how long the call may take, once its server has started (default: %(default)s)",
    )
    call.add_argument(
        "--allow-write",
        action="store_true",
        help="call operations other than GET and HEAD, and tools that say they are destructive",
    )


def _call(arguments: argparse.Namespace) -> int:
    from langchain_toolrag.catalogue.sources.calls import SourceCalls  # The MCP SDK.

    values = _values(arguments.arguments)
    with opened_store(arguments) as store:
        tool = _named(store.tools(), arguments.id)
        calls = SourceCalls(
            store, allow_write=arguments.allow_write, timeout=float(arguments.timeout)
        )
        with shown_warnings(), contextlib.closing(calls):
            result = calls.call_now(tool, values)
    if result.outcome != "ok":
        print(f"toolrag: {result.outcome}: {result.content}", file=sys.stderr)
        return _FAILED
    print(result.content)
    return 0


def _values(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise SourceError(
            "arguments",
            f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}: {text!r:.200}",
        ) from error
    except (ValueError, RecursionError) as error:
        raise SourceError("arguments", f"cannot be read as JSON: {error}") from error
    if not isinstance(values, dict):
        raise SourceError("arguments", f"wanted a JSON object, found {values!r:.80}")
    return values


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _named(tools: Sequence[StoredTool], name: str) -> StoredTool:
    """Return the tool of an id, or of the name that is bound for it."""
    by_id = {tool.id: tool for tool in tools}
    if name not in by_id:
        documents = build_catalogue(definitions(tools), on_duplicate="id").documents
        bound = {document.bound_name: by_id[document.id] for document in documents}
        if name in bound:
            return bound[name]
        raise UnknownToolError([name], _closest(name, tools), where="the command line")
    return by_id[name]


def _closest(name: str, tools: Sequence[StoredTool]) -> list[str]:
    """Return ids that look like a name, or whose tools' own names do."""
    ids = [tool.id for tool in tools]
    own = {tool.name: tool.id for tool in tools}
    closest = [
        *difflib.get_close_matches(name, ids),
        *(own[near] for near in difflib.get_close_matches(name.rpartition("/")[2], own)),
    ]
    return list(dict.fromkeys(closest))
