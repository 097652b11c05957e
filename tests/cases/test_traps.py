from collections import Counter

from cases_loading import about, settle, unmet_request

FILE = "09_queries_traps"


@about(FILE)
def test_words_alone_do_not_lead_astray(ordinary_rag, case):
    settle(unmet_request(ordinary_rag, case))


@about(FILE, "what-can-you-do")
def test_a_question_about_capabilities_brings_different_tools(ordinary_rag, case):
    bound = ordinary_rag.select(case["query"]).ids
    servers = Counter(identity.split("/")[0] for identity in bound)
    # Documented: a short turn that nothing fits adds no tools.
    assert len(bound) < 3 or max(servers.values()) <= len(bound) / 2, bound
