import asyncio
import json
import threading

import pytest
from fakes import BrokenEmbeddings, NamedEmbeddings
from jsonschema import Draft202012Validator
from waiting import until

from langchain_toolrag.index.embedding import NoEmbeddings
from langchain_toolrag.server import serving
from langchain_toolrag.server.calling import call
from langchain_toolrag.server.openapi import document
from langchain_toolrag.server.options import ServerOptions
from langchain_toolrag.server.services import Services

MCP_TOOL = {
    "name": "get_weather",
    "description": "Current weather in a city",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
OPENAI_TOOL = {
    "type": "function",
    "function": {"name": "send_email", "description": "Sends an email to somebody"},
}


class HangingEmbeddings(NamedEmbeddings):
    """Gives no vectors any more, once it `hangs`."""

    def __init__(self):
        super().__init__()
        self.hangs = False
        self.may_go_on = threading.Event()

    def embed_documents(self, texts):
        self._hang()
        return super().embed_documents(texts)

    def embed_query(self, text):
        self._hang()
        return super().embed_query(text)

    def _hang(self):
        if self.hangs:
            self.may_go_on.wait(10)


def post(client, path, status=200, /, **body):
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def names(answer):
    return [tool["name"] for tool in answer["tools"]]


class TestSearch:
    def test_it_finds_tools_by_meaning_with_what_each_takes(self, client):
        answer = post(client, "/v1/search", query="is it warm or cold in the city")
        best = answer["tools"][0]

        assert answer["mode"] == "semantic"
        assert "note" not in answer
        assert answer["took_ms"] > 0
        assert best["name"] == "home__get_weather"
        assert (best["id"], best["server"], best["kind"]) == ("home/get_weather", "home", "python")
        assert best["inputSchema"]["properties"] == {"city": {"type": "string"}}
        assert best["score"] > 0
        assert 0 <= answer["confidence"] <= 1

    def test_annotations_are_told_where_there_are_any(self, client):
        (tool,) = post(client, "/v1/search", query="select:delete_file")["tools"]
        assert tool["annotations"]["destructiveHint"] is True

    def test_names_that_are_not_there_are_told(self, client):
        answer = post(client, "/v1/search", query="select:home__get_weather,read_mind")

        assert names(answer) == ["home__get_weather"]
        assert answer["missing"] == ["read_mind"]

    def test_a_server_lists_its_tools_up_to_k(self, client):
        assert len(post(client, "/v1/search", query="home", k=3)["tools"]) == 3

    def test_every_search_has_a_name_of_its_own(self, client):
        found = {post(client, "/v1/search", query="weather")["search_id"] for _ in range(3)}
        assert len(found) == 3

    def test_words_alone_answer_while_the_model_fails_and_that_is_said(self, open_client):
        client = open_client(embeddings=BrokenEmbeddings())
        answer = post(client, "/v1/search", query="email to somebody")

        assert answer["mode"] == "lexical"
        assert names(answer)[0] == "home__send_email"
        assert "words" in answer["note"]
        assert "model server is down" not in json.dumps(answer)

    @pytest.mark.parametrize(
        ("body", "wrong"),
        [
            ({}, "query"),
            ({"query": ""}, "query"),
            ({"query": 5}, "query"),
            ({"query": "x", "k": 0}, "k"),
            ({"query": "x", "k": 51}, "k"),
            ({"query": "x", "k": "3"}, "k"),
            ({"query": "x", "limit": 3}, "limit"),
            ({"query": "x", "session": "s" * 257}, "session"),
            ([], "body"),
        ],
    )
    def test_what_is_wrong_with_a_request_is_said(self, client, body, wrong):
        answer = client.post("/v1/search", json=body)

        assert answer.status_code == 400
        assert answer.json()["error"].startswith(f"{wrong}: ")

    @pytest.mark.parametrize(
        "content", [b"", b"{", b"\xff", b'{"query": "\\ud800"}', b"[" * 10_000, b'{"query": NaN}']
    )
    def test_what_is_no_json_is_no_request(self, client, content):
        headers = {"Content-Type": "application/json"}
        answer = client.post("/v1/search", content=content, headers=headers)

        assert answer.status_code == 400
        assert set(answer.json()) == {"error"}

    def test_a_model_that_hangs_keeps_no_search_waiting(self, open_client, monkeypatch):
        embeddings = HangingEmbeddings()
        client = open_client(embeddings=embeddings)
        until(lambda: client.get("/healthz").status_code == 200)
        monkeypatch.setattr(serving, "_SEARCH_SECONDS", 0.1)
        embeddings.hangs = True
        try:
            answers = [post(client, "/v1/search", query=f"email {n}") for n in range(6)]
            ranked = post(client, "/v1/rank", query="an email", tool_ids=["home/send_email"])
        finally:
            embeddings.may_go_on.set()

        assert {answer["mode"] for answer in [*answers, ranked]} == {"lexical"}
        assert all(names(answer)[0] == "home__send_email" for answer in answers)
        assert "words" in answers[-1]["note"]

    def test_what_is_not_json_but_python_takes_it_is_no_request(self, client):
        for number in ("NaN", "Infinity", "-Infinity"):
            body = f'{{"name": "home__get_weather", "arguments": {{"city": {number}}}}}'
            headers = {"Content-Type": "application/json"}
            answer = client.post("/v1/call", content=body, headers=headers)

            assert answer.status_code == 400
            assert answer.json()["error"].startswith("body: Invalid JSON")


class TestRank:
    def test_tools_of_the_callers_are_ranked_by_meaning_in_either_form(self, client):
        answer = post(
            client, "/v1/rank", query="write an email to somebody", tools=[MCP_TOOL, OPENAI_TOOL]
        )

        assert answer["mode"] == "semantic"
        assert [tool["index"] for tool in answer["tools"]] == [1, 0]
        assert names(answer) == ["send_email", "get_weather"]
        assert answer["tools"][0]["score"] > (answer["tools"][1]["score"] or -1)

    def test_what_nothing_speaks_for_comes_last_without_a_score(self, client):
        answer = post(client, "/v1/rank", query="get_weather", tools=[OPENAI_TOOL, MCP_TOOL])
        assert answer["tools"][1] == {"index": 0, "name": "send_email", "score": None}

    def test_two_may_have_one_name(self, client):
        answer = post(client, "/v1/rank", query="weather", tools=[MCP_TOOL, MCP_TOOL])
        assert sorted(tool["index"] for tool in answer["tools"]) == [0, 1]

    def test_tools_of_the_catalogue_are_ranked_by_id_or_api_name(self, client):
        answer = post(
            client,
            "/v1/rank",
            query="an email to somebody",
            tool_ids=["home/get_weather", "home__send_email"],
        )
        assert names(answer) == ["home__send_email", "home__get_weather"]
        assert [tool["index"] for tool in answer["tools"]] == [1, 0]

    def test_a_place_is_the_one_in_the_callers_list_where_a_tool_is_named_twice(self, client):
        given = ["home/get_weather", "home__get_weather", "home__send_email"]
        answer = post(client, "/v1/rank", query="an email to somebody", tool_ids=given)

        assert names(answer) == ["home__send_email", "home__get_weather", "home__get_weather"]
        assert [tool["index"] for tool in answer["tools"]] == [2, 0, 1]

    def test_words_rank_where_a_model_hangs(self, open_client, monkeypatch):
        embeddings = HangingEmbeddings()
        client = open_client(embeddings=embeddings)
        until(lambda: client.get("/healthz").status_code == 200)
        monkeypatch.setattr(serving, "_RANK_SECONDS", 0.1)
        embeddings.hangs = True
        try:
            answer = post(client, "/v1/rank", query="email to", tools=[MCP_TOOL, OPENAI_TOOL])
        finally:
            embeddings.may_go_on.set()

        assert answer["mode"] == "lexical"
        assert names(answer) == ["send_email", "get_weather"]

    def test_words_rank_where_a_model_has_failed_since(self, open_client):
        model = BrokenEmbeddings()
        model.broken = False
        client = open_client(embeddings=model)
        until(lambda: client.get("/healthz").status_code == 200)
        model.broken = True
        answer = post(client, "/v1/rank", query="email to", tools=[MCP_TOOL, OPENAI_TOOL])

        assert answer["mode"] == "lexical"
        assert names(answer) == ["send_email", "get_weather"]

    def test_a_tool_is_embedded_once(self, client, embeddings):
        post(client, "/v1/rank", query="weather", tools=[MCP_TOOL])
        before = len(embeddings.texts)
        post(client, "/v1/rank", query="rain", tools=[MCP_TOOL])

        assert len(embeddings.texts) == before > 0

    def test_words_rank_while_there_is_no_model(self, open_client):
        client = open_client(embeddings=NoEmbeddings())
        answer = post(client, "/v1/rank", query="email to", tools=[MCP_TOOL, OPENAI_TOOL])

        assert answer["mode"] == "lexical"
        assert names(answer) == ["send_email", "get_weather"]

    @pytest.mark.parametrize(
        ("body", "wrong"),
        [
            ({}, "give either tools or tool_ids"),
            ({"tools": [], "tool_ids": []}, "give either tools or tool_ids"),
            ({"tools": [{"description": "no name"}]}, "tools[0]"),
            ({"tools": [MCP_TOOL, {"type": "web_search"}]}, "tools[1]"),
            ({"tools": ["get_weather"]}, "tools.0"),
            ({"tools": [MCP_TOOL] * 201}, "at most 200"),
        ],
    )
    def test_what_is_wrong_with_the_tools_is_said(self, client, body, wrong):
        assert wrong in post(client, "/v1/rank", 400, query="x", **body)["error"]

    def test_an_id_that_is_not_there_is_not_found(self, client):
        answer = post(client, "/v1/rank", 404, query="x", tool_ids=["home/get_wether"])
        assert answer["closest"][0] == "home__get_weather"

    @pytest.mark.parametrize("key", ["tools", "tool_ids"])
    def test_of_no_tools_none_is_best(self, client, key):
        assert post(client, "/v1/rank", query="x", **{key: []})["tools"] == []


class TestCall:
    @pytest.mark.parametrize("name", ["home__get_weather", "home/get_weather", "get_weather"])
    def test_a_tool_answers_under_its_api_name_its_id_and_its_own_name(self, client, name):
        answer = post(client, "/v1/call", name=name, arguments={"city": "delhi"})

        assert answer["outcome"] == "ok"
        assert answer["content"] == "rain in delhi"
        assert answer["name"] == "home__get_weather"
        assert "inputSchema" not in answer

    def test_a_tools_error_is_an_answer_with_what_the_tool_takes(self, client):
        answer = post(client, "/v1/call", name="home__send_email", arguments={"to": "anna"})

        assert answer["outcome"] == "tool_error"
        assert "no mail server for anna" in answer["content"]
        assert answer["inputSchema"]["type"] == "object"

    def test_wrong_arguments_are_an_error_of_the_tools(self, client):
        answer = post(client, "/v1/call", name="home__get_weather", arguments={"town": "delhi"})
        assert answer["outcome"] == "tool_error"

    def test_one_that_takes_too_long_is_given_up(self, client):
        answer = post(client, "/v1/call", name="home__wait_for_ever", timeout=0.05)

        assert answer["outcome"] == "timeout"
        assert answer["took_ms"] < 2_000

    def test_what_a_tool_says_is_cut_at_a_length(self, open_client):
        client = open_client(most_result_characters=1_000)
        content = post(client, "/v1/call", name="home__play_song", arguments={"title": "x"})[
            "content"
        ]

        assert content.startswith("la la ")
        assert content.endswith("599,000 further characters are left out]")
        assert len(content) < 1_100

    def test_an_unknown_tool_is_not_found_and_the_closest_are_told(self, client):
        answer = post(client, "/v1/call", 404, name="home__get_wether", arguments={})
        assert answer["closest"][0] == "home__get_weather"

    @pytest.mark.parametrize(
        "body",
        [
            {"arguments": {}},
            {"name": ""},
            {"name": "x", "arguments": "{}"},
            {"name": "x", "arguments": []},
            {"name": "x", "timeout": 0},
            {"name": "x", "timeout": 301},
        ],
    )
    def test_what_is_no_call_is_a_bad_request(self, client, body):
        post(client, "/v1/call", 400, **body)


class TestUsage:
    def test_a_search_and_its_call_are_logged_and_tied(self, client, usage):
        found = post(client, "/v1/search", query="weather in the city", session="anna")
        called = post(
            client,
            "/v1/call",
            name="home__get_weather",
            arguments={"city": "delhi"},
            search_id=found["search_id"],
        )
        search, call = usage(client)

        assert search["search_id"] == call["search_id"] == found["search_id"]
        assert search["retrieved"][0][:2] == ["home/get_weather", 1]
        assert (search["kind"], search["mode"]) == ("search", "semantic")
        assert (call["call_id"], call["outcome"]) == (called["call_id"], "ok")
        assert call["tool"] == "home/get_weather"
        assert "weather in the city" not in json.dumps(search)
        assert "delhi" not in json.dumps(call)
        assert "anna" not in json.dumps(search)

    def test_feedback_is_a_call_without_a_time(self, client, usage):
        found = post(client, "/v1/search", query="weather")
        answer = post(
            client,
            "/v1/feedback",
            name="home__get_weather",
            outcome="tool_error",
            search_id=found["search_id"],
        )
        call = usage(client)[-1]

        assert answer["recorded"] is True
        assert (call["tool"], call["outcome"]) == ("home/get_weather", "tool_error")
        assert call["search_id"] == found["search_id"]
        assert "latency_ms" not in call

    def test_feedback_of_an_unknown_tool_is_not_noted(self, client, usage):
        post(client, "/v1/feedback", 404, name="nothing", outcome="ok")
        post(client, "/v1/feedback", 400, name="home__get_weather", outcome="timeout")
        assert usage(client) == []

    def test_of_callers_tools_no_name_is_logged(self, client, usage):
        post(client, "/v1/rank", query="weather", tools=[MCP_TOOL])
        (line,) = usage(client)

        assert line["kind"] == "rank"
        assert "get_weather" not in json.dumps(line)

    def test_the_name_of_an_unknown_tool_is_not_logged(self, client, usage):
        post(client, "/v1/call", 404, name="my_secret_tool")
        (line,) = usage(client)

        assert line["outcome"] == "refused"
        assert "my_secret_tool" not in json.dumps(line)

    def test_text_is_logged_only_if_asked_for(self, open_client, usage):
        client = open_client(log_text=True)
        post(client, "/v1/search", query="weather in the city")
        assert usage(client)[0]["text"] == "weather in the city"

    def test_nothing_is_logged_if_not_asked_for(self, open_client, directory):
        client = open_client(usage_log=False)
        post(client, "/v1/search", query="weather")
        answer = post(client, "/v1/feedback", name="home__get_weather", outcome="ok")

        assert answer["recorded"] is False
        assert not (directory / "usage").exists()

    async def test_a_call_that_the_servers_end_cuts_short_is_logged(self, directory):
        services = Services(directory, ServerOptions(), embeddings=NoEmbeddings(), environment={})
        async with services.running():
            calling = asyncio.create_task(call(services, "home__wait_for_ever", {}))
            await asyncio.sleep(0.1)
            calling.cancel()
            await asyncio.wait([calling])
        lines = [path.read_text() for path in (directory / "usage").glob("*.jsonl")]
        (line,) = map(json.loads, "".join(lines).splitlines())

        assert (line["tool"], line["outcome"]) == ("home/wait_for_ever", "timeout")


class TestExplain:
    def test_a_selection_is_told_with_what_speaks_for_each_tool(self, client):
        answer = post(client, "/v1/explain", query="is it warm or cold in the city")
        best = answer["tools"][0]

        assert best["name"] == "home__get_weather"
        assert best["source"] in ("both", "semantic")
        assert best["dense"] > 0
        assert 0 < answer["tokens"] <= answer["catalogue_tokens"]

    def test_what_was_called_in_a_conversation_is_kept(self, client):
        call = {"id": "1", "name": "play_song", "args": {"title": "x"}, "type": "tool_call"}
        messages = [
            {"role": "user", "content": "play a song"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "la", "tool_call_id": "1"},
            {"role": "user", "content": "is it warm or cold in the city"},
        ]
        answer = post(client, "/v1/explain", messages=messages)

        assert {"home__play_song", "home__get_weather"} <= set(names(answer))

    @pytest.mark.parametrize(
        "body",
        [
            {},
            {"query": "x", "messages": [{"role": "user", "content": "x"}]},
            {"messages": []},
            {"messages": [{"role": "nobody", "content": "x"}]},
            {"messages": [{"text": "x"}]},
        ],
    )
    def test_what_is_no_conversation_is_a_bad_request(self, client, body):
        post(client, "/v1/explain", 400, **body)


class TestCatalogue:
    def test_it_is_listed_in_its_order(self, client):
        answer = client.get("/v1/tools").json()

        assert answer["total"] == 5
        assert names(answer)[0] == "home__get_weather"
        assert "inputSchema" not in answer["tools"][0]

    def test_of_one_server_alone_and_in_full(self, client):
        (tool,) = client.get("/v1/tools?server=disk&full=true").json()["tools"]

        assert tool["id"] == "disk/delete_file"
        assert tool["inputSchema"]["type"] == "object"
        assert tool["annotations"]["title"] == "Delete"

    @pytest.mark.parametrize(
        "name", ["home/get_weather", "home__get_weather", "home%2Fget_weather"]
    )
    def test_one_tool_is_described(self, client, name):
        assert client.get(f"/v1/tools/{name}").json()["id"] == "home/get_weather"

    def test_one_that_is_not_there_is_not_found(self, client):
        assert client.get("/v1/tools/home/nothing").status_code == 404


class TestHealth:
    def test_it_is_not_ready_until_requests_are_embedded(self, open_client):
        client = open_client(embeddings=BrokenEmbeddings())
        answer = client.get("/healthz")

        assert answer.status_code == 503
        assert answer.json() == {
            "ready": False,
            "mode": "lexical",
            "tools": 5,
            "heads": "",
            "heads_problem": False,
        }

    def test_it_is_ready_then(self, client):
        answer = client.get("/healthz").json()
        assert (answer["ready"], answer["mode"], answer["tools"]) == (True, "semantic", 5)

    def test_a_server_that_is_to_have_no_model_is_ready_without(self, open_client):
        answer = open_client(embeddings=NoEmbeddings()).get("/healthz")

        assert answer.status_code == 200
        assert answer.json()["mode"] == "lexical"

    def test_it_lives_from_the_start(self, open_client):
        client = open_client(embeddings=BrokenEmbeddings())
        assert client.get("/livez").json() == {"alive": True}

    def test_metrics_count_searches_and_calls(self, client):
        post(client, "/v1/search", query="weather")
        post(client, "/v1/call", name="home__get_weather", arguments={"city": "delhi"})
        answer = client.get("/metrics")
        lines = answer.text.splitlines()

        assert answer.headers["content-type"].startswith("text/plain")
        assert 'toolrag_search_seconds_count{kind="search",mode="semantic"} 1.0' in lines
        assert 'toolrag_call_seconds_count{outcome="ok"} 1.0' in lines
        assert "toolrag_tools 5.0" in lines
        assert "toolrag_semantic 1.0" in lines
        assert "toolrag_usage_dropped 0.0" in lines
        assert "toolrag_heads_problem 0.0" in lines


class TestPaths:
    def test_what_is_not_there_is_told_as_json(self, client):
        answer = client.get("/v2/search")
        assert (answer.status_code, answer.json()) == (404, {"error": "Not Found: GET /v2/search"})

    def test_a_wrong_method_is_told_as_json(self, client):
        answer = client.get("/v1/search")

        assert answer.status_code == 405
        assert answer.headers["allow"] == "POST"
        assert "error" in answer.json()

    def test_the_document_has_exactly_the_paths_there_are(self, client):
        routes = {
            (route.path.replace(":path", ""), method.lower())
            for route in client.app.routes
            for method in route.methods - {"HEAD"}
            if route.path not in ("/", "/mcp")
        }
        described = {
            (path, method) for path, item in document()["paths"].items() for method in item
        }
        assert described == routes
        assert client.get("/openapi.json").json() == document()

    def test_what_the_document_refers_to_is_in_it(self):
        written = json.dumps(document())
        schemas = document()["components"]["schemas"]
        referred = {part.split('"')[0] for part in written.split('"#/components/schemas/')[1:]}

        assert referred == set(schemas)
        assert "query" in schemas["SearchBody"]["required"]

    def test_what_is_answered_is_as_the_document_says(self, client):
        weather = {"name": "home__get_weather"}
        asked = [
            ("/v1/search", {"query": "weather"}),
            ("/v1/search", {"query": ""}),
            ("/v1/rank", {"query": "weather", "tools": [MCP_TOOL, OPENAI_TOOL]}),
            ("/v1/rank", {"query": "weather", "tool_ids": ["nothing"]}),
            ("/v1/call", {**weather, "arguments": {"city": "delhi"}}),
            ("/v1/call", {"name": "home__send_email", "arguments": {"to": "anna"}}),
            ("/v1/call", {"name": "nothing"}),
            ("/v1/feedback", {**weather, "outcome": "ok"}),
            ("/v1/explain", {"query": "weather"}),
            ("/v1/explain", {"messages": [{"role": "nobody"}]}),
            ("/v1/map", {"query": "weather"}),
        ]
        got = ["/v1/tools", "/v1/map", "/v1/lint", "/v1/recent", "/healthz", "/livez"]
        answers = [(path, "post", client.post(path, json=body)) for path, body in asked]
        answers += [(path, "get", client.get(path)) for path in got]
        answers += [("/v1/tools/{id}", "get", client.get("/v1/tools/disk/delete_file"))]
        answers += [("/v1/recent", "get", client.get("/v1/recent?n=x"))]

        for path, method, answer in answers:
            responses = document()["paths"][path][method]["responses"]
            schema = responses[str(int(answer.status_code))]["content"]["application/json"][
                "schema"
            ]
            Draft202012Validator({**document(), **schema}).validate(answer.json())
