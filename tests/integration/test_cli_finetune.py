import contextlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from langchain_toolrag import cli
from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool
from langchain_toolrag.index.adapter import read_adapter
from langchain_toolrag.index.embedding import MiniLMEmbeddings, model_name
from langchain_toolrag.index.heads import read_heads
from langchain_toolrag.postgres.stored_tools import open_database_tools

DATA = Path(__file__).parents[1] / "data" / "finetune"
FILES = ["--pairs", str(DATA / "pairs.jsonl"), "--tools", str(DATA / "tools.jsonl")]
WATCHED = ["--watch", str(DATA / "watched")]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "heads.safetensors"


@pytest.fixture
def easy(tmp_path):
    """A watched set that nothing can be learned for: its requests are the tools' names."""
    folder = tmp_path / "easy"
    folder.mkdir()
    (folder / "tools.jsonl").write_text((DATA / "watched" / "tools.jsonl").read_text())
    query = {"id": "e1", "query": "create photo", "relevant": ["create_photo"]}
    (folder / "queries.jsonl").write_text(json.dumps(query))
    return folder


def finetune(out, *arguments, files=FILES, watched=WATCHED):
    return cli.main(["finetune", *files, *watched, "--out", str(out), "--heads", *arguments])


def test_heads_are_trained_told_of_and_written(encoded, out, capsys):
    assert finetune(out, "--steps", "40") == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "mean reciprocal rank of the watched sets, by meaning alone"
    names = [line[:22].strip() for line in printed[1:-1]]
    steps = [f"step {number}" for number in (7, 13, 20, 27, 33, 40)]
    assert names[:7] == ["untrained", *steps]
    assert names[7:] == [f"step 40, scale {scale}" for scale in ("0.25", "0.5", "0.75", "1")]
    values = [float(line.split()[-1]) for line in printed[1:-1]]
    assert max(values[1:]) > values[0] + 0.3
    assert printed[-1] == f"written: {out}"
    heads = read_heads(out, model_name(MiniLMEmbeddings()))
    assert heads.adapter.card["pairs"] == {"office": 18, "home": 18}


def test_without_watched_sets_the_last_fifth_of_the_pairs_is_held_out(encoded, out, capsys):
    assert finetune(out, "--steps", "40", watched=[]) == 0
    card = read_adapter(out).card
    assert (card["pairs"], card["watched"]) == ({"office": 14, "home": 14}, ["office", "home"])
    assert "mean reciprocal rank of the watched sets" in capsys.readouterr().out


def test_a_low_rank_change_needs_no_watched_sets_either(out, tmp_path, capsys):
    """The real model, for two steps, on requests to few tools."""
    tools, pairs = tmp_path / "tools.jsonl", tmp_path / "pairs.jsonl"
    definitions = [{"id": name, "name": name, "description": ""} for name in ("send", "play")]
    tools.write_text("\n".join(map(json.dumps, definitions)))
    asked = [
        {"query": f"{name} {n}", "relevant": [name]} for n in range(10) for name in ("send", "play")
    ]
    pairs.write_text("\n".join(map(json.dumps, asked)))
    files = ["--pairs", str(pairs), "--tools", str(tools)]
    cli.main(["finetune", *files, "--out", str(out), "--steps", "2"])
    printed = capsys.readouterr()
    assert printed.out.startswith("mean NDCG@10 of the watched sets, by meaning alone\n")
    assert ", scale 0.4 " in printed.out


class TestOfAnIngestDirectory:
    @pytest.fixture
    def listing(self):
        read = [json.loads(line) for line in (DATA / "tools.jsonl").read_text().splitlines()]
        names = [tool["name"] for tool in read if tool["id"].startswith("office")]
        tools = [StoredTool(f"office/{name}", "office", "mcp", name) for name in names]
        return Listing(StoredSource("office", "mcp", "made up"), tools)

    @pytest.fixture
    def data(self, listing, tmp_path):
        folder = tmp_path / "data"
        ToolDirectory(folder).replace([listing])
        return folder

    @pytest.fixture
    def pairs(self, tmp_path):
        def write(spelled):
            lines = (DATA / "pairs.jsonl").read_text().splitlines()
            read = [json.loads(line) for line in lines if '"set": "office"' in line]
            written = [
                {
                    "query": pair["query"],
                    "relevant": [spelled(pair["relevant"][0].partition(":")[2])],
                }
                for pair in read
            ]
            path = tmp_path / "pairs.jsonl"
            path.write_text("\n".join(map(json.dumps, [*written, *written[:2]])))
            return path

        return write

    @pytest.mark.parametrize("spelling", ["office/{}", "office__{}"])
    def test_pairs_name_tools_by_id_or_as_the_model_sees_them(
        self, encoded, data, pairs, out, spelling
    ):
        files = ["--pairs", str(pairs(spelling.format)), "--data", str(data)]
        assert finetune(out, "--steps", "40", files=files) == 0
        assert read_adapter(out).card["pairs"] == {"": 20}

    def test_the_tools_may_be_in_a_database(self, encoded, listing, pairs, out, shared_dsn, tenant):
        with contextlib.closing(open_database_tools(shared_dsn, tenant)) as tools:
            tools.replace([listing])
        files = ["--pairs", str(pairs("office/{}".format)), "--database", shared_dsn]
        assert finetune(out, "--steps", "40", "--tenant", tenant, files=files) == 0
        assert read_adapter(out).card["pairs"] == {"": 20}

    def test_a_tool_that_is_not_there_is_an_error_that_names_the_line(
        self, encoded, data, pairs, out, capsys
    ):
        files = ["--pairs", str(pairs("shop/{}".format)), "--data", str(data)]
        assert finetune(out, files=files) == 1
        assert "line 1: 'relevant' names 'shop/create_invoice'" in capsys.readouterr().err

    def test_tools_come_from_one_place(self, data, out, capsys):
        with pytest.raises(SystemExit):
            cli.main(["finetune", *FILES, "--data", str(data), "--out", str(out)])
        assert "not allowed with argument" in capsys.readouterr().err


def test_what_is_printed_beside_the_figures_is_not_in_the_output(encoded, out, capsys):
    assert finetune(out, "--steps", "40") == 0
    printed = capsys.readouterr()
    assert "training" not in printed.out
    assert printed.err == ""  # A bar is drawn for a terminal only.


def test_the_same_seed_trains_the_same_heads(encoded, tmp_path):
    weights = []
    for name, seed in (("one", "5"), ("two", "5"), ("other", "6")):
        assert finetune(tmp_path / name, "--steps", "12", "--seed", seed) == 0
        weights.append(read_adapter(tmp_path / name).tensors["tool.second.weight"])
    one, two, other = weights
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_where_nothing_is_learned_nothing_is_written(encoded, out, easy, capsys):
    assert finetune(out, "--steps", "4", watched=["--watch", str(easy)]) == 1
    printed = capsys.readouterr()
    assert "  untrained            1.0000" in printed.out
    assert "written" not in printed.out
    assert printed.err == "the model as it is does best on the watched sets: nothing written\n"
    assert not out.exists()


def test_an_older_file_stays_where_nothing_is_learned(encoded, out, easy):
    out.write_bytes(b"an older one")
    assert finetune(out, "--steps", "4", watched=["--watch", str(easy)]) == 1
    assert out.read_bytes() == b"an older one"


def test_the_mean_is_of_all_watched_sets(encoded, out, easy, capsys):
    assert finetune(out, "--steps", "40", watched=[*WATCHED, str(easy)]) in (0, 1)
    both = capsys.readouterr().out.splitlines()[1]
    finetune(out, "--steps", "1")
    one = capsys.readouterr().out.splitlines()[1]
    assert float(both.split()[-1]) == pytest.approx((1 + float(one.split()[-1])) / 2, abs=1e-4)


def test_a_set_is_left_out(encoded, tmp_path, out):
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text((DATA / "pairs.jsonl").read_text() * 2)
    files = ["--pairs", str(pairs), "--tools", str(DATA / "tools.jsonl")]
    assert finetune(out, "--steps", "40", "--leave-out", "office", files=files) == 0
    assert read_adapter(out).card["pairs"] == {"home": 36}
    assert "zeige die fahrkarte" in encoded
    assert "zeige die rechnung" not in encoded


@pytest.mark.parametrize("left_out", [["office"], ["office", "home"]])
def test_too_few_pairs_are_an_error(encoded, out, left_out, capsys):
    assert finetune(out, "--leave-out", *left_out) == 1
    assert "pairs are too few to learn from; wanted 20" in capsys.readouterr().err
    assert encoded == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--pairs", "nowhere.jsonl"], "nowhere.jsonl: cannot be read"),
        (["--tools", "nowhere.jsonl"], "nowhere.jsonl: cannot be read"),
        (["--watch", "nowhere"], "nowhere: no such folder"),
        (["--leave-out", "mail"], "has no set 'mail' to leave out; it has office, home"),
        (["--out", "nowhere/heads.safetensors"], "there is no folder nowhere"),
        (["--watch", str(DATA / "watched"), str(DATA / "watched")], "given twice"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_an_error_before_the_training(
    encoded, out, changed, message, capsys
):
    assert finetune(out, *changed) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("toolrag: ")
    assert message in printed.err
    assert printed.out == ""
    assert encoded == []


def test_a_folder_in_the_place_of_the_file_is_an_error_before_the_training(
    encoded, tmp_path, capsys
):
    assert finetune(tmp_path, "--steps", "4") == 1
    assert str(tmp_path) in capsys.readouterr().err
    assert encoded == []


def test_a_model_that_cannot_be_loaded_is_an_error(out, capsys):
    assert finetune(out, "--model", "nobody-here/no-such-model") == 1
    assert "nobody-here/no-such-model" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["finetune"], "the following arguments are required: --pairs, --out"),
        (["finetune", *FILES, *WATCHED, "--out", "x", "--steps", "0"], "--steps"),
        (["finetune", *FILES, *WATCHED, "--out", "x", "--seed", "one"], "--seed"),
        (["finetune", *FILES, "--out", "x", "--watch"], "--watch"),
    ],
    ids=["nothing", "no steps", "a word for a seed", "nothing watched"],
)
def test_arguments_that_are_none_are_a_usage_error(arguments, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_the_help_is_had_without_torch():
    code = (
        "import sys\n"
        "from langchain_toolrag import cli\n"
        "try:\n"
        "    cli.main(['finetune', '--help'])\n"
        "except SystemExit as exit_:\n"
        "    assert exit_.code == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--leave-out" in done.stdout
