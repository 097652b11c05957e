"""`toolrag replay` over logs and conversations of real agents."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from fake_model import ScriptedModel, says
from langchain_core.utils.function_calling import convert_to_openai_tool
from search_agents import AGENTS, TWO, five_hundred, searches, uses

from langchain_toolrag import ToolRAG, cli
from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool
from langchain_toolrag.postgres.stored_tools import open_database_tools
from langchain_toolrag.usage.log import UsageLog

SqliteSaver = pytest.importorskip("langgraph.checkpoint.sqlite").SqliteSaver

TOOLS = [tool for tool in five_hundred() if tool.name.endswith(("_badge", "_fleet"))]
ESCAPE = "now close the fleet \x1b[31min red\x9b2J"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def tools():
    """The agents' tools, as a file of definitions."""
    path = Path("tools.json")
    described = [
        {**convert_to_openai_tool(tool)["function"], "server": tool.metadata["server"]}
        for tool in TOOLS
    ]
    path.write_text(json.dumps(described))
    return path


@pytest.fixture
def two():
    path = Path("two.json")
    path.write_text(json.dumps({"selection": {"k": 2}}))
    return path


@pytest.fixture
def threads(encoded):
    """Conversations of every kind of agent, two turns each."""
    path = Path("threads.sqlite")
    with SqliteSaver.from_conn_string(str(path)) as saver:
        for kind, build in AGENTS.items():
            script = [uses("archive_badge"), says("ok"), searches("copy"), says("ok")]
            rag = ToolRAG(TOOLS, options=TWO)
            agent = build(ScriptedModel(script=script), rag, search_tool=True, checkpointer=saver)
            for request in ("please archive the badge", ESCAPE):
                agent.invoke(
                    {"messages": [("user", request)]}, {"configurable": {"thread_id": kind}}
                )
    return path


def listing():
    """The same tools, as a source lists them."""
    stored = [
        StoredTool(f"desk/{tool.name}", "desk", "mcp", tool.name, tool.description)
        for tool in TOOLS
    ]
    return Listing(StoredSource("desk", "mcp", "desk-server"), stored)


@pytest.fixture
def data():
    """An ingest directory of the same tools."""
    ToolDirectory("data").replace([listing()])
    return Path("data")


@pytest.fixture
def database(shared_dsn, tenant):
    """Arguments that name a database with the same tools."""
    with contextlib.closing(open_database_tools(shared_dsn, tenant)) as tools:
        tools.replace([listing()])
    return ["--database", shared_dsn, "--tenant", tenant]


@pytest.fixture
def logged(data, encoded):
    """Log what a ToolRAG over the directory is asked, and a call."""

    def ask(*, log_text):
        usage = ToolDirectory(data).usage
        with UsageLog(usage, log_text=log_text) as log:
            rag = ToolRAG.from_directory(data, options=TWO, usage_log=log)
            selection = rag.select("please archive the badge")
            rag.select(ESCAPE)
            rag.find("copy a fleet")
            log.call(
                call_id="c1",
                tool="desk/archive_badge",
                outcome="ok",
                search_id=selection.search_id,
            )
            rag.close()
        return usage

    return ask


def run(*arguments):
    return cli.main(["replay", *map(str, arguments)])


def printed(capsys):
    captured = capsys.readouterr()
    assert captured.err == ""
    lines = captured.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert all(line.isprintable() for line in lines)
    return captured.out


def test_the_agents_own_options_bind_what_the_agents_bound(threads, tools, two, capsys):
    assert run("--thread-db", threads, "--tools", tools, "--options", two, "--json") == 0
    values = json.loads(capsys.readouterr().out)
    assert values["options"] == {"A": "default", "B": str(two)}
    steps = values["model_steps"]
    assert len(steps) == 12
    assert all(
        set(each["bound"]["then"]["tools"]) == {*each["bound"]["B"]["tools"]} for each in steps
    )
    assert values["summary"]["then"] == values["summary"]["B"]
    assert values["unknown_calls"] == {"search_tools": 3}


def test_a_table_says_what_is_gained_and_lost_and_at_what_cost(threads, tools, two, capsys):
    assert run("--thread-db", threads, "--tools", tools, "--options", two) == 0
    text = printed(capsys)
    lines = text.splitlines()
    assert lines[:2] == ["threads.sqlite", "  3 threads, 12 model steps replayed"]
    assert {"A     default", "B     two.json"} <= {*lines}
    (tokens,) = (line.split()[2:] for line in lines if line.startswith("tokens, mean"))
    assert tokens[0] == tokens[2] != tokens[1]
    assert "B against A: 6 of 12 model steps bind other tools" in lines
    assert "called, but not in the catalogue: search_tools (3x)" in text
    assert "the largest differences (6 of 6), times in UTC:" in lines
    assert "  gained  fleets_server/archive_fleet" not in lines
    assert any(line.startswith("  lost    ") for line in lines)


def test_the_users_words_are_shown_if_asked_for_and_move_no_cursor(threads, tools, two, capsys):
    arguments = ("--thread-db", threads, "--tools", tools, "--options", two)
    assert run(*arguments) == 0
    assert "close the fleet" not in printed(capsys)
    assert run(*arguments, "--show-text", "--show", 12) == 0
    assert "asked   now close the fleet \ufffd[31min red\ufffd2J" in printed(capsys)
    assert run(*arguments, "--show-text", "--json") == 0
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in shown.splitlines())
    assert json.loads(shown)["model_steps"][2]["text"] == ESCAPE


def test_only_the_largest_differences_are_shown(threads, tools, two, capsys):
    arguments = ("--thread-db", threads, "--tools", tools, "--options", two)
    assert run(*arguments, "--show", 1) == 0
    assert printed(capsys).count("  lost    ") == 1
    assert run(*arguments, "--show", 0) == 0
    assert "largest" not in printed(capsys)


def test_one_conversation_can_be_asked_for(threads, tools, two, capsys):
    arguments = ("--thread-db", threads, "--tools", tools, "--options", two)
    assert run(*arguments, "--thread", "node", "--thread", "middleware") == 0
    assert "2 threads, 8 model steps" in printed(capsys)
    assert run(*arguments, "--thread", "nobody") == 1
    assert "has no thread 'nobody'; found 3, the latest: " in capsys.readouterr().err


def test_the_default_alone_is_compared_with_what_was_bound_then(threads, tools, capsys):
    assert run("--thread-db", threads, "--tools", tools, "--options", "default") == 0
    text = printed(capsys)
    assert "A against then: 6 of 12 model steps bind other tools" in text
    assert "kept from earlier turns" not in text


def test_messages_under_another_key_are_not_found_under_the_usual(threads, tools, two, capsys):
    arguments = ("--thread-db", threads, "--tools", tools, "--options", two)
    assert run(*arguments, "--messages-key", "chat") == 0
    text = printed(capsys)
    assert "0 model steps replayed" in text
    assert "left out: 3 threads without an answer of a model" in text


def test_a_log_with_text_is_searched_again(data, logged, two, capsys):
    usage = logged(log_text=True)
    assert run("--data", data, "--options", two) == 0
    lines = printed(capsys).splitlines()
    assert lines[:2] == [str(usage), "  3 searches replayed"]
    assert "A against then: 0 of 3 searches bind other tools" in lines
    assert run("--data", data, "--options", two, "--options", "default", "--json") == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["compared"], values["by_meaning_alone"]) == (["A", "B"], 0)
    assert values["summary"]["B"]["tools"] > values["summary"]["A"]["tools"]
    (called,) = (each for search in values["searches"] for each in search["called"])
    assert called == {
        "tool": "desk/archive_badge",
        "outcome": "ok",
        "bound": {"then": True, "A": True, "B": True},
    }


def test_a_log_without_text_is_ranked_by_meaning_alone_and_says_so(data, logged, two, capsys):
    logged(log_text=False)
    assert run("--data", data, "--options", two, "--show-text") == 0
    text = printed(capsys)
    assert "  all by meaning alone: the log has no text" in text.splitlines()
    assert "asked" not in text
    assert run("--data", data, "--options", "text") == 0
    text = printed(capsys)
    assert "0 searches replayed" in text
    assert "3 searches without text or a vector that the options can use" in text


def test_searches_can_be_made_by_words_alone(data, logged, capsys):
    logged(log_text=True)
    assert run("--data", data, "--options", "default", "--lexical") == 0
    assert "3 searches replayed" in printed(capsys)


def test_of_what_users_said_nothing_is_kept(data, logged, two, capsys):
    logged(log_text=True)
    run("--data", data, "--options", two)
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert run("--data", data, "--options", two, "--options", "default") == 0
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_over_a_database_the_same_is_replayed(data, database, logged, threads, two, capsys):
    usage = logged(log_text=True)
    for moments in (["--usage-dir", usage], ["--thread-db", threads]):
        replayed = []
        for tools in (["--data", data], database):
            assert run(*tools, *moments, "--options", two, "--options", "default") == 0
            replayed.append(printed(capsys))
        assert replayed[0] == replayed[1]
        assert replayed[0].splitlines()[0] == str(moments[1])


def test_a_database_has_no_usage_log_of_its_own(database, capsys):
    assert run(*database, "--options", "text") == 1
    assert "--usage-dir: where is the usage log? give --usage-dir DIR" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--options", "default"], "one of the arguments --data --database --tools"),
        (["--tools", "t.json", "--options", "default"], "--tools is for conversations"),
        (["--data", ".", "--thread", "1", "--options", "text"], "--thread is for conversations"),
        (["--data", "."], "the following arguments are required: --options"),
        (
            ["--data", ".", "--thread-db", "t", "--usage-dir", "u", "--options", "text"],
            "--usage-dir: not allowed with argument --thread-db",
        ),
        (["--data", ".", *["--options", "text"] * 2], "text is given twice"),
        (["--data", ".", *["--options", "text"] * 3], "--options is given 3 times"),
        (["--data", ".", "--options", "classic", "--lexical"], "is nothing without an embedding"),
        (["--data", ".", "--options", "text", "--show", "-1"], "'-1' is not a number from 0"),
    ],
)
def test_a_malformed_command_is_refused(arguments, said, capsys):
    with pytest.raises(SystemExit):
        run(*arguments)
    assert said in capsys.readouterr().err


def test_what_is_not_there_is_a_clear_error(data, tools, capsys):
    assert run("--data", ".", "--options", "default") == 1
    assert "holds no ingested tools" in capsys.readouterr().err
    assert run("--data", data, "--options", "default") == 1
    assert f"{data / 'usage'}: there is no usage log" in capsys.readouterr().err
    missing = "none.sqlite"
    assert run("--thread-db", missing, "--tools", tools, "--options", "default") == 1
    assert f"{missing}: cannot be read: No such file" in capsys.readouterr().err
    assert run("--data", data, "--options", "mine") == 1
    assert "mine: no such options" in capsys.readouterr().err


def test_a_broken_row_is_told_of_and_the_rest_is_replayed(threads, tools, two, capsys):
    with sqlite3.connect(threads) as connection:
        connection.execute(
            "UPDATE checkpoints SET checkpoint = x'c1', type = 'msgpack' WHERE thread_id = 'node'"
        )
    connection.close()
    assert run("--thread-db", threads, "--tools", tools, "--options", two) == 0
    text = printed(capsys)
    assert "not (wholly) read: node: " in text
    assert "8 model steps replayed" in text


def test_without_a_terminal_nothing_but_the_answer_is_printed(threads, tools, two):
    code = "import sys; from langchain_toolrag.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "replay"]
    arguments = ["--thread-db", threads, "--tools", tools, "--options", two, "--lexical"]
    ended = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, env=os.environ, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "model steps replayed" in ended.stdout
