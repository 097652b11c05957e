"""A company whose tools are advertised wrongly, and what is learned from its users' calls.

Run it with `python examples/learn_from_use.py`. `--seeds 5` does it with other people, other words
and other noise; `--curve` shows how many sessions it takes; `--guard DIR` says what is lost on a
labelled set that has nothing to do with the company.
"""

import argparse
import contextlib
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np
from company import TOOLS, Population, Session, Turn
from traffic import Chooser, as_meant, at_random, converse, replay

from langchain_toolrag import SelectionOptions, ToolRAG
from langchain_toolrag.errors import AdapterError
from langchain_toolrag.evaluation.contender import BUILT_IN
from langchain_toolrag.evaluation.evaluate import Model, evaluate
from langchain_toolrag.evaluation.labelled import LabelledSet, read_labelled
from langchain_toolrag.index.adapter import Adapter
from langchain_toolrag.index.contract import Index
from langchain_toolrag.index.embedding import MiniLMEmbeddings
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.learning.learn import Learned, LearnOptions, learn
from langchain_toolrag.trial.comparison import Comparison, compare_trial
from langchain_toolrag.trial.directory import HeadsDirectory
from langchain_toolrag.trial.sessions import dealt_sessions
from langchain_toolrag.usage.reading import read_usage

OPTIONS = SelectionOptions(k=8)  # Where descriptions mislead, an agent had better see some more.
SESSIONS, TRIAL_SESSIONS, LATER = 400, 1000, 400
CURVE = (100, 200, 400, 800, 1200, 1600)
KINDS = {"": "all", "habit": "advertised by others", "plain": "described well"}

_BY_AGENT = 20  # So many sessions talk to a whole agent, the others to what it consists of.


@dataclass(frozen=True)
class Score:
    """How requests find what they mean, 0 to 1: in the first place, and by reciprocal rank."""

    recall: float
    mrr: float


@dataclass
class Outcome:
    """What came of one population.

    Attributes:
        learned: What its log taught.
        scores: Base and learned heads, by kind of request: later ones, all (empty) or of a kind,
            and rare ones.
        trial: What live traffic says of the learned heads; None where there are none.
        useless: The same of heads that move as much, but anywhere.
        by_chance: What became of what calls at random teach.
        losses: NDCG@10 lost on labelled sets, by name.
    """

    learned: Learned
    scores: dict[str, tuple[Score, Score]]
    trial: Comparison | None = None
    useless: Comparison | None = None
    by_chance: str = ""
    losses: dict[str, float] = field(default_factory=dict)


@contextlib.contextmanager
def logging_rag(
    index: Index, data: Path, *, heads: Path | None = None, share: float = 0.5
) -> Iterator[ToolRAG]:
    """Open the company's tools, with a usage log; the index is shared, to embed tools once."""
    with ToolRAG(
        TOOLS,
        index=index,
        options=OPTIONS,
        usage_log=data / "usage",
        heads=heads,
        candidate_share=share,
    ) as rag:
        yield rag


def live(index: Index, data: Path, sessions: Iterable[Session], choose: Chooser = as_meant) -> None:
    """Let users work, the first ones with a whole agent."""
    coming = iter(sessions)
    with logging_rag(index, data) as rag:
        converse(rag, islice(coming, _BY_AGENT), choose)
        replay(rag, coming, choose)


def taught(index: Index, data: Path, seed: int) -> Learned:
    """Learn from what was logged."""
    with ToolRAG(TOOLS, index=index, options=OPTIONS) as rag:
        return learn(rag, data / "usage", options=LearnOptions(seed=seed))


def ranks(index: Index, turns: Sequence[Turn], adapter: Adapter | None = None) -> list[float]:
    """Search as an agent does, and return the reciprocal rank of the tool that is meant."""
    heads = None if adapter is None else Heads(adapter)
    with ToolRAG(TOOLS, index=index, heads=heads) as rag:
        found = [[hit.id for hit in rag.search(turn.text, k=10)] for turn in turns]
    return [
        1 / (1 + ids.index(turn.tool)) if turn.tool in ids else 0.0
        for turn, ids in zip(turns, found, strict=True)
    ]


def score(reciprocal_ranks: Sequence[float]) -> Score:
    """Sum up."""
    first = statistics.fmean(rank == 1 for rank in reciprocal_ranks)
    return Score(first, statistics.fmean(reciprocal_ranks))


def scores(
    index: Index, people: Population, adapter: Adapter | None
) -> dict[str, tuple[Score, Score]]:
    """Compare base and heads on requests that are worded as none was before."""
    turns = [*people.later(LATER), *people.rare()]
    before, after = ranks(index, turns), ranks(index, turns, adapter)
    kinds = {**{kind: (kind,) for kind in (*KINDS, "rare")}, "": ("habit", "plain")}
    return {
        name: (
            score([rank for turn, rank in zip(turns, before, strict=True) if turn.kind in kind]),
            score([rank for turn, rank in zip(turns, after, strict=True) if turn.kind in kind]),
        )
        for name, kind in kinds.items()
    }


def on_trial(index: Index, data: Path, adapter: Adapter, sessions: Iterable[Session]) -> Comparison:
    """Let heads answer half of the sessions, and compare what is called."""
    HeadsDirectory(data / "heads").put_on_trial(adapter)
    return trial_so_far(index, data, sessions)


def trial_so_far(index: Index, data: Path, sessions: Iterable[Session]) -> Comparison:
    """Go on with a trial; what `toolrag ab --data` prints is told of all its sessions."""
    heads = HeadsDirectory(data / "heads")
    with logging_rag(index, data, heads=heads.path) as rag:
        replay(rag, sessions)
    state = heads.state()
    if state.candidate is None:
        raise RuntimeError("the trial ended by itself")
    dealt = dealt_sessions(read_usage(data / "usage"), state, state.candidate)
    return compare_trial(dealt.sessions).everybody


def astray(adapter: Adapter, seed: int) -> Adapter:
    """Return heads that move every vector as far as these, but in other directions."""
    order = np.random.default_rng(seed).permutation(len(adapter.tensors["tool.second.bias"]))
    moved = {
        name: tensor[order] if ".second." in name else tensor
        for name, tensor in adapter.tensors.items()
    }
    return replace(adapter, tensors=moved, digest="")


def chance(index: Index, seed: int, sessions: int) -> str:
    """Say what becomes of what calls of random tools teach."""
    people = Population(seed)
    with tempfile.TemporaryDirectory() as folder:
        live(index, Path(folder), people.sessions("live", sessions), at_random)
        learned = taught(index, Path(folder), seed)
        if learned.adapter is None:
            return "refused"
        trial = people.sessions("trial", TRIAL_SESSIONS)
        return on_trial(index, Path(folder), learned.adapter, trial).verdict


def run(index: Index, seed: int, sessions: int, guards: Sequence[LabelledSet] = ()) -> Outcome:
    """Go the whole way with one population."""
    people = Population(seed)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        data = Path(folder)
        live(index, data, people.sessions("live", sessions))
        learned = taught(index, data, seed)
        outcome = Outcome(learned, scores(index, people, learned.adapter))
        if (adapter := learned.adapter) is not None:
            trial = list(people.sessions("trial", TRIAL_SESSIONS))
            outcome.trial = on_trial(index, data, adapter, trial)
            outcome.useless = on_trial(index, Path(other), astray(adapter, seed), trial)
            outcome.losses = {each.name: loss(each, adapter) for each in guards}
        outcome.by_chance = chance(index, seed, sessions)
    return outcome


def loss(labelled: LabelledSet, adapter: Adapter) -> float:
    """Return how much NDCG@10 a labelled set loses, which was not looked at for learning."""
    model = Model(MiniLMEmbeddings())
    before, after = (
        evaluate(labelled, BUILT_IN["default"], each).measures["ndcg@10"] or 0.0
        for each in (model, replace(model, heads=Heads(adapter)))
    )
    return before - after


def curve(index: Index, seed: int, *, promote: bool) -> Iterator[tuple[int, Score]]:
    """Learn after ever more sessions of one row; yield how many, and the score of what is in use.

    What is learned is used for the sessions that follow, or else they are answered by the base.
    """
    people, done = Population(seed), 0
    later = people.later(LATER)
    coming = people.sessions("live", CURVE[-1])
    with tempfile.TemporaryDirectory() as folder:
        data, in_use = Path(folder), None
        heads = HeadsDirectory(data / "heads")
        for count in CURVE:
            with logging_rag(index, data, heads=heads.path if promote else None) as rag:
                replay(rag, islice(coming, count - done))
            done, in_use = count, taught(index, data, seed).adapter or in_use
            if promote and in_use is not None:
                take_into_use(heads, in_use)
            yield count, score(ranks(index, later, in_use))


def take_into_use(heads: HeadsDirectory, adapter: Adapter) -> None:
    """Promote heads without a trial."""
    with contextlib.suppress(AdapterError):  # Nothing new was learned: they are in use already.
        heads.put_on_trial(adapter)
        heads.promote()


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1, help="how many populations (1)")
    parser.add_argument("--sessions", type=int, default=SESSIONS, help=f"of each ({SESSIONS})")
    parser.add_argument("--curve", action="store_true", help="learn from fewer sessions, and more")
    parser.add_argument("--guard", type=Path, action="append", default=[], metavar="DIR")
    options = parser.parse_args()
    index = company_index()
    if options.curve:
        print_curve(index, options.seeds)
        return
    guards = [read_labelled(directory) for directory in options.guard]
    outcomes = []
    for seed in range(options.seeds):
        outcomes.append(run(index, seed, options.sessions, guards))
        if options.seeds == 1:
            print_report(outcomes[0], index, seed, options.sessions)
        else:
            print_line(outcomes[-1], seed)
    if options.seeds > 1:
        print_table(outcomes)


def company_index() -> Index:
    """Embed the company's tools."""
    with ToolRAG(TOOLS) as rag:
        rag.index()
        return rag.tool_index


def print_report(outcome: Outcome, index: Index, seed: int, sessions: int) -> None:
    """Tell what happened."""
    report = outcome.learned.report
    print(f"{sessions} sessions over {len(TOOLS)} tools were logged, without a text.")
    print(
        f"learn: {report.examples} examples; {report.held_out} newer ones held out: "
        f"MRR {report.base:.3f} -> {report.candidate:.3f}"
    )
    if report.refusal:
        print(f"nothing is put on trial: {report.refusal}")
        return
    print("\nRequests that come later, in words that nobody used before:")
    print(f"  {'':22} {'Recall@1':^16} {'MRR':^16}")
    for kind, (before, after) in outcome.scores.items():
        name = KINDS.get(kind, "never asked before")
        print(
            f"  {name:22} {before.recall:.3f} -> {after.recall:.3f}   "
            f"{before.mrr:.3f} -> {after.mrr:.3f}"
        )
    print_finds(index, seed, outcome.learned.adapter)
    print(f"\nOn trial, with half of {TRIAL_SESSIONS} sessions:")
    for name, trial in (("learned", outcome.trial), ("useless", outcome.useless)):
        if trial is not None:
            print(f"  {name} heads: {told(trial)}")
    print(f"  learned from random calls: {outcome.by_chance}")
    for name, lost in outcome.losses.items():
        print(f"\n{name}: NDCG@10 {-lost:+.4f}")


def print_finds(index: Index, seed: int, adapter: Adapter | None) -> None:
    """Show some requests that find something else now."""
    if adapter is None:
        return
    found: dict[bool, list[str]] = {True: [], False: []}
    with (
        ToolRAG(TOOLS, index=index) as before,
        ToolRAG(TOOLS, index=index, heads=Heads(adapter)) as after,
    ):
        for turn in Population(seed).later(LATER):
            first, now = (rag.search(turn.text, k=1)[0].id for rag in (before, after))
            if first != now and turn.tool in (first, now):
                found[now == turn.tool].append(f"    {turn.text!r}: {first} -> {now}")
    print(f"  Of {LATER}, {len(found[True])} are right now that were wrong, such as")
    print("\n".join(found[True][:4]))
    print(f"  and {len(found[False])} are wrong now that were right", *found[False][:2], sep="\n")


def told(trial: Comparison) -> str:
    """Return a trial in words."""
    difference = trial.reciprocal_rank
    figures = (
        "too few calls"
        if difference.value is None or difference.error is None
        else f"reciprocal rank of called tools {difference.value:+.3f} +- {difference.error:.3f}"
    )
    return f"{figures}: {trial.verdict}"


def print_table(outcomes: Sequence[Outcome]) -> None:
    """Print means over populations, their standard deviations and ranges."""
    print(f"\n{'':34} {'before':>16} {'after':>16} {'gain: mean, from, to':>26}")
    for kind in outcomes[0].scores:
        name = KINDS.get(kind, "never asked before")
        for measure in ("recall", "mrr"):
            pairs = [
                (getattr(before, measure), getattr(after, measure))
                for before, after in (outcome.scores[kind] for outcome in outcomes)
            ]
            print(row(f"{name}, {measure}", pairs))
    held_out = [(each.learned.report.base, each.learned.report.candidate) for each in outcomes]
    print(row("held out by learn, mrr", held_out))
    trials = [
        ("learned heads on trial", [each.trial.verdict if each.trial else "" for each in outcomes]),
        (
            "useless heads on trial",
            [each.useless.verdict if each.useless else "" for each in outcomes],
        ),
        ("learned from random calls", [each.by_chance for each in outcomes]),
    ]
    for name, verdicts in trials:
        print(f"{name:34} {', '.join(verdict or 'nothing learned' for verdict in verdicts)}")
    for name in outcomes[0].losses:
        lost = [each.losses[name] for each in outcomes if name in each.losses]
        print(f"{name + ', NDCG@10 lost':34} {', '.join(f'{each:+.4f}' for each in lost)}")


def print_line(outcome: Outcome, seed: int) -> None:
    """Tell of one population among several what the table has no room for."""
    before, after = outcome.scores[""]
    trials = [
        f"{name} heads: {told(trial)}"
        for name, trial in (("learned", outcome.trial), ("useless", outcome.useless))
        if trial is not None
    ]
    said = outcome.learned.report.refusal or "; ".join(trials)
    print(f"seed {seed}: Recall@1 {before.recall:.3f} -> {after.recall:.3f}; {said}", flush=True)


def row(name: str, pairs: Sequence[tuple[float, float]]) -> str:
    """Return one line of the table."""
    gains = [after - before for before, after in pairs]
    columns = [
        f"{statistics.fmean(values):.3f} sd {statistics.stdev(values):.3f}"
        for values in zip(*pairs, strict=True)
    ]
    gained = f"{statistics.fmean(gains):+.3f}, {min(gains):+.3f}, {max(gains):+.3f}"
    return f"{name:34} {columns[0]:>16} {columns[1]:>16} {gained:>26}"


def print_curve(index: Index, seeds: int) -> None:
    """Print how later requests are found after ever more sessions: means over populations."""
    print(f"{'sessions':>8}  Recall@1, MRR: {'base answers':>14} {'promoted each time':>20}")
    by_seed = [
        [curve(index, seed, promote=promote) for promote in (False, True)] for seed in range(seeds)
    ]
    for count in CURVE:
        columns = []
        for way in (0, 1):
            found = [next(curves[way])[1] for curves in by_seed]
            recall = statistics.fmean(each.recall for each in found)
            columns.append(f"{recall:.3f}, {statistics.fmean(each.mrr for each in found):.3f}")
        print(f"{count:8}  {'':14} {columns[0]:>14} {columns[1]:>20}", flush=True)


if __name__ == "__main__":
    main()
