"""What the commands' arguments have in common."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_cache_argument(command: argparse.ArgumentParser) -> None:
    """Add where vectors are kept from run to run."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    command.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        default=Path(os.environ.get("TOOLRAG_CACHE") or Path(home) / "langchain-toolrag"),
        help="where embeddings are kept (default: %(default)s; TOOLRAG_CACHE sets it)",
    )


def at_least_one(text: str) -> int:
    """Read a number from 1; anything else is an error of argparse."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return number
