"""An agent's tools from a database: called, shared, and followed as they change."""

import contextlib
import gc
import logging
import multiprocessing
import threading
import weakref

import pytest
from fake_model import ScriptedModel, call, says
from fakes import NamedEmbeddings, make_catalogue
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from waiting import until

from langchain_toolrag import ToolRAG, ToolRAGMiddleware
from langchain_toolrag.catalogue.sources.python_tools import read_python
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool
from langchain_toolrag.errors import DatabaseError
from langchain_toolrag.postgres.stored_tools import open_database_tools

FOLLOWED_SECONDS = 2.0
PYTHON = """
from langchain_core.tools import tool

@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

@tool
def brew_coffee(cups: int) -> str:
    "Brews fresh coffee."
    return f"{cups} cups"

ONE = [add]
TWO = [add, brew_coffee]
"""


class CountingEmbeddings(NamedEmbeddings):
    """Counts the texts of tools that it embeds."""

    made = 0

    def embed_documents(self, texts):
        self.made += len(texts)
        return super().embed_documents(texts)


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "home.py"
    path.write_text(PYTHON)
    return path


@pytest.fixture
def store(shared_dsn, tenant):
    opened = open_database_tools(shared_dsn, tenant)
    yield opened
    opened.close()


@pytest.fixture
def ingest(store, module):
    """Ingests a list of the module."""

    def ingest(attribute):
        store.replace([read_python(f"{module}:{attribute}")])

    ingest("ONE")
    return ingest


@pytest.fixture
def open_rag(shared_dsn, tenant):
    opened = []

    def open_one(**given):
        given = {"embeddings": NamedEmbeddings(), **given}
        opened.append(ToolRAG.from_database(shared_dsn, tenant=tenant, **given))
        return opened[-1]

    yield open_one
    for rag in opened:
        rag.close()


def found(rag, query="fresh coffee"):
    return [hit.id for hit in rag.search(query)]


@pytest.mark.usefixtures("ingest")
def test_an_agent_finds_and_calls_what_was_ingested(open_rag):
    rag = open_rag()
    model = ScriptedModel(script=[says("", call("home__add", a=1, b=2)), says("3")])
    agent = create_agent(model, middleware=[ToolRAGMiddleware(rag=rag)])

    messages = agent.invoke({"messages": [("user", "add one and two")]})["messages"]

    assert [each.content for each in messages if isinstance(each, ToolMessage)] == ["3"]
    assert rag.tool_index.documents[0].id == "home/add"


def test_a_conversation_goes_on_after_a_tool_that_it_called_has_gone(ingest, open_rag):
    ingest("TWO")
    rag, coffee = open_rag(), "home__brew_coffee"
    brews = [says("", call(coffee, cups=cups)) for cups in (1, 2)]
    model = ScriptedModel(script=[brews[0], says("ready"), brews[1], says("no more")])
    agent = create_agent(
        model, middleware=[ToolRAGMiddleware(rag=rag)], checkpointer=InMemorySaver()
    )
    thread = {"configurable": {"thread_id": "1"}}
    agent.invoke({"messages": [("user", "fresh coffee")]}, thread)

    ingest("ONE")
    until(lambda: rag.status.tools == 1, FOLLOWED_SECONDS)
    messages = agent.invoke({"messages": [("user", "more fresh coffee")]}, thread)["messages"]

    first, second = [each for each in messages if isinstance(each, ToolMessage)]
    assert (first.content, first.status) == ("1 cups", "success")
    assert second.status == "error"
    assert f"{coffee} is not a valid tool" in second.content
    assert messages[-1].content == "no more"


def test_what_is_ingested_meanwhile_is_found_called_and_taken_away_again(ingest, open_rag):
    rag = open_rag()
    assert found(rag) == ["home/add"]

    ingest("TWO")
    until(lambda: "home/brew_coffee" in found(rag), FOLLOWED_SECONDS)
    (coffee,) = [each for each in rag.tools if each.name == "home__brew_coffee"]
    assert coffee.invoke({"cups": 2}) == "2 cups"

    ingest("ONE")
    until(lambda: found(rag) == ["home/add"], FOLLOWED_SECONDS)


def test_tools_that_the_agent_added_itself_stay(ingest, open_rag):
    rag = open_rag()
    own = make_catalogue()[0]
    rag.add([own])

    ingest("TWO")
    until(lambda: "home/brew_coffee" in found(rag), FOLLOWED_SECONDS)
    assert rag.status.tools == 3
    assert rag.known_ids([own.name], where="the test")


def test_a_tool_is_embedded_once_for_all(ingest, open_rag):
    first, second = CountingEmbeddings(), CountingEmbeddings()
    ingest("TWO")
    open_rag(embeddings=first).index()
    rag = open_rag(embeddings=second)
    rag.index()

    assert (first.made > 0, second.made) == (True, 0)
    assert rag.indexed


def test_a_module_that_is_not_here_leaves_its_tools_out_until_it_is(
    store, module, ingest, open_rag, tmp_path, caplog
):
    other = tmp_path / "elsewhere.py"
    other.write_text(PYTHON)
    store.replace([read_python(f"{other}:TWO")])
    other.rename(tmp_path / "hidden.py")
    rag = open_rag()
    assert "elsewhere" in rag.status.unavailable
    assert rag.status.tools == 1

    (tmp_path / "hidden.py").rename(other)
    ingest("TWO")
    until(lambda: rag.status.tools == 4, FOLLOWED_SECONDS)
    until(lambda: rag.status.unavailable == {}, FOLLOWED_SECONDS)


def test_tools_that_cannot_be_embedded_are_taken_and_found_by_words(ingest, open_rag, caplog):
    class Failing(NamedEmbeddings):
        def embed_documents(self, texts):
            raise RuntimeError("out of memory")

    rag = open_rag(embeddings=Failing())
    with caplog.at_level(logging.WARNING):
        ingest("TWO")
        until(lambda: rag.status.tools == 2, FOLLOWED_SECONDS)
        until(lambda: "not searched as it is to be" in caplog.text, FOLLOWED_SECONDS)
    assert "home/brew_coffee" in [hit.id for hit in rag.find("brews").hits]


def test_it_searches_and_calls_while_the_database_is_down_and_follows_again(
    dsn,
    postgres_server,
    module,
):
    store = open_database_tools(dsn)
    store.replace([read_python(f"{module}:ONE")])
    with ToolRAG.from_database(dsn, embeddings=NamedEmbeddings()) as rag:
        before = found(rag, "add two numbers")
        postgres_server.stop()
        try:
            assert found(rag, "add two numbers") == before == ["home/add"]
            assert rag.tools[0].invoke({"a": 1, "b": 2}) == 3
        finally:
            postgres_server.start()
        store.replace([read_python(f"{module}:TWO")])
        until(lambda: "home/brew_coffee" in found(rag), 5)
    store.close()


def test_a_module_that_is_ingested_right_after_an_outage_is_followed(
    dsn, postgres_server, module, tmp_path
):
    """Sources are not asked for again at once after they could not be read for a call."""
    other = tmp_path / "elsewhere.py"
    other.write_text(PYTHON)
    service = StoredSource("service", "openapi", "made up", base_url="http://127.0.0.1:9")
    status = StoredTool(
        "service/status", "service", "openapi", "status", call={"method": "get", "path": "/"}
    )
    with (
        contextlib.closing(open_database_tools(dsn)) as store,
        ToolRAG.from_database(dsn, embeddings=NamedEmbeddings()) as rag,
    ):
        store.replace([Listing(service, [status])])
        (called,) = until(lambda: rag.tools, FOLLOWED_SECONDS)
        postgres_server.stop()
        try:
            assert "private" in called.invoke({})
        finally:
            postgres_server.start()
        store.replace([read_python(f"{other}:TWO")])
        until(lambda: "elsewhere/brew_coffee" in found(rag), 5)


def _child_follows(rag, asked, answers):
    answers.put(found(rag))
    asked.wait(10)
    try:
        until(lambda: "home/brew_coffee" in found(rag), 5)
        answers.put("followed")
    except TimeoutError as error:
        answers.put(str(error))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_follows_too(ingest, open_rag):
    rag = open_rag()
    found(rag)
    forked = multiprocessing.get_context("fork")
    asked, answers = forked.Event(), forked.Queue()
    child = forked.Process(target=_child_follows, args=(rag, asked, answers))
    child.start()

    assert answers.get(timeout=10) == ["home/add"]
    ingest("TWO")
    asked.set()
    assert answers.get(timeout=10) == "followed"
    child.join(10)


@pytest.mark.usefixtures("ingest")
def test_closing_ends_its_thread_and_searches_still_answer(open_rag):
    rag = open_rag()
    assert "toolrag-postgres" in [thread.name for thread in threading.enumerate()]
    rag.close()
    rag.close()

    assert "toolrag-postgres" not in [thread.name for thread in threading.enumerate()]
    assert found(rag, "add") == ["home/add"]


@pytest.mark.usefixtures("ingest")
def test_one_that_nobody_holds_any_more_is_not_followed(open_rag, shared_dsn, tenant):
    rag = ToolRAG.from_database(shared_dsn, tenant=tenant, embeddings=NamedEmbeddings())
    gone = weakref.ref(rag)
    del rag
    gc.collect()
    assert gone() is None


def test_a_database_that_cannot_be_reached_leaves_nothing_open():
    before = {*threading.enumerate()}
    with pytest.raises(DatabaseError, match="cannot be reached"):
        ToolRAG.from_database("postgresql://me@127.0.0.1:9/shop")
    assert {*threading.enumerate()} <= before  # Those of other tests may end meanwhile.
