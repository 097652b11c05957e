from pathlib import Path

import pytest

from langchain_toolrag.evaluation.labelled import read_labelled
from langchain_toolrag.learning.pairs import read_pairs

DATA = Path(__file__).parents[2] / "data" / "finetune"


@pytest.fixture(scope="session")
def sets():
    """German requests for tools in English, so that no word of the one is in the other."""
    return read_pairs(DATA / "pairs.jsonl", DATA / "tools.jsonl")


@pytest.fixture(scope="session")
def watched():
    """Requests in the same words for tools that no training request needs."""
    return read_labelled(DATA / "watched")
