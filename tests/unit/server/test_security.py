"""Each rule, and attempts to get around it."""

import asyncio
import hmac
import json
import logging

import pytest
from fakes import NamedEmbeddings

from langchain_toolrag.server import security
from langchain_toolrag.server.app import create_app
from langchain_toolrag.server.options import ServerOptions
from langchain_toolrag.server.services import Services

KEY = "a-key-of-some-length"
QUERY = {"query": "weather"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "tools.example.com", ""])
def test_an_address_that_others_reach_is_not_listened_on_without_a_key(host):
    with pytest.raises(ValueError, match="TOOLRAG_API_KEY"):
        ServerOptions(host=host)
    assert ServerOptions(host=host, api_key=KEY).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_a_loopback_address_needs_no_key(host):
    assert ServerOptions(host=host).api_key == ""


def test_the_key_is_not_in_what_is_printed_of_the_options():
    assert KEY not in repr(ServerOptions(api_key=KEY))


@pytest.mark.parametrize("key", [" ", "a key", "a-key\n", "clé", "\x7f"])
def test_a_key_that_headers_do_not_carry_as_it_is_is_none(key):
    with pytest.raises(ValueError, match="the key has spaces") as refused:
        ServerOptions(host="0.0.0.0", api_key=key)
    assert key.strip() == "" or key not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["", "*", "*.example.com", "https://tools.example.com", "a.example/x", "a@b", "a b"]
)
def test_what_is_no_name_cannot_be_allowed(name):
    with pytest.raises(ValueError, match="is no name"):
        ServerOptions(allowed_hosts=("tools.example.com", name))


class TestKey:
    @pytest.fixture
    def client(self, open_client):
        return open_client(api_key=KEY)

    @pytest.mark.parametrize(
        "headers", [{"Authorization": f"Bearer {KEY}"}, {"X-API-Key": KEY}], ids=["bearer", "x"]
    )
    def test_who_has_it_is_answered(self, client, headers):
        assert client.post("/v1/search", json=QUERY, headers=headers).status_code == 200

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"Authorization": KEY},
            {"Authorization": f"Basic {KEY}"},
            {"Authorization": "Bearer "},
            {"X-API-Key": ""},
            {"X-API-Key": KEY[:-1]},
            {"X-API-Key": f"{KEY}x"},
            {"X-API-Key": KEY.upper()},
            {"X-API-Key": "\xff\xfe".encode("latin-1")},
        ],
    )
    def test_who_has_not_is_told_so_and_no_more(self, client, headers):
        answer = client.post("/v1/search", json=QUERY, headers=headers)

        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert set(answer.json()) == {"error"}
        assert KEY not in answer.text

    @pytest.mark.parametrize("path", ["/v1/tools", "/metrics", "/openapi.json", "/none"])
    def test_nothing_that_tells_of_the_tools_is_shown_without_it(self, client, path):
        assert client.get(path).status_code == 401

    @pytest.mark.parametrize("path", ["/livez", "/healthz"])
    def test_whether_it_runs_is_told_without_it(self, client, path):
        assert client.get(path).status_code in (200, 503)

    @pytest.mark.parametrize("path", ["/livez/../v1/tools", "/livez//", "/livez/", "/LIVEZ"])
    def test_a_path_that_only_looks_open_is_not(self, client, path):
        assert client.get(path).status_code == 401

    def test_mcp_needs_it_too(self, client):
        assert client.post("/mcp", json={}).status_code == 401

    def test_it_is_compared_in_constant_time_whichever_header_it_is_in(self, client, monkeypatch):
        compared, in_constant_time = [], hmac.compare_digest

        def compare(one, other):
            compared.append((one, other))
            return in_constant_time(one, other)

        monkeypatch.setattr(hmac, "compare_digest", compare)
        client.get("/v1/tools", headers={"X-API-Key": "wrong", "Authorization": f"Bearer {KEY}"})
        assert compared == [(KEY.encode(), KEY.encode()), (b"wrong", KEY.encode())]


class TestHost:
    @pytest.mark.parametrize(
        "host", ["127.0.0.1:8765", "localhost:8765", "localhost", "[::1]:8765", "LOCALHOST:1"]
    )
    def test_the_loopbacks_names_are_its_own(self, client, host):
        assert client.get("/livez", headers={"Host": host}).status_code == 200

    @pytest.mark.parametrize(
        "host",
        [
            "evil.example",
            "evil.example:8765",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1@evil.example",
            "evil.example#127.0.0.1",
            "evil.example@127.0.0.1",
            "127.0.0.1/evil",
            "127.0.0.1?evil",
            "127.0.0.1:evil",
            "127.0.0.1:80:80",
            "127.0.0.1 ",
            "localhost.",
            "[::1",
            "::1",
            "[127.0.0.1]",
            "[::1]evil.example",
            "",
            "0.0.0.0:8765",
        ],
    )
    def test_a_name_that_was_made_to_point_here_is_not(self, client, host):
        answer = client.get("/livez", headers={"Host": host})

        assert answer.status_code == 421
        assert "--allowed-host" in answer.json()["error"]

    def test_two_host_headers_are_one_too_many(self, client):
        headers = [("Host", "127.0.0.1:8765"), ("Host", "evil.example")]
        assert client.get("/livez", headers=headers).status_code == 421

    def test_a_further_name_can_be_allowed(self, open_client):
        client = open_client(allowed_hosts=("tools.example.com",))

        assert client.get("/livez", headers={"Host": "tools.example.com"}).status_code == 200
        assert client.get("/livez", headers={"Host": "example.com"}).status_code == 421

    @pytest.mark.parametrize("allowed", ["fd00::7", "[fd00::7]", "[fd00::7]:8765", "FD00::7"])
    def test_an_address_can_be_allowed_in_any_form(self, open_client, allowed):
        client = open_client(allowed_hosts=(allowed,))
        assert client.get("/livez", headers={"Host": "[fd00::7]:8765"}).status_code == 200

    def test_all_addresses_is_no_name(self, open_client):
        client = open_client(host="0.0.0.0", api_key=KEY)
        assert client.get("/livez", headers={"Host": "0.0.0.0"}).status_code == 421


class TestOrigin:
    def asked(self, client, origin, **headers):
        headers = {"Origin": origin, **headers}
        return client.post("/v1/search", json=QUERY, headers=headers).status_code

    @pytest.mark.parametrize(
        "origin",
        [
            "https://evil.example",
            "http://127.0.0.1",
            "http://127.0.0.1:3000",
            "http://localhost:8765",
            "http://127.0.0.1:8765.evil.example",
            "http://127.0.0.1:8765@evil.example",
            "null",
            "",
            "file://127.0.0.1:8765",
            "http://[::1",
        ],
    )
    def test_pages_of_other_origins_are_not_answered(self, client, origin):
        assert self.asked(client, origin) == 403

    def test_its_own_pages_are(self, client):
        assert self.asked(client, "http://127.0.0.1:8765") == 200

    def test_those_of_a_name_that_was_given_are_behind_a_proxy_too(self, open_client):
        client = open_client(allowed_hosts=("tools.example.com",))

        assert self.asked(client, "https://tools.example.com") == 200
        assert self.asked(client, "https://tools.example.com.evil.example") == 403

    def test_a_page_may_not_ask_beforehand_either(self, client):
        headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        answer = client.options("/v1/search", headers=headers)

        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers

    @pytest.mark.parametrize("site", ["cross-site", "same-site"])
    def test_what_a_page_of_another_origin_embeds_is_not_answered(self, client, site):
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
        assert client.get("/v1/lint", headers=headers).status_code == 403

    @pytest.mark.parametrize(
        ("site", "mode"),
        [("same-origin", "cors"), ("none", "navigate"), ("cross-site", "navigate")],
    )
    def test_its_own_pages_and_who_follows_a_link_are(self, client, site, mode):
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
        assert client.get("/", headers=headers).status_code == 200

    def test_mcp_is_not_open_to_pages_either(self, client):
        answer = client.post("/mcp", json={}, headers={"Origin": "https://evil.example"})
        assert answer.status_code == 403


class TestBody:
    @pytest.fixture
    def client(self, open_client):
        return open_client(most_request_bytes=100)

    def post(self, client, content, path="/v1/search", content_type="application/json"):
        return client.post(path, content=content, headers={"Content-Type": content_type})

    @pytest.mark.parametrize("path", ["/v1/search", "/v1/call", "/mcp"])
    def test_one_that_is_too_long_is_refused(self, client, path):
        body = json.dumps({"query": "x" * 100}).encode()
        assert self.post(client, body, path).status_code == 413

    def test_one_whose_length_is_not_told_is_read_no_further_than_allowed(self, client):
        read = []

        def chunks():
            for _ in range(1_000):
                read.append(1)
                yield b"x" * 60

        assert self.post(client, chunks()).status_code == 413

    def test_one_of_just_the_length_is_read(self, client):
        body = b'{"query":"weather"}'.ljust(100)
        assert self.post(client, body).status_code == 200

    @pytest.mark.parametrize(
        "content_type", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"]
    )
    def test_what_a_form_of_a_page_could_send_is_no_json(self, client, content_type):
        assert self.post(client, b"{}", content_type=content_type).status_code == 415

    def test_a_character_set_is_no_matter(self, client):
        body = b'{"query":"weather"}'
        answer = self.post(client, body, content_type="application/json; charset=utf-8")
        assert answer.status_code == 200


class TestHalfABody:
    """As ASGI has it: a test client sends its body whole."""

    async def answered(self, services, receive):
        app, sent = create_app(services), []
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        path = "/v1/feedback"
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": headers,
        }

        async def send(message):
            sent.append(message)

        async with services.running():
            await app(scope, receive, send)
        return [message["status"] for message in sent if "status" in message]

    @pytest.fixture
    def services(self, directory):
        return Services(directory, ServerOptions(), embeddings=NamedEmbeddings(), environment={})

    async def test_a_request_whose_caller_leaves_on_the_way_is_not_carried_out(
        self, services, directory
    ):
        whole = b'{"name":"home__get_weather","outcome":"ok"}'
        coming = [
            {"type": "http.request", "body": whole, "more_body": True},
            {"type": "http.disconnect"},
        ]

        async def receive():
            return coming.pop(0)

        assert await self.answered(services, receive) == []
        assert list((directory / "usage").glob("*.jsonl")) == []

    async def test_one_that_does_not_end_is_not_waited_for(self, services, monkeypatch):
        monkeypatch.setattr(security, "_BODY_SECONDS", 0.05)

        async def receive():
            await asyncio.sleep(0.02)
            return {"type": "http.request", "body": b" ", "more_body": True}

        assert await self.answered(services, receive) == [408]


class TestWrites:
    def refused(self, client):
        return client.post("/v1/call", json={"name": "disk/delete_file"}).json()

    def test_a_destructive_tool_is_not_called(self, client):
        answer = self.refused(client)

        assert answer["outcome"] == "refused"
        assert "--allow-write" in answer["content"]

    def test_unless_that_is_allowed(self, open_client):
        answer = self.refused(open_client(allow_write=True))
        assert answer["outcome"] == "tool_error"  # It was tried: there is no such server.


class TestSecrets:
    SECRET = "s3cret-of-the-server"

    def test_neither_answers_nor_the_log_have_what_an_unforeseen_error_says(
        self, client, monkeypatch, caplog
    ):
        class Broken:
            async def call(self, tool, arguments):
                raise RuntimeError(f"https://user:{TestSecrets.SECRET}@api.example")

            async def aclose(self):
                pass

        monkeypatch.setattr(client.services, "_open_calls", Broken)
        with caplog.at_level(logging.DEBUG):
            answer = client.post("/v1/call", json={"name": "home__get_weather"})

        assert answer.json()["outcome"] == "tool_error"
        assert "RuntimeError" in caplog.text
        assert self.SECRET not in answer.text + caplog.text

    def test_the_same_of_a_search(self, client, monkeypatch, caplog):
        def broken(query, k, /, **given):
            raise RuntimeError(self.SECRET)

        monkeypatch.setattr(client.services.serving.current.rag, "find", broken)
        answer = client.post("/v1/search", json=QUERY)

        assert answer.status_code == 500
        assert answer.json() == {"error": "the server failed; its log says why"}
        assert "RuntimeError at /v1/search" in caplog.text
        assert self.SECRET not in answer.text + caplog.text

    def test_an_error_of_a_value_inside_is_no_error_of_the_caller(self, client, monkeypatch):
        def broken(query, k, /, **given):
            raise ValueError(self.SECRET)

        monkeypatch.setattr(client.services.serving.current.rag, "find", broken)
        answer = client.post("/v1/search", json=QUERY)

        assert answer.status_code == 500
        assert self.SECRET not in answer.text
