import base64
import json
from urllib.parse import parse_qsl, unquote

import httpx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from langchain_toolrag.catalogue.sources.openapi.media import best_media_type
from langchain_toolrag.catalogue.sources.openapi.request import outgoing
from langchain_toolrag.catalogue.sources.stored import StoredTool


def tool(path="/dogs", places=None, body=None, required=(), method="POST"):
    call = {"method": method, "path": path, "arguments": places or {}}
    if body:
        call["body"] = {"required": False, **body}
    parameters = {"type": "object", "required": list(required)}
    return StoredTool("s/t", "s", "openapi", "t", parameters=parameters, call=call)


def query_of(value, **place):
    return outgoing(tool(places={"a": {"in": "query", **place}}), {"a": value}).query


@pytest.mark.parametrize(
    ("value", "place", "query"),
    [
        ("x y&z", {}, "a=x%20y%26z"),
        (True, {}, "a=true"),
        (1.5, {}, "a=1.5"),
        ("", {}, "a="),
        (["x", "y,z"], {}, "a=x&a=y%2Cz"),
        (["x", "y,z"], {"explode": False}, "a=x,y%2Cz"),
        (["x", 1], {"style": "spaceDelimited"}, "a=x%201"),
        (["x", 1], {"style": "pipeDelimited"}, "a=x%7C1"),
        ([], {}, ""),
        ({"min": 1, "max": 2}, {}, "min=1&max=2"),
        ({"min": 1, "max": 2}, {"explode": False}, "a=min,1,max,2"),
        ({"min": 1, "in": {"b": [2]}}, {"style": "deepObject"}, "a[min]=1&a[in][b][0]=2"),
        ({"min": 1}, {"json": True}, "a=%7B%22min%22%3A%201%7D"),
        ("x", {"name": "filter[a]"}, "filter%5Ba%5D=x"),
        (None, {}, ""),
    ],
)
def test_a_query_argument_is_written_in_its_style(value, place, query):
    assert query_of(value, **place) == query


@given(st.text() | st.lists(st.text(), min_size=1), st.text(min_size=1))
def test_whatever_is_in_a_query_argument_comes_back_out_of_the_query(value, name):
    read = parse_qsl(query_of(value, name=name), keep_blank_values=True)
    assert read == [(name, one) for one in (value if isinstance(value, list) else [value])]


def path_of(value, path="/dogs/{id}/photo", **place):
    places = {"id": {"in": "path", **place}}
    return outgoing(tool(path, places, required=["id"]), {"id": value}).path


@pytest.mark.parametrize(
    ("value", "place", "path"),
    [
        (7, {}, "/dogs/7/photo"),
        ("a b/c?d#e%2F", {}, "/dogs/a%20b%2Fc%3Fd%23e%252F/photo"),
        (["a", "b,c"], {}, "/dogs/a,b%2Cc/photo"),
        ({"x": 1, "y": 2}, {}, "/dogs/x,1,y,2/photo"),
        ({"x": 1, "y": 2}, {"explode": True}, "/dogs/x=1,y=2/photo"),
        ("...", {}, "/dogs/.../photo"),
        ("v1..v2", {}, "/dogs/v1..v2/photo"),
    ],
)
def test_a_path_argument_stays_one_segment(value, place, path):
    assert path_of(value, **place) == path


@pytest.mark.parametrize(
    "value",
    ["..", ".", "../admin", "a/../../b", "..\\admin", "%2e%2e", "%2E%2E%2Fadmin", "%252e%252e/x"],
)
def test_a_path_argument_that_would_climb_is_not_sent(value):
    with pytest.raises(ValueError, match="'id' goes into the path and may not hold"):
        path_of(value)


@pytest.mark.parametrize("value", ["", [], {}])
def test_an_empty_path_argument_is_not_sent_for_it_would_name_the_whole_list(value):
    with pytest.raises(ValueError, match="may not be empty"):
        path_of(value)


@given(st.text(min_size=1))
def test_whatever_a_path_argument_holds_the_path_has_the_same_segments(value):
    try:
        path = path_of(value)
    except ValueError:
        return
    url = httpx.URL(f"https://api.example{path}")
    first, second, third = url.raw_path.decode().removeprefix("/").split("/")
    assert (first, unquote(second), third) == ("dogs", value, "photo")


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\0b", "é", "\x7f"])
def test_a_header_argument_stays_one_line(value):
    with pytest.raises(ValueError, match="wanted one line of ASCII"):
        outgoing(tool(places={"X-Trace": {"in": "header"}}), {"X-Trace": value})


def test_headers_and_cookies_are_written_where_they_go():
    places = {
        "trace": {"in": "header", "name": "X-Trace"},
        "visit": {"in": "cookie"},
    }
    sent = outgoing(tool(places=places), {"trace": ["a", 1], "visit": "x;y"})
    assert sent.headers == {"X-Trace": "a,1"}
    assert sent.cookies == ["visit=x%3By"]


BODY = {"name": {"in": "body"}, "filter_age": {"in": "body", "name": "filter[age]"}}


def test_a_json_body_has_its_properties_under_their_own_names():
    sent = outgoing(
        tool(places=BODY, body={"type": "application/json"}), {"name": None, "filter_age": "é"}
    )
    assert json.loads(sent.content) == {"name": None, "filter[age]": "é"}
    assert sent.headers == {"Content-Type": "application/json"}


def test_a_body_nobody_fills_is_sent_only_where_one_is_required():
    required = {"type": "application/json", "required": True}
    assert outgoing(tool(places=BODY, body={"type": "application/json"}), {}).content is None
    assert outgoing(tool(places=BODY, body=required), {}).content == b"{}"


def test_a_whole_body_is_sent_as_it_is():
    places = {"body": {"in": "body", "whole": True}}
    sent = outgoing(tool(places=places, body={"type": "*/*"}), {"body": [1, "a"]})
    assert json.loads(sent.content) == [1, "a"]
    assert sent.headers == {"Content-Type": "application/json"}


def test_numbers_that_json_does_not_have_are_not_sent():
    with pytest.raises(ValueError, match="JSON"):
        outgoing(tool(places=BODY, body={"type": "application/json"}), {"name": float("nan")})


def test_a_form_is_written_as_a_query_is():
    places = {"from": {"in": "body"}, "extras": {"in": "body", "style": "deepObject"}}
    form = {"type": "application/x-www-form-urlencoded"}
    sent = outgoing(tool(places=places, body=form), {"from": "a b", "extras": {"walks": 2}})
    assert sent.content == b"from=a%20b&extras[walks]=2"


def test_a_whole_form_is_an_object():
    places = {"body": {"in": "body", "whole": True}}
    form = tool(places=places, body={"type": "application/x-www-form-urlencoded"})
    assert outgoing(form, {"body": {"a": 1, "b": [2, 3]}}).content == b"a=1&b=2&b=3"
    with pytest.raises(ValueError, match="wanted an object"):
        outgoing(form, {"body": "a=1"})


def test_a_multipart_body_has_files_from_base64_and_fields():
    places = {"file": {"in": "body", "binary": True}, "note": {"in": "body"}}
    multipart = tool(places=places, body={"type": "multipart/form-data"})
    file = base64.b64encode(b"\x00\xff").decode()
    sent = outgoing(multipart, {"file": file, "note": ["a", {"b": 1}]})
    assert sent.parts == [
        ("file", ("file", b"\x00\xff")),
        ("note", (None, b"a")),
        ("note", (None, b'{"b": 1}')),
    ]
    with pytest.raises(ValueError, match="'file' is a file: wanted its bytes in base64"):
        outgoing(multipart, {"file": "not base64!"})


@pytest.mark.parametrize(
    ("kind", "binary", "content", "header"),
    [
        ("text/csv", False, b"YQ==", "text/csv; charset=utf-8"),
        ("application/octet-stream", True, b"a", "application/octet-stream"),
    ],
)
def test_a_body_of_another_kind_is_text_or_base64(kind, binary, content, header):
    places = {"body": {"in": "body", "whole": True, "binary": binary}}
    sent = outgoing(tool(places=places, body={"type": kind}), {"body": "YQ=="})
    assert (sent.content, sent.headers) == (content, {"Content-Type": header})


def test_a_missing_argument_is_named():
    wanting = tool("/dogs/{id}", {"id": {"in": "path"}, "q": {"in": "query"}}, required=["id", "q"])
    with pytest.raises(ValueError, match="it needs 'id', 'q'"):
        outgoing(wanting, {"id": None})


def test_an_unknown_argument_is_named_rather_than_lost():
    with pytest.raises(ValueError, match="there is no argument 'dogid'"):
        outgoing(tool(places={"q": {"in": "query"}}), {"dogid": 1})


@given(st.lists(st.sampled_from(["text/plain", "multipart/form-data", "image/png"]), min_size=1))
def test_json_is_written_where_a_body_may_be_json(types):
    assume(types)
    assert best_media_type([*types, "application/vnd.api+json; v=1"]).endswith("v=1")
