import numpy as np
import pytest
from documents import make_document

from langchain_toolrag.index.keyword import KeywordIndex, parse_query

NOTEBOOK = make_document("Jupyter_ExecuteCell", "Runs code.", hint="notebook kernel")
FORECAST = make_document("mcp__weather__get_forecast", "Says what comes. Rain or sun.")
COMMENT = make_document("add_comment", "Writes a comment under a pull request.", "github")
GET_ME = make_document("get_me", "The user's profile.", "github")
LIST_ISSUES = make_document("github_list_issues", "Lists issues.", "github")
LIST_EVENTS = make_document("list_events", "Upcoming meetings.")


def index_of(documents):
    return KeywordIndex().with_tools(documents)


def points(query, *documents):
    return index_of(documents).points(parse_query(query)).tolist()


def exact(query, *documents):
    rows = index_of(documents).exact(parse_query(query))
    return {documents[row].id for row in rows}


@pytest.mark.parametrize(
    ("query", "document", "expected"),
    [
        ("weather", FORECAST, 12),
        ("forecast", FORECAST, 12),
        ("github", COMMENT, 12),
        ("comment", COMMENT, 10),
        ("list", LIST_EVENTS, 10),
        ("execute", NOTEBOOK, 10),
        ("notebook", NOTEBOOK, 4),
        ("meetings", LIST_EVENTS, 2),
        ("rain", FORECAST, 2),
        ("song", LIST_EVENTS, 0),
    ],
)
def test_a_word_scores_by_where_it_is_found(query, document, expected):
    assert points(query, document) == [expected]


def test_a_word_found_in_two_places_scores_the_higher_only():
    assert points("list", make_document("list", "List lists a list.", hint="list")) == [10]
    assert points("github", make_document("github_search", "GitHub", "github")) == [12]


def test_the_points_of_words_add_up():
    assert points("run code in a notebook cell", NOTEBOOK) == [2 + 4 + 10]


def test_words_are_whole_words():
    assert points("me", COMMENT, GET_ME) == [0, 10]
    assert points("fore", FORECAST) == [0]


def test_words_score_without_case():
    assert points("WEATHER Notebook", FORECAST, NOTEBOOK) == [12, 4]


def test_a_catalogue_may_be_empty():
    index = index_of([])
    query = parse_query("get_me +rain")
    assert index.points(query).shape == (0,)
    assert index.exact(query) == set()


@pytest.mark.parametrize(
    "query",
    [
        "list_events",
        "list-events",
        "listEvents",
        "ListEvents",
        "LIST_EVENTS",
        "List Events",
        "list events?",
        "list.events",
        " list_events ",
        "list\u200b_events",
        "please call list_events now",
        "use the `list_events` tool",
        'what does "listEvents" do?',
        "list-events, please",
        "(list_events)",
        "run **list_events**!",
        "select:list_events",
        "SELECT: listEvents ",
    ],
)
def test_a_name_is_exact_in_every_spelling(query):
    assert exact(query, LIST_EVENTS, GET_ME) == {"list_events"}


@pytest.mark.parametrize(
    "query",
    ["please list events", "my events list", "list_events_today", "list_event", "lists_events", ""],
)
def test_words_of_a_name_in_a_sentence_are_not_the_name(query):
    assert exact(query, LIST_EVENTS) == set()


@pytest.mark.parametrize(
    "query",
    [
        "list_events get_me add_comment",
        "first list_events, then getMe; and add-comment.",
        "`list_events` and `get_me` (or `add_comment`)",
        "select:list_events,get_me,add_comment",
        "select: list_events , get me,\nAddComment ",
        "list_events,get_me,add_comment",
    ],
)
def test_several_names_at_once_are_all_exact(query):
    documents = (LIST_EVENTS, GET_ME, COMMENT, FORECAST)
    assert exact(query, *documents) == {"list_events", "github/get_me", "github/add_comment"}


def test_a_name_in_a_text_without_spaces_is_exact():
    assert exact("请用list_events工具", LIST_EVENTS) == {"list_events"}


@pytest.mark.parametrize("name", ["水泵状态", "pompe_état", "पंप_स्थिति"])
def test_a_name_of_any_script_is_exact(name):
    assert exact(name, make_document(name), LIST_EVENTS) == {name}


def test_a_one_word_name_is_exact_only_where_it_is_the_whole_query():
    weather = make_document("weather")
    assert exact("weather", weather) == {"weather"}
    assert exact("Weather?", weather) == {"weather"}
    assert exact("the weather in Oslo", weather) == set()


@pytest.mark.parametrize(
    "query", ["list_issues", "github_list_issues", "github/github_list_issues", "select:listIssues"]
)
def test_a_name_is_exact_with_and_without_its_server(query):
    assert exact(query, LIST_ISSUES) == {"github/github_list_issues"}


@pytest.mark.parametrize(
    "query",
    [
        "mcp__github__get_me",
        "select:mcp__github__get_me",
        "mcp__github__getMe",
        "please call `mcp__github__get_me`!",
    ],
)
def test_a_servers_tool_answers_to_the_name_that_mcp_clients_give_it(query):
    assert exact(query, GET_ME, COMMENT) == {"github/get_me"}
    assert exact(query, make_document("get_me"), make_document("get_me", "", "gitlab")) == set()


def test_a_tool_that_is_so_named_itself_goes_before_one_that_only_answers_to_it():
    itself = make_document("mcp__github__get_me")
    assert exact("mcp__github__get_me", itself, GET_ME) == {itself.id}


@pytest.mark.parametrize(
    "query",
    [
        "mcp__green-house__green-house_pumps_list",
        "green-house_pumps_list",
        "select:pumps_list",
        "pumps list",
    ],
)
def test_a_server_named_twice_in_a_name_may_be_left_out(query):
    document = make_document("mcp__green-house__green-house_pumps_list")
    assert exact(query, document) == {document.id}


def test_a_leaf_name_that_two_servers_have_finds_both():
    issues = [
        make_document(f"{server}_create_issue", "", server) for server in ("github", "gitlab")
    ]
    found = exact("select:create_issue", *issues)
    assert found == {"github/github_create_issue", "gitlab/gitlab_create_issue"}


def test_a_tool_named_like_its_server_keeps_its_name():
    document = make_document("github", "", "github")
    assert exact("select:github", document, LIST_ISSUES) == {"github/github"}


def test_a_tool_is_exact_by_its_bound_name():
    document = make_document("pompe_état")
    assert exact(document.bound_name, document) == {"pompe_état"}


def test_a_parameter_named_like_another_tool_is_not_that_tool():
    other = make_document("archive", parameters=("list_events",))
    assert exact("list_events", other, LIST_EVENTS) == {"list_events"}


@pytest.mark.parametrize("query", ["select:", "select: , ,", "select:unknown", "select:``"])
def test_a_selection_of_nothing_known_finds_nothing(query):
    assert parse_query(query).selected is not None
    assert exact(query, LIST_EVENTS) == set()


def test_select_counts_at_the_start_only():
    query = parse_query("please select:list_events")
    assert query.selected is None


def test_the_text_of_a_selection_is_its_names():
    assert parse_query("select: list_events , `get_me`").text == "list_events get_me"


def test_the_text_of_a_request_has_no_operators():
    query = parse_query("+slack send +message")
    assert (query.text, query.required) == ("slack send message", ("slack", "message"))


@pytest.mark.parametrize("query", ["1+1", "a + b", "c++ code", "+1 for it", "+49 151", "a+b", "+"])
def test_a_plus_that_demands_no_word_is_left_alone(query):
    parsed = parse_query(query)
    assert (parsed.text, parsed.required) == (query, ())


def test_a_required_word_that_is_an_identifier_is_split():
    assert parse_query("+send_email, now").required == ("send", "email")


def test_a_tool_without_a_required_word_scores_nothing():
    documents = (GET_ME, LIST_ISSUES, LIST_EVENTS)
    assert points("list +issues", *documents) == [0, 20, 0]
    has = index_of(documents).has_required(parse_query("+github +lists"))
    assert has.tolist() == [False, True, False]


def test_without_required_words_every_tool_has_them_all():
    assert index_of([GET_ME, COMMENT]).has_required(parse_query("a")).all()


def test_a_required_word_may_stand_in_any_place_that_scores():
    documents = (FORECAST, NOTEBOOK, COMMENT, LIST_EVENTS)
    index = index_of(documents)
    words = ("weather", "notebook", "github", "meetings")
    found = [index.has_required(parse_query(f"+{word}")) for word in words]
    assert np.array_equal(found, np.eye(4, dtype=bool))


@pytest.mark.parametrize(
    "query", ['OR NOT "draft NEAR(', "[a-z]* ^$ \\d+ (?", "send\0email", "%_'"]
)
def test_characters_of_other_query_languages_mean_nothing(query):
    assert exact(query, LIST_EVENTS) == set()
    assert points(query, LIST_EVENTS) == [0]


class TestChanges:
    QUERY = parse_query("list_events get_me github rain")

    def test_added_tools_are_found_as_if_they_had_always_been_there(self):
        documents = [FORECAST, COMMENT, GET_ME, LIST_ISSUES, LIST_EVENTS]
        whole, grown = index_of(documents), index_of(documents[:2]).with_tools(documents[2:])
        assert grown.points(self.QUERY).tolist() == whole.points(self.QUERY).tolist()
        assert grown.exact(self.QUERY) == whole.exact(self.QUERY) == {2, 4}

    def test_a_tool_that_was_taken_out_is_not_found(self):
        left = index_of([GET_ME, LIST_EVENTS, COMMENT]).without({0: GET_ME})
        assert left.exact(self.QUERY) == {1}
        assert left.points(self.QUERY).tolist() == [0, 20, 12]
        assert left.has_required(parse_query("+me")).tolist() == [False] * 3

    def test_of_two_tools_of_one_name_the_other_stays(self):
        twins = [make_document("list_events", "", server) for server in ("work", "home")]
        left = index_of(twins).without({0: twins[0]})
        assert left.exact(parse_query("list_events")) == {1}

    def test_a_change_leaves_the_index_as_it_was(self):
        index = index_of([GET_ME, LIST_EVENTS])
        index.without({0: GET_ME}).with_tools([COMMENT])
        assert index.exact(self.QUERY) == {0, 1}
        assert index.points(self.QUERY).tolist() == [32, 20]
