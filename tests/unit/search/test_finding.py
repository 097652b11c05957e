"""The language of a query, from what is typed to what is found."""

import functools

import pytest
from documents import make_document
from fakes import CATALOGUE, BrokenEmbeddings, HashingEmbeddings, make_catalogue
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_toolrag import ToolRAG
from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.plans import run
from langchain_toolrag.search.cutoff import Cutoff
from langchain_toolrag.search.finding import closest_names, find, find_or_by_words
from langchain_toolrag.types import Finding, ToolFilter

DOCUMENTS = (
    make_document("get_weather", "Current weather in a city.", "weather"),
    make_document("get_forecast", "Weather forecast for the next days.", "weather"),
    make_document("send_email", "Sends an email to somebody.", "mail"),
    make_document("search_email", "Finds mails by sender or words.", "mail"),
    make_document("github_list_issues", "Lists the issues of a repository.", "github"),
    make_document("github_create_issue", "Opens a new issue in a repository.", "github"),
    make_document("gitlab_create_issue", "Opens a new issue in a project.", "gitlab"),
    make_document("mcp__jira__list_boards", "Lists the boards of a team."),
    make_document("mcp__jira__create_ticket", "Opens a ticket on a board."),
    make_document("play_song", "Plays a song on the speakers.", "music"),
    make_document("music", "Hums a tune.", "home"),
    make_document("radio", "Plays music of any kind.", "home"),
    make_document("lamp_on", "Switches a lamp on.", "green-house"),
    make_document("water_on", "Switches the pump on.", "GreenHouse"),
    make_document("convert", "Converts one currency to another."),
)
NOT_GITHUB = ToolFilter(predicate=lambda document: document.server != "github")
ALL = Cutoff(max_k=5, completeness=1)  # As many as there is room for.

laws = settings(derandomize=True, deadline=None, max_examples=100)


@functools.cache
def index():
    made = ToolIndex(HashingEmbeddings())
    made.refresh(DOCUMENTS)
    return made


def ask_of(index):
    return lambda question: index.evidence(
        question.query, question.candidate_k, question.filter, dense=question.dense
    )


def found(query, cutoff=ALL, filter=None):
    return run(find(query, cutoff, filter), ask_of(index()))


def names(finding):
    """The tools' own names, best first."""
    return [hit.id.split("/")[-1] for hit in finding.hits]


class TestNames:
    @pytest.mark.parametrize(
        "query",
        [
            "send_email",
            "send-email",
            "sendEmail",
            "SendEmail",
            "SEND_EMAIL",
            "send email",
            " `send_email`? ",
            "mail/send_email",
            "select:send_email",
            "Select: send email",
            "+send_email",
        ],
    )
    def test_a_name_in_any_spelling_finds_that_tool_alone_and_surely(self, query):
        finding = found(query)
        assert names(finding) == ["send_email"]
        assert (finding.confidence, finding.missing, finding.server) == (1.0, (), "")

    @pytest.mark.parametrize(
        "query",
        [
            "send_email play_song lamp_on",
            "send_email,play-song,lampOn",
            "send_email, play_song,\nlamp_on",
            "`lamp_on` `play_song` `send_email`",
            "select:lamp_on,play_song,send_email",
        ],
    )
    def test_names_and_nothing_else_find_these_tools_alone(self, query):
        finding = found(query)
        assert sorted(names(finding)) == ["lamp_on", "play_song", "send_email"]
        assert finding.confidence == 1.0

    @pytest.mark.parametrize(
        "query", ["first play_song, then switch something on", "use `play_song` for the weather"]
    )
    def test_a_name_in_a_sentence_comes_first_and_not_alone(self, query):
        finding = found(query)
        assert names(finding)[0] == "play_song"
        assert len(finding.hits) > 1
        assert finding.confidence == 1.0

    def test_a_leaf_name_that_two_servers_have_finds_both(self):
        assert sorted(names(found("create_issue"))) == [
            "github_create_issue",
            "gitlab_create_issue",
        ]

    def test_named_tools_are_found_beyond_the_most_that_are_wanted(self):
        eight = ",".join(document.name for document in DOCUMENTS[:8])
        assert len(found(f"select:{eight}", Cutoff(max_k=5)).hits) == 8
        assert len(found(eight, Cutoff(max_k=5)).hits) == 8

    def test_k_holds_for_named_tools_too(self):
        query = "send_email play_song lamp_on"
        assert len(found(query, Cutoff(k=2)).hits) == 2
        assert len(found(f"select:{query.replace(' ', ',')}", Cutoff(k=1)).hits) == 1


class TestSelect:
    def test_by_leaf_name_and_with_spaces(self):
        finding = found("select: list issues , list_boards")
        assert sorted(names(finding)) == ["github_list_issues", "mcp__jira__list_boards"]

    def test_what_is_missing_is_said_in_the_order_it_was_asked_for(self):
        finding = found("select:teleport,send_email, Fly Away ")
        assert names(finding) == ["send_email"]
        assert finding.missing == ("teleport", "Fly Away")
        assert finding.confidence == 1.0

    def test_a_name_given_twice_is_found_once_and_missing_once(self):
        finding = found("select:send_email,teleport,sendEmail,teleport")
        assert names(finding) == ["send_email"]
        assert finding.missing == ("teleport",)

    @pytest.mark.parametrize("query", ["select:", "select: , ,", "select:``"])
    def test_nothing_selected_is_nothing_found_and_nothing_missing(self, query):
        assert found(query) == Finding(confidence=0.0)

    def test_nothing_known_finds_nothing_and_is_sure_of_it(self):
        assert found("select:weather forecast for Pune") == Finding(
            missing=("weather forecast for Pune",), confidence=0.0
        )


class TestServers:
    @pytest.mark.parametrize(
        "query", ["github", "mcp__github", "GitHub", "GITHUB", "github?", " github ", "`github`"]
    )
    def test_a_bare_server_finds_its_tools_and_no_other(self, query):
        finding = found(query)
        assert sorted(names(finding)) == ["github_create_issue", "github_list_issues"]
        assert (finding.server, finding.confidence) == ("github", 1.0)

    @pytest.mark.parametrize("query", ["jira", "mcp__jira", "mcp__jira__", "Jira"])
    def test_the_server_in_a_name_counts_where_none_is_given(self, query):
        finding = found(query)
        assert sorted(names(finding)) == ["mcp__jira__create_ticket", "mcp__jira__list_boards"]
        assert finding.server == "jira"

    def test_two_spellings_of_a_server_are_one(self):
        for query in ("greenhouse", "green-house", "Green House", "mcp__GreenHouse"):
            finding = found(query)
            assert sorted(names(finding)) == ["lamp_on", "water_on"]
            assert finding.server == "greenhouse"

    def test_a_tool_of_the_same_name_goes_before_a_server_but_for_the_prefix(self):
        assert names(found("music")) == ["music"]
        assert found("music").server == ""
        assert names(found("mcp__music")) == ["play_song"]
        assert found("mcp__music").server == "music"

    def test_no_more_than_the_most_that_are_wanted_are_listed(self):
        assert len(found("github", Cutoff(max_k=1)).hits) == 1
        assert len(found("github", Cutoff(k=1)).hits) == 1

    @pytest.mark.parametrize(
        "query",
        ["github issues", "the github server", "+github", "git", "select:github", "git hub x"],
    )
    def test_more_or_less_than_the_server_is_an_ordinary_query(self, query):
        assert found(query).server == ""

    @pytest.mark.parametrize("query", ["mcp__", "mcp", "``"])
    def test_a_prefix_or_tools_without_a_server_are_no_server(self, query):
        assert found(query).server == ""


class TestRequiredWords:
    def test_every_tool_found_has_the_word(self):
        assert set(names(found("open something new +issue"))) == {
            "github_create_issue",
            "gitlab_create_issue",
        }

    def test_a_servers_name_may_be_the_word(self):
        assert set(names(found("issues +gitlab"))) == {"gitlab_create_issue"}

    def test_all_words_must_be_there(self):
        assert names(found("+github +lists")) == ["github_list_issues"]

    def test_a_word_that_no_tool_has_finds_nothing(self):
        finding = found("issues +teleport")
        assert (finding.hits, finding.confidence) == ((), 0.0)


class TestFilters:
    @pytest.mark.parametrize(
        "query", ["list_issues", "select:github_list_issues", "github", "mcp__github", "issues"]
    )
    def test_what_is_forbidden_is_not_found_however_it_is_asked_for(self, query):
        assert not any(hit.id.startswith("github/") for hit in found(query, ALL, NOT_GITHUB).hits)

    def test_a_forbidden_server_is_not_known(self):
        finding = found("github", ALL, NOT_GITHUB)
        assert finding.server == ""
        assert finding.confidence < 1

    def test_a_forbidden_name_after_select_is_missing_like_one_that_is_not_there(self):
        assert found("select:list_issues,send_email", ALL, NOT_GITHUB).missing == ("list_issues",)

    def test_of_a_name_that_two_have_the_permitted_one_is_found(self):
        assert names(found("select:create_issue", ALL, NOT_GITHUB)) == ["gitlab_create_issue"]

    def test_of_a_server_in_two_spellings_the_permitted_part_is_found(self):
        only = ToolFilter(servers={"green-house"})
        assert names(found("greenhouse", ALL, only)) == ["lamp_on"]

    @pytest.mark.parametrize(
        ("query", "wanted"), [("get_forecast", "get_weather"), ("music", "radio")]
    )
    def test_a_forbidden_name_or_server_hides_nothing_that_is_permitted(self, query, wanted):
        forbidden = {"weather/get_forecast", "home/music", "music/play_song"}
        permitted = ToolFilter(predicate=lambda document: document.id not in forbidden)
        finding = found(query, Cutoff(), permitted)
        assert names(finding)[0] == wanted
        assert finding.server == ""


class TestOddInput:
    @pytest.mark.parametrize("query", ["", "  ", "\n\t"])
    def test_an_empty_query_finds_nothing_and_is_not_asked_for(self, query):
        def fail(question):
            raise AssertionError(question)

        assert run(find(query, ALL), fail) == Finding()

    @pytest.mark.parametrize(
        "query",
        ["\0", "+", "select", "🎵", "'; DROP TABLE tools; --", "[a-z]*(", "%s", "天气"],
    )
    def test_odd_characters_are_no_error(self, query):
        assert all(hit.id in {document.id for document in DOCUMENTS} for hit in found(query).hits)

    def test_nothing_is_found_among_no_tools(self):
        empty = ToolIndex(HashingEmbeddings())
        for query in ("weather", "select:weather", "github", "+weather"):
            assert run(find(query, ALL), ask_of(empty)).hits == ()


class TestConfidence:
    def test_it_is_higher_for_what_a_tool_does_than_for_what_none_does(self):
        assert found("weather forecast").confidence > 0.5 > found("peel a pear").confidence

    def test_without_vectors_it_cannot_say_unless_a_tool_is_named(self):
        def words(query):
            return run(find(query, ALL, dense=False), ask_of(index()))

        assert words("forecast for the next days").confidence is None
        assert words("send_email").confidence == words("github").confidence == 1.0


class TestWhileTheModelIsDown:
    @pytest.fixture
    def broken(self):
        made = ToolIndex(BrokenEmbeddings())
        made.refresh(DOCUMENTS)
        return made

    def test_find_raises(self, broken):
        with pytest.raises(EmbeddingError, match="the model server is down"):
            run(find("weather", ALL), ask_of(broken))

    @pytest.mark.parametrize(
        "query", ["forecast for days", "select:send_email", "github", "+lists"]
    )
    def test_words_and_names_answer_instead_and_say_why(self, broken, query):
        finding = run(find_or_by_words(query, ALL), ask_of(broken))
        by_words = run(find(query, ALL, dense=False), ask_of(broken))
        assert finding.hits
        assert finding.hits == by_words.hits
        assert "the model server is down" in finding.degraded

    def test_what_needs_no_model_is_the_same_as_with_one(self, broken):
        for query in ("select:send_email,teleport", "github", "play_song lamp_on"):
            down = run(find_or_by_words(query, ALL), ask_of(broken))
            up = run(find_or_by_words(query, ALL), ask_of(index()))
            assert names(down) == names(up)
            assert (down.missing, down.server, down.confidence) == (
                up.missing,
                up.server,
                up.confidence,
            )


class TestThroughToolRAG:
    def test_search_and_find_speak_one_language(self, rag):
        for query in ("select:play_song,send_email", "github", "+issue list", "play_song"):
            assert list(rag.find(query).hits) == rag.search(query)[:5]

    @pytest.mark.parametrize("max_results", [1, 2, 3])
    def test_max_results_is_the_most_that_is_found(self, rag, max_results):
        assert 1 <= len(rag.find("email or song or issue", max_results).hits) <= max_results

    @pytest.mark.parametrize("max_results", [0, -1])
    def test_fewer_than_one_result_is_an_error(self, rag, max_results):
        with pytest.raises(ValueError, match="wanted at least 1"):
            rag.find("email", max_results)

    def test_find_answers_by_words_where_search_raises(self):
        rag = ToolRAG(make_catalogue(), embeddings=BrokenEmbeddings())
        with pytest.raises(EmbeddingError):
            rag.search("upcoming meetings")
        finding = rag.find("upcoming meetings")
        assert names(finding)[0] == "list_calendar_events"
        assert finding.degraded

    @pytest.mark.parametrize(
        "query", ["select:play_song,teleport", "github", "current weather", "+song", "", "xyzzy"]
    )
    async def test_async_finds_the_same(self, rag, query):
        only = ToolFilter(servers={"github", "music", "weather"})
        assert await rag.afind(query, 2, only) == rag.find(query, 2, only)


def _spelled(name, style):
    first, *rest = name.split("_")
    return {"camel": first + "".join(map(str.title, rest)), "upper": name.upper()}.get(
        style, name.replace("_", style)
    )


TOOLS = [name for name, *_ in CATALOGUE]
styles = st.sampled_from(["_", "-", "camel", "upper"])
some_names = st.lists(st.tuples(st.sampled_from(TOOLS), styles), min_size=1, max_size=8)
queries = st.one_of(
    st.sampled_from(["github", "mcp__mail", "weather", "+issue list", "play a song", "email"]),
    st.lists(st.sampled_from([*TOOLS, "nope"]), max_size=4).map(
        lambda some: "select:" + ",".join(some)
    ),
    st.lists(st.sampled_from([*TOOLS, "and", "then"]), max_size=4).map(" ".join),
    st.text(max_size=20),
)


@functools.cache
def catalogue():
    return ToolRAG(make_catalogue(), embeddings=HashingEmbeddings())


@laws
@given(some_names, st.sampled_from([" ", ",", ", ", " and then "]), st.integers(1, 5))
def test_every_named_tool_is_found(some, joint, max_results):
    query = joint.join(_spelled(*each) for each in some)
    assert {name for name, _ in some} <= set(names(catalogue().find(query, max_results)))


@laws
@given(some_names, st.integers(1, 5))
def test_a_selection_finds_what_it_names_and_nothing_else(some, max_results):
    finding = catalogue().find("select:" + ",".join(_spelled(*each) for each in some), max_results)
    assert sorted(names(finding)) == sorted({name for name, _ in some})
    assert finding.missing == ()


@laws
@given(queries, st.frozensets(st.sampled_from(TOOLS)), st.integers(1, 5))
def test_no_filter_is_ever_passed(query, admitted, max_results):
    only = ToolFilter(predicate=lambda document: document.name in admitted)
    finding = catalogue().find(query, max_results, only)
    assert set(names(finding)) <= admitted
    assert len(finding.hits) <= max(max_results, len(set(names(catalogue().find(query)))))


@laws
@given(queries, st.integers(1, 5))
def test_confidence_is_a_probability_and_ranks_are_in_order(query, max_results):
    finding = catalogue().find(query, max_results)
    assert finding.confidence is None or 0 <= finding.confidence <= 1
    assert [hit.rank for hit in finding.hits] == list(range(1, len(finding.hits) + 1))


class TestClosestNames:
    NAMES = ("create_issue", "List_Issues", "send_email")

    def test_the_closest_comes_first_in_its_own_spelling(self):
        assert closest_names("LIST_ISSUE", self.NAMES) == ["List_Issues", "create_issue"]

    def test_no_more_than_are_asked_for(self):
        assert closest_names("list_issue", self.NAMES, 1) == ["List_Issues"]

    def test_a_name_like_none_has_none(self):
        assert closest_names("zebra", self.NAMES) == closest_names("zebra", ()) == []
