"""What an index that is searched in the database knows of it without asking."""

import pytest
from documents import make_document
from fakes import NamedEmbeddings

from langchain_toolrag.postgres.index import PostgresIndex

TOOLS = [make_document(f"rain_{n}", "Says rain.") for n in range(4)]


@pytest.fixture
def opened(shared_dsn, tenant):
    """Opens a remote index of the test's tenant, as another process would."""
    made = []

    def make():
        model = NamedEmbeddings()
        made.append(PostgresIndex(shared_dsn, tenant=tenant, embeddings=model, mode="remote"))
        return made[-1]

    yield make
    for index in made:
        index.close()


def known(index):
    return index.version, index.size


def drop(index):
    with index._database.write() as connection:
        dropped = "delete from toolrag.catalogues where tenant = %s"
        connection.execute(dropped, [index._database.tenant])


def test_it_knows_how_many_tools_there_are_from_its_opening_and_from_its_own_changes(opened):
    index = opened()
    assert known(index) == (0, 0)
    index.add(TOOLS)
    assert known(index) == known(opened()) == (1, 4)
    index.remove([TOOLS[0].id])
    assert known(index) == (2, 3)


def test_it_learns_of_others_changes_by_searching(opened):
    index, other = opened(), opened()
    other.add(TOOLS)
    assert known(index) == (0, 0)
    assert len(index.evidence("rain").tools) == 4
    assert known(index) == (1, 4)
    other.refresh([])
    assert index.evidence("rain").tools == ()
    assert known(index) == (2, 0)


def test_a_catalogue_that_was_dropped_and_made_anew_is_known_as_it_is_now(opened):
    index, other = opened(), opened()
    for tool in TOOLS:
        index.add([tool])
    drop(other)
    other.add(TOOLS[:2])
    assert {tool.id for tool in index.evidence("rain").tools} == {"rain_0", "rain_1"}
    assert known(index) == (1, 2)
    assert index.documents == tuple(TOOLS[:2])


def test_its_documents_are_read_again_only_when_they_have_changed(opened):
    index, other = opened(), opened()
    index.add(TOOLS)
    before = index.documents
    assert index.documents is before
    other.add([make_document("sun")])
    assert index.documents == (*TOOLS, make_document("sun"))
    drop(other)
    assert index.documents == ()
