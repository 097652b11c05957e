from dataclasses import replace

import pytest
from documents import make_document
from hypothesis import given
from hypothesis import strategies as st

from langchain_toolrag.postgres.records import (
    document_digest,
    read_document,
    space_key,
    storable,
    stored_id,
    written,
)
from langchain_toolrag.types import ToolDocument

# All of Unicode, NUL and halves of surrogate pairs included.
texts = st.text(st.characters(exclude_categories=()), max_size=20)
lists = st.lists(texts, max_size=3).map(tuple)
documents = st.builds(
    ToolDocument,
    id=texts,
    name=texts,
    bound_name=texts,
    description=texts,
    words=lists,
    parameters=lists,
    values=lists,
    parameter_descriptions=lists,
    server=st.none() | texts,
    title=texts,
    hint=texts,
    tags=st.frozensets(texts, max_size=3),
    origin=texts,
)


@given(documents)
def test_a_document_that_is_read_is_the_one_that_was_written(document):
    read = read_document(written(document))
    assert read == document
    assert read.origin == document.origin
    assert document_digest(read) == document_digest(document)
    assert written(document).isascii()


@given(documents, documents)
def test_documents_have_one_digest_if_and_only_if_they_are_equal(first, second):
    assert (document_digest(first) == document_digest(second)) == (first == second)


def test_where_a_tool_was_defined_does_not_count():
    document = make_document("ping", "Says pong.")
    assert document_digest(document) == document_digest(replace(document, origin="elsewhere"))
    assert document_digest(document) != document_digest(replace(document, hint="pong"))


@given(st.lists(texts | texts.map(lambda text: text * 100), unique=True, max_size=5))
def test_ids_stay_apart_and_fit_a_key(ids):
    stored = [stored_id(identity) for identity in ids]
    assert len(set(stored)) == len(ids)
    for each in stored:
        assert len(each.encode()) <= 500
        assert storable(each) == each


@pytest.mark.parametrize("identity", ["weather/get_weather", "wetter/größe", "天気", "a b\tc"])
def test_an_ordinary_id_stands_as_it_is(identity):
    assert stored_id(identity) == identity


@pytest.mark.parametrize("identity", ["a\0b", "a\ud800", "x" * 501, "é" * 251, "\x01a"])
def test_an_id_that_no_key_can_hold_stands_as_its_digest(identity):
    assert stored_id(identity).startswith("\x01")
    assert len(stored_id(identity)) == 33


def test_what_a_newer_version_wrote_besides_is_passed_over():
    text = written(make_document("ping", "Says pong.", "net"))
    assert read_document(f'{text[:-1]},"novelty":[1]}}') == make_document(
        "ping", "Says pong.", "net"
    )


@pytest.mark.parametrize("text", ["{}", "[]", "3", '{"id":"a"}', "no json"])
def test_what_is_no_document_is_an_error_that_says_so(text):
    with pytest.raises(ValueError, match=r"no tool document|Expecting value"):
        read_document(text)


def test_the_names_of_spaces_are_short_and_apart():
    assert len(space_key("a model " * 1000)) == 32
    assert space_key("a") != space_key("b")
