from cases_loading import about, settle, unmet_request

FILE = "12_long_prompts"


@about(FILE)
def test_a_need_is_found_in_a_long_prompt(ordinary_rag, case):
    settle(unmet_request(ordinary_rag, case))
