import pytest
from cases_loading import Scored, about, named, settle, unmet, unmet_request

from langchain_toolrag import ToolRetriever
from langchain_toolrag.integrations.search_tool import create_search_tool
from langchain_toolrag.selection.conversation import LOADED_KEY

FILE = "08_queries_exact_names"


def _by_search(rag, query, k):
    return named(rag, rag.search(query, k))


def _by_find(rag, query, k):
    return named(rag, rag.find(query, k or 5).hits)


def _by_the_retriever(rag, query, k):
    documents = ToolRetriever(rag=rag, k=k).invoke(query)
    return [Scored(each.metadata["tool_name"], each.metadata["score"]) for each in documents]


def _by_the_models_search(rag, query, k):
    arguments = {"query": query, **({"max_results": k} if k else {})}
    call = {"type": "tool_call", "name": "search_tools", "id": "s1", "args": arguments}
    ids = create_search_tool(rag).invoke(call).artifact[LOADED_KEY]
    return [Scored(rag.catalogue.entries[identity].document.name, 0.0) for identity in ids]


ENTRIES = {
    "search": _by_search,
    "find": _by_find,
    "the retriever": _by_the_retriever,
    "search_tools": _by_the_models_search,
}


@about(FILE)
def test_a_tool_is_found_by_its_name_however_it_is_written(ordinary_rag, case):
    settle(unmet_request(ordinary_rag, case))


@pytest.mark.parametrize("entry", ENTRIES)
@about(FILE)
def test_every_entry_finds_it(ordinary_rag, entry, case):
    expect = {key: wanted for key, wanted in case["expect"].items() if key != "no_error"}
    settle(unmet(expect, lambda k: ENTRIES[entry](ordinary_rag, case["query"], k)))


@about(FILE, "regex-chars", "fts-operators", "null-byte")
def test_no_character_of_a_query_is_an_error(ordinary_rag, case):
    for search in (
        ordinary_rag.search,
        ordinary_rag.semantic_search,
        ordinary_rag.text_search,
        ordinary_rag.keyword_search,
    ):
        assert all(hit.id in ordinary_rag.catalogue.entries for hit in search(case["query"]))
