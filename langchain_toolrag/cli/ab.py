"""`toolrag ab`: heads on trial and a usage log in -> whether they are better out."""

from __future__ import annotations

import argparse
import json
import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from langchain_toolrag.cli.arguments import Commands
from langchain_toolrag.cli.folders import (
    add_heads_argument,
    add_usage_argument,
    needed_heads_folder,
    needed_usage_folder,
)
from langchain_toolrag.errors import SourceError
from langchain_toolrag.trial.comparison import (
    FEWEST_SESSIONS,
    Comparison,
    Estimate,
    SideFigures,
    TrialComparison,
    Verdict,
    compare,
    compare_trial,
)
from langchain_toolrag.trial.directory import HeadsDirectory
from langchain_toolrag.trial.sessions import DealtSessions, dealt_sessions
from langchain_toolrag.trial.state import Candidate, HeadsState
from langchain_toolrag.usage.reading import Skipped, read_usage

_WIDTH = 80
_SHOWN = 12  # Digits of a digest.
_MOST_TENANTS = 20  # Of a table; JSON has them all.
_PREFIX = re.compile(r"[0-9a-f]{1,64}")
_WHOLE = 64


@dataclass(frozen=True, slots=True)
class _Trial:
    """A trial, and what the log says of it."""

    candidate: Candidate
    log: Path
    dealt: DealtSessions
    skipped: Skipped
    comparison: TrialComparison

    @property
    def tenants(self) -> frozenset[str]:
        """Digests of the tenants that have sessions."""
        return frozenset(session.tenant for session in self.dealt.sessions) - {""}


class _Done(NamedTuple):
    """What was done, for whom (empty for everybody), and the heads they have now."""

    what: Verdict
    tenant: str
    heads: str


def register(commands: Commands) -> None:
    """Add the command to the parser."""
    command = commands.add_parser("ab", help="compare heads on trial with those in use")
    command.set_defaults(run=_ab)
    command.add_argument(
        "--data", type=Path, metavar="DIR", help="what `toolrag learn` learned from"
    )
    add_usage_argument(command, "the usage log (default: DIR/usage; without --data it is needed)")
    add_heads_argument(command, "the learned heads (default: DIR/heads; without --data needed)")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument(
        "--tenant",
        type=_digest_prefix,
        metavar="DIGEST",
        help="this tenant alone: the first digits of its digest in the log",
    )
    acts = command.add_mutually_exclusive_group()
    acts.add_argument(
        "--decide",
        action="store_true",
        help="do what the figures say: first for each tenant whose own sessions say it, "
        "then for everybody else",
    )
    acts.add_argument("--promote", action="store_true", help="take what is on trial into use")
    acts.add_argument(
        "--roll-back",
        action="store_true",
        help="end the trial; without one, undo the last promotion",
    )


def _digest_prefix(text: str) -> str:
    if not _PREFIX.fullmatch(text.lower()):
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 to 64 hexadecimal digits")
    return text.lower()


def _ab(arguments: argparse.Namespace) -> int:
    if arguments.data is not None:
        _refuse_unless_directory(arguments.data)
    usage, heads = needed_usage_folder(arguments), HeadsDirectory(needed_heads_folder(arguments))
    prefix: str = arguments.tenant or ""
    if arguments.promote or arguments.roll_back:
        # The log is not needed: heads can be rolled back whatever is wrong with it.
        tenant = _tenant_to_change(prefix, heads, usage)
        done = [_do("promote" if arguments.promote else "roll back", tenant, heads)]
        _print({"done": _as_values(done)}, _as_sentences(done), arguments.json)
        return 0
    state = heads.state()
    trial = _read_trial(usage, state)
    if trial is None:
        _print({**_heads_as_json(state), "trial": None}, _no_trial(state, heads), arguments.json)
        return 0
    tenant = _the_tenant(prefix, state, trial.tenants) if prefix else ""
    done = list(_decide(trial, tenant, heads)) if arguments.decide else []
    lines = [*_as_lines(trial, state, tenant), *(_decided(done) if arguments.decide else ())]
    _print(_as_json(trial, state, tenant, done), lines, arguments.json)
    return 0


def _print(value: dict[str, Any], lines: Sequence[str], as_json: bool) -> None:
    print(json.dumps(value, indent=2) if as_json else "\n".join(lines))


def _refuse_unless_directory(data: Path) -> None:
    try:
        if data.is_dir():
            return
    except OSError as error:
        raise SourceError(str(data), f"cannot be read: {error.strerror}") from error
    raise SourceError(str(data), "is no directory; wanted the one `toolrag learn` learned from")


def _read_trial(log: Path, state: HeadsState) -> _Trial | None:
    if state.candidate is None:
        return None
    if log.is_dir() and not os.access(log, os.R_OK | os.X_OK):
        raise SourceError(str(log), "cannot be read: Permission denied")
    skipped = Skipped()
    dealt = dealt_sessions(read_usage(log, skipped=skipped), state, state.candidate)
    return _Trial(state.candidate, log, dealt, skipped, compare_trial(dealt.sessions))


def _tenant_to_change(prefix: str, heads: HeadsDirectory, log: Path) -> str:
    if not prefix or len(prefix) == _WHOLE:
        return prefix
    state = heads.state()
    trial = _read_trial(log, state)
    return _the_tenant(prefix, state, trial.tenants if trial else frozenset())


def _the_tenant(prefix: str, state: HeadsState, in_log: frozenset[str]) -> str:
    known = in_log | state.tenants.keys()
    fitting = sorted(tenant for tenant in known if tenant.startswith(prefix))
    if len(fitting) == 1:
        return fitting[0]
    some = ", ".join(tenant[:_SHOWN] for tenant in (fitting or sorted(known))[:5])
    if fitting:
        raise SourceError(prefix, f"{len(fitting)} tenants begin so: give more digits of {some}")
    raise SourceError(
        prefix,
        f"no tenant of the trial begins so; there are {some}"
        if known
        else "no session of the trial has a tenant",
    )


def _decide(trial: _Trial, tenant: str, heads: HeadsDirectory) -> Iterator[_Done]:
    """Carry the verdicts out, those of tenants first: what they decide, they keep."""
    comparison = trial.comparison
    for each, own in comparison.tenants.items():
        if own.verdict != "undecided" and tenant in ("", each):
            yield _do(own.verdict, each, heads, trial.candidate.heads)
    if not tenant and comparison.others.verdict != "undecided":
        yield _do(comparison.others.verdict, "", heads, trial.candidate.heads)


def _do(what: Verdict, tenant: str, heads: HeadsDirectory, candidate: str = "") -> _Done:
    if what == "promote":
        heads.promote(tenant, candidate=candidate)
    else:
        heads.roll_back(tenant, candidate=candidate)
    return _Done(what, tenant, heads.state().of_tenant(tenant))


def _heads_as_json(state: HeadsState) -> dict[str, Any]:
    return {"in_use": state.in_use, "previous": state.previous, "tenants": dict(state.tenants)}


def _as_json(
    trial: _Trial, state: HeadsState, tenant: str, done: Sequence[_Done]
) -> dict[str, Any]:
    comparison = trial.comparison
    shown = {tenant: comparison.tenants.get(tenant)} if tenant else comparison.tenants
    compared = {
        "heads": trial.candidate.heads,
        "since": trial.candidate.since.isoformat(),
        "decided": list(trial.candidate.decided),
        "everybody": asdict(comparison.everybody),
        "by_tenant": {each: own and asdict(own) for each, own in shown.items()},
        "others": asdict(comparison.others),
        "searches_left_out": trial.dealt.searches_left_out,
        "skipped": asdict(trial.skipped),
    }
    return {**_heads_as_json(state), "trial": compared, "done": _as_values(done)}


def _as_values(done: Sequence[_Done]) -> list[dict[str, str]]:
    return [each._asdict() for each in done]


def _no_trial(state: HeadsState, heads: HeadsDirectory) -> list[str]:
    lines = [
        f"{heads.path}: nothing is on trial; `toolrag learn` puts heads on trial",
        f"in use: {_name(state.in_use)}",
    ]
    if state.in_use != state.previous:
        lines.append(f"before: {_name(state.previous)}; --roll-back takes it into use again")
    return lines


def _as_lines(trial: _Trial, state: HeadsState, tenant: str) -> Iterator[str]:
    candidate = trial.candidate
    yield f"on trial: {_name(candidate.heads)}, since {candidate.since:%Y-%m-%d %H:%M} UTC"
    yield f"in use:   {_name(state.of_tenant(tenant))}"
    yield f"log:      {trial.log}"
    yield ""
    if tenant in candidate.decided:
        yield f"the trial has ended for tenant {tenant[:_SHOWN]}"
    elif tenant:
        yield from _sides(trial.comparison.tenants.get(tenant) or compare([]))
    else:
        yield from _sides(trial.comparison.everybody)
        yield from _tenants(trial.comparison)
    yield from _left_out(trial)


def _sides(comparison: Comparison) -> Iterator[str]:
    yield _row("", "sessions", "with calls", "reciprocal rank", "calls per search")
    yield _side("on trial", comparison.on_trial)
    yield _side("in use", comparison.in_use)
    ranks, calls = _signed(comparison.reciprocal_rank), _signed(comparison.calls)
    yield _row("difference", "", "", ranks, calls)
    yield "(± is the standard error over sessions)"
    yield ""
    yield from textwrap.wrap(f"{comparison.verdict}: {_why(comparison)}", _WIDTH)


def _side(name: str, figures: SideFigures) -> str:
    sizes = f"{figures.sessions:,}", f"{figures.with_calls:,}"
    return _row(name, *sizes, _shown(figures.reciprocal_rank), _shown(figures.calls))


def _tenants(comparison: TrialComparison) -> Iterator[str]:
    if not comparison.tenants:
        return
    yield ""
    yield _row("tenant", "on trial", "in use", "reciprocal rank", "calls per search")
    for tenant, own in [*comparison.tenants.items()][:_MOST_TENANTS]:
        yield _tenant(tenant[:_SHOWN], own)
    if len(comparison.tenants) > _MOST_TENANTS:
        yield f"and {len(comparison.tenants) - _MOST_TENANTS:,} more: --json has them all"
    if any(own.verdict != "undecided" for own in comparison.tenants.values()):
        yield _tenant("all others", comparison.others)
        yield "--decide goes by each tenant's verdict, and by that of all others"


def _tenant(name: str, own: Comparison) -> str:
    sizes = f"{own.on_trial.with_calls:,}", f"{own.in_use.with_calls:,}"
    return f"{_row(name, *sizes, _signed(own.reciprocal_rank), _signed(own.calls))}  {own.verdict}"


def _row(name: str, first: str, second: str, ranks: str, calls: str) -> str:
    return f"{name:12}{first:>10}{second:>12}{ranks:>17}{calls:>17}".rstrip()


def _shown(estimate: Estimate, sign: str = "") -> str:
    if estimate.value is None:
        return "-"
    error = "?" if estimate.error is None else f"{estimate.error:.3f}"
    return f"{estimate.value:{sign}.3f} ± {error}"


def _signed(estimate: Estimate) -> str:
    return _shown(estimate, "+")


def _why(comparison: Comparison) -> str:
    if comparison.verdict == "promote":
        return "called tools stand higher by more than two standard errors, and as many are called"
    if comparison.calls.beyond_chance == -1 and comparison.verdict == "roll back":
        return "fewer tools are called per search, by more than two standard errors"
    if comparison.verdict == "roll back":
        return "called tools stand lower by more than two standard errors"
    if any(comparison.missing):
        on_trial, in_use = comparison.missing
        return (
            f"at least {FEWEST_SESSIONS} sessions with calls are needed on each side; "
            f"{on_trial} more on trial and {in_use} more in use"
        )
    if comparison.more is None:
        return "there is no difference"
    return (
        "called tools stand higher or lower by less than two standard errors; it would take "
        f"about {comparison.more:,} more sessions with calls if the difference stayed"
    )


def _left_out(trial: _Trial) -> Iterator[str]:
    notes = []
    if not trial.dealt.sessions:
        notes.append("the log has no session that was dealt out since the trial began")
    if trial.dealt.searches_left_out:
        number = f"{trial.dealt.searches_left_out:,}"
        notes.append(f"searches left out, which were not dealt out: {number}")
    if trial.candidate.decided:
        notes.append(f"tenants left out that have decided: {len(trial.candidate.decided):,}")
    lines = sum(asdict(trial.skipped).values())
    if lines:
        notes.append(f"lines read past: {lines:,} (`toolrag usage` says why)")
    yield from ["", *notes] if notes else []


def _decided(done: Sequence[_Done]) -> list[str]:
    return ["", *(_as_sentences(done) or ["nothing was changed: the figures decide nothing yet"])]


def _as_sentences(done: Sequence[_Done]) -> list[str]:
    everybody = "everybody else" if any(each.tenant for each in done) else "everybody"
    return [
        f"{'promoted' if each.what == 'promote' else 'rolled back'}: "
        f"{f'tenant {each.tenant[:_SHOWN]}' if each.tenant else everybody} has "
        f"{_name(each.heads)} now"
        for each in done
    ]


def _name(heads: str) -> str:
    return f"heads {heads[:_SHOWN]}" if heads else "the base model"
