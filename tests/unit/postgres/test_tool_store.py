import json
import threading
from dataclasses import replace
from itertools import chain

import pytest
from documents import make_document
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_toolrag.errors import DatabaseError
from langchain_toolrag.postgres import tool_store
from langchain_toolrag.postgres.connection import Database
from langchain_toolrag.postgres.records import tenant_key
from langchain_toolrag.postgres.tool_store import CHANNEL, News, Stand, ToolTable
from langchain_toolrag.types import Changes

A, B, C, D = (make_document(name, f"Does {name}.") for name in "abcd")
ODD = make_document("x\0y", "NUL \0 and \ud800.", "s\0", tags=frozenset({"\0"}), hint="\udc00")
LONG = make_document("n" * 5000, "Long. " * 50_000, "s" * 5000)


@pytest.fixture
def database(shared_dsn, tenant):
    database = Database(shared_dsn, tenant)
    yield database
    database.close()


@pytest.fixture
def table(database):
    return ToolTable(database)


def held(table):
    """What the table holds, in its order, and the version of each."""
    return [placed.document for placed in table.since(Stand()).written.values()]


def test_a_catalogue_nobody_has_written_is_empty(table):
    assert table.stand() == Stand("", 0)
    assert table.since(Stand()) == News(Stand(), False, {})
    assert table.count() == 0


def test_a_refresh_holds_exactly_what_was_given_in_its_order(table):
    assert table.refresh([A, B, C]) == Changes(added=("a", "b", "c"))
    newer = replace(B, description="Does more.")
    changes = table.refresh([D, newer, A])
    assert changes == Changes(added=("d",), changed=("b",), removed=("c",), kept=("a",))
    assert held(table) == [D, newer, A]
    assert (table.stand().version, table.count()) == (2, 3)


def test_nothing_is_written_where_nothing_changes(table):
    table.refresh([A, B])
    stand = table.stand()
    assert table.refresh([B, A]).kept == ("b", "a")
    assert table.refresh([replace(A, origin="elsewhere"), B]).kept == ("a", "b")
    assert table.add([A]).kept == ("a",)
    assert table.remove(["c", "nobody"]) == Changes()
    assert table.stand() == stand
    assert held(table) == [A, B]


def test_adding_replaces_in_place_and_appends_the_rest(table):
    table.refresh([A, B])
    newer = replace(A, description="Does more.")
    assert table.add([C, newer]) == Changes(added=("c",), changed=("a",))
    assert table.add([D, D]) == Changes(added=("d",))
    assert held(table) == [newer, B, C, D]


def test_removing_takes_out_what_is_there(table):
    table.refresh([A, B])
    assert table.remove(["nobody", "a", "a"]) == Changes(removed=("a",))
    assert held(table) == [B]


def test_whatever_a_server_sends_is_held_as_it_is(table):
    assert table.refresh([ODD, LONG]).added == (ODD.id, LONG.id)
    assert held(table) == [ODD, LONG]
    assert table.refresh([ODD, LONG]).kept == (ODD.id, LONG.id)
    assert table.remove([ODD.id]).removed == (ODD.id,)
    assert table.refresh([]).removed == (LONG.id,)


def test_many_tools_are_written_at_once(table):
    many = [make_document(f"tool_{n}", f"Does {n}.") for n in range(1201)]
    assert len(table.refresh(many).added) == 1201
    assert held(table) == many


def test_the_news_are_what_has_changed_since(table):
    table.refresh([A, B, C])
    seen = table.stand()
    table.remove(["b"])
    table.add([D])
    news = table.since(seen)
    assert not news.whole
    assert news.stand == Stand(seen.history, 3)
    assert [placed.document for placed in news.written.values()] == [D]
    assert list(news.removed) == ["b"]
    assert table.since(news.stand) == News(news.stand, False, {})


def test_what_was_removed_and_came_back_is_there(table):
    table.refresh([A, B])
    seen = table.stand()
    table.remove(["a"])
    table.add([A])
    news = table.since(seen)
    assert (list(news.written), list(news.removed)) == (["a"], [])


def test_whoever_is_too_far_behind_reads_everything(table, monkeypatch):
    monkeypatch.setattr(tool_store, "REMEMBERED", 2)
    table.refresh([A, B])
    first = table.stand()
    table.remove(["a"])
    second = table.stand()
    table.add([C])
    assert list(table.since(first).removed) == ["a"]
    table.add([D])
    news = table.since(first)
    assert news.whole
    assert list(news.written) == ["b", "c", "d"]
    assert not table.since(second).whole


def test_another_catalogue_is_read_as_a_whole(table, database):
    table.refresh([A, B])
    seen = table.stand()
    with database.write() as connection:
        query = "delete from toolrag.catalogues where tenant = %s"
        connection.execute(query, [database.tenant])
    assert table.since(seen) == News(Stand(), True, {})
    table.refresh([C])
    assert table.since(seen).whole
    assert held(table) == [C]


def test_a_database_that_was_put_back_is_read_as_a_whole(table):
    table.refresh([A])
    stand = table.stand()
    news = table.since(Stand(stand.history, 7))
    assert news.whole
    assert list(news.written) == ["a"]


def test_every_change_is_announced_and_the_tenant_is_not_named(table, database):
    with database.alone() as connection:
        connection.execute(f"listen {CHANNEL}")
        table.refresh([A])
        table.refresh([A])
        table.remove(["a"])
        notices = [json.loads(each.payload) for each in connection.notifies(timeout=0.2)]
    assert notices == [{"tenant": tenant_key(database.tenant), "version": n} for n in (1, 2)]
    assert database.tenant not in json.dumps(notices)


def test_tenants_do_not_see_each_other(table, shared_dsn, tenant):
    other = ToolTable(Database(shared_dsn, f"{tenant} other"))
    table.refresh([A, B])
    other.refresh([replace(A, description="Theirs."), C])
    assert held(table) == [A, B]
    other.refresh([])
    assert held(table) == [A, B]
    assert (table.stand().version, other.stand().version) == (1, 2)


def test_writers_at_once_lose_nothing_and_double_nothing(table):
    sets = [[make_document(f"w{w}_{n}") for n in range(5)] for w in range(4)]
    barrier, versions = threading.Barrier(4), []

    def write(documents):
        barrier.wait()
        for document in documents:
            versions.append(table.add([document]).added)

    threads = [threading.Thread(target=write, args=[each]) for each in sets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(held(table), key=str) == sorted(chain.from_iterable(sets), key=str)
    assert table.stand().version == len(versions) == 20


@pytest.mark.parametrize(
    ("change", "meanwhile", "expected", "left"),
    [
        (("refresh", [A, B]), ("add", [C]), Changes(("b",), (), ("c",), ("a",)), [A, B]),
        (("refresh", [A, B]), ("remove", ["a"]), Changes(added=("a", "b")), [A, B]),
        (("add", [B]), ("add", [B]), Changes(kept=("b",)), [A, B]),
        (("add", [B]), ("add", [C]), Changes(added=("b",)), [A, C, B]),
        (("remove", ["a"]), ("remove", ["a"]), Changes(), []),
    ],
)
def test_what_another_wrote_after_it_was_decided_counts(
    table, monkeypatch, change, meanwhile, expected, left
):
    table.refresh([A])
    locked = ToolTable._locked

    def late(self, connection):
        monkeypatch.undo()
        getattr(self, meanwhile[0])(meanwhile[1])
        return locked(self, connection)

    monkeypatch.setattr(ToolTable, "_locked", late)
    assert getattr(table, change[0])(change[1]) == expected
    assert held(table) == left
    places = [placed.place for placed in table.since(Stand()).written.values()]
    assert len(places) == len(set(places))


def test_refreshes_at_once_leave_one_of_the_sets(table):
    sets = [[make_document(f"{prefix}_{n}") for n in range(20)] for prefix in ("old", "new")]
    barrier = threading.Barrier(2)

    def write(documents):
        barrier.wait()
        for _ in range(10):
            table.refresh(documents)

    threads = [threading.Thread(target=write, args=[each]) for each in sets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert held(table) in sets


def test_a_row_that_is_no_document_is_an_error_that_names_the_database(table, database):
    table.refresh([A])
    with database.write() as connection:
        query = "update toolrag.tools set document = '{}' where tenant = %s"
        connection.execute(query, [database.tenant])
    with pytest.raises(DatabaseError, match="holds a row that is no tool document"):
        table.since(Stand())
    with pytest.raises(DatabaseError, match="holds a row that is no tool document"):
        table.documents_of(["a"])


names = st.sampled_from("abcdefgh")
steps = st.lists(
    st.tuples(st.just("add"), st.lists(st.tuples(names, st.integers(0, 2)), max_size=4))
    | st.tuples(st.just("remove"), st.lists(names, max_size=3))
    | st.tuples(
        st.just("refresh"),
        st.lists(st.tuples(names, st.integers(0, 2)), max_size=8, unique_by=lambda each: each[0]),
    ),
    max_size=6,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps, looks=st.lists(st.booleans(), min_size=6, max_size=6))
def test_whoever_follows_holds_what_is_there_whenever_they_look(table, steps, looks):
    table.refresh([])
    known, stand = {}, Stand()
    expected = {}
    for (step, given_), look in zip(steps, looks, strict=False):
        if step == "remove":
            table.remove(given_)
            expected = {k: v for k, v in expected.items() if k not in given_}
        else:
            documents = {name: make_document(name, f"Text {n}.") for name, n in given_}
            getattr(table, step)(list(documents.values()))
            changed = step == "add" or documents != expected
            expected = {**expected, **documents} if step == "add" else expected
            expected = documents if step == "refresh" and changed else expected
        if look:
            known, stand = follow(table, known, stand)
    known, stand = follow(table, known, stand)
    ordered = sorted(known.values(), key=lambda placed: placed.place)
    assert [placed.document for placed in ordered] == list(expected.values()) == held(table)


def follow(table, known, stand):
    news = table.since(stand)
    base = {} if news.whole else {k: v for k, v in known.items() if k not in news.removed}
    return {**base, **news.written}, news.stand
