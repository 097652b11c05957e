"""How well a search in PostgreSQL finds, beside the local index: NDCG@10 of labelled sets.

    python -m tests.benchmark.postgres_quality DIR... [--cache FOLDER]

A DIR is a folder of `tools.jsonl` and `queries.jsonl`, as for `toolrag eval`. Our defaults and
words alone answer every query twice, by the local index and by a remote one in a real server. The
model is MiniLM with the adapter, its vectors kept in the cache.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from langchain_toolrag import ToolRAG
from langchain_toolrag.evaluation.answering import answer, answering_of, build
from langchain_toolrag.evaluation.contender import BUILT_IN
from langchain_toolrag.evaluation.evaluate import mean_measures, models_for
from langchain_toolrag.evaluation.labelled import read_all_labelled
from langchain_toolrag.evaluation.measures import Siblings, measure
from langchain_toolrag.postgres.index import PostgresIndex
from langchain_toolrag.postgres.upgrade import upgrade
from tests.postgres_server import PostgresServer

CONTENDERS = [BUILT_IN["default"], BUILT_IN["text"]]
MEASURE = "ndcg@10"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--cache", type=Path, default=Path(".toolrag"))
    arguments = parser.parse_args()
    models = models_for(CONTENDERS, arguments.cache)
    with tempfile.TemporaryDirectory() as folder:
        server = PostgresServer(folder)
        try:
            dsn = server.make_database()
            upgrade(dsn)
            print(f"{'':18}" + "".join(f"{c.name:>9}{'remote':>9}" for c in CONTENDERS))
            for labelled in read_all_labelled(arguments.sets):
                means = [m for c in CONTENDERS for m in compared(labelled, c, models[c.name], dsn)]
                print(f"{labelled.name:18}" + "".join(f"{mean:9.3f}" for mean in means))
        finally:
            server.close()


def compared(labelled, contender, model, dsn):
    """Mean NDCG@10 of the local index and of a remote one."""
    local = build(contender, labelled, model.embeddings, model.known)
    tenant = f"{labelled.name} {contender.name}"
    with PostgresIndex(dsn, tenant=tenant, embeddings=model.embeddings, mode="remote") as index:
        remote = ToolRAG(
            local.catalogue.originals,
            index=index,
            options=local.options,
            on_duplicate=local.on_duplicate,
        )
        return [mean_of(labelled, contender, rag) for rag in (local, remote)]


def mean_of(labelled, contender, rag):
    by_words = contender.way == "text"
    if not by_words:
        rag.index()
    answering = answering_of(contender, rag, by_words=by_words)
    answers = [answer(answering, query) for query in labelled.queries]
    return mean_measures(measure(labelled.queries, answers, Siblings(labelled.documents)))[MEASURE]


if __name__ == "__main__":
    main()
