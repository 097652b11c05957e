"""A replay in -> JSON values out."""

from __future__ import annotations

from typing import Any

from langchain_toolrag.replay.moments import Moment, Replay, SideSummary

_DIGITS = 6


def as_json(replay: Replay, *, with_text: bool = False) -> dict[str, Any]:
    """Return a replay as JSON values.

    Args:
        replay: The replay.
        with_text: Whether the users' words are in it.

    Returns:
        `options` (their names, by side), `compared` (two sides), `summary` by side, how many
        moments `changed` and how many tools they `gained` and `lost`, what was `left_out`, and
        under the name of what was replayed (`searches` or `model_steps`) all of these.
    """
    changed, tally = replay.changed, replay.tally
    return {
        "options": dict(replay.options),
        "compared": list(replay.compared),
        "threads": replay.threads,
        "summary": {side: _summary(replay.summary(side)) for side in replay.sides},
        "changed": len(changed),
        "gained": sum(len(moment.gained(*replay.compared)) for moment in changed),
        "lost": sum(len(moment.lost(*replay.compared)) for moment in changed),
        "by_meaning_alone": tally.by_meaning,
        "left_out": dict(tally.left_out),
        "unknown_calls": dict(tally.unknown_calls.most_common()),
        "gone": dict(tally.gone.most_common()),
        "unreadable": dict(tally.unreadable),
        replay.what.replace(" ", "_"): [
            _moment(replay, moment, with_text=with_text) for moment in replay.moments
        ],
    }


def _summary(summary: SideSummary) -> dict[str, Any]:
    return {
        "known": summary.moments,
        "tools": _rounded(summary.tools),
        "tokens": _rounded(summary.tokens),
        "called": summary.called,
        "called_bound": summary.called_bound,
        "recall": _rounded(summary.recall),
    }


def _moment(replay: Replay, moment: Moment, *, with_text: bool) -> dict[str, Any]:
    shown: dict[str, Any] = dict(moment.place)
    if with_text:
        shown["text"] = moment.asked
    shown["bound"] = {
        side: {"tools": list(each.tools), "tokens": each.tokens}
        for side, each in moment.bound.items()
    }
    if moment.bound.keys() >= set(replay.compared):
        shown["gained"] = list(moment.gained(*replay.compared))
        shown["lost"] = list(moment.lost(*replay.compared))
    shown["called"] = [
        {
            "tool": called.tools[0],
            "outcome": called.outcome or None,
            "bound": {side: called.is_in(each) for side, each in moment.bound.items()},
        }
        for called in moment.called
    ]
    return shown


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
