import numpy as np
import pytest

from langchain_toolrag.postgres.spread import UNKNOWN, Spread


def test_mean_and_deviation_are_those_of_the_scores_of_all_rows():
    chooser = np.random.default_rng(0)
    rows = chooser.normal(size=(500, 16)).astype(np.float32)
    request = chooser.normal(size=16).astype(np.float32)
    mean, deviation = Spread.of(7, 0.2, rows).scores(request)
    scores = rows.astype(np.float64) @ request
    assert mean == pytest.approx(scores.mean(), abs=1e-5)
    assert deviation == pytest.approx(scores.std(), rel=1e-5)


def test_what_is_written_is_read_again():
    rows = np.random.default_rng(1).normal(size=(20, 4)).astype(np.float32)
    spread = Spread.of(3, 0.5, rows)
    again = Spread.read(3, 0.5, *spread.written())
    assert again.scores(rows[0]) == spread.scores(rows[0])


def test_one_row_has_no_deviation():
    assert Spread.of(1, 0.0, np.ones((1, 4), np.float32)).scores(np.ones(4, np.float32)) == (4, 0)


def test_where_nothing_was_measured_scores_spread_by_0():
    assert UNKNOWN.scores(np.ones(4, np.float32)) == (0, 0)
