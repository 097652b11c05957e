import pytest

from langchain_toolrag.catalogue.catalogue import build_catalogue
from langchain_toolrag.linting.schemas import schema_troubles

STRING = {"type": "string"}


def found(parameters, name="pay", description="Pays an invoice of a customer"):
    tool = {"name": name, "description": description, "parameters": parameters}
    return {finding.code: finding for finding in schema_troubles(build_catalogue([tool]))}


def object_of(properties, **more):
    return {"type": "object", "properties": properties, **more}


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        object_of({}),
        object_of({"city": STRING, "days": {"type": "integer"}}),
        object_of({"unit": {"enum": ["c", "f"]}, "when": {"anyOf": [STRING, {"type": "null"}]}}),
        object_of({"place": {"$ref": "#/$defs/Place"}}, **{"$defs": {"Place": STRING}}),
        object_of({"x": {"type": "number"}, "y": {"type": "number"}}),
        object_of({"data": STRING, "city": STRING}),
        object_of({"input": {**STRING, "description": "The invoice number"}}),
    ],
)
def test_a_plain_schema_has_no_troubles(parameters):
    assert found(parameters) == {}


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"type": "array", "items": STRING}, "has type 'array'"),
        ({"properties": {"city": STRING}}, "has no type"),
    ],
)
def test_a_schema_that_is_no_object_is_found(parameters, said):
    assert said in found(parameters)["schema-not-object"].message


def test_required_names_that_are_not_there_are_found():
    parameters = object_of({"city": STRING}, required=["city", "contry", 3])
    assert "contry and 3" in found(parameters)["schema-required"].message


@pytest.mark.parametrize("required", [None, "city", [], True])
def test_what_is_no_list_of_required_names_is_passed_over(required):
    assert "schema-required" not in found(object_of({"city": STRING}, required=required))


def test_arguments_without_a_type_are_found_at_every_level():
    inner = object_of({"street": {"description": "The street"}})
    parameters = object_of({"city": {}, "flag": True, "address": inner})
    message = found(parameters)["schema-untyped"].message
    assert message == "no type is given for city, flag and address.street"


def test_four_arguments_that_nothing_explains_are_found():
    parameters = object_of(dict.fromkeys(("origin", "destination", "date", "airline"), STRING))
    message = found(parameters, "book", "Books a flight")["schema-undescribed"].message
    assert message == "nothing explains origin, destination, date and 1 more"


@pytest.mark.parametrize(
    "explained",
    [
        {**STRING, "description": "Where from"},
        {"type": "string", "enum": ["BER", "CDG"]},
        {"type": "string", "format": "date"},
        {"type": "boolean"},
    ],
)
def test_arguments_that_something_explains_are_not_counted(explained):
    bare = dict.fromkeys(("destination", "date", "airline"), STRING)
    assert "schema-undescribed" not in found(object_of({**bare, "origin": explained}))


def test_arguments_that_the_description_names_are_explained():
    parameters = object_of(dict.fromkeys(("origin", "destination", "date", "airline"), STRING))
    text = "Books a flight of an airline from an origin to a destination on a date"
    assert found(parameters, "book", text) == {}


def test_half_of_the_arguments_may_go_without_a_description():
    bare = dict.fromkeys(("origin", "destination", "date", "airline"), STRING)
    described = {f"via_{n}": {**STRING, "description": "A stop"} for n in range(4)}
    assert found(object_of({**bare, **described})) == {}


@pytest.mark.parametrize("name", ["q", "arg1", "param2", "value", "__arg1", "x"])
def test_an_argument_whose_name_says_nothing_is_found(name):
    parameters = object_of({name: STRING})
    finding = found(parameters, "find_customers")["schema-vague-parameter"]
    assert finding.message == f"nothing says what to give for {name}"


@pytest.mark.parametrize("name", ["data", "input", "payload", "params"])
def test_a_name_for_anything_is_found_where_it_is_the_only_argument(name):
    assert "schema-vague-parameter" in found(object_of({name: STRING}))
    assert found(object_of({name: STRING, "city": STRING})) == {}


def test_more_than_fifty_values_are_too_many():
    def listing(count):
        return object_of({"currency": {**STRING, "enum": [f"C{n:02}" for n in range(count)]}})

    assert found(listing(50)) == {}
    assert "currency lists 51 values" in found(listing(51))["schema-long-enum"].message


def test_more_than_four_levels_are_too_deep():
    four = STRING
    for name in ("dd", "cc", "bb", "aa"):
        four = object_of({name: four})
    five = object_of({"top": {"type": "array", "items": four}})
    assert found(four) == {}
    assert found(five)["schema-deep"].message == "top.aa.bb.cc.dd is 5 levels deep, more than 4"


def test_a_schema_of_more_than_a_thousand_tokens_is_large():
    described = {f"filter_{n}": {**STRING, "description": "A filter " * 10} for n in range(50)}
    assert "tokens, more than 1,000" in found(object_of(described))["schema-large"].message


def test_a_long_description_does_not_make_the_schema_large():
    assert found(object_of({"city": STRING}), description="Pays an invoice. " * 400) == {}


def test_a_schema_that_refers_to_itself_is_read_to_an_end():
    node = object_of(
        {"label": STRING, "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}
    )
    assert found(object_of({"tree": {"$ref": "#/$defs/Node"}}, **{"$defs": {"Node": node}})) == {}
