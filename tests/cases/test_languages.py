from cases_loading import about, settle, unmet_request

FILE = "10_queries_languages"


@about(FILE)
def test_a_request_in_another_language_finds_english_tools(ordinary_rag, case):
    settle(unmet_request(ordinary_rag, case))
