import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from langchain_toolrag.catalogue.sources.openapi import arguments as openapi_arguments
from langchain_toolrag.catalogue.sources.openapi.listing import read_openapi
from langchain_toolrag.catalogue.sources.openapi.text import parse_text
from langchain_toolrag.errors import SourceError


@pytest.fixture
def schema_of(tmp_path):
    """Read a schema as that of a query parameter, with others to refer to."""

    def reading(schema, **schemas):
        parameter = {"name": "q", "in": "query", "schema": schema}
        return body_or_parameter(tmp_path, {"parameters": [parameter]}, schemas)["q"]

    return reading


@pytest.fixture
def arguments_of(tmp_path):
    """Read the arguments of an operation whose JSON body has a schema."""

    def reading(schema, **schemas):
        body = {"content": {"application/json": {"schema": schema}}, "required": True}
        return body_or_parameter(tmp_path, {"requestBody": body}, schemas)

    return reading


def body_or_parameter(folder, operation, schemas):
    content = {
        "openapi": "3.0.0",
        "servers": [{"url": "https://api.example"}],
        "paths": {"/a": {"post": operation}},
        "components": {"schemas": schemas},
    }
    path = folder / "one.json"
    path.write_text(json.dumps(content))
    return read_openapi(path).tools[0].parameters["properties"]


def ref(name):
    return {"$ref": f"#/components/schemas/{name}"}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": False}, {"type": "string"}),
        (
            {"type": "string", "enum": ["a"], "nullable": True},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        (
            {"oneOf": [{"type": "string"}], "nullable": True, "description": "d"},
            {"description": "d", "anyOf": [{"oneOf": [{"type": "string"}]}, {"type": "null"}]},
        ),
        ({"nullable": True, "description": "any"}, {"description": "any"}),
        ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
        ({"minimum": 1, "exclusiveMinimum": False}, {"minimum": 1}),
        ({"maximum": 1, "exclusiveMaximum": True}, {"exclusiveMaximum": 1}),
        ({"exclusiveMaximum": 5}, {"exclusiveMaximum": 5}),
        ({"type": "string", "example": "x"}, {"type": "string", "examples": ["x"]}),
        ({"examples": [1, 2]}, {"examples": [1, 2]}),
        ({"example": "x" * 500}, {}),
        ({"type": "string", "format": "byte"}, {"type": "string", "contentEncoding": "base64"}),
        (
            {"type": "string", "format": "binary"},
            {"type": "string", "format": "binary", "contentEncoding": "base64"},
        ),
        (
            {"type": "string", "contentMediaType": "image/png"},
            {
                "type": "string",
                "contentMediaType": "image/png",
                "format": "binary",
                "contentEncoding": "base64",
            },
        ),
        ({"type": "string", "contentMediaType": "text/html"},) * 2,
        ({"type": "string", "contentMediaType": "image/png", "contentEncoding": "base64"},) * 2,
        ({"xml": {}, "externalDocs": {}, "discriminator": {}, "x-internal": 1}, {}),
        (True, {}),
        (False, {"not": {}}),
        (
            {"type": "array", "items": {"nullable": True, "type": "integer"}},
            {"type": "array", "items": {"type": ["integer", "null"]}},
        ),
        ({"type": "object", "additionalProperties": True},) * 2,
        ({"anyOf": [{"type": "string"}, {"type": "null"}]},) * 2,
    ],
)
def test_what_openapi_says_in_its_own_way_is_said_as_json_schema_says_it(schema_of, said, meant):
    assert schema_of(said) == meant


def test_parts_that_must_all_hold_are_merged_where_that_says_the_same(schema_of):
    parts = [ref("Named"), {"properties": {"age": {"type": "integer"}}, "required": ["age"]}]
    named = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    assert schema_of({"allOf": parts, "description": "A dog."}, Named=named) == {
        "type": "object",
        "description": "A dog.",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
    }


def test_parts_that_disagree_stay_apart(schema_of):
    parts = [{"type": "string", "minLength": 1}, {"type": "string", "minLength": 3}]
    assert schema_of({"allOf": parts}) == {"allOf": parts}


def test_a_property_that_two_parts_narrow_differently_keeps_them_apart(schema_of):
    parts = [{"properties": {"a": {"minimum": n}}} for n in (1, 2)]
    assert schema_of({"allOf": parts}) == {"allOf": parts}


def test_a_reference_may_have_a_description_of_its_own(schema_of):
    pet = {"type": "string", "description": "Any pet."}
    assert schema_of({**ref("Pet"), "description": "The one."}, Pet=pet) == {
        "type": "string",
        "description": "The one.",
    }


def test_of_a_cycle_the_description_stays(schema_of):
    tree = {
        "type": "object",
        "description": "A tree.",
        "properties": {"left": ref("Tree"), "many": {"type": "array", "items": ref("Tree")}},
    }
    assert schema_of(ref("Tree"), Tree=tree) == {
        "type": "object",
        "description": "A tree.",
        "properties": {
            "left": {"description": "A tree."},
            "many": {"type": "array", "items": {"description": "A tree."}},
        },
    }


@pytest.mark.parametrize(
    "schemas",
    [
        {"A": ref("A")},
        {"A": ref("B"), "B": ref("A")},
        {"A": {"allOf": [ref("A")]}},
        {"A": {"anyOf": [ref("B")]}, "B": {"not": ref("A")}},
    ],
)
def test_schemas_that_are_nothing_but_a_cycle_end(schema_of, schemas):
    assert isinstance(schema_of(ref("A"), **schemas), dict)


def test_a_cycle_of_yaml_anchors_which_json_cannot_write_is_an_error(tmp_path):
    text = (
        "openapi: 3.0.0\nservers: [{url: 'https://a.example'}]\npaths:\n  /a:\n    get:\n"
        "      parameters:\n      - {name: q, in: query, schema: &s {allOf: [*s], items: *s}}\n"
    )
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(SourceError, match="its aliases"):
        read_openapi(tmp_path / "a.yaml")


def test_properties_that_only_answers_have_are_not_asked_for(arguments_of):
    identified = {"properties": {"id": {"readOnly": True}}}
    schema = {
        "allOf": [identified, {"required": ["id", "name"], "properties": {"name": {}}}],
        "properties": {
            "owner": {"type": "object", "properties": {"id": {"readOnly": True}, "mail": {}}}
        },
    }
    found = arguments_of(schema)
    assert found == {"name": {}, "owner": {"type": "object", "properties": {"mail": {}}}}


def test_what_only_answers_have_is_not_asked_for_in_an_alternative_either(schema_of):
    pet = {"type": "object", "properties": {"id": {"readOnly": True}, "name": {}}}
    assert schema_of({"anyOf": [pet]}) == {
        "anyOf": [{"type": "object", "properties": {"name": {}}}]
    }


def test_schemas_nested_as_deep_as_json_may_be_cost_their_operation_at_most(tmp_path):
    deep = '{"allOf": [' * 400 + "{}" + "]}" * 400
    operations = {
        "post": {"parameters": [{"name": "q", "in": "query", "schema": "deep"}]},
        "get": {},
    }
    content = {"openapi": "3.1.0", "servers": [{"url": "https://a.example"}]}
    text = json.dumps({**content, "paths": {"/a": operations}})
    (tmp_path / "deep.json").write_text(text.replace('"deep"', deep))
    assert read_openapi(tmp_path / "deep.json").tools[-1].name == "get_a"


def nested(levels):
    schema = {"type": "string", "description": "d" * 40}
    for _ in range(levels):
        schema = {"type": "object", "description": "level", "properties": {"a": schema, "b": {}}}
    return schema


def depth_of(schema):
    return 1 + max(map(depth_of, schema["properties"].values())) if "properties" in schema else 0


def test_what_is_nested_deeper_than_eight_levels_is_cut_and_keeps_its_description(schema_of):
    assert depth_of(schema_of(nested(5))) == 5
    cut = schema_of(nested(12))
    assert depth_of(cut) == 8
    for _ in range(8):
        cut = cut["properties"]["a"]
    assert cut == {"type": "object", "description": "level"}


def test_a_tool_too_long_loses_its_deepest_levels_first(arguments_of):
    wide = {"type": "object", "properties": {f"p{n}": nested(3) for n in range(40)}}
    found = arguments_of(wide)
    assert len(json.dumps(found)) <= openapi_arguments.MOST_CHARACTERS
    assert list(found) == [f"p{n}" for n in range(40)]
    assert {depth_of(schema) for schema in found.values()} == {2}


def test_arguments_too_long_by_themselves_lose_what_describes_them(arguments_of):
    described = {"type": "string", "description": "d" * 200, "enum": ["a", "b"]}
    found = arguments_of({"type": "object", "properties": {f"p{n}": described for n in range(99)}})
    assert len(found) == 99
    assert found["p0"] == {"type": "string", "enum": ["a", "b"]}


def test_references_that_multiply_are_cut_before_they_fill_memory(arguments_of):
    names = [f"S{n}" for n in range(12)]
    schemas = {
        name: {"type": "object", "properties": {f"{i}": ref(below) for i in range(30)}}
        for name, below in zip(names, [*names[1:], "Leaf"], strict=True)
    }
    found = arguments_of(ref("S0"), Leaf={"type": "string"}, **schemas)
    assert len(json.dumps(found)) <= openapi_arguments.MOST_CHARACTERS


plain = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "integer", "object", "array"]),
        "description": st.sampled_from(["", "Said of it."]),
        "nullable": st.booleans(),
        "exclusiveMinimum": st.booleans(),
        "minimum": st.integers(0, 9),
        "example": st.integers(),
        "readOnly": st.booleans(),
        "enum": st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, unique=True),
        "$ref": st.sampled_from(["#/components/schemas/A", "#/components/schemas/B"]),
    },
)
schemas = st.recursive(
    plain,
    lambda inner: st.builds(
        lambda base, extra: {**base, **extra},
        plain,
        st.fixed_dictionaries(
            {},
            optional={
                "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
                "items": inner,
                "allOf": st.lists(inner, min_size=1, max_size=2),
                "anyOf": st.lists(inner, min_size=1, max_size=2),
                "required": st.lists(st.sampled_from("abc"), unique=True),
            },
        ),
    ),
    max_leaves=8,
)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(schemas, schemas, schemas)
def test_whatever_a_document_says_the_arguments_are_a_json_schema_that_stands_alone(
    tmp_path_factory, query, first, second
):
    parameter = {"name": "q", "in": "query", "schema": query}
    body = {"content": {"application/json": {"schema": second}}}
    operation = {"parameters": [parameter], "requestBody": body}
    found = body_or_parameter(tmp_path_factory.getbasetemp(), operation, {"A": first, "B": second})
    Draft202012Validator.check_schema({"properties": found})
    text = json.dumps(found)
    assert '"$ref"' not in text
    assert '"nullable"' not in text
    assert '"readOnly": true' not in text or '"q"' in text


def test_yaml_is_read_as_its_version_1_2_says():
    text = (
        "a: NO\nb: on\nc: true\nd: 2020-01-01\n200: x\nyes: 1\ne: 012\nf: 1:20\ng: [=, ~, 1e3, -3]"
    )
    assert parse_text(text, "here") == {
        "a": "NO",
        "b": "on",
        "c": True,
        "d": "2020-01-01",
        "200": "x",
        "yes": 1,
        "e": "012",
        "f": "1:20",
        "g": ["=", None, 1000.0, -3],
    }


def test_yaml_merge_keys_work():
    assert parse_text("a: &x {q: 1}\nb:\n  <<: *x\n  z: False", "here")["b"] == {
        "q": 1,
        "z": False,
    }


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_reads_as_json(value):
    assert parse_text(json.dumps(value), "here") == value


@pytest.mark.parametrize("text", ["? [a]\n: b", "a: *unknown", "a: !x b"])
def test_a_fault_in_yaml_names_its_line(text):
    with pytest.raises(SourceError) as caught:
        parse_text(text, "here")
    assert caught.value.line == 1
