import argparse
import importlib.util

import pytest

from langchain_toolrag.cli import serve
from langchain_toolrag.errors import SourceError
from langchain_toolrag.index.embedding import NoEmbeddings
from langchain_toolrag.server import run


@pytest.fixture
def served(monkeypatch):
    """Runs the command with servers that end at once; what was to be served."""

    def run_command(*arguments):
        found = []
        monkeypatch.setattr(run, "run_http", lambda services: found.append(("http", services)))
        monkeypatch.setattr(run, "run_stdio", lambda services: found.append(("stdio", services)))
        parser = argparse.ArgumentParser()
        serve.register(parser.add_subparsers())
        parsed = parser.parse_args(["serve", *map(str, arguments)])
        assert parsed.run(parsed) == 0
        return found[0]

    return run_command


def test_it_listens_on_the_loopback_alone_and_writes_nothing_unless_told(served, directory):
    how, services = served("--data", directory)
    options = services.options

    assert how == "http"
    assert (options.host, options.port) == ("127.0.0.1", 8765)
    assert not options.allow_write
    assert not options.allow_private
    assert options.usage_log
    assert not options.log_text
    assert options.candidate_share == 0.1


def test_what_is_told_is_done(served, directory, monkeypatch):
    monkeypatch.setenv("TOOLRAG_API_KEY", "a-key")
    flags = ["--allow-write", "--allow-private", "--no-usage-log", "--log-text", "--lexical"]
    names = ["--allowed-host", "tools.example.com", "--allowed-host", "tools"]
    more = ["--host", "0.0.0.0", "--port", "9000", "--candidate-share", "0.5", *names, *flags]
    _, services = served("--data", directory, *more)
    options = services.options

    assert (options.host, options.port, options.api_key) == ("0.0.0.0", 9000, "a-key")
    assert options.allowed_hosts == ("tools.example.com", "tools")
    assert options.allow_write
    assert options.allow_private
    assert options.log_text
    assert options.candidate_share == 0.5
    assert services.recorder.usage is None
    assert isinstance(services.serving.model, NoEmbeddings)


def test_over_standard_input_no_key_is_needed(served, directory):
    how, _ = served("--data", directory, "--stdio")
    assert how == "stdio"


def test_others_are_not_let_in_without_a_key(served, directory, monkeypatch, capsys):
    monkeypatch.delenv("TOOLRAG_API_KEY", raising=False)
    with pytest.raises(SystemExit) as ended:
        served("--data", directory, "--host", "0.0.0.0")

    assert ended.value.code == 2
    assert "Set TOOLRAG_API_KEY" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_what_is_no_port_is_an_error(served, directory, port, capsys):
    with pytest.raises(SystemExit):
        served("--data", directory, "--port", port)
    assert "is not a port" in capsys.readouterr().err


@pytest.mark.parametrize("share", ["-0.5", "1.5", "nan"])
def test_what_is_no_share_is_an_error_that_says_what_is_wanted(served, directory, share, capsys):
    with pytest.raises(SystemExit) as ended:
        served("--data", directory, f"--candidate-share={share}")

    assert ended.value.code == 2
    assert "candidate_share is" in (error := capsys.readouterr().err)
    assert "wanted 0 to 1" in error


def test_a_folder_without_tools_is_an_error_that_says_what_to_do(served, tmp_path):
    with pytest.raises(SourceError, match="toolrag ingest"):
        served("--data", tmp_path)


def test_without_the_extra_it_is_said_what_to_install(served, directory, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name)
    )
    with pytest.raises(SourceError, match=r"uvicorn.*pip install 'langchain-toolrag\[serve\]'"):
        served("--data", directory)
