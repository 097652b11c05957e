import json
import os
import subprocess
import sys

import numpy as np
import pytest
from fakes import DIM

from langchain_toolrag import cli
from langchain_toolrag.index import embedding
from langchain_toolrag.index.adapter import Adapter, write_adapter

SUPPORT, TRAVEL = "tests/data/labelled/support", "tests/data/labelled/travel"


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)


def test_two_folders_make_a_table_with_their_mean(encoded, capsys):
    assert cli.main(["eval", SUPPORT, TRAVEL]) == 0
    printed = capsys.readouterr()
    rows = [line.split()[:2] for line in printed.out.splitlines()[2:5]]
    assert rows == [["support", "default"], ["travel", "default"], ["mean", "default"]]
    assert "embedding the query is not counted" in " ".join(printed.out.split())
    assert printed.err == ""


def test_json_is_by_set_and_nothing_else_is_printed(encoded, capsys):
    assert cli.main(["eval", SUPPORT, TRAVEL, "--json"]) == 0
    printed = capsys.readouterr()
    values = json.loads(printed.out)
    assert list(values) == ["support", "travel"]
    assert (values["support"]["tools"], values["support"]["queries"]) == (8, 4)
    assert {"recall@5", "ndcg@10", "completeness@10", "bound"} <= {*values["travel"]["measures"]}
    assert printed.err == ""


def test_compare_prints_both_and_what_tells_them_apart(encoded, capsys):
    assert cli.main(["eval", SUPPORT, "--compare", "classic", "default"]) == 0
    printed = capsys.readouterr().out
    assert [line.split()[1] for line in printed.splitlines()[2:4]] == ["classic", "default"]
    assert "support: default against classic\n  NDCG@10 " in printed
    assert cli.main(["eval", SUPPORT, "--compare", "classic", "default", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert list(values) == ["classic", "default", "comparison"]
    assert list(values["comparison"]) == ["support"]


def test_ones_own_tools_queries_and_options_are_evaluated(tmp_path, capsys):
    options = tmp_path / "mine.json"
    options.write_text(json.dumps({"selection": {"k": 2}}))
    arguments = ["--tools", f"{SUPPORT}/tools.jsonl", "--queries", f"{SUPPORT}/queries.jsonl"]
    chosen = ["--options", str(options), "--lexical", "--json"]
    assert cli.main(["eval", *arguments, *chosen]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["queries"]["measures"]["bound"] <= 2


def test_a_line_for_every_query_and_a_chart_are_written(tmp_path, capsys):
    lines, chart = tmp_path / "lines.jsonl", tmp_path / "chart.svg"
    files = ["--per-query", str(lines), "--plot", str(chart)]
    assert cli.main(["eval", SUPPORT, TRAVEL, "--lexical", *files]) == 0
    read = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [line["id"] for line in read] == ["s1", "s2", "s3", "s4", "t1", "t2", "t3"]
    assert chart.read_text().startswith("<?xml")


def test_lexical_loads_no_model(capsys, monkeypatch):
    monkeypatch.setattr(embedding, "load_encoder", lambda *_: pytest.fail("the model was loaded"))
    assert cli.main(["eval", SUPPORT, "--lexical"]) == 0
    assert cli.main(["eval", SUPPORT, "--options", "text"]) == 0


def test_the_real_model_finds_what_is_asked_for(capsys):
    assert cli.main(["eval", SUPPORT, TRAVEL, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    for name in ("support", "travel"):
        assert values[name]["measures"]["completeness@10"] == 1.0
        assert values[name]["measures"]["mrr"] > 0.8


@pytest.fixture
def headed(tmp_path):
    """Options that name heads which answer every request with one vector."""

    def write(base):
        tensors = {}
        for side in ("request", "tool"):
            tensors[f"{side}.first.weight"] = np.zeros((2, DIM))
            tensors[f"{side}.first.bias"] = np.zeros(2)
            tensors[f"{side}.second.weight"] = np.zeros((DIM, 2))
            tensors[f"{side}.second.bias"] = np.zeros(DIM)
        tensors["request.second.bias"][0] = 1e3
        heads = tmp_path / "heads.safetensors"
        write_adapter(Adapter("heads", base, 1.0, tensors, {}), heads)
        options = tmp_path / "headed.json"
        options.write_text(json.dumps({"heads": str(heads)}))
        return str(options)

    return write


def test_heads_are_compared_with_the_model_as_it_is(encoded, headed, capsys):
    options = headed(embedding.model_name(embedding.MiniLMEmbeddings()))
    assert cli.main(["eval", SUPPORT, "--compare", "default", options, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert list(values) == ["default", options, "comparison"]
    recall = [values[name]["support"]["measures"]["recall@1"] for name in ("default", options)]
    assert recall[1] < recall[0]
    queries = [text for text in encoded if text == "merge it once it is reviewed"]
    assert len(queries) == 1


def test_heads_of_another_model_are_an_error_before_any_figures(encoded, headed, capsys):
    assert cli.main(["eval", SUPPORT, "--compare", "default", headed("another model")]) == 1
    printed = capsys.readouterr()
    assert "holds heads of another model; wanted heads of MiniLMEmbeddings(" in printed.err
    assert printed.out == ""
    assert encoded == []


def test_heads_are_nothing_to_a_search_by_words(headed, capsys):
    with pytest.raises(SystemExit):
        cli.main(["eval", SUPPORT, "--lexical", "--options", headed("any")])
    assert "headed.json is nothing without an embedding model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "toolrag: nowhere: no such folder"),
        (["tests/data"], "toolrag: tests/data: no tools.jsonl there; wanted a folder with"),
        ([SUPPORT, SUPPORT], "given twice"),
        ([SUPPORT, "--options", "best"], "toolrag: best: no such options; wanted default"),
        ([SUPPORT, "--plot", "chart.gif"], "toolrag: chart.gif: wanted a file that ends in"),
        ([SUPPORT, "--plot", "no/chart.svg"], "there is no folder no"),
        ([SUPPORT, "--per-query", "no/lines"], "there is no folder no"),
    ],
)
def test_what_cannot_be_done_is_an_error_before_any_figures(arguments, message, capsys):
    assert cli.main(["eval", *arguments, "--lexical"]) == 1
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""


def test_a_malformed_line_names_file_and_line_and_leaves_stdout_empty(tmp_path, capsys):
    tools = f"{SUPPORT}/tools.jsonl"
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"id": "1", "query": "x", "relevant": ["mail/send_email"]}\n{"id": "2"\n')
    arguments = ["--tools", tools, "--queries", str(queries), "--json"]
    assert cli.main(["eval", *arguments]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith(f"toolrag: {queries}, line 2: not JSON")
    assert printed.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either folders, or --tools and --queries"),
        ([SUPPORT, "--tools", "a.jsonl", "--queries", "b.jsonl"], "give either folders, or"),
        (["--tools", "a.jsonl"], "--tools and --queries belong together: give both"),
        ([SUPPORT, "--compare", "text", "text"], "--compare: text is given twice"),
        ([SUPPORT, "--compare", "text", "default", "--options", "text"], "not allowed with"),
        ([SUPPORT, "--lexical", "--options", "classic"], "classic is nothing without an embedding"),
    ],
)
def test_arguments_that_do_not_go_together_are_a_usage_error(arguments, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["eval", *arguments])
    assert exit_.value.code == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""


def test_without_matplotlib_everything_but_the_chart_works(tmp_path):
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from langchain_toolrag import cli\n"
        f"sys.exit(cli.main(['eval', {SUPPORT!r}, '--lexical', '--json']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=os.environ
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["support"]["queries"] == 4
