import pytest
from fakes import make_catalogue, make_tool
from langchain_core.tools import StructuredTool

from langchain_toolrag.catalogue.catalogue import build_catalogue
from langchain_toolrag.selection.bindable import as_filter, bindable, tool_name, within
from langchain_toolrag.types import ToolFilter

WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
CODE = {"type": "code_interpreter"}
DEFINITION = {"type": "function", "function": {"name": "get_time", "parameters": {}}}


def get_weather():
    """A function with a catalogue tool's name."""


@pytest.fixture
def catalogue(tools):
    return build_catalogue([*tools, CODE])


def test_without_tools_the_whole_catalogue_can_be_bound_in_order(catalogue, tools):
    found = bindable(catalogue, None, None)
    assert list(found.tools.values()) == tools
    assert found.passed_through == (CODE,)
    assert found.filter is None


def test_the_tools_of_a_call_are_the_only_ones_that_can_be_bound(catalogue, tools):
    found = bindable(catalogue, tools[3:1:-1], None)
    assert list(found.tools) == ["calendar/list_calendar_events", "calendar/create_calendar_event"]
    assert found.passed_through == ()


def test_an_index_is_asked_only_for_what_the_call_has(catalogue, tools):
    within = bindable(catalogue, tools[:2], None).filter
    admitted = [document.name for document in catalogue.documents if within.admits(document)]
    assert admitted == ["get_weather", "get_forecast"]


def test_a_call_with_every_tool_restricts_nothing(catalogue, tools):
    assert bindable(catalogue, tools, None).filter is None


def test_the_filter_holds_together_with_the_tools_of_the_call(catalogue, tools):
    found = bindable(catalogue, tools[1:6], ToolFilter(servers=frozenset({"weather", "music"})))
    assert list(found.tools) == ["weather/get_forecast"]
    admitted = [document.id for document in catalogue.documents if found.filter.admits(document)]
    assert admitted == ["weather/get_forecast"]


def test_a_tool_that_the_filter_keeps_out_does_not_pass_through_either(catalogue, tools):
    found = bindable(catalogue, tools, lambda document: False)
    assert (dict(found.tools), found.passed_through) == ({}, ())


def test_other_tools_and_provider_tools_pass_through_in_order(catalogue, tools):
    other = make_tool("write_todos")
    given = [other, tools[0], WEB_SEARCH, DEFINITION, tools[1], len]
    assert bindable(catalogue, given, None).passed_through == (other, WEB_SEARCH, DEFINITION, len)


def test_the_objects_of_the_call_are_the_ones_bound(catalogue, tools):
    twin = tools[0].model_copy()
    assert bindable(catalogue, [twin], None).tools["weather/get_weather"] is twin


def test_a_function_is_known_by_its_name(catalogue):
    assert list(bindable(catalogue, [get_weather], None).tools) == ["weather/get_weather"]


def test_a_tool_whose_name_had_to_be_changed_is_bound_under_the_new_one():
    dotted = make_tool("ns.dotted", "With a dot.")
    found = bindable(build_catalogue([dotted]), [dotted], None)
    assert [tool.name for tool in found.tools.values()] == ["ns__dotted"]
    assert found.passed_through == ()


def test_a_tool_that_the_catalogue_rejected_does_not_pass_through(tools):
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/Missing"}}}
    broken = StructuredTool(name="broken", description="", args_schema=schema, func=str)
    found = bindable(build_catalogue([*tools, broken]), [broken, tools[0]], None)
    assert list(found.tools) == ["weather/get_weather"]
    assert found.passed_through == ()


def test_equal_tools_have_equal_digests_and_others_do_not(tools):
    def digest(given, of_call=None, filter=None):
        return bindable(build_catalogue(given), of_call, filter).digest

    assert digest(tools) == digest(make_catalogue()) == digest(tools, tools)
    changed = make_tool("get_weather", "Rewritten.", server="weather")
    others = {
        digest(tools),
        digest(tools[:-1]),
        digest([changed, *tools[1:]]),
        digest(tools, tools[:-1]),
        digest(tools, tools[1:]),
        digest(tools, filter=lambda document: document.server == "mail"),
    }
    assert len(others) == 6


def test_a_tool_that_shares_its_name_is_known_by_its_server():
    here, there = make_tool("ping", server="here"), make_tool("ping", server="there")
    catalogue = build_catalogue([here, there], on_duplicate="prefix")
    found = bindable(catalogue, [there], None)
    assert {key: tool.name for key, tool in found.tools.items()} == {"there/ping": "there_ping"}
    assert found.passed_through == ()


def test_a_provider_tool_with_a_catalogue_tools_name_passes_through(tools):
    twin = make_tool("web_search", "Searches the web.", server="mcp_search")
    catalogue = build_catalogue([*tools, twin])
    assert bindable(catalogue, [twin, WEB_SEARCH], None).passed_through == (WEB_SEARCH,)


@pytest.mark.parametrize("name", ["get_weather", "weather/get_weather"])
def test_a_tool_is_found_by_bound_name_or_id(catalogue, name):
    assert bindable(catalogue, None, None).id_of(name) == "weather/get_weather"


def test_names_that_cannot_be_bound_are_left_out(catalogue, tools):
    found = bindable(catalogue, tools[:1], None)
    assert found.ids(["nope", "get_weather", "send_email"]) == ["weather/get_weather"]


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        (make_tool("get_time"), "get_time"),
        (get_weather, "get_weather"),
        (DEFINITION, "get_time"),
        ({"name": "get_time", "description": ""}, "get_time"),
        (WEB_SEARCH, "web_search"),
        (CODE, ""),
        ({"name": None}, ""),
        (object(), ""),
    ],
)
def test_the_name_of_a_tool_is_read_where_its_kind_has_it(tool, name):
    assert tool_name(tool) == name


def test_a_function_becomes_a_filter(catalogue):
    made = as_filter(lambda document: document.server == "mail")
    assert [doc.name for doc in catalogue.documents if made.admits(doc)] == [
        "send_email",
        "search_email",
    ]


def test_a_filter_stays_what_it_is():
    given = ToolFilter(tags=frozenset({"beta"}))
    assert as_filter(given) is given
    assert as_filter(None) is None


@pytest.mark.parametrize(
    ("filter", "admitted"),
    [
        (None, ["mail/send_email", "music/play_song"]),
        (ToolFilter(servers={"mail"}), ["mail/send_email"]),
        (ToolFilter(ids={"music/play_song", "mail/search_email"}), ["music/play_song"]),
        (ToolFilter(ids=()), []),
        (as_filter(lambda document: document.name == "play_song"), ["music/play_song"]),
    ],
)
def test_a_filter_within_some_tools_lets_pass_those_that_it_lets_pass_itself(
    catalogue, filter, admitted
):
    made = within(["music/play_song", "mail/send_email", "gone"], filter)
    assert [doc.id for doc in catalogue.documents if made.admits(doc)] == admitted


def test_a_filter_within_some_tools_is_not_asked_about_others(catalogue):
    asked = []
    made = within(["music/play_song"], as_filter(lambda document: asked.append(document.id)))
    assert not any(made.admits(document) for document in catalogue.documents)
    assert asked == ["music/play_song"]


def test_a_filter_by_ids_holds_besides_its_others(catalogue):
    both = ToolFilter(servers={"mail"}, ids=["mail/send_email", "music/play_song"])
    assert [doc.id for doc in catalogue.documents if both.admits(doc)] == ["mail/send_email"]
    with pytest.raises(TypeError, match="ids is the string 'mail/send_email'; wanted a set"):
        ToolFilter(ids="mail/send_email")


@pytest.mark.parametrize("wrong", [{"servers": ["mail", None]}, {"tags": {7}}])
def test_servers_and_tags_are_strings(wrong):
    with pytest.raises(TypeError, match="wanted strings"):
        ToolFilter(**wrong)


def test_anything_else_is_no_filter():
    with pytest.raises(TypeError, match=r"filter is a str; wanted a ToolFilter or a function"):
        as_filter("weather")
