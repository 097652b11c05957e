import numpy as np
import pytest

from langchain_toolrag.index.adapter import Adapter
from langchain_toolrag.trial.directory import HeadsDirectory

MODEL = "some-model"
DIM, HIDDEN = 4, 2


def make_adapter(seed, base=MODEL, kind="heads"):
    """Small heads, other ones for each seed."""
    dice = np.random.default_rng(seed)
    tensors = {}
    for side in ("request", "tool"):
        tensors[f"{side}.first.weight"] = dice.normal(size=(HIDDEN, DIM))
        tensors[f"{side}.first.bias"] = dice.normal(size=HIDDEN)
        tensors[f"{side}.second.weight"] = dice.normal(size=(DIM, HIDDEN))
        tensors[f"{side}.second.bias"] = dice.normal(size=DIM)
    if kind == "low-rank":
        tensors = {"a.up": np.ones((3, 1)), "a.down": np.ones((1, 3))}
    return Adapter(kind, base, 1.0, tensors, {})


@pytest.fixture
def adapter():
    return make_adapter


@pytest.fixture
def heads(tmp_path):
    """A folder of heads that is not there yet."""
    return HeadsDirectory(tmp_path / "heads")
