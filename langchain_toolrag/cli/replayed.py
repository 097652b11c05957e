"""A replay in -> lines that a person reads, 80 columns wide, out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from langchain_toolrag.cli.directory import printable
from langchain_toolrag.replay.moments import (
    SEARCHES,
    STEPS,
    THEN,
    Called,
    Moment,
    Replay,
    SideSummary,
)

_WIDTH = 80
_COLUMN = 12
_INDENT = " " * 10
_MOST_NAMES = 5  # Of a list of names; JSON has them all.
_MOST_TOOLS = 12
_MOST_REASON = 200
_MINUTES = len("2026-11-30T23:17")
_KEPT = (
    "  what was bound then may have been kept from earlier turns, of which a log",
    "  knows nothing: --thread-db replays whole conversations",
)
_YES = {True: "yes", False: "no"}


def as_lines(replay: Replay, origin: str, *, most: int, with_text: bool) -> Iterator[str]:
    """Yield a replay as text.

    Args:
        replay: The replay.
        origin: Where it is from.
        most: How many of the largest differences are shown.
        with_text: Whether the users' words are shown.

    Yields:
        Lines without their ends; nothing in them moves a terminal's cursor. Where a name is very
            long, a line is.
    """
    yield printable(origin)
    yield f"  {_counted(replay)} replayed"
    yield from _left_out(replay)
    if replay.moments:
        yield ""
        yield from (f"{side:4}  {printable(name)}" for side, name in replay.options.items())
        yield ""
        yield from _table(replay)
        yield ""
        yield from _compared(replay)
        yield from _differences(replay, most, with_text=with_text)


def _counted(replay: Replay) -> str:
    threads = f"{_number(replay.threads, 'thread')}, " if replay.threads else ""
    return f"{threads}{_number(len(replay.moments), replay.what)}"


def _left_out(replay: Replay) -> Iterator[str]:
    tally = replay.tally
    if tally.by_meaning:
        some = "all" if tally.by_meaning == len(replay.moments) else f"{tally.by_meaning:,}"
        yield f"  {some} by meaning alone: the log has no text"
    for reason, number in tally.left_out.items():
        yield from _wrapped("  left out: ", f"{number:,} {reason}")
    yield from _counted_names("  called, but not in the catalogue: ", tally.unknown_calls)
    yield from _counted_names("  bound then, but not there any more: ", tally.gone)
    for thread, problem in list(tally.unreadable.items())[:_MOST_NAMES]:
        yield from _wrapped(f"  not (wholly) read: {thread}: ", problem[:_MOST_REASON])
    if len(tally.unreadable) > _MOST_NAMES:
        yield f"  and {len(tally.unreadable) - _MOST_NAMES:,} more threads: --json has them all"


def _counted_names(what: str, counted: Mapping[str, int]) -> list[str]:
    """Return what was counted, most often first; nothing where nothing was."""
    ordered = sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))
    names = [f"{name or '(no name)'} ({times:,}x)" for name, times in ordered]
    return _wrapped(what, _some(names, _MOST_NAMES)) if names else []


def _some(names: Sequence[str], most: int) -> str:
    more = [f"and {len(names) - most:,} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more])


def _table(replay: Replay) -> Iterator[str]:
    summaries = {side: replay.summary(side) for side in replay.sides}
    summaries = {side: each for side, each in summaries.items() if each.moments}
    yield _row("", summaries)
    if len({each.moments for each in summaries.values()}) > 1:
        yield _row("known for", (f"{each.moments:,}" for each in summaries.values()))
    yield _row("tools bound, mean", (f"{each.tools:,.1f}" for each in summaries.values()))
    yield _row("tokens, mean", (f"{each.tokens:,.0f}" for each in summaries.values()))
    yield _row("called tools bound", map(_recall, summaries.values()))
    yield _row("  of", (f"{each.called:,}" for each in summaries.values()))


def _row(name: str, cells: Iterable[str]) -> str:
    return f"{name:24}{''.join(f'{cell:>{_COLUMN}}' for cell in cells)}"


def _recall(summary: SideSummary) -> str:
    return "-" if summary.recall is None else f"{summary.recall:.1%}"


def _compared(replay: Replay) -> Iterator[str]:
    first, second = replay.compared
    comparable, changed = replay.comparable, replay.changed
    gained = sum(len(moment.gained(first, second)) for moment in changed)
    lost = sum(len(moment.lost(first, second)) for moment in changed)
    calls = sum(moment.calls_lost(first, second) for moment in changed)
    won = sum(moment.calls_lost(second, first) for moment in changed)
    yield (
        f"{second} against {first}: {len(changed):,} of "
        f"{_number(len(comparable), replay.what)} bind other tools"
    )
    yield f"  {_number(gained, 'tool')} gained, {lost:,} lost"
    yield f"  of the called tools, {won:,} gained, {calls:,} lost"
    if first == THEN and replay.what == SEARCHES:
        yield from _KEPT


def _differences(replay: Replay, most: int, *, with_text: bool) -> Iterator[str]:
    shown = replay.largest(most)
    if shown:
        yield ""
        yield f"the largest differences ({len(shown):,} of {len(replay.changed):,}), times in UTC:"
    for moment in shown:
        yield ""
        yield from _difference(replay, moment, with_text=with_text)


def _difference(replay: Replay, moment: Moment, *, with_text: bool) -> Iterator[str]:
    first, second = replay.compared
    yield from _wrapped("", _place(moment))
    if with_text and moment.asked:
        yield from _wrapped(_label("asked"), moment.asked)
    for called in moment.called:
        yield from _wrapped(_label("called"), _called(called, moment))
    for what, tools in (
        ("gained", moment.gained(first, second)),
        ("lost", moment.lost(first, second)),
    ):
        if tools:
            yield from _wrapped(_label(what), _some(tools, _MOST_TOOLS))
    tokens = ", ".join(f"{side} {each.tokens:,}" for side, each in moment.bound.items())
    yield f"{_label('tokens')}{tokens}"


def _label(text: str) -> str:
    return f"  {text:8}"


def _place(moment: Moment) -> str:
    place = dict(moment.place)
    time = str(place.pop("time"))[:_MINUTES].replace("T", " ")
    return f"{time}  {', '.join(f'{key} {value}' for key, value in place.items())}"


def _called(called: Called, moment: Moment) -> str:
    outcome = f" ({called.outcome})" if called.outcome else ""
    bound = (f"{side} {_YES[called.is_in(each)]}" for side, each in moment.bound.items())
    return f"{called.tools[0]}{outcome}: {', '.join(bound)}"


def _number(number: int, what: str) -> str:
    """Return a number and what is counted; the plural is given or made."""
    one, many = {
        SEARCHES: ("search", SEARCHES),
        STEPS: ("model step", STEPS),
    }.get(what, (what, f"{what}s"))
    return f"{number:,} {one if number == 1 else many}"


def _wrapped(begin: str, text: str) -> list[str]:
    """Return a text of anybody's in lines that fit, each printable, the later ones indented."""
    return textwrap.wrap(
        printable(" ".join(text.split())),
        _WIDTH,
        initial_indent=printable(begin),
        subsequent_indent=_INDENT,
        break_on_hyphens=False,
    )
