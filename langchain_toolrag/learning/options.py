"""How heads are trained."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnOptions:
    """How heads are trained.

    The defaults were chosen on logs that were made up from the training pairs in `bench/train`:
    catalogues of 19, 120 and 360 tools of which half had each other's descriptions or came in
    three versions, 300 and 1,500 searches of which a tenth led to a call of any of the tools
    shown, MiniLM with and without this package's adapter. What counted was Recall@1 of later
    requests. `replay` and `stillness`, which work against forgetting, were chosen with an eye on
    NDCG@10 of `toolalpaca`, `restbench` and `mcp_dev` by meaning alone, and on two populations
    (seeds 100 and 101) of `examples/learn_from_use.py`; nothing was trained on any of these.

    Attributes:
        steps: How many batches.
        rate: Learning rate at its highest, after which it falls in a line to 0.
        batch: Examples a batch.
        hidden: Width of the layer inside each head.
        replay: What finding a tool by its own name and first sentence counts, beside an example.
        stillness: What it costs to move what nobody asked for, per squared distance.
        seed: Where the dice start.

    Raises:
        ValueError: If a number is too small to mean anything.
    """

    steps: int = 300
    rate: float = 1e-3
    batch: int = 128
    hidden: int = 256
    replay: float = 0.03
    stillness: float = 3.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "rate", "batch", "hidden"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; wanted more than 0")
        for name in ("replay", "stillness"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; wanted 0 or more")
