"""How well follow-ups are understood, and how often a tool is bound that nobody asked for.

    python -m tests.benchmark.conversations [--cache DIR] DIR...

A DIR has tools.jsonl and queries.jsonl. For every one with conversations: Recall@5 on turns that
have a history, for the request alone, ToolRAG's rule and ours, over the same index; then together
with the tools called in the last three assistant turns, and how many tools that makes. For every
one, and for the catalogue of tests/cases: how many of 100 turns of small talk and of 100 requests
that no tool serves bring a tool (tests/cases/data/no_tool.json).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from langchain_toolrag.catalogue.document import document_of
from langchain_toolrag.evaluation.contender import BUILT_IN
from langchain_toolrag.evaluation.evaluate import models_for
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.plans import run
from langchain_toolrag.search.fusion import fuse
from langchain_toolrag.selection import fresh
from langchain_toolrag.selection.conversation import read_conversation
from langchain_toolrag.selection.options import SelectionOptions

K = 5
WINDOW = 3
OPTIONS = SelectionOptions(k=K)
CASES = Path(__file__).parents[1] / "cases" / "data"


def alone(index, conversation):
    return ids(fuse(index.evidence(conversation.query)))[:K]


def toolrags_rule(index, conversation):
    """At most 6 words, or a best cosine below 0.4: first the hits with the turn before."""
    evidence = index.evidence(conversation.query)
    best = max((tool.dense for tool in evidence.tools if tool.dense is not None), default=0)
    plain = ids(fuse(evidence))[:K]
    vague = len(conversation.query.split()) <= 6 or best < 0.4
    if not vague or not conversation.previous_query:
        return plain
    enriched = ids(fuse(index.evidence(fresh.enriched(conversation))))[:K]
    return list(dict.fromkeys([*enriched, *plain]))[:K]


def ours(index, conversation):
    return found(index, conversation, OPTIONS).sources


def found(index, conversation, options):
    def ask(question):
        return index.evidence(
            question.query, question.candidate_k, question.filter, dense=question.dense
        )

    return run(fresh.hybrid(conversation, options, None), ask)


RULES = {"request alone": alone, "ToolRAG's rule": toolrags_rule, "ours": ours}


def ids(hits):
    return [hit.id for hit in hits]


def recall(query, bound):
    alternatives = query.get("alternatives") or {}
    wanted = [{gold, *alternatives.get(gold, ())} for gold in query["relevant"]]
    return sum(bool(accepted & set(bound)) for accepted in wanted) / len(wanted)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def follow_ups(folder, index):
    by_name = {}
    for document in index.documents:
        by_name.setdefault(document.name, []).append(document.id)
    queries = [query for query in lines(folder / "queries.jsonl") if query.get("history")]
    if not queries:
        return
    print(f"{folder.name}: {len(queries)} turns with a history, {len(index.documents)} tools")
    read = [
        read_conversation([*query["history"], {"role": "user", "content": query["query"]}])
        for query in queries
    ]
    for name, rule in RULES.items():
        plain, sticky, count = [], [], []
        for query, conversation in zip(queries, read, strict=True):
            bound = list(rule(index, conversation))
            called = [i for n in conversation.sticky(WINDOW) for i in by_name.get(n, ())]
            both = {*bound, *called}
            plain.append(recall(query, bound))
            sticky.append(recall(query, both))
            count.append(len(both))
        print(
            f"  {name:15} R@{K} {np.mean(plain):.3f} with at most {K} tools; with sticky ones "
            f"{np.mean(sticky):.3f} with {np.mean(count):.1f}"
        )


def false_bindings(name, index, requests):
    turns = json.loads((CASES / "no_tool.json").read_text())
    for least in (0.0, 0.5):
        options = SelectionOptions(min_confidence=least)

        def bound(texts, options=options):
            hits = [found(index, read_conversation(text), options).hits for text in texts]
            return f"{np.mean([bool(found_some) for found_some in hits]):.0%}" if texts else "-"

        print(
            f"{name}, min_confidence {least}: a tool is bound for {bound(turns['small_talk'])} of "
            f"small talk, {bound(turns['outside'])} of requests outside, {bound(requests)} of the "
            "set's own first requests"
        )


def parser_for(description):
    """Return a parser of `--cache DIR` and DIR..."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    home = Path.home() / ".cache" / "langchain-toolrag"
    parser.add_argument("--cache", type=Path, metavar="DIR", default=home, help="keeps embeddings")
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIR")
    return parser


def the_model(cache):
    return models_for([BUILT_IN["default"]], cache)["default"]


def indexed(definitions, model):
    index = ToolIndex(model.embeddings, cache=model.known, keep_requests=True)
    index.refresh([document_of(definition) for definition in definitions])
    return index


def main():
    arguments = parser_for(__doc__).parse_args()
    model = the_model(arguments.cache)
    shared = json.loads((CASES / "01_catalogue.json").read_text())["tools"]
    false_bindings("cases/01", indexed(shared, model), [])
    for folder in arguments.directories:
        index = indexed(lines(folder / "tools.jsonl"), model)
        follow_ups(folder, index)
        queries = lines(folder / "queries.jsonl")
        first = [query["query"] for query in queries if not query.get("history")]
        false_bindings(folder.name, index, first)


if __name__ == "__main__":
    main()
