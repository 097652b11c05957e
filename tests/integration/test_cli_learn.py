import contextlib
import json
import shlex
import signal
import subprocess
import sys

import pytest

from langchain_toolrag import SelectionOptions, ToolRAG, cli
from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool
from langchain_toolrag.postgres.stored_tools import open_database_tools
from langchain_toolrag.trial.directory import HeadsDirectory

# Users call what the catalogue says is something else: each tool's name is that of another.
MEANT = {"create": "show", "delete": "create", "show": "delete"}
NOUNS = ("invoice", "ticket", "photo", "song")
WORDINGS = (
    "{} the {}",
    "please {} my {}",
    "could you {} this {} for me",
    "I need you to {} one {}",
    "{} a {} right now",
    "hello, {} another {} today",
    "first of all {} that {}",
    "{} the old {} again",
)

LATE = ("they want to {} every {} soon", "quickly {} some {} here")


def listing():
    tools = [
        StoredTool(f"shop/{verb}_{noun}", "shop", "mcp", f"{verb}_{noun}", f"To {verb} a {noun}.")
        for verb in MEANT
        for noun in NOUNS
    ]
    return Listing(StoredSource("shop", "mcp", "made up"), tools)


def ingest(folder):
    ToolDirectory(folder).replace([listing()])
    return folder


def use(folder, wordings=WORDINGS, *, outcome="ok"):
    """Ask for every tool in these words, and call what is meant where it is shown."""
    options = SelectionOptions(k=6, similarity_threshold=0.0)
    log = folder / "usage"
    with ToolRAG.from_directory(folder, usage_log=log, options=options) as rag:
        for wording in wordings:
            for verb, meant in MEANT.items():
                for noun in NOUNS:
                    shown = rag.select([("user", wording.format(verb, noun))])
                    tool = f"shop/{meant}_{noun}"
                    if tool in shown.ids:
                        rag.usage_log.call(
                            call_id="", tool=tool, outcome=outcome, search_id=shown.search_id
                        )


def first_hits(folder, heads=None):
    """Return how many requests in new words find first what is meant, of 24."""
    with ToolRAG.from_directory(folder, heads=heads) as rag:
        return sum(
            rag.semantic_search(wording.format(verb, noun), k=1)[0].id == f"shop/{meant}_{noun}"
            for wording in LATE
            for verb, meant in MEANT.items()
            for noun in NOUNS
        )


def learn(folder, *arguments):
    return cli.main(["learn", "--data", str(folder), "--steps", "60", *arguments])


@pytest.fixture
def data(encoded, tmp_path):
    return ingest(tmp_path / "data")


@pytest.fixture
def used(data):
    use(data)
    return data


def test_with_the_real_model_users_teach_what_they_call(tmp_path, capsys):
    folder = ingest(tmp_path / "data")
    use(folder)
    before = first_hits(folder)
    report, plot = tmp_path / "report.json", tmp_path / "plot.png"
    assert learn(folder, "--promote", "--report", str(report), "--plot", str(plot)) == 0
    printed = capsys.readouterr().out.splitlines()
    state = HeadsDirectory(folder / "heads").state()
    assert printed[0] == "96 searches with a called tool, over 12 tools"
    assert printed[-1] == (
        f"in use: heads {state.in_use[:12]}; to undo it: `toolrag ab --data {folder} --roll-back`"
    )
    figures = json.loads(report.read_text())
    assert figures["candidate"] > figures["base"] + 0.2
    assert figures["candidate"] > figures["control"]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert first_hits(folder, folder / "heads") > before + 8


def test_what_is_learned_is_put_on_trial_and_what_to_do_next_is_told(used, capsys):
    assert learn(used) == 0
    printed = capsys.readouterr()
    state = HeadsDirectory(used / "heads").state()
    assert state.in_use == ""
    assert printed.out.splitlines()[-1] == (
        f"on trial: heads {state.candidate.heads[:12]}; to see how they do: "
        f"`toolrag ab --data {used}`"
    )
    assert printed.err == ""  # A bar is drawn for a terminal only.
    assert [line[:11].strip() for line in printed.out.splitlines()[2:5]] == [
        "base",
        "candidate",
        "control",
    ]


class TestFoldersThatAreNamed:
    """A database has none, and those of a directory may be elsewhere."""

    @pytest.fixture
    def folders(self, used, tmp_path):
        """Where the log is, and where heads are to be: names that a shell would take apart."""
        usage, heads = tmp_path / "the log", tmp_path / "the heads"
        (used / "usage").rename(usage)
        return ["--usage-dir", str(usage), "--heads", str(heads)]

    def compared(self, folders, capsys):
        """Run the command that is told, and return what it prints, beside the trial's heads."""
        last = capsys.readouterr().out.splitlines()[-1]
        told = shlex.split(last.split("`")[1])
        assert told == ["toolrag", "ab", *folders]
        assert cli.main(told[1:]) == 0
        return capsys.readouterr().out, HeadsDirectory(folders[-1]).state().candidate.heads

    def test_take_the_place_of_the_directorys(self, used, folders, capsys):
        assert learn(used, *folders) == 0
        printed, digest = self.compared(folders, capsys)
        assert printed.startswith(f"on trial: heads {digest[:12]}, ")
        assert not (used / "heads").exists()

    def test_go_with_a_databases_tools(self, folders, shared_dsn, tenant, capsys):
        database = ["--database", shared_dsn, "--tenant", tenant]
        with contextlib.closing(open_database_tools(shared_dsn, tenant)) as tools:
            tools.replace([listing()])

        assert cli.main(["learn", *database, *folders, "--steps", "60"]) == 0
        printed, digest = self.compared(folders, capsys)
        assert printed.startswith(f"on trial: heads {digest[:12]}, ")

    @pytest.mark.parametrize("left_out", ["--usage-dir", "--heads"])
    def test_are_needed_with_a_database(self, left_out, folders, shared_dsn, capsys):
        at = folders.index(left_out)
        given = [*folders[:at], *folders[at + 2 :]]
        assert cli.main(["learn", "--database", shared_dsn, *given]) == 1
        err = capsys.readouterr().err
        assert err.startswith(f"toolrag: {left_out}: where ")
        assert "a database has no folders" in err


def test_the_same_seed_learns_the_same(used, capsys):
    printed = []
    for seed in ("3", "3", "4"):
        assert learn(used, "--seed", seed) == 0
        printed.append(capsys.readouterr().out.splitlines()[:-1])
    assert printed[0] == printed[1] != printed[2]


def test_a_candidate_that_loses_on_a_guarded_set_is_refused(used, tmp_path, capsys):
    folder = tmp_path / "plain"
    folder.mkdir()
    names = [f"{verb}_{noun}" for verb in MEANT for noun in NOUNS]
    tools = [{"id": name, "name": name, "description": ""} for name in names]
    queries = [{"id": n, "query": " the ".join(n.split("_")), "relevant": [n]} for n in names]
    for name, lines in (("tools", tools), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    report = tmp_path / "report.json"
    assert learn(used, "--guard", str(folder), "--report", str(report)) == 1
    printed = capsys.readouterr()
    assert "nothing is put on trial: plain loses 0." in printed.err
    assert "allowed is 0.01" in printed.err
    assert json.loads(report.read_text())["guard"][0]["name"] == "plain"
    assert not (used / "heads").exists()
    assert learn(used, "--guard", str(folder), "--max-drop", "1") == 0
    assert "NDCG@10 of plain: 1.0000 to 0." in capsys.readouterr().out


def test_too_few_searches_are_an_error_and_nothing_is_written(data, capsys):
    use(data, WORDINGS[:1])
    use(data, WORDINGS[1:2], outcome="refused")
    assert learn(data) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith(
        f"toolrag: {data / 'usage'}: 12 searches with a called tool are too few to learn from; "
        "wanted 20. Of no use were 12 searches whose calls were all refused or timed out"
    )
    assert printed.out == ""
    assert not (data / "heads").exists()


def test_a_directory_that_nobody_used_is_an_error(data, capsys):
    assert learn(data) == 1
    assert "0 searches with a called tool are too few" in capsys.readouterr().err
    assert not (data / "usage").exists()


def test_a_missing_key_is_named(used, capsys):
    (used / "usage" / ".key").unlink()
    assert learn(used) == 1
    assert str(used / "usage" / ".key") in capsys.readouterr().err


def test_lines_that_were_read_past_are_counted(used, capsys):
    (day,) = (used / "usage").glob("usage-*.jsonl")
    with day.open("a") as file:
        file.write('{"torn\n')
    assert learn(used) == 0
    assert "  of no use: 1 torn lines" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--guard", "nowhere"], "nowhere: no such folder"),
        (["--general", "nowhere"], "nowhere: no such folder"),
        (["--report", "nowhere/r.json"], "there is no folder nowhere"),
        (["--plot", "chart.pdf"], "wanted a file that ends in .png or .svg"),
        (["--lexical"], "heads move the vectors of an embedding model"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_an_error(used, arguments, message, capsys):
    assert learn(used, *arguments) == 1
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert not (used / "heads").exists()


@pytest.mark.parametrize("share", ["-1", "1.1", "nan", "much"])
def test_an_allowance_that_is_none_is_a_usage_error(share, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["learn", "--data", "x", "--max-drop", share])
    assert exit_.value.code == 2
    assert "is not a number from 0 to 1" in capsys.readouterr().err


def test_what_was_ingested_must_be_there(tmp_path, capsys):
    assert learn(tmp_path) == 1
    assert "holds no ingested tools" in capsys.readouterr().err


KILLED = """
import sys
from langchain_toolrag import cli
from langchain_toolrag.cli import learn

class Loud(learn.TaskBar):
    def __call__(self, doing, done, total):
        if doing.startswith("learning") and done == 5:
            print("learning", flush=True)

learn.TaskBar = Loud
cli.main(["learn", "--data", sys.argv[1], "--steps", "1000000", "--promote"])
"""


def test_kill_9_while_it_learns_leaves_the_heads_in_use(tmp_path):
    folder = ingest(tmp_path / "data")
    use(folder)
    assert learn(folder, "--promote") == 0
    heads = {path: path.read_bytes() for path in (folder / "heads").iterdir()}
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout.readline() == "learning\n"
        child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    assert {path: path.read_bytes() for path in (folder / "heads").iterdir()} == heads
    HeadsDirectory(folder / "heads").read(HeadsDirectory(folder / "heads").state().in_use)


def test_the_help_is_had_without_torch():
    code = (
        "import sys\n"
        "from langchain_toolrag import cli\n"
        "try:\n"
        "    cli.main(['learn', '--help'])\n"
        "except SystemExit as exit_:\n"
        "    assert exit_.code == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--max-drop" in done.stdout
