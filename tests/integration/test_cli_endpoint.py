"""The command over an embeddings endpoint."""

import json

import pytest
from embeddings_server import MODEL, EmbeddingsServer

from langchain_toolrag import cli

TOOLS = [
    {"name": "get_weather", "description": "Weather in a city", "server": "weather"},
    {"name": "send_email", "description": "Sends an email", "server": "mail"},
    {"name": "play_song", "description": "Plays music", "server": "music"},
]
KEY = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def _environment_without_endpoint(monkeypatch):
    for name in ("URL", "MODEL", "INSTRUCTION", "API_KEY"):
        monkeypatch.delenv(f"TOOLRAG_EMB_{name}", raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server():
    server = EmbeddingsServer()
    yield server
    server.close()


@pytest.fixture
def tools(tmp_path):
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(TOOLS))
    return str(path)


def at(server):
    return ["--emb-url", server.url, "--emb-model", MODEL]


def requests_of(server):
    return [text for text in server.texts if not text.startswith("{")]


def test_search_embeds_tools_as_json_and_requests_with_the_instruction(tools, server, capsys):
    arguments = ["search", "Plays music", "--tools", tools, *at(server)]
    assert cli.main([*arguments, "--emb-instruction", "Find it", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tools"][0]["id"] == "music/play_song"
    written = [json.loads(text)["server"] for text in server.texts if text.startswith("{")]
    assert sorted(written) == ["mail", "music", "weather"]
    assert all(text.startswith("Instruct: Find it\nQuery: ") for text in requests_of(server))


def test_the_second_run_embeds_the_request_alone(tools, server):
    arguments = ["search", "Plays music", "--tools", tools, *at(server)]
    assert cli.main(arguments) == 0
    server.bodies.clear()
    assert cli.main(arguments) == 0
    assert server.texts == ["Plays music"]


def test_the_environment_gives_address_model_instruction_and_key(
    tools, server, monkeypatch, capsys
):
    monkeypatch.setenv("TOOLRAG_EMB_URL", server.url)
    monkeypatch.setenv("TOOLRAG_EMB_MODEL", MODEL)
    monkeypatch.setenv("TOOLRAG_EMB_INSTRUCTION", "Find it")
    monkeypatch.setenv("TOOLRAG_EMB_API_KEY", KEY)
    assert cli.main(["select", "Plays music", "--tools", tools]) == 0
    assert "play_song" in capsys.readouterr().out
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
    assert "Instruct: Find it\nQuery: Plays music" in server.texts


def test_the_key_is_in_no_help_and_no_error(tools, server, monkeypatch, capsys):
    monkeypatch.setenv("TOOLRAG_EMB_API_KEY", KEY)
    with pytest.raises(SystemExit):
        cli.main(["search", "--help"])
    server.will(401)
    assert cli.main(["search", "mail", "--tools", tools, *at(server)]) == 1
    out, error = capsys.readouterr()
    assert "does not accept the API key" in error
    assert KEY not in out + error


def test_the_classic_algorithm_keeps_its_own_index(tools, server):
    assert cli.main(["select", "Plays music", "--tools", tools, "--classic", *at(server)]) == 0
    assert requests_of(server) == server.texts


def test_lexical_needs_no_endpoint(tools, server):
    assert cli.main(["search", "music", "--tools", tools, "--lexical", *at(server)]) == 0
    assert server.bodies == []


def test_eval_measures_what_the_endpoint_finds(tools, tmp_path, server, capsys):
    queries = tmp_path / "queries.jsonl"
    labelled = {"id": "1", "query": "Plays music", "relevant": ["music/play_song"]}
    queries.write_text(json.dumps(labelled))
    files = ["--tools", tools, "--queries", str(queries)]
    assert cli.main(["eval", *files, *at(server), "--compare", "default", "classic"]) == 0
    assert any(text.startswith('{"server": "music"') for text in server.texts)
    assert any(text.startswith("play_song. play. song: ") for text in server.texts)
    assert "default" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--emb-url", "http://127.0.0.1:9"], "needs to know which model"),
        (["--emb-model", MODEL], "give its address by --emb-url"),
        (["--emb-instruction", "Find"], "give its address by --emb-url"),
        (["--emb-url", "http://127.0.0.1:9", "--emb-model", MODEL], "cannot be reached"),
    ],
)
def test_half_an_endpoint_or_one_that_is_down_is_an_error(tools, capsys, arguments, said):
    assert cli.main(["search", "music", "--tools", tools, *arguments]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("place", ["flag", "environment"])
def test_an_address_that_is_none_is_a_malformed_command_line(tools, capsys, monkeypatch, place):
    flag = ["--emb-url", "localhost:8000"] if place == "flag" else []
    if place == "environment":
        monkeypatch.setenv("TOOLRAG_EMB_URL", "localhost:8000")
    with pytest.raises(SystemExit) as caught:
        cli.main(["search", "music", "--tools", tools, *flag])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert "argument --emb-url: the embeddings URL is 'localhost:8000'" in error


def test_a_key_that_cannot_be_one_is_an_error(tools, server, monkeypatch, capsys):
    monkeypatch.setenv("TOOLRAG_EMB_API_KEY", "gehëim")
    assert cli.main(["search", "music", "--tools", tools, *at(server)]) == 1
    error = capsys.readouterr().err
    assert "printable ASCII" in error
    assert "geh" not in error
