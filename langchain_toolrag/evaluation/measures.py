"""Labelled queries and a contender's answers in -> measures out; higher is better for most.

Recall, NDCG [1] and reciprocal rank [2] are ir-measures'; what is said of bound sets, alternatives
and siblings is ours.

References:
    [1] Järvelin, Kekäläinen. Cumulated gain-based evaluation of IR techniques. ACM TOIS 2002.
    https://doi.org/10.1145/582415.582418
    [2] Voorhees. The TREC-8 Question Answering Track Report. TREC 1999.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import ir_measures
import numpy as np
from ir_measures import RR, R, nDCG

from langchain_toolrag.evaluation.answering import DEPTH, Answer
from langchain_toolrag.evaluation.labelled import LabelledQuery
from langchain_toolrag.types import ToolDocument, ToolId

Measures: TypeAlias = Mapping[str, float | None]
"""Values by name, in the order of `MEASURES`; None where a measure has no meaning."""

MEASURES = (
    "recall@1",
    "recall@3",
    "recall@5",
    "recall@10",
    "ndcg@10",
    "mrr",
    "completeness@10",
    "bound",
    "bound_recall",
    "bound_completeness",
    "wrong_sibling",
)
"""What is measured of every query.

`recall@k`: share of the gold tools among the first k of the ranking. `ndcg@10`: the same, weighted
by rank. `mrr`: 1 / rank of the first gold tool, 0 if it is not among the first 10.
`completeness@10`: 1 if every gold tool is among the first 10. `bound`: how many tools are bound.
`bound_recall`: share of the gold tools among these. `bound_completeness`: 1 if all are.
`wrong_sibling`: 1 if, for some gold tool, one of its `Siblings` that the query does not label (as
gold or alternative) is among the first 10 and stands above the gold tool's place, or anywhere where
the gold tool has none; lower is better; None in a set without siblings. All but `bound` are 0 to 1.
"""

_OF_THE_LIBRARY: Mapping[str, Any] = {
    "recall@1": R @ 1,
    "recall@3": R @ 3,
    "recall@5": R @ 5,
    "recall@10": R @ 10,
    "ndcg@10": nDCG @ 10,
    "mrr": RR @ 10,
}


class Siblings:
    """Which tools of a server are easily taken for each other: those that share a name word.

    A word in more than half of the names of a server, such as its own name, does not count. Tools
    without a server have no siblings.

    Args:
        documents: The tools.
    """

    def __init__(self, documents: Iterable[ToolDocument]) -> None:
        self._documents = {document.id: document for document in documents if document.server}
        self._sizes = Counter(document.server for document in self._documents.values())
        self._by_word: dict[tuple[str | None, str], set[ToolId]] = {}
        for document in self._documents.values():
            for word in document.words:
                self._by_word.setdefault((document.server, word), set()).add(document.id)

    def __bool__(self) -> bool:
        """Whether some tool has a sibling."""
        return any(self._tells(server, ids) for (server, _), ids in self._by_word.items())

    def of(self, identity: ToolId) -> set[ToolId]:
        """Return the ids of a tool's siblings."""
        document = self._documents.get(identity)
        if document is None:
            return set()
        server = document.server
        sharing = (self._by_word[server, word] for word in document.words)
        return set().union(*(ids for ids in sharing if self._tells(server, ids))) - {identity}

    def _tells(self, server: str | None, ids: set[ToolId]) -> bool:
        return 1 < len(ids) <= self._sizes[server] / 2


def measure(
    queries: Sequence[LabelledQuery], answers: Sequence[Answer], siblings: Siblings
) -> list[dict[str, float | None]]:
    """Measure answers.

    Args:
        queries: The queries.
        answers: An answer to each, in the same order.
        siblings: Those among the set's tools.

    Returns:
        Values by the names of `MEASURES`, for each query. A query to which nothing was found
        has 0 for everything.
    """
    pairs = list(zip(queries, answers, strict=True))
    places = [credited(query, answer.ranking) for query, answer in pairs]
    of_the_library = _by_the_library(pairs, places)
    return [
        {
            **of_the_library[number],
            "completeness@10": float(len(found) == len(query.relevant)),
            **_of_the_bound(query, answer.bound),
            "wrong_sibling": _wrong_sibling(query, answer.ranking, found, siblings)
            if siblings
            else None,
        }
        for number, ((query, answer), found) in enumerate(zip(pairs, places, strict=True))
    ]


def credited(query: LabelledQuery, ranking: Sequence[ToolId]) -> dict[ToolId, int]:
    """Return the place at which each gold tool was found, from 0.

    A gold tool is found by itself or by one of its alternatives, and a ranked tool stands for one
    gold tool only. Where that can be shared out in several ways, the gold tools get the best
    places.

    Args:
        query: The query.
        ranking: Ids, best first, without repeats.

    Returns:
        Places by gold tool; one that was not found is left out.
    """
    from scipy.optimize import linear_sum_assignment  # Half a second of import.

    accepted = [{gold, *query.alternatives.get(gold, ())} for gold in query.relevant]
    worth = np.array(
        [[(tool in some) / (1 + place) for some in accepted] for place, tool in enumerate(ranking)]
    ).reshape(len(ranking), len(accepted))
    found = zip(*linear_sum_assignment(worth, maximize=True), strict=True)
    return {query.relevant[gold]: int(place) for place, gold in found if worth[place, gold] > 0}


def _by_the_library(
    pairs: Sequence[tuple[LabelledQuery, Answer]], places: Sequence[Mapping[ToolId, int]]
) -> list[dict[str, float | None]]:
    """Let ir-measures rank gold tools under names of our own, which no other tool can have."""
    qrels: dict[str, dict[str, int]] = {}
    run: dict[str, dict[str, float]] = {}
    for number, ((query, answer), found) in enumerate(zip(pairs, places, strict=True)):
        golds = {gold: f"gold {n}" for n, gold in enumerate(query.relevant)}
        at = {place: golds[gold] for gold, place in found.items()}
        qrels[str(number)] = dict.fromkeys(golds.values(), 1)
        run[str(number)] = {
            at.get(place, f"place {place}"): float(-place) for place in range(len(answer.ranking))
        }
    # A query without an answer may be missing from what the library returns: it has 0.
    values: list[dict[str, float | None]] = [dict.fromkeys(_OF_THE_LIBRARY, 0.0) for _ in pairs]
    names = {wanted: name for name, wanted in _OF_THE_LIBRARY.items()}
    for metric in ir_measures.iter_calc(list(names), qrels, run):
        values[int(metric.query_id)][names[metric.measure]] = float(metric.value)
    return values


def _of_the_bound(query: LabelledQuery, bound: Sequence[ToolId]) -> dict[str, float]:
    found = len(credited(query, bound))
    return {
        "bound": float(len(bound)),
        "bound_recall": found / len(query.relevant),
        "bound_completeness": float(found == len(query.relevant)),
    }


def _wrong_sibling(
    query: LabelledQuery,
    ranking: Sequence[ToolId],
    found: Mapping[ToolId, int],
    siblings: Siblings,
) -> float:
    labelled = query.labelled
    return float(
        any(
            not (siblings.of(gold) - labelled).isdisjoint(ranking[: found.get(gold, DEPTH)])
            for gold in query.relevant
        )
    )
