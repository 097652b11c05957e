"""The commands over a database in place of a directory."""

import json
import subprocess
import sys

import numpy as np
import pytest
from embeddings_server import MODEL, EmbeddingsServer
from fakes import HashingEmbeddings
from postgres_server import make_user
from psycopg.conninfo import make_conninfo

from langchain_toolrag import cli
from langchain_toolrag.index.adapter import Adapter
from langchain_toolrag.index.embedding import model_name
from langchain_toolrag.index.endpoint import EndpointEmbeddings
from langchain_toolrag.postgres.upgrade import upgrade
from langchain_toolrag.trial.directory import HeadsDirectory
from langchain_toolrag.usage.log import UsageLog

PYTHON = """
from langchain_core.tools import tool

@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

@tool
def get_weather(city: str) -> str:
    "Current weather in a city: rain or sun."
    return f"rain in {city}"

ALL = [add, get_weather]
FEWER = [add]
"""

# So many vectors that psycopg itself has something to say where they cannot be written.
MANY = """
from langchain_core.tools import StructuredTool

def add(a: int, b: int) -> int:
    return a + b

ALL = [
    StructuredTool.from_function(add, name=f"add_{n}", description=f"Add {n} to two numbers.")
    for n in range(40)
]
"""


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in ("EMB_URL", "EMB_MODEL", "EMB_INSTRUCTION", "EMB_API_KEY", "DATABASE", "TENANT"):
        monkeypatch.delenv(f"TOOLRAG_{name}", raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "sums.py"
    path.write_text(PYTHON)
    return path


@pytest.fixture
def embeddings():
    server = EmbeddingsServer()
    yield server
    server.close()


@pytest.fixture
def at(shared_dsn, tenant):
    """Arguments that name a database and a tenant that has nothing yet."""
    return ["--database", shared_dsn, "--tenant", tenant]


def heads_that_pull(vector, model):
    """Heads of a model that take every request for one of this vector."""
    tensors = {}
    for side in ("request", "tool"):
        tensors[f"{side}.first.weight"] = np.zeros((1, len(vector)))
        tensors[f"{side}.first.bias"] = np.zeros(1)
        tensors[f"{side}.second.weight"] = np.zeros((len(vector), 1))
        tensors[f"{side}.second.bias"] = np.zeros(len(vector))
    tensors["request.second.bias"] = 20 * np.array(vector)
    return Adapter("heads", model, 1.0, tensors, {})


@pytest.fixture
def by(embeddings):
    return ["--emb-url", embeddings.url, "--emb-model", MODEL]


def toolrag(capsys, *arguments):
    """Run a command; return its status, and what it printed as output and as errors."""
    status = cli.main([*map(str, arguments)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_what_is_ingested_is_listed_found_called_and_told(capsys, module, at, by):
    told = toolrag(capsys, "ingest", "python", f"{module}:ALL", *at, *by)
    assert told == (0, "sums  +2 added  ~0 changed  -0 removed  =0 kept\n", "")

    assert toolrag(capsys, "list", *at)[1].splitlines() == [
        "sums/add          Add two numbers.",
        "sums/get_weather  Current weather in a city: rain or sun.",
    ]
    assert toolrag(capsys, "call", "sums/add", '{"a": 1, "b": 2}', *at) == (0, "3\n", "")
    assert "sums/get_weather" in toolrag(capsys, "search", "weather in a city", *at, *by)[1]
    status, out, _ = toolrag(capsys, "status", *at, *by, "--json")
    assert status == 0
    assert json.loads(out)["vectors"] == {"cached": 2, "missing": 0}
    assert toolrag(capsys, "status", *at, *by)[1].splitlines()[-2:] == [
        "2 tools of 1 sources",
        "vectors of 2 tools are cached",
    ]


def test_tools_are_embedded_once_and_then_found_by_everybody(capsys, module, at, by, embeddings):
    toolrag(capsys, "ingest", "python", f"{module}:ALL", *at, *by)
    made = len(embeddings.texts)

    toolrag(capsys, "ingest", "python", f"{module}:ALL", *at, *by)
    toolrag(capsys, "search", "add", *at, *by)
    assert embeddings.texts[made:] == ["add"]


def test_a_directory_and_a_database_find_the_same(capsys, module, at, by, tmp_path):
    toolrag(capsys, "ingest", "python", f"{module}:ALL", *at, *by)
    toolrag(capsys, "ingest", "python", f"{module}:ALL", "--out", tmp_path / "data", *by)

    found = toolrag(capsys, "search", "add two numbers", *at, *by, "--json")
    assert found == toolrag(
        capsys, "search", "add two numbers", "--data", tmp_path / "data", *by, "--json"
    )


def test_learned_heads_rank_where_a_folder_of_them_is_named(
    capsys, module, at, by, embeddings, tmp_path
):
    """Heads that take every request for one for the weather, in the folder of a directory."""
    weather = HashingEmbeddings().embed_query("weather in a city: rain or sun")
    model = model_name(EndpointEmbeddings(embeddings.url, model=MODEL))
    data = tmp_path / "data"
    folder = HeadsDirectory(data / "heads")
    folder.put_on_trial(heads_that_pull(weather, model))
    tools = ["--tools", f"{module}:ALL", "--cache", tmp_path / "cache"]
    toolrag(capsys, "ingest", "python", f"{module}:ALL", *at, *by)
    toolrag(capsys, "ingest", "python", f"{module}:ALL", "--out", data, *by)

    def first(*arguments):
        printed = toolrag(capsys, "search", "add two numbers", *by, "--json", *arguments)[1]
        return json.loads(printed)["tools"][0]["id"].rpartition("/")[2]

    places, named = [["--data", data], at, tools], ["--heads", folder.path]
    assert [first(*place, *named) for place in places] == ["add"] * 3  # They are on trial alone.
    folder.promote()
    assert [first(*place, *named) for place in places] == ["get_weather"] * 3
    assert [first(*place) for place in places] == ["get_weather", "add", "add"]
    assert first("--data", data, "--heads", tmp_path / "none") == "add"
    by_words = toolrag(capsys, "search", "add two numbers", *at, *named, "--lexical")
    assert (by_words[0], by_words[2]) == (0, "")


def test_a_usage_log_is_told_of_with_the_tools_of_a_database(capsys, module, at, tmp_path):
    folder = tmp_path / "log"
    toolrag(capsys, "ingest", "python", f"{module}:ALL", *at, "--lexical")
    with UsageLog(folder) as log:
        log.search(
            search_id="s", kind="search", mode="lexical", query="x", retrieved=[("sums/add", 1, 1)]
        )
    status, out, _ = toolrag(capsys, "usage", *at, "--usage-dir", folder, "--json")

    assert status == 0
    assert json.loads(out)["never_retrieved"] == ["sums/get_weather"]
    err = toolrag(capsys, "usage", *at)[2]
    assert "where is the usage log? give --usage-dir DIR" in err


def test_the_environment_names_the_database_and_the_tenant(capsys, module, at, monkeypatch):
    _, database, _, tenant = at
    monkeypatch.setenv("TOOLRAG_DATABASE", database)
    monkeypatch.setenv("TOOLRAG_TENANT", tenant)
    toolrag(capsys, "ingest", "python", f"{module}:ALL", "--lexical")

    listed = toolrag(capsys, "list")
    assert listed == toolrag(capsys, "list", *at)
    assert toolrag(capsys, "search", "add", "--lexical")[0] == 0
    assert toolrag(capsys, "list", "--tenant", f"not {tenant}")[0] == 1


def test_a_directory_that_is_named_comes_before_the_environments_database(
    capsys, module, tmp_path, monkeypatch
):
    monkeypatch.setenv("TOOLRAG_DATABASE", "host=/nowhere")
    monkeypatch.setenv("TOOLRAG_TENANT", "acme")
    data = tmp_path / "data"

    assert toolrag(capsys, "ingest", "python", f"{module}:ALL", "--out", data, "--lexical")[0] == 0
    assert toolrag(capsys, "list", "--data", data)[0] == 0
    tools = f"{module}:ALL"
    assert toolrag(capsys, "search", "add", "--tools", tools, "--lexical")[0] == 0


def test_a_dry_run_writes_nothing(capsys, module, at):
    told = toolrag(capsys, "ingest", "python", f"{module}:ALL", *at, "--dry-run")
    assert told[1].endswith("nothing was written (--dry-run)\n")
    assert toolrag(capsys, "list", *at)[0] == 1


def test_a_source_that_fails_keeps_its_tools(capsys, at):
    started = [sys.executable, "-c", "'raise SystemExit(3)'"]
    server = f"gone={' '.join(started)}"
    status, out, err = toolrag(capsys, "ingest", "mcp", "--server", server, *at, "--lexical")

    assert (status, out) == (1, "gone  +0 added  ~0 changed  -0 removed  =0 kept\n")
    assert err.startswith("toolrag: kept 0 tools of gone: ")
    assert "failed since: " in toolrag(capsys, "status", *at, "--lexical")[1]


def test_tools_that_cannot_be_embedded_are_ingested_all_the_same(capsys, module, at, embeddings):
    embeddings.will(*[400] * 8)
    by = ["--emb-url", embeddings.url, "--emb-model", MODEL]

    status, out, err = toolrag(capsys, "ingest", "python", f"{module}:ALL", *at, *by)

    assert (status, "+2 added" in out) == (1, True)
    assert "no luck: 400" in err
    assert toolrag(capsys, "list", *at)[0] == 0


@pytest.mark.parametrize("command", ["list", "status", "search x", "call a/b"])
def test_a_tenant_that_has_nothing_may_be_mistyped(capsys, at, command):
    status, _, err = toolrag(capsys, *command.split(), *at)
    assert status == 1
    assert f"holds no ingested tools of the tenant {at[-1]!r}; ingest some with `toolrag" in err


def test_one_place_is_named_and_only_one(capsys, tmp_path):
    for arguments in ([], ["--data", tmp_path, "--database", "host=x"]):
        with pytest.raises(SystemExit):
            toolrag(capsys, "list", *arguments)
        assert "--database" in capsys.readouterr().err
    assert toolrag(capsys, "list", "--database", "")[2].startswith(
        "toolrag: --database: which database? give --database DSN, or set TOOLRAG_DATABASE"
    )


def test_a_tenant_of_a_directory_is_refused(capsys, tmp_path, module):
    (tmp_path / "usage-2030-01-01.jsonl").touch()
    for place in (
        ["list", "--data", tmp_path],
        ["search", "x", "--tools", f"{module}:ALL"],
        ["usage", "--data", tmp_path],
        ["learn", "--data", tmp_path],
        ["replay", "--data", tmp_path, "--options", "text"],
        ["replay", "--tools", f"{module}:ALL", "--thread-db", "t", "--options", "text"],
        ["finetune", "--pairs", "p", "--tools", "t", "--out", tmp_path / "a.safetensors"],
    ):
        told = toolrag(capsys, *place, "--tenant", "acme")
        assert told[2] == (
            "toolrag: --tenant: only a database has tenants: give --database DSN instead, or no "
            "tenant\n"
        )
    told = toolrag(capsys, "list", "--database", "host=x", "--tenant", "x" * 300)
    assert "wanted at most 200 characters" in told[2]


def test_a_database_that_is_not_there_is_named_without_its_password(capsys):
    dsn = "postgresql://me:sesame@127.0.0.1:9/shop"
    status, out, err = toolrag(capsys, "list", "--database", dsn)

    assert (status, out) == (1, "")
    assert "dbname=shop" in err
    assert "cannot be reached" in err
    assert "sesame" not in err


def test_a_dsn_that_cannot_be_read_is_not_shown(capsys):
    err = toolrag(capsys, "list", "--database", "postgresql://me:ses%ame@127.0.0.1:9/shop")[2]
    assert "its DSN cannot be read" in err
    assert "ame@" not in err


def test_a_database_without_tables_says_what_to_run(capsys, empty_database):
    err = toolrag(capsys, "list", "--database", empty_database)[2]
    assert "is not set up" in err
    assert "run `toolrag db upgrade --database DSN`" in err


def test_who_has_no_right_to_write_is_told_which_role(capsys, module, dsn):
    upgrade(dsn, roles=True)
    reader = make_user(dsn, "reads_only", "toolrag_reader")
    arguments = ("ingest", "python", f"{module}:ALL", "--lexical")

    status, _, err = toolrag(capsys, *arguments, "--database", reader)
    assert status == 1
    assert "grant it toolrag_writer" in err
    assert toolrag(capsys, *arguments, "--database", reader, "--dry-run")[0] == 0
    assert toolrag(capsys, *arguments, "--database", dsn)[0] == 0
    assert toolrag(capsys, "list", "--database", reader)[0] == 0


def test_who_may_only_read_searches_and_is_told_once_that_vectors_are_not_kept(tmp_path, dsn, by):
    """In a process of its own: without pytest's handlers every library's warnings are printed."""
    module = tmp_path / "many.py"
    module.write_text(MANY)
    upgrade(dsn, roles=True)
    reader = make_user(dsn, "searches_only", "toolrag_reader")
    ingest = ("ingest", "python", f"{module}:ALL", "--lexical", "--database", dsn)
    assert cli.main([*ingest]) == 0

    code = "import sys; from langchain_toolrag.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "search", "add two numbers", "--database", reader, *by],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "many/add_" in done.stdout
    (warning,) = done.stderr.splitlines()
    assert warning.startswith("toolrag: vectors cannot be written (")
    assert "grant it toolrag_writer" in warning


def test_who_has_no_rights_at_all_is_told_so(capsys, dsn):
    upgrade(dsn, roles=True)
    make_user(dsn, "has_nothing", "pg_monitor")
    err = toolrag(capsys, "list", "--database", make_conninfo(dsn, user="has_nothing"))[2]
    assert "does not let this user do that" in err
    assert "toolrag_reader" in err


def test_without_the_extra_it_says_what_to_install(capsys, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("langchain_toolrag.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    err = toolrag(capsys, "list", "--database", "host=x")[2]
    assert "pip install 'langchain-toolrag[postgres]'" in err
