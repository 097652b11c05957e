import pytest

from langchain_toolrag import SelectionOptions
from langchain_toolrag.plans import run
from langchain_toolrag.search.confidence import confidence
from langchain_toolrag.search.fusion import fuse
from langchain_toolrag.selection import fresh
from langchain_toolrag.selection.conversation import Conversation
from langchain_toolrag.selection.follow_up import context_share
from langchain_toolrag.types import Evidence, ScoreStatistics, ToolEvidence, ToolFilter

LONG = "please send the long report to my dear colleague"
PREVIOUS = "weather in Pune"
CONTEXT = f". Context: {PREVIOUS}"


class PreparedIndex:
    """Answers plain and enriched questions with evidence given beforehand; records them."""

    def __init__(self, plain, enriched=(), **by_query):
        self.plain, self.enriched, self.by_query = plain, enriched, by_query
        self.questions = []

    def __call__(self, question):
        self.questions.append(question)
        tools = self.enriched if ". Context: " in question.query else self.plain
        return evidence_of(self.by_query.get(question.query, tools))

    @property
    def queries(self):
        return [question.query for question in self.questions]


def tool(identity, dense=0.0, lexical=0.0, *, exact=False, coverage=0.0):
    return ToolEvidence(identity, dense, lexical, 0.0, exact, coverage)


def evidence_of(tools):
    embedded = any(one.dense is not None for one in tools)
    return Evidence(tuple(tools), ScoreStatistics(), version=7, dense_ready=embedded)


def search(algorithm, index, query=LONG, previous=PREVIOUS, *, said="", filter=None, **options):
    earlier = (previous,) if previous else ()
    conversation = Conversation(query=query, earlier=earlier, assistant=said)
    return run(algorithm(conversation, SelectionOptions(**options), filter), index)


both_algorithms = pytest.mark.parametrize("algorithm", [fresh.hybrid, fresh.classic])


class TestClassicVagueness:
    def test_a_clear_request_is_searched_for_once_and_alone(self):
        index = PreparedIndex([tool("mail", 0.5)])
        found = search(fresh.classic, index)
        assert index.queries == [LONG]
        assert (found.query, list(found.sources), found.version) == (LONG, ["mail"], 7)

    @pytest.mark.parametrize(
        ("query", "best"),
        [("one two three four five six", 0.9), ("do it again", 0.9), (LONG, 0.399), (LONG, 0.0)],
    )
    def test_a_short_or_badly_matched_request_is_searched_for_with_the_one_before(
        self, query, best
    ):
        index = PreparedIndex([tool("mail", best)])
        assert search(fresh.classic, index, query).query == query + CONTEXT
        assert index.queries == [query, query + CONTEXT]

    @pytest.mark.parametrize(
        ("query", "best"), [("one two three four five six seven", 0.4), (LONG, 1)]
    )
    def test_a_long_and_well_matched_request_is_not_vague(self, query, best):
        index = PreparedIndex([tool("mail", best)])
        assert search(fresh.classic, index, query).query == query
        assert len(index.questions) == 1

    def test_the_bounds_of_vagueness_are_options(self):
        index = PreparedIndex([tool("mail", 0.2)])
        found = search(fresh.classic, index, "do it", vague_words=1, vague_score=0.1)
        assert found.query == "do it"

    def test_hits_in_context_come_first_then_the_others_of_the_plain_search(self):
        index = PreparedIndex(
            plain=[tool("plain", 0.9), tool("shared", 0.8)],
            enriched=[tool("shared", 0.5), tool("context", 0.6)],
        )
        found = search(fresh.classic, index, "do it too")
        assert list(found.sources) == ["context", "shared", "plain"]
        assert [hit.score for hit in found.hits] == [0.6, 0.5, 0.9]

    def test_a_tools_name_is_a_vague_request_as_it_is_for_toolrag(self):
        index = PreparedIndex([tool("get_weather", 0.1, exact=True)])
        assert search(fresh.classic, index, "get_weather").query == f"get_weather{CONTEXT}"

    def test_small_talk_is_searched_for_and_nothing_is_too_unsure(self):
        index = PreparedIndex([tool("mail", 0.3)])
        found = search(fresh.classic, index, "thanks", previous="", min_confidence=1.0)
        assert (index.queries, list(found.sources)) == (["thanks"], ["mail"])
        assert found.confidence is None

    def test_what_the_assistant_said_is_no_context(self):
        index = PreparedIndex([tool("mail", 0.3)])
        found = search(fresh.classic, index, "do it", said="Shall I send it?")
        assert found.query == f"do it{CONTEXT}"


@both_algorithms
def test_the_first_request_of_a_conversation_has_no_context(algorithm):
    index = PreparedIndex([tool("mail", 0.5)])
    found = search(algorithm, index, "do it", previous="")
    assert (found.query, list(found.sources), found.version) == ("do it", ["mail"], 7)
    assert index.queries == ["do it"]


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


class TestContext:
    @pytest.mark.parametrize("query", ["do it again", LONG])
    def test_a_request_is_searched_for_alone_and_with_the_one_before(self, query):
        index = PreparedIndex([tool("mail", 0.9)], [tool("mail", 0.9)])
        assert search(fresh.hybrid, index, query).query == query + CONTEXT
        assert index.queries == [query, query + CONTEXT]

    def test_the_options_of_vagueness_are_classics_alone(self):
        index = PreparedIndex([tool("mail", 0.9)], [tool("mail", 0.9)])
        search(fresh.hybrid, index, LONG, vague_words=0, vague_score=0.0)
        assert index.queries == [LONG, LONG + CONTEXT]

    def test_what_the_assistant_said_last_is_context_too(self):
        index = PreparedIndex([tool("mail", 0.9)], [tool("mail", 0.9)])
        search(fresh.hybrid, index, said="Which city do you mean?")
        assert index.queries[-1] == f"{LONG}{CONTEXT} Which city do you mean?"

    def test_the_score_is_the_two_searches_scores_in_their_shares(self):
        plain = [tool("plain", 0.8), tool("shared", 0.7)]
        enriched = [tool("shared", 0.5), tool("context", 0.6)]
        found = search(fresh.hybrid, PreparedIndex(plain, enriched), "do it too", margin=2)
        share = context_share(
            Conversation("do it too", (PREVIOUS,)),
            fuse(evidence_of(plain)),
            fuse(evidence_of(enriched)),
            ScoreStatistics(),
        )
        expected = {
            "plain": (1 - share) * 0.8 + share * 0.5,
            "shared": (1 - share) * 0.7 + share * 0.5,
            "context": (1 - share) * 0.7 + share * 0.6,
        }
        assert {hit.id: hit.score for hit in found.hits} == pytest.approx(expected)

    def test_a_tool_that_the_context_alone_names_is_not_put_first(self):
        index = PreparedIndex(
            [tool("mail", 0.9), tool("weather", 0.1)],
            [tool("mail", 0.9), tool("weather", 0.2, exact=True)],
        )
        assert next(iter(search(fresh.hybrid, index).sources)) == "mail"

    def test_a_request_that_names_a_tool_is_searched_for_alone(self):
        index = PreparedIndex([tool("get_weather", 0.1, exact=True)])
        assert search(fresh.hybrid, index, "get_weather").query == "get_weather"
        assert index.queries == ["get_weather"]

    def test_both_searches_together_bring_no_more_than_one_would(self):
        index = PreparedIndex(
            plain=[tool("a", 0.9), tool("b", 0.8)], enriched=[tool("c", 0.9), tool("d", 0.9)]
        )
        assert len(search(fresh.hybrid, index, "do it", k=3).sources) == 3

    def test_without_vectors_neither_search_asks_for_them(self):
        index = PreparedIndex([tool("mail", None, 2.0)], [tool("mail", None, 2.0)])
        conversation = Conversation("do it", (PREVIOUS,))
        plan = fresh.hybrid(conversation, SelectionOptions(), None, dense=False)
        found = run(plan, index)
        assert [question.dense for question in index.questions] == [False, False]
        assert (list(found.sources), found.confidence) == (["mail"], None)


class TestSmallTalk:
    @pytest.mark.parametrize("query", ["thanks a lot!", "Good morning", "🎉", "ok"])
    def test_it_is_not_searched_for(self, query):
        index = PreparedIndex([tool("mail", 0.9)])
        assert search(fresh.hybrid, index, query, said="The mail is sent.") == fresh.Found()
        assert index.questions == []

    @pytest.mark.parametrize("query", ["ok", "👍", "great, thanks"])
    def test_it_answers_a_question_of_the_assistant(self, query):
        index = PreparedIndex([tool("mail", 0.9)], [tool("mail", 0.9)])
        found = search(fresh.hybrid, index, query, said="Shall I send it?")
        assert list(found.sources) == ["mail"]
        assert index.queries[-1] == f"{query}{CONTEXT} Shall I send it?"

    def test_yes_agrees_to_what_the_assistant_said(self):
        index = PreparedIndex([tool("mail", 0.9)], [tool("mail", 0.9)])
        found = search(fresh.hybrid, index, "yes please", said="I can send it to her.")
        assert list(found.sources) == ["mail"]

    def test_it_is_no_context(self):
        index = PreparedIndex([tool("mail", 0.9)], [tool("mail", 0.9)])
        conversation = Conversation(LONG, ("thank you", "🙂", PREVIOUS, "play a song"))
        run(fresh.hybrid(conversation, SelectionOptions(), None), index)
        assert index.queries == [LONG, LONG + CONTEXT]


class TestRequest:
    def test_what_was_pasted_beside_it_is_not_searched_for(self):
        index = PreparedIndex([tool("issues", 0.9)])
        pasted = "open an issue for this\n```\nweather = play(song)\n```"
        found = search(fresh.hybrid, index, pasted, previous="")
        assert index.queries == ["open an issue for this"]
        assert list(found.sources) == ["issues"]

    def test_several_parts_are_searched_for_as_well(self):
        whole = "send the mail to Ann and play a quiet song"
        index = PreparedIndex(
            [tool("mail", 0.6), tool("lamp", 0.5), tool("song", 0.45)],
            **{"play a quiet song": [tool("song", 0.9), tool("lamp", 0.1), tool("mail", 0.1)]},
            **{"send the mail to Ann": [tool("mail", 0.9), tool("lamp", 0.1), tool("song", 0.1)]},
        )
        found = search(fresh.hybrid, index, whole, previous="", margin=2)
        assert index.queries == [whole, "send the mail to Ann", "play a quiet song"]
        assert list(found.sources) == ["mail", "song", "lamp"]

    def test_a_request_that_names_a_tool_has_no_parts(self):
        index = PreparedIndex([tool("play_song", 0.6, exact=True)])
        search(fresh.hybrid, index, "play_song at eight and send the mail to Ann", previous="")
        assert len(index.questions) == 1

    def test_the_filter_and_the_count_hold_for_its_parts(self):
        only_mail = ToolFilter(servers=frozenset({"mail"}))
        index = PreparedIndex([tool("mail", 0.6)])
        query = "send the mail to Ann and play a quiet song"
        search(fresh.hybrid, index, query, previous="", filter=only_mail, k=70)
        assert {(one.filter, one.candidate_k) for one in index.questions} == {(only_mail, 70)}
        assert len(index.questions) == 3

    def test_words_that_were_no_operators_are_searched_for_as_words(self):
        index = PreparedIndex([tool("song", 0.9)], **{"Select: a song": []})
        found = search(fresh.hybrid, index, "Select: a song", previous="")
        assert index.queries[0] == "Select: a song"
        assert len(index.queries) == 2
        assert list(found.sources) == ["song"]


class TestConfidence:
    def test_it_is_that_of_the_evidence(self):
        tools = [tool("mail", 0.4, coverage=0.5), tool("song", 0.1)]
        expected = confidence(evidence_of(tools), fuse(evidence_of(tools)))
        found = search(fresh.hybrid, PreparedIndex(tools), previous="")
        assert found.confidence == pytest.approx(expected)

    def test_it_lies_between_those_of_the_two_searches(self):
        plain, enriched = [tool("mail", 0.1)], [tool("mail", 0.9)]
        low, high = (
            confidence(evidence_of(tools), fuse(evidence_of(tools))) for tools in (plain, enriched)
        )
        assert low < search(fresh.hybrid, PreparedIndex(plain, enriched)).confidence < high

    def test_a_named_tool_is_certain(self):
        found = search(fresh.hybrid, PreparedIndex([tool("mail", 0.1, exact=True)]))
        assert found.confidence == 1.0

    def test_less_than_the_least_confidence_finds_nothing_and_says_how_sure_it_was(self):
        index = PreparedIndex([tool("mail", 0.2, coverage=0.1)])
        sure = search(fresh.hybrid, index, previous="").confidence
        assert 0 < sure < 1
        kept = search(fresh.hybrid, index, previous="", min_confidence=sure)
        gone = search(fresh.hybrid, index, previous="", min_confidence=sure + 0.01)
        assert list(kept.sources) == ["mail"]
        assert (gone.hits, gone.sources, gone.confidence) == ((), {}, sure)

    def test_without_vectors_no_confidence_is_too_low(self):
        index = PreparedIndex([tool("mail", None, 2.0)])
        assert list(search(fresh.hybrid, index, min_confidence=1.0).sources) == ["mail"]

    @pytest.mark.parametrize(
        ("query", "found"), [("one two three four five six seven eight", []), (LONG, ["mail"])]
    )
    def test_a_short_turn_that_nothing_fits_is_small_talk_and_a_long_one_is_not(self, query, found):
        index = PreparedIndex([tool("mail", 0.01)])
        assert list(search(fresh.hybrid, index, query, previous="").sources) == found

    def test_a_short_answer_to_a_question_is_not(self):
        index = PreparedIndex([tool("mail", 0.01)], [tool("mail", 0.01)])
        found = search(fresh.hybrid, index, "to the dean", said="To whom shall I send it?")
        assert list(found.sources) == ["mail"]


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
