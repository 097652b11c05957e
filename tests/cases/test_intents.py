from cases_loading import about, settle, unmet_request

FILE = "11_queries_intents"


@about(FILE)
def test_what_is_meant_is_found_not_what_is_mentioned(ordinary_rag, case):
    settle(unmet_request(ordinary_rag, case))
