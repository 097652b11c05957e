import dataclasses
import math

import pytest

from langchain_toolrag import SelectionOptions
from langchain_toolrag.search.cutoff import Cutoff

WRONG = [
    ({"k": 0}, r"k is 0; wanted at least 1"),
    ({"margin": -0.1}, r"margin is -0\.1; wanted 0 or more"),
    ({"margin": math.nan}, r"margin is nan; wanted 0 or more"),
    ({"completeness": -0.1}, r"completeness is -0\.1; wanted 0 to 1"),
    ({"completeness": 1.1}, r"completeness is 1\.1; wanted 0 to 1"),
    ({"completeness": math.nan}, r"completeness is nan; wanted 0 to 1"),
    ({"min_k": 5, "max_k": 4}, r"min_k is 5 and max_k 4; wanted 0 <= min_k <= max_k"),
    ({"min_k": -1}, r"min_k is -1"),
    ({"max_tools": 0}, r"max_tools is 0 .* wanted at least 1"),
    ({"max_tools": 1, "always_include": ("a", "b")}, r"max_tools is 1 .* names 2 tools"),
    ({"sticky_window": -1}, r"sticky_window is -1; wanted 0 or more"),
    ({"vague_words": -1}, r"vague_words is -1; wanted 0 or more"),
    ({"min_catalogue": -1}, r"min_catalogue is -1; wanted 0 or more"),
    ({"semantic_limit": -1}, r"semantic_limit is -1; wanted"),
    ({"text_search_limit": -1}, r"text_search_limit is -1; wanted"),
    ({"refresh": "never"}, r"refresh is 'never'; wanted one of \('turn', 'step'\)"),
    ({"on_error": "ignore"}, r"on_error is 'ignore'; wanted one of \('lexical', .*'raise'\)"),
    ({"algorithm": "best"}, r"algorithm is 'best'; wanted one of \('hybrid', 'classic'\)"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[str(wrong) for wrong, _ in WRONG])
def test_a_wrong_option_is_refused_with_what_was_found_and_wanted(wrong, message):
    with pytest.raises(ValueError, match=message):
        SelectionOptions(**wrong)


def test_a_string_of_tools_to_always_include_is_refused():
    with pytest.raises(TypeError, match=r"the string 'send_email'; wanted a tuple"):
        SelectionOptions(always_include="send_email")


def test_a_misspelt_option_is_refused():
    with pytest.raises(TypeError, match="max_tolls"):
        SelectionOptions(max_tolls=3)


def test_the_defaults_are_those_of_the_design():
    options = SelectionOptions()
    assert (options.k, options.max_k, options.min_k, options.max_tools) == (None, 10, 1, 24)
    assert (options.completeness, options.margin) == (0.8, None)
    assert (options.semantic_limit, options.text_search_limit, options.sticky_window) == (5, 3, 3)
    assert (options.vague_words, options.vague_score) == (6, 0.4)
    assert options.similarity_threshold == 0.25
    assert (options.refresh, options.on_error, options.min_catalogue) == ("turn", "lexical", 0)


def test_options_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SelectionOptions().k = 3


def test_always_include_may_be_any_sequence_and_is_kept_as_a_tuple():
    options = SelectionOptions(always_include=["a", "b"])
    assert options.always_include == ("a", "b")
    assert hash(options) == hash(SelectionOptions(always_include=("a", "b")))


def test_as_many_always_included_tools_as_there_are_places_are_allowed():
    assert SelectionOptions(max_tools=2, always_include=("a", "b")).max_tools == 2


def test_a_tool_named_twice_needs_one_place():
    assert SelectionOptions(max_tools=1, always_include=("a", "a")).max_tools == 1


def test_the_cutoff_is_made_of_the_options():
    fields = {"k": 4, "completeness": 0.6, "margin": 0.1, "max_k": 7, "min_k": 2}
    assert SelectionOptions(**fields).cutoff == Cutoff(**fields)


def test_options_that_say_nothing_of_the_cutoff_leave_it_at_its_defaults():
    assert SelectionOptions().cutoff == Cutoff()


def test_classic_is_toolrags_algorithm_with_its_numbers():
    classic = SelectionOptions.classic()
    assert (classic.algorithm, classic.on_error, classic.max_tools) == ("classic", "all", 128)
    assert (classic.semantic_limit, classic.text_search_limit, classic.sticky_window) == (5, 3, 3)
    assert (classic.similarity_threshold, classic.vague_words, classic.vague_score) == (
        0.25,
        6,
        0.4,
    )
