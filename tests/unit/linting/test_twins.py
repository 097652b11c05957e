import numpy as np
import pytest
from documents import make_document
from hypothesis import given
from hypothesis import strategies as st

from langchain_toolrag.linting.twins import find_twins, near_twins

WEATHER = "Get the current weather in a city."


def found(*tools, vectors=None):
    documents = [make_document(name, text) for name, text in tools]
    twins = find_twins(documents, vectors)
    return [(finding.tool, *finding.others) for finding in near_twins(documents, twins)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("get_weather", WEATHER), ("fetch_weather", WEATHER)),
        (("get_weather", WEATHER), ("fetch_weather", "Retrieves the current weather in a city")),
        (
            ("sum", "Calculate the sum of two values."),
            ("calculate_sum", "Calculates sum of values."),
        ),
        (
            ("delete_reminder", "Changes a reminder by id"),
            ("modify_reminder", "Change reminder id"),
        ),
        (("get_weather", ""), ("fetch_weather", "")),
        (("add_user", "Adds a user to a team"), ("add_user_2", "Adds users to the team")),
    ],
)
def test_two_tools_of_the_same_words_are_near_twins(one, other):
    assert found(one, ("play_song", "Plays a song"), other) == [(one[0], other[0])]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            ("create_issue", "Create a new issue in a GitHub repository."),
            ("update_issue", "Update an existing issue in a GitHub repository."),
        ),
        (
            ("list_commits", "Get list of commits of a branch in a GitHub repository."),
            ("list_branches", "List branches in a GitHub repository."),
        ),
        (
            ("docker_pull", "Pull a Docker image from a registry"),
            ("docker_push", "Push a Docker image to a registry"),
        ),
        (
            ("get_pull_request_comments", "Get the review comments on a pull request."),
            ("get_pull_request_reviews", "Get the reviews on a pull request."),
        ),
        (("lock_door", "Locks the door."), ("unlock_door", "Unlocks the door.")),
        (("get", ""), ("fetch", "")),
    ],
)
def test_siblings_are_told_apart_by_a_word_of_their_names(one, other):
    assert found(one, other) == []


def test_a_group_is_found_once_at_its_first_tool():
    tools = [(f"{verb}_weather", WEATHER) for verb in ("get", "fetch", "retrieve", "show")]
    assert found(*tools) == [("get_weather", "fetch_weather", "retrieve_weather", "show_weather")]


def test_vectors_that_point_elsewhere_speak_against_shared_words():
    tools = ("get_weather", WEATHER), ("fetch_weather", "Get the weather, current, in a big city")
    near = np.array([[1, 0], [2, 0.5]], np.float32)
    far = np.array([[1, 0], [0.5, 1]], np.float32)
    assert found(*tools, vectors=near) == [("get_weather", "fetch_weather")]
    assert found(*tools, vectors=far) == []


def test_equal_descriptions_need_no_vectors_to_agree():
    tools = ("get_weather", WEATHER), ("fetch_weather", WEATHER)
    assert found(*tools, vectors=np.eye(2, dtype=np.float32)) == [("get_weather", "fetch_weather")]


def test_vectors_of_zero_are_near_to_nothing():
    tools = ("get_weather", WEATHER), ("fetch_weather", "Get the weather, current, in a big city")
    assert found(*tools, vectors=np.zeros((2, 2), np.float32)) == []


def test_no_tools_have_no_twins():
    assert found() == []
    assert found(("🎵", "🎵")) == []


def test_two_thousand_tools_are_compared_by_their_words_alone():
    tools = [(f"get_thing{n}_{n % 7}", f"Reads word{n} of book{n % 90}") for n in range(2000)]
    assert found(*tools, ("fetch_thing5_5", "Reads word5 of book5")) == [
        ("get_thing5_5", "fetch_thing5_5")
    ]


words = st.lists(st.sampled_from(["sum", "city", "add", "user", "get", "day"]), max_size=4)


@given(st.lists(st.tuples(words, words), max_size=8))
def test_twins_are_twins_both_ways_and_each_pair_is_named_once(texts):
    documents = [
        make_document("_".join([*name, f"t{number}"]), " ".join(description))
        for number, (name, description) in enumerate(texts)
    ]
    twins = find_twins(documents, None)
    assert all(tool in twins[other] for tool, others in twins.items() for other in others)
    findings = list(near_twins(documents, twins))
    named = [frozenset({finding.tool, other}) for finding in findings for other in finding.others]
    assert len(named) == len(set(named))
    assert {tool for pair in named for tool in pair} == set(twins)
