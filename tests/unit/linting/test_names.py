import pytest
from documents import make_document
from fakes import make_tool

from langchain_toolrag.catalogue.catalogue import build_catalogue
from langchain_toolrag.linting.names import duplicate_names, renamed, vague_names


def tools_of(findings):
    return [finding.tool for finding in findings]


@pytest.mark.parametrize(
    "name",
    [
        "do_thing",
        "run",
        "tool_1",
        "function2",
        "myFunc",
        "api-call",
        "v1",
        "x",
        "get_42",
        "a1b2c3d4-55aa-4f3e-9a11-0f0f0f0f0f0f",
        "tool_3f9a2c7e",
        "🎵",
    ],
)
def test_a_name_of_empty_words_numbers_or_hashes_says_nothing(name):
    (finding,) = vague_names([make_document(name, "Plays a song")])
    assert finding.code == "vague-name"
    assert name in finding.message


@pytest.mark.parametrize(
    "name",
    ["get_weather", "search", "run_tests", "decode", "ipv4_lookup", "call_mum", "查", "发送"],
)
def test_a_name_with_one_word_that_says_something_is_fine(name):
    assert list(vague_names([make_document(name)])) == []


def test_a_server_does_not_make_up_for_a_name_that_says_nothing():
    assert tools_of(vague_names([make_document("get", server="linear")])) == ["linear/get"]


@pytest.mark.parametrize("name", ["a.b", "天气", "GET /me", "x" * 65])
def test_a_name_that_providers_refuse_is_found_with_the_one_the_model_sees(name):
    document = make_document(name)
    (finding,) = renamed([document])
    assert "providers refuse" in finding.message
    assert document.bound_name in finding.message


def test_a_name_of_64_characters_is_kept():
    assert list(renamed([make_document("x" * 64)])) == []


def test_a_tool_that_is_bound_under_its_id_as_all_are_is_not_renamed():
    tool = make_tool("get_weather", "Weather in a city.", server="weather")
    (document,) = build_catalogue([tool], on_duplicate="id").documents
    assert document.bound_name == "weather__get_weather"
    assert list(renamed([document])) == []


def test_one_name_on_three_servers_is_found_once_with_the_other_two():
    documents = [
        make_document("create_issue", server="github"),
        make_document("play_song"),
        make_document("create_issue", server="jira"),
        make_document("create_issue", server="linear"),
    ]
    (finding,) = duplicate_names(documents)
    assert finding.tool == "github/create_issue"
    assert finding.others == ("jira/create_issue", "linear/create_issue")
    assert "jira/create_issue and linear/create_issue" in finding.message
