import copy

from cases_loading import about, freshly_selected, history, parted, settle, unmet, unmet_names
from langchain_core.messages import HumanMessage

FILE = "06_odd_histories"
CHECKED_APART = ("no_error", "unique_names", "note", "budget_left", "stable_in_loop")


@about(FILE)
def test_an_odd_history_is_read_for_what_it_says(ordinary_rag, case):
    messages = history(case)
    names, ranking = parted(case["expect"], *CHECKED_APART)
    lacking = unmet_names(names, ordinary_rag.select(messages))
    settle(lacking + unmet(ranking, freshly_selected(ordinary_rag, messages)))


@about(FILE)
def test_no_history_is_an_error_nor_brings_unknown_or_repeated_names(ordinary_rag, case):
    names = ordinary_rag.select(history(case)).names
    assert len(names) == len(set(names))
    assert set(names) <= {entry.document.bound_name for entry in ordinary_rag.catalogue}


@about(FILE)
def test_the_messages_are_left_as_they_are(ordinary_rag, case):
    messages = history(case)
    before = copy.deepcopy(messages)
    ordinary_rag.select(messages)
    assert messages == before


@about(FILE, "same-tool-20-times")
def test_a_tool_called_twenty_times_takes_one_place(ordinary_rag, case):
    reasons = ordinary_rag.select(history(case)).reasons
    not_found_now = [name for name, reason in reasons.items() if reason == "sticky"]
    assert len(not_found_now) <= 1
    assert list(reasons).count("get_weather_forecast") == 1


@about(FILE, "mid-loop")
def test_the_tools_stay_the_same_within_a_loop(ordinary_rag, case):
    messages = history(case)
    first = ordinary_rag.select(messages[:1])
    second = ordinary_rag.select(messages, previous=first.state)
    assert not second.prefix_changed
    assert second.names[: len(first.names)] == first.names
    assert second.search_id == first.search_id


@about(FILE, "anthropic-blocks")
def test_the_result_of_a_tool_is_not_taken_for_the_users_words(ordinary_rag, case):
    messages = history(case)
    assert ordinary_rag.select(messages).query.startswith("and tomorrow?")
    assert "31C" not in ordinary_rag.select(messages[:3]).query


@about(FILE, "system-only")
def test_without_a_user_only_the_system_prompt_may_be_searched_for(ordinary_rag, case):
    selection = ordinary_rag.select(history(case))
    assert selection.query in ("", case["messages"][0]["content"])


@about(FILE, "summarised-human")
def test_a_summary_does_not_drown_the_last_turn(ordinary_rag, case):
    last = case["messages"][-1]["content"]
    assert ordinary_rag.select(history(case)).query.startswith(last)


@about(FILE, "tool-gone-from-catalogue")
def test_a_tool_that_is_gone_gets_no_stand_in(ordinary_rag, case):
    known = [entry.bound for entry in ordinary_rag.catalogue]
    bound = ordinary_rag.select(history(case)).tools
    assert bound
    assert all(any(tool is other for other in known) for tool in bound)


@about(FILE, "tool-name-old-prefix")
def test_between_two_tools_of_an_old_name_none_is_guessed(ordinary_rag, case):
    reasons = ordinary_rag.select(history(case)).reasons
    assert "sticky" not in reasons.values()


@about(FILE, "system-mentions-tools")
def test_names_in_the_system_prompt_change_nothing(ordinary_rag, case):
    without = [HumanMessage(case["messages"][-1]["content"])]
    assert ordinary_rag.select(history(case)).names == ordinary_rag.select(without).names
