"""Learned heads that a running server follows, and what its log says of who asked."""

import shutil
import threading

import numpy as np
import pytest
from fakes import DIM, NamedEmbeddings
from waiting import until

from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.index.adapter import Adapter
from langchain_toolrag.index.embedding import NoEmbeddings, model_name
from langchain_toolrag.server.openapi import document
from langchain_toolrag.server.options import ServerOptions
from langchain_toolrag.trial import in_use
from langchain_toolrag.trial.directory import HeadsDirectory
from langchain_toolrag.usage.digests import open_digests
from langchain_toolrag.usage.reading import join_calls, read_usage
from langchain_toolrag.usage.request_vectors import RequestVectors

WEATHER = "is it warm or cold in the city"
SONG = "Plays a song on the speakers."
OWN = {"name": "my_tool", "description": "Current weather in a city"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-03-26",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ACME = {"X-Toolrag-Tenant": "acme"}


def adapter(text=SONG, base=None, pull=20):
    """Heads that take every request for one text, or less where they pull less."""
    tensors = {}
    for side in ("request", "tool"):
        tensors[f"{side}.first.weight"] = np.zeros((1, DIM))
        tensors[f"{side}.first.bias"] = np.zeros(1)
        tensors[f"{side}.second.weight"] = np.zeros((DIM, 1))
        tensors[f"{side}.second.bias"] = np.zeros(DIM)
    tensors["request.second.bias"] = pull * np.array(NamedEmbeddings().embed_query(text))
    return Adapter("heads", base or model_name(NamedEmbeddings()), 1.0, tensors, {})


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch):
    monkeypatch.setattr(in_use, "_LOOK_SECONDS", 0.02)


@pytest.fixture
def heads(directory):
    return HeadsDirectory(ToolDirectory(directory).heads)


@pytest.fixture
def promoted(heads):
    """Heads that are in use when the server starts; their digest as the log has it."""
    digest = heads.put_on_trial(adapter())
    heads.promote()
    return digest[:16]


@pytest.fixture
def open_ready(open_client):
    def open_ready(**options):
        client = open_client(**options)
        until(lambda: client.get("/healthz").status_code == 200)
        return client

    return open_ready


@pytest.fixture
def records(directory):
    """Reads the usage log, once all that is to come is there."""

    def read(client):
        assert client.services.recorder.usage.flush()
        return list(read_usage(directory / "usage"))

    return read


def post(client, path, headers=None, **body):
    answer = client.post(path, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def best(client, query=WEATHER, headers=None, **body):
    return post(client, "/v1/search", headers, query=query, **body)["tools"][0]["name"]


def health(client):
    answer = client.get("/healthz").json()
    return answer["heads"], answer["heads_problem"]


class TestHeadsInUse:
    def test_they_answer_from_the_start(self, promoted, open_ready, records):
        client = open_ready()
        assert best(client) == "home__play_song"
        assert health(client) == (promoted, False)
        assert [record.heads for record in records(client)] == [promoted]

    def test_those_that_are_promoted_answer_without_a_restart(self, heads, open_ready, records):
        client = open_ready()
        assert best(client) == "home__get_weather"
        digest = heads.put_on_trial(adapter())
        heads.promote()
        until(lambda: best(client) == "home__play_song")
        assert health(client) == (digest[:16], False)

        heads.roll_back()
        until(lambda: best(client) == "home__get_weather")
        assert health(client) == ("", False)
        named = [record.heads for record in records(client)]
        assert (named[0], named[-1]) == ("", "")
        assert digest[:16] in named

    def test_they_are_those_of_a_new_catalogue_too(self, promoted, directory, open_ready):
        client = open_ready()
        lines = (directory / "tools.jsonl").read_text().splitlines()
        (directory / "tools.jsonl").write_text("\n".join(lines[:-1]) + "\n")
        until(lambda: client.get("/healthz").json()["tools"] < 5)

        assert best(client) == "home__play_song"
        assert health(client) == (promoted, False)

    def test_those_of_an_old_catalogue_are_waited_for_off_the_event_loop(
        self, promoted, directory, open_ready, monkeypatch
    ):
        threads, close = [], in_use.HeadsInUse.close

        def noted(heads):
            threads.append(threading.current_thread().name)
            close(heads)

        monkeypatch.setattr(in_use.HeadsInUse, "close", noted)
        open_ready()
        tools = directory / "tools.jsonl"
        tools.write_text("".join(tools.read_text().splitlines(keepends=True)[:-1]))
        until(lambda: threads)
        assert threads[0].startswith("asyncio_")

    def test_tools_of_the_catalogue_are_ranked_by_them(self, promoted, open_ready, records):
        client = open_ready()
        given = ["home/get_weather", "home/play_song"]
        ranked = post(client, "/v1/rank", query=WEATHER, tool_ids=given)

        assert ranked["tools"][0]["name"] == "home__play_song"
        (record,) = records(client)
        assert (record.kind, record.heads) == ("rank", promoted)

    def test_what_ranks_above_and_under_the_cut_is_explained_by_them(self, heads, open_ready):
        def dense():
            answer = post(client, "/v1/explain", query=WEATHER)
            shown = [*answer["tools"], *answer["below"]]
            return {tool["name"]: tool["dense"] for tool in shown}["home__play_song"]

        client = open_ready()
        before = dense()
        heads.put_on_trial(adapter(pull=0.4))
        heads.promote()
        until(lambda: health(client)[0])
        assert dense() > before + 0.2

    def test_tools_that_a_caller_brings_are_ranked_without(self, promoted, open_ready, records):
        client = open_ready()
        post(client, "/v1/rank", query=WEATHER, tools=[OWN])
        (record,) = records(client)
        assert record.heads == ""

    def test_a_server_that_embeds_nothing_does_not_ask_for_them(
        self, promoted, open_client, caplog
    ):
        client = open_client(embeddings=NoEmbeddings())
        assert best(client) == "home__get_weather"
        assert health(client) == ("", False)
        assert caplog.messages == []


class TestHeadsOnTrial:
    @pytest.fixture
    def candidate(self, heads):
        return heads.put_on_trial(adapter())[:16]

    def test_a_share_of_the_sessions_has_them_and_keeps_them(self, candidate, open_ready, records):
        client = open_ready(candidate_share=0.5)
        sessions = [f"session {n}" for n in range(30)]
        first = {session: best(client, session=session) for session in sessions}
        again = {session: best(client, session=session) for session in sessions}

        assert first == again
        assert set(first.values()) == {"home__play_song", "home__get_weather"}
        for record, name in zip(records(client), first.values(), strict=False):
            assert (record.heads == candidate) == (name == "home__play_song")
            assert record.trial == candidate

    @pytest.mark.parametrize(
        ("share", "session", "name"),
        [
            (1.0, "a", "home__play_song"),
            (0.0, "a", "home__get_weather"),
            (1.0, "", "home__get_weather"),
        ],
    )
    def test_the_share_is_the_servers_and_whoever_names_no_session_has_none(
        self, candidate, open_ready, share, session, name
    ):
        assert best(open_ready(candidate_share=share), session=session) == name

    @pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
    def test_what_is_no_share_is_an_error(self, share):
        with pytest.raises(ValueError, match=r"candidate_share is .*; wanted 0 to 1"):
            ServerOptions(candidate_share=share)


class TestTenants:
    def test_each_has_its_own_heads(self, heads, directory, open_ready, records):
        digest = heads.put_on_trial(adapter())
        heads.promote(open_digests(directory / "usage").of("tenant", "acme"))
        client = open_ready()

        assert best(client, headers=ACME) == "home__play_song"
        assert best(client) == best(client, headers={"X-Toolrag-Tenant": "globex"})
        given = {"query": WEATHER, "tool_ids": ["home/get_weather", "home/play_song"]}
        assert post(client, "/v1/rank", ACME, **given)["tools"][0]["name"] == "home__play_song"
        assert post(client, "/v1/rank", **given)["tools"][0]["name"] == "home__get_weather"
        named = [record.heads for record in records(client)]
        assert named == [digest[:16], "", "", digest[:16], ""]

    def test_searches_and_calls_are_noted_with_theirs(self, open_ready, records):
        client = open_ready()
        given = {"name": "home__get_weather"}
        search_id = post(client, "/v1/search", ACME, query=WEATHER)["search_id"]
        post(client, "/v1/rank", ACME, query=WEATHER, tool_ids=["home/get_weather"])
        post(client, "/v1/rank", ACME, query=WEATHER, tools=[OWN])
        post(client, "/v1/call", ACME, **given, arguments={"city": "x"}, search_id=search_id)
        post(client, "/v1/feedback", ACME, **given, outcome="ok", search_id=search_id)
        client.post("/v1/call", json={"name": "read_mind"}, headers=ACME)
        post(client, "/v1/search", query=WEATHER)

        acme = client.services.recorder.usage.digest("tenant", "acme")
        assert [record.tenant for record in records(client)] == [*[acme] * 6, ""]

    def test_a_call_of_another_joins_no_search(self, open_ready, records):
        client = open_ready()
        search_id = post(client, "/v1/search", ACME, query=WEATHER)["search_id"]
        asked = {"name": "home__get_weather", "arguments": {"city": "x"}, "search_id": search_id}
        for headers in (ACME, {"X-Toolrag-Tenant": "globex"}, None):
            post(client, "/v1/call", headers, **asked)

        joined = [search is not None for _, search in join_calls(records(client))]
        assert joined == [True, False, False]

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/v1/search", {"query": WEATHER}),
            ("/v1/rank", {"query": WEATHER, "tool_ids": []}),
            ("/v1/call", {"name": "home__get_weather"}),
            ("/v1/feedback", {"name": "home__get_weather", "outcome": "ok"}),
        ],
    )
    def test_a_name_that_is_too_long_is_refused(self, open_client, path, body):
        answer = open_client().post(path, json=body, headers={"X-Toolrag-Tenant": "x" * 257})
        assert answer.status_code == 400
        assert answer.json()["error"] == (
            "X-Toolrag-Tenant: found 257 characters; wanted at most 256"
        )
        (parameter,) = document()["paths"][path]["post"]["parameters"]
        assert (parameter["name"], parameter["in"]) == ("X-Toolrag-Tenant", "header")


class TestVectors:
    def test_that_of_a_search_is_kept_as_the_model_made_it(
        self, promoted, directory, open_ready, records
    ):
        client = open_ready()
        best(client)
        post(client, "/v1/rank", query="a song", tool_ids=["home/get_weather"])
        model = client.services.serving.current.rag.tool_index.model
        requests = [record.request for record in records(client)]
        vectors = RequestVectors(directory / "usage").get(model, requests)

        for request, query in zip(requests, (WEATHER, "a song"), strict=True):
            made = np.array(NamedEmbeddings().embed_query(query))
            np.testing.assert_allclose(vectors[request], made, atol=1e-6)

    def test_there_is_none_of_a_ranking_of_a_callers_own_tools(
        self, directory, open_ready, records
    ):
        client = open_ready()
        post(client, "/v1/rank", query=WEATHER, tools=[OWN])
        records(client)
        assert not list(directory.glob("usage/vectors/*"))

    def test_a_server_without_a_log_keeps_none(self, promoted, directory, open_ready):
        client = open_ready(usage_log=False)
        assert best(client, headers=ACME) == "home__play_song"
        assert not (directory / "usage").exists()


class TestTrouble:
    def test_heads_that_cannot_be_read_are_a_warning_and_the_model_answers(
        self, heads, open_ready, caplog
    ):
        heads.path.mkdir()
        heads.state_file.write_text("{")
        client = open_ready()

        assert best(client) == "home__get_weather"
        assert health(client) == ("", True)
        assert "toolrag_heads_problem 1.0" in client.get("/metrics").text.splitlines()
        (warning,) = caplog.messages
        assert "heads.json" in warning
        assert "heads.json" not in client.get("/healthz").text  # Which is answered without a key.

    @pytest.mark.parametrize("wrong", ["edited", "of another model", "missing"])
    def test_the_old_ones_stay_while_the_newest_cannot_be_used(
        self, heads, promoted, open_ready, caplog, wrong, tmp_path
    ):
        client = open_ready()
        base = "another" if wrong == "of another model" else None
        # Made elsewhere: the server must see the newest heads when they are wrong, never before.
        made = HeadsDirectory(shutil.copytree(heads.path, tmp_path / "made"))
        newest = made.put_on_trial(adapter("Sends an email to somebody.", base))
        made.promote()
        path = heads.path / f"{newest}.safetensors"
        content = (made.path / path.name).read_bytes()
        if wrong != "missing":
            spoilt = content[:-1] + b"\0" + content[-1:]
            path.write_bytes(spoilt if wrong == "edited" else content)
        made.state_file.replace(heads.state_file)
        until(lambda: health(client)[1])  # Nobody need search for it.

        assert best(client) == "home__play_song"
        assert health(client) == (promoted, True)
        assert len(caplog.messages) == 1
        if base is None:
            path.write_bytes(content)
            until(lambda: best(client) == "home__send_email")
            assert health(client) == (newest[:16], False)
            assert "toolrag_heads_problem 0.0" in client.get("/metrics").text.splitlines()


class TestMCPSessions:
    def ask(self, client, message, **headers):
        accepting = {"Accept": "application/json, text/event-stream", **headers}
        answer = client.post("/mcp", json=message, headers=accepting)
        assert answer.status_code == 200, answer.text
        return answer

    def search(self, client, **headers):
        params = {"name": "search_tools", "arguments": {"query": WEATHER}}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        result = self.ask(client, asked, **headers).json()["result"]
        return result["isError"], result["content"][0]["text"]

    def test_a_client_is_given_one_and_is_known_by_it(self, open_ready, records):
        client = open_ready()
        given = [self.ask(client, HELLO).headers["mcp-session-id"] for _ in range(2)]
        again = self.ask(client, HELLO, **{"Mcp-Session-Id": given[0]})
        assert given[0] != given[1]
        assert "mcp-session-id" not in again.headers

        for session in (given[0], given[0], given[1]):
            self.search(client, **{"Mcp-Session-Id": session})
        digest = client.services.recorder.usage.digest
        assert [record.session for record in records(client)] == [
            digest("session", session) for session in (given[0], given[0], given[1])
        ]

    def test_it_decides_whether_heads_on_trial_answer(self, heads, open_ready, records):
        digest = heads.put_on_trial(adapter())
        client = open_ready(candidate_share=1.0)
        for session in ({"Mcp-Session-Id": "a"}, {}):
            self.search(client, **session)
        assert [record.heads for record in records(client)] == [digest[:16], ""]

    def test_the_tenant_is_named_by_the_header(self, open_ready, records):
        client = open_ready()
        self.search(client, **ACME)
        (record,) = records(client)
        assert record.tenant == client.services.recorder.usage.digest("tenant", "acme")

    def test_a_name_that_is_too_long_is_told(self, open_ready):
        failed, text = self.search(open_ready(), **{"Mcp-Session-Id": "x" * 257})
        assert failed
        assert text == "Mcp-Session-Id: found 257 characters; wanted at most 256"
