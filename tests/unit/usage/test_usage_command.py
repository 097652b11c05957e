import argparse
import json
import os

import pytest

from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool
from langchain_toolrag.cli import usage
from langchain_toolrag.errors import SourceError


def run(*arguments):
    parser = argparse.ArgumentParser()
    usage.register(parser.add_subparsers())
    parsed = parser.parse_args(["usage", *map(str, arguments)])
    return parsed.run(parsed)


@pytest.fixture
def data(tmp_path):
    """An ingest directory of four tools; its log is `directory`."""
    source = StoredSource("github", "mcp", "github-server")
    tools = [StoredTool(f"github/{name}", "github", "mcp", name) for name in ("a", "b", "c", "d")]
    ToolDirectory(tmp_path).replace([Listing(source, tools)])
    return tmp_path


@pytest.fixture
def used(data, write, search, call):
    write(
        search("1", ["github/a", "github/b"], confidence=0.9),
        search("2", ["github/b", "github/a"], mode="lexical", seconds=60),
        search("3", kind="select", seconds=3600),
        call("github/a", "1", seconds=3601),
        call("github/a", "2", seconds=3602, outcome="tool_error"),
        call("github/d", seconds=3603),
        '{"v":1,"ty',
        '{"v":9,"type":"search"}',
    )
    return data


def test_the_command_says_what_was_searched_for_and_called(used, directory, capsys):
    assert run("--data", used) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{directory}, 2026-11-03 12:00 to 2026-11-03 13:00 UTC",
        "searches                       3  (2 search, 1 select; 2 semantic, 1 lexical)",
        "  no good hit                  1   33.3%",
        "calls                          3  (2 ok, 1 tool_error)",
        "  tied to a search             2   66.7%",
        "    tool at rank 1             1   50.0%",
        "    up to rank 3               2  100.0%",
        "    up to rank 5               2  100.0%",
        "    up to rank 10              2  100.0%",
        "never retrieved                2   50.0%",
        "    github/c",
        "    github/d",
        "retrieved, never called        1",
        "    github/b (2x)",
        "lines read past                2  (1 torn, 1 of another version)",
    ]


def test_the_command_says_which_heads_answered(directory, write, search, capsys):
    write(search("1"), search("2", heads="0123456789abcdef"), search("3"), search("4"))
    assert run("--data", directory) == 0
    assert "  heads 0123456789abcdef       1   25.0%" in capsys.readouterr().out.splitlines()
    assert run("--data", directory, "--json") == 0
    assert json.loads(capsys.readouterr().out)["heads"] == {"0123456789abcdef": 1}


def test_what_a_log_holds_moves_no_cursor(directory, write, search, capsys):
    write(search("1", ["a\x1b[2Jb"], heads="\x1b[31m"))
    assert run("--data", directory) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "a\N{REPLACEMENT CHARACTER}[2Jb" in printed


def test_the_command_prints_json(used, capsys):
    assert run("--data", used, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["searches"] == {"search": 2, "select": 1}
    assert printed["first"] == "2026-11-03T12:00:00+00:00"
    assert printed["hit_rate"] == {"1": 0.5, "3": 1.0, "5": 1.0, "10": 1.0}
    assert printed["never_retrieved"] == ["github/c", "github/d"]
    assert printed["never_called"] == {"github/b": 2}
    assert printed["skipped"] == {"torn": 1, "foreign": 0, "unknown_version": 1}


def test_a_directory_that_nothing_was_logged_in_has_no_records(data, directory, capsys):
    assert run("--data", data) == 0
    assert capsys.readouterr().out == f"{directory} has no records\n"
    assert run("--data", data, "--json") == 0
    assert json.loads(capsys.readouterr().out)["first"] is None


def test_a_log_alone_is_read_without_a_catalogue(directory, write, search, capsys):
    write(search("1", [f"tool {n:02}" for n in range(12)]))
    assert run("--data", directory) == 0
    printed = capsys.readouterr().out.splitlines()
    assert not any(line.startswith("never retrieved") for line in printed)
    assert printed[-2:] == ["    tool 09 (1x)", "    and 2 more: --json has them all"]


def test_a_directory_that_is_neither_is_an_error_that_says_so(tmp_path):
    with pytest.raises(SourceError, match="holds no ingested tools"):
        run("--data", tmp_path / "nowhere")


def test_a_log_that_may_not_be_read_is_not_taken_for_an_empty_one(used, directory, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # For root all can be read.
    with pytest.raises(SourceError, match=f"{directory}: cannot be read"):
        run("--data", used)
