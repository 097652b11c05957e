import numpy as np
import pytest
from documents import make_document

from langchain_toolrag.index.keyword import parse_query
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.snapshot import Snapshot

DIM = 4
QUERY = np.array([1, 0, 0, 0], np.float32)
PROBES = np.eye(2, DIM, dtype=np.float32)


def by_id(documents):
    return {document.id: document for document in documents}


def rain(count, start=0):
    """Tools that differ in nothing that a search sees but their names."""
    return [make_document(f"tool{number}", "Says rain.") for number in range(start, start + count)]


def snapshot_of(documents, *, embedded=True):
    snapshot, _ = Snapshot(IndexOptions()).with_documents(by_id(documents))
    return embed(snapshot) if embedded else snapshot


def embed(snapshot):
    ids = list(snapshot.waiting)
    rows = np.tile(np.array([0.6, 0.8, 0, 0], np.float32), (len(ids), 1))
    return snapshot.with_rows(ids, rows, PROBES)


def found(snapshot, k, vector=None):
    evidence = snapshot.evidence(parse_query("rain"), vector, k, None)
    return {tool.id for tool in evidence.tools}


def test_a_removed_document_leaves_its_slot_empty_and_the_others_where_they_are():
    documents = rain(5)
    before = snapshot_of(documents)
    after, changes = before.with_documents(by_id(documents[:2] + documents[3:]))
    assert changes.removed == ("tool2",)
    assert after.slots == {"tool0": 0, "tool1": 1, "tool3": 3, "tool4": 4}
    assert after.keys == after.slots
    assert found(after, 10, QUERY) == {"tool0", "tool1", "tool3", "tool4"}


def test_a_changed_document_takes_a_new_slot_and_waits_for_its_row():
    documents = rain(3)
    newer = make_document("tool1", "Says snow.")
    after, _ = snapshot_of(documents).with_documents(by_id([documents[0], newer, documents[2]]))
    assert after.slots == {"tool0": 0, "tool1": 3, "tool2": 2}
    assert after.pending == [newer]
    assert found(after, 10) == {"tool0", "tool2"}


def test_documents_are_numbered_anew_when_most_slots_are_empty():
    documents = rain(10)
    before = snapshot_of(documents)
    after, _ = before.with_documents(by_id(documents[6:]))
    assert after.slots == {"tool6": 0, "tool7": 1, "tool8": 2, "tool9": 3}
    assert after.dense.size == 4
    assert np.array_equal(after.dense.rows([0]), before.dense.rows([6]))
    assert after.waiting == []
    assert found(after, 10, QUERY) == {document.id for document in documents[6:]}


def test_slots_are_never_more_than_twice_the_documents():
    snapshot = snapshot_of(rain(4))
    for start in range(1, 60):
        snapshot, _ = snapshot.with_documents(by_id(rain(4, start)))
        snapshot = embed(snapshot)
        assert len(snapshot.ids) <= 2 * len(snapshot.documents)
    assert found(snapshot, 10, QUERY) == {f"tool{number}" for number in range(59, 63)}


def test_documents_numbered_anew_that_had_no_row_still_wait_for_it():
    documents = rain(10)
    half, _ = snapshot_of(documents[:8]).with_documents(by_id(documents))
    after, _ = half.with_documents(by_id(documents[6:]))
    assert after.keys == {"tool6": 0, "tool7": 1}
    assert after.waiting == ["tool8", "tool9"]


@pytest.mark.parametrize("vector", [None, QUERY], ids=["words", "meaning"])
@pytest.mark.parametrize("k", [1, 3])
def test_of_equal_tools_the_first_documents_are_put_forward_however_they_came(vector, k):
    documents = rain(6)
    reordered = [documents[4], make_document("first", "Says rain."), *documents[:3], documents[5]]
    changed, _ = snapshot_of(documents).with_documents(by_id(reordered))
    wanted = {document.id for document in reordered[:k]}
    assert found(embed(changed), k, vector) == found(snapshot_of(reordered), k, vector) == wanted


@pytest.mark.parametrize("k", [0, -1])
def test_nothing_is_put_forward_where_nothing_is_asked_for(k):
    assert found(snapshot_of(rain(3)), k, QUERY) == set()


def test_documents_without_a_row_are_found_by_words_beside_those_with_one():
    documents = rain(4)
    snapshot, _ = snapshot_of(documents[:2]).with_documents(by_id(documents))
    evidence = snapshot.evidence(parse_query("rain"), QUERY, 10, None)
    dense = {tool.id: tool.dense is not None for tool in evidence.tools}
    assert dense == {"tool0": True, "tool1": True, "tool2": False, "tool3": False}
    assert not evidence.dense_ready


def test_equal_documents_that_are_other_objects_are_no_change():
    snapshot = snapshot_of(rain(3))
    same, changes = snapshot.with_documents(by_id(rain(3)))
    assert same is snapshot
    assert changes.kept == ("tool0", "tool1", "tool2")


def test_what_changes_is_told_in_the_order_it_is_given():
    a, b, c, d = rain(4)
    newer = make_document("tool1", "Says snow.")
    _, changes = snapshot_of([a, b, c]).with_documents(by_id([d, newer, *rain(1)]))
    assert (changes.added, changes.changed) == (("tool3",), ("tool1",))
    assert (changes.removed, changes.kept) == (("tool2",), ("tool0",))
