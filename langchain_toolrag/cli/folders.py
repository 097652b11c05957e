"""Arguments in -> the folders of a usage log and of learned heads, given or in a directory, out."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.errors import SourceError

_USAGE = "--usage-dir"
_HEADS = "--heads"


def add_usage_argument(
    command: argparse.ArgumentParser | argparse._MutuallyExclusiveGroup,
    help: str = "the usage log (default: DIR/usage; with --database it has to be given)",
) -> None:
    """Add where the usage log is.

    Args:
        command: The command's parser, or one of its groups.
        help: What the folder is, and what counts where none is given.
    """
    command.add_argument(_USAGE, type=Path, metavar="DIR", help=help)


def add_heads_argument(
    command: argparse.ArgumentParser,
    help: str = "the learned heads (default: DIR/heads; with --database it has to be given)",
) -> None:
    """Add where learned heads are.

    Args:
        command: The command's parser.
        help: What the folder is, and what counts where none is given.
    """
    command.add_argument(_HEADS, type=Path, metavar="DIR", help=help)


def usage_folder(arguments: argparse.Namespace) -> Path | None:
    """Return where the usage log is: as given, or in the directory; None for neither."""
    given: Path | None = arguments.usage_dir
    return given or (ToolDirectory(arguments.data).usage if arguments.data else None)


def heads_folder(arguments: argparse.Namespace) -> Path | None:
    """Return where learned heads are: as given, or in the directory; None for neither."""
    given: Path | None = arguments.heads
    return given or (ToolDirectory(arguments.data).heads if arguments.data else None)


def needed_usage_folder(arguments: argparse.Namespace) -> Path:
    """Return where the usage log is; a SourceError where that is not said."""
    return _needed(usage_folder(arguments), _USAGE, "is the usage log")


def needed_heads_folder(arguments: argparse.Namespace) -> Path:
    """Return where learned heads are; a SourceError where that is not said."""
    return _needed(heads_folder(arguments), _HEADS, "are the learned heads")


def as_options(arguments: argparse.Namespace) -> str:
    """Return what names the same usage log and heads on another command line.

    Args:
        arguments: The parsed arguments.

    Returns:
        The options, quoted for a shell.
    """
    if arguments.data and not (arguments.usage_dir or arguments.heads):
        return shlex.join(["--data", str(arguments.data)])
    usage, heads = needed_usage_folder(arguments), needed_heads_folder(arguments)
    return shlex.join([_USAGE, str(usage), _HEADS, str(heads)])


def _needed(folder: Path | None, option: str, what: str) -> Path:
    if folder is None:
        raise SourceError(
            option,
            f"where {what}? give {option} DIR, or --data DIR, which has that folder in it; "
            "a database has no folders",
        )
    return folder
