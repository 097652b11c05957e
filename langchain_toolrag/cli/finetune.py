"""`toolrag finetune`: labelled pairs in -> an adapter of the embedding model out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from langchain_toolrag.catalogue.sources.directory_tools import definitions
from langchain_toolrag.cli.arguments import Commands, at_least_one
from langchain_toolrag.cli.stores import add_store_arguments, opened_store, refuse_tenant
from langchain_toolrag.evaluation.labelled import read_all_labelled
from langchain_toolrag.evaluation.output import refuse_unwritable
from langchain_toolrag.index.weights import DEFAULT_MODEL

if TYPE_CHECKING:
    from langchain_toolrag.learning.finetune import Finetuned
    from langchain_toolrag.learning.pairs import TrainingSet

_NOTHING_LEARNED = 1


def register(commands: Commands) -> None:
    """Add the command to the parser."""
    finetune = commands.add_parser(
        "finetune", help="train an adapter of the embedding model from labelled requests"
    )
    finetune.set_defaults(run=_finetune)
    finetune.add_argument("--pairs", type=Path, required=True, metavar="FILE", help="pairs.jsonl")
    tools = add_store_arguments(
        finetune,
        help="what `toolrag ingest` wrote; `relevant` names tools by id or bound name",
    )
    tools.add_argument("--tools", type=Path, metavar="FILE", help="instead: a tools.jsonl")
    finetune.add_argument("--out", type=Path, required=True, metavar="FILE.safetensors")
    finetune.add_argument(
        "--watch",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="labelled sets, as for eval, that are not learned from: they decide when to stop and "
        "how much of the adapter is applied (default: the last fifth of each set's pairs)",
    )
    finetune.add_argument(
        "--leave-out", nargs="*", default=(), metavar="SET", help="sets of the pairs to pass over"
    )
    finetune.add_argument(
        "--heads",
        action="store_true",
        help="residual heads on the vectors rather than a low-rank change of the model",
    )
    finetune.add_argument("--model", default=DEFAULT_MODEL, help="default: %(default)s")
    finetune.add_argument("--steps", type=at_least_one, default=400, help="default: %(default)s")
    finetune.add_argument("--seed", type=int, default=0, help="default: %(default)s")


def _finetune(arguments: argparse.Namespace) -> int:
    from langchain_toolrag.learning.finetune import finetune  # Imports torch.

    refuse_unwritable(arguments.out)
    sets = _sets(arguments)
    watched = read_all_labelled(arguments.watch)
    with tqdm(total=arguments.steps, desc="training", unit=" steps", disable=None) as bar:

        def advance(step: int, loss: float) -> None:
            bar.set_postfix(loss=f"{loss:.3f}")
            bar.update(step - bar.n)

        finetuned = finetune(
            sets,
            watched,
            model=arguments.model,
            heads=arguments.heads,
            steps=arguments.steps,
            seed=arguments.seed,
            progress=advance,
        )
    print(_report(finetuned))
    if finetuned.adapter is None:
        print("the model as it is does best on the watched sets: nothing written", file=sys.stderr)
        return _NOTHING_LEARNED
    finetuned.write(arguments.out)
    print(f"written: {arguments.out}")
    return 0


def _sets(arguments: argparse.Namespace) -> Sequence[TrainingSet]:
    from langchain_toolrag.learning.pairs import read_pairs, read_pairs_for

    if arguments.tools is not None:
        refuse_tenant(arguments)
        return read_pairs(arguments.pairs, arguments.tools, leave_out=arguments.leave_out)
    with opened_store(arguments) as store:
        tools = definitions(store.tools())
    return [read_pairs_for(arguments.pairs, tools, leave_out=arguments.leave_out)]


def _report(finetuned: Finetuned) -> str:
    trained = finetuned.trained
    rows: list[tuple[str, Any]] = [("untrained", trained.before)]
    rows += [(f"step {step}", value) for step, value in trained.checks.items()]
    rows += [
        (f"step {trained.step}, scale {scale:g}", value) for scale, value in trained.scales.items()
    ]
    lines = [f"{finetuned.measure} of the watched sets, by meaning alone"]
    return "\n".join([*lines, *(f"  {name:20} {value:.4f}" for name, value in rows)])
