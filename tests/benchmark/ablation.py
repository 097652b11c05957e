"""What each step from ToolRAG's algorithm to ours brings.

    python -m tests.benchmark.ablation [--cache DIR] DIR...

A DIR has tools.jsonl and queries.jsonl. Each row adds one thing to the row above it; the last two
rank by one source alone, over the whole index, with the adapter. Left NDCG@10, right the share of
queries that have all their tools among the first ten. ToolRAG's algorithm ranks no more than eight
tools, but where it enriches a follow-up or a tool is sticky.
"""

from __future__ import annotations

import statistics
from dataclasses import replace

from langchain_toolrag import SelectionOptions
from langchain_toolrag.evaluation.contender import Contender
from langchain_toolrag.evaluation.evaluate import evaluate, models_for
from langchain_toolrag.evaluation.labelled import read_all_labelled
from langchain_toolrag.index.options import IndexOptions
from tests.benchmark.conversations import parser_for

RAW = IndexOptions.classic()
WORDS = replace(RAW, analyser="stemmed")
MORE_TEXT = replace(WORDS, server_in_text=True)
STEPS = (
    Contender("classic", "classic", SelectionOptions.classic(), adapter=None),
    Contender("one fused ranking", index_options=RAW, adapter=None),
    Contender("+ stop words, stems, split names", index_options=WORDS, adapter=None),
    Contender("+ server, values, parameter descriptions", index_options=MORE_TEXT, adapter=None),
    Contender("+ three vectors a tool", index_options=IndexOptions(), adapter=None),
    Contender("+ adapter"),
    Contender("dense alone", "semantic", SelectionOptions(similarity_threshold=0)),
    Contender("words alone", "text"),
)
MEASURES = ("ndcg@10", "completeness@10")
WIDTH = 17


def pair(result):
    return [result.measures[name] for name in MEASURES]


def print_row(title, cells):
    print(f"{title:42}" + "".join(f"{cell:>{WIDTH}}" for cell in cells), flush=True)


def written(pairs):
    means = [statistics.fmean(values) for values in zip(*pairs, strict=True)]
    return [" ".join(f"{value:.3f}" for value in each) for each in (*pairs, means)]


def main():
    arguments = parser_for(__doc__).parse_args()
    sets = read_all_labelled(arguments.directories)
    models = models_for(STEPS, arguments.cache)
    print_row("", [labelled.name[-(WIDTH - 1) :] for labelled in sets] + ["mean"])
    print_row("NDCG@10, all@10", [])
    for step in STEPS:
        pairs = [pair(evaluate(labelled, step, models[step.name])) for labelled in sets]
        print_row(step.name, written(pairs))


if __name__ == "__main__":
    main()
