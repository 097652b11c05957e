import json

import numpy as np
import pytest
from fakes import HashingEmbeddings

from langchain_toolrag import cli
from langchain_toolrag.linting.finding import CODES


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)


@pytest.fixture
def source(tmp_path):
    def write(*definitions):
        path = tmp_path / "tools.json"
        path.write_text(json.dumps(definitions))
        return str(path)

    return write


WEATHER = {"name": "get_weather", "description": "Weather of today in a city"}
TWIN = {"name": "fetch_weather", "description": "Weather of today in a city"}
VAGUE = {"name": "do_thing", "description": "", "server": "demo"}
SONG = {"name": "play_song", "description": "Music on the speakers of a room"}


def test_findings_stand_under_their_tools_and_are_counted(source, capsys):
    assert cli.main(["lint", "--lexical", "--tools", source(SONG, VAGUE, WEATHER, TWIN)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "demo/do_thing",
        '    vague-name      no word of "do_thing" says what it does',
        "                    -> name the action and its object, such as create_issue",
        "    no-description  it has no description",
        "                    -> say in one sentence what it does, to what, and when to use it",
        "",
        "get_weather",
        "    near-twin       a search can hardly tell it from fetch_weather",
        "                    -> keep one of them, or say in each what only that one does",
        "",
        "3 findings in 2 of 4 tools",
    ]


def test_tools_without_findings_exit_with_0(source, capsys):
    assert cli.main(["lint", "--lexical", "--tools", source(SONG, WEATHER)]) == 0
    assert capsys.readouterr().out == "no findings in 2 tools\n"


def test_json_is_a_list_of_findings_and_nothing_else(source, capsys):
    assert cli.main(["lint", "--lexical", "--json", "--tools", source(WEATHER, TWIN)]) == 1
    (finding,) = json.loads(capsys.readouterr().out)
    assert finding == {
        "code": "near-twin",
        "tool": "get_weather",
        "message": "a search can hardly tell it from fetch_weather",
        "suggestion": "keep one of them, or say in each what only that one does",
        "others": ["fetch_weather"],
    }
    assert cli.main(["lint", "--lexical", "--json", "--tools", source(SONG)]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_ignored_codes_are_left_out_and_do_not_count(source, capsys):
    arguments = ["lint", "--lexical", "--tools", source(VAGUE, SONG)]
    assert cli.main([*arguments, "--ignore", "vague-name"]) == 1
    assert "1 finding in 1 of 2 tools" in capsys.readouterr().out
    assert cli.main([*arguments, "--ignore", "vague-name, no-description"]) == 0
    assert capsys.readouterr().out == "no findings in 2 tools\n"


def test_a_code_that_there_is_not_is_refused_with_those_that_there_are(source, capsys):
    with pytest.raises(SystemExit) as refused:
        cli.main(["lint", "--lexical", "--tools", source(SONG), "--ignore", "twins"])
    assert refused.value.code == 2
    message = capsys.readouterr().err
    assert "'twins' is no code" in message
    assert "near-twin" in message


def test_help_names_every_code_and_the_exit_statuses(capsys):
    with pytest.raises(SystemExit):
        cli.main(["lint", "--help"])
    printed = capsys.readouterr().out
    assert [code for code in CODES if code not in printed] == []
    assert "1  findings, or an error" in printed


def test_what_cannot_be_read_is_an_error(capsys):
    assert cli.main(["lint", "--tools", "nothing.json"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "nothing.json: cannot be read" in captured.err


def test_a_tool_that_is_left_out_counts_as_a_tool(source, capsys):
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/No"}}}
    broken = {"name": "print_receipt", "description": "Paper for a sale", "parameters": schema}
    assert cli.main(["lint", "--lexical", "--tools", source(SONG, broken)]) == 1
    assert "1 finding in 1 of 2 tools" in capsys.readouterr().out


def test_without_lexical_the_tools_are_embedded_and_searched_for(source, capsys, monkeypatch):
    encoded = []

    def encode(self, texts):
        encoded.extend(texts)
        return np.array(HashingEmbeddings().embed_documents(texts))

    monkeypatch.setattr("langchain_toolrag.index.embedding.MiniLMEmbeddings._encode", encode)
    assert cli.main(["lint", "--tools", source(SONG, WEATHER)]) == 0
    assert {"Music on the speakers of a room", "Weather of today in a city"} <= set(encoded)


def test_the_example_catalogue_has_hardly_a_finding(capsys):
    assert cli.main(["lint", "--lexical", "--json", "--tools", "examples/tools.py:TOOLS"]) == 1
    assert len(json.loads(capsys.readouterr().out)) <= 8
