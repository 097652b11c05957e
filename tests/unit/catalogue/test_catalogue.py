import json
import logging
import math
import re

import pytest
from fakes import make_tool
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel

from langchain_toolrag.catalogue.catalogue import (
    approximate_tokens,
    build_catalogue,
    extended,
    reduced,
)
from langchain_toolrag.errors import DuplicateToolError, InvalidToolError

PARAMETERS = {"type": "object", "properties": {"code": {"type": "string"}}}
BROKEN = {"type": "object", "properties": {"filter": {"$ref": "#/$defs/Missing"}}}
WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
GOOGLE = {"google_search": {}}


class Track(BaseModel):
    """Tracks a parcel."""

    code: str


def track(code: str) -> str:
    """Tracks a parcel."""
    return code


def with_schema(name, schema):
    return StructuredTool(name=name, description="Tracks.", args_schema=schema, func=track)


def mcp(name, schema=PARAMETERS, **fields):
    return {"name": name, "description": "Tracks.", "inputSchema": schema, **fields}


def names(catalogue):
    return [entry.document.bound_name for entry in catalogue]


def only(catalogue):
    (entry,) = catalogue
    return entry


def test_tools_keep_their_order(tools):
    catalogue = build_catalogue(tools)
    assert [entry.tool for entry in catalogue] == tools
    assert len(catalogue) == len(catalogue.documents) == 12


def test_a_catalogue_may_be_empty():
    catalogue = build_catalogue([])
    assert (len(catalogue), catalogue.documents, catalogue.tokens) == (0, (), 0)


def test_what_is_no_tool_is_an_error():
    with pytest.raises(InvalidToolError):
        build_catalogue([track, "track"])


def test_two_tools_of_one_name_are_an_error_that_names_both_origins():
    with pytest.raises(DuplicateToolError, match=r"server work.* server home") as caught:
        build_catalogue([make_tool("send", server="work"), make_tool("send", server="home")])
    assert caught.value.name == "send"
    assert caught.value.origins == ("server work", "server home")


def test_two_tools_of_one_name_without_servers_are_an_error():
    with pytest.raises(DuplicateToolError, match="'send'"):
        build_catalogue([make_tool("send", "a"), make_tool("send", "b")])


def test_two_tools_of_one_id_are_an_error_even_where_servers_are_put_in_front():
    twins = [make_tool("send", "a", server="work"), make_tool("send", "b", server="work")]
    with pytest.raises(DuplicateToolError, match="work/send"):
        build_catalogue(twins, on_duplicate="prefix")


@pytest.mark.parametrize("tool", [make_tool("send"), mcp("send"), WEB_SEARCH, track], ids=str)
def test_the_same_object_twice_counts_once(tool):
    catalogue = build_catalogue([tool, tool])
    assert len(catalogue) + len(catalogue.passed_through) == 1


def test_servers_are_put_in_front_of_a_name_that_two_have():
    twins = [make_tool("send", server="work"), make_tool("send", server="home")]
    catalogue = build_catalogue([*twins, make_tool("read")], on_duplicate="prefix")
    assert names(catalogue) == ["work_send", "home_send", "read"]
    assert [entry.document.name for entry in catalogue] == ["send", "send", "read"]
    assert [entry.bound.name for entry in catalogue] == ["work_send", "home_send", "read"]
    assert [entry.tool for entry in catalogue][:2] == twins


def test_a_name_that_only_one_tool_has_gets_no_server_in_front():
    catalogue = build_catalogue([make_tool("send", server="work")], on_duplicate="prefix")
    assert names(catalogue) == ["send"]


def test_one_of_two_tools_of_a_name_may_be_without_a_server():
    catalogue = build_catalogue(
        [make_tool("send"), make_tool("send", server="home")], on_duplicate="prefix"
    )
    assert names(catalogue) == ["send", "home_send"]


def test_a_server_in_front_leaves_a_name_that_providers_take():
    twins = [make_tool("send", server=server) for server in ("büro mail", "s" * 80)]
    for name in names(build_catalogue(twins, on_duplicate="prefix")):
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)


def test_a_prefixed_name_gives_way_to_the_tool_that_bears_it():
    clashing = [
        make_tool("send", server="work"),
        make_tool("send", server="home"),
        make_tool("work_send"),
    ]
    catalogue = build_catalogue(clashing, on_duplicate="prefix")
    bound = {entry.document.id: entry.document.bound_name for entry in catalogue}
    assert bound["work_send"] == "work_send"
    assert bound["home/send"] == "home_send"
    assert re.fullmatch("work_send_[0-9a-f]{8}", bound["work/send"])


@pytest.mark.parametrize("order", [1, -1])
def test_a_mapped_name_gives_way_to_the_tool_that_bears_it(order):
    tools = [make_tool("notes.create"), make_tool("notes__create")][::order]
    bound = {entry.document.name: entry.document.bound_name for entry in build_catalogue(tools)}
    assert bound["notes__create"] == "notes__create"
    assert re.fullmatch("notes_create_[0-9a-f]{8}", bound["notes.create"])


def test_two_names_mapped_to_one_are_bound_apart():
    catalogue = build_catalogue([make_tool("a.b"), make_tool("a/b"), make_tool("a:b")])
    assert len(set(names(catalogue))) == 3


@pytest.mark.parametrize("name", ["notes.create", "水泵", "send email"])
def test_two_tools_of_one_name_that_must_be_mapped_are_an_error_too(name):
    with pytest.raises(DuplicateToolError, match=re.escape(name)):
        build_catalogue([make_tool(name, server="work"), make_tool(name, server="home")])


def test_the_servers_of_two_tools_of_one_mapped_name_are_put_in_front():
    twins = [make_tool("notes.create", server=server) for server in ("work", "home")]
    catalogue = build_catalogue(twins, on_duplicate="prefix")
    assert names(catalogue) == ["work_notes__create", "home_notes__create"]


@pytest.mark.parametrize("name", ["admin.status", "a b", "x" * 80, "水泵"])
def test_the_users_own_tool_is_never_renamed(name):
    tool = make_tool(name)
    before = tool.model_dump()
    entry = only(build_catalogue([tool]))
    assert entry.tool is tool
    assert tool.model_dump() == before
    assert entry.bound.name == entry.document.bound_name != name


def test_the_users_own_dict_is_never_changed():
    definition = mcp("admin.status")
    before = json.dumps(definition)
    assert only(build_catalogue([definition])).tool is definition
    assert json.dumps(definition) == before


def test_a_tool_with_a_name_that_providers_take_is_bound_as_it_is():
    tool = make_tool("status")
    assert only(build_catalogue([tool])).bound is tool


def test_a_tool_bound_under_another_name_still_works():
    bound = only(build_catalogue([make_tool("admin.status")])).bound
    assert bound.invoke({"query": "x"}) == "admin.status [('query', 'x')]"


def größe(code: str) -> str:
    """Says how large a parcel is."""
    return code.upper()


async def agröße(code: str) -> str:
    """Says how large a parcel is."""
    return code.upper()


def test_a_function_bound_under_another_name_still_works():
    assert only(build_catalogue([größe])).bound.invoke({"code": "a"}) == "A"


async def test_an_asynchronous_function_bound_under_another_name_still_works():
    bound = only(build_catalogue([agröße])).bound
    assert bound.coroutine is agröße
    assert await bound.ainvoke({"code": "a"}) == "A"


DEFINED = {
    "tool": make_tool("track", "Tracks.", ("code",)),
    "tool with a mapped name": make_tool("parcel.track", "Tracks.", ("code",)),
    "function": track,
    "function with a mapped name": größe,
    "pydantic class": Track,
    "MCP definition": mcp("track"),
    "MCP definition with a mapped name": mcp("parcel.track"),
    "MCP definition with a title": mcp("track", title="Track it"),
    "Anthropic definition": {"name": "track", "input_schema": PARAMETERS},
    "flat definition": {"name": "track", "parameters": PARAMETERS, "server": "parcels"},
    "nested definition": convert_to_openai_tool(track),
    "nested definition with a mapped name": {
        "type": "function",
        "function": {"name": "parcel.track", "parameters": PARAMETERS},
    },
    "definition without a type": {"function": {"name": "track", "parameters": PARAMETERS}},
}


@pytest.mark.parametrize("tool", DEFINED.values(), ids=DEFINED)
def test_everything_bound_is_a_definition_that_providers_take(tool):
    entry = only(build_catalogue([tool]))
    converted = convert_to_openai_tool(entry.bound)
    assert converted["type"] == "function"
    assert converted["function"]["name"] == entry.document.bound_name
    assert list(converted["function"]["parameters"]["properties"]) == ["code"]


def test_an_mcp_definition_keeps_its_schema_when_bound():
    schema = {**PARAMETERS, "$defs": {"Kept": {"type": "string"}}}
    bound = only(build_catalogue([mcp("track", schema)])).bound
    assert convert_to_openai_tool(bound)["function"]["parameters"] == schema


def test_a_definition_is_bound_without_the_fields_that_are_ours():
    nested = {**convert_to_openai_tool(track), "server": "parcels", "id": "7"}
    assert set(only(build_catalogue([nested])).bound) == {"type", "function"}


@pytest.mark.parametrize("given", [WEB_SEARCH, GOOGLE, {"type": "web_search_preview"}], ids=str)
def test_a_providers_own_tool_is_passed_through(given):
    catalogue = build_catalogue([given, track])
    assert catalogue.passed_through == (given,)
    assert catalogue.passed_through[0] is given
    assert names(catalogue) == ["track"]


@pytest.mark.parametrize(
    "broken",
    [
        with_schema("broken", BROKEN),
        mcp("broken", BROKEN),
        {"name": "broken", "parameters": BROKEN},
    ],
    ids=["tool", "MCP definition", "flat definition"],
)
def test_a_tool_with_a_broken_reference_is_left_out_with_a_warning_that_names_it(broken, caplog):
    with caplog.at_level(logging.WARNING, "langchain_toolrag"):
        catalogue = build_catalogue([make_tool("a"), broken, make_tool("z")])
    assert names(catalogue) == ["a", "z"]
    assert "Missing" in catalogue.rejected["broken"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "'broken'" in caplog.text


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "array", "items": {"type": "string"}},
        {"$ref": "#/$defs/Root", "$defs": {"Root": PARAMETERS}},
        {
            "properties": {"node": {"$ref": "#/$defs/Node"}},
            "$defs": {"Node": {"properties": {"next": {"$ref": "#/$defs/Node"}}}},
        },
        {"properties": {"properties": {"type": "object"}, "type": {"type": "string"}}},
        {"properties": {"config": {}, "self": {}, "class": {}, "run_manager": {}}},
        {"properties": {f"field_{number}": {"type": "string"} for number in range(500)}},
    ],
    ids=["no arguments", "array", "reference", "recursion", "keywords", "reserved", "500"],
)
def test_a_tool_with_an_odd_schema_is_bound(schema):
    entry = only(build_catalogue([with_schema("odd", schema)]))
    assert convert_to_openai_tool(entry.bound)["function"]["name"] == "odd"


def test_a_schema_nested_beyond_all_bounds_takes_no_other_tool_with_it():
    schema = {}
    for _ in range(20_000):
        schema = {"properties": {"a": schema}}
    catalogue = build_catalogue([with_schema("deep", schema), mcp("deeper", schema), track])
    assert names(catalogue) == ["track"]
    assert set(catalogue.rejected) == {"deep", "deeper"}


@pytest.mark.parametrize("name", ["send", "work_send", "missing"])
def test_a_name_that_two_tools_bear_finds_neither(name):
    twins = [make_tool("send", server="work"), make_tool("send", server="home")]
    catalogue = build_catalogue(twins, on_duplicate="prefix")
    assert catalogue.id_of(name) == {"work_send": "work/send"}.get(name)


def test_a_tool_is_found_by_its_bound_name_and_by_its_own():
    catalogue = build_catalogue([make_tool("admin.status", server="ops")])
    assert catalogue.id_of("admin__status") == catalogue.id_of("admin.status") == "ops/admin.status"


def test_a_bound_name_is_found_before_another_tools_own_name():
    catalogue = build_catalogue([make_tool("notes.create"), make_tool("notes__create")])
    assert catalogue.id_of("notes__create") == "notes__create"
    assert catalogue.id_of("notes.create") == "notes.create"


def test_tokens_are_a_quarter_of_the_definitions_characters():
    definition = convert_to_openai_tool(track)
    assert approximate_tokens(track) == math.ceil(len(json.dumps(definition)) / 4)
    assert approximate_tokens(WEB_SEARCH) == math.ceil(len(json.dumps(WEB_SEARCH)) / 4)


def test_a_catalogues_tokens_are_those_of_its_tools(tools):
    catalogue = build_catalogue([*tools, WEB_SEARCH])
    assert catalogue.tokens == sum(approximate_tokens(tool) for tool in tools)


@pytest.mark.parametrize("tool", DEFINED.values(), ids=DEFINED)
def test_tokens_are_counted_of_what_is_bound(tool):
    entry = only(build_catalogue([tool]))
    assert entry.tokens == approximate_tokens(entry.bound)


def test_a_catalogue_cannot_be_changed():
    catalogue = build_catalogue([track])
    with pytest.raises(TypeError):
        catalogue.entries["other"] = None
    with pytest.raises(AttributeError):
        catalogue.passed_through = ()


def test_a_provider_tool_of_the_same_name_is_a_duplicate_too():
    clashing = [
        make_tool("web_search", server="mcp"),
        {"type": "web_search_1", "name": "web_search"},
    ]
    with pytest.raises(DuplicateToolError, match=r"web_search.*server mcp.*provider"):
        build_catalogue(clashing)
    (entry,) = build_catalogue(clashing, on_duplicate="prefix")
    assert entry.document.bound_name == "mcp_web_search"


class TestCalledNames:
    def catalogue(self):
        servers = ("github", "gitlab")
        tools = [make_tool("list_issues", "Lists issues.", server=server) for server in servers]
        return build_catalogue([*tools, make_tool("send_email")], on_duplicate="prefix")

    def test_a_name_that_one_tool_has_means_it(self):
        assert self.catalogue().called("send_email") == ("send_email",)
        assert self.catalogue().called("github_list_issues") == ("github/list_issues",)

    def test_a_name_that_several_share_may_mean_each_of_them(self):
        assert self.catalogue().id_of("list_issues") is None
        both = ("github/list_issues", "gitlab/list_issues")
        assert self.catalogue().called("list_issues") == both

    def test_a_name_that_no_tool_has_means_none(self):
        assert self.catalogue().called("list_pulls") == ()


class TestKnownCatalogue:
    def test_what_was_made_of_an_equal_tool_is_taken_and_the_new_object_bound(self, tools):
        twins = [tool.model_copy() for tool in tools]
        known = build_catalogue(tools)
        catalogue = build_catalogue(twins, known=known)
        pairs = list(zip(catalogue, known, strict=True))
        assert all(one.document is other.document for one, other in pairs)
        assert all(one.bound is twin for one, twin in zip(catalogue, twins, strict=True))
        assert catalogue.digest == known.digest

    def test_a_tool_that_was_changed_in_place_is_read_again(self):
        tool, definition = make_tool("track", "Tracks."), mcp("trace")
        known = build_catalogue([tool, definition])
        tool.description, definition["description"] = "Follows.", "Follows too."
        catalogue = build_catalogue([tool, definition], known=known)
        assert [each.description for each in catalogue.documents] == ["Follows.", "Follows too."]
        assert catalogue.digest != known.digest

    def test_a_schema_that_was_broken_in_place_is_left_out(self):
        definition = mcp("track", {"properties": {"code": {"type": "string"}}})
        known = build_catalogue([definition])
        definition["inputSchema"]["properties"]["code"] = {"$ref": "#/$defs/Missing"}
        assert "Missing" in build_catalogue([definition], known=known).rejected["track"]

    def test_a_schema_that_was_mended_in_place_is_in(self):
        definition = mcp("track", {"properties": {"code": {"$ref": "#/$defs/Missing"}}})
        known = build_catalogue([definition])
        definition["inputSchema"]["properties"]["code"] = {"type": "string"}
        assert names(build_catalogue([definition], known=known)) == ["track"]

    def test_a_tool_whose_bound_name_changes_is_bound_under_it(self):
        here, there = make_tool("send", server="work"), make_tool("send", server="home")
        known = build_catalogue([here], on_duplicate="prefix")
        catalogue = build_catalogue([here, there], on_duplicate="prefix", known=known)
        assert [entry.bound.name for entry in catalogue] == ["work_send", "home_send"]
        alone = build_catalogue([here], on_duplicate="prefix", known=catalogue)
        assert only(alone).bound is here


class TestExtending:
    def test_what_is_there_is_not_read_again(self):
        old = mcp("track")
        catalogue = build_catalogue([old])
        old["description"] = "Changed."
        more = extended(catalogue, [make_tool("trace")])
        assert names(more) == ["track", "trace"]
        assert more.entries["track"] is catalogue.entries["track"]
        assert names(catalogue) == ["track"]

    def test_what_shares_a_name_is_read_again(self):
        old = mcp("send", server="work")
        catalogue = build_catalogue([old], on_duplicate="prefix")
        old["description"] = "Changed."
        more = extended(catalogue, [make_tool("send", server="home")], on_duplicate="prefix")
        assert names(more) == ["work_send", "home_send"]
        assert more.documents[0].description == "Changed."

    def test_nothing_more_is_the_same_catalogue(self, tools):
        catalogue = build_catalogue(tools)
        assert extended(catalogue, []) is catalogue

    def test_a_tool_that_was_there_and_has_another_name_now_is_there_once(self):
        tool = make_tool("track")
        catalogue = build_catalogue([tool])
        tool.name = "trace"
        assert names(extended(catalogue, [tool])) == ["trace"]

    def test_a_broken_tool_is_left_out(self):
        catalogue = extended(build_catalogue([track]), [mcp("broken", BROKEN), make_tool("z")])
        assert names(catalogue) == ["track", "z"]
        assert list(catalogue.rejected) == ["broken"]
        assert len(catalogue.originals) == 3

    def test_a_tool_of_a_name_that_is_there_is_an_error(self, tools):
        with pytest.raises(DuplicateToolError, match="server weather, one from server other"):
            extended(build_catalogue(tools), [make_tool("get_weather", server="other")])


class TestReducing:
    def test_what_stays_is_not_read_again(self):
        tools = [mcp("track"), mcp("trace")]
        catalogue = build_catalogue(tools)
        tools[1]["description"] = "Changed."
        fewer = reduced(catalogue, ["track"])
        assert names(fewer) == ["trace"]
        assert fewer.entries["trace"] is catalogue.entries["trace"]
        assert fewer.id_of("track") is None
        assert names(catalogue) == ["track", "trace"]

    def test_the_last_of_a_name_needs_no_server_in_front_any_more(self):
        twins = [make_tool("send", server="work"), make_tool("send", server="home")]
        catalogue = build_catalogue(twins, on_duplicate="prefix")
        assert names(reduced(catalogue, ["work/send"], on_duplicate="prefix")) == ["send"]

    def test_a_name_is_free_again(self):
        catalogue = reduced(build_catalogue([mcp("track"), track_by_number]), ["track"])
        assert names(extended(catalogue, [make_tool("track")])) == ["track_by_number", "track"]


def track_by_number(number: int) -> int:
    """Tracks a parcel by its number."""
    return number
