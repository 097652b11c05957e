"""`toolrag ingest`: MCP servers, an OpenAPI document or a Python module in -> their tools out."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.mcp.connections import (
    configured_sources,
    given_source,
    is_template,
)
from langchain_toolrag.catalogue.sources.python_tools import read_python
from langchain_toolrag.catalogue.sources.store import ToolStore
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool
from langchain_toolrag.cli.arguments import Commands, add_model_arguments, at_least_one
from langchain_toolrag.cli.directory import printable, rag_over, shown_warnings
from langchain_toolrag.cli.progress import progress_bar
from langchain_toolrag.cli.stores import add_store_arguments, opened_store
from langchain_toolrag.errors import EmbeddingError, SourceError
from langchain_toolrag.types import Changes

_FAILED = 1
_EPILOG = """\
Only the sources that are given are listed; those ingested before stay as they are. A source that
fails keeps the tools it had. New and changed tools are embedded, into DIR/cache or the database.

exit status:
  0  every source was listed
  1  a source failed, or an error, which is printed
  2  a malformed command line
"""


def register(commands: Commands) -> None:
    """Add the command to the parser."""
    ingest = commands.add_parser("ingest", help="list tools into a directory or database")
    kinds = ingest.add_subparsers(required=True, metavar="KIND")
    _register_mcp(_kind(kinds, "mcp", "tools of MCP servers"))
    _register_openapi(_kind(kinds, "openapi", "the operations of an OpenAPI 3 document"))
    python = _kind(kinds, "python", "LangChain tools of a Python module")
    python.set_defaults(run=_ingest_python)
    python.add_argument(
        "location", metavar="MODULE:ATTRIBUTE", help="or FILE.py:ATTRIBUTE: a list of tools"
    )
    python.add_argument("--name", help="the source's name (default: the module's)")


def _kind(kinds: Commands, name: str, what: str) -> argparse.ArgumentParser:
    command = kinds.add_parser(
        name,
        help=what,
        description=f"Ingest {what}.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_store_arguments(command, "--out", "the directory")
    command.add_argument(
        "--dry-run", action="store_true", help="say what would change, write nothing"
    )
    add_model_arguments(command)
    return command


def _register_mcp(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=_ingest_mcp)
    command.add_argument(
        "--config", type=Path, metavar="FILE", help="an mcp.json, as Claude, Cursor or VS Code's"
    )
    command.add_argument(
        "--server",
        action="append",
        default=[],
        metavar='NAME="COMMAND or URL"',
        help="a server; may be given several times; ${NAME} in it is a variable, read when needed",
    )
    command.add_argument(
        "--timeout",
        type=at_least_one,
        default=60,
        metavar="SECONDS",
        help="how long a server may take to start, and again to list (default: %(default)s)",
    )


def _register_openapi(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=_ingest_openapi)
    command.add_argument("location", metavar="SPEC", help="a file or URL, JSON or YAML")
    command.add_argument(
        "--name", help="the source's name (default: the file's, or the document's title)"
    )
    command.add_argument(
        "--base-url", metavar="URL", help="where its operations are (default: its first server)"
    )
    command.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="sent with every call; the value is ${VARIABLE} or 'Bearer ${VARIABLE}'",
    )


def _ingest_mcp(arguments: argparse.Namespace) -> int:
    from langchain_toolrag.catalogue.sources.mcp.listing import list_sources  # MCP SDK.

    sources: list[StoredSource] = [given_source(text) for text in arguments.server]
    if arguments.config is not None:
        sources = [*configured_sources(arguments.config), *sources]
    if not sources:
        raise SourceError("ingest mcp", "wanted --config FILE or --server NAME=COMMAND")
    bar = tqdm(desc="listing", total=len(sources), unit=" servers", disable=None, leave=False)
    with shown_warnings(), bar:
        listings = list_sources(
            sources, os.environ, timeout=arguments.timeout, listed=lambda _: bar.update()
        )
    return _ingest(arguments, listings)


def _ingest_openapi(arguments: argparse.Namespace) -> int:
    from langchain_toolrag.catalogue.sources.openapi.listing import read_openapi

    headers = _headers(arguments.header)
    with shown_warnings():
        listing = read_openapi(arguments.location, name=arguments.name, base_url=arguments.base_url)
    return _ingest(arguments, [_with_headers(listing, headers)])


def _ingest_python(arguments: argparse.Namespace) -> int:
    with shown_warnings():
        listing = read_python(arguments.location, name=arguments.name)
    return _ingest(arguments, [listing])


def _ingest(arguments: argparse.Namespace, listings: Sequence[Listing]) -> int:
    with shown_warnings(), opened_store(arguments, may_be_empty=True) as store:
        return _ingest_into(store, arguments, listings)


def _ingest_into(
    store: ToolStore, arguments: argparse.Namespace, listings: Sequence[Listing]
) -> int:
    if not isinstance(store, ToolDirectory) and not arguments.dry_run:
        # Servers that find the tools there at once need not wait for their vectors then.
        with contextlib.suppress(EmbeddingError):  # It is told below, once they are ingested.
            _embed([tool for listing in listings for tool in listing.tools], store, arguments)
    changes = store.replace(listings, dry_run=arguments.dry_run)
    print(_report(changes))
    if arguments.dry_run:
        print("nothing was written (--dry-run)")
    failed = [listing for listing in listings if listing.failure]
    for listing in failed:
        name = listing.source.name
        kept, problem = len(changes[name].kept), printable(listing.failure)
        print(
            f"toolrag: kept {kept} tool{'' if kept == 1 else 's'} of {name}: {problem}",
            file=sys.stderr,
        )
    if not arguments.dry_run:
        _embed(store.tools(), store, arguments)
    return _FAILED if failed else 0


def _embed(tools: Sequence[StoredTool], store: ToolStore, arguments: argparse.Namespace) -> None:
    """Make the vectors of tools that are missing in the store."""
    if arguments.lexical or not tools:
        return
    with rag_over(tools, store, arguments) as rag, progress_bar("embedding") as advance:
        rag.index(progress=advance)


def _report(changes: Mapping[str, Changes]) -> str:
    """Return what changed, by source and in sum."""
    rows = dict(changes)
    if len(rows) > 1:
        every = list(changes.values())
        rows["in all"] = Changes(
            added=tuple(each for change in every for each in change.added),
            changed=tuple(each for change in every for each in change.changed),
            removed=tuple(each for change in every for each in change.removed),
            kept=tuple(each for change in every for each in change.kept),
        )
    width = max(map(len, rows))
    return "\n".join(f"{name:{width}}  {_counts(change)}" for name, change in rows.items())


def _counts(changes: Changes) -> str:
    return (
        f"+{len(changes.added)} added  ~{len(changes.changed)} changed  "
        f"-{len(changes.removed)} removed  ={len(changes.kept)} kept"
    )


def _headers(given: Sequence[str]) -> dict[str, str]:
    """Read headers; a value that is no template would be stored as it is, and is refused."""
    headers: dict[str, str] = {}
    for text in given:
        name, _, value = (part.strip() for part in text.partition("="))
        if not name or not is_template(value):
            raise SourceError(
                "--header",  # Not what was given, which may be a secret.
                "wanted NAME='${VARIABLE}' or NAME='Bearer ${VARIABLE}': no secrets are kept, only "
                "the names of variables that are read when a call is made",
            )
        headers[name] = value
    return headers


def _with_headers(listing: Listing, headers: Mapping[str, str]) -> Listing:
    """Return a listing whose calls send these headers, too; they win over the document's."""
    if not headers:
        return listing
    connection = listing.source.connection
    given = {name.lower() for name in headers}
    others = {
        name: value
        for name, value in connection.get("headers", {}).items()
        if name.lower() not in given
    }
    source = replace(listing.source, connection={**connection, "headers": {**others, **headers}})
    return replace(listing, source=source)
