"""`toolrag serve`: what was ingested in -> searches and calls of it over REST and MCP out."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
from typing import TYPE_CHECKING

from langchain_toolrag.catalogue.sources.store import ToolStore
from langchain_toolrag.cli.arguments import Commands, add_model_arguments, model_of
from langchain_toolrag.cli.directory import model_folder, shown_warnings
from langchain_toolrag.cli.folders import (
    add_heads_argument,
    add_usage_argument,
    heads_folder,
    usage_folder,
)
from langchain_toolrag.cli.stores import add_store_arguments, opened_store
from langchain_toolrag.errors import SourceError

if TYPE_CHECKING:
    from langchain_toolrag.server.options import ServerOptions
    from langchain_toolrag.server.place import Place
    from langchain_toolrag.server.services import Services

_KEY = "TOOLRAG_API_KEY"
_EXTRA = ("mcp", "prometheus_client", "starlette", "uvicorn")
_LAST_PORT = 65_535


def register(commands: Commands) -> None:
    """Add the command to the parser."""
    command = commands.add_parser(
        "serve",
        help="answer searches and calls over REST and MCP",
        epilog=f"{_KEY} is the key that callers must send; without one, only a loopback address "
        "is listened on.",
    )
    command.set_defaults(run=lambda arguments: _serve(command, arguments))
    add_store_arguments(command)
    command.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    command.add_argument("--port", type=_port, default=8765, help="default: %(default)s")
    command.add_argument(
        "--stdio", action="store_true", help="answer MCP over standard input and output instead"
    )
    command.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a further name that callers may reach it by; may be repeated",
    )
    command.add_argument(
        "--allow-write",
        action="store_true",
        help="call operations other than GET and HEAD, and tools that say they are destructive",
    )
    command.add_argument(
        "--allow-private",
        action="store_true",
        help="call operations at private addresses that a document names",
    )
    _add_learning_arguments(command)
    add_model_arguments(command)


def _add_learning_arguments(command: argparse.ArgumentParser) -> None:
    """Add what is logged, and whom heads on trial answer."""
    command.add_argument(
        "--usage-log",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="log searches and calls, in DIR/usage or --usage-dir",
    )
    add_usage_argument(
        command,
        "where to log (default: usage in the directory; with --database nothing is logged)",
    )
    command.add_argument(
        "--log-text",
        action="store_true",
        help="log requests and arguments as they are, not their digests alone",
    )
    add_heads_argument(
        command,
        "the learned heads to follow (default: heads in the directory; with --database none)",
    )
    command.add_argument(
        "--candidate-share",
        type=float,
        default=0.1,
        metavar="SHARE",
        help="answer this share of the sessions, 0 to 1, by heads on trial (default: %(default)s)",
    )


def _serve(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    _refuse_without_extra()
    # The server's parts take half a second to import, which other commands need not wait for.
    from langchain_toolrag.server.services import Services

    options = _options(parser, arguments)
    model = model_of(arguments)
    # The MCP SDK logs what callers send to the root logger, which without a handler gets one.
    logging.getLogger().addHandler(logging.NullHandler())
    with shown_warnings(), opened_store(arguments, may_be_empty=True) as store:
        services = Services(
            _place(store, arguments),
            options,
            embeddings=model["embeddings"],
            index_options=model["index_options"],
        )
        _run(services, over_stdio=arguments.stdio)
    return 0


def _place(store: ToolStore, arguments: argparse.Namespace) -> Place:
    from langchain_toolrag.server.place import Place

    return Place(
        store,
        cache=model_folder(store, arguments),
        usage=usage_folder(arguments),
        heads=heads_folder(arguments),
    )


def _run(services: Services, *, over_stdio: bool) -> None:
    from langchain_toolrag.server.run import run_http, run_stdio

    options = services.options
    try:
        (run_stdio if over_stdio else run_http)(services)
    except SystemExit as error:  # So uvicorn ends where it cannot start; it has logged why.
        raise SourceError(
            "serve",
            f"did not start at {options.host}, port {options.port}, for the reason above; if "
            "another program listens there, give another --port",
        ) from error


def _refuse_without_extra() -> None:
    missing = [name for name in _EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise SourceError(
            "serve",
            f"needs {', '.join(missing)}, which is not installed: "
            "pip install 'langchain-toolrag[serve]'",
        )


def _options(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> ServerOptions:
    from langchain_toolrag.server.options import ServerOptions

    try:
        return ServerOptions(
            # Over standard input there is nobody but the process that started this one.
            host="127.0.0.1" if arguments.stdio else arguments.host,
            port=arguments.port,
            api_key=os.environ.get(_KEY, ""),
            allowed_hosts=tuple(arguments.allowed_host),
            allow_write=arguments.allow_write,
            allow_private=arguments.allow_private,
            usage_log=arguments.usage_log,
            log_text=arguments.log_text,
            candidate_share=arguments.candidate_share,
        )
    except ValueError as error:
        parser.error(str(error))


def _port(text: str) -> int:
    """Read a port; anything else is an error of argparse."""
    number = int(text) if text.isdecimal() else -1
    if not 0 <= number <= _LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, 0 to {_LAST_PORT}")
    return number
