"""How MCP servers are described, what is stored of that, and how they are reached again."""

import json

import pytest

from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.mcp.connections import (
    configured_sources,
    connection_of,
    expanded,
    given_source,
)
from langchain_toolrag.catalogue.sources.stored import Listing
from langchain_toolrag.errors import SourceError

SECRET = "sk-live-1234"


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "mcp.json"

    def write(servers, key="mcpServers"):
        path.write_text(json.dumps({key: servers}))
        return path

    return write


def read_one(path, environment=None):
    (source,) = configured_sources(path)
    return connection_of(source, environment or {})


class TestAnMcpJson:
    def test_a_command_as_claude_and_cursor_write_it(self, config):
        server = {"command": "npx", "args": ["-y", "server"], "env": {"PORT": 8080}}
        connection = read_one(config({"files": server}))

        assert connection["transport"] == "stdio"
        assert connection["command"] == "npx"
        assert connection["args"] == ["-y", "server"]
        assert connection["env"] == {"PORT": "8080"}

    @pytest.mark.parametrize(
        ("server", "transport"),
        [
            ({"url": "http://x/mcp"}, "streamable_http"),
            ({"url": "http://x/sse"}, "sse"),
            ({"type": "http", "url": "http://x/sse"}, "streamable_http"),
            ({"type": "sse", "url": "http://x/mcp"}, "sse"),
            ({"transport": "streamable-http", "url": "http://x/mcp"}, "streamable_http"),
            ({"type": "streamableHttp", "url": "http://x/mcp"}, "streamable_http"),
            ({"type": "stdio", "command": "server"}, "stdio"),
        ],
    )
    def test_the_transport_is_said_or_follows_from_the_address(self, config, server, transport):
        assert read_one(config({"a": server}))["transport"] == transport

    def test_vs_code_calls_the_servers_otherwise(self, config):
        path = config({"a": {"type": "http", "url": "http://x/mcp"}}, key="servers")
        assert read_one(path)["url"] == "http://x/mcp"

    def test_a_server_that_is_disabled_is_left_out(self, config):
        servers = {"a": {"command": "a"}, "b": {"command": "b", "disabled": True}}
        assert [source.name for source in configured_sources(config(servers))] == ["a"]

    @pytest.mark.parametrize(
        ("servers", "message"),
        [
            ({}, "describes no server"),
            ({"a": {}}, "'a': wanted either a 'command' or a 'url'"),
            ({"a": {"command": "x", "url": "http://x"}}, "wanted either"),
            ({"a": {"type": "carrier pigeon", "url": "http://x"}}, "'carrier pigeon'; wanted"),
            ({"a": {"type": "stdio", "url": "http://x"}}, "'stdio' and has no 'command'"),
            ({"a": {"type": "http", "command": "x"}}, "'http' and has no 'url'"),
            ({"a": {"command": ["x"]}}, "'a': 'command': input should be a valid string"),
            ({"a/b": {"command": "x"}}, "cannot be named 'a/b'"),
        ],
    )
    def test_a_description_that_makes_no_sense_is_an_error(self, config, servers, message):
        with pytest.raises(SourceError, match=message):
            configured_sources(config(servers))

    def test_so_is_a_file_of_another_kind(self, tmp_path):
        path = tmp_path / "mcp.json"
        path.write_text("[]")
        with pytest.raises(SourceError, match="wanted an object with 'mcpServers'"):
            configured_sources(path)
        path.write_text("{\n  'a': 1}")
        with pytest.raises(SourceError, match="line 2: not JSON"):
            configured_sources(path)

    def test_the_message_does_not_show_what_was_found(self, config):
        with pytest.raises(SourceError) as caught:
            configured_sources(config({"a": {"command": "x", "env": {"KEY": [SECRET]}}}))
        assert SECRET not in str(caught.value)


SECRETIVE = {
    "files": {
        "command": "server",
        "args": ["--db", f"postgresql://me:{SECRET}@host/db", "--token", SECRET],
        "env": {"API_KEY": SECRET, "OTHER": "${FROM_ENVIRONMENT}", "MIXED": f"{SECRET}${{X}}"},
    },
    "web": {
        "url": f"https://me:{SECRET}@host/mcp?key={SECRET}#{SECRET}",
        "headers": {"Authorization": f"Bearer {SECRET}", "X-Key": "${WEB_KEY}"},
    },
}


class TestSecrets:
    def test_no_literal_value_is_stored(self, config, tmp_path):
        sources = configured_sources(config(SECRETIVE))
        directory = ToolDirectory(tmp_path / "data")
        directory.replace([Listing(source) for source in sources])

        written = (directory.path / "sources.json").read_text()
        assert SECRET not in written
        assert "API_KEY" in written
        assert "${FROM_ENVIRONMENT}" in written
        assert "${WEB_KEY}" in written

    def test_they_are_read_again_when_a_session_is_opened(self, config):
        environment = {"FROM_ENVIRONMENT": "one", "X": "two", "WEB_KEY": "three"}
        files, web = (
            connection_of(source, environment) for source in configured_sources(config(SECRETIVE))
        )

        assert files["env"] == {"API_KEY": SECRET, "OTHER": "one", "MIXED": f"{SECRET}two"}
        assert files["args"] == SECRETIVE["files"]["args"]
        assert web["url"] == SECRETIVE["web"]["url"]
        assert web["headers"] == {"Authorization": f"Bearer {SECRET}", "X-Key": "three"}

    def test_an_address_whose_path_holds_a_key_is_stored_without(self, config):
        url = "https://hooks.example/api/mcp/s/ZjA4NmQ5YzQtMDk2OC00/mcp"
        path = config({"web": {"url": url}})
        (source,) = configured_sources(path)

        assert source.origin == "https://hooks.example/api/mcp/s/***/mcp"
        assert "ZjA4" not in str(source)
        assert connection_of(source, {})["url"] == url

    def test_an_address_that_is_none_is_an_error_that_shows_no_password(self, config):
        path = config({"web": {"url": f"http://me:{SECRET}@[::1/mcp?key={SECRET}"}})
        with pytest.raises(SourceError, match=r"http://\[::1/mcp: is no URL") as caught:
            configured_sources(path)
        assert SECRET not in str(caught.value)

    def test_a_configuration_that_lost_the_server_is_an_error_that_names_both(self, config):
        (source,) = configured_sources(config({"a": {"command": "x"}}))
        path = config({"b": {"command": "x"}})
        with pytest.raises(SourceError, match=f"{path}: describes no server 'a' any more"):
            connection_of(source, {})
        path.unlink()
        with pytest.raises(SourceError, match="cannot be read"):
            connection_of(source, {})

    def test_a_server_with_no_folder_of_its_own_is_run_where_it_was_ingested(
        self, config, tmp_path, monkeypatch
    ):
        monkeypatch.chdir(tmp_path)
        (source,) = configured_sources(config({"a": {"command": "x"}}))
        monkeypatch.chdir("/")
        assert connection_of(source, {})["cwd"] == str(tmp_path)


class TestVariables:
    def test_those_in_braces_are_put_in_wherever_they_are(self):
        value = {"a": ["--key=${KEY}", "$KEY"], "b": "${env:KEY}", "c": None}
        assert expanded(value, {"KEY": "k"}, where="here") == {
            "a": ["--key=k", "$KEY"],
            "b": "k",
            "c": None,
        }

    def test_a_value_is_not_read_for_variables_again(self):
        assert expanded("${A}", {"A": "${B}", "B": "b"}, where="here") == "${B}"

    def test_one_may_have_a_default(self):
        assert expanded("${KEY:-none}", {}, where="here") == "none"

    def test_one_that_is_not_set_is_named(self):
        with pytest.raises(SourceError, match="here a: needs the environment variable KEY"):
            expanded({"a": "${KEY}"}, {}, where="here")

    def test_an_input_of_vs_code_is_refused(self):
        with pytest.raises(SourceError, match=r"write \$\{NAME\}"):
            expanded("${input:key}", {}, where="here")


class TestACommandLine:
    def test_a_command_is_split_as_a_shell_does(self):
        source = given_source("git=python -m 'a server' --repo=/x")
        connection = connection_of(source, {})

        assert source.name == "git"
        assert source.origin == "python -m 'a server' --repo=/x"
        assert connection["command"] == "python"
        assert connection["args"] == ["-m", "a server", "--repo=/x"]

    def test_an_address_is_one(self):
        connection = connection_of(given_source("web=https://host/mcp?a=b"), {})
        assert connection == {"transport": "streamable_http", "url": "https://host/mcp?a=b"}

    def test_variables_are_put_in_late(self):
        source = given_source("web=https://host/mcp?key=${KEY}")
        assert "${KEY}" in source.connection["url"]
        assert connection_of(source, {"KEY": "k"})["url"].endswith("?key=k")

    @pytest.mark.parametrize(
        "text", ["", "git", "git=", "=command", "a/b=command", " =x", "a=http://[x"]
    )
    def test_anything_else_is_an_error(self, text):
        with pytest.raises(SourceError):
            given_source(text)

    @pytest.mark.parametrize("text", [f"npx server --key={SECRET}", f"--api-key={SECRET}"])
    def test_a_command_without_a_name_is_not_taken_for_one(self, text):
        with pytest.raises(SourceError, match='wanted NAME="COMMAND ARGUMENTS"') as caught:
            given_source(text)
        assert SECRET not in str(caught.value)

    @pytest.mark.parametrize(
        "given",
        [
            "python -m http.server 8000",
            "npx -y @scope/server-sequential-thinking --header X-Team:red",
            "docker run -v /a:/b image:latest",
            "https://host/v1/projects/my-project-number-12345/mcp?user=me",
            "uvx mcp-server-time --local-timezone=Europe/Berlin",
        ],
    )
    def test_what_is_no_secret_is_taken(self, given):
        assert given_source(f"a={given}").origin == given

    def test_a_quote_that_does_not_close_is_an_error(self):
        with pytest.raises(SourceError, match="git: the command cannot be read: No closing"):
            given_source("git=python 'x")

    @pytest.mark.parametrize(
        "text",
        [
            f"a=server --token {SECRET}",
            f"a=server --api-key={SECRET}",
            f"a=env API_KEY={SECRET} server",
            f"a=server postgresql://me:{SECRET}@host/db",
            f"a=https://me:{SECRET}@host/mcp",
            f"a=https://host/mcp?api_key={SECRET}",
            f"a=npx mcp-remote https://host --header 'Authorization: Bearer {SECRET}'",
            f"a=curl -H X-Api-Key:{SECRET}",
        ],
    )
    def test_what_looks_like_a_secret_is_refused_and_not_shown(self, text):
        with pytest.raises(SourceError, match="looks like a secret") as caught:
            given_source(text)
        assert SECRET not in str(caught.value)
        given_source(text.replace(SECRET, "${SECRET}"))

    @pytest.mark.parametrize(
        "key",
        [
            "ghp_0123456789abcdefABCDEF",
            "https://host/mcp/3f2a9c1e-77aa-4b0c-9d21-00aa11bb22cc",
            "https://host/mcp?for=sk-0123456789abcdef",
        ],
    )
    def test_so_is_what_looks_like_a_key_wherever_it_stands(self, key):
        with pytest.raises(SourceError, match="looks like a secret") as caught:
            given_source(f"a=server {key}")
        assert key not in str(caught.value)
