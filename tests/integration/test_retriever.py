"""ToolRetriever beyond LangChain's own tests of it."""

import threading

import pytest
from fake_model import ScriptedModel
from fakes import make_tool
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableLambda
from pydantic import ValidationError

from langchain_toolrag import ToolRAG, ToolRetriever
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.types import ToolFilter

REQUEST = "current weather in a city"


async def retrieved(retriever, run, query, **given):
    return await run.invoke(retriever, query, **given)


async def tools_of(retriever, run, query, **given):
    if run.asynchronous:
        return await retriever.aget_tools(query, **given)
    return retriever.get_tools(query, **given)


@pytest.fixture
def retriever(rag):
    return ToolRetriever(rag=rag, k=3)


class TestDocuments:
    async def test_the_best_tool_comes_first_with_what_is_known_of_it(self, retriever, run, rag):
        first, *others = await retrieved(retriever, run, REQUEST)
        (indexed,) = (d for d in rag.tool_index.documents if d.name == "get_weather")

        assert first.id == "weather/get_weather"
        assert first.page_content == indexed.text()
        assert "rain or sun" in first.page_content
        assert first.metadata["tool_name"] == "get_weather"
        assert first.metadata["server"] == "weather"
        assert first.metadata["rank"] == 1
        assert set(first.metadata) == {"tool_name", "server", "score", "rank"}
        assert len(others) == 2

    async def test_they_come_by_score_and_rank(self, retriever, run):
        documents = await retrieved(retriever, run, REQUEST)
        scores = [document.metadata["score"] for document in documents]

        assert scores == sorted(scores, reverse=True)
        assert [document.metadata["rank"] for document in documents] == [1, 2, 3]
        assert len({document.id for document in documents}) == 3

    async def test_they_are_the_hits_of_the_search(self, retriever, run, rag):
        documents = await retrieved(retriever, run, REQUEST)
        hits = rag.search(REQUEST, 3)

        assert [(d.id, d.metadata["score"]) for d in documents] == [(h.id, h.score) for h in hits]

    async def test_a_tool_without_server_says_so(self, run, embeddings):
        rag = ToolRAG([make_tool("feed_cat", "Feeds the cat.")], embeddings=embeddings)
        (document,) = await retrieved(ToolRetriever(rag=rag), run, "feed the cat")

        assert document.id == "feed_cat"
        assert document.metadata["server"] is None

    @pytest.mark.parametrize("query", ["", "   "], ids=["empty", "blank"])
    async def test_an_empty_query_finds_nothing(self, retriever, run, query):
        assert await retrieved(retriever, run, query) == []

    async def test_an_empty_catalogue_has_nothing(self, run, embeddings):
        retriever = ToolRetriever(rag=ToolRAG([], embeddings=embeddings), k=3)

        assert await retrieved(retriever, run, REQUEST) == []

    async def test_its_name_in_a_trace_is_toolrag(self, retriever, run):
        class Metadata(BaseCallbackHandler):
            def on_retriever_start(self, serialized, query, **kwargs):
                self.seen = kwargs["metadata"]

        handler = Metadata()
        await run.invoke(retriever, REQUEST, {"callbacks": [handler]})

        assert handler.seen["ls_retriever_name"] == "toolrag"
        assert handler.seen["ls_vector_store_provider"] == "faiss"


class TestK:
    async def test_a_call_may_ask_for_another(self, retriever, run):
        assert len(await retrieved(retriever, run, REQUEST, k=5)) == 5
        assert len(await retrieved(retriever, run, REQUEST, k=1)) == 1
        assert len(await retrieved(retriever, run, REQUEST)) == 3

    async def test_more_than_there_are_gives_all(self, retriever, run, tools):
        assert len(await retrieved(retriever, run, REQUEST, k=100)) == len(tools)

    async def test_without_it_is_adaptive(self, rag, run):
        documents = await retrieved(ToolRetriever(rag=rag), run, REQUEST)

        assert [document.id for document in documents] == [hit.id for hit in rag.search(REQUEST)]
        assert 1 <= len(documents) <= 10

    @pytest.mark.parametrize("k", [0, -1])
    def test_below_one_it_is_refused_at_construction(self, rag, k):
        with pytest.raises(ValidationError, match="greater than or equal to 1"):
            ToolRetriever(rag=rag, k=k)

    @pytest.mark.parametrize("k", [0, -1])
    async def test_below_one_it_is_refused_in_a_call(self, retriever, run, k):
        with pytest.raises(ValueError, match=f"k is {k}"):
            await retrieved(retriever, run, REQUEST, k=k)
        with pytest.raises(ValueError, match=f"k is {k}"):
            await tools_of(retriever, run, REQUEST, k=k)

    def test_an_unknown_option_is_refused(self, retriever):
        with pytest.raises(TypeError, match="top_k"):
            retriever.invoke(REQUEST, top_k=3)


class TestGetTools:
    async def test_they_are_the_objects_that_went_in(self, retriever, run, tools):
        found = await tools_of(retriever, run, REQUEST)

        assert found[0] is tools[0]
        assert len(found) == 3
        assert all(any(tool is given for given in tools) for tool in found)

    async def test_they_come_as_the_documents_do(self, retriever, run):
        documents = await retrieved(retriever, run, REQUEST, k=4)
        found = await tools_of(retriever, run, REQUEST, k=4)

        assert [t.name for t in found] == [d.metadata["tool_name"] for d in documents]

    async def test_a_name_that_providers_refuse_is_replaced(self, run, embeddings):
        given = make_tool("notes.create", "Writes a note.")
        rag = ToolRAG([given], embeddings=embeddings)
        (found,) = await tools_of(ToolRetriever(rag=rag), run, "write a note")

        assert found.name == "notes__create"
        assert given.name == "notes.create"
        assert found.invoke({"query": "milk"}) == "notes.create [('query', 'milk')]"

    async def test_they_can_be_bound_in_a_chain(self, retriever, run, model):
        def answer(query):
            return model.bind_tools(retriever.get_tools(query)).invoke(query)

        await run.invoke(RunnableLambda(answer), REQUEST)

        assert isinstance(model, ScriptedModel)
        assert model.bound[0][0] == "get_weather"


class TestFilter:
    @pytest.mark.parametrize(
        "filter",
        [ToolFilter(servers=frozenset(["mail"])), lambda document: document.server == "mail"],
        ids=["filter", "function"],
    )
    async def test_only_what_it_admits_is_retrieved(self, rag, run, filter):
        retriever = ToolRetriever(rag=rag, k=2, filter=filter)
        documents = await retrieved(retriever, run, REQUEST)
        found = await tools_of(retriever, run, REQUEST)

        assert {document.metadata["server"] for document in documents} == {"mail"}
        assert {tool.name for tool in found} == {"search_email", "send_email"}

    async def test_what_is_no_filter_is_refused(self, rag, run):
        with pytest.raises(TypeError, match="wanted a ToolFilter or a function"):
            await retrieved(ToolRetriever(rag=rag, filter="mail"), run, REQUEST)


class TestAnIndexThatIsShared:
    async def test_has_its_own_tools_alone(self, run, embeddings, tools):
        index = ToolIndex(embeddings)
        retriever = ToolRetriever(rag=ToolRAG(tools, index=index), k=3)
        theirs = [make_tool(f"get_weather_{n}", REQUEST, server="theirs") for n in range(40)]
        ToolRAG(index=index).add(theirs)

        documents = await retrieved(retriever, run, REQUEST)
        found = await tools_of(retriever, run, REQUEST)

        assert len(documents) == len(found) == 3
        assert all(each in tools for each in found)
        assert "theirs" not in {document.metadata["server"] for document in documents}

    async def test_shows_everybodys_tools_where_it_has_none(self, run, embeddings, tools):
        index = ToolIndex(embeddings)
        ToolRAG(tools, index=index)
        retriever = ToolRetriever(rag=ToolRAG(index=index), k=3)

        assert (await retrieved(retriever, run, REQUEST))[0].id == "weather/get_weather"
        assert await tools_of(retriever, run, REQUEST) == []

    async def test_may_lose_a_tool_while_it_is_shown(self, run, embeddings, tools, monkeypatch):
        rag = ToolRAG(tools, embeddings=embeddings)
        known = rag.tool_index.documents_of
        gone = {"weather/get_weather"}
        monkeypatch.setattr(rag.tool_index, "documents_of", lambda ids: known({*ids} - gone))

        documents = await retrieved(ToolRetriever(rag=rag, k=3), run, REQUEST)

        assert len(documents) == 2
        assert "weather/get_weather" not in {document.id for document in documents}


async def test_documents_that_are_elsewhere_are_fetched_off_the_event_loop(embeddings, tools):
    class IndexElsewhere:
        local = None

        def __init__(self):
            self._there = ToolIndex(embeddings)
            self.fetched_in = set()

        def __getattr__(self, name):
            return getattr(self._there, name)

        def documents_of(self, ids):
            self.fetched_in.add(threading.current_thread())
            return self._there.documents_of(ids)

    index = IndexElsewhere()
    retriever = ToolRetriever(rag=ToolRAG(tools, index=index), k=3)

    assert len(await retriever.ainvoke(REQUEST)) == 3
    assert index.fetched_in
    assert threading.current_thread() not in index.fetched_in


@pytest.mark.parametrize("form", [repr, str])
def test_it_does_not_print_its_tools(rag, form):
    def keep(document):
        return True

    text = form(ToolRetriever(rag=rag, k=3, filter=keep))

    assert "k=3" in text
    assert "get_weather" not in text
    assert len(text) < 200


def test_its_dump_holds_no_tools(rag):
    assert "rag" not in ToolRetriever(rag=rag, k=3).model_dump()


async def test_a_later_tool_is_found(retriever, run, rag):
    rag.add([make_tool("feed_cat", "Feeds the cat.")])

    assert (await retrieved(retriever, run, "feed the cat"))[0].id == "feed_cat"
    assert (await tools_of(retriever, run, "feed the cat"))[0].name == "feed_cat"
