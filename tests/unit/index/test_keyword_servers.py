"""Queries that are names and nothing else, or a server; and ToolSearch's own examples."""

import pytest
from documents import make_document
from fakes import HashingEmbeddings, make_tool
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_toolrag import ToolRAG
from langchain_toolrag.index.keyword import KeywordIndex, parse_query, server_key

GET_ME = make_document("get_me", "The user's profile.", "github")
LIST_ISSUES = make_document("github_list_issues", "Lists issues.", "github")
FORECAST = make_document("mcp__weather__get_forecast", "Says what comes.")
GITHUB = make_document("github", "Opens the site.", "browser")
WEATHER = make_document("weather", "Current weather.")
PUMP = make_document("pump_on", "Starts the pump.", "Green-House")
DOCUMENTS = (GET_ME, LIST_ISSUES, FORECAST, PUMP)

laws = settings(derandomize=True, deadline=None, max_examples=200)


def index_of(*documents):
    return KeywordIndex().with_tools(documents)


def is_names(query, *documents):
    return index_of(*documents or DOCUMENTS).is_names(parse_query(query))


def server(query, *documents):
    return index_of(*documents or DOCUMENTS).server(parse_query(query))


@pytest.mark.parametrize(
    "query",
    [
        "get_me",
        "Get Me",
        "get_me, listIssues",
        "get_me list-issues",
        "`get_me`; `list_issues`.",
        "github/get_me",
        "mcp__weather__get_forecast",
        "select:get_me",
        "select:whatever",
        "select:",
        "+get_me",
    ],
)
def test_names_and_nothing_else_are_names(query):
    assert is_names(query)


@pytest.mark.parametrize(
    "query",
    [
        "",
        " , ",
        "get_me please",
        "get_me and list_issues",
        "get_me no_such_tool",
        "no_such_tool",
        "get me list issues",
        "github",
        "me",
    ],
)
def test_anything_beside_names_makes_it_a_request(query):
    assert not is_names(query)


def test_among_several_a_name_of_one_small_word_is_taken_for_a_word():
    assert is_names("weather", WEATHER, GET_ME)
    assert not is_names("weather get_me", WEATHER, GET_ME)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("github", "github"),
        ("GitHub", "github"),
        ("mcp__github", "github"),
        ("mcp__github__", "github"),
        ("`github`:", "github"),
        ("weather", "weather"),
        ("mcp__weather", "weather"),
        ("green house", "greenhouse"),
        ("mcp__Green-House", "greenhouse"),
    ],
)
def test_the_whole_query_may_name_a_server(query, wanted):
    assert server(query) == wanted


@pytest.mark.parametrize(
    "query",
    ["", "mcp__", "mcp__unknown", "hub", "github issues", "+github", "select:github", "get_me"],
)
def test_what_is_not_just_a_server_names_none(query):
    assert server(query) == ""


def test_a_tool_named_like_a_server_goes_before_it_but_for_the_prefix():
    assert server("github", GITHUB, GET_ME) == ""
    assert server("mcp__github", GITHUB, GET_ME) == "github"


@pytest.mark.parametrize("name", ["convert", "mcp__", "mcp____x"])
def test_a_tool_without_a_server_makes_no_server(name):
    document = make_document(name)
    assert server_key(document) == ""
    assert server("``", document) == server("mcp__", document) == ""


def test_the_server_a_tool_was_given_goes_before_the_one_in_its_name():
    document = make_document("mcp__weather__get_forecast", "", "Met Office")
    assert server_key(document) == "metoffice"
    assert server("weather", document) == ""


def test_a_server_goes_with_its_last_tool():
    one = index_of(GET_ME, LIST_ISSUES).without({0: GET_ME})
    assert one.server(parse_query("github")) == "github"
    none = one.without({1: LIST_ISSUES})
    assert none.server(parse_query("github")) == ""
    assert not none.is_names(parse_query("get_me"))


NAMES = ["get_me", "listIssues", "mcp__github__get_me", "mcp__jira__get_me", "github", "jira"]
QUERIES = [*NAMES, "select:get_me", "get_me list_issues", "mcp__github", "mcp__jira", "Git-Hub"]
documents = st.builds(
    make_document, st.sampled_from(NAMES), st.just(""), st.sampled_from([None, "jira", "Git-Hub"])
)
changes = st.lists(st.tuples(st.booleans(), st.lists(documents, max_size=3)), max_size=6)


@laws
@given(changes)
def test_a_changed_index_answers_as_one_that_is_built_anew(changes):
    index, slots = KeywordIndex(), {}
    for adds, some in changes:
        if adds:
            slots.update(enumerate(some, index.slots))
            index = index.with_tools(some)
        else:
            leaving = dict(list(slots.items())[: len(some)])
            index = index.without(leaving)
            slots = {slot: document for slot, document in slots.items() if slot not in leaving}
    anew = index_of(*slots.values())
    order = list(slots)
    assert index.servers == anew.servers
    for query in map(parse_query, QUERIES):
        assert index.server(query) == anew.server(query)
        assert index.is_names(query) == anew.is_names(query)
        assert index.exact(query) == {order[row] for row in anew.exact(query)}


class TestToolSearchsExamples:
    @pytest.fixture
    def rag(self):
        tools = [
            make_tool("Jupyter_ExecuteCell", "Runs code in a cell.", search_hint="notebook kernel"),
            make_tool("mcp__weather__get_forecast", "Says whether it will rain."),
            make_tool("Read", "Reads a file."),
            make_tool("read_notes", "Reads what was written in a notebook.", server="paper"),
        ]
        return ToolRAG(tools, embeddings=HashingEmbeddings())

    def scores(self, rag, query, **given):
        return {hit.id: hit.score for hit in rag.keyword_search(query, **given)}

    def test_a_hint_brings_the_notebook_tool_with_four_points(self, rag):
        found = self.scores(rag, "notebook")
        assert found == {"Jupyter_ExecuteCell": 4, "paper/read_notes": 2}
        assert next(iter(found)) == "Jupyter_ExecuteCell"

    def test_a_servers_word_brings_the_forecast_with_twelve_points(self, rag):
        assert self.scores(rag, "weather") == {"mcp__weather__get_forecast": 12}

    def test_the_points_of_several_words_add_up(self, rag):
        assert self.scores(rag, "weather forecast rain") == {"mcp__weather__get_forecast": 26}
        assert self.scores(rag, "read notes") == {"paper/read_notes": 20}

    def test_a_required_word_takes_the_others_out(self, rag):
        assert self.scores(rag, "+notebook written") == {
            "Jupyter_ExecuteCell": 4,
            "paper/read_notes": 4,
        }
        assert self.scores(rag, "+written notebook") == {"paper/read_notes": 4}

    def test_select_loads_by_name_and_leaf_name(self, rag):
        assert set(self.scores(rag, "select:Read,get_forecast")) == {
            "Read",
            "mcp__weather__get_forecast",
        }

    def test_a_bare_name_is_a_forgotten_select(self, rag):
        assert set(self.scores(rag, "read")) == {"Read"}

    def test_five_are_returned_unless_more_are_asked_for(self):
        tools = [make_tool(f"mcp__weather__part_{n}") for n in range(9)]
        rag = ToolRAG(tools, embeddings=HashingEmbeddings())
        assert len(rag.keyword_search("weather parts +weather")) == 5
        assert len(rag.keyword_search("weather parts +weather", k=7)) == 7

    def test_nothing_is_embedded(self, rag):
        rag.keyword_search("notebook weather")
        assert rag.tool_index.embedder.embeddings.queries == []
