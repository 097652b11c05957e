import numpy as np
import pytest

from langchain_toolrag.index.postings import Postings


def as_lists(postings):
    return {
        word: (posting.slots.tolist(), posting.values.tolist())
        for word, posting in postings.by_word.items()
    }


@pytest.fixture
def postings():
    return Postings().with_tools(0, [{"send": 1, "mail": 2}, {"mail": 1}, {"song": 3}])


def test_a_word_knows_the_tools_that_have_it_and_what_it_is_worth_there(postings):
    assert as_lists(postings) == {
        "send": ([0], [1]),
        "mail": ([0, 1], [2, 1]),
        "song": ([2], [3]),
    }


def test_added_tools_come_last(postings):
    larger = postings.with_tools(5, [{"mail": 4}, {}, {"new": 1, "mail": 1}])
    assert as_lists(larger)["mail"] == ([0, 1, 5, 7], [2, 1, 4, 1])
    assert as_lists(larger)["new"] == ([7], [1])


def test_a_word_goes_with_the_last_tool_that_has_it(postings):
    smaller = postings.without([0, 2], ["send", "mail", "song", "mail"])
    assert as_lists(smaller) == {"mail": ([1], [1])}


def test_a_change_leaves_the_postings_as_they_were(postings):
    before = as_lists(postings)
    postings.with_tools(3, [{"mail": 1}]).without([3], ["mail"])
    assert as_lists(postings) == before


def test_words_that_a_change_does_not_touch_are_shared(postings):
    changed = postings.with_tools(3, [{"mail": 1}]).without([0], ["send", "mail"])
    assert changed.by_word["song"] is postings.by_word["song"]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("mail", [False, True, True, False]),
        ("song", [True, False, False, False]),
        ("none", [False] * 4),
    ],
)
def test_it_says_which_of_some_tools_have_a_word_in_their_order(postings, word, expected):
    assert postings.has(word, np.array([2, 1, 0, 9])).tolist() == expected


def test_of_no_tools_none_has_a_word(postings):
    assert postings.has("mail", np.zeros(0, np.intp)).tolist() == []
