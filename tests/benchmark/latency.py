"""How fast a selection is: beside its model, beside others, at any size, from process start.

    python -m tests.benchmark.latency [--tools 1000 10000 100000] [--bench DIR...] [--cache DIR]
                                      [--queries 200] [--json FILE] [--plot FILE]

One process and one thread; every request is answered by all contenders in random order, so that a
busy machine slows all alike: trust ratios. A contender that has used up its time sits out the other
requests. What a process pays once (imports, memory, first selection) is measured in new processes.

The catalogue is made up (see `catalogue`), after the tools of the `--bench` folders. Requests are
embedded by the real model. So are up to 1,000 tools, kept in `--cache`. Larger catalogues, and the
rivals at any size, have made-up vectors: to embed 100,000 tools takes 20 minutes. Its 300,000
vectors are 100,000 rows of the index. The floor of an embedding is what its multiplications take,
21.2 MFLOP a token, at the speed of the fastest float32 product of MiniLM's shapes that numpy does
in the same run.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_toolrag import ToolRAG
from langchain_toolrag.index.embedding import MiniLMEmbeddings
from langchain_toolrag.index.encoder import load_network
from langchain_toolrag.index.weights import DEFAULT_MODEL
from tests.benchmark.catalogue import (
    CLASSIC,
    ONE_PART,
    SEVERAL_PARTS,
    MadeUpToolVectors,
    TorchQueries,
    bigtool,
    classic,
    dynamic_tools,
    made_up_tools,
    requests_like,
    tools_of,
)
from tests.benchmark.scoring import resident, timed

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
MOST_EMBEDDED, MOST_CACHED = 1_000, 10_000
SECONDS, FEWEST = 20, 5  # What a contender may use at one size; what it answers whatever it uses.
THREADS, TOGETHER, REPEATS = 16, 64, 5
FIRST_REQUEST = "draw me a map of the old town"
FLOP_A_TOKEN = 21.2e6
GEMM_ROWS = 256  # Fewer are slower.
GEMM_SHAPES = {f"GEMM {k}x{n}": (k, n) for k, n in ((384, 384), (384, 1536), (1536, 384))}
EMBEDDING, SELECT, STEP = "embedding alone", "select", "further step"
MOST_RATIO = {1_000: 1.3, 10_000: 1.7, 100_000: 6.0}
FIRST_KEYS = ("seconds", "VmRSS", "VmHWM")
HEAVY = ("torch", "faiss", "langgraph", "langchain")
STATEMENTS = (
    "import langchain_toolrag",
    "from langchain_toolrag import ToolRAG",
    "from langchain_toolrag import ToolRAGMiddleware",
    "import sentence_transformers",
    "import langgraph.store.memory",
)
IMPORTING = """
import json, resource, sys
def spent():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
before = spent()
{statement}
print(json.dumps({{"cpu": spent() - before, "modules": sorted(sys.modules)}}))
"""
SELECTING = """
import json, pathlib, sys, time
tools = json.loads(pathlib.Path(sys.argv[1]).read_text())
from langchain_toolrag import ToolRAG
options = json.loads(sys.argv[4])
selection = ToolRAG(tools, cache_dir=sys.argv[2], **options).select(sys.argv[3])
answer = {"ended": time.time(), "cpu": time.process_time(), "degraded": selection.degraded}
for line in pathlib.Path("/proc/self/status").read_text().splitlines():
    if line.startswith(("VmRSS", "VmHWM")):
        answer[line[:5]] = int(line.split()[1]) / 1024
print(json.dumps({**answer, "torch": "torch" in sys.modules}))
"""


def products():
    """Yield the multiplications that the floor is worked out from; they ignore the request."""
    chooser = np.random.default_rng(0)
    for name, (inner, outer) in GEMM_SHAPES.items():
        rows = chooser.standard_normal((GEMM_ROWS, inner), np.float32)
        weights = chooser.standard_normal((inner, outer), np.float32)
        yield name, lambda _, rows=rows, weights=weights: rows @ weights


def step_of(rag):
    """Return a call that selects for the second step of a turn."""
    asked = HumanMessage("show me the invoices that are still open")
    first = rag.select([asked])
    call = {"name": first.names[0], "args": {}, "id": "1"}
    step = [asked, AIMessage("", tool_calls=[call]), ToolMessage("{}", tool_call_id="1")]
    return lambda _: rag.select(step, previous=first.state)


def interleaved(contenders, requests):
    """Return every contender's milliseconds, one a request, until its time is up."""
    times, order, chooser = {name: [] for name in contenders}, list(contenders), random.Random(0)
    for contend in contenders.values():
        contend(FIRST_REQUEST)
    gc.collect()
    gc.freeze()  # Or each would pay for the objects of all the others.
    for request in requests:
        chooser.shuffle(order)
        for name in order:
            if sum(times[name]) < 1000 * SECONDS or len(times[name]) < FEWEST:
                times[name].append(timed(partial(contenders[name], request))[1])
    return times


class Benchmark:
    """Measures, and keeps in `found`, as JSON values, what it measured."""

    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.found = {"sizes": {}, "imports": {}, "first": [], "first_by_words": []}
        self.network, self.model = load_network(DEFAULT_MODEL, None), MiniLMEmbeddings()
        self.model.load()
        self.made_up = MadeUpToolVectors()

    def tools(self, count):
        return [*tools_of(self.arguments.bench), *made_up_tools(count)][:count]

    def run(self):
        strangers = ToolRAG(made_up_tools(2100)[2000:], embeddings=self.model)
        self.found["cold_ms_a_tool"] = timed(strangers.index)[1] / 100
        print(f"embedding takes {self.found['cold_ms_a_tool']:.1f} ms a tool the first time")
        for count in self.arguments.tools:
            self.found["sizes"][count] = self.measure(count)
        self.start_processes()

    def measure(self, count):
        rag, found = self.indexed(count)
        print_indexing(count, found)
        ours = {EMBEDDING: rag.tool_index.embedder.embeddings.embed_query, SELECT: rag.select}
        contenders = {**ours, STEP: step_of(rag), **dict(products()), **self.rivals(rag)}
        requests = requests_like(ONE_PART, self.arguments.queries)
        several = requests_like(SEVERAL_PARTS, self.arguments.queries // 2)
        found["ms"], found["ms_several"] = (
            interleaved(contenders, requests),
            interleaved(ours, several),
        )
        found["tokens"] = [len(self.network.tokenizer(text)["input_ids"]) for text in requests]
        print_times(found)
        if count == min(self.arguments.tools):
            found["threads"] = together(*(self.build(count)(self.tools(count)) for _ in range(2)))
        return found

    def build(self, count):
        real = count <= MOST_EMBEDDED
        keeps = self.arguments.cache if real else self.folder if count <= MOST_CACHED else None
        model = self.model if real else self.made_up
        return partial(ToolRAG, embeddings=model, cache_dir=keeps, on_duplicate="prefix")

    def indexed(self, count):
        """Return a ToolRAG and what making it took, from nothing and from the cache."""
        tools, build, before = self.tools(count), self.build(count), resident()
        rag, building = timed(partial(build, tools))
        _, embedding = timed(rag.index)
        found = {"building_ms": building, "embedding_ms": embedding}
        found |= {"memory_mb": resident() - before, "real": count <= MOST_EMBEDDED}
        found["refresh_ms"] = timed(partial(rag.index, self.tools(count)))[1]
        again = [self.tools(count) for _ in range(3 if count <= MOST_CACHED else 0)]
        found["warm_ms"] = [timed(lambda tools=tools: build(tools).index())[1] for tools in again]
        return rag, found

    def rivals(self, rag):
        documents, torch = rag.tool_index.documents, TorchQueries(self.network, self.made_up)
        others = {**classic(documents, torch), **bigtool(documents, torch)}
        return {**others, **dynamic_tools(documents, torch, self.folder)}

    def start_processes(self):
        """Measure what a process pays once."""
        tools = Path(self.folder) / "tools.json"
        tools.write_text(json.dumps(self.tools(MOST_EMBEDDED)))
        first = [SELECTING, str(tools), str(self.arguments.cache), FIRST_REQUEST]
        in_new_process(*first, "{}")  # Fills the cache, if nothing has.
        for _ in range(REPEATS):
            for statement in STATEMENTS:
                imported = in_new_process(IMPORTING.format(statement=statement))
                self.found["imports"].setdefault(statement, []).append(imported)
            self.found["first"].append(in_new_process(*first, "{}"))
            if "background" in inspect.signature(ToolRAG).parameters:
                by_words = in_new_process(*first, json.dumps({"background": True}))
                self.found["first_by_words"].append(by_words)


def in_new_process(*command):
    """Run Python code; return what it printed, with the seconds from its start to `ended`."""
    started = time.time()
    done = subprocess.run([sys.executable, "-c", *command], capture_output=True, check=True)
    answer = json.loads(done.stdout)
    return {**answer, "seconds": answer["ended"] - started} if "ended" in answer else answer


def together(one, many):
    """Ask one ToolRAG on one thread, and its equal on many; both embed everything themselves."""
    times, equal = {"alone": [], "together": []}, True
    requests = requests_like(ONE_PART, REPEATS * TOGETHER)
    one.select(FIRST_REQUEST), many.select(FIRST_REQUEST)
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(requests), TOGETHER):
            batch = requests[start : start + TOGETHER]
            expected, alone = timed(lambda batch=batch: list(map(one.select, batch)))
            found, at_once = timed(lambda batch=batch: list(pool.map(many.select, batch)))
            times["alone"].append(alone)
            times["together"].append(at_once)
            equal &= [each.ids for each in found] == [each.ids for each in expected]
    return {**times, "equal": equal, "load": os.getloadavg()[0]}


def print_indexing(count, found):
    seconds = {name: found[f"{name}_ms"] / 1000 for name in ("building", "embedding", "refresh")}
    warm = f"{median(found['warm_ms']) / 1000:.2f} s" if found["warm_ms"] else "not measured"
    print(
        f"\n{count:,} tools: catalogue and words {seconds['building']:.2f} s, "
        f"{'real' if found['real'] else 'made-up'} vectors {seconds['embedding']:.2f} s, "
        f"memory {found['memory_mb']:.0f} MB, anew from the cache {warm}, "
        f"equal tools again {seconds['refresh']:.2f} s",
        flush=True,
    )


def print_times(found):
    alone = median(found["ms"][EMBEDDING])
    several = {f"{name}, several parts": times for name, times in found["ms_several"].items()}
    for name, times in {**found["ms"], **several}.items():
        p50, p95 = np.percentile(times, [50, 95])
        print(
            f"  {name:30} p50 {p50:9.3f} ms   p95 {p95:9.3f}   least {min(times):9.3f}   "
            f"{p50 / alone:8.2f} x embedding   ({len(times)})",
            flush=True,
        )


def print_processes(found):
    print("\nin new processes, medians")
    for statement, runs in found["imports"].items():
        print(f"  {statement:50}{median(run['cpu'] for run in runs):6.3f} s CPU  {heavy(runs)}")


def heavy(runs):
    return ", ".join(name for name in HEAVY if name in runs[0]["modules"])


@dataclass(frozen=True)
class Row:
    """A line of the table: `broken` makes it unmet whatever the number, `why` explains it."""

    what: str
    most: float
    measured: float | None
    unit: str
    why: str = ""
    broken: str = ""

    @property
    def verdict(self):
        if self.measured is None:
            return "-"
        return "yes" if self.measured <= self.most and not self.broken else "NO"


def rows_of_steps(sizes):
    for count, most in MOST_RATIO.items():
        size = sizes.get(count)
        why = "" if not size or size["real"] else "made-up tool vectors"
        measured = ratio(size, SELECT, EMBEDDING)
        yield Row(f"select / embedding alone, {count:,} tools", most, measured, "x", why)
    size, least = sizes.get(1_000), sizes[min(sizes)]
    share = f"the embedding alone is {ratio(size, EMBEDDING, CLASSIC):.2f}" if size else ""
    classic = ratio(size, SELECT, CLASSIC)
    yield Row("select / classic path, 1,000 tools", 0.35, classic, "x", share)
    yield Row("a further step in the same user turn", 0.3, median(least["ms"][STEP]), "ms")
    embedding = median(least["ms"][EMBEDDING]) / floor_ms(least)
    yield Row("embedding alone / GEMM floor", 2.5, embedding, "x")
    yield row_of_threads(least["threads"])
    size = sizes.get(10_000)
    seconds = median(size["warm_ms"]) / 1000 if size else None
    words = f"{size['building_ms'] / 1000:.2f} s are catalogue and words" if size else ""
    yield Row("warm re-index, 10,000 tools", 1.0, seconds, "s", words)


def row_of_threads(threads):
    slower = median(threads["together"]) / median(threads["alone"])
    busy = f"{os.cpu_count()} cores, load {threads['load']:.1f}"
    broken = "" if threads["equal"] else "other results"
    return Row(f"{THREADS} threads at once / one thread", 1.0, slower, "x", busy, broken)


def ratio(size, name, base):
    return None if size is None else median(size["ms"][name]) / median(size["ms"][base])


def floor_ms(size):
    """Return what the multiplications of the median request take."""
    flops = {name: 2 * GEMM_ROWS * inner * outer for name, (inner, outer) in GEMM_SHAPES.items()}
    in_a_ms = max(flops[name] / median(size["ms"][name]) for name in GEMM_SHAPES)
    return median(size["tokens"]) * FLOP_A_TOKEN / in_a_ms


def rows_of_processes(found):
    for statement in STATEMENTS[:2]:
        runs = found["imports"][statement]
        broken = f"it loads {heavy(runs)}" if heavy(runs) else ""
        seconds = median(run["cpu"] for run in runs)
        yield Row(statement, 0.3, seconds, "s CPU", broken=broken)
    first = found["first"]
    broken = "it loads torch" if first[0]["torch"] else first[0]["degraded"]
    seconds, memory, peak = (median(run[key] for run in first) for key in FIRST_KEYS)
    yield Row("first selection from process start", 1.5, seconds, "s", broken=broken)
    yield row_of_degraded_start(found["first_by_words"])
    yield Row("memory, 1,000 tools", 260, memory, "MB", f"{peak:.0f} at its peak", broken)


def row_of_degraded_start(runs):
    """Return the row of a first selection by words, while the model loads."""
    what = "first selection by words, from process start"
    if not runs:
        return Row(what, 0.6, None, "s", "not available")
    broken = "" if all(run["degraded"] for run in runs) else "it waited for the model"
    cpu = f"{median(run['cpu'] for run in runs):.2f} s CPU"
    return Row(what, 0.6, median(run["seconds"] for run in runs), "s", cpu, broken)


def print_table(rows):
    print(f"\n{'':44}{'at most':>8}{'measured':>10}         met")
    for row in rows:
        measured = "-" if row.measured is None else f"{row.measured:.3g}"
        note = "; ".join(filter(None, (row.verdict, row.broken, row.why)))
        print(f"{row.what:44}{row.most:>8g}{measured:>10}  {row.unit:7}{note}")


def plot(sizes, file):
    """Draw the median of every contender against the size of the catalogue."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 5))
    for name in sorted(sizes[min(sizes)]["ms"].keys() - GEMM_SHAPES.keys()):
        counts = [count for count in sorted(sizes) if name in sizes[count]["ms"]]
        medians = [median(sizes[count]["ms"][name]) for count in counts]
        axes.plot(counts, medians, marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="tools", ylabel="median ms, one thread")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(file, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    home = Path.home() / ".cache" / "langchain-toolrag"
    parser.add_argument("--tools", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--bench", type=Path, nargs="+", default=[], metavar="DIR")
    parser.add_argument("--cache", type=Path, default=home, metavar="DIR", help="keeps embeddings")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    if ONE_THREAD.items() - os.environ.items():  # Only read when numpy and torch are imported.
        command = [sys.executable, "-m", "tests.benchmark.latency", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **ONE_THREAD})
    with tempfile.TemporaryDirectory() as folder:
        benchmark = Benchmark(arguments, folder)
        benchmark.run()
    found = benchmark.found
    rows = [*rows_of_steps(found["sizes"]), *rows_of_processes(found)]
    print_processes(found)
    print_table(rows)
    if arguments.json:
        table = [{**asdict(row), "verdict": row.verdict} for row in rows]
        arguments.json.write_text(json.dumps({**found, "table": table}, indent=1))
    if arguments.plot:
        plot(found["sizes"], arguments.plot)


if __name__ == "__main__":
    main()
