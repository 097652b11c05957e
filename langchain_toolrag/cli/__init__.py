"""The `toolrag` command: parse, one library call, print."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from langchain_toolrag.cli import (
    ab,
    call,
    db,
    evaluate,
    finetune,
    ingest,
    learn,
    lint,
    list_tools,
    replay,
    search,
    select,
    serve,
    status,
    usage,
)
from langchain_toolrag.errors import ToolRAGError

_COMMANDS = (
    select,
    search,
    lint,
    evaluate,
    finetune,
    learn,
    ingest,
    list_tools,
    status,
    call,
    serve,
    usage,
    ab,
    replay,
    db,
)
_FAILED = 1  # argparse itself exits with 2 for a malformed command line.
_INTERRUPTED = 130  # As a shell says it of a process that SIGINT ended.


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: The command line without the program's name; None for the process's.

    Returns:
        The exit status: 0, 1 after an error that is printed, or 130 after an interrupt.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # Names and descriptions come in all scripts.
        sys.stdout.reconfigure(errors="backslashreplace")
    parsed = _parser().parse_args(arguments)
    try:
        status: int = parsed.run(parsed)
        sys.stdout.flush()
    except ToolRAGError as error:
        print(f"toolrag: {error}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        print("toolrag: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:  # The reader has seen enough, as in `toolrag ... | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAILED
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="toolrag", description="Find the tools a request needs.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.register(commands)
    return parser
