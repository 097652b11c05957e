import json

import pytest

from langchain_toolrag.evaluation.comparison import compare
from langchain_toolrag.evaluation.contender import read_contender
from langchain_toolrag.evaluation.evaluate import Model, evaluate
from langchain_toolrag.evaluation.measures import MEASURES
from langchain_toolrag.evaluation.report import as_json, as_lines
from langchain_toolrag.evaluation.table import as_table
from langchain_toolrag.index.embedding import NoEmbeddings


@pytest.fixture
def results(support, travel):
    def of(*names):
        return {
            name: [
                evaluate(labelled, read_contender(name), Model(NoEmbeddings()))
                for labelled in (support, travel)
            ]
            for name in names
        }

    return of


def test_json_of_one_contender_is_by_set(results):
    values = json.loads(json.dumps(as_json(results("text"))))
    assert list(values) == ["support", "travel"]
    assert (values["support"]["tools"], values["support"]["queries"]) == (8, 4)
    assert list(values["support"]["measures"]) == [*MEASURES, "milliseconds_p50"]
    assert values["travel"]["measures"]["wrong_sibling"] is None


def test_json_of_two_contenders_is_by_contender_and_has_the_comparison(results):
    both = results("text", "default")
    values = as_json(both, list(map(compare, *both.values())))
    assert list(values) == ["text", "default", "comparison"]
    assert list(values["default"]) == ["support", "travel"]
    of_support = values["comparison"]["support"]
    assert (of_support["first"], of_support["second"]) == ("text", "default")
    assert of_support["measure"] == "ndcg@10"
    assert len(of_support["interval"]) == 2
    assert of_support["better"] + of_support["worse"] + of_support["equal"] == 4
    assert json.loads(json.dumps(values)) == values


def test_every_contender_set_and_query_has_a_line(results):
    both = results("text", "default")
    lines = [json.loads(line) for line in as_lines(both).splitlines()]
    assert [(line["options"], line["set"], line["id"]) for line in lines[:5]] == [
        *(("text", "support", f"s{number}") for number in (1, 2, 3, 4)),
        ("text", "travel", "t1"),
    ]
    assert len(lines) == 14
    second = lines[1]
    assert second["query"] == "close the issue and email Anna"
    assert second["relevant"] == ["tracker/close_issue", "mail/send_email"]
    assert second["ranking"][0] == "tracker/close_issue"
    assert list(second["measures"]) == list(MEASURES)
    assert second["milliseconds"] >= 0


def test_a_table_has_a_row_a_set_and_contender_and_means_and_lines_up(results):
    both = results("text", "default")
    group, titles, *rows = as_table(both).split("\n\n")[0].splitlines()
    assert [row.split()[:2] for row in rows] == [
        ["support", "text"],
        ["support", "default"],
        ["travel", "text"],
        ["travel", "default"],
        ["mean", "text"],
        ["mean", "default"],
    ]
    assert {len(line) for line in (titles, *rows)} == {len(group)}
    assert group.split() == ["-" * 25, "ranking", "-" * 25, "-" * 6, "bound", "-" * 7, "time"]


def test_the_mean_of_a_table_is_over_the_sets_that_have_the_measure(results):
    text = results("text")
    *_, mean = as_table(text).split("\n\n")[0].splitlines()
    support, travel = (result.measures for result in text["text"])
    first = (support["recall@1"] + travel["recall@1"]) / 2
    assert mean.split()[2] == f"{first:.3f}"
    assert mean.split()[9] == f"{support['wrong_sibling']:.3f}"


def test_one_set_has_no_mean(results):
    one = {"text": results("text")["text"][1:]}
    table = as_table(one).split("\n\n")[0]
    assert "mean" not in table
    assert "  -  " in table  # No siblings: not 0, for nothing could go wrong.


def test_a_comparison_lists_the_queries_that_flipped(results, support):
    both = results("text", "default")
    comparison = compare(*(sets[0] for sets in both.values()))
    long = support.queries[0].__class__("s9", "word\n" * 40, ("tracker/create_issue",), {})
    flipped = type(comparison)(
        **{
            field: getattr(comparison, field)
            for field in comparison.__slots__
            if field not in ("gained", "lost")
        },
        gained=(support.queries[1],),
        lost=(long,),
    )
    *_, told = as_table(both, [flipped]).split("\n\n")
    lines = told.splitlines()
    assert lines[0] == "support: default against text"
    assert "95% paired bootstrap interval" in lines[1]
    assert "sign test p = " in lines[2]
    assert lines[3] == "  all@10 flipped: 1 gained, 1 lost"
    assert lines[4] == "    + s2  close the issue and email Anna"
    assert lines[5].startswith("    - s9  word word word")
    assert lines[5].endswith("…")
    assert len(lines) == 6
