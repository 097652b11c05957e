"""`toolrag replay`: what was asked then, and other options -> what would have been bound out."""

from __future__ import annotations

import argparse
import functools
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from langchain_toolrag.catalogue.bound_names import OnDuplicate
from langchain_toolrag.catalogue.sources.directory_tools import definitions
from langchain_toolrag.catalogue.sources.files import read_tools
from langchain_toolrag.cli.arguments import (
    Commands,
    add_cache_argument,
    add_model_arguments,
    model_of,
)
from langchain_toolrag.cli.contenders import OPTIONS, indexed, models_of, refuse_without_model
from langchain_toolrag.cli.directory import model_folder, shown_warnings
from langchain_toolrag.cli.folders import add_usage_argument, needed_usage_folder
from langchain_toolrag.cli.progress import progress_bar
from langchain_toolrag.cli.replayed import as_lines
from langchain_toolrag.cli.stores import add_store_arguments, opened_store, refuse_tenant
from langchain_toolrag.errors import SourceError
from langchain_toolrag.evaluation.contender import BUILT_IN, Contender, read_contender
from langchain_toolrag.replay.binders import Binder, binders
from langchain_toolrag.replay.checkpoints import MESSAGES_KEY
from langchain_toolrag.replay.conversations import replay_threads
from langchain_toolrag.replay.moments import A, B, Replay, Side
from langchain_toolrag.replay.report import as_json
from langchain_toolrag.replay.searches import replay_searches
from langchain_toolrag.replay.sqlite_file import open_sqlite
from langchain_toolrag.types import Tool
from langchain_toolrag.usage.files import usage_files

_BASELINE = BUILT_IN["default"]
_SOME = 5  # Threads that a message names.


class _Agent(NamedTuple):
    """An agent's tools, as it had them, and where their vectors are kept."""

    tools: Sequence[Tool]
    on_duplicate: OnDuplicate
    cache: Path


def register(commands: Commands) -> None:
    """Add the command to the parser."""
    command = commands.add_parser(
        "replay",
        help="say what other options would have bound",
        description=(
            "Make logged searches, or the selections of stored conversations, again under other "
            "options: what would have been bound, gained and lost, and at what token cost. One "
            "--options is compared with what was bound then (logged searches) or with `default` "
            "(conversations), two with each other. Nothing is written to the log or the "
            "conversations."
        ),
    )
    command.set_defaults(run=functools.partial(_replay, command))
    _add_what(command)
    command.add_argument(
        "--options", action="append", required=True, metavar="OPTIONS", help=OPTIONS
    )
    add_model_arguments(command)
    add_cache_argument(command)
    _add_how(command)


def _add_what(command: argparse.ArgumentParser) -> None:
    """Add what is replayed."""
    where = add_store_arguments(
        command,
        help="what `toolrag ingest` wrote: its tools and, without --thread-db, its usage log",
    )
    where.add_argument(
        "--tools", metavar="SOURCE", help="for --thread-db: tools, as for `toolrag select`"
    )
    moments = command.add_mutually_exclusive_group()
    add_usage_argument(moments)
    moments.add_argument(
        "--thread-db",
        type=Path,
        metavar="CHECKPOINTS",
        help="conversations: the SQLite file of a LangGraph checkpointer; it is only read",
    )
    command.add_argument(
        "--thread", action="append", metavar="ID", help="this conversation (several: give it again)"
    )
    command.add_argument(
        "--messages-key",
        default=MESSAGES_KEY,
        metavar="KEY",
        help="where in the graph's state the messages are (default: %(default)s)",
    )


def _add_how(command: argparse.ArgumentParser) -> None:
    """Add how it is shown."""
    command.add_argument(
        "--show",
        type=_number,
        default=10,
        metavar="N",
        help="show at most N of the largest differences (default: %(default)s)",
    )
    command.add_argument("--show-text", action="store_true", help="show what the users said")
    command.add_argument("--json", action="store_true", help="print JSON, with every difference")


def _replay(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    if arguments.thread_db is None:
        for name in ("tools", "thread"):
            if getattr(arguments, name) is not None:
                parser.error(f"--{name} is for conversations: give their --thread-db too")
    options = _options(parser, arguments)
    with shown_warnings(), _silent("langgraph"):
        if arguments.thread_db is None:
            origin, replay = _of_searches(arguments, options)
        else:
            origin, replay = _of_threads(arguments, options)
    if arguments.json:
        shown = as_json(replay, with_text=arguments.show_text)
        print(_printable_json(json.dumps(shown, ensure_ascii=False, indent=2)))
    else:
        lines = as_lines(replay, str(origin), most=arguments.show, with_text=arguments.show_text)
        print("\n".join(lines))
    return 0


def _options(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace
) -> dict[Side, Contender]:
    names: list[str] = arguments.options
    if len(names) > 2:
        parser.error(f"--options is given {len(names)} times; give one or two")
    if len(set(names)) < len(names):
        parser.error(f"--options: {names[0]} is given twice; give two different ones")
    given = [read_contender(name) for name in names]
    if arguments.thread_db is not None and names != [_BASELINE.name] and len(given) == 1:
        given.insert(0, _BASELINE)
    refuse_without_model(parser, arguments, given)
    return dict(zip((A, B), given, strict=False))


def _of_searches(
    arguments: argparse.Namespace, options: dict[Side, Contender]
) -> tuple[Path, Replay]:
    usage, agent = needed_usage_folder(arguments), _agent(arguments)
    if not any(usage_files(usage)):
        raise SourceError(
            str(usage), "there is no usage log: `toolrag serve` and ToolRAG(usage_log=...) write it"
        )
    made = _binders(arguments, options, agent)
    with tqdm(desc="replaying", unit=" searches", disable=None, leave=False) as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        return usage, replay_searches(usage, made, advance)


def _of_threads(
    arguments: argparse.Namespace, options: dict[Side, Contender]
) -> tuple[Path, Replay]:
    agent = _agent(arguments)
    with open_sqlite(arguments.thread_db) as stored:
        threads = _wanted(arguments, stored.names)
        made = _binders(arguments, options, agent)
        with tqdm(
            desc="replaying", total=len(threads), unit=" threads", disable=None, leave=False
        ) as bar:
            replay = replay_threads(
                stored.saver,
                made,
                threads=threads,
                messages_key=arguments.messages_key,
                progress=lambda thread: bar.update(),
            )
    return arguments.thread_db, replay


def _wanted(arguments: argparse.Namespace, stored: list[str]) -> list[str]:
    for name in arguments.thread or ():
        if name not in stored:
            some = ", ".join(map(repr, stored[:_SOME])) or "none"
            raise SourceError(
                str(arguments.thread_db),
                f"has no thread {name!r}; found {len(stored)}, the latest: {some}",
            )
    return list(dict.fromkeys(arguments.thread or stored))


def _agent(arguments: argparse.Namespace) -> _Agent:
    if arguments.tools is not None:
        refuse_tenant(arguments)
        return _Agent(read_tools(arguments.tools), "prefix", arguments.cache)
    with opened_store(arguments) as store:
        return _Agent(definitions(store.tools()), "id", model_folder(store, arguments))


def _binders(
    arguments: argparse.Namespace, options: dict[Side, Contender], agent: _Agent
) -> dict[Side, Binder]:
    model = model_of(arguments)
    if not arguments.lexical:
        model["cache_dir"] = agent.cache
    contenders = {side: indexed(each, model["index_options"]) for side, each in options.items()}
    models = models_of([*contenders.values()], model, agent.cache)
    with progress_bar("embedding") as advance:
        return binders(
            contenders, agent.tools, models, on_duplicate=agent.on_duplicate, progress=advance
        )


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Keep a library's warnings off the screen, such as of values that are not made."""
    handler, library = logging.NullHandler(), logging.getLogger(name)
    library.addHandler(handler)
    try:
        yield
    finally:
        library.removeHandler(handler)


def _printable_json(text: str) -> str:
    """Return JSON in which what a terminal would act upon is written as an escape."""
    return "".join(
        each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text
    )


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0")
    return int(text)
