import copy
import re

from fakes import make_tool
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_toolrag.catalogue.catalogue import build_catalogue, extended, reduced
from langchain_toolrag.catalogue.document import document_of, identify
from langchain_toolrag.catalogue.names import bound_name, clean, comparable, split_words
from langchain_toolrag.catalogue.schema import argument_words
from langchain_toolrag.errors import DuplicateToolError

PROVIDERS_TAKE = re.compile(r"[a-zA-Z0-9_-]{1,64}")

laws = settings(derandomize=True, deadline=None, max_examples=300)

names = st.one_of(
    st.text(min_size=1, max_size=80),
    st.text("ab./:-_ ", min_size=1, max_size=8),
    st.sampled_from(["notes.create", "notes__create", "notes/create", "x" * 70, "水泵"]),
)
plain_words = st.lists(st.from_regex(r"[a-z]{2,6}", fullmatch=True), min_size=1, max_size=5)

KEYS = (
    "properties",
    "items",
    "$ref",
    "allOf",
    "anyOf",
    "enum",
    "const",
    "$defs",
    "not",
    "type",
    "a",
)
REFERENCES = ("#", "#/$defs/a", "#/allOf/0", "#/allOf/x", "#/properties/a", "a#/b", "#//")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(REFERENCES),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=25,
)
FIELDS = ("description", "title", "tags", "search_hint", "annotations", "metadata", "server", "id")
definitions = st.builds(
    lambda name, parameters, fields: {"name": name, "inputSchema": parameters, **fields},
    st.text(min_size=1, max_size=8).filter(str.strip),
    json_values,
    st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=4),
)


@laws
@given(names)
def test_every_name_gets_a_name_that_providers_take(name):
    assert PROVIDERS_TAKE.fullmatch(bound_name(name))


@laws
@given(names)
def test_a_bound_name_is_bound_as_it_is(name):
    assert bound_name(bound_name(name)) == bound_name(name)


@laws
@given(names)
def test_words_are_lower_case_without_white_space(name):
    for word in split_words(name):
        assert word
        assert word == word.lower()
        assert len(word.split()) == 1


@laws
@given(names)
def test_cleaning_a_name_does_not_change_its_words(name):
    assert split_words(clean(name)) == split_words(name)
    assert comparable(clean(name)) == comparable(name)


@laws
@given(plain_words)
def test_every_way_to_write_words_as_a_name_compares_equal(words):
    camel = words[0] + "".join(word.capitalize() for word in words[1:])
    spellings = (
        "_".join(words),
        "-".join(words),
        " ".join(words),
        ".".join(words),
        "/".join(words),
        camel,
        camel[0].upper() + camel[1:],
        "_".join(words).upper(),
        " ".join(words).title(),
    )
    assert {comparable(spelling) for spelling in spellings} == {"".join(words)}


@laws
@given(plain_words)
def test_words_are_the_same_in_snake_kebab_and_camel_case(words):
    camel = words[0] + "".join(word.capitalize() for word in words[1:])
    for spelling in ("_".join(words), "-".join(words), camel):
        assert split_words(spelling) == tuple(words)


@laws
@given(st.sets(names.filter(str.strip), min_size=1, max_size=8))
def test_tools_of_different_names_are_bound_under_different_names(different):
    catalogue = build_catalogue([{"name": name} for name in different])
    bound = [entry.document.bound_name for entry in catalogue]
    assert len(set(bound)) == len(different)
    assert all(PROVIDERS_TAKE.fullmatch(name) for name in bound)
    assert [catalogue.id_of(name) for name in bound] == [entry.document.id for entry in catalogue]


@laws
@given(st.sets(names.filter(str.strip), min_size=1, max_size=6))
def test_the_order_of_tools_does_not_change_their_bound_names(different):
    ordered = sorted(different)
    bound = [
        {entry.document.id: entry.document.bound_name for entry in build_catalogue(tools)}
        for tools in ([{"name": n} for n in ordered], [{"name": n} for n in reversed(ordered)])
    ]
    assert bound[0] == bound[1]


@laws
@given(json_values)
def test_any_json_can_be_read_as_a_schema(schema):
    found = argument_words(schema)
    for words in (found.names, found.values, found.descriptions):
        assert len(set(words)) == len(words)
        assert all(isinstance(word, str) for word in words)


@laws
@given(json_values)
def test_a_schema_behind_a_reference_names_what_it_names_itself(schema):
    behind = {"$ref": "#/$defs/Behind", "$defs": {"Behind": {"items": schema}}}
    directly = {"items": schema, "$defs": {"Behind": {"items": schema}}}
    assert argument_words(behind) == argument_words(directly)


@laws
@given(definitions)
def test_any_definition_with_a_name_is_a_tool(definition):
    document = document_of(definition)
    assert document.name == definition["name"]
    assert document.id == identify(definition)
    assert PROVIDERS_TAKE.fullmatch(document.bound_name)


BROKEN = {"properties": {"a": {"$ref": "#/$defs/Missing"}}}
SHARED_NAMES = ("send", "work_send", "notes.create", "notes/create", "notes__create", "work/send")


def _tool(kind, name, server, description, identity):
    if kind == "provider":
        return {"type": "web_search_1", "name": name}
    if kind == "tool":
        return make_tool(name, description, server=server)
    schema = BROKEN if kind == "broken" else {"properties": {"to": {"type": "string"}}}
    definition = {"name": name, "description": description, "parameters": schema}
    return {**definition, "server": server, "id": identity}


tools = st.builds(
    _tool,
    st.sampled_from(["definition", "definition", "tool", "broken", "provider"]),
    st.sampled_from(SHARED_NAMES) | st.from_regex(r"[a-z]{1,3}", fullmatch=True),
    st.sampled_from([None, "work", "home"]),
    st.sampled_from(["", "Sends it."]),
    st.sampled_from([None, None, "send", "a"]),
)
ways = st.sampled_from(["raise", "prefix"])


def told_by(catalogue):
    """All that can be asked of a catalogue."""
    documents = catalogue.documents
    names = {name for each in documents for name in (each.id, each.name, each.bound_name)}
    return (
        documents,
        [id(tool) for tool in catalogue.originals],
        [id(tool) for tool in catalogue.passed_through],
        [id(entry.tool) for entry in catalogue],
        [convert_to_openai_tool(entry.bound) for entry in catalogue],
        list(map(convert_to_openai_tool, catalogue.bound.values())),
        [(entry.runnable is None, entry.tokens) for entry in catalogue],
        (catalogue.digest, catalogue.tokens, dict(catalogue.rejected)),
        {name: (catalogue.id_of(name), catalogue.called(name)) for name in {*names, *SHARED_NAMES}},
    )


def outcome(make):
    try:
        return told_by(make())
    except DuplicateToolError:
        return DuplicateToolError


def catalogue_of(given, way):
    """A catalogue of tools; an example in which there is none is left out."""
    try:
        return build_catalogue(given, on_duplicate=way)
    except DuplicateToolError:
        assume(False)


@laws
@given(st.lists(tools, max_size=8), st.lists(tools, max_size=3), ways)
def test_an_extended_catalogue_is_the_one_made_of_all_tools(there, more, way):
    catalogue = catalogue_of(there, way)
    found = outcome(lambda: extended(catalogue, more, on_duplicate=way))
    assert found == outcome(lambda: build_catalogue([*there, *more], on_duplicate=way))


@laws
@given(st.lists(tools, max_size=8), ways, st.data())
def test_a_reduced_catalogue_is_the_one_made_of_the_tools_that_stay(there, way, data):
    catalogue = catalogue_of(there, way)
    ids = data.draw(st.sets(st.sampled_from(list(catalogue.entries) or [""])), "ids")
    assume("" not in ids)
    gone = {id(catalogue.entries[identity].tool) for identity in ids}
    staying = [tool for tool in catalogue.originals if id(tool) not in gone]
    found = told_by(reduced(catalogue, ids, on_duplicate=way))
    assert found == told_by(build_catalogue(staying, on_duplicate=way))


@laws
@given(st.lists(st.lists(tools, min_size=1, max_size=3), min_size=1, max_size=5), ways, st.data())
def test_a_catalogue_stays_the_same_however_it_came_to_be(steps, way, data):
    catalogue = build_catalogue([])
    for more in steps:
        try:
            catalogue = extended(catalogue, more, on_duplicate=way)
        except DuplicateToolError:
            continue
        leaving = data.draw(st.sampled_from([None, *catalogue.entries]), "leaving")
        catalogue = reduced(catalogue, [leaving] if leaving else [], on_duplicate=way)
    assert told_by(catalogue) == told_by(build_catalogue(catalogue.originals, on_duplicate=way))


@laws
@given(st.lists(tools, max_size=6), st.lists(tools, max_size=3), ways, st.data())
def test_a_catalogue_is_the_same_with_a_known_one_and_without(there, more, way, data):
    known = catalogue_of(there, way)
    others = [copy.deepcopy(tool) if isinstance(tool, dict) else tool for tool in there]
    for tool in others:
        if isinstance(tool, dict) and "parameters" in tool and data.draw(st.booleans(), "changed"):
            tool["parameters"]["properties"]["new"] = data.draw(st.sampled_from([{}, BROKEN]))
    given = data.draw(st.permutations([*others, *more]), "given")
    found = outcome(lambda: build_catalogue(given, on_duplicate=way, known=known))
    assert found == outcome(lambda: build_catalogue(given, on_duplicate=way))


@laws
@given(names, names)
def test_words_do_not_depend_on_what_white_space_parts_them_from(one, other):
    assert split_words(f"{one} {other}") == split_words(one) + split_words(other)
