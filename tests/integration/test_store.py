"""LangGraph stores: langgraph-bigtool's catalogues are read as they are, and written for it."""

import asyncio
import contextlib
import logging
import threading

import pytest
from fake_model import ScriptedModel, call, says
from fakes import HashingEmbeddings, NamedEmbeddings, make_catalogue, make_tool
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent as create_langchain_agent
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore
from langgraph.store.sqlite import SqliteStore
from tools import TOOLS

from langchain_toolrag import SelectionOptions, ToolRAG, ToolRAGMiddleware, bigtool
from langchain_toolrag.errors import (
    DuplicateToolError,
    InvalidToolError,
    SourceError,
    UnknownToolError,
)
from langchain_toolrag.integrations.store import (
    afrom_store,
    awrite_tools,
    from_store,
    write_tools,
)
from langchain_toolrag.integrations.store_items import StoreItems

BY_DESCRIPTION = {"dims": 256, "fields": ["description"]}
PLACE = ("tools",)
DEFINITION = {"name": "look", "description": "Look something up."}


def embedding_index(embeddings=None):
    return {"embed": embeddings or HashingEmbeddings(), **BY_DESCRIPTION}


@contextlib.contextmanager
def opened(kind, request):
    """A store of a kind; those of databases are real ones."""
    if kind == "memory":
        yield InMemoryStore(index=embedding_index())
    elif kind == "memory without an index":
        yield InMemoryStore()
    elif kind == "sqlite":
        with SqliteStore.from_conn_string(":memory:") as store:
            store.setup()
            yield store
    else:
        dsn = request.getfixturevalue("empty_database")
        index = embedding_index() if kind == "postgres" else None
        with PostgresStore.from_conn_string(dsn, index=index) as store:
            store.setup()
            yield store


KINDS = ["memory", "memory without an index", "sqlite", "postgres", "postgres without an index"]


@pytest.fixture(params=KINDS)
def store(request):
    """Every kind of store."""
    with opened(request.param, request) as store:
        yield store


@pytest.fixture
def memory():
    return InMemoryStore(index=embedding_index())


@pytest.fixture
def registry(tools):
    """As langgraph-bigtool has it: ids that say nothing of the tools."""
    return {f"id_{number}": each for number, each in enumerate(tools)}


def fill(store, registry, namespace=PLACE, **more):
    """List tools as langgraph-bigtool's README does."""
    for key, each in registry.items():
        store.put(namespace, key, {"description": f"{each.name}: {each.description}", **more})


def read(store, namespace=PLACE, **given):
    return from_store(store, namespace, **{"embeddings": HashingEmbeddings(), **given})


def numbered(count):
    return [make_tool(f"tool_{n}", f"Does the thing of number {n}.") for n in range(count)]


def names(rag):
    return [document.name for document in rag.catalogue.documents]


class CappedStore(InMemoryStore):
    """Gives no more than 100 items at a time, whatever is asked for."""

    def batch(self, ops):
        return [r[:100] if isinstance(r, list) else r for r in super().batch(ops)]


class OffsetlessStore(InMemoryStore):
    """Begins at the first item whatever the offset."""

    def batch(self, ops):
        return super().batch([op._replace(offset=0) if hasattr(op, "offset") else op for op in ops])


class LooseStore(InMemoryStore):
    """Finds what begins like a namespace, as a PostgresStore before 3.2 does."""

    def search(self, namespace_prefix, /, **given):
        begins = ".".join(namespace_prefix)
        found = super().search((), **given)
        return [item for item in found if ".".join(item.namespace).startswith(begins)]


class TestACatalogueOfBigtool:
    def test_is_found_as_a_toolrag_over_the_registry_finds_it(self, store, registry, tools):
        fill(store, registry)

        rag, plain = read(store, registry=registry), ToolRAG(tools, embeddings=HashingEmbeddings())

        assert rag.tool_index.documents == plain.tool_index.documents
        found = rag.select([("user", "weather in a city")])
        assert found.tools[0] is registry["id_0"]
        assert found.scores == plain.select([("user", "weather in a city")]).scores

    def test_is_read_whole_though_a_store_returns_ten_items_of_its_own_accord(self, store):
        registry = {str(n): each for n, each in enumerate(numbered(700))}
        # At once: a PostgresStore then has the same time for all, and no order between them.
        write_tools(store, PLACE, registry)

        assert names(read(store, registry=registry)) == [each.name for each in registry.values()]

    @pytest.mark.parametrize("kind", [CappedStore, OffsetlessStore])
    def test_is_read_whole_from_a_store_with_pages_of_its_own(self, kind):
        store, registry = kind(), {str(n): each for n, each in enumerate(numbered(250))}
        fill(store, registry)

        assert len(read(store, registry=registry).catalogue) == 250

    def test_of_many_items_put_one_by_one_is_read_whole_and_what_is_no_tool_told(self, store):
        registry = {f"{n:x} - it's 100%_{n}": each for n, each in enumerate(numbered(1_200))}
        fill(store, registry)
        store.put(PLACE, "note", {"text": "not a tool"})
        store.put((*PLACE, "sub"), "list", {"description": ["not", "a", "text"]})
        store.put(("tools2",), "neighbour", {"description": "tool_7: not here"})

        rag = read(store, registry=registry)

        assert names(rag) == [each.name for each in registry.values()]
        assert set(rag.left_out) == {"note", "list"}
        assert rag.text_search("thing number 777", 1)[0].id == "tool_777"

    @pytest.mark.parametrize(
        ("namespace", "neighbour"),
        [
            (("my_tools",), ("myxtools",)),
            (("100%",), ("100abc",)),
            (("a\\b",), ("ab",)),
            (("it's",), ("its",)),
            (("[x]", "*"), ("x", "y")),
            (("Tools",), ("tools",)),
            (("\u5de5\u5177", "\u00fc"), ("\u5de5\u5177", "u")),
            (("a/b c",), ("a",)),
            (("x" * 300,), ("x" * 299,)),
        ],
    )
    def test_may_be_anywhere_and_has_nothing_of_its_neighbours(
        self, store, registry, namespace, neighbour
    ):
        fill(store, {"id_0": registry["id_0"]}, namespace)
        fill(store, {"id_3": registry["id_3"]}, neighbour)

        assert names(read(store, namespace, registry=registry)) == ["get_weather"]

    def test_has_nothing_of_neighbours_that_a_store_takes_for_its_own(self, registry):
        store = LooseStore()
        fill(store, {"id_0": registry["id_0"]}, ("tools", "a"))
        fill(store, {"id_3": registry["id_3"]}, ("tools2",))

        rag = read(store, registry=registry)

        assert names(rag) == ["get_weather"]
        assert rag.left_out == {}

    def test_is_in_the_order_of_the_registry_whenever_its_items_were_put(self, store, registry):
        fill(store, dict(reversed(registry.items())))

        assert names(read(store, registry=registry)) == [each.name for each in registry.values()]

    def test_has_the_tools_that_are_listed_and_no_others(self, store, registry):
        fill(store, {key: registry[key] for key in ("id_0", "id_3")})

        assert names(read(store, registry=registry)) == ["get_weather", "create_calendar_event"]

    def test_of_sub_namespaces_is_read_and_of_neighbours_not(self, store, registry):
        fill(store, {"id_0": registry["id_0"]}, ("tools", "a", "b"))
        fill(store, {"id_3": registry["id_3"]}, ("tools2",))
        fill(store, {"id_4": registry["id_4"]}, ("other", "tools"))

        assert names(read(store, registry=registry)) == ["get_weather"]
        assert names(read(store, ("other",), registry=registry)) == ["send_email"]

    def test_the_item_nearest_to_the_namespace_counts_of_several_with_a_key(self, store, registry):
        for namespace in (("tools", "a"), ("tools",), ("tools", "b", "c")):
            store.put(namespace, "id_0", {"description": f"said in {len(namespace)}"})

        rag = read(store, registry=registry)

        assert [each.description for each in rag.tool_index.documents] == ["said in 1"]

    def test_can_be_restricted_by_values_of_its_items(self, store, registry):
        fill(store, {"id_0": registry["id_0"]}, kind="weather")
        fill(store, {"id_4": registry["id_4"]}, kind="mail")

        rag = read(store, registry=registry, filter={"kind": "mail"})

        assert names(rag) == ["send_email"]

    def test_may_list_functions(self, memory):
        def double(number: int) -> int:
            """Twice a number."""
            return 2 * number

        memory.put(PLACE, "id_1", {"description": f"double: {double.__doc__}"})

        rag = read(memory, registry={"id_1": double})

        assert rag.select([("user", "twice a number")]).tools == (double,)


class TestWhatTheStoreSays:
    def test_is_what_a_tool_is_found_by(self, memory, registry):
        fill(memory, registry)
        memory.put(
            PLACE, "id_3", {"description": "create_calendar_event: Block a slot with the dentist."}
        )

        rag = read(memory, registry=registry)

        for search in (rag.search, rag.semantic_search, rag.text_search):
            assert search("dentist slot", 1)[0].id == "calendar/create_calendar_event"

    def test_is_not_what_the_model_is_told(self, memory, registry):
        memory.put(PLACE, "id_3", {"description": "Block a slot with the dentist."})

        found = read(memory, registry=registry).select([("user", "dentist slot")])

        assert found.tools == (registry["id_3"],)
        assert found.selected[0].description == registry["id_3"].description

    def test_is_what_a_tool_is_found_by_that_comes_again(self, memory, registry):
        fill(memory, registry)
        memory.put(PLACE, "id_3", {"description": "Block a slot with the dentist."})
        rag = read(memory, registry=registry)
        version = rag.tool_index.version

        rag.add([registry["id_3"]])
        assert rag.tool_index.version == version
        rag.remove(["create_calendar_event"])
        assert rag.text_search("dentist slot") == []
        rag.add([registry["id_3"], make_tool("get_tide", "High tide in a harbour.")])

        assert rag.search("dentist slot", 1)[0].id == "calendar/create_calendar_event"
        assert rag.text_search("high tide in a harbour", 1)[0].id == "get_tide"
        assert rag.reload().removed == ("get_tide",)

    @pytest.mark.parametrize("value", [{}, {"description": ""}, {"description": ["a"]}, {"x": 1}])
    def test_if_nothing_leaves_the_tools_own_words(self, memory, registry, value):
        memory.put(PLACE, "id_0", value)

        rag = read(memory, registry=registry)

        assert rag.tool_index.documents[0].description == registry["id_0"].description

    def test_of_its_own_vectors_nothing_is_used(self, registry):
        theirs, ours = HashingEmbeddings(), HashingEmbeddings()
        memory = InMemoryStore(index=embedding_index(theirs))
        fill(memory, registry)
        texts = list(theirs.texts)

        rag = from_store(memory, registry=registry, embeddings=ours)
        rag.search("weather in a city")

        assert (theirs.texts, theirs.queries) == (texts, [])
        assert ours.queries == ["weather in a city"]

    def test_can_be_embedded_by_the_stores_own_model(self, memory, registry):
        fill(memory, registry)

        rag = from_store(memory, registry=registry, embeddings=memory.embeddings)

        assert rag.search("weather in a city")[0].id == "weather/get_weather"
        assert memory.embeddings.queries == ["weather in a city"]

    def test_is_embedded_once_for_all_processes_with_a_cache(self, memory, registry, tmp_path):
        fill(memory, registry)
        read(memory, registry=registry, embeddings=NamedEmbeddings(), cache_dir=tmp_path).index()
        second = NamedEmbeddings()

        read(memory, registry=registry, embeddings=second, cache_dir=tmp_path).index()

        assert second.texts == []

    def test_is_read_by_toolrags_own_algorithm_too(self, memory, registry):
        fill(memory, registry)

        rag = read(memory, registry=registry, options=SelectionOptions.classic())

        assert rag.select([("user", "weather in a city")]).names[0] == "get_weather"


class TestItemsThatAreNoTools:
    def test_are_left_out_and_said_to_be(self, memory, registry, caplog):
        fill(memory, registry)
        memory.put(PLACE, "note", {"text": "not a tool"})

        rag = read(memory, registry=registry)

        assert len(rag.catalogue) == len(registry)
        assert rag.left_out == {"note": "the registry has no such key"}
        assert [each.getMessage() for each in caplog.records] == [
            "the store's namespace ('tools',): 1 of 13 items are left out "
            "('note': the registry has no such key)"
        ]

    def test_are_warned_of_once_for_as_long_as_they_stay(self, memory, registry, caplog):
        fill(memory, registry)
        memory.put(PLACE, "note", {})
        rag = read(memory, registry=registry)

        rag.reload()
        assert len(caplog.records) == 1
        memory.delete(PLACE, "note")
        rag.reload()
        assert rag.left_out == {}
        memory.put(PLACE, "note", {})
        rag.reload()
        assert len(caplog.records) == 2

    def test_alone_are_an_error_that_names_some(self, memory, registry):
        fill(memory, {f"old_{key}": each for key, each in registry.items()})

        with pytest.raises(SourceError, match=r"none of its 12 items is a tool") as raised:
            read(memory, registry=registry)

        assert "'old_id_0': the registry has no such key" in str(raised.value)
        assert "old_id_9" not in str(raised.value)

    def test_of_bigtool_are_an_error_without_a_registry(self, memory, registry):
        fill(memory, registry)

        with pytest.raises(SourceError, match=r"give the tools as registry=\{key: tool\}"):
            read(memory)

    @pytest.mark.parametrize(
        "tool", [None, {}, "get_weather", "3", "{}", '{"name": 3}', '{"type": "web_search"}']
    )
    def test_are_those_whose_definition_is_none(self, memory, tool):
        memory.put(PLACE, "bad", {"tool": tool})
        write_tools(memory, PLACE, [DEFINITION])

        rag = read(memory)

        assert names(rag) == ["look"]
        assert list(rag.left_out) == ["bad"]

    def test_a_namespace_without_items_is_empty_and_warned_of(self, store, registry, caplog):
        rag = read(store, registry=registry)

        assert len(rag.catalogue) == 0
        assert "('tools',) has no items" in caplog.text
        fill(store, registry)
        assert len(rag.reload().added) == len(registry)


class TestWriting:
    def test_what_was_written_is_read_without_a_registry_as_it_was(self, store):
        tools = [*TOOLS, make_tool("hinted", "x", tags=["a"], search_hint="words"), DEFINITION]
        write_tools(store, PLACE, tools)

        written = read(store, on_duplicate="id").tool_index.documents

        plain = ToolRAG(tools, embeddings=HashingEmbeddings(), on_duplicate="id")
        by_id = sorted(plain.tool_index.documents, key=lambda document: document.id)
        assert list(written) == by_id

    def test_definitions_are_bound_with_their_arguments(self, memory, tools):
        write_tools(memory, PLACE, tools)

        bound = read(memory).select([("user", "weather in a city")]).tools[0]

        assert bound["function"]["name"] == "get_weather"
        assert list(bound["function"]["parameters"]["properties"]) == ["city"]

    @given(
        name=st.from_regex(r"[\w. -]{1,20}", fullmatch=True).filter(str.strip),
        description=st.text(st.characters(exclude_categories=("Cs", "Cc"))),
        server=st.none() | st.text("ab/", min_size=1, max_size=3),
        tags=st.lists(st.text("ab", min_size=1)),
        hint=st.text("ab"),
        title=st.text("ab"),
        own_id=st.text("ab"),
    )
    def test_any_definition_comes_back_as_it_was(self, **definition):
        hint, own_id = definition.pop("hint"), definition.pop("own_id")
        tool = {**definition, "search_hint": hint, "id": own_id, "inputSchema": {"type": "object"}}
        memory = InMemoryStore()
        write_tools(memory, PLACE, [tool])

        with read(memory) as rag, ToolRAG([tool], embeddings=HashingEmbeddings()) as plain:
            assert rag.tool_index.documents == plain.tool_index.documents

    def test_says_what_it_did_and_puts_only_what_changed(self, store):
        first, second, third = numbered(3)
        assert write_tools(store, PLACE, [first, second]).added == ("tool_0", "tool_1")
        put_at = store.get(PLACE, "tool_0").updated_at
        other = make_tool("tool_1", "Does something else.")

        changes = write_tools(store, PLACE, [first, other, third])

        assert (changes.added, changes.changed, changes.kept, changes.removed) == (
            ("tool_2",),
            ("tool_1",),
            ("tool_0",),
            (),
        )
        assert store.get(PLACE, "tool_0").updated_at == put_at

    def test_embeds_the_description_and_what_is_unchanged_not_again(self, tools):
        theirs = HashingEmbeddings()
        store = InMemoryStore(index={"embed": theirs, "dims": 256})  # Of the whole value else.
        write_tools(store, PLACE, tools)

        write_tools(store, PLACE, tools)

        assert theirs.texts == [f"{each.name}: {each.description}" for each in tools]

    @pytest.mark.parametrize("kind", ["memory", "postgres"])
    def test_the_stores_own_search_finds_what_was_written(self, kind, request, tools):
        with opened(kind, request) as store:
            write_tools(store, PLACE, tools)

            found = store.search(PLACE, query="current weather in a city", limit=1)

        assert [item.key for item in found] == ["weather/get_weather"]

    def test_leaves_what_else_an_item_has(self, store, registry):
        fill(store, registry, kind="mine")

        changes = write_tools(store, PLACE, registry)

        assert changes.changed == tuple(registry)
        assert len(read(store, registry=registry, filter={"kind": "mine"}).catalogue) == 12

    def test_gives_items_the_time_to_live_that_the_store_gives_them(self, empty_database, tools):
        with PostgresStore.from_conn_string(empty_database, ttl={"default_ttl": 5}) as store:
            store.setup()
            write_tools(store, PLACE, tools)
            with store._cursor() as cursor:
                cursor.execute("select distinct ttl_minutes from store")
                assert [row["ttl_minutes"] for row in cursor.fetchall()] == [5]

    def test_keys_of_a_list_are_the_tools_ids(self, memory, tools):
        write_tools(memory, PLACE, tools)

        assert memory.get(PLACE, "weather/get_weather") is not None
        assert read(memory, registry=tools).catalogue.originals == tuple(tools)

    def test_a_providers_own_tool_is_refused_before_anything_is_put(self, memory, tools):
        web = {"type": "web_search_20250305", "name": "web_search"}

        with pytest.raises(InvalidToolError, match="a provider's own tool") as raised:
            write_tools(memory, PLACE, [*tools, web])

        assert raised.value.tool is web
        assert memory.search(PLACE) == []

    def test_two_tools_of_one_id_are_refused(self, memory):
        with pytest.raises(DuplicateToolError):
            write_tools(memory, PLACE, {"a": make_tool("same"), "b": make_tool("same", "other")})

    def test_two_tools_of_one_id_in_a_list_are_refused(self, memory):
        with pytest.raises(DuplicateToolError):
            write_tools(memory, PLACE, [make_tool("same"), make_tool("same", "other")])

    @pytest.mark.parametrize("argument", [{"$ref": "#/$defs/none"}, {"default": object()}])
    def test_a_tool_with_a_broken_schema_is_left_out(self, memory, tools, caplog, argument):
        broken = {"name": "broken", "parameters": {"properties": {"a": argument}}}

        changes = write_tools(memory, PLACE, [broken, tools[0]])

        assert changes.added == ("weather/get_weather",)
        assert "its schema is broken" in caplog.text

    def test_goes_on_where_a_store_failed(self, monkeypatch):
        store, tools = InMemoryStore(), numbered(700)
        puts = iter([None, ConnectionError("the database is gone")])
        batch = store.batch

        def failing(ops):
            ops = list(ops)
            if type(ops[0]).__name__ == "PutOp" and (failure := next(puts, None)):
                raise failure
            return batch(ops)

        monkeypatch.setattr(InMemoryStore, "batch", lambda self, ops: failing(ops))
        with pytest.raises(ConnectionError):
            write_tools(store, PLACE, tools)

        changes = write_tools(store, PLACE, tools)

        assert (len(changes.kept), len(changes.added)) == (500, 200)


class TestReloading:
    def test_takes_in_what_changed_and_embeds_only_that(self, store, registry):
        fill(store, registry)
        ours = HashingEmbeddings()
        rag = read(store, registry=registry, embeddings=ours)
        rag.index()
        ours.texts.clear()
        store.delete(PLACE, "id_0")
        store.put(PLACE, "id_3", {"description": "create_calendar_event: Block a slot."})

        changes = rag.reload()
        rag.index()

        assert (changes.changed, changes.removed) == (
            ("calendar/create_calendar_event",),
            ("weather/get_weather",),
        )
        assert len(changes.kept) == 10
        assert ours.texts
        assert all(
            "Block a slot" in text or text == "calendar. create. calendar. event"
            for text in ours.texts
        )

    def test_sees_tools_that_the_registry_got_since(self, memory, registry):
        fill(memory, registry)
        rag = read(memory, registry=registry)
        registry["new"] = make_tool("new", "New.")
        fill(memory, registry)

        assert rag.reload().added == ("new",)

    def test_that_fails_leaves_the_old_tools_and_what_was_said_of_them(self, memory, registry):
        fill(memory, registry)
        rag = read(memory, registry=registry)
        registry["twin"] = make_tool("create_calendar_event", "Another.")
        memory.put(PLACE, "twin", {"description": "create_calendar_event: Another."})
        memory.put(PLACE, "id_0", {"description": "Said since."})

        with pytest.raises(DuplicateToolError):
            rag.reload()
        rag.add([make_tool("more")])

        assert len(rag.catalogue) == 13
        assert "Said since." not in [each.description for each in rag.tool_index.documents]

    def test_that_finds_no_tool_leaves_the_old_ones(self, memory, registry):
        fill(memory, registry)
        rag = read(memory, registry=registry)
        for key in registry:
            memory.delete(PLACE, key)
        memory.put(PLACE, "note", {})

        with pytest.raises(SourceError):
            rag.reload()

        assert len(rag.catalogue) == 12

    def test_an_older_reading_does_not_undo_a_newer_one(self, registry):
        class SlowStore(InMemoryStore):
            """Holds back what its first search found until it is let go."""

            held, let_go, searches = threading.Event(), threading.Event(), 0

            def batch(self, ops):
                found = super().batch(ops)
                SlowStore.searches += self.slow
                if self.slow and SlowStore.searches == 1:
                    self.held.set()
                    assert self.let_go.wait(10)
                return found

        store = SlowStore()
        store.slow = False
        fill(store, {"id_0": registry["id_0"]})
        rag = read(store, registry=registry)
        store.slow = True
        older = threading.Thread(target=rag.reload)
        older.start()
        assert store.held.wait(10)
        store.slow = False
        fill(store, registry)

        rag.reload()
        store.let_go.set()
        older.join()

        assert len(rag.catalogue) == 12

    def test_searches_go_on_while_a_store_is_gone(self, memory, registry, monkeypatch):
        fill(memory, registry)
        rag = read(memory, registry=registry)

        def gone(self, ops):
            raise ConnectionError("the database is gone")

        monkeypatch.setattr(InMemoryStore, "batch", gone)

        with pytest.raises(ConnectionError):
            rag.reload()
        assert rag.search("weather in a city")[0].id == "weather/get_weather"


class TestAsyncStores:
    @pytest.fixture(params=["memory", "postgres"])
    async def astore(self, request):
        if request.param == "memory":
            yield InMemoryStore(index=embedding_index())
            return
        dsn = request.getfixturevalue("empty_database")
        async with AsyncPostgresStore.from_conn_string(dsn, index=embedding_index()) as store:
            await store.setup()
            yield store

    async def test_do_what_sync_ones_do(self, astore):
        tools = [*make_catalogue(), *numbered(600)]
        ours = {"embeddings": HashingEmbeddings()}
        assert len((await awrite_tools(astore, PLACE, tools)).added) == 612
        assert len((await awrite_tools(astore, PLACE, tools)).kept) == 612

        rag = await afrom_store(astore, PLACE, registry=tools, **ours)

        assert rag.catalogue.originals == tuple(tools)
        assert (await rag.asearch("weather in a city"))[0].id == "weather/get_weather"
        assert len((await afrom_store(astore, PLACE, **ours)).catalogue) == 612
        await astore.adelete(PLACE, "tool_7")
        assert (await rag.areload()).removed == ("tool_7",)

    async def test_are_read_whole_though_their_items_were_put_one_by_one(self, astore):
        registry = {f"{n:x}": each for n, each in enumerate(numbered(1_200))}
        for key, each in registry.items():
            await astore.aput(PLACE, key, {"description": f"{each.name}: {each.description}"})
        await astore.aput(PLACE, "note", {"text": "not a tool"})

        rag = await afrom_store(astore, registry=registry, embeddings=HashingEmbeddings())

        assert names(rag) == [each.name for each in registry.values()]
        assert list(rag.left_out) == ["note"]
        assert (await rag.atext_search("thing number 777", 1))[0].id == "tool_777"

    async def test_of_a_database_are_read_from_other_threads_too(self, empty_database, tools):
        async with AsyncPostgresStore.from_conn_string(empty_database) as store:
            await store.setup()
            await awrite_tools(store, PLACE, tools)

            rag = await asyncio.to_thread(read, store, registry=tools)

            assert len(rag.catalogue) == 12
            with pytest.raises(asyncio.InvalidStateError, match="use the asynchronous interface"):
                read(store, registry=tools)


class TestAgents:
    @pytest.mark.parametrize("kind", ["memory", "postgres"])
    @pytest.mark.parametrize(
        "listing", [fill, lambda store, given: write_tools(store, PLACE, given)]
    )
    def test_bigtools_own_agent_finds_what_is_listed(self, kind, listing, request, registry):
        asks = says("", call("retrieve_tools", query="current weather in a city"))
        model = ScriptedModel(script=[asks, says("", call("get_weather", id="c2", city="Delhi"))])
        with opened(kind, request) as store:
            listing(store, registry)
            agent = bigtool.create_agent(model, registry, limit=1).compile(store=store)

            result = agent.invoke({"messages": [("user", "hi")]})

        assert result["selected_tool_ids"] == ["id_0"]

    def test_bigtools_agent_takes_it_as_its_index(self, memory, registry):
        write_tools(memory, PLACE, registry)
        memory.put(
            PLACE, "id_3", {"description": "create_calendar_event: Block a slot with the dentist."}
        )
        model = ScriptedModel(script=[says("", call("retrieve_tools", query="dentist slot"))])
        rag = read(memory, registry=registry)
        agent = bigtool.create_agent(model, registry, limit=1, rag=rag).compile()

        assert agent.invoke({"messages": [("user", "hi")]})["selected_tool_ids"] == ["id_3"]

    async def test_a_langchain_agent_calls_what_was_found(self, memory, registry):
        fill(memory, registry)
        model = ScriptedModel(script=[says("", call("get_weather", city="Delhi"))])
        rag = read(memory, registry=registry, options=SelectionOptions(k=1))
        agent = create_langchain_agent(model, middleware=[ToolRAGMiddleware(rag=rag)])

        result = await agent.ainvoke({"messages": [("user", "weather in a city")]})

        assert model.bound[0] == ["get_weather"]
        assert result["messages"][2].content == "get_weather [('city', 'Delhi')]"

    def test_options_that_name_a_tool_that_is_not_listed_are_refused(self, memory, registry):
        fill(memory, {"id_0": registry["id_0"]})

        with pytest.raises(UnknownToolError, match="always_include names 'send_email'"):
            read(memory, registry=registry, options=SelectionOptions(always_include=["send_email"]))


class TestWhatIsRefused:
    def test_a_store_that_was_not_opened(self):
        with pytest.raises(TypeError, match="wanted a LangGraph store"):
            from_store(PostgresStore.from_conn_string("postgresql://localhost/none"))

    @pytest.mark.parametrize("namespace", ["tools", None, 3])
    def test_a_namespace_that_is_no_tuple(self, memory, namespace):
        with pytest.raises(TypeError, match="wanted a tuple of labels"):
            from_store(memory, namespace)

    @pytest.mark.parametrize("namespace", [(), ("",), ("a.b",), ("a", 3)])
    def test_a_namespace_that_the_store_would_not_take_or_mix_up(self, memory, namespace):
        with pytest.raises(ValueError, match="at least one label, each a text without dots"):
            write_tools(memory, namespace, [DEFINITION])

    @pytest.mark.parametrize("registry", ["tools", 3, {1: DEFINITION}])
    def test_a_registry_that_is_none(self, memory, registry):
        with pytest.raises(TypeError, match="wanted"):
            from_store(memory, registry=registry)
        with pytest.raises(TypeError, match="wanted"):
            write_tools(memory, PLACE, registry)

    def test_a_list_is_taken_for_a_namespace(self, memory):
        assert StoreItems(memory, ["tools", "mine"]).namespace == ("tools", "mine")


def test_an_empty_registry_is_one_without_tools_and_not_none(memory, caplog):
    write_tools(memory, PLACE, [DEFINITION])
    caplog.set_level(logging.WARNING)

    with pytest.raises(SourceError, match="none of its 1 items is a tool"):
        read(memory, registry={})
