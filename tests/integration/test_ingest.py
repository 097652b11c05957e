"""`toolrag ingest`, `list`, `status`, `search --data` and `call` over real MCP servers."""

import json
import os
import shutil
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from fakes import HashingEmbeddings
from http_echo import echo_server
from mcp_running import HttpServer, command, odd

from langchain_toolrag import cli
from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.python_tools import read_python
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool
from langchain_toolrag.errors import SourceError
from langchain_toolrag.index import embedding

pytestmark = pytest.mark.usefixtures("encoded")
WEATHER = Path(__file__).parents[2] / "examples" / "servers" / "weather_server.py"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def config(tmp_path):
    def write(**servers):
        path = tmp_path / "mcp.json"
        path.write_text(json.dumps({"mcpServers": servers}))
        return str(path)

    return write


@pytest.fixture
def toolrag(capsys):
    """Run the command; return its status and what it printed."""

    def run(*arguments):
        status = cli.main(arguments)
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.fixture(scope="module")
def ingested(tmp_path_factory):
    """A directory with the odd server's tools and the weather server's."""
    folder = tmp_path_factory.mktemp("ingested")
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"odd": odd()}}))
    weather = f"weather={command(WEATHER)}"
    given = ["--config", str(config), "--server", weather, "--out", str(folder / "data")]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(embedding.MiniLMEmbeddings, "_encode", encode)
        assert cli.main(["ingest", "mcp", *given]) == 0
    return folder / "data"


def encode(self, texts):
    return np.array(HashingEmbeddings().embed_documents(texts), np.float32)


@pytest.fixture
def data(ingested):
    """A copy of it, to be changed."""
    shutil.copytree(ingested, "data")
    return "data"


def tools_of(source):
    return [tool.name for tool in ToolDirectory("data").tools() if tool.source == source]


class TestIngestingServers:
    def test_the_summary_counts_by_source_and_in_sum(self, toolrag, config):
        given = ["--config", config(odd=odd()), "--server", f"weather={command(WEATHER)}"]
        status, out, err = toolrag("ingest", "mcp", *given, "--out", "data")

        assert (status, err) == (0, "")
        assert [line.split()[:2] for line in out.splitlines()[:2]] == [
            ["odd", "+13"],
            ["weather", "+6"],
        ]
        assert out.splitlines()[2] == "in all   +19 added  ~0 changed  -0 removed  =0 kept"

    def test_nothing_is_embedded_twice(self, toolrag, data, config, encoded):
        status, out, _ = toolrag("ingest", "mcp", "--config", config(odd=odd()), "--out", data)

        assert status == 0
        assert "+0 added  ~0 changed  -0 removed  =13 kept" in out
        assert encoded == []

    def test_a_dry_run_writes_nothing(self, toolrag):
        given = ["--server", f"weather={command(WEATHER)}"]
        status, out, _ = toolrag("ingest", "mcp", *given, "--out", "data", "--dry-run")

        assert status == 0
        assert "+6 added" in out
        assert "nothing was written" in out
        assert not Path("data").exists()

    def test_a_server_that_fails_keeps_its_tools_and_the_others_go_on(self, toolrag, data, config):
        broken = {**odd(), "args": ["-c", "raise SystemExit('out of cheese')"]}
        given = ["--config", config(odd=broken), "--server", f"weather={command(WEATHER)}"]
        status, out, err = toolrag("ingest", "mcp", *given, "--out", data)

        assert status == 1
        assert "weather  +0 added  ~0 changed  -0 removed  =6 kept" in out
        assert "kept 13 tools of odd: did not start" in err
        assert "cheese" not in Path("data/sources.json").read_text()
        assert "out of cheese" in err
        assert len(tools_of("odd")) == 13
        assert "failed since: did not start" in toolrag("status", "--data", data)[1]

    @pytest.mark.parametrize(
        ("server", "message"),
        [
            ("a=no-such-command", "no such file or command: no-such-command"),
            ("a=http://127.0.0.1:9/mcp", "All connection attempts failed"),
            (f"a={sys.executable} -c 'import time; time.sleep(60)'", "did not answer within 1 sec"),
        ],
    )
    def test_one_that_does_not_start_is_an_error_that_says_why(self, toolrag, server, message):
        status, _, err = toolrag(
            "ingest", "mcp", "--server", server, "--out", "d", "--timeout", "1"
        )
        assert status == 1
        assert "kept 0 tools of a: did not " in err
        assert message in err

    @pytest.mark.parametrize(
        ("listing", "message"),
        [
            ("twice", "lists the tool 'tool_1' twice"),
            ("endless", "its list of tools comes back to the page '1'"),
            ("broken", "its tools cannot be listed: the list is lost"),
        ],
    )
    def test_a_list_that_is_wrong_is_an_error(self, toolrag, config, listing, message):
        path = config(odd=odd(ODD_LIST=listing))
        status, _, err = toolrag("ingest", "mcp", "--config", path, "--out", "data")
        assert status == 1
        assert message in err

    def test_a_list_on_many_pages_is_read_to_its_end(self, toolrag, config):
        path = config(odd=odd(ODD_LIST="95"))
        assert toolrag("ingest", "mcp", "--config", path, "--out", "data")[0] == 0
        assert tools_of("odd") == [f"tool_{n}" for n in range(95)]

    def test_annotations_and_titles_are_kept(self, toolrag, data):
        (wipe,) = (tool for tool in ToolDirectory(data).tools() if tool.name == "wipe")
        assert wipe.annotations == {"destructiveHint": True, "title": "Delete it all"}

    @pytest.mark.skipif(os.name == "nt", reason="no /bin/sh")
    def test_one_that_never_answers_is_ended_with_all_it_started(self, toolrag, tmp_path):
        script = f"sleep 4711 & echo $! > {tmp_path}/pid; wait"
        given = ["--server", f'a=sh -c "{script}"', "--out", "d", "--timeout", "1"]
        assert toolrag("ingest", "mcp", *given)[0] == 1
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)

    def test_without_any_server_it_says_how_to_give_one(self, toolrag):
        status, _, err = toolrag("ingest", "mcp", "--out", "data")
        assert status == 1
        assert "wanted --config FILE or --server" in err


class TestHeadersOverHttp:
    def test_they_come_from_the_environment_by_name(self, toolrag, config, monkeypatch):
        server = HttpServer()
        headers = {"Authorization": "Bearer ${ODD_TOKEN}", "X-Literal": "literal-1234"}
        path = config(odd={"type": "http", "url": server.url, "headers": headers})
        try:
            status, _, err = toolrag("ingest", "mcp", "--config", path, "--out", "data")
            assert status == 1
            assert "needs the environment variable ODD_TOKEN, which is not set" in err

            monkeypatch.setenv("ODD_TOKEN", "token-1234")
            assert toolrag("ingest", "mcp", "--config", path, "--out", "data")[0] == 0
            written = Path("data/sources.json").read_text()
            assert "Bearer ${ODD_TOKEN}" in written
            assert "token-1234" not in written
            assert "literal-1234" not in written
            for name, value in (
                ("Authorization", "Bearer token-1234"),
                ("X-Literal", "literal-1234"),
            ):
                arguments = json.dumps({"name": name})
                assert (
                    toolrag("call", "odd/header", arguments, "--data", "data")[1].strip() == value
                )
        finally:
            server.end()

    @pytest.mark.parametrize(
        "header", ["Authorization: Bearer literal-1234", "Authorization=Bearer literal-1234"]
    )
    def test_a_literal_one_is_refused_and_not_shown(self, toolrag, header):
        Path("api.json").write_text("{}")
        status, _, err = toolrag("ingest", "openapi", "api.json", "--header", header, "--out", "d")
        assert status == 1
        assert "wanted NAME='${VARIABLE}'" in err
        assert "literal-1234" not in err

    def test_they_do_not_follow_a_redirect_to_another_server(self, toolrag, config):
        with echo_server() as other, redirecting_to(other.url) as url:
            server = {"type": "http", "url": url, "headers": {"X-Key": "literal-1234"}}
            given = ["--config", config(odd=server), "--out", "data", "--timeout", "5"]
            status, _, err = toolrag("ingest", "mcp", *given)
            assert status == 1
            assert "did not" in err
            assert other.requests == []


@contextmanager
def redirecting_to(url):
    """Yield the address of a server that sends every request to another one."""

    class Redirect(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(307)
            self.send_header("Location", f"{url}/mcp")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Redirect)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class TestIngestingPython:
    @pytest.fixture(autouse=True)
    def _module(self):
        Path("sums.py").write_text(
            "def add(a: int, b: int) -> int:\n"
            '    "Add two numbers."\n'
            "    return a + b\n"
            "def divide(a: int, b: int) -> float:\n"
            '    "Divide two numbers."\n'
            "    return a / b\n"
            "ALL = [add, divide]\n"
            "NONE = []\n"
        )

    def test_functions_are_listed_and_called(self, toolrag, tmp_path, monkeypatch):
        status, out, _ = toolrag("ingest", "python", "sums.py:ALL", "--out", "data")
        assert (status, tools_of("sums")) == (0, ["add", "divide"])
        assert out == "sums  +2 added  ~0 changed  -0 removed  =0 kept\n"

        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        status, out, _ = toolrag("call", "sums/add", '{"a": 2, "b": 3}', "--data", "../data")
        assert (status, out) == (0, "5\n")

    def test_a_module_of_this_folder_is_found_from_another(self, toolrag, tmp_path, monkeypatch):
        (tmp_path / "shop").mkdir()
        (tmp_path / "sums.py").rename(tmp_path / "shop" / "sums_of_shop.py")
        assert toolrag("ingest", "python", "shop.sums_of_shop:ALL", "--out", "data")[0] == 0
        for name in ("shop", "shop.sums_of_shop"):
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.chdir(tmp_path / "shop")
        call = ("call", "sums_of_shop/add", '{"a": 2, "b": 3}', "--data", "../data")
        assert toolrag(*call)[:2] == (0, "5\n")

    def test_an_error_of_the_tool_is_told(self, toolrag):
        toolrag("ingest", "python", "sums.py:ALL", "--name", "maths", "--out", "data")
        status, _, err = toolrag("call", "maths/divide", '{"a": 1, "b": 0}', "--data", "data")
        assert (status, err) == (
            1,
            "toolrag: tool_error: maths/divide: ZeroDivisionError: division by zero\n",
        )

    @pytest.mark.parametrize(
        ("location", "message"),
        [
            ("sums.py:NONE", "holds no tool that can be run"),
            ("sums.py:OTHER", "has no attribute 'OTHER'"),
            ("none.py:ALL", "cannot be imported"),
            ("sums", "wanted MODULE:ATTRIBUTE or FILE.py:ATTRIBUTE"),
        ],
    )
    def test_what_holds_no_tools_is_an_error(self, toolrag, location, message):
        status, _, err = toolrag("ingest", "python", location, "--name", "x", "--out", "data")
        assert status == 1
        assert message in err
        assert not Path("data").exists()


class TestReadingTheDirectory:
    def test_list_names_the_tools(self, toolrag, data):
        status, out, _ = toolrag("list", "--data", data, "--source", "weather")
        assert status == 0
        assert out.splitlines()[0].startswith("weather/get_weather ")
        assert len(out.splitlines()) == 6

    def test_list_as_json_has_what_is_stored(self, toolrag, data):
        tools = json.loads(toolrag("list", "--data", data, "--json")[1])
        assert len(tools) == 19
        assert tools[0]["id"] == "odd/echo"
        assert tools[0]["parameters"]["required"] == ["text"]

    def test_what_a_server_says_cannot_write_to_the_terminal(self, toolrag):
        odd = StoredTool("a/\x1b[2J", "a", "mcp", "\x1b[2J", "Clear\x1b]0;title\x07 it.")
        failed = Listing(StoredSource("b", "mcp", "command"), failure="\x1b[31mno")
        ToolDirectory("d").replace([Listing(StoredSource("a", "mcp", "command"), [odd]), failed])
        for command_line in (["list"], ["status", "--lexical"], ["search", "clear", "--lexical"]):
            status, out, _ = toolrag(*command_line, "--data", "d")
            assert status == 0
            assert "\x1b" not in out
            assert "\x07" not in out

    def test_status_counts_tools_and_vectors(self, toolrag, data):
        out = toolrag("status", "--data", data)[1]
        assert "19 tools of 2 sources" in out
        assert "vectors of 19 tools are cached" in out
        described = json.loads(toolrag("status", "--data", data, "--json")[1])
        assert described["vectors"] == {"cached": 19, "missing": 0}
        assert [source["tools"] for source in described["sources"]] == [13, 6]
        assert described["sources"][0]["listed_at"].endswith("+00:00")

    def test_status_says_how_many_vectors_are_missing(self, toolrag, config):
        given = ["--config", config(odd=odd()), "--out", "data", "--lexical"]
        toolrag("ingest", "mcp", *given)
        assert "13 to be made at the next search" in toolrag("status", "--data", "data")[1]

    def test_search_finds_by_id_and_embeds_no_tool_again(self, toolrag, data, encoded):
        status, out, _ = toolrag("search", "weather in a city", "--data", data)
        assert status == 0
        assert out.splitlines()[1].startswith("weather/get_weather")
        assert encoded == ["weather in a city"]

    def test_search_says_why_it_has_to_embed_again_each_time(self, toolrag, data):
        shutil.rmtree(f"{data}/cache")
        Path(data, "cache").write_text("in the way")
        status, _, err = toolrag("search", "weather in a city", "--data", data)
        assert status == 0
        assert "vectors are kept in memory" in err

    def test_search_takes_tools_or_a_directory_and_not_both(self, toolrag, data):
        for given in ([], ["--data", data, "--tools", "x.json"]):
            with pytest.raises(SystemExit) as exit_:
                cli.main(["search", "weather", *given])
            assert exit_.value.code == 2

    @pytest.mark.parametrize(
        "command_line",
        [["list"], ["status"], ["search", "x"], ["call", "a/b"]],
        ids=lambda each: each[0],
    )
    def test_where_nothing_was_ingested_each_says_so(self, toolrag, command_line):
        status, _, err = toolrag(*command_line, "--data", "nowhere")
        assert status == 1
        assert "holds no ingested tools" in err


class TestCalling:
    def test_the_result_is_printed(self, toolrag, data):
        status, out, err = toolrag("call", "odd/echo", '{"text": "hello"}', "--data", data)
        assert (status, out, err) == (0, "hello\n", "")

    def test_two_ids_of_one_name_are_told_apart_as_in_a_search(self, toolrag):
        Path("own.py").write_text(
            "def said(): 'Say one.'; return 'one'\n"
            "def also(): 'Say two.'; return 'two'\n"
            "also.__name__ = 'x__said'\nONE, TWO = [said], [also]\n"
        )
        for location, name in (("own.py:ONE", "a.x"), ("own.py:TWO", "a")):
            given = ["--name", name, "--out", "d", "--lexical"]
            assert toolrag("ingest", "python", location, *given)[0] == 0
        names = {}
        for words in ("say one", "say two"):
            found = toolrag("search", words, "--data", "d", "--lexical", "--json")[1]
            names.update({tool["id"]: tool["name"] for tool in json.loads(found)["tools"]})
        assert set(names) == {"a.x/said", "a/x__said"}
        assert len(set(names.values())) == 2
        for identity, name in names.items():
            by_id = toolrag("call", identity, "--data", "d")
            assert by_id[0] == 0
            assert toolrag("call", name, "--data", "d") == by_id

    def test_an_id_may_be_given_as_a_model_sees_it(self, toolrag, data):
        assert toolrag("call", "odd__echo", '{"text": "hello"}', "--data", data)[0] == 0

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (["odd/fail"], "tool_error: Error executing tool fail: the disk is on fire"),
            (["odd/echo", '{"words": 1}'], "tool_error: Error executing tool echo: 1 validation"),
            (
                ["odd/wait", '{"seconds": 30}', "--timeout", "1"],
                "timeout: odd/wait: no answer with",
            ),
            (["odd/crash"], "the call may have been carried out or not"),
            (["odd/crash"], "the MCP server 'odd' ended; it wrote: out of cheese"),
            (["odd/wipe"], "refused: odd/wipe says that it is destructive"),
            (["odd/eco"], "names 'odd/eco', which the catalogue does not have. Closest: odd/echo"),
            (["echo"], "Closest: odd/echo"),
            (
                ["odd/echo", '{"text": "x"'],
                "not JSON: Expecting ',' delimiter at line 1, column 13",
            ),
            (["odd/echo", "[1]"], "wanted a JSON object, found [1]"),
            (["odd/echo", '{"text": NaN}'], "NaN is no JSON number"),
        ],
    )
    def test_any_other_outcome_is_an_error(self, toolrag, data, given, message):
        status, out, err = toolrag("call", *given, "--data", data)
        assert (status, out) == (1, "")
        assert message in err

    def test_what_is_destructive_is_called_once_that_is_allowed(self, toolrag, data):
        assert toolrag("call", "odd/wipe", "--data", data, "--allow-write")[:2] == (0, "gone\n")


class TestModulesThatAreNoSource:
    @pytest.mark.parametrize("location", ["tools", "tools:", ":TOOLS", ""])
    def test_a_location_without_module_or_attribute_says_what_is_wanted(self, location, tmp_path):
        with pytest.raises(SourceError, match=r"wanted MODULE:ATTRIBUTE or FILE\.py:ATTRIBUTE"):
            read_python(location)

    def test_a_module_that_ends_the_process_is_an_error_like_any_other(self, tmp_path):
        (tmp_path / "ending.py").write_text("raise SystemExit(3)\n")
        with pytest.raises(SourceError, match="cannot be imported: SystemExit: 3"):
            read_python(f"{tmp_path / 'ending.py'}:TOOLS")


def test_an_interrupted_command_says_so_and_ends_as_shells_expect(monkeypatch, capsys):
    def interrupted(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr("langchain_toolrag.cli.stores.ToolDirectory", interrupted)
    assert cli.main(["list", "--data", "x"]) == 130
    assert capsys.readouterr().err == "toolrag: interrupted\n"


def test_a_directory_that_cannot_be_looked_into_is_an_error(monkeypatch, tmp_path, capsys):
    def refused(self, **named):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.stat", refused)
    for name in ("list", "status", "usage"):
        assert cli.main([name, "--data", str(tmp_path)]) == 1
    assert "cannot be read: Permission denied" in capsys.readouterr().err
