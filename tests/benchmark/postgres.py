"""PostgreSQL as the shared engine: what searches and changes cost beside the local index.

    python -m tests.benchmark.postgres [--tools 10000 100000] [--queries 200] [--json FILE]

A real server is started in a temporary folder: 1 GB of shared_buffers, all else as it comes. Every
request is answered by the local index, a replica and a remote search in random order, so that a
busy machine slows all alike: trust ratios. All vectors are made up, of tools and of requests: the
sum of a text's words, each embedded once by MiniLM, so that no time is that of a model. The server
runs on the same machine, over a socket.

Over 20,000 tools the index of vectors is made when they are there, as a database administrator
would for a first load; the speed of storing with the index in place is that of the last 2,000. The
memory of a replica is what it adds to a process that has the model.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import psycopg
from langchain_core.embeddings import Embeddings

from langchain_toolrag import ToolRAG
from langchain_toolrag.index.embedding import MiniLMEmbeddings
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.postgres.index import PostgresIndex
from langchain_toolrag.postgres.upgrade import upgrade
from tests.benchmark.catalogue import ONE_PART, made_up_tools, requests_like
from tests.benchmark.scoring import timed
from tests.postgres_server import PostgresServer

SETTINGS = {"shared_buffers": "1GB", "maintenance_work_mem": "1GB", "max_wal_size": "4GB"}
SAFE = ("fsync", "full_page_writes")
TENANT, DIM, DEPTH = "acme", 384, 10
INDEX = f"tool_vectors_{DIM}"
MOST_IN_PLACE = 20_000  # Tools; of more, the index of vectors is made afterwards.
LAST = 2_000  # Tools that are stored with the index in place, whatever the size.
CHANGES, THREADS = 20, 4
WORDS = re.compile(r"[^\W_]+")
ROLE = "-c role=toolrag_writer"  # As a service connects: tenants are kept apart by a policy.
OPENING = """
import json, sys
from tests.benchmark.postgres import WordVectors, opened
from tests.benchmark.scoring import resident
model = WordVectors(sys.argv[1])
before = resident()
index = opened(sys.argv[2], sys.argv[3], model)
index.evidence("list the invoices")
print(json.dumps(resident() - before))
"""


class WordVectors(Embeddings):
    """Embeds any text as the sum of its words, whose vectors are in a file."""

    model = "word-vectors"

    def __init__(self, file):
        loaded = np.load(file)
        self.words = {word: number for number, word in enumerate(loaded["words"].tolist())}
        self.vectors = loaded["vectors"]

    def embed_documents(self, texts):
        sums = np.array([self._sum(text) for text in texts])
        return sums / np.linalg.norm(sums, axis=1, keepdims=True)

    def embed_query(self, text):
        return self.embed_documents([text])[0]

    def _sum(self, text):
        known = {self.words.get(word, 0) for word in WORDS.findall(text.lower())}
        return self.vectors[sorted(known) or [0]].sum(axis=0)


def write_words(file, texts):
    """Embed every word of texts once, by the real model."""
    words = sorted({word for text in texts for word in WORDS.findall(text.lower())})
    words = ["other", *(word for word in words if not word.isdecimal())]
    np.savez(file, words=words, vectors=np.array(MiniLMEmbeddings().embed_documents(words)))


def opened(dsn, mode, model):
    return PostgresIndex(dsn, tenant=TENANT, embeddings=model, mode=mode)


def processor_seconds():
    """Return what this process and all of PostgreSQL's have used of processors."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:  # It has ended.
            continue
        if "(postgres" in name:
            ticks += sum(map(int, rest.split()[11:13]))
    return time.process_time(), ticks / os.sysconf("SC_CLK_TCK")


class Benchmark:
    """Measures one size, and keeps what it measured, as JSON values, in `found`."""

    def __init__(self, dsn, words, count, queries):
        self.owner, self.words, self.model = dsn, words, WordVectors(words)
        self.dsn = psycopg.conninfo.make_conninfo(dsn, options=ROLE)
        self.tools = made_up_tools(count)
        self.requests = requests_like(ONE_PART, queries)
        self.found = {"tools": count}

    def run(self):
        upgrade(self.owner, roles=True)
        self.local = ToolRAG(self.tools, index=ToolIndex(self.model))
        self.documents = self.local.tool_index.documents
        self.local.tool_index.embed()
        self.store()
        self.open_alone()
        self.indexes = {
            "local": self.local.tool_index,
            "replica": opened(self.dsn, "replica", self.model),
            "remote": self.remote,
        }
        self.found["recall"] = self.recall()
        self.found["evidence_ms"] = self.interleaved(
            {name: index.evidence for name, index in self.indexes.items()}
        )
        self.selections()
        self.at_once()
        self.changes()
        for name in ("replica", "remote"):
            self.indexes[name].close()
        return self.found

    def store(self):
        """Write the catalogue and its vectors; the last ones with the index in place."""
        self.remote = opened(self.dsn, "remote", self.model)
        first, count = self.documents[:-LAST], len(self.documents)
        _, writing = timed(partial(self.remote.refresh, first))
        self.found["written_a_second"] = 1000 * len(first) / writing
        afterwards = count > MOST_IN_PLACE
        if afterwards:
            self.execute(f"drop index toolrag.{INDEX}")
        _, storing = timed(self.remote.embed)
        self.found["vectors_a_second"] = 1000 * len(first) / storing
        if afterwards:
            self.found["index_made_s"] = timed(self.make_index)[1] / 1000
        self.remote.add(self.documents[-LAST:])
        _, storing = timed(self.remote.embed)
        self.found["vectors_a_second_in_place"] = 1000 * LAST / storing
        self.execute("vacuum analyze")
        self.found["sizes_mb"] = {
            name: self.execute(f"select pg_total_relation_size('toolrag.{name}')")[0][0] / 2**20
            for name in ("tools", "tool_vectors", "vectors", INDEX)
        }

    def make_index(self):
        self.execute(
            f"create index {INDEX} on toolrag.tool_vectors"
            f" using hnsw ((vector::halfvec({DIM})) halfvec_ip_ops) where dims = {DIM}"
        )

    def execute(self, query):
        with psycopg.connect(self.owner, autocommit=True) as connection:
            cursor = connection.execute(query)
            return cursor.fetchall() if cursor.description else []

    def open_alone(self):
        """Open a replica and a remote index in processes of their own: the memory they take."""
        for mode in ("replica", "remote"):
            command = [sys.executable, "-W", "ignore", "-c", OPENING, self.words, self.dsn, mode]
            done, took = timed(partial(subprocess.run, command, capture_output=True, check=True))
            self.found[f"{mode}_mb"] = json.loads(done.stdout)
            self.found[f"{mode}_opened_s"] = took / 1000

    def recall(self):
        """Return the share of the nearest tools that a remote search finds.

        Noted is, too, how many searches read the index of vectors: where PostgreSQL rather reads
        all of them, the share says nothing of the index.
        """
        shares, before = [], self.index_scans()
        for request in self.requests:
            nearest = sorted(self.dense(self.indexes["local"], request), reverse=True)[:DEPTH]
            given = self.dense(self.indexes["remote"], request)
            # Tools as near as the last of them count too; 16 bits a number are kept.
            shares.append(min(sum(score >= nearest[-1] - 5e-4 for score in given), DEPTH) / DEPTH)
        self.found["by_index"] = (self.index_scans() - before) / len(self.requests)
        return float(np.mean(shares))

    def index_scans(self):
        time.sleep(1.5)  # The server's processes tell what they did once a second.
        for _ in range(4):  # In turn, those of the pool: an idle one tells nothing.
            self.indexes["remote"].evidence(self.requests[0])
        time.sleep(1.5)
        counted = f"select idx_scan from pg_stat_user_indexes where indexrelname = '{INDEX}'"
        return self.execute(counted)[0][0]

    def dense(self, index, request):
        tools = index.evidence(request).tools
        return [tool.dense for tool in tools if tool.dense is not None]

    def interleaved(self, contenders):
        """Return every contender's milliseconds, one a request."""
        times, order = {name: [] for name in contenders}, list(contenders)
        chooser = random.Random(0)
        for contend in contenders.values():
            contend(self.requests[0])
        gc.collect()
        gc.freeze()
        for request in self.requests:
            chooser.shuffle(order)
            for name in order:
                times[name].append(timed(partial(contenders[name], request))[1])
        return times

    def selections(self):
        """Measure whole selections, of the tools of one catalogue; few need be bound."""
        rags = {"local": self.local}
        for name in ("replica", "remote"):
            rags[name] = ToolRAG(self.tools, index=self.indexes[name])
        self.found["select_ms"] = self.interleaved({n: rag.select for n, rag in rags.items()})

    def at_once(self):
        """Measure what several threads do together, and what processors that takes."""
        self.found["at_once"] = {}
        for name, index in self.indexes.items():
            requests = list(itertools.islice(itertools.cycle(self.requests), 400))
            before = processor_seconds()
            with ThreadPoolExecutor(THREADS) as pool:
                _, took = timed(lambda index=index, r=requests: list(pool.map(index.evidence, r)))
            here, there = np.subtract(processor_seconds(), before) / len(requests) * 1000
            self.found["at_once"][name] = {
                "a_second": 1000 * len(requests) / took,
                "ms_here": here,
                "ms_there": there,
            }

    def changes(self):
        """Measure adding a tool until it is found, and a refresh of equal tools."""
        new = [replace(doc, id=f"new_{n}") for n, doc in enumerate(self.documents[:CHANGES])]
        self.found["add_ms"], self.found["refresh_ms"] = {}, {}
        for name, index in self.indexes.items():

            def add(document, index=index):
                index.add([document])
                index.evidence(document.name)

            self.found["add_ms"][name] = [timed(partial(add, document))[1] for document in new]
            index.remove([document.id for document in new])
            equal = [replace(document) for document in self.documents]
            self.found["refresh_ms"][name] = timed(partial(index.refresh, equal))[1]


def print_size(found):
    print(f"\n{found['tools']:,} tools")
    for what in ("evidence", "select"):
        base = median(found[f"{what}_ms"]["local"])
        for name, times in found[f"{what}_ms"].items():
            p50, p95 = np.percentile(times, [50, 95])
            print(
                f"  {what:9}{name:9} p50 {p50:8.2f} ms   p95 {p95:8.2f} ms   {p50 / base:6.2f} x",
                flush=True,
            )
    for name, load in found["at_once"].items():
        print(
            f"  {THREADS} threads {name:9} {load['a_second']:8.0f} a second, "
            f"{load['ms_here']:.2f} ms of a processor here, {load['ms_there']:.2f} in the server"
        )
    print(
        f"  recall@{DEPTH} of the remote search {found['recall']:.3f}, "
        f"{found['by_index']:.2f} readings of the index of vectors a search"
    )
    for name in ("replica", "remote"):
        seconds, memory = found[f"{name}_opened_s"], found[f"{name}_mb"]
        print(f"  {name} opened in {seconds:.1f} s, first search included, {memory:.0f} MB")
    print(
        f"  written {found['written_a_second']:.0f} tools a second, with their vectors "
        f"{found['vectors_a_second']:.0f}, {found['vectors_a_second_in_place']:.0f} with the index "
        "in place"
    )
    if "index_made_s" in found:
        print(f"  index of vectors made in {found['index_made_s']:.0f} s")
    for name in found["add_ms"]:
        print(
            f"  {name}: one tool added and found {median(found['add_ms'][name]):.1f} ms, "
            f"refresh of equal tools {found['refresh_ms'][name]:.0f} ms"
        )
    print("  MB: " + ", ".join(f"{name} {mb:.0f}" for name, mb in found["sizes_mb"].items()))


def start(folder):
    server = PostgresServer(Path(folder) / "data")
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        for name in SAFE:
            connection.execute(f"alter system reset {name}")
        for name, value in SETTINGS.items():
            connection.execute(f"alter system set {name} = '{value}'")
    server.restart()
    return server


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="toolrag-pg-") as folder:
        Path(folder).chmod(0o755)  # The server is another user's, where this one is root.
        words = f"{folder}/words.npz"
        texts = [json.dumps(tool) for tool in made_up_tools(max(arguments.tools))]
        write_words(words, [*texts, *requests_like(ONE_PART, arguments.queries)])
        server = start(folder)
        try:
            for count in arguments.tools:
                dsn = server.make_database()
                found = Benchmark(dsn, words, count, arguments.queries).run()
                results.append(found)
                print_size(found)
                server.drop_database(dsn)
        finally:
            server.close()
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
