import math
from itertools import pairwise

import pytest
import torch
from cases_loading import CachingEmbeddings
from fakes import make_catalogue

from langchain_toolrag import ToolRAG
from langchain_toolrag.catalogue.document import document_of
from langchain_toolrag.index.embedding import MiniLMEmbeddings
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.search.confidence import confidence
from langchain_toolrag.search.fusion import fuse
from langchain_toolrag.types import Evidence, ScoreStatistics, ToolEvidence


def tool(identity="a", dense=0.3, coverage=0.0, *, exact=False):
    return ToolEvidence(identity, dense, 0.0, 0.0, exact, coverage)


def sure(*tools, outside=0.0, ready=True):
    evidence = Evidence(tools, ScoreStatistics(outside=outside), version=1, dense_ready=ready)
    return confidence(evidence, fuse(evidence))


def test_a_named_tool_is_certain():
    assert sure(tool(dense=-1.0, exact=True), outside=1.0) == 1.0
    assert sure(tool("a", 0.9), tool("b", 0.1, exact=True)) == 1.0


def test_a_named_tool_is_certain_without_vectors_too():
    assert sure(tool(dense=None, exact=True), ready=False) == 1.0


def test_without_vectors_it_cannot_be_told():
    worded = ToolEvidence("a", None, 4.0, 0.0, exact=False, coverage=1.0)
    assert sure(worded, ready=False) is None
    assert sure(ready=False) is None


def test_where_nothing_is_found_no_tool_fits():
    assert sure() == 0.0


@pytest.mark.parametrize("dense", [-1.0, 0.0, 0.5, 1.0])
@pytest.mark.parametrize("coverage", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("outside", [-1.0, 0.0, 0.4, 1.0])
def test_it_lies_between_none_and_certain(dense, coverage, outside):
    assert 0 < sure(tool(dense=dense, coverage=coverage), outside=outside) < 1


def test_it_grows_with_the_score_by_meaning():
    found = [sure(tool(dense=n / 10)) for n in range(-10, 11)]
    assert all(one < other for one, other in pairwise(found))


def test_it_grows_with_the_share_of_the_words():
    found = [sure(tool(coverage=n / 10)) for n in range(11)]
    assert all(one < other for one, other in pairwise(found))


def test_it_falls_with_what_requests_from_outside_score():
    found = [sure(tool(), outside=n / 10) for n in range(11)]
    assert all(one > other for one, other in pairwise(found))


def test_the_scores_distance_from_those_of_outside_counts_and_not_its_height():
    assert sure(tool(dense=0.8), outside=0.5) == pytest.approx(sure(tool(dense=0.4), outside=0.1))


def test_the_words_of_the_best_tool_count_and_the_best_score_of_any():
    both = sure(tool("a", 0.5, 0.3), tool("b", 0.2, 0.9))
    assert both == pytest.approx(sure(tool("a", 0.5, 0.3)))


def test_it_is_a_number():
    assert math.isfinite(sure(tool(dense=0.0)))


@pytest.fixture(scope="module")
def index():
    """With the real model, in one thread: several wait for one another on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    index = ToolIndex(CachingEmbeddings(MiniLMEmbeddings()))
    index.refresh([document_of(tool) for tool in make_catalogue()])
    index.embed()
    yield index
    torch.set_num_threads(threads)


OWN = {
    "is it going to rain in Oslo today": "weather/get_weather",
    "what will the weather be like next week": "weather/get_forecast",
    "put a meeting with Ann in my calendar": "calendar/create_calendar_event",
    "write an email to my landlord": "mail/send_email",
    "list the issues of the repository": "github/list_issues",
    "play some song by Adele": "music/play_song",
    "how many dollars is one euro, exchange rate": "bank/get_exchange_rate",
}
OUTSIDE = [
    "recommend a good novel about the sea",
    "how many calories does an apple have",
    "who won the battle of Hastings",
    "my shoes are too tight",
    "prove that there are infinitely many primes",
    "translate this poem to Latin",
]


@pytest.mark.parametrize(("query", "wanted"), OWN.items())
def test_a_request_that_a_tool_serves_is_more_likely_than_not_to_be_served(index, query, wanted):
    evidence = index.evidence(query)
    hits = fuse(evidence)
    assert hits[0].id == wanted
    assert confidence(evidence, hits) > 0.5


@pytest.mark.parametrize("query", OUTSIDE)
def test_a_request_that_no_tool_serves_is_not(index, query):
    evidence = index.evidence(query)
    assert confidence(evidence, fuse(evidence)) < 0.5


def test_every_request_of_the_catalogue_is_surer_than_every_one_from_outside(index):
    own, outside = (
        [confidence(evidence, fuse(evidence)) for evidence in map(index.evidence, queries)]
        for queries in (OWN, OUTSIDE)
    )
    assert min(own) > max(outside)


def test_a_selection_tells_it(index):
    rag = ToolRAG(make_catalogue(), embeddings=index.embedder.embeddings)
    assert rag.select("play some song by Adele").confidence > 0.5
    assert rag.select(OUTSIDE[0]).confidence < 0.5
