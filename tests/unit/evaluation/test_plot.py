import importlib.util
import re

import pytest

from langchain_toolrag.errors import SourceError
from langchain_toolrag.evaluation.contender import read_contender
from langchain_toolrag.evaluation.evaluate import Model, evaluate
from langchain_toolrag.evaluation.output import refuse_unwritable, write_whole
from langchain_toolrag.evaluation.plot import plot, refuse_unplottable
from langchain_toolrag.index.embedding import NoEmbeddings


@pytest.fixture
def results(support, travel):
    return {
        name: [
            evaluate(labelled, read_contender(name), Model(NoEmbeddings()))
            for labelled in (support, travel)
        ]
        for name in ("text", "default")
    }


def test_a_png_is_drawn(results, tmp_path):
    path = tmp_path / "chart.PNG"
    plot(results, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [path]


def test_an_svg_has_a_panel_a_set_and_five_bars_a_contender_in_each(results, tmp_path):
    path = tmp_path / "chart.svg"
    plot(results, path)
    drawn = path.read_text()
    comments = re.findall(r"<!-- (.*?) -->", drawn)
    assert "support (4 queries, 8 tools)" in comments
    assert "travel (3 queries, 4 tools)" in comments
    assert [comments.count(label) for label in ("R@1", "R@10", "text", "default")] == [2, 2, 1, 1]
    assert len([text for text in comments if re.fullmatch(r"[01]\.\d\d", text)]) == 20


def test_a_chart_of_one_contender_and_a_name_with_dollars_is_drawn(results, tmp_path):
    named = results["text"][0].__class__("text", "$x$ {y}", 8, results["text"][0].queries)
    plot({"text": [named]}, tmp_path / "chart.svg")
    assert "$x$ {y} (4 queries, 8 tools)" in (tmp_path / "chart.svg").read_text()


@pytest.mark.parametrize("name", ["chart.pdf", "chart", "chart.png.txt"])
def test_another_suffix_is_refused(name, tmp_path):
    with pytest.raises(SourceError, match=r"wanted a file that ends in \.png or \.svg"):
        refuse_unplottable(tmp_path / name)


def test_a_missing_matplotlib_is_an_error_that_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SourceError, match=r"pip install 'langchain-toolrag\[plot\]'"):
        refuse_unplottable(tmp_path / "chart.png")


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    with pytest.raises(SourceError, match=f"there is no folder {tmp_path / 'no'}"):
        refuse_unwritable(tmp_path / "no" / "lines.jsonl")
    with pytest.raises(SourceError, match="is no ordinary file"):
        refuse_unwritable(tmp_path)
    with pytest.raises(SourceError, match="is no ordinary file"):
        refuse_unwritable(tmp_path.__class__("/dev/null"))


def test_a_folder_without_permission_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(SourceError, match="no permission to write in"):
        refuse_unwritable(tmp_path / "lines.jsonl")


def test_a_file_is_replaced_at_once(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text("old")
    refuse_unwritable(path)
    write_whole(path, b"new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_went_away_is_an_error(tmp_path):
    with pytest.raises(SourceError, match="cannot be written: No such file or directory"):
        write_whole(tmp_path / "gone" / "lines.jsonl", b"")
