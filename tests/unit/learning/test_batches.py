import re
from collections import Counter

import numpy as np
import pytest
from documents import make_document
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.texts import view_texts
from langchain_toolrag.learning.batches import Batches
from langchain_toolrag.learning.pairs import Request, TrainingSet

laws = settings(derandomize=True, deadline=None, max_examples=100)


def set_of(name, wanted, *, tools, described=True):
    """A set whose requests and tools can be told by their texts: ask 0 in mail, tool 3 of mail."""
    return TrainingSet(
        name,
        tuple(
            make_document(
                f"{name}-tool-{place}",
                f"About {name}-tool-{place} it says. And more." if described else "",
            )
            for place in range(tools)
        ),
        tuple(
            Request(f"ask-{number}-in-{name}", frozenset(places))
            for number, places in enumerate(wanted)
        ),
    )


@st.composite
def training_sets(draw):
    """Sets of 2 to 8 tools and 1 to 8 requests, with or without descriptions."""
    drawn = []
    for name in draw(st.sampled_from([["mail"], ["mail", "music"], ["mail", "music", "home"]])):
        tools = draw(st.integers(2, 8))
        places = st.frozensets(st.integers(0, tools - 1), min_size=1, max_size=4)
        wanted = draw(st.lists(places, min_size=1, max_size=8))
        drawn.append(set_of(name, wanted, tools=tools, described=draw(st.booleans())))
    return drawn


def mistaken_in(sets):
    """Every tool is taken for every other."""
    return [[list(range(len(each.documents)))] * len(each.requests) for each in sets]


def drawn(sets, count=6, *, size=3, seed=0):
    batches = Batches(sets, mistaken_in(sets), size=size, seed=seed)
    return [batches.draw() for _ in range(count)]


def asked(batch, sets):
    """Each request's parts: pairs of a set's name and a request's number."""
    return [
        [(name, int(number)) for number, name in re.findall(r"ask-(\d+)-in-(\w+)", text)]
        for text in batch.requests
    ]


def place_of(text):
    """Which tool a text is of, by the set's name and its place."""
    found = re.search(r"(\w+)(?:-|\. )tool(?:-|\. )(\d+)", text)
    return found[1], int(found[2])


def is_self_labelled(batch):
    return batch.weight < 1


class TestLaws:
    @given(training_sets(), st.integers(1, 10), st.integers(0, 1000))
    @laws
    def test_the_same_seed_draws_the_same_batches(self, sets, size, seed):
        for one, other in zip(
            drawn(sets, size=size, seed=seed), drawn(sets, size=size, seed=seed), strict=True
        ):
            assert (one.requests, one.texts, one.weight) == (
                other.requests,
                other.texts,
                other.weight,
            )
            assert np.array_equal(one.wanted, other.wanted)

    @given(training_sets(), st.integers(1, 10), st.integers(0, 1000))
    @laws
    def test_every_request_wants_a_text_and_none_is_larger_than_asked_for(self, sets, size, seed):
        for batch in drawn(sets, size=size, seed=seed):
            assert 1 <= len(batch.requests) <= size
            assert batch.wanted.shape == (len(batch.requests), len(batch.texts))
            assert batch.wanted.dtype == np.bool_
            assert batch.wanted.any(axis=1).all()

    @given(training_sets(), st.integers(1, 10), st.integers(0, 1000))
    @laws
    def test_a_batch_stays_inside_one_set(self, sets, size, seed):
        for batch in drawn(sets, size=size, seed=seed):
            names = {place_of(text)[0] for text in batch.texts}
            if not is_self_labelled(batch):
                names |= {name for parts in asked(batch, sets) for name, _ in parts}
            assert len(names) == 1

    @given(training_sets(), st.integers(1, 10), st.integers(0, 1000))
    @laws
    def test_a_request_wants_every_text_of_its_tools_and_no_other(self, sets, size, seed):
        by_name = {each.name: each for each in sets}
        for batch in drawn(sets, size=size, seed=seed):
            if is_self_labelled(batch):
                continue
            for parts, row in zip(asked(batch, sets), batch.wanted, strict=True):
                needed = set().union(*(by_name[name].requests[n].wanted for name, n in parts))
                found = [place_of(text)[1] in needed for text in batch.texts]
                assert row.tolist() == found

    @given(training_sets(), st.integers(1, 10), st.integers(0, 1000))
    @laws
    def test_no_tool_is_in_a_batch_twice(self, sets, size, seed):
        for batch in drawn(sets, size=size, seed=seed):
            assert max(Counter(map(place_of, batch.texts)).values()) == 1

    @given(training_sets(), st.integers(1, 10), st.integers(0, 1000))
    @laws
    def test_a_tools_text_is_one_that_the_index_embeds(self, sets, size, seed):
        embedded = {
            text
            for each in sets
            for document in each.documents
            for text, _ in view_texts(document, IndexOptions())
        }
        for batch in drawn(sets, size=size, seed=seed):
            assert set(batch.texts) <= embedded

    @given(training_sets(), st.integers(1, 10), st.integers(0, 1000))
    @laws
    def test_a_first_sentence_has_to_find_the_name_of_its_tool(self, sets, size, seed):
        for batch in filter(is_self_labelled, drawn(sets, size=size, seed=seed)):
            for number, (sentence, name) in enumerate(
                zip(batch.requests, batch.texts, strict=True)
            ):
                assert place_of(sentence) == place_of(name)
                assert sentence.endswith("it says.")
                assert batch.wanted[number].tolist() == [
                    other == number for other in range(len(batch.texts))
                ]


def test_another_seed_draws_other_batches():
    sets = [set_of("mail", [{0}, {1}, {2}, {3}], tools=8)]
    first, second = drawn(sets, seed=0), drawn(sets, seed=1)
    assert [batch.requests for batch in first] != [batch.requests for batch in second]


def test_documents_without_descriptions_make_no_batches_of_first_sentences():
    sets = [set_of("mail", [{0}, {1}], tools=4, described=False)]
    assert not any(map(is_self_labelled, drawn(sets, 100)))


def test_batches_of_first_sentences_come_from_sets_that_have_them():
    sets = [
        set_of("mail", [{0}], tools=4, described=False),
        set_of("music", [{0}], tools=4),
    ]
    of_sentences = list(filter(is_self_labelled, drawn(sets, 100)))
    assert 10 < len(of_sentences) < 45
    assert {place_of(text)[0] for batch in of_sentences for text in batch.texts} == {"music"}


def test_some_requests_are_two_in_one():
    sets = [set_of("mail", [{0}, {1}, {2}, {3}], tools=8)]
    parts = [
        len(each)
        for batch in drawn(sets, 100)
        if not is_self_labelled(batch)
        for each in asked(batch, sets)
    ]
    assert set(parts) == {1, 2}
    assert 0.3 < parts.count(2) / len(parts) < 0.5


def test_requests_too_long_to_be_read_whole_are_not_joined():
    long = TrainingSet(
        "mail",
        (make_document("a"), make_document("b")),
        (Request("x" * 200, frozenset({0})), Request("y", frozenset({1}))),
    )
    texts = {text for batch in drawn([long], 100) for text in batch.requests}
    assert not any("x" in text and "y" in text for text in texts)


def test_some_requests_are_typed_without_capitals_and_full_stops():
    only = TrainingSet(
        "mail", (make_document("a"), make_document("b")), (Request("Send it!", frozenset({0})),)
    )
    alone = {text for batch in drawn([only], 300) for text in batch.requests if len(text) < 10}
    assert alone == {"Send it!", "send it!", "Send it", "send it"}


def test_tools_that_the_model_mistakes_are_in_the_batch_unwanted():
    sets = [set_of("mail", [{0}], tools=8)]
    batches = Batches(sets, [[[3, 5]]], size=1, seed=0)
    places = Counter(
        place_of(text)[1]
        for batch in (batches.draw() for _ in range(100))
        if not is_self_labelled(batch)
        for text in batch.texts
    )
    assert places.keys() == {0, 3, 5}


def test_a_request_that_no_tool_is_mistaken_for_stands_alone():
    batches = Batches([set_of("mail", [{1}], tools=4)], [[[]]], size=4, seed=0)
    batch = next(batch for _ in range(20) if not is_self_labelled(batch := batches.draw()))
    assert batch.wanted.tolist() == [[True]]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_set_smaller_than_a_batch_is_drawn_whole(size):
    sets = [set_of("mail", [{0}] * size, tools=2)]
    for batch in drawn(sets, 40, size=48):
        if not is_self_labelled(batch):
            assert len(batch.requests) == size


def test_a_large_set_is_drawn_more_often_than_a_small_one_but_not_in_step():
    sets = [set_of("small", [{0}], tools=2), set_of("large", [{0}] * 25, tools=2)]
    names = Counter(place_of(batch.texts[0])[0] for batch in drawn(sets, 400))
    labelled = Counter(
        place_of(batch.texts[0])[0] for batch in drawn(sets, 400) if not is_self_labelled(batch)
    )
    assert names.keys() == {"small", "large"}
    assert 2 < labelled["large"] / labelled["small"] < 4
