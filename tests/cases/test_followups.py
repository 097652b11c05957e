from cases_loading import (
    about,
    conversation,
    freshly_selected,
    parted,
    settle,
    unmet,
    unmet_names,
)


@about("07_followups")
def test_a_follow_up_has_the_tools_it_needs(ordinary_rag, case):
    messages = conversation(case)
    names, ranking = parted(case["expect"])
    lacking = unmet_names(names, ordinary_rag.select(messages))
    settle(lacking + unmet(ranking, freshly_selected(ordinary_rag, messages)))
