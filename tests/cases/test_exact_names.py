from cases_loading import about, settle, unmet_request

FILE = "08_queries_exact_names"


@about(FILE)
def test_a_tool_is_found_by_its_name_however_it_is_written(ordinary_rag, case):
    settle(unmet_request(ordinary_rag, case))


@about(FILE, "regex-chars", "fts-operators", "null-byte")
def test_no_character_of_a_query_is_an_error(ordinary_rag, case):
    for search in (
        ordinary_rag.search,
        ordinary_rag.semantic_search,
        ordinary_rag.text_search,
        ordinary_rag.keyword_search,
    ):
        assert all(hit.id in ordinary_rag.catalogue.entries for hit in search(case["query"]))
