import pytest

from langchain_toolrag import SelectionOptions
from langchain_toolrag.plans import run
from langchain_toolrag.selection import fresh
from langchain_toolrag.selection.conversation import Conversation
from langchain_toolrag.types import Evidence, ScoreStatistics, ToolEvidence, ToolFilter

LONG = "please send the long report to my dear colleague"
PREVIOUS = "weather in Pune"


class PreparedIndex:
    """Answers plain and enriched questions with evidence given beforehand; records them."""

    def __init__(self, plain, enriched=()):
        self.plain, self.enriched, self.questions = plain, enriched, []

    def __call__(self, question):
        self.questions.append(question)
        tools = self.enriched if ". Context: " in question.query else self.plain
        return Evidence(tuple(tools), ScoreStatistics(), version=7, dense_ready=True)

    @property
    def queries(self):
        return [question.query for question in self.questions]


def tool(identity, dense=0.0, lexical=0.0, *, exact=False):
    return ToolEvidence(identity, dense, lexical, 0.0, exact)


def search(algorithm, index, query=LONG, previous=PREVIOUS, *, filter=None, **options):
    conversation = Conversation(query=query, previous_query=previous)
    return run(algorithm(conversation, SelectionOptions(**options), filter), index)


both_algorithms = pytest.mark.parametrize("algorithm", [fresh.hybrid, fresh.classic])


@both_algorithms
def test_a_clear_request_is_searched_for_once_and_alone(algorithm):
    index = PreparedIndex([tool("mail", 0.5)])
    found = search(algorithm, index)
    assert index.queries == [LONG]
    assert (found.query, list(found.sources), found.version) == (LONG, ["mail"], 7)


@both_algorithms
@pytest.mark.parametrize(
    ("query", "best"),
    [("one two three four five six", 0.9), ("do it again", 0.9), (LONG, 0.399), (LONG, 0.0)],
)
def test_a_short_or_badly_matched_request_is_searched_for_with_the_one_before(
    algorithm, query, best
):
    index = PreparedIndex([tool("mail", best)])
    assert search(algorithm, index, query).query == f"{query}. Context: {PREVIOUS}"
    assert index.queries == [query, f"{query}. Context: {PREVIOUS}"]


@both_algorithms
@pytest.mark.parametrize(("query", "best"), [("one two three four five six seven", 0.4), (LONG, 1)])
def test_a_long_and_well_matched_request_is_not_vague(algorithm, query, best):
    index = PreparedIndex([tool("mail", best)])
    assert search(algorithm, index, query).query == query
    assert len(index.questions) == 1


@both_algorithms
def test_the_bounds_of_vagueness_are_options(algorithm):
    index = PreparedIndex([tool("mail", 0.2)])
    assert search(algorithm, index, "do it", vague_words=1, vague_score=0.1).query == "do it"


@both_algorithms
def test_the_first_request_of_a_conversation_has_no_context(algorithm):
    index = PreparedIndex([tool("mail", 0.1)])
    assert search(algorithm, index, "do it", previous="").query == "do it"
    assert index.queries == ["do it"]


@both_algorithms
def test_hits_in_context_come_first_then_the_others_of_the_plain_search(algorithm):
    index = PreparedIndex(
        plain=[tool("plain", 0.9), tool("shared", 0.8)],
        enriched=[tool("shared", 0.5), tool("context", 0.6)],
    )
    found = search(algorithm, index, "do it too")
    assert list(found.sources) == ["context", "shared", "plain"]
    assert [hit.score for hit in found.hits] == [0.6, 0.5, 0.9]


@both_algorithms
def test_the_filter_holds_for_both_searches(algorithm):
    only_mail = ToolFilter(servers=frozenset({"mail"}))
    index = PreparedIndex([tool("mail", 0.1)])
    search(algorithm, index, "do it", filter=only_mail)
    assert [question.filter for question in index.questions] == [only_mail, only_mail]


@both_algorithms
def test_nothing_found_is_an_answer_too(algorithm):
    found = search(algorithm, PreparedIndex([]))
    assert (found.hits, found.sources) == ((), {})


def test_a_request_that_names_a_tool_is_not_vague():
    index = PreparedIndex([tool("get_weather", 0.1, exact=True)])
    assert search(fresh.hybrid, index, "get_weather").query == "get_weather"
    assert index.queries == ["get_weather"]


def test_classic_takes_a_tools_name_for_a_vague_request_as_toolrag_does():
    index = PreparedIndex([tool("get_weather", 0.1, exact=True)])
    assert search(fresh.classic, index, "get_weather").query == f"get_weather. Context: {PREVIOUS}"


def test_both_searches_together_bring_no_more_than_one_would():
    index = PreparedIndex(
        plain=[tool("a", 0.9), tool("b", 0.9)], enriched=[tool("c", 0.9), tool("d", 0.9)]
    )
    assert list(search(fresh.hybrid, index, "do it", k=3).sources) == ["c", "d", "a"]


def test_without_vectors_neither_search_asks_for_them():
    index = PreparedIndex([tool("mail", None, 2.0)], [tool("mail", None, 2.0)])
    plan = fresh.hybrid(Conversation("do it", PREVIOUS), SelectionOptions(), None, dense=False)
    run(plan, index)
    assert [question.dense for question in index.questions] == [False, False]


def test_a_long_request_is_not_called_vague_for_want_of_vectors():
    index = PreparedIndex([tool("mail", None, 2.0)], [tool("weather", None, 2.0)])
    plan = fresh.hybrid(Conversation(LONG, PREVIOUS), SelectionOptions(), None, dense=False)
    assert list(run(plan, index).sources) == ["mail"]


@pytest.mark.parametrize(
    ("evidence", "source"),
    [
        (tool("x", 0.5, 2.0, exact=True), "keyword"),
        (tool("x", 0.5, 2.0), "both"),
        (tool("x", 0.25, 2.0), "both"),
        (tool("x", 0.24, 2.0), "text"),
        (tool("x", None, 2.0), "text"),
        (tool("x", 0.5), "semantic"),
        (tool("x", 0.1), "semantic"),
    ],
)
def test_a_source_says_by_what_a_tool_was_found(evidence, source):
    index = PreparedIndex([tool("embedded"), evidence])
    assert search(fresh.hybrid, index, previous="").sources["x"] == source


@pytest.mark.parametrize(
    ("evidence", "source"),
    [
        ([tool("x", 0.5, 2.0)], "both"),
        ([tool("x", 0.5)], "semantic"),
        ([tool("x", 0.24, 2.0)], "text"),
    ],
)
def test_a_classic_source_says_which_rankings_a_tool_stands_in(evidence, source):
    assert search(fresh.classic, PreparedIndex(evidence), previous="").sources == {"x": source}


def test_classic_unites_the_best_by_meaning_and_the_best_by_words():
    meant = [tool(f"m{rank}", 0.9 - rank / 10) for rank in range(7)]
    worded = [tool(f"w{rank}", 0.0, 9.0 - rank) for rank in range(5)]
    found = search(fresh.classic, PreparedIndex(meant + worded))
    assert list(found.sources) == ["m0", "m1", "m2", "m3", "m4", "w0", "w1", "w2"]


def test_a_classic_search_looks_for_words_in_the_plain_request_alone():
    index = PreparedIndex(plain=[tool("x", 0.0, 1.0)], enriched=[tool("y", 0.0, 9.0)])
    assert list(search(fresh.classic, index, "do it").sources) == ["x"]


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (fresh.hybrid, {"k": 70}),
        (fresh.hybrid, {"max_k": 70}),
        (fresh.classic, {"semantic_limit": 70}),
    ],
)
def test_as_many_candidates_are_asked_for_as_can_be_returned(algorithm, options):
    index = PreparedIndex([tool("mail", 0.5)])
    search(algorithm, index, **options)
    assert index.questions[0].candidate_k >= 70
