"""Each safety rule of calling an operation, and what tries to break it, over a real server."""

import asyncio
import json
import logging

import httpx
import pytest
from http_echo import PICTURE, echo_server

from langchain_toolrag.catalogue.sources.openapi import calls as openapi_calls
from langchain_toolrag.catalogue.sources.openapi.addresses import is_public
from langchain_toolrag.catalogue.sources.openapi.calls import call_operation, operations_client
from langchain_toolrag.catalogue.sources.stored import StoredSource, StoredTool

SECRET = "sk-live-0123456789"
CONNECTION = {
    "headers": {"Authorization": "Bearer ${PET_TOKEN}", "X-Plain": "all may read"},
    "query": {"key": "${PET_KEY}"},
    "address_given": True,
}


@pytest.fixture(scope="module")
def server():
    with echo_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _forget(server):
    server.requests.clear()
    server.peers.clear()


@pytest.fixture
async def call(server):
    """Call an operation of the server; what differs from a harmless GET is given by name."""
    async with operations_client() as client:

        async def calling(path="/v1/dogs", method="GET", arguments=None, **options):
            source = StoredSource(
                "pets",
                "openapi",
                "pets.yaml",
                connection=options.pop("connection", {"address_given": True}),
                base_url=options.pop("base_url", f"{server.url}/v1").rstrip("/"),
            )
            tool = options.pop("tool", None) or tool_of(path, method)
            path = {"path": path.removeprefix("/v1")}
            tool = StoredTool(**{**fields(tool), "call": {**tool.call, **path}})
            return await call_operation(
                options.pop("client", client),
                source,
                tool,
                arguments or {},
                **{
                    "headers": {},
                    "timeout": 5.0,
                    "allow_write": False,
                    "allow_private": False,
                    "most_bytes": 100_000,
                    **options,
                },
            )

        yield calling


def fields(tool):
    return {name: getattr(tool, name) for name in StoredTool.__dataclass_fields__}


def tool_of(path="/v1/dogs", method="GET", places=None, required=()):
    parameters = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in places or {}},
        "required": list(required),
    }
    call = {"method": method, "path": path, "arguments": places or {}}
    if any(place["in"] == "body" for place in (places or {}).values()):
        call["body"] = {"type": "application/json", "required": True}
    return StoredTool("pets/dogs", "pets", "openapi", "dogs", parameters=parameters, call=call)


async def test_an_answer_in_json_is_given_as_text_and_as_json(call, server):
    tool = tool_of(places={"breed": {"in": "query"}, "X-Trace": {"in": "header"}})
    result = await call(tool=tool, arguments={"breed": "a&b", "X-Trace": "7"})
    assert (result.outcome, result.status) == ("ok", 200)
    assert json.loads(result.content) == result.structured
    assert result.structured["path"] == "/v1/dogs"
    assert result.structured["query"] == [["breed", "a&b"]]
    assert result.structured["headers"]["X-Trace"] == "7"


async def test_a_body_is_sent_as_json(call, server):
    tool = tool_of(method="POST", places={"name": {"in": "body"}})
    result = await call(tool=tool, arguments={"name": "Réx"}, allow_write=True)
    assert json.loads(result.structured["body"]) == {"name": "Réx"}
    assert result.structured["headers"]["Content-Type"] == "application/json"


async def test_a_multipart_body_reaches_the_server_in_parts(call, server):
    tool = tool_of(method="POST", places={"file": {"in": "body", "binary": True}})
    tool.call["body"]["type"] = "multipart/form-data"
    result = await call(tool=tool, arguments={"file": "aGVsbG8="}, allow_write=True)
    assert 'name="file"; filename="file"' in result.structured["body"]
    assert "hello" in result.structured["body"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get"])
async def test_what_may_change_things_is_not_sent_unless_writing_is_allowed(call, server, method):
    result = await call(method=method)
    assert result.outcome == "refused"
    assert "--allow-write" in result.content
    assert server.requests == []


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_what_may_change_things_is_sent_once_where_writing_is_allowed(call, server, method):
    result = await call(method=method, allow_write=True)
    assert result.structured["method"] == method
    assert len(server.requests) == 1


async def test_a_missing_argument_is_told_with_the_schema_and_nothing_is_sent(call, server):
    tool = tool_of("/v1/dogs/{id}", places={"id": {"in": "path"}}, required=["id"])
    result = await call("/v1/dogs/{id}", tool=tool)
    assert result.outcome == "tool_error"
    assert "it needs 'id'" in result.content
    assert json.dumps(tool.parameters) in result.content
    assert server.requests == []


@pytest.mark.parametrize("value", ["../../admin", "..", "%2e%2e/admin", "a\\..\\..\\b", ""])
async def test_an_argument_does_not_climb_out_of_its_path(call, server, value):
    tool = tool_of(places={"id": {"in": "path"}}, required=["id"])
    result = await call("/v1/dogs/{id}", tool=tool, arguments={"id": value})
    assert result.outcome == "tool_error"
    assert server.requests == []


async def test_a_slash_in_a_path_argument_is_no_slash_of_the_path(call, server):
    tool = tool_of(places={"id": {"in": "path"}}, required=["id"])
    await call("/v1/dogs/{id}", tool=tool, arguments={"id": "a/b?c#d"})
    assert server.requests[0][1] == "/v1/dogs/a%2Fb%3Fc%23d"


@pytest.mark.parametrize(
    "path",
    [
        *("/../admin", "/dogs/../../admin", "/%2e%2e/admin", "/%252e%252e/admin", "/..\\admin"),
        *("@evil.example/", ".evil.example/", ":1/", "evil", ""),
    ],
)
async def test_a_path_of_the_document_does_not_leave_the_base_url(call, server, path):
    result = await call(path)
    assert result.outcome == "refused"
    assert "leads out of" in result.content
    assert server.requests == []


async def test_an_argument_does_not_name_another_host(call, server):
    tool = tool_of(places={"host": {"in": "path"}}, required=["host"])
    result = await call("{host}/", tool=tool, arguments={"host": "@evil.example"})
    assert result.outcome == "refused"
    result = await call("//{host}/x", tool=tool, arguments={"host": "evil.example"})
    assert server.requests[0][1] == "/v1//evil.example/x"


async def test_a_redirect_is_told_and_not_followed(call, server):
    result = await call("/v1/moved")
    assert (result.outcome, result.status) == ("tool_error", 302)
    assert "http://169.254.169.254/latest/" in result.content
    assert "not followed" in result.content
    assert len(server.requests) == 1


async def test_a_redirect_is_not_followed_by_a_client_that_would(call, server):
    async with httpx.AsyncClient(follow_redirects=True) as client:
        result = await call("/v1/moved", client=client)
    assert result.status == 302
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0.0.0.0", "[::1]"]
)
async def test_a_document_does_not_name_a_private_address(call, server, host):
    port = server.url.rpartition(":")[2]
    result = await call(connection={}, base_url=f"http://{host}:{port}/v1")
    assert result.outcome == "refused"
    assert "--base-url" in result.content
    assert server.requests == []


async def test_a_private_address_is_called_where_the_user_named_it_or_allows_it(call, server):
    assert (await call(connection={"address_given": True})).outcome == "ok"
    assert (await call(connection={}, allow_private=True)).outcome == "ok"


@pytest.mark.parametrize(
    "address",
    [
        *("10.0.0.1", "192.168.1.1", "172.16.0.1", "127.0.0.1", "169.254.169.254", "100.64.0.1"),
        *("0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1%eth0", "fc00::1"),
        *("ff02::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:db8::1"),
    ],
)
def test_an_address_that_is_not_of_the_open_internet_is_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822"])
def test_an_address_of_the_open_internet_is_public(address):
    assert is_public(address)


class Recording(httpx.AsyncBaseTransport):
    """Stands in for the network: keeps what would be sent, and to which address."""

    def __init__(self, dead=None):
        self.requests, self._dead = [], dead or {}

    async def handle_async_request(self, request):
        self.requests.append(request)
        if request.url.host in self._dead:
            raise self._dead[request.url.host]("nobody there")
        return httpx.Response(200, stream=httpx.ByteStream(b"{}"))


def resolving(monkeypatch, *answers):
    """Resolve every host to one list of addresses after the other."""
    listed = iter(answers)

    async def resolve(host, port):
        return next(listed)

    monkeypatch.setattr(openapi_calls, "resolve", resolve)


async def test_what_was_checked_is_what_is_connected_to(call, monkeypatch):
    resolving(monkeypatch, ["93.184.216.34"], ["127.0.0.1"])  # As DNS rebinding does it.
    transport = Recording()
    async with httpx.AsyncClient(transport=transport) as client:
        url = "https://api.example:8443/v1"
        await call(connection={}, base_url=url, client=client)
        assert (await call(connection={}, base_url=url, client=client)).outcome == "refused"
    (request,) = transport.requests
    assert str(request.url) == "https://93.184.216.34:8443/v1/dogs"
    assert request.headers["Host"] == "api.example:8443"
    assert request.extensions["sni_hostname"] == "api.example"
    assert request.extensions["timeout"]["read"] == 5.0


async def test_one_private_address_among_public_ones_is_enough_to_refuse(call, monkeypatch):
    resolving(monkeypatch, ["93.184.216.34", "10.0.0.1"])
    transport = Recording()
    async with httpx.AsyncClient(transport=transport) as client:
        result = await call(connection={}, base_url="https://api.example/v1", client=client)
    assert result.outcome == "refused"
    assert transport.requests == []


@pytest.mark.parametrize("failure", [httpx.ConnectError, httpx.ConnectTimeout])
async def test_an_address_that_does_not_answer_gives_way_to_the_next(call, monkeypatch, failure):
    resolving(monkeypatch, ["2606:2800:220:1::1", "93.184.216.34"])
    transport = Recording({"2606:2800:220:1::1": failure})
    async with httpx.AsyncClient(transport=transport) as client:
        result = await call(connection={}, base_url="http://api.example/v1", client=client)
    assert result.outcome == "ok"
    assert [request.url.host for request in transport.requests] == [
        "2606:2800:220:1::1",
        "93.184.216.34",
    ]


async def test_a_name_that_nobody_has_is_reached_at_the_address_it_resolved_to(
    call, server, monkeypatch
):
    resolving(monkeypatch, ["127.0.0.1"])
    monkeypatch.setattr(openapi_calls, "is_public", lambda address: True)
    port = server.url.rpartition(":")[2]
    result = await call(connection={}, base_url=f"http://no-such-host.invalid:{port}/v1")
    assert result.structured["headers"]["Host"] == f"no-such-host.invalid:{port}"


async def test_a_request_that_broke_off_is_not_sent_again(call, monkeypatch):
    resolving(monkeypatch, ["93.184.216.34", "93.184.216.35"])
    transport = Recording({"93.184.216.34": httpx.ReadError})
    async with httpx.AsyncClient(transport=transport) as client:
        result = await call(connection={}, base_url="http://api.example/v1", client=client)
    assert result.outcome == "tool_error"
    assert len(transport.requests) == 1


async def test_hosts_at_one_address_share_no_connection(call, server, monkeypatch):
    """Its certificate was checked for one of them."""
    resolving(monkeypatch, ["127.0.0.1"], ["127.0.0.1"])
    monkeypatch.setattr(openapi_calls, "is_public", lambda address: True)
    port = server.url.rpartition(":")[2]
    for host in ("one.invalid", "two.invalid"):
        assert (await call(connection={}, base_url=f"http://{host}:{port}/v1")).outcome == "ok"
    assert len(set(server.peers)) == 2


async def test_calls_of_a_server_the_user_named_share_a_connection(call, server):
    assert (await call()).outcome == (await call()).outcome == "ok"
    assert len(set(server.peers)) == 1


async def test_a_host_that_is_not_there_is_told(call, monkeypatch):
    async def resolve(host, port):
        raise OSError("Name or service not known")

    monkeypatch.setattr(openapi_calls, "resolve", resolve)
    result = await call(connection={}, base_url="https://nowhere.invalid/v1")
    assert result.outcome == "tool_error"
    assert "could not be reached: Name or service not known" in result.content


async def test_a_closed_port_is_told(call):
    result = await call(base_url="http://127.0.0.1:9/v1")
    assert result.outcome == "tool_error"
    assert "could not be reached" in result.content


@pytest.mark.parametrize("path", ["/v1/slow", "/v1/dripping"])
async def test_an_answer_that_takes_too_long_is_a_timeout(call, server, path):
    result = await asyncio.wait_for(call(path, timeout=0.2), 3)
    assert result.outcome == "timeout"
    assert "0.2 seconds" in result.content
    assert len(server.requests) == 1


async def test_an_answer_that_is_no_http_is_told_without_its_words(call):
    result = await call("/v1/broken")
    assert (result.outcome, result.status) == ("tool_error", None)
    assert result.content == "dogs broke off: RemoteProtocolError"


async def test_a_failure_is_told_with_its_status_a_short_body_and_the_schema(call):
    tool = tool_of(places={"breed": {"in": "query"}})
    result = await call("/v1/missing", tool=tool)
    assert (result.outcome, result.status) == ("tool_error", 404)
    assert result.content.startswith('HTTP 404 Not Found: {"detail": "no such dog"')
    assert "(cut)" in result.content
    assert len(result.content) < 2_000
    assert json.dumps(tool.parameters) in result.content
    assert "Credentials" not in result.content


async def test_a_long_answer_is_cut_between_characters(call):
    result = await call("/v1/large", most_bytes=1_001)
    assert result.outcome == "ok"
    assert result.content.startswith("é" * 500 + "\n... (cut")
    assert result.structured is None


async def test_an_answer_that_expands_is_cut_before_it_does(call):
    result = await call("/v1/bomb", most_bytes=1_000_000)
    assert result.content.startswith("a" * 1_000)
    assert len(result.content) < 1_000_100


async def test_a_compressed_answer_is_read(call):
    assert (await call("/v1/zipped")).structured == {"a": 1}


async def test_an_answer_compressed_in_a_way_not_asked_for_is_not_shown(call):
    result = await call("/v1/odd")
    assert "unreadable" in result.content


async def test_a_binary_answer_is_told_by_type_and_size(call):
    result = await call("/v1/picture")
    assert result.outcome == "ok"
    assert result.content == f"HTTP 200 OK: a binary answer, image/png, {len(PICTURE)} bytes."


async def test_an_empty_answer_says_its_status(call):
    assert (await call("/v1/nothing")).content == "HTTP 204 No Content"


async def test_a_head_says_what_there_is(call):
    result = await call(method="HEAD")
    assert result.content.startswith("HTTP 200 OK\ncontent-type: application/json\n")


def filled():
    return {
        "connection": CONNECTION,
        "headers": {"Authorization": f"Bearer {SECRET}", "X-Plain": "all may read"},
        "query": {"key": "key/0123456789"},
    }


async def test_credentials_reach_the_server(call, server):
    tool = tool_of(places={"breed": {"in": "query"}})
    await call(tool=tool, arguments={"breed": "x"}, **filled())
    _, target, headers, _ = server.requests[0]
    assert headers["Authorization"] == f"Bearer {SECRET}"
    assert target == "/v1/dogs?breed=x&key=key%2F0123456789"
    await call(**filled())
    assert server.requests[1][1] == "/v1/dogs?key=key%2F0123456789"


async def test_an_argument_does_not_replace_a_credential(call, server):
    tool = tool_of(places={"authorization": {"in": "header"}})
    await call(tool=tool, arguments={"authorization": "mine"}, **filled())
    assert server.requests[0][2]["Authorization"] == f"Bearer {SECRET}"


async def test_cookies_of_credentials_and_arguments_go_together(call, server):
    tool = tool_of(places={"visit": {"in": "cookie"}})
    await call(tool=tool, arguments={"visit": "7"}, headers={"Cookie": "sid=0123456789"})
    assert server.requests[0][2]["Cookie"] == "sid=0123456789; visit=7"


@pytest.mark.parametrize(
    "path", ["/v1/echo", "/v1/denied", "/v1/slow", "/v1/broken", "/v1/login", "/../x"]
)
async def test_no_message_and_no_log_has_a_credential(call, caplog, path):
    # At DEBUG, httpcore logs the headers of answers: what a server repeats there is in them.
    caplog.set_level(logging.INFO if path.endswith("login") else logging.DEBUG)
    result = await call(path, timeout=0.5, **filled())
    for text in (result.content, json.dumps(result.structured), caplog.text):
        assert SECRET not in text
        assert "0123456789" not in text


async def test_what_is_no_credential_is_shown(call):
    assert "all may read" in (await call(**filled())).content


async def test_a_refusal_for_want_of_credentials_says_where_they_come_from(call):
    result = await call("/v1/denied", connection=CONNECTION)
    assert "Authorization from Bearer ${PET_TOKEN}" in result.content
    assert "X-Plain" not in result.content


@pytest.mark.parametrize("value", [f"{SECRET}\r\nX-Evil: 1", f"{SECRET}\n", f"{SECRET}é"])
async def test_a_credential_that_is_no_header_is_not_sent_and_not_shown(call, server, value):
    result = await call(connection=CONNECTION, headers={"Authorization": value})
    assert result.outcome == "tool_error"
    assert SECRET not in result.content
    assert server.requests == []


async def test_a_password_of_the_environment_or_the_client_is_not_sent(call, server):
    async with httpx.AsyncClient(auth=("user", "pass"), headers={"X-Mine": "1"}) as client:
        await call(client=client)
    assert not {"Authorization", "X-Mine"} & set(server.requests[0][2])


async def test_one_clients_calls_share_no_cookies(call, server):
    async with operations_client() as client:
        client.cookies.set("sid", "of someone else", domain="127.0.0.1")
        await call(client=client)
    assert "Cookie" not in server.requests[0][2]


async def test_a_host_that_no_server_can_have_is_an_error(call):
    result = await call(connection={}, base_url=f"https://{'a' * 70}.example")
    assert result.outcome == "tool_error"
    assert "could not be reached" in result.content
