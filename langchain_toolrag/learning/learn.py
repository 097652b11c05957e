"""A usage log and the tools that it is about -> heads, once they prove better than chance, out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from langchain_toolrag.errors import EmbeddingError, SourceError
from langchain_toolrag.evaluation.evaluate import Progress
from langchain_toolrag.evaluation.labelled import LabelledSet
from langchain_toolrag.index.adapter import Adapter
from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.embedding import NoEmbeddings
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.learning.examples import ExampleSet
from langchain_toolrag.learning.guard import guard_sets
from langchain_toolrag.learning.heads import ResidualHeads
from langchain_toolrag.learning.heads_training import Material, Step, train_heads
from langchain_toolrag.learning.held_out import (
    Chosen,
    Difference,
    choose_scale,
    difference,
    reciprocal_ranks,
)
from langchain_toolrag.learning.keeping import labelled_examples, own_pairs, still_vectors
from langchain_toolrag.learning.mining import Answered, mine
from langchain_toolrag.learning.options import LearnOptions
from langchain_toolrag.learning.report import Course, LearnReport, course_of
from langchain_toolrag.learning.traffic import Traffic, agreement, call_rates, guessed, traffic_of
from langchain_toolrag.toolrag import ToolRAG
from langchain_toolrag.types import ToolDocument, Vectors
from langchain_toolrag.usage.digests import open_digests
from langchain_toolrag.usage.files import usage_files
from langchain_toolrag.usage.reading import Skipped, read_usage
from langchain_toolrag.usage.request_vectors import RequestVectors
from langchain_toolrag.vectors.cache import VectorMemory

__all__ = ["FEWEST_EXAMPLES", "LearnOptions", "Learned", "learn"]

FEWEST_EXAMPLES = 20
"""With fewer searches nothing can be told from chance."""


_MOST_AGREEMENT = 0.5
"""Where so few tools are ever called that popularity says which, it is no reason to refuse."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What came of it.

    Attributes:
        report: How it went.
        adapter: The heads; None where they are refused, and the report says why.
    """

    report: LearnReport
    adapter: Adapter | None = None


def learn(
    rag: ToolRAG,
    usage: str | Path,
    *,
    options: LearnOptions | None = None,
    guard: Sequence[LabelledSet] = (),
    max_drop: float = 0.01,
    general: Sequence[LabelledSet] = (),
    progress: Progress | None = None,
) -> Learned:
    """Learn from what was searched for and called.

    Training starts from the base model also where heads are in use: those were learned from the
    same log, and what they found is in it. The newest fifth of the searches is held out; it decides
    how much of the heads is applied. They are refused if they are not better there, by more than 2
    standard errors, than the base model, and than the same training on the same searches with
    the called tool drawn from those shown: from all alike, or by how popular they are. They are
    refused, too, if they lose on a labelled set.

    Nothing is written, and no text of a user's is needed: the vectors of requests are found by
    their digests, and nobody's heads change by this.

    Args:
        rag: The tools, and the model that the requests were embedded with.
        usage: The directory of the usage log.
        options: How to train; None for the defaults.
        guard: Labelled sets that the heads must not lose on.
        max_drop: How much NDCG@10 they may lose on each of them, 0 to 1.
        general: Labelled sets that are learned too, so that they are not forgotten; not those of
            `guard`, which would prove nothing then.
        progress: Told what is being done and how far it is.

    Returns:
        The heads, or why there are none.

    Raises:
        SourceError: If there are fewer than 20 searches to learn from, the log cannot be read, or
            its key is missing.
        EmbeddingError: If there is no embedding model or it fails.
        ValueError: If `max_drop` is not from 0 to 1.
    """
    if not 0 <= max_drop <= 1:
        raise ValueError(f"max_drop is {max_drop}; wanted 0 to 1")
    lesson = _Lesson(rag, Path(usage), options or LearnOptions(), progress or _silence)
    report, adapter = lesson.learn(general)
    if not report.refusal and guard:
        report = lesson.guarded(report, adapter, guard, max_drop)
    return Learned(report, None if report.refusal else adapter)


class _Lesson:
    """One log, one catalogue, one model."""

    def __init__(
        self, rag: ToolRAG, usage: Path, options: LearnOptions, progress: Progress
    ) -> None:
        self._index = _index_of(rag)
        self._options = options
        self._progress = progress
        self._documents, self._traffic, self._skipped = self._read(usage)

    def learn(self, general: Sequence[LabelledSet]) -> tuple[LearnReport, Adapter]:
        """Train the candidate and what it has to be better than, and compare them."""
        older, newest = self._traffic.split()
        tests = self._traffic.tests(newest)
        material = self._material(older, general)
        requests = [example.request for example in tests.examples]
        heads, course, chosen = self._trained("learning", material, tests)

        def against(doing: str, answers: Sequence[Answered]) -> tuple[Course, Difference]:
            other = replace(material, sets=[self._traffic.examples(answers)])
            _, its_course, its_choice = self._trained(doing, other, tests)
            return its_course, difference(chosen.ranks[0], its_choice.ranks[0], requests)

        seed = self._options.seed
        control, over_control = against("learning from guesses", guessed(older, seed))
        popular = guessed(older, seed, call_rates(older))
        popularity, over_popularity = (
            against("learning what is popular", popular)
            if agreement(older, popular) <= _MOST_AGREEMENT
            else (None, None)
        )
        report = LearnReport(
            options=self._options,
            tools=len(self._documents),
            examples=len(self._traffic.searches),
            held_out=len(newest),
            skipped=self._skipped,
            candidate_course=course,
            control_course=control,
            popularity_course=popularity,
            over_base=difference(chosen.ranks[0], chosen.base[0], requests),
            over_control=over_control,
            over_popularity=over_popularity,
        )
        report = replace(report, refusal=_refusal(report))
        return report, heads.adapter(self._index.model, chosen.scale, _card(report))

    def guarded(
        self, report: LearnReport, adapter: Adapter, sets: Sequence[LabelledSet], max_drop: float
    ) -> LearnReport:
        """Return the report with what the heads do to labelled sets."""
        embeddings = self._index.embedder.embeddings
        guard = guard_sets(sets, Heads(adapter), embeddings, self._index.options, self._progress)
        lost = [
            f"{each.name} loses {each.drop:.4f} of its NDCG@10 ({each.before:.4f} to "
            f"{each.after:.4f}); allowed is {max_drop:g}"
            for each in guard
            if each.drop > max_drop
        ]
        return replace(report, guard=guard, refusal="; ".join(lost))

    def _read(self, usage: Path) -> tuple[Sequence[ToolDocument], Traffic, dict[str, int]]:
        """Return the tools, what the log teaches of them, and how many of what it has besides."""
        if any(usage_files(usage)):
            open_digests(
                usage
            )  # Names a key that is missing; digests without it are good for nothing.
        skipped = Skipped()
        mined = mine(read_usage(usage, skipped=skipped))
        digests = {search.request for search in mined.searches}
        vectors = RequestVectors(usage).get(self._index.model, sorted(digests))
        documents, rows = self._embedded()
        identities = [document.id for document in documents]
        traffic = traffic_of(mined.searches, vectors, rows, identities, mined.left_out)
        of_no_use = {**mined.left_out, **_lines(skipped)}
        if len(traffic.searches) < FEWEST_EXAMPLES:
            raise SourceError(str(usage), _too_few(len(traffic.searches), of_no_use))
        return documents, traffic, of_no_use

    def _embedded(self) -> tuple[Sequence[ToolDocument], Vectors]:
        """Return the documents, and their rows as no heads have moved them."""
        self._index.embed(lambda done, total: self._progress("embedding tools", done, total))
        snapshot = self._index.snapshot  # One state: other processes may change a shared index.
        if snapshot.dense is None:
            raise SourceError("the catalogue", "has no tools; wanted those that the log is about")
        documents = [each for each in snapshot.documents.values() if each.id in snapshot.keys]
        return documents, snapshot.dense.rows([snapshot.keys[each.id] for each in documents])

    def _material(self, older: Sequence[Answered], general: Sequence[LabelledSet]) -> Material:
        index, traffic = self._index, self._traffic
        own = own_pairs(self._documents, traffic.rows, index.embedder, seed=self._options.seed)
        # Requests of labelled sets are not to be kept among the vectors of tools.
        apart = Embedder(index.embedder.embeddings, cache=VectorMemory(), keep_requests=True)
        return Material(
            sets=[traffic.examples(older)],
            own=[own],
            general=[labelled_examples(each, apart, index.options) for each in general],
            still=still_vectors([own], index.embedder),
        )

    def _trained(
        self, doing: str, material: Material, tests: ExampleSet
    ) -> tuple[ResidualHeads, Course, Chosen]:
        losses: list[float] = []
        checks: dict[int, float] = {}

        def adapter_of(heads: ResidualHeads, scale: float) -> Adapter:
            return heads.adapter(self._index.model, scale, {})

        def told(step: Step, heads: ResidualHeads) -> None:
            losses.append(step.loss)
            if step.is_check:
                found = reciprocal_ranks(tests, Heads(adapter_of(heads, 1.0)))
                checks[step.number] = float(found.mean())
            self._progress(doing, step.number, self._options.steps)

        heads = train_heads(material, self._options, told)
        chosen = choose_scale(lambda scale: adapter_of(heads, scale), [tests])
        return heads, course_of(losses, checks, chosen), chosen


def _index_of(rag: ToolRAG) -> ToolIndex:
    index = rag.tool_index.local
    if index is None:
        raise TypeError(
            f"the index is a {type(rag.tool_index).__name__} without vectors in memory; wanted one "
            "that is local"
        )
    if isinstance(index.embedder.embeddings, NoEmbeddings):
        raise EmbeddingError(
            "heads move the vectors of an embedding model: search by one, not words"
        )
    return index


def _refusal(report: LearnReport) -> str:
    """Return why the heads are not better than chance; empty if they are."""
    if not report.scale:
        return f"the base model does best on the newest {report.held_out} searches"
    others = {"base model": report.over_base, "control": report.over_control}
    if report.over_popularity is not None:
        others["popularity of tools"] = report.over_popularity
    for what, found in others.items():
        if found.groups < 2:
            return f"all of the newest {report.held_out} searches ask the same: nothing can be told"
        if not found.is_sure:
            return (
                f"it is not better than the {what} beyond chance on the newest {report.held_out} "
                f"searches, of {found.groups} different requests: {found.mean:+.4f} with a "
                f"standard error of {found.error:.4f}; wanted more than 2 of them"
            )
    return ""


def _too_few(found: int, of_no_use: dict[str, int]) -> str:
    """Return the message of a log that teaches too little."""
    besides = ", ".join(f"{number:,} {what}" for what, number in of_no_use.items())
    return (
        f"{found} searches with a called tool are too few to learn from; wanted {FEWEST_EXAMPLES}. "
        + (f"Of no use were {besides}" if besides else "There is nothing else in it")
    )


def _lines(skipped: Skipped) -> dict[str, int]:
    names = {"torn": "torn", "foreign": "foreign", "unknown_version": "unknown-version"}
    counts = {f"{names[name]} lines": number for name, number in asdict(skipped).items()}
    return {name: number for name, number in counts.items() if number}


def _card(report: LearnReport) -> dict[str, object]:
    return {
        "learned from": {
            "searches": report.examples,
            "held out": report.held_out,
            "tools": report.tools,
        },
        "options": asdict(report.options),
        "held-out mean reciprocal rank": {
            "base": report.base,
            "candidate": report.candidate,
            "control": report.control,
        },
    }


def _silence(doing: str, done: int, total: int) -> None:
    """Tell nobody."""
