"""Fit the weights of follow-ups and of confidence, and tell how they do on sets left out.

    python -m tests.benchmark.fitting [--cache DIR] --of follow-ups DIR...
    python -m tests.benchmark.fitting [--cache DIR] --of confidence DIR...

Follow-ups take folders with and without conversations, confidence those without.

A folder has tools.jsonl and queries.jsonl. In a folder without conversations a change of topic is
made up for every request: another request of the folder, and an answer to it, come before it.
"""

from __future__ import annotations

import random

import numpy as np

from langchain_toolrag.plans import run
from langchain_toolrag.search.confidence import confidence_signs
from langchain_toolrag.search.fusion import blend, fuse
from langchain_toolrag.search.rankings import by_everything
from langchain_toolrag.selection.conversation import read_conversation
from langchain_toolrag.selection.follow_up import follow_up_signs, with_context
from tests.benchmark.conversations import (
    alone,
    ids,
    indexed,
    lines,
    parser_for,
    the_model,
    toolrags_rule,
)
from tests.benchmark.conversations import recall as recall_of

K = 5
LEAST = 0.2  # The least share of the context, as in the product.
PER_FOLDER = 200
STRENGTH = 200.0  # Total weight of a folder.
ANSWERS = (
    "Done.",
    "Here is what I found.",
    "I've taken care of that for you.",
    "All set. Is there anything else I can help you with?",
    "It has been completed successfully.",
    "The result is ready: 3 items.",
)


def fitted(signs, wanted, weights, ridge):
    """Weighted ridge logistic regression by Newton's method; the first sign is the constant."""
    solution = np.zeros(signs.shape[1])
    ridge = ridge * np.array([0.0, *np.ones(signs.shape[1] - 1)])
    for _ in range(60):
        chance = 1 / (1 + np.exp(-signs @ solution))
        slope = signs.T @ (weights * (chance - wanted)) + ridge * solution
        bend = (signs * (weights * chance * (1 - chance))[:, None]).T @ signs
        solution -= np.linalg.solve(bend + np.diag(ridge + 1e-6), slope)
    return solution


def asked(index):
    def ask(question):
        return index.evidence(
            question.query, question.candidate_k, question.filter, dense=question.dense
        )

    return ask


def reciprocal_rank(query, hits):
    order = ids(hits)
    alternatives = query.get("alternatives") or {}
    total = 0.0
    for gold in query["relevant"]:
        accepted = {gold, *alternatives.get(gold, ())}
        total += next((1 / rank for rank, i in enumerate(order, 1) if i in accepted), 0.0)
    return total / len(query["relevant"])


def conversations(folder):
    """Return queries with their conversations, and whether the topics are made up."""
    queries = lines(folder / "queries.jsonl")
    real = [query for query in queries if query.get("history")]
    if real:
        said = ([*q["history"], {"role": "user", "content": q["query"]}] for q in real)
        return [(q, read_conversation(m)) for q, m in zip(real, said, strict=True)], False
    dice, pairs = random.Random(0), []
    short = [query for query in queries if len(query["query"].split()) <= 12] or queries
    while len(pairs) < PER_FOLDER:
        query, before = dice.choice(short), dice.choice(queries)
        if not set(query["relevant"]) & set(before["relevant"]):
            turns = [("user", before["query"]), ("ai", dice.choice(ANSWERS))]
            pairs.append((query, read_conversation([*turns, ("user", query["query"])])))
    return pairs, True


def read_follow_ups(folder, index):
    rows = []
    pairs, made_up = conversations(folder)
    for query, conversation in pairs:
        fused = run(by_everything(conversation.query, 50, None), asked(index))
        contextual = fuse(index.evidence(with_context(conversation)), named_first=False)
        statistics = fused.evidence.statistics
        signs = follow_up_signs(conversation, fused.hits, contextual, statistics)
        gain = reciprocal_rank(query, contextual) - reciprocal_rank(query, fused.hits)
        rows.append((query, conversation, fused.hits, contextual, signs, gain))
    return rows, made_up


def follow_ups(folders, model):
    indexes = {f.name: indexed(lines(f / "tools.jsonl"), model) for f in folders}
    read = {f.name: read_follow_ups(f, indexes[f.name]) for f in folders}
    made_up = sum(made for _, made in read.values())

    def fit(names):
        signs, wanted, weights = [], [], []
        for name in names:
            rows, made = read[name]
            gains = np.array([row[-1] for row in rows])
            share = 2 / made_up if made else 1.0
            signs += [row[-2] for row in rows]
            wanted += (gains > 0).tolist()
            weights += (np.abs(gains) / np.abs(gains).sum() * STRENGTH * share).tolist()
        return fitted(np.array(signs), np.array(wanted, float), np.array(weights), 0.3)

    for name, (rows, _) in read.items():
        weights = fit([other for other in read if other != name])
        scores = {"alone": [], "ToolRAG's rule": [], "left out": []}
        for query, conversation, plain, contextual, signs, _ in rows:
            share = LEAST + (1 - LEAST) / (1 + np.exp(-np.dot(weights, signs)))
            bound = ids(blend(plain, contextual, float(share)))[:K]
            index = indexes[name]
            scores["alone"].append(recall_of(query, alone(index, conversation)))
            scores["ToolRAG's rule"].append(recall_of(query, toolrags_rule(index, conversation)))
            scores["left out"].append(recall_of(query, bound))
        told = ", ".join(f"{kind} {np.mean(values):.3f}" for kind, values in scores.items())
        print(f"{name}: R@{K} {told}")
    print("weights from all:", np.round(fit(list(read)), 2).tolist())


def confidence(folders, model):
    indexes = {f.name: indexed(lines(f / "tools.jsonl"), model) for f in folders}
    dice = random.Random(1)
    requests = {}
    for folder in folders:
        texts = [query["query"] for query in lines(folder / "queries.jsonl")]
        requests[folder.name] = dice.sample(texts, min(400, len(texts)))
    signs, wanted = {}, {}
    for name, index in indexes.items():
        others = [text for other in requests if other != name for text in requests[other][:100]]
        signs[name] = np.array([signs_of(index, text) for text in [*requests[name], *others]])
        wanted[name] = np.array([1.0] * len(requests[name]) + [0.0] * len(others))

    def fit(names):
        truth = np.concatenate([wanted[name] for name in names])
        even = np.where(truth == 1, 0.5 / truth.mean(), 0.5 / (1 - truth.mean()))
        return fitted(np.vstack([signs[name] for name in names]), truth, even, 1.0)

    for name in signs:
        weights = fit([other for other in signs if other != name])
        sure = 1 / (1 + np.exp(-signs[name] @ weights)) > 0.5
        own, outside = sure[wanted[name] == 1], sure[wanted[name] == 0]
        print(
            f"{name}, left out: sure of {own.mean():.0%} of its own, {outside.mean():.0%} of others"
        )
    print("weights from all:", np.round(fit(list(signs)), 2).tolist())


def signs_of(index, text):
    evidence = index.evidence(text)
    return confidence_signs(evidence, fuse(evidence)[0])


def main():
    kinds = {"follow-ups": follow_ups, "confidence": confidence}
    parser = parser_for(__doc__)
    parser.add_argument("--of", choices=kinds, required=True, help="what is fitted")
    arguments = parser.parse_args()
    kinds[arguments.of](arguments.directories, the_model(arguments.cache))


if __name__ == "__main__":
    main()
