import pytest
from fakes import make_tool
from langchain_core.tools import StructuredTool, tool
from pydantic import BaseModel, Field

from langchain_toolrag.catalogue.content import content_of

SCHEMA = {"type": "object", "properties": {"code": {"type": "string"}}}


def definition(**fields):
    return {"name": "track", "description": "Tracks.", "parameters": SCHEMA, **fields}


class Args(BaseModel):
    """The arguments."""

    code: str = Field(description="On the label.")


class OtherArgs(BaseModel):
    """The arguments."""

    code: str = Field(description="On the bill.")


def with_model(model):
    return StructuredTool(name="track", description="Tracks.", args_schema=model, func=str)


def test_equal_definitions_have_one_key():
    assert content_of(definition()).key == content_of(definition()).key is not None


def test_equal_tools_have_one_key():
    one, other = make_tool("track", server="post"), make_tool("track", server="post")
    assert content_of(one).key == content_of(other).key is not None


def test_a_key_does_not_depend_on_what_else_holds_the_texts():
    text = "".join(["Tra", "cks."])
    held = [text, text]
    assert content_of(definition(description=text)).key == content_of(definition()).key
    assert held


@pytest.mark.parametrize(
    "other",
    [
        definition(description="Tracks it."),
        definition(parameters={**SCHEMA, "required": ["code"]}),
        definition(server="post"),
        definition(tags=["write"]),
        definition(strict=True),
        definition(strict=1),
    ],
    ids=["description", "schema", "server", "tags", "strict", "number"],
)
def test_every_field_of_a_definition_counts(other):
    keys = {content_of(each).key for each in (definition(), definition(strict=None), other)}
    assert len(keys) == 3


def renamed(each):
    each.name = "trace"


def described(each):
    each.description = "Follows."


def on_another_server(each):
    each.metadata = {"server": "post"}


def tagged(each):
    each.tags = ["write"]


def with_other_arguments(each):
    each.args_schema = {"properties": {"number": {"type": "string"}}}


def with_another_function(each):
    each.func = make_tool("else").invoke


def with_extras(each):
    each.extras = {"search_hint": "parcel"}


@pytest.mark.parametrize(
    "change",
    [
        renamed,
        described,
        on_another_server,
        tagged,
        with_other_arguments,
        with_another_function,
        with_extras,
    ],
)
def test_every_change_of_a_tool_changes_its_key(change):
    changing = make_tool("track", "Tracks.")
    before = content_of(changing).key
    change(changing)
    assert content_of(changing).key not in (None, before)


def test_a_description_within_the_arguments_counts():
    assert content_of(with_model(Args)).key != content_of(with_model(OtherArgs)).key
    assert content_of(with_model(Args)).key == content_of(with_model(Args)).key


def track(code: str) -> str:
    """Tracks a parcel."""
    return code


@pytest.mark.parametrize(
    "untold",
    [
        track,
        Args,
        definition(tags={object()}),
        make_tool("track", client=object()),
    ],
    ids=["function", "class", "definition with an object", "tool with an object"],
)
def test_what_cannot_be_told_has_no_key_and_may_refer(untold):
    assert content_of(untold) == (None, True)


def test_a_definition_nested_beyond_all_bounds_has_no_key():
    schema = {}
    for _ in range(20_000):
        schema = {"properties": {"a": schema}}
    assert content_of(definition(parameters=schema)).key is None


def test_a_definition_that_holds_itself_has_no_key():
    endless = definition()
    endless["parameters"] = endless
    assert content_of(endless).key is None


@pytest.mark.parametrize(
    ("given", "may_refer"),
    [
        (definition(), False),
        (definition(parameters={"properties": {"a": {"$ref": "#/$defs/A"}}}), True),
        (tool(track), False),
    ],
    ids=["definition", "definition with a reference", "tool"],
)
def test_it_says_whether_a_schema_may_refer(given, may_refer):
    assert content_of(given).may_refer is may_refer
