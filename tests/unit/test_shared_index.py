"""Several ToolRAGs, of one process or many, over one index: each finds, and changes, its own."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from fakes import HashingEmbeddings, make_catalogue, make_tool
from hypothesis import given
from hypothesis import strategies as st

from langchain_toolrag import ToolRAG
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.types import ToolFilter

REQUEST = "current weather in a city"
WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}

WAYS = {
    "search": lambda rag, how: how(rag, "search")(REQUEST, k=3),
    "find": lambda rag, how: how(rag, "find")(REQUEST, 3),
    "semantic_search": lambda rag, how: how(rag, "semantic_search")(REQUEST, k=3),
    "text_search": lambda rag, how: how(rag, "text_search")(REQUEST, k=3),
    "keyword_search": lambda rag, how: how(rag, "keyword_search")("weather city get", k=3),
    "select": lambda rag, how: how(rag, "select")(REQUEST),
    "explain": lambda rag, how: how(rag, "explain")(REQUEST),
}


class IndexElsewhere:
    """An index that is asked over a wire, and may have known its size at another time."""

    local = None

    def __init__(self, there):
        self.there = there
        self.known_size = None
        self.asked = []

    @property
    def size(self):
        return self.there.size if self.known_size is None else self.known_size

    def __getattr__(self, name):
        return getattr(self.there, name)

    def evidence(self, *args, **kwargs):
        self.asked.append(args[2])
        return self.there.evidence(*args, **kwargs)

    async def aevidence(self, *args, **kwargs):
        await asyncio.sleep(0)
        self.asked.append(args[2])
        return await self.there.aevidence(*args, **kwargs)


class NotToBeWaitedFor(IndexElsewhere):
    """One that would block an event loop unless it is awaited."""

    def evidence(self, *args, **kwargs):
        raise RuntimeError("it blocks")


def own_tools():
    """Three for a request, one of them the best by far, and others."""
    return [make_tool(f"weather_city_{n}", f"Get weather, city {n}.") for n in range(3)] + [
        make_tool("play_song", "Plays a song.")
    ]


def strangers():
    """Better ones than any of ours, and more than a source puts forward."""
    return [
        make_tool(f"get_weather_city_{n}", f"{REQUEST} {n}", server="theirs") for n in range(60)
    ]


def plain(rag, name):
    return getattr(rag, name)


def awaited(rag, name):
    return lambda *args, **kwargs: asyncio.run(getattr(rag, f"a{name}")(*args, **kwargs))


def ids(found):
    if hasattr(found, "selected"):
        return found.ids
    return [each.id for each in getattr(found, "hits", found)]


def in_memory(tools):
    index = ToolIndex(HashingEmbeddings())
    rag = ToolRAG(tools, index=index)
    ToolRAG(index=index).add(strangers())
    return rag


def elsewhere(tools):
    index = IndexElsewhere(ToolIndex(HashingEmbeddings()))
    rag = ToolRAG(tools, index=index)
    ToolRAG(index=index.there).add(strangers())
    return rag


def elsewhere_and_not_known_yet(tools):
    rag = elsewhere(tools)
    rag.tool_index.known_size = len(tools)
    return rag


def in_place_of_own_ones(tools):
    """As many tools as were there before, others among them."""
    index = ToolIndex(HashingEmbeddings())
    rag = ToolRAG(tools, index=index)
    index.remove(list(rag.catalogue.entries)[-2:])
    ToolRAG(index=index).add(strangers()[:2])
    return rag


KINDS = [in_memory, elsewhere, elsewhere_and_not_known_yet, in_place_of_own_ones]


@pytest.mark.parametrize("shared", KINDS)
@pytest.mark.parametrize("how", [plain, awaited])
class TestAToolRAGWithTools:
    @pytest.mark.parametrize("way", WAYS)
    def test_finds_its_own_alone(self, shared, how, way):
        rag = shared(own_tools())
        found = ids(WAYS[way](rag, how))
        assert found
        assert set(found) <= set(rag.catalogue.entries)

    @pytest.mark.parametrize("way", list(WAYS)[:5])
    def test_finds_as_many_as_there_are(self, shared, how, way):
        rag = shared(own_tools())
        there = set(rag.tool_index.documents_of(rag.catalogue.entries))
        wanted = {"weather_city_0", "weather_city_1", "weather_city_2"} & there
        assert set(ids(WAYS[way](rag, how))) == wanted

    def test_does_not_find_what_others_have_by_its_name(self, shared, how):
        rag = shared(own_tools())
        finding = how(rag, "find")("select:get_weather_city_0,weather_city_0")
        assert ids(finding) == ["weather_city_0"]
        assert finding.missing == ("get_weather_city_0",)
        assert how(rag, "find")("theirs").server == ""
        named = ids(how(rag, "keyword_search")("get_weather_city_0"))
        assert set(named) <= set(rag.catalogue.entries)

    def test_holds_its_filters_besides(self, shared, how):
        rag = shared(own_tools())
        assert ids(how(rag, "search")(REQUEST, 3, lambda it: "1" in it.id)) == ["weather_city_1"]
        only = ToolFilter(ids={"weather_city_0", "theirs/get_weather_city_0"})
        assert ids(how(rag, "search")(REQUEST, 3, only)) == ["weather_city_0"]
        assert ids(how(rag, "search")(REQUEST, 3, ToolFilter(servers={"theirs"}))) == []


@pytest.mark.parametrize("how", [plain, awaited])
@pytest.mark.parametrize("way", list(WAYS)[:5])
def test_a_toolrag_without_tools_finds_all(how, way):
    index = ToolIndex(HashingEmbeddings())
    ToolRAG(own_tools(), index=index)
    ToolRAG(index=index).add(strangers())
    found = ids(WAYS[way](ToolRAG(index=index), how))
    assert any(identity.startswith("theirs/") for identity in found)


def test_provider_and_broken_tools_are_not_taken_for_others(embeddings):
    broken = make_tool("broken")
    broken.args_schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/Missing"}}}
    index = IndexElsewhere(ToolIndex(embeddings))
    rag = ToolRAG([WEB_SEARCH, broken, *make_catalogue()], index=index)
    rag.search(REQUEST)
    assert index.asked
    assert set(index.asked) == {None}  # Asked once, and for nothing less than all.


def test_an_index_for_oneself_is_asked_once_and_without_a_filter(embeddings):
    index = IndexElsewhere(ToolIndex(embeddings))
    ToolRAG(make_catalogue(), index=index).search(REQUEST)
    assert index.asked == [None]


def test_an_index_with_others_is_asked_once_for_the_own(embeddings):
    index = IndexElsewhere(ToolIndex(embeddings))
    rag = ToolRAG(own_tools(), index=index)
    ToolRAG(index=index.there).add(strangers())
    rag.search(REQUEST)
    assert index.asked == [ToolFilter(ids=set(rag.catalogue.entries))]


def test_the_status_counts_the_tools_that_can_be_found(embeddings):
    index = ToolIndex(embeddings)
    rag = ToolRAG(own_tools(), index=index)
    other = ToolRAG(index=index)
    other.add(strangers())
    assert (rag.status.tools, other.status.tools) == (4, 60)
    assert ToolRAG(index=index).status.tools == 64


@pytest.mark.parametrize("way", WAYS)
async def test_async_ones_wait_for_an_index_and_do_not_block(way):
    there = ToolIndex(HashingEmbeddings())
    rag = ToolRAG(own_tools(), index=NotToBeWaitedFor(there))
    ToolRAG(index=there).add(strangers())
    found = await WAYS[way](rag, lambda rag, name: getattr(rag, f"a{name}"))
    assert set(ids(found)) <= set(rag.catalogue.entries)


class TestChanges:
    def test_leave_what_others_have_brought(self, embeddings):
        index = ToolIndex(embeddings)
        one, other = ToolRAG(index=index), ToolRAG(index=index)
        one.add([make_tool("ping")])
        other.add([make_tool("pong")])
        one.add([make_tool("peng")])
        one.remove(["ping"])
        assert [document.id for document in index.documents] == ["pong", "peng"]

    def test_of_many_at_once_are_all_kept(self, embeddings):
        index = ToolIndex(embeddings)

        def add_ten_and_remove_five(number):
            rag = ToolRAG(index=index)
            for n in range(10):
                rag.add([make_tool(f"tool_{number}_{n}")])
            rag.remove([f"tool_{number}_{n}" for n in range(0, 10, 2)])
            return set(rag.catalogue.entries)

        with ThreadPoolExecutor(8) as pool:
            own = list(pool.map(add_ten_and_remove_five, range(8)))
        assert {document.id for document in index.documents} == set().union(*own)
        assert index.size == 40

    def test_write_only_what_differs(self, embeddings, monkeypatch):
        index, written = ToolIndex(embeddings), []
        rag = ToolRAG(make_catalogue(), index=index)
        for change in ("add", "remove", "refresh"):
            wrapped = getattr(index, change)
            monkeypatch.setattr(index, change, noting(written, change, wrapped))
        rag.add([make_tool("ping"), make_tool("pong")])
        rag.remove(["ping", "play_song"])
        rag.add([])
        assert written == [("add", ["ping", "pong"]), ("remove", ["music/play_song", "ping"])]

    def test_write_the_names_that_a_new_twin_changes(self, embeddings):
        index = ToolIndex(embeddings)
        rag = ToolRAG(index=index, on_duplicate="prefix")
        rag.add([make_tool("ping", server="here")])
        changes = rag.add([make_tool("ping", server="there")])
        assert (changes.added, changes.changed) == (("there/ping",), ("here/ping",))
        assert {document.bound_name for document in index.documents} == {"here_ping", "there_ping"}
        assert rag.remove(["there/ping"]).changed == ("here/ping",)
        assert [document.bound_name for document in index.documents] == ["ping"]

    def test_bring_back_what_another_has_taken_out(self, embeddings):
        index, ping = ToolIndex(embeddings), make_tool("ping")
        one, other = ToolRAG(index=index), ToolRAG(index=index)
        one.add([ping])
        other.add([ping])
        other.remove(["ping"])
        assert one.add([ping]).added == ("ping",)
        assert [hit.id for hit in one.search("ping")] == ["ping"]

    def test_do_not_bring_back_what_is_not_asked_for(self, embeddings):
        index, ping = ToolIndex(embeddings), make_tool("ping")
        one, other = ToolRAG(index=index), ToolRAG(index=index)
        one.add([ping])
        other.add([ping])
        other.remove(["ping"])
        one.add([make_tool("pong")])
        assert [document.id for document in index.documents] == ["pong"]

    def test_may_take_out_what_another_has_taken_out(self, embeddings):
        index, ping = ToolIndex(embeddings), make_tool("ping")
        one, other = ToolRAG(index=index), ToolRAG(index=index)
        one.add([ping])
        other.add([ping])
        other.remove(["ping"])
        assert one.remove(["ping"]).removed == ()
        assert not one.catalogue.entries

    @pytest.mark.parametrize("broken", ["add", "remove"])
    def test_that_fail_leave_every_tool_findable_and_can_be_repeated(
        self, embeddings, monkeypatch, broken
    ):
        index = ToolIndex(embeddings)
        rag = ToolRAG(index=index, on_duplicate="prefix")
        rag.add([make_tool("ping", server="here"), make_tool("ping", server="there")])
        monkeypatch.setattr(index, broken, refuse)
        with pytest.raises(ConnectionError):
            rag.remove(["there/ping"])
        monkeypatch.undo()
        assert {hit.id for hit in rag.search("ping")} == {"here/ping", "there/ping"}
        assert rag.remove(["there/ping"]).removed == ("there/ping",)
        assert [document.bound_name for document in index.documents] == ["ping"]


def noting(written, name, change):
    """A change of an index that is noted before it is made."""

    def noted(given):
        written.append((name, [getattr(each, "id", each) for each in given]))
        return change(given)

    return noted


def refuse(given):
    raise ConnectionError("the index is down")


_TOOLS = {
    who: [make_tool(name, server=server) for server in servers for name in ("ping", "pong", "peng")]
    for who, servers in {0: ("a", "b"), 1: ("c", "d")}.items()
}
_changes = st.lists(
    st.tuples(st.sampled_from([0, 1]), st.booleans(), st.sets(st.integers(0, 5), max_size=4)),
    max_size=12,
)


@given(_changes)
def test_an_index_holds_the_tools_of_all_under_the_names_they_have_now(changes):
    """Names change as twins come and go."""
    index = ToolIndex(HashingEmbeddings())
    rags = [ToolRAG(index=index, on_duplicate="prefix") for _ in range(2)]
    for who, is_added, places in changes:
        rag, chosen = rags[who], [_TOOLS[who][place] for place in sorted(places)]
        if is_added:
            rag.add(chosen)
        else:
            known = [f"{tool.metadata['server']}/{tool.name}" for tool in chosen]
            rag.remove([each for each in known if each in rag.catalogue.entries])
    wanted = {d.id: d for rag in rags for d in rag.catalogue.documents}
    assert {document.id: document for document in index.documents} == wanted
