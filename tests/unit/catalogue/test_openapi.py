import json
import logging
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from http_echo import echo_server

from langchain_toolrag.catalogue.sources.openapi import document as openapi_document
from langchain_toolrag.catalogue.sources.openapi.listing import read_openapi
from langchain_toolrag.errors import SourceError

DATA = Path(__file__).parents[2] / "data" / "openapi"
SERVERS = [{"url": "https://api.example/v1"}]


def document(paths, **more):
    info = {"title": "Small thing", "version": "1"}
    return {"openapi": "3.1.0", "info": info, "servers": SERVERS, "paths": paths, **more}


@pytest.fixture
def read(tmp_path):
    """Read a document, given as a value or as text, from a file."""

    def reading(content, filename="small.json", **options):
        path = tmp_path / filename
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return read_openapi(path, **options)

    return reading


@pytest.fixture(scope="module")
def kennel():
    return {tool.name: tool for tool in read_openapi(DATA / "kennel.yaml").tools}


def test_every_operation_is_a_tool_named_by_its_operation_id_or_its_method_and_path(kennel):
    assert list(kennel) == [
        "dogs/list",
        "dogs/create",
        "get_dogs_by_dog_id",
        "dogs/rename",
        "dogs/remove",
        "dogs/photo",
        "stays/book",
        "tags/replace",
    ]
    assert kennel["dogs/list"].id == "kennel/dogs/list"
    assert kennel["dogs/list"].kind == "openapi"
    assert kennel["dogs/list"].tags == ("dogs",)


def test_two_paths_that_make_one_name_are_told_apart_by_a_suffix():
    names = [tool.name for tool in read_openapi(DATA / "library.json").tools]
    assert names == [
        "post_books_by_isbn_loans",
        "get_books_by_isbn_loans",
        "get_books_by_isbn_loans_2",
    ]


def test_a_name_made_of_a_path_leaves_operation_ids_to_their_owners(read):
    paths = {"/a": {"get": {}}, "/b": {"get": {"operationId": "get_a"}}}
    assert [tool.name for tool in read(document(paths)).tools] == ["get_a_2", "get_a"]


def test_the_description_is_the_summary_and_the_description_without_repetition(kennel, read):
    assert kennel["dogs/create"].description == "Register a dog that has arrived."
    assert kennel["get_dogs_by_dog_id"].description == "Deprecated. Get one dog"
    both = {"summary": "Count\nthem", "description": "All of them."}
    (tool,) = read(document({"/a": {"get": both}})).tools
    assert tool.description == "Count them. All of them."


def test_the_method_says_whether_an_operation_reads_or_destroys(kennel):
    hints = {
        name: (tool.annotations["readOnlyHint"], tool.annotations["destructiveHint"])
        for name, tool in kennel.items()
    }
    assert hints["dogs/list"] == (True, False)
    assert hints["dogs/create"] == (False, False)
    assert hints["dogs/remove"] == (False, True)


def test_a_parameter_of_the_path_item_gives_way_to_the_operations_own(kennel):
    properties = kennel["dogs/rename"].parameters["properties"]
    assert properties["dogId"]["description"] == "The dog to rename."
    assert kennel["dogs/remove"].parameters["required"] == ["dogId"]


def test_a_name_in_the_path_that_no_parameter_has_is_a_required_string(kennel):
    assert kennel["dogs/photo"].parameters["properties"]["dogId"] == {"type": "string"}


def test_names_that_providers_refuse_are_written_in_letters_they_take(kennel):
    places = kennel["dogs/list"].call["arguments"]
    assert places["filter_age"]["name"] == "filter[age]"


def test_credentials_are_no_arguments(kennel):
    names = kennel["dogs/list"].parameters["properties"]
    assert "X-Trace" in names
    assert not {"X-Key", "Authorization"} & set(names)


def test_the_properties_of_a_body_stand_beside_the_parameters(kennel):
    parameters = kennel["dogs/create"].parameters
    assert list(parameters["properties"]) == ["name", "country", "mother", "vet"]
    assert parameters["required"] == ["name"]
    assert parameters["properties"]["country"]["enum"] == ["NO", "SE"]


def test_a_body_whose_name_is_taken_stays_in_one_piece(kennel):
    tool = kennel["dogs/rename"]
    assert list(tool.parameters["properties"]) == ["dogId", "name", "body"]
    assert tool.call["arguments"]["body"] == {"in": "body", "whole": True}


def test_a_body_that_is_no_object_is_an_argument_of_its_own(kennel):
    body = kennel["tags/replace"].parameters["properties"]["body"]
    assert body == {
        "type": "array",
        "items": {"type": "string"},
        "description": "All tags, in order.",
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
        {"oneOf": [{"type": "object", "properties": {"a": {}}}, {"type": "string"}]},
        {"type": "object", "properties": {}},
    ],
)
def test_an_object_that_is_more_than_its_properties_stays_in_one_piece(read, schema):
    body = {"requestBody": {"content": {"application/json": {"schema": schema}}}}
    (tool,) = read(document({"/a": {"post": body}})).tools
    assert list(tool.parameters["properties"]) == ["body"]


def test_a_parameter_named_body_leaves_the_body_another_name(read):
    operation = {
        "parameters": [{"name": "body", "in": "query", "schema": {}}],
        "requestBody": {"content": {"application/json": {"schema": {"type": "array"}}}},
    }
    (tool,) = read(document({"/a": {"post": operation}})).tools
    assert list(tool.parameters["properties"]) == ["body", "request_body"]


def test_parameters_of_one_name_in_two_places_are_both_there(read):
    listed = [{"name": "id", "in": where, "schema": {}} for where in ("query", "header")]
    (tool,) = read(document({"/a": {"get": {"parameters": listed}}})).tools
    assert tool.call["arguments"] == {
        "id": {"in": "query"},
        "header_id": {"in": "header", "name": "id"},
    }


def test_a_file_beside_the_document_is_read_where_it_is_referred_to(kennel):
    vet = kennel["dogs/create"].parameters["properties"]["vet"]
    assert vet["properties"]["phone"]["description"] == "With the country code."


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("#/components/schemas/Nobody", "leads nowhere"),
        ("https://elsewhere.example/all.json#/Pet", "references to the web are not followed"),
        ("http://127.0.0.1:1/all.json", "references to the web are not followed"),
        ("../../../../../../etc/hostname", "outside"),
        ("file:///etc/hostname", "outside"),
        ("nothing.yaml#/Pet", "No such file"),
        (7, "wanted a string"),
    ],
)
def test_a_reference_that_may_not_be_followed_costs_its_operation_only(
    read, caplog, reference, problem
):
    broken = {"parameters": [{"name": "q", "in": "query", "schema": {"$ref": reference}}]}
    paths = {"/broken": {"get": broken}, "/whole": {"get": {}}}
    with caplog.at_level(logging.WARNING, "langchain_toolrag"):
        listing = read(document(paths))
    assert [tool.name for tool in listing.tools] == ["get_whole"]
    assert listing.source.tools == 1
    assert "GET /broken is left out" in caplog.text
    assert problem in caplog.text


def test_a_link_beside_the_document_does_not_lead_out_of_its_folder(read, tmp_path, caplog):
    outside = tmp_path.parent / "outside.json"
    outside.write_text('{"type": "string"}')
    (tmp_path / "inside.json").symlink_to(outside)
    operation = {"parameters": [{"name": "q", "in": "query", "schema": {"$ref": "inside.json"}}]}
    read(document({"/a": {"get": operation}, "/b": {"get": {}}}))
    assert "GET /a is left out" in caplog.text


def test_if_all_operations_are_broken_the_first_fault_is_raised_with_its_place(read):
    paths = {"/a": {"get": {"parameters": [{"name": "q", "in": "nowhere"}]}}}
    with pytest.raises(SourceError, match=r"paths > /a > get > parameters > 0: 'in': .*'nowhere'"):
        read(document(paths))


def test_the_second_operation_of_one_id_is_left_out_and_both_are_named(read, caplog):
    paths = {"/a": {"get": {"operationId": "same"}}, "/b": {"get": {"operationId": "same"}}}
    assert len(read(document(paths)).tools) == 1
    assert "GET /b is left out" in caplog.text
    assert "that of GET /a too" in caplog.text


@pytest.mark.parametrize(
    ("operation", "problem"),
    [
        ("nothing", "wanted an object, found 'nothing'"),
        ({"tags": "dogs"}, "'tags'"),
        ({"parameters": {}}, "wanted a list"),
        ({"parameters": [{"in": "query"}]}, "'name': field required"),
        ({"parameters": [{"$ref": "#/paths/~1a/get/parameters/0"}]}, "without end"),
        (
            {"parameters": [{"name": "x", "in": "path", "style": "matrix", "schema": {}}]},
            "style 'matrix'",
        ),
        ({"requestBody": {"content": {"application/json": {"schema": 5}}}}, "found 5"),
        ({"requestBody": []}, "wanted an object"),
        ({"servers": [{"url": "https://uploads.example"}]}, "server of its own"),
    ],
)
def test_a_broken_operation_is_left_out_with_a_warning(read, caplog, operation, problem):
    paths = {"/a/{x}": {"get": operation}, "/a": {"get": operation}, "/b": {"get": {}}}
    tools = read(document(paths)).tools
    assert "get_b" in [tool.name for tool in tools]
    assert problem in caplog.text


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"swagger": "2.0", "paths": {"/a": {}}}, "found Swagger 2.0, wanted.*Convert it"),
        ({"openapi": "4.0.0", "paths": {"/a": {}}}, "openapi: '4.0.0', wanted"),
        ({"openapi": "3.2.0", "paths": {"/a": {}}}, "openapi: '3.2.0', wanted"),
        ({"hello": "world"}, "openapi: None, wanted"),
        ({"openapi": "3.0.0"}, "no paths"),
        ({"openapi": "3.0.0", "paths": ["/a"]}, "at paths: wanted an object"),
        ({"openapi": "3.0.0", "servers": SERVERS, "paths": {"/a": {}}}, "no operations"),
        ({"openapi": "3.0.0", "servers": SERVERS, "paths": {"x-a": {"get": {}}}}, "no operations"),
        ("just words", "found 'just words'"),
        ("[1, 2]", "found .1, 2."),
        ("", "found None"),
        ('{"openapi": "3.0.0",\n "paths": [', "line 2: not JSON"),
        ("openapi: 3.0.0\npaths:\n  a: [", "line 4: not JSON and not YAML"),
        ("openapi: 3.0.0\na: !!python/object/apply:os.getcwd []", "line 2: not JSON and not YAML"),
        ('{"a": ' * 100_000, "cannot be read|not JSON"),
    ],
)
def test_what_is_not_an_openapi_3_document_is_an_error_that_says_so(read, content, problem):
    with pytest.raises(SourceError, match=problem) as caught:
        read(content)
    assert caught.value.source.endswith("small.json")


def test_a_file_that_is_not_there_or_not_text_is_an_error(tmp_path):
    with pytest.raises(SourceError, match="No such file"):
        read_openapi(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SourceError, match="not UTF-8"):
        read_openapi(tmp_path / "bytes.yaml")


def test_the_server_is_filled_with_its_defaults():
    assert read_openapi(DATA / "kennel.yaml").source.base_url == "https://eu.kennel.example/v2"


def test_a_base_url_that_is_given_wins_and_counts_as_named_by_the_user():
    source = read_openapi(DATA / "kennel.yaml", base_url="http://localhost:8000/api/").source
    assert source.base_url == "http://localhost:8000/api"
    assert source.connection["address_given"] is True


def test_an_operation_on_a_server_of_its_own_is_taken_where_the_user_names_the_server(read):
    paths = {"/a": {"servers": [{"url": "https://other.example"}], "get": {}}}
    assert read(document(paths), base_url="https://mine.example").tools


@pytest.mark.parametrize(
    ("servers", "problem"),
    [
        ([], "names no server.*--base-url"),
        ([{"url": "/v1"}], "'/v1' is no whole URL.*--base-url"),
        ([{"url": "ftp://files.example"}], "no whole URL"),
        (
            [{"url": "https://{region}.example"}],
            "servers > 0: .*'region' has no default",
        ),
        ([{"url": "https://user:secret@api.example"}], "--header"),
        ([{"url": "https://api.example/?token=1"}], "--header"),
        ([{"url": "https://api.example:port/"}], "no URL"),
        ([{}], "'url': field required"),
        ("https://api.example", "wanted a list"),
    ],
)
def test_a_document_that_does_not_say_where_its_operations_are_is_an_error(read, servers, problem):
    with pytest.raises(SourceError, match=problem) as caught:
        read(document({"/a": {"get": {}}}, servers=servers))
    assert "secret" not in str(caught.value)


def test_a_document_at_a_url_is_fetched_and_its_relative_server_joined():
    with served(document({"/a": {"get": {}}}, servers=[{"url": "../v2"}])) as url:
        source = read_openapi(f"{url}/docs/openapi.json?key=hidden").source
    assert source.base_url == f"{url}/v2"
    assert source.origin == f"{url}/docs/openapi.json"
    assert source.connection["address_given"] is True


def test_a_public_host_is_not_trusted_to_lead_to_a_private_address_later(monkeypatch):
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *given, **more: [(0, 0, 0, "", ("8.8.8.8", 0))]
    )
    content = json.dumps(document({"/a": {"get": {}}}, servers=[]))
    monkeypatch.setattr(openapi_document, "_fetched", lambda url: content)
    source = read_openapi("http://api.example/openapi.json").source
    assert source.base_url == "http://api.example"
    assert source.connection["address_given"] is False


def test_a_document_at_a_url_without_servers_means_its_own_host():
    with served(document({"/a": {"get": {}}}, servers=[])) as url:
        assert read_openapi(f"{url}/docs/openapi.json").source.base_url == url


def test_a_document_at_a_url_that_names_another_host_does_not_make_it_the_users():
    with served(document({"/a": {"get": {}}}, servers=[{"url": "http://10.0.0.1"}])) as url:
        assert read_openapi(f"{url}/openapi.json").source.connection["address_given"] is False


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("moved", "redirects to http://169.254.169.254/latest/: give that URL"),
        ("missing", "HTTP 404"),
        ("picture", "not UTF-8"),
        ("broken", "RemoteProtocolError"),
    ],
)
def test_a_url_that_gives_no_document_is_an_error_without_its_query(path, problem):
    with echo_server() as server, pytest.raises(SourceError, match=problem) as caught:
        read_openapi(f"{server.url}/{path}?key=hidden")
    assert "hidden" not in str(caught.value)


def test_a_document_larger_than_any_is_not_read_to_its_end(monkeypatch):
    from langchain_toolrag.catalogue.sources.openapi import document as openapi_document

    monkeypatch.setattr(openapi_document, "_MOST_BYTES", 100_000)
    with echo_server() as server, pytest.raises(SourceError, match="more than"):
        read_openapi(f"{server.url}/large")


def test_a_reference_of_a_document_at_a_url_does_not_read_files(caplog):
    operation = {"parameters": [{"$ref": "file:///etc/hostname"}]}
    with served(document({"/a": {"get": operation}, "/b": {"get": {}}})) as url:
        assert len(read_openapi(f"{url}/openapi.json").tools) == 1
    assert "GET /a is left out" in caplog.text


@pytest.mark.parametrize(
    ("scheme", "connection"),
    [
        (
            {"type": "http", "scheme": "bearer"},
            {"headers": {"Authorization": "Bearer ${SMALL_TOKEN}"}},
        ),
        ({"type": "oauth2"}, {"headers": {"Authorization": "Bearer ${SMALL_TOKEN}"}}),
        (
            {"type": "http", "scheme": "Basic"},
            {"headers": {"Authorization": "Basic ${SMALL_BASIC}"}},
        ),
        (
            {"type": "apiKey", "in": "header", "name": "X-Key"},
            {"headers": {"X-Key": "${SMALL_MY_KEY}"}},
        ),
        ({"type": "apiKey", "in": "query", "name": "k"}, {"query": {"k": "${SMALL_MY_KEY}"}}),
        (
            {"type": "apiKey", "in": "cookie", "name": "sid"},
            {"headers": {"Cookie": "sid=${SMALL_MY_KEY}"}},
        ),
        ({"type": "mutualTLS"}, {}),
    ],
)
def test_credentials_are_noted_by_the_name_of_a_variable(read, scheme, connection):
    components = {"securitySchemes": {"myKey": scheme, "unused": scheme}}
    paths = {"/a": {"get": {"security": [{"myKey": []}]}}}
    noted = dict(read(document(paths, components=components)).source.connection)
    assert noted.pop("address_given") is False
    assert noted == connection


@pytest.mark.parametrize(
    ("filename", "options", "name"),
    [
        ("pet-store.v3.json", {}, "pet-store-v3"),
        ("openapi.json", {}, "small-thing"),
        ("openapi.json", {"name": "mine"}, "mine"),
    ],
)
def test_a_source_is_named_by_its_user_its_file_or_its_title(read, filename, options, name):
    listing = read(document({"/a": {"get": {}}}), filename, **options)
    assert listing.source.name == name
    assert listing.tools[0].id == f"{name}/get_a"


@pytest.mark.parametrize("name", ["", "a/b", " a", "a\nb"])
def test_a_name_that_would_break_ids_is_an_error(read, name):
    with pytest.raises(SourceError, match="a source cannot be named"):
        read(document({"/a": {"get": {}}}), name=name)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("http://[::1", "is no URL"),
        ("http://a..b/openapi.json", "cannot be fetched"),
        ("http://", "cannot be fetched"),
    ],
)
def test_an_address_that_is_none_is_an_error(location, message):
    with pytest.raises(SourceError, match=message):
        read_openapi(location)


@pytest.mark.parametrize("host", ["[::1", "host:99999"])
def test_a_base_url_that_is_none_is_an_error_that_shows_no_password(read, host):
    with pytest.raises(SourceError, match="the server is no URL") as caught:
        read(document({"/a": {"get": {}}}), base_url=f"https://me:hunter2secret@{host}/")
    assert "hunter2secret" not in str(caught.value)


def in_yaml(default, before=""):
    """Return a document whose one argument has this default."""
    query = f"{{name: q, in: query, schema: {{type: array, default: {default}}}}}"
    return (
        "openapi: 3.1.0\ninfo: {title: t, version: '1'}\nservers: [{url: 'https://a.example'}]\n"
        f"{before}paths: {{/x: {{get: {{parameters: [{query}]}}}}}}"
    )


def test_an_alias_stands_for_its_value(read):
    listing = read(in_yaml("[*one, *one]", "x-one: &one {a: 1}\n"), "a.yaml")
    assert listing.tools[0].parameters["properties"]["q"]["default"] == [{"a": 1}, {"a": 1}]


def test_aliases_that_grow_without_bound_are_refused_before_they_do(read):
    levels = ["x-0: &a0 [x, x, x, x, x, x, x, x, x]\n"]
    levels += [f"x-{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)]
    with pytest.raises(SourceError, match="its aliases"):
        read(in_yaml("*a9", "".join(levels)), "a.yaml")


def test_so_are_those_that_hold_themselves(read):
    with pytest.raises(SourceError, match="its aliases"):
        read(in_yaml("&a [*a]"), "a.yaml")


@pytest.mark.parametrize("value", ["!!binary aGVsbG8=", "!!set {a, b}", "!!timestamp 2020-01-01"])
def test_what_json_does_not_have_is_an_error_that_names_the_line(read, value):
    with pytest.raises(SourceError, match=r"line 4: .*could not determine a constructor"):
        read(in_yaml(value), "a.yaml")


def test_yaml_and_json_of_one_document_read_alike(read):
    content = document({"/a": {"get": {"parameters": [{"name": "q", "in": "query"}]}}})
    assert read(yaml.safe_dump(content), "small.yaml").tools == read(content).tools


def test_importing_the_package_imports_no_parser():
    code = "import sys, langchain_toolrag.toolrag; sys.exit('openapi_pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@contextmanager
def served(content):
    """Yield the URL of a server whose paths that end in `openapi.json` are one document."""
    with echo_server() as server:

        class Documents(server.RequestHandlerClass):
            def _openapi(self, parts, body):
                self._answer(200, json.dumps(content).encode())

        server.RequestHandlerClass = Documents
        yield server.url


@pytest.mark.parametrize(
    ("schema", "binary"),
    [
        ({"type": "string", "format": "binary"}, True),
        ({"type": "string", "contentMediaType": "application/octet-stream"}, True),
        ({"type": "array", "items": {"type": "string", "format": "binary"}}, True),
        ({"type": "string", "format": "byte"}, None),
        ({"type": "string"}, None),
    ],
)
def test_a_file_of_a_form_is_marked_to_be_sent_as_bytes(read, schema, binary):
    form = {"type": "object", "properties": {"file": schema}}
    body = {"requestBody": {"content": {"multipart/form-data": {"schema": form}}}}
    (tool,) = read(document({"/a": {"post": body}})).tools
    assert tool.call["arguments"]["file"].get("binary") is binary
