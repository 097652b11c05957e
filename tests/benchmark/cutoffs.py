"""How many tools to bind: a fixed count, toolrank's margin and ours, at the same mean number.

    python -m tests.benchmark.cutoffs [--plot FILE] [--cache DIR] DIR...

A DIR has tools.jsonl and queries.jsonl. Every query is ranked once, as the product ranks it, and
the ranking is cut in many ways: how many tools that leaves, and for which share of the queries all
needed ones are among them. `completeness` has two numbers, which are fitted again here: from all
sets, and for every set from the others.

Conversations (lines with `conv_id` and `turn`) are also played from their first user turn on, with
the state handed back, so that what was bound stays bound; turns with labels are counted.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from unittest.mock import patch

import numpy as np
from langchain_core.messages import HumanMessage

from langchain_toolrag import SelectionOptions, ToolRAG
from langchain_toolrag.evaluation.answering import build
from langchain_toolrag.evaluation.contender import BUILT_IN
from langchain_toolrag.evaluation.evaluate import models_for, warm
from langchain_toolrag.evaluation.labelled import read_all_labelled
from langchain_toolrag.evaluation.measures import credited
from langchain_toolrag.plans import run
from langchain_toolrag.search import cutoff as product
from langchain_toolrag.search.cutoff import Cutoff
from langchain_toolrag.search.fusion import average_score
from langchain_toolrag.search.rankings import by_everything
from langchain_toolrag.selection import fresh
from langchain_toolrag.selection.conversation import read_conversation
from langchain_toolrag.types import Hit
from tests.benchmark.conversations import ids, lines, parser_for
from tests.benchmark.fitting import STRENGTH, asked, fitted

CANDIDATES = 50
DEPTH = 15  # Counts that the two numbers are fitted on.
RULES = {
    "fixed": [{"k": k} for k in range(1, 11)],
    "margin": [{"margin": margin} for margin in (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)],
    "completeness": [
        {"completeness": share}
        for share in (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
    ],
}
LEFT_OUT = "left out"
EQUAL = (2, 3, 4, 5, 6, 7, 8)
EQUAL_PLAYED = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
PANELS, INCHES = 4, (3.6, 3.0)


@dataclass(frozen=True)
class Ranked:
    """A query's ranking; its first `needed` tools hold all that it needs, infinity for never."""

    hits: list[Hit]
    average: float
    needed: float

    def lost(self, place):
        best = self.hits[0].score
        return (best - self.hits[place].score) / (best - self.average)


@dataclass(frozen=True)
class Point:
    """One setting of a rule: mean number of tools, share of queries with all of theirs."""

    setting: float
    tools: float
    complete: float


class AnsweringOnce:
    """An index that is asked nothing twice: only what comes after it differs between rules."""

    def __init__(self, index):
        self.index = index
        self.evidence = cache(index.evidence)

    def __getattr__(self, name):
        return getattr(self.index, name)


def read(labelled, model):
    """Rank every query of a set; return the rankings and the tools."""
    rag = build(BUILT_IN["default"], labelled, model.embeddings, model.known)
    rag.index()
    warm(rag, "product", labelled.queries)
    return [ranked(query, rag.tool_index) for query in labelled.queries], rag


def ranked(query, index):
    if query.history:
        hits, average = in_conversation(query, index)
    else:
        fused = run(by_everything(query.text, CANDIDATES, None), asked(index))
        hits, average = fused.hits, average_score(fused.evidence)
    return Ranked(hits, average, needed(query, ids(hits)))


def in_conversation(query, index):
    options = SelectionOptions(k=DEPTH + 1)
    found = run(fresh.hybrid(read_conversation(query.messages), options, None), asked(index))
    return list(found.hits), found.average


def needed(query, ranking):
    if len(credited(query, ranking)) < len(query.relevant):
        return math.inf
    counts = range(len(query.relevant), len(ranking) + 1)
    return next(n for n in counts if len(credited(query, ranking[:n])) == len(query.relevant))


def curve(rankings, rule):
    return [point(fields, cuts(rankings, Cutoff(**fields))) for fields in RULES[rule]]


def cuts(rankings, cutoff):
    counts = [len(cutoff.apply(ranked.hits, ranked.average)) for ranked in rankings]
    return [(n, n >= ranked.needed) for n, ranked in zip(counts, rankings, strict=True)]


def point(fields, counted):
    (setting,) = fields.values()
    tools, complete = np.mean(counted, axis=0)
    return Point(setting, float(tools), float(complete))


def fit(sets):
    """Return constant and slope: is all there before a tool that has lost so much of the lead?"""
    signs, wanted, weights = [], [], []
    for rankings in sets:
        rows = [
            (1.0, ranked.lost(n), n >= ranked.needed)
            for ranked in rankings
            if ranked.hits and ranked.hits[0].score > ranked.average
            for n in range(1, min(DEPTH, len(ranked.hits) - 1) + 1)
        ]
        signs += [row[:2] for row in rows]
        wanted += [row[2] for row in rows]
        weights += [STRENGTH / len(rows)] * len(rows)
    return fitted(np.array(signs), np.array(wanted, float), np.array(weights), 0.0)


def fits(rankings):
    """Print the two numbers; return those of every set that the others give."""
    print(
        f"\nlogistic regression (in the product {product._CONSTANT}, {product._SLOPE})\n"
        f"  all sets: {shown(fit(rankings.values()))}"
    )
    left_out = {}
    for name in rankings if len(rankings) > 1 else ():
        left_out[name] = fit([other for key, other in rankings.items() if key != name])
        print(f"  without {name}: {shown(left_out[name])}")
    return left_out


def shown(numbers):
    return ", ".join(f"{number:.2f}" for number in numbers)


def left_out_curve(rankings, numbers):
    constant, slope = numbers
    with patch.multiple(product, _CONSTANT=constant, _SLOPE=slope):
        return curve(rankings, "completeness")


def conversations(labelled):
    """Return every conversation's user turns, those between the labelled ones without labels."""
    path = Path(labelled.source).parent / "queries.jsonl"
    at = {line["id"]: (line["conv_id"], line["turn"]) for line in lines(path) if "conv_id" in line}
    known = sorted((query for query in labelled.queries if query.id in at), key=lambda q: at[q.id])
    return [
        user_turns(list(turns)) for _, turns in groupby(known, key=lambda query: at[query.id][0])
    ]


def user_turns(queries):
    turns = []
    for query in queries:
        said = query.history
        places = [n for n, message in enumerate(said) if isinstance(message, HumanMessage)]
        for place in places[len(turns) :]:
            text = said[place].text
            turns.append(replace(query, text=text, history=said[:place], relevant=()))
        turns.append(query)
    return turns


def played_curves(talks, rag):
    warm(rag, "product", [turn for turns in talks for turn in turns])
    index = AnsweringOnce(rag.tool_index)
    curves = {}
    for rule, settings in RULES.items():
        curves[rule] = []
        for fields in settings:
            options = SelectionOptions(on_error="raise", **fields)
            tools = rag.catalogue.originals
            player = ToolRAG(tools, index=index, options=options, on_duplicate="prefix")
            counted = [each for turns in talks for each in played(turns, player)]
            curves[rule].append(point(fields, counted))
    return curves


def played(turns, player):
    state = None
    for turn in turns:
        selection = player.select(turn.messages, previous=state)
        state = selection.state
        if turn.relevant:
            complete = len(credited(turn, selection.ids)) == len(turn.relevant)
            yield len(selection.ids), complete


def print_curves(title, curves):
    print(f"\n{title}")
    for rule, points in curves.items():
        print(f"  {rule:12} " + "".join(f"{each.setting:>7g}" for each in points))
        print(f"  {'tools':>12} " + "".join(f"{each.tools:7.2f}" for each in points))
        print(f"  {'all':>12} " + "".join(f"{each.complete:7.3f}" for each in points))


def overall(sets):
    """Return the curves of one setting for all sets: the means of what it comes to in each."""
    rules = RULES.keys() & set.intersection(*(set(curves) for curves in sets.values()))
    return {
        rule: [
            Point(
                at_setting[0].setting,
                float(np.mean([each.tools for each in at_setting])),
                float(np.mean([each.complete for each in at_setting])),
            )
            for at_setting in zip(*(curves[rule] for curves in sets.values()), strict=True)
        ]
        for rule in RULES
        if rule in rules
    }


def print_equal(sets, counts):
    """Print completeness at the same mean number of tools, and the mean gain on a fixed count."""
    print("\nshare of queries with all needed tools, at so many tools a query")
    print_row("set", "rule", map(str, counts))
    values = {}  # By rule, a row a set.
    for name, curves in sets.items():
        for rule, points in curves.items():
            row = [at(points, count) for count in counts]
            values.setdefault(rule, []).append(row)
            print_row(name, rule, (written(value, ".3f") for value in row))
    values = {rule: np.array(rows) for rule, rows in values.items()}
    print_mean("mean", values, sum(values.values()), ".3f")
    fixed = values.pop("fixed")
    for rule, rows in values.items():
        print_mean("gain on fixed", {rule: rows - fixed}, rows - fixed, "+.3f")


def print_mean(title, values, where, form):
    """Print means over the sets where no value is missing, and how many sets these are."""
    there = ~np.isnan(where)
    sets = there.sum(0)
    for rule, rows in values.items():
        totals = np.where(there, rows, 0.0).sum(0)
        means = np.divide(totals, sets, out=np.full(len(sets), math.nan), where=sets > 0)
        print_row(title, rule, (written(mean, form) for mean in means))
    print_row("", "in so many sets", map(str, sets))


def print_row(name, rule, cells):
    print(f"{name:26.25}{rule:16}" + "".join(f"{cell:>7}" for cell in cells))


def written(value, form):
    return "-" if math.isnan(value) else format(value, form)


def at(points, count):
    tools = [each.tools for each in points]
    complete = [each.complete for each in points]
    return float(np.interp(count, tools, complete, left=math.nan, right=math.nan))


def plot(sets, path):
    from matplotlib.figure import Figure  # An extra, and half a second of import.

    columns = min(PANELS, len(sets))
    rows = -(-len(sets) // columns)
    figure = Figure((INCHES[0] * columns, INCHES[1] * rows + 0.4), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, (name, curves) in zip(grid.flat, sets.items(), strict=False):
        for rule, points in curves.items():
            steps = ([each.tools for each in points], [each.complete for each in points])
            dashes = ":" if rule == LEFT_OUT else "-"
            axes.plot(*steps, dashes, marker=".", linewidth=1.2, label=rule)
        axes.set_title(name, fontsize=9, parse_math=False)
        axes.grid(alpha=0.3)
    for axes in grid.flat[len(sets) :]:
        axes.set_visible(False)
    figure.supxlabel("mean number of tools")
    figure.supylabel("share of queries with all needed tools")
    figure.legend(
        *grid.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(RULES) + 1
    )
    figure.savefig(path, dpi=130)


def main():
    parser = parser_for(__doc__)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the curves")
    given = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # What takes minutes is to be watched.
    sets = read_all_labelled(given.directories)
    (model,) = models_for([BUILT_IN["default"]], given.cache).values()
    rankings, curves, in_play = {}, {}, {}
    for labelled in sets:
        name = labelled.name
        print(f"{name}: {len(labelled.queries)} queries, {len(labelled.documents)} tools")
        rankings[name], rag = read(labelled, model)
        curves[name] = {rule: curve(rankings[name], rule) for rule in RULES}
        talks = conversations(labelled)
        if talks:
            in_play[f"{name}, played"] = played_curves(talks, rag)
    for name, numbers in fits(rankings).items():
        curves[name][LEFT_OUT] = left_out_curve(rankings[name], numbers)
    for title, each in (curves | in_play).items():
        print_curves(title, each)
    print_curves("one setting for all sets, means over the sets", overall(curves))
    print_equal({"one setting": overall(curves)}, EQUAL)
    print_equal(curves, EQUAL)
    if in_play:
        print_equal(in_play, EQUAL_PLAYED)
    if given.plot:
        plot(curves | in_play, given.plot)


if __name__ == "__main__":
    main()
