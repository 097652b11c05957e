"""`toolrag usage`: a usage log in -> what it says of the catalogue out."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from langchain_toolrag.cli.arguments import Commands
from langchain_toolrag.cli.directory import printable
from langchain_toolrag.cli.folders import add_usage_argument, needed_usage_folder
from langchain_toolrag.cli.stores import add_store_arguments, opened_store, refuse_tenant
from langchain_toolrag.errors import SourceError
from langchain_toolrag.types import ToolId
from langchain_toolrag.usage.files import usage_files
from langchain_toolrag.usage.reading import Skipped, read_usage
from langchain_toolrag.usage.summary import UsageSummary, summarise

_RANKS = (1, 3, 5, 10)
_MOST_SHOWN = 10  # Tools of a list; JSON has them all.


class _Log(NamedTuple):
    """Where a log is, and the ids of the tools it is about; none where they are not known."""

    path: Path
    catalogue: tuple[ToolId, ...]


def register(commands: Commands) -> None:
    """Add the command to the parser."""
    usage = commands.add_parser("usage", help="say what was searched for and called")
    usage.set_defaults(run=_usage)
    add_store_arguments(usage, help="what `toolrag ingest` wrote, or a usage log alone")
    add_usage_argument(usage)
    usage.add_argument("--json", action="store_true", help="print JSON")


def _usage(arguments: argparse.Namespace) -> int:
    log = _log(arguments)
    skipped = Skipped()
    summary = summarise(read_usage(log.path, skipped=skipped), log.catalogue)
    print(
        json.dumps(_as_json(summary, skipped), ensure_ascii=False, indent=2)
        if arguments.json
        else "\n".join(_as_lines(summary, skipped, log))
    )
    return 0


def _log(arguments: argparse.Namespace) -> _Log:
    if arguments.data is not None and arguments.usage_dir is None and _is_log(arguments.data):
        refuse_tenant(arguments)
        return _Log(arguments.data, ())
    folder = needed_usage_folder(arguments)
    with opened_store(arguments) as store:
        catalogue = tuple(tool.id for tool in store.tools())
    if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
        raise SourceError(str(folder), "cannot be read: Permission denied")
    return _Log(folder, catalogue)


def _is_log(folder: Path) -> bool:
    try:
        return any(usage_files(folder))
    except OSError as error:
        raise SourceError(str(folder), f"cannot be read: {error.strerror}") from error


def _as_json(summary: UsageSummary, skipped: Skipped) -> dict[str, Any]:
    return {
        **asdict(summary),
        "first": _iso(summary.first),
        "last": _iso(summary.last),
        "hit_rate": {str(k): summary.hit_rate(k) for k in _RANKS},
        "never_called": dict(summary.never_called),
        "skipped": asdict(skipped),
    }


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _as_lines(summary: UsageSummary, skipped: Skipped, log: _Log) -> Iterator[str]:
    if summary.first is None or summary.last is None:
        yield f"{log.path} has no records"
    else:
        yield f"{log.path}, {summary.first:%Y-%m-%d %H:%M} to {summary.last:%Y-%m-%d %H:%M} UTC"
        yield from _searches(summary)
        yield from _calls(summary)
        yield from _tools(summary, log)
    yield from _skipped(skipped)


def _searches(summary: UsageSummary) -> Iterator[str]:
    number = sum(summary.searches.values())
    yield _counted("searches", number, summary.searches, summary.modes)
    yield _share("  no good hit", summary.without_good_hit, number)
    for heads, answered in sorted(summary.heads.items()):
        yield _share(f"  heads {printable(heads)}", answered, number)


def _calls(summary: UsageSummary) -> Iterator[str]:
    number = sum(summary.outcomes.values())
    yield _counted("calls", number, summary.outcomes)
    yield _share("  tied to a search", summary.tied, number)
    for k in _RANKS:
        hits = sum(calls for rank, calls in summary.ranks.items() if rank <= k)
        yield _share(
            f"    tool at rank {k}" if k == 1 else f"    up to rank {k}", hits, summary.tied
        )


def _tools(summary: UsageSummary, log: _Log) -> Iterator[str]:
    if log.catalogue:
        yield _share("never retrieved", len(summary.never_retrieved), len(log.catalogue))
        yield from _some(summary.never_retrieved)
    yield _counted("retrieved, never called", len(summary.never_called))
    yield from _some(tuple(f"{tool} ({times:,}x)" for tool, times in summary.never_called))


def _some(tools: tuple[str, ...]) -> Iterator[str]:
    yield from (f"    {printable(tool)}" for tool in tools[:_MOST_SHOWN])
    if len(tools) > _MOST_SHOWN:
        yield f"    and {len(tools) - _MOST_SHOWN:,} more: --json has them all"


def _skipped(skipped: Skipped) -> Iterator[str]:
    numbers = {
        "torn": skipped.torn,
        "foreign": skipped.foreign,
        "of another version": skipped.unknown_version,
    }
    if any(numbers.values()):
        found = {what: number for what, number in numbers.items() if number}
        yield _counted("lines read past", sum(found.values()), found)


def _counted(what: str, number: int, *groups: Mapping[str, int]) -> str:
    told = "; ".join(
        ", ".join(f"{count:,} {part}" for part, count in group.items()) for group in groups
    )
    return f"{what:24}{number:>8,}{f'  ({told})' if told else ''}"


def _share(what: str, number: int, whole: int) -> str:
    return f"{what:24}{number:>8,}{f'  {number / whole:6.1%}' if whole else ''}"
