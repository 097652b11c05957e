import math

import numpy as np
import pytest
from fakes import BrokenEmbeddings
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from langchain_toolrag.index.embedding import NoEmbeddings
from langchain_toolrag.server import inspector
from langchain_toolrag.server.mapping import Plane


def post(client, path, status=200, **body):
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def get(client, path, status=200):
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    return answer.json()


class TestExplain:
    def test_what_ranks_under_the_cut_is_told_with_what_speaks_for_it(self, client):
        answer = post(client, "/v1/explain", query="is it warm or cold in the city")
        bound = {tool["id"] for tool in answer["tools"]}
        scores = [tool["score"] for tool in answer["below"]]

        assert "home/get_weather" in bound
        assert bound.isdisjoint(tool["id"] for tool in answer["below"])
        assert len(bound) + len(scores) == 5
        assert scores == sorted(scores, reverse=True)
        assert max(scores) < answer["tools"][0]["score"]
        assert answer["below"][0]["dense"] is not None

    @pytest.mark.parametrize("name", ["home__play_song", "play_song", "home/play_song"])
    def test_a_call_is_sticky_by_the_api_name_and_by_the_tools_own(self, client, name):
        call = {"id": "1", "name": name, "args": {"title": "x"}, "type": "tool_call"}
        messages = [
            {"role": "user", "content": "play a song"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "la", "tool_call_id": "1"},
            {"role": "user", "content": "is it warm or cold in the city"},
        ]
        answer = post(client, "/v1/explain", messages=messages)

        sticky = {tool["id"]: tool["sticky"] for tool in answer["tools"]}
        assert sticky["home/play_song"]
        assert not sticky["home/get_weather"]

    def test_small_talk_finds_nothing_on_either_side_of_the_cut(self, client):
        answer = post(client, "/v1/explain", query="thank you!")

        assert (answer["tools"], answer["below"], answer["query"]) == ([], [], "")

    def test_without_a_model_words_answer_and_it_says_so(self, open_client):
        client = open_client(embeddings=NoEmbeddings())
        answer = post(client, "/v1/explain", query="send an email")

        assert answer["tools"][0]["id"] == "home/send_email"
        assert answer["mode"] == "lexical"
        assert "words" in answer["note"]

    def test_what_a_person_tries_is_not_logged(self, client, usage):
        post(client, "/v1/explain", query="send an email")

        assert usage(client) == []


class TestMap:
    def test_every_tool_has_its_place_and_the_same_one_each_time(self, client, open_client):
        answer = get(client, "/v1/map")

        assert [tool["id"] for tool in answer["tools"]][-1] == "disk/delete_file"
        assert {tool["server"] for tool in answer["tools"]} == {"home", "disk"}
        assert all(abs(tool[axis]) <= 1 for tool in answer["tools"] for axis in "xy")
        assert answer["missing"] == 0
        assert 0 < answer["shown"] <= 1
        assert get(client, "/v1/map") == answer

    def test_a_request_falls_where_its_words_are_and_stays_there(self, client):
        song = post(client, "/v1/map", query="Plays a song on the speakers.")
        mail = post(client, "/v1/map", query="Sends an email to somebody.")
        tools = {tool["id"]: tool for tool in get(client, "/v1/map")["tools"]}

        def distance(place, tool):
            return math.dist((place["x"], place["y"]), (tools[tool]["x"], tools[tool]["y"]))

        assert distance(song, "home/play_song") < distance(mail, "home/play_song")
        assert distance(mail, "home/send_email") < distance(song, "home/send_email")
        assert post(client, "/v1/map", query="Plays a song on the speakers.") == song

    @pytest.mark.parametrize("embeddings", [NoEmbeddings(), BrokenEmbeddings()])
    def test_without_vectors_there_is_no_place(self, open_client, embeddings):
        client = open_client(embeddings=embeddings)

        assert get(client, "/v1/map")["tools"] == []
        assert get(client, "/v1/map")["missing"] == 5
        assert "no map" in post(client, "/v1/map", 503, query="a song")["error"]

    @pytest.mark.parametrize("body", [{}, {"query": ""}, {"query": "x", "k": 1}])
    def test_what_is_no_request_is_refused(self, client, body):
        post(client, "/v1/map", 400, **body)


class TestPlane:
    @given(
        arrays(
            np.float32,
            st.tuples(st.integers(0, 12), st.integers(2, 8)),
            elements=st.floats(-1, 1, width=32),
        )
    )
    def test_any_vectors_are_put_within_the_frame(self, vectors):
        plane = Plane.of(vectors)
        places = plane.places(vectors)

        assert places.shape == (len(vectors), 2)
        assert np.isfinite(places).all()
        assert np.abs(places).max(initial=0) <= 1
        assert 0 <= plane.shown <= 1

    def test_the_axis_that_shows_more_comes_first(self):
        vectors = np.array([[3, 0, 0], [-3, 0, 0], [0, 1, 0], [0, -1, 0]], np.float32)
        plane = Plane.of(vectors)

        assert plane.places(vectors).tolist() == [[1, 0], [-1, 0], [0, 0.3333], [0, -0.3333]]
        assert plane.shown == pytest.approx(1)

    def test_it_does_not_hang_on_the_order_of_the_tools(self):
        vectors = np.random.default_rng(7).normal(size=(40, 16)).astype(np.float32)
        order = np.random.default_rng(8).permutation(40)

        mixed = Plane.of(vectors[order]).places(vectors)
        assert mixed == pytest.approx(Plane.of(vectors).places(vectors), abs=1e-3)


class TestLint:
    def test_the_findings_are_those_of_the_command(self, client):
        answer = get(client, "/v1/lint")
        codes = {(finding["tool"], finding["code"]) for finding in answer["findings"]}

        assert ("disk/delete_file", "repeats-name") in codes
        assert all(finding["suggestion"] for finding in answer["findings"])
        assert answer["mode"] == "semantic"

    def test_without_a_model_words_are_gone_by(self, open_client):
        answer = get(open_client(embeddings=NoEmbeddings()), "/v1/lint")

        assert answer["mode"] == "lexical"
        assert answer["findings"]

    def test_a_catalogue_is_linted_once(self, client, monkeypatch):
        first = get(client, "/v1/lint")
        monkeypatch.setattr(inspector, "_lint", None)

        assert get(client, "/v1/lint") == first


class TestRecent:
    def test_the_latest_comes_first_and_a_call_names_its_search(self, client):
        found = post(client, "/v1/search", query="is it warm or cold")
        post(
            client,
            "/v1/feedback",
            name="home__get_weather",
            outcome="ok",
            search_id=found["search_id"],
        )
        client.services.recorder.usage.flush()
        answer = get(client, "/v1/recent")
        call, search = answer["records"]

        assert (call["type"], call["tool"], call["outcome"]) == ("call", "home/get_weather", "ok")
        assert call["search_id"] == search["search_id"] == found["search_id"]
        assert search["tools"][0] == "home/get_weather"
        assert search["text"] == ""
        assert answer["recording"]

    def test_texts_are_there_where_they_are_logged(self, open_client):
        client = open_client(log_text=True)
        post(client, "/v1/search", query="is it warm or cold")
        client.services.recorder.usage.flush()

        assert get(client, "/v1/recent")["records"][0]["text"] == "is it warm or cold"

    def test_without_a_log_it_says_so(self, open_client):
        answer = get(open_client(usage_log=False), "/v1/recent")

        assert answer == {"recording": False, "records": []}

    def test_no_more_are_told_than_are_asked_for(self, client):
        for _ in range(3):
            post(client, "/v1/search", query="a song")
        client.services.recorder.usage.flush()

        assert len(get(client, "/v1/recent?n=2")["records"]) == 2

    @pytest.mark.parametrize("count", ["0", "-1", "201", "many", "9" * 5_000])
    def test_a_number_that_cannot_be_is_refused(self, client, count):
        assert "1 to 200" in get(client, f"/v1/recent?n={count}", 400)["error"]

    def test_a_log_that_cannot_be_read_is_no_fault_of_the_callers(self, client, directory):
        (directory / "usage" / "usage-2026-01-01.jsonl").mkdir(parents=True)

        answer = get(client, "/v1/recent", 503)
        assert str(directory) not in answer["error"]


class TestKey:
    def test_the_page_needs_none_and_what_it_asks_for_does(self, open_client):
        client = open_client(api_key="open-sesame")

        assert client.get("/").status_code == 200
        for path in ("/v1/map", "/v1/lint", "/v1/recent", "/v1/tools"):
            assert client.get(path).status_code == 401
            key = {"Authorization": "Bearer open-sesame"}
            assert client.get(path, headers=key).status_code == 200

    def test_the_page_of_another_name_is_not_served(self, client):
        assert client.get("/", headers={"Host": "evil.example"}).status_code == 421
