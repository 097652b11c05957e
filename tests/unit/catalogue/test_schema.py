import pytest

from langchain_toolrag.catalogue.schema import ArgumentWords, argument_words

STRING = {"type": "string"}


def arguments(schema):
    return argument_words(schema).names


def test_arguments_come_in_the_order_of_the_schema():
    assert arguments({"properties": {"zone": STRING, "amount": STRING}}) == ("zone", "amount")


def test_outer_arguments_come_before_inner_ones():
    schema = {
        "properties": {
            "query": {"type": "object", "properties": {"courier": STRING}},
            "limit": {"type": "integer"},
        }
    }
    assert arguments(schema) == ("query", "limit", "courier")


def test_an_argument_name_is_given_once():
    inner = {"type": "object", "properties": {"name": STRING}}
    schema = {"properties": {"name": STRING, "sender": inner, "receiver": inner}}
    assert arguments(schema) == ("name", "sender", "receiver")


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": None, "required": None, "enum": None, "anyOf": None},
        {"properties": ["a", "b"]},
        {"type": "array", "items": STRING},
        {"type": "array", "items": True},
        {"$ref": None},
        None,
        True,
        "object",
        [],
    ],
)
def test_a_schema_that_names_no_arguments_has_none(schema):
    assert argument_words(schema) == ArgumentWords()


def test_arguments_may_be_named_like_schema_keywords():
    schema = {
        "type": "object",
        "properties": {
            "properties": {"type": "object"},
            "type": {"type": "string", "description": "kind of parcel"},
            "required": {"type": "boolean"},
            "description": STRING,
            "enum": {"type": "array"},
            "$ref": STRING,
            "items": {"type": "array", "items": {"properties": {"sku": STRING}}},
        },
    }
    assert arguments(schema) == (
        *("properties", "type", "required", "description", "enum", "$ref", "items"),
        "sku",
    )


def test_a_reference_is_followed():
    schema = {
        "properties": {"query": {"$ref": "#/$defs/ParcelQuery"}},
        "$defs": {"ParcelQuery": {"properties": {"tracking_code": STRING}}},
    }
    assert arguments(schema) == ("query", "tracking_code")


def test_a_schema_that_is_one_reference_is_followed():
    schema = {"$ref": "#/$defs/Root", "$defs": {"Root": {"properties": {"tracking_code": STRING}}}}
    assert arguments(schema) == ("tracking_code",)


def test_a_reference_may_point_into_a_list_and_escape_its_keys():
    schema = {
        "properties": {"a": {"$ref": "#/anyOf/0"}, "b": {"$ref": "#/$defs/x~1y~0z"}},
        "anyOf": [{"properties": {"listed": STRING}}],
        "$defs": {"x/y~z": {"properties": {"escaped": STRING}}},
    }
    assert set(arguments(schema)) == {"a", "b", "listed", "escaped"}


def test_definitions_that_nothing_refers_to_name_no_arguments():
    schema = {"properties": {"a": STRING}, "$defs": {"Unused": {"properties": {"b": STRING}}}}
    assert arguments(schema) == ("a",)


@pytest.mark.parametrize(
    "reference",
    [
        "#/$defs/Missing",
        "#/$defs/Missing/deeper",
        "#/properties/code/type/x",
        "#/anyOf/7",
        "#/anyOf/one",
        "#/anyOf/²",
        "#/anyOf/" + "9" * 5000,
        "https://example.com/schema.json",
        "other.json#/a",
        "",
        3,
    ],
    ids=lambda reference: str(reference)[:30] or "empty",
)
def test_a_reference_that_leads_nowhere_is_passed_over(reference):
    schema = {"properties": {"code": {"type": "string", "$ref": reference}}, "anyOf": [{}]}
    assert arguments(schema) == ("code",)


@pytest.mark.parametrize("reference", ["#", "#/", "#/$defs/Node"])
def test_a_schema_that_refers_to_itself_is_read_once(reference):
    node = {"properties": {"name": STRING, "children": {"items": {"$ref": reference}}}}
    assert arguments({**node, "$defs": {"Node": node}}) == ("name", "children")


def test_two_references_that_point_at_each_other_end():
    schema = {
        "$ref": "#/$defs/A",
        "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A", "properties": {"b": {}}}},
    }
    assert arguments(schema) == ("b",)


@pytest.mark.parametrize("composition", ["allOf", "anyOf", "oneOf", "prefixItems"])
def test_parts_of_a_composed_schema_are_read(composition):
    schema = {
        composition: [
            {"properties": {"a": STRING}},
            True,
            None,
            {"anyOf": [{"properties": {"b": STRING}}, False]},
        ]
    }
    assert arguments(schema) == ("a", "b")


def test_an_optional_argument_adds_no_words_of_the_schema_language():
    code = {"anyOf": [STRING, {"type": "null"}], "default": None, "title": "Code"}
    assert argument_words({"properties": {"code": code}}).names == ("code",)


@pytest.mark.parametrize("place", ["items", "additionalProperties", "not", "if", "then", "else"])
def test_a_schema_nested_in_an_argument_is_read(place):
    schema = {"properties": {"outer": {place: {"properties": {"inner": STRING}}}}}
    assert arguments(schema) == ("outer", "inner")


@pytest.mark.parametrize("allowed", [True, False])
def test_a_schema_may_be_a_boolean(allowed):
    schema = {"properties": {"a": allowed, "b": STRING}, "additionalProperties": allowed}
    assert arguments(schema) == ("a", "b")


def test_values_are_the_strings_of_enums_and_constants():
    schema = {
        "properties": {
            "carrier": {"enum": ["dhl", "bluedart", "dhl", None, 3]},
            "kind": {"const": "letter"},
            "fast": {"const": True},
        }
    }
    assert argument_words(schema).values == ("dhl", "bluedart", "letter")


def test_values_behind_a_reference_are_found():
    schema = {
        "properties": {"carrier": {"allOf": [{"$ref": "#/$defs/Carrier"}]}},
        "$defs": {"Carrier": {"enum": ["dhl", "fedex"]}},
    }
    assert argument_words(schema) == ArgumentWords(("carrier",), ("dhl", "fedex"))


def test_defaults_examples_and_titles_are_no_words():
    code = {
        "type": "string",
        "title": "Code",
        "description": "printed on the label",
        "default": "delete everything",
        "examples": ["drop table users"],
    }
    assert argument_words({"title": "Args", "properties": {"code": code}}) == ArgumentWords(
        names=("code",), descriptions=("printed on the label",)
    )


def test_what_is_said_of_arguments_is_read_at_every_level_and_once():
    inner = {"type": "string", "description": "street and number"}
    outer = {"description": "where to", "properties": {"street": inner, "lane": dict(inner)}}
    schema = {"description": "Send a parcel.", "properties": {"address": outer}}
    assert argument_words(schema).descriptions == ("where to", "street and number")


@pytest.mark.parametrize("description", [None, 7, "", "  ", ["where", "to"], {"en": "where"}])
def test_a_description_that_is_no_text_says_nothing(description):
    schema = {"properties": {"address": {"description": description}}}
    assert argument_words(schema).descriptions == ()


def test_argument_names_of_every_script_are_kept():
    assert arguments({"properties": {"城市": {}, "नाम": {}}}) == ("城市", "नाम")


def test_five_hundred_arguments_are_all_found():
    schema = {"properties": {f"field_{number:03}": STRING for number in range(500)}}
    assert arguments(schema) == tuple(f"field_{number:03}" for number in range(500))


def _nested(depth, wrap):
    schema = {"properties": {"innermost": STRING}}
    for _ in range(depth):
        schema = wrap(schema)
    return schema


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: {"properties": {"a": inner}},
        lambda inner: {"items": inner},
        lambda inner: {"allOf": [inner]},
    ],
    ids=["properties", "items", "allOf"],
)
def test_a_schema_of_any_depth_is_read_to_an_end(wrap):
    found = argument_words(_nested(50_000, wrap))
    assert "innermost" not in found.names
    assert found.values == ()


def test_a_schema_whose_references_multiply_is_read_to_an_end():
    levels = 40
    schema = {"$ref": "#/$defs/0", "$defs": {}}
    for level in range(levels):
        twice = [{"$ref": f"#/$defs/{level + 1}"}, {"$ref": f"#/$defs/{level + 1}"}]
        schema["$defs"][str(level)] = {"allOf": twice}
    schema["$defs"][str(levels)] = {"properties": {"last": STRING}}
    assert arguments(schema) == ("last",)
