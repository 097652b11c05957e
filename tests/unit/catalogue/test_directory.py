"""The directory that an ingest writes: what is in it, what stays, and who may write at once."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from listings import listing, source, tool

from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.directory_records import as_json, read_source, read_tool
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool
from langchain_toolrag.errors import SourceError


def counts(changes):
    return {name: str(change) for name, change in changes.items()}


@pytest.fixture
def directory(tmp_path):
    return ToolDirectory(tmp_path / "data")


@pytest.fixture
def filled(directory):
    directory.replace(
        [listing("weather", tool("weather/now"), tool("weather/later")), listing("b", tool("b/x"))]
    )
    return directory


class TestWhatIsWritten:
    def test_one_tool_a_line_its_id_first(self, filled):
        lines = (filled.path / "tools.jsonl").read_text().splitlines()

        assert [next(iter(json.loads(line).items())) for line in lines] == [
            ("id", "weather/now"),
            ("id", "weather/later"),
            ("id", "b/x"),
        ]

    def test_everything_comes_back(self, filled):
        assert filled.tools() == [tool("weather/now"), tool("weather/later"), tool("b/x")]
        assert filled.sources() == {
            "weather": source("weather", tools=2),
            "b": source("b", tools=1),
        }

    def test_text_of_any_script_and_half_characters_come_back(self, directory):
        odd = tool("a/x", "天気 \u2028 \ud800 \N{GRINNING FACE}")
        directory.replace([listing("a", odd, tool("a/備"))])

        assert directory.tools() == [odd, tool("a/備")]
        assert "備" in (directory.path / "tools.jsonl").read_text(encoding="utf-8")

    def test_so_do_paths_that_are_not_utf_8(self, directory):
        directory.replace([listing("a", config="/home/caf\udce9/mcp.json")])

        assert directory.sources()["a"].config == "/home/caf\udce9/mcp.json"

    def test_other_files_of_the_folder_stay(self, directory):
        directory.path.mkdir()
        theirs = directory.path / ".claude.json.backup"
        half_written = directory.path / ".tools.jsonl.4711"
        theirs.touch()
        half_written.touch()
        directory.replace([listing("a", tool("a/x"))])

        assert theirs.exists()
        assert not half_written.exists()

    def test_the_sources_say_which_version_they_are(self, filled):
        assert json.loads((filled.path / "sources.json").read_text())["version"] == 1


class TestIngestingAgain:
    def test_only_the_sources_that_are_listed_are_replaced(self, filled):
        news = [tool("weather/now", "New words."), tool("weather/soon")]
        changes = filled.replace([listing("weather", *news)])

        assert counts(changes) == {"weather": "+1 ~1 -1 =0"}
        assert filled.tools() == [*news, tool("b/x")]

    def test_changes_name_the_tools(self, filled):
        news = (tool("weather/soon"), tool("weather/now", "New words."))
        change = filled.replace([listing("weather", *news)])["weather"]

        assert change.added == ("weather/soon",)
        assert change.changed == ("weather/now",)
        assert change.removed == ("weather/later",)

    def test_a_source_that_fails_keeps_its_tools_and_is_marked(self, filled):
        changes = filled.replace([listing("weather", failure="did not start")])

        assert counts(changes) == {"weather": "+0 ~0 -0 =2"}
        assert len(filled.tools()) == 3
        assert filled.sources()["weather"] == source("weather", tools=2, failure="did not start")

    def test_a_failure_is_forgotten_once_it_is_listed(self, filled):
        filled.replace([listing("weather", failure="did not start")])
        filled.replace([listing("weather", tool("weather/now"))])

        assert filled.sources()["weather"].failure == ""

    def test_a_new_source_that_fails_is_known_without_tools(self, filled):
        filled.replace([listing("new", failure="did not start")])

        assert filled.sources()["new"].failure == "did not start"
        assert len(filled.tools()) == 3

    def test_a_dry_run_says_the_same_and_writes_nothing(self, directory, filled):
        before = {path: path.read_bytes() for path in filled.path.glob("*.json*")}
        changes = filled.replace([listing("weather", tool("weather/soon"))], dry_run=True)

        assert counts(changes) == {"weather": "+1 ~0 -2 =0"}
        assert {path: path.read_bytes() for path in filled.path.glob("*.json*")} == before

    def test_a_dry_run_makes_no_directory(self, directory):
        assert counts(directory.replace([listing("a", tool("a/x"))], dry_run=True)) == {
            "a": "+1 ~0 -0 =0"
        }
        assert not directory.path.exists()


class TestTheFingerprint:
    def test_it_is_another_one_once_the_tools_changed(self, directory):
        seen = {directory.fingerprint()}
        for description in ("one", "two", "three"):
            directory.replace([listing("a", tool("a/x", description))])
            seen.add(directory.fingerprint())

        assert len(seen) == 4
        assert "" in seen

    def test_it_stays_when_only_a_source_changed(self, filled):
        before = filled.fingerprint()
        filled.replace([listing("weather", failure="did not start")])

        assert filled.fingerprint() == before


class TestWhatIsRefused:
    def refuses(self, directory, listings, message):
        before = directory.tools()
        with pytest.raises(SourceError, match=message):
            directory.replace(listings)
        assert directory.tools() == before

    def test_a_name_that_is_listed_twice(self, filled):
        twice = listing("c", tool("c/x"), tool("c/y"), tool("c/x"))
        self.refuses(filled, [twice], "c: lists the tool 'x' twice")

    def test_two_sources_of_one_name(self, filled):
        self.refuses(filled, [listing("c"), listing("c")], "c: is listed twice")

    def test_a_source_of_another_kind_under_a_known_name(self, filled):
        other = Listing(StoredSource("b", "python", "m:a"))
        self.refuses(filled, [other], "'b' already that is of kind mcp .* is of kind python")

    def test_a_directory_where_nothing_was_ingested(self, directory):
        with pytest.raises(SourceError, match=r"holds no ingested tools.*toolrag ingest"):
            directory.tools()

    def test_a_directory_of_a_newer_version(self, filled):
        (filled.path / "sources.json").write_text('{"version": 2, "sources": {}}')
        with pytest.raises(SourceError, match=r"version 2.*reads version 1.*upgrade"):
            filled.tools()
        with pytest.raises(SourceError, match="version 2"):
            filled.replace([listing("a", tool("a/x"))])

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("{", "line 2: not JSON"),
            ("[]", "line 2: wanted a JSON object"),
            ('{"id": "a/x"}', "line 2: is no tool: 'source'"),
            (
                '{"id": "a/x", "source": "a", "kind": "ftp", "name": "x"}',
                "line 2: is no tool: 'kind'",
            ),
            (
                '{"id": "weather/now", "source": "a", "kind": "mcp", "name": "x"}',
                "line 2: a second",
            ),
        ],
    )
    def test_a_line_that_is_no_tool_is_named(self, filled, line, message):
        path = filled.path / "tools.jsonl"
        first = path.read_text().splitlines()[0]
        path.write_text(f"{first}\n{line}\n")

        with pytest.raises(SourceError, match=message):
            filled.tools()

    def test_sources_that_are_none(self, filled):
        (filled.path / "sources.json").write_text('{"version": 1, "sources": {"a": {"name": 1}}}')
        with pytest.raises(SourceError, match="'a' is no source"):
            filled.sources()

    def test_somebody_elses_file_of_tools(self, directory):
        directory.path.mkdir()
        (directory.path / "tools.jsonl").write_text('{"name": "mine"}\n')
        for dry_run in (True, False):
            with pytest.raises(SourceError, match=r"without the sources\.json .* move it away"):
                directory.replace([listing("a", tool("a/x"))], dry_run=dry_run)
        assert (directory.path / "tools.jsonl").read_text() == '{"name": "mine"}\n'

    def test_a_directory_that_cannot_be_written(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(SourceError, match="cannot be written"):
            ToolDirectory(tmp_path / "file").replace([listing("a", tool("a/x"))])


WRITE = """
import sys
from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool

directory, source, times = ToolDirectory(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for turn in range(times):
    tools = [
        StoredTool(f"{source}/{n}", source, "mcp", str(n), f"in turn {turn} " + "x" * 500)
        for n in range(200)
    ]
    directory.replace([Listing(StoredSource(source, "mcp", "command"), tools)])
    print(turn, flush=True)
"""


def start(directory, name, times):
    arguments = [sys.executable, "-c", WRITE, str(directory.path), name, str(times)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


class TestProcesses:
    def test_of_several_ingests_at_once_none_is_lost(self, directory):
        writers = [start(directory, name, 4) for name in ("a", "b", "c")]
        for writer in writers:
            writer.communicate(timeout=60)
            assert writer.returncode == 0

        assert set(directory.sources()) == {"a", "b", "c"}
        assert len(directory.tools()) == 600

    @pytest.mark.parametrize("delay", [0.0, 0.003, 0.01])
    def test_one_that_is_killed_leaves_a_whole_catalogue_and_no_lock(self, directory, delay):
        directory.replace([listing("old", tool("old/x"))])
        writer = start(directory, "new", 10_000)
        writer.stdout.readline()
        time.sleep(delay)
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate(timeout=60)

        by_source = {"old": [], "new": []}
        for each in directory.tools():
            by_source[each.source].append(each.description.split(" x")[0])
        assert len(by_source["old"]) == 1
        assert len(by_source["new"]) == 200
        assert len(set(by_source["new"])) == 1
        directory.replace([listing("third", tool("third/x"))])
        left = {path.name for path in directory.path.iterdir()}
        assert left <= {"tools.jsonl", "sources.json", ".lock"}


texts = st.text(max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
mappings = st.dictionaries(texts, values, max_size=3)


@given(
    st.builds(
        StoredTool,
        texts,
        texts,
        st.sampled_from(["mcp", "openapi", "python"]),
        texts,
        texts,
        mappings,
        mappings,
        st.lists(texts, max_size=3).map(tuple),
        mappings,
    )
)
def test_a_tool_comes_back_from_json_as_it_was(stored):
    assert read_tool(json.loads(json.dumps(as_json(stored)))) == stored


@given(
    st.builds(
        StoredSource,
        texts,
        st.just("mcp"),
        texts,
        mappings,
        texts,
        texts,
        texts,
        st.integers(0),
        texts,
    )
)
def test_a_source_comes_back_from_json_as_it_was(stored):
    assert read_source(json.loads(json.dumps(as_json(stored)))) == stored


def test_what_a_later_version_adds_to_a_record_is_passed_over():
    assert read_tool({**as_json(tool("a/x")), "future": 1}) == tool("a/x")
