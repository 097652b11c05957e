import pytest
from documents import make_document
from fakes import HashingEmbeddings, make_catalogue

from langchain_toolrag.catalogue.document import document_of
from langchain_toolrag.index.contract import CANDIDATES
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.plans import run
from langchain_toolrag.search.cutoff import Cutoff
from langchain_toolrag.search.finding import find
from langchain_toolrag.search.rankings import Question, keyword, semantic, text
from langchain_toolrag.types import ToolFilter

WEATHER = ToolFilter(servers=frozenset({"weather"}))


@pytest.fixture
def index():
    index = ToolIndex(HashingEmbeddings())
    index.refresh([document_of(tool) for tool in make_catalogue()])
    return index


@pytest.fixture
def search(index):
    def search(plan, *, dense=True):
        return run(
            plan,
            lambda question: index.evidence(
                question.query,
                question.candidate_k,
                question.filter,
                dense=question.dense and dense,
            ),
        )

    return search


def hybrid(query, cutoff, filter=None):
    """The hits of a search for tools."""
    finding = yield from find(query, cutoff, filter)
    return list(finding.hits)


def ids(hits):
    return [hit.id for hit in hits]


def test_hybrid_finds_by_meaning_words_and_name(search):
    hits = search(hybrid("is there rain or sun in the city?", Cutoff(k=2)))
    assert ids(hits)[0] == "weather/get_weather"
    assert ids(search(hybrid("play_song", Cutoff())))[0] == "music/play_song"


def test_hybrid_returns_exactly_as_many_as_asked_for(search):
    assert [hit.rank for hit in search(hybrid("email", Cutoff(k=4)))] == [1, 2, 3, 4]


def test_hybrid_returns_as_many_as_asked_for_beyond_the_candidates():
    index = ToolIndex(HashingEmbeddings())
    index.refresh([make_document(f"tool_{n}", "Says rain.") for n in range(CANDIDATES + 30)])
    plan = hybrid("rain", Cutoff(k=CANDIDATES + 20))
    hits = run(plan, lambda question: index.evidence(question.query, question.candidate_k))
    assert len(hits) == CANDIDATES + 20


@pytest.mark.parametrize("plan", [hybrid("  ", Cutoff(k=3)), semantic("\n", 3), text("", 3)])
def test_an_empty_query_finds_nothing(search, plan):
    assert search(plan) == []


@pytest.mark.parametrize("make", [lambda query: hybrid(query, Cutoff()), lambda q: semantic(q, 3)])
def test_an_empty_query_is_not_asked_for(make):
    def fail(question):
        raise AssertionError(question)

    assert run(make(" "), fail) == []


@pytest.mark.parametrize(
    "query",
    [
        "send an email to somebody with send_email then play_song",
        "play_song list_issues send_email get_weather",
        "current weather in a city, warm or cold, rain or sun: get_weather, then turn_on_light",
    ],
)
@pytest.mark.parametrize("dense", [True, False])
def test_every_tool_the_query_names_survives_the_adaptive_cut(search, index, query, dense):
    hits = search(hybrid(query, Cutoff()), dense=dense)
    named = {document.id for document in index.documents if document.name in query}
    assert len(named) > 1
    assert set(ids(hits)[: len(named)]) == named


def test_more_named_tools_than_the_adaptive_cut_allows_all_survive(search, index):
    query = " ".join(document.name for document in index.documents)
    hits = search(hybrid(query, Cutoff(max_k=5)))
    assert set(ids(hits)) == {document.id for document in index.documents}


@pytest.mark.parametrize("query", ["what is it for", "can you do that in a or the", "the of and"])
def test_a_request_of_stop_words_finds_nothing_by_words(search, query):
    assert search(hybrid(query, Cutoff()), dense=False) == []


def test_hybrid_without_vectors_finds_by_words(search):
    hits = search(hybrid("weather forecast", Cutoff()), dense=False)
    assert ids(hits)[0] == "weather/get_forecast"
    assert hits[0].score == 1.0


def test_semantic_ranks_by_cosine_alone(search):
    hits = search(semantic("play_song", 12, threshold=-1))
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True) == [hit.evidence.dense for hit in hits]
    assert len(hits) == 12
    assert max(scores) <= 1


def test_semantic_returns_no_more_than_asked_for(search):
    assert len(search(semantic("email", 3, threshold=-1))) == 3


def test_semantic_has_no_hits_below_the_threshold(search):
    everything = search(semantic("email calendar", 12, threshold=-1))
    threshold = everything[2].score
    hits = search(semantic("email calendar", 12, threshold=threshold))
    assert hits == everything[:3]
    assert search(semantic("email calendar", 12, threshold=1.01)) == []


def test_text_ranks_by_words_alone(search):
    hits = search(text("search my emails", 5))
    assert ids(hits) == ["mail/search_email", "mail/send_email"]
    assert [hit.score for hit in hits] == [hit.evidence.lexical for hit in hits]
    assert len(search(text("search my emails", 1))) == 1


def test_a_lexical_score_of_nothing_is_no_hit(search):
    assert search(text("zzz", 5)) == search(text("the of and", 5)) == []


def test_keyword_ranks_by_points(search):
    hits = search(keyword("weather days", 5))
    assert [(hit.id, hit.score) for hit in hits] == [
        ("weather/get_forecast", 14.0),
        ("weather/get_weather", 12.0),
    ]
    assert len(search(keyword("weather days", 1))) == 1


def test_keyword_returns_named_tools_alone_and_all_of_them(search):
    hits = search(keyword("send_email play_song list_issues weather", 1))
    assert set(ids(hits)) == {"mail/send_email", "music/play_song", "github/list_issues"}
    assert [hit.rank for hit in hits] == [1, 2, 3]


def test_keyword_understands_a_selection(search):
    hits = search(keyword("select: send_email, playSong, unknown", 1))
    assert set(ids(hits)) == {"mail/send_email", "music/play_song"}
    assert search(keyword("select:unknown", 5)) == []


def test_keyword_understands_required_words(search):
    assert ids(search(keyword("list +calendar", 5))) == [
        "calendar/list_calendar_events",
        "calendar/create_calendar_event",
    ]


@pytest.mark.parametrize(
    "plan",
    [
        hybrid("rain send_email", Cutoff(k=9), WEATHER),
        semantic("rain", 9, WEATHER, threshold=-1),
        text("weather email", 9, WEATHER),
        keyword("weather send", 9, WEATHER),
    ],
    ids=["hybrid", "semantic", "text", "keyword"],
)
def test_every_ranking_keeps_to_the_filter(search, plan):
    assert set(ids(search(plan))) == {"weather/get_weather", "weather/get_forecast"}


@pytest.mark.parametrize(
    ("plan", "question"),
    [
        (hybrid("a", Cutoff(k=3), WEATHER), Question("a", WEATHER, CANDIDATES)),
        (hybrid("a", Cutoff(k=500)), Question("a", None, 500)),
        (semantic("a", 5, WEATHER), Question("a", WEATHER, 5)),
        (text("a", 5), Question("a", None, 5, dense=False)),
        (keyword("a", 5), Question("a", None, 5, dense=False)),
    ],
    ids=["hybrid", "hybrid of many", "semantic", "text", "keyword"],
)
def test_a_ranking_asks_the_index_one_question(plan, question):
    assert next(plan) == question


def test_the_parts_of_a_request_are_asked_with_the_others_along(index):
    asked = []

    def ask(question):
        asked.append((question.query, question.along))
        return index.evidence(question.query, along=question.along)

    run(hybrid("is it raining in Oslo and send a mail to Anna", Cutoff()), ask)
    parts = ("is it raining in Oslo", "send a mail to Anna")
    assert asked == [
        (" and ".join(parts), ()),
        (parts[0], parts),
        (parts[1], parts),
    ]
