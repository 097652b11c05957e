"""What a search costs beside the embedding of its query, and what a change of the catalogue costs.

    python -m tests.benchmark.scoring [--tools 1000 10000 100000] [--queries 200]

The catalogue is made up (see `catalogue`). The model costs nothing: its vectors are random, of
dimension 384. Times are milliseconds of one process; run it with OMP_NUM_THREADS=1 to have them of
one thread. The yardstick, `rank_bm25`, is that library's own scoring of the same terms, which is
but one part of what `evidence` does.
"""

from __future__ import annotations

import argparse
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from langchain_core.embeddings import Embeddings
from rank_bm25 import BM25Okapi

from langchain_toolrag import ToolRAG
from langchain_toolrag.index.analysis import query_terms, terms
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.texts import lexical_text
from langchain_toolrag.index.tool_index import ToolIndex
from tests.benchmark.catalogue import made_up_requests, made_up_tools

DIM = 384
THREADS = 16
YARDSTICK_QUERIES = 20
CHANGES = 20


class CostlessEmbeddings(Embeddings):
    """Random vectors; a query has the same one each time."""

    def __init__(self):
        self.vectors = np.random.default_rng(0).normal(size=(512, DIM)).astype(np.float32)

    def embed_documents(self, texts):
        seed = zlib.crc32(texts[0].encode())
        return np.random.default_rng(seed).normal(size=(len(texts), DIM)).astype(np.float32)

    def embed_query(self, text):
        return self.vectors[zlib.crc32(text.encode()) % len(self.vectors)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--queries", type=int, default=200)
    arguments = parser.parse_args()
    for count in arguments.tools:
        measure(count, arguments.queries)


def measure(count: int, queries: int) -> None:
    print(f"\n{count:,} tools")
    tools, before = made_up_tools(count), resident()
    rag = ToolRAG(tools, embeddings=CostlessEmbeddings(), debounce_ms=0)
    documents = rag.tool_index.documents
    index, building = timed(lambda: indexed(documents))
    print(f"  index built in {building / 1000:.2f} s, resident {resident() - before:.0f} MB more")
    rag.index()
    requests = made_up_requests(queries)
    index.evidence(requests[0])
    rag.select(requests[0])
    report("evidence", [timed(lambda r=r: index.evidence(r))[1] for r in requests])
    report("search", [timed(lambda r=r: rag.search(r))[1] for r in requests])
    report("select", [timed(lambda r=r: rag.select(r))[1] for r in requests])
    report("rank_bm25 get_scores", yardstick(documents, requests[:YARDSTICK_QUERIES]))
    report_changes(index, documents)
    print(f"  {THREADS} threads answer as one does: {threads_agree(rag, requests)}")


def indexed(documents):
    index = ToolIndex(CostlessEmbeddings())
    index.refresh(documents)
    index.embed()
    return index


def report_changes(index, documents) -> None:
    """Time changes of one tool, its embedding included, and a refresh that changes nothing."""
    new = [replace(documents[n], id=f"new_{n}", name=f"new_{n}") for n in range(CHANGES)]
    changed = [replace(documents[n], description=f"Other {n}.") for n in range(CHANGES)]
    report("add one", [timed(lambda d=d: add(index, d))[1] for d in new])
    report("change one", [timed(lambda d=d: add(index, d))[1] for d in changed])
    report("remove one", [timed(lambda d=d: index.remove([d.id]))[1] for d in new])
    index.add(documents[:CHANGES])
    equal = [replace(document) for document in documents]
    report("refresh, same objects", [timed(lambda: index.refresh(documents))[1] for _ in range(5)])
    report("refresh, equal objects", [timed(lambda: index.refresh(equal))[1] for _ in range(5)])


def add(index, document) -> None:
    index.add([document])
    index.embed()


def yardstick(documents, requests) -> list[float]:
    analyser = IndexOptions().analyser
    bm25 = BM25Okapi([terms(lexical_text(document), analyser) for document in documents])
    words = [query_terms(request, analyser) for request in requests]
    return [timed(lambda w=w: bm25.get_scores(w))[1] for w in words]


def threads_agree(rag, requests) -> bool:
    expected = [rag.select(request).ids for request in requests]
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda request: rag.select(request).ids, requests))
    return found == expected


def timed(call):
    start = time.perf_counter()
    result = call()
    return result, 1000 * (time.perf_counter() - start)


def report(name: str, times: list[float]) -> None:
    middle, high = np.percentile(times, [50, 95])
    print(f"  {name:<24} p50 {middle:10.3f} ms   p95 {high:10.3f} ms")


def resident() -> float:
    """Return the memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


if __name__ == "__main__":
    main()
