from pathlib import Path

import pytest

from langchain_toolrag.evaluation.labelled import read_labelled

DATA = Path(__file__).parents[2] / "data" / "labelled"


@pytest.fixture
def support():
    """Single requests; one with an alternative, one that needs two tools."""
    return read_labelled(DATA / "support")


@pytest.fixture
def travel():
    """Conversations, with calls in their history."""
    return read_labelled(DATA / "travel")
