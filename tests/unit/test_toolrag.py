import dataclasses
import inspect
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from conversations import turn, user
from fakes import BrokenEmbeddings, HashingEmbeddings, make_catalogue, make_tool

from langchain_toolrag import SelectionOptions, ToolRAG
from langchain_toolrag.errors import EmbeddingError, UnknownToolError
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.search.cutoff import Cutoff
from langchain_toolrag.search.fusion import average_score
from langchain_toolrag.types import ToolFilter

MAIL = ToolFilter(servers=frozenset({"mail"}))
SEARCHES = ["search", "semantic_search", "text_search", "keyword_search"]
QUERIES = [
    "current weather in a city",
    "do you know a song",
    "send_email",
    "select:play_song,get_weather",
    "+issue list",
    "xyzzy",
    " ",
]
FOLLOW_UP = [*turn("lamp", "turn_on_light"), *turn("weather in a city"), user("do it again")]


def ids(hits):
    return [hit.id for hit in hits]


def without_search_id(selection):
    state = {key: value for key, value in selection.state.items() if key != "search_id"}
    return repr(dataclasses.replace(selection, search_id="", state=state))


def outline(selection):
    return selection.names, selection.scores, selection.reasons, selection.query, selection.turn_id


class TestSearches:
    @pytest.mark.parametrize("search", SEARCHES)
    def test_hits_come_best_first_with_ranks_from_one(self, rag, search):
        hits = getattr(rag, search)("list the issues of a repository", k=3)
        assert ids(hits)[0] == "github/list_issues"
        assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)

    @pytest.mark.parametrize("query", QUERIES)
    @pytest.mark.parametrize("search", SEARCHES)
    async def test_async_finds_the_same(self, rag, search, query):
        found = await getattr(rag, f"a{search}")(query)
        assert found == getattr(rag, search)(query)

    @pytest.mark.parametrize("search", SEARCHES)
    async def test_async_takes_k_and_filter_too(self, rag, search):
        found = await getattr(rag, f"a{search}")("mail words email", 1, MAIL)
        assert found == getattr(rag, search)("mail words email", 1, MAIL)
        assert len(found) == 1

    @pytest.mark.parametrize("search", SEARCHES)
    def test_a_filter_is_applied_before_the_best_are_taken(self, tools, embeddings, search):
        options = SelectionOptions(similarity_threshold=-1.0)
        rag = ToolRAG(tools, embeddings=embeddings, options=options)
        hits = getattr(rag, search)("weather issue song email", k=2, filter=MAIL)
        assert set(ids(hits)) == {"mail/send_email", "mail/search_email"}

    @pytest.mark.parametrize("search", SEARCHES)
    def test_a_filter_may_be_a_function(self, rag, search):
        hits = getattr(rag, search)("email", filter=lambda document: document.server == "mail")
        assert set(ids(hits)) <= {"mail/send_email", "mail/search_email"}
        assert hits

    @pytest.mark.parametrize("search", SEARCHES)
    def test_a_filter_of_another_kind_is_refused(self, rag, search):
        with pytest.raises(TypeError, match="filter is a str"):
            getattr(rag, search)("email", filter="mail")

    @pytest.mark.parametrize("search", SEARCHES)
    def test_an_empty_catalogue_has_no_hits(self, search):
        assert getattr(ToolRAG(embeddings=HashingEmbeddings()), search)("weather") == []

    @pytest.mark.parametrize("search", SEARCHES)
    @pytest.mark.parametrize("k", [0, -1])
    def test_a_k_below_one_is_refused(self, rag, search, k):
        with pytest.raises(ValueError, match=f"k is {k}"):
            getattr(rag, search)("weather issue song email", k=k)

    def test_without_k_hybrid_search_is_cut_off_adaptively(self, rag):
        query = "current weather in a city"
        hits, ranking = rag.search(query), rag.search(query, k=12)
        average = average_score(rag.tool_index.evidence(query))
        assert ids(hits)[0] == "weather/get_weather"
        assert hits == Cutoff().apply(ranking, average)
        assert len(hits) < len(ranking)

    def test_the_options_say_how_hybrid_search_is_cut_off(self, tools, embeddings):
        def found(**fields):
            options = SelectionOptions(**fields)
            rag = ToolRAG(tools, embeddings=embeddings, options=options)
            return len(rag.search("current weather in a city"))

        assert found(completeness=0) == 1
        assert 1 < found(completeness=1, max_k=4) <= 4
        assert found(k=7, completeness=0) == 7
        assert found(margin=2.0, completeness=0) == 10

    def test_k_hits_are_returned_however_weak_they_are(self, rag):
        assert len(rag.search("xyzzy", k=7)) == 7

    def test_semantic_search_has_no_hit_below_the_threshold(self, tools, embeddings):
        options = SelectionOptions(similarity_threshold=0.45)
        rag = ToolRAG(tools, embeddings=embeddings, options=options)
        hits = rag.semantic_search("current weather in a city", k=12)
        assert hits
        assert all(hit.score >= 0.45 and hit.score == hit.evidence.dense for hit in hits)

    def test_without_k_the_classic_limits_hold(self, tools, embeddings):
        options = SelectionOptions(semantic_limit=2, text_search_limit=1, similarity_threshold=-1.0)
        rag = ToolRAG(tools, embeddings=embeddings, options=options)
        assert len(rag.semantic_search("weather issue song email")) == 2
        assert len(rag.text_search("weather issue song email")) == 1

    def test_text_and_keyword_search_embed_nothing(self, rag, embeddings):
        assert rag.text_search("song")
        assert rag.keyword_search("song")
        assert (embeddings.texts, embeddings.queries) == ([], [])

    def test_keyword_search_returns_every_named_tool_and_no_other(self, rag):
        named = rag.keyword_search("select:play_song,send_email,get_weather", k=1)
        assert set(ids(named)) == {"music/play_song", "mail/send_email", "weather/get_weather"}

    @pytest.mark.parametrize("search", ["search", "semantic_search"])
    def test_a_failed_embedding_is_raised(self, tools, search):
        rag = ToolRAG(tools, embeddings=BrokenEmbeddings())
        with pytest.raises(EmbeddingError, match="the model server is down"):
            getattr(rag, search)("weather")

    @pytest.mark.parametrize("search", ["text_search", "keyword_search"])
    def test_words_and_names_need_no_embedding(self, tools, search):
        rag = ToolRAG(tools, embeddings=BrokenEmbeddings())
        assert ids(getattr(rag, search)("play_song"))[0] == "music/play_song"


class TestSelect:
    @pytest.mark.parametrize("messages", [*QUERIES, FOLLOW_UP, []])
    async def test_async_selects_the_same(self, rag, messages):
        previous = rag.select("sends an email").state
        arguments = {"tools": rag.tools[:9], "previous": previous, "required": ["list_issues"]}
        selection = await rag.aselect(messages, filter=MAIL, **arguments)
        expected = rag.select(messages, filter=MAIL, **arguments)
        assert without_search_id(selection) == without_search_id(expected)

    async def test_async_explains_the_same(self, rag):
        assert repr(await rag.aexplain(FOLLOW_UP)) == repr(rag.explain(FOLLOW_UP))

    @pytest.mark.parametrize("method", ["select", "explain", *SEARCHES])
    def test_the_async_twin_takes_the_same_arguments(self, method):
        sync, twin = (
            inspect.signature(getattr(ToolRAG, name)).parameters for name in (method, f"a{method}")
        )
        assert sync == twin

    def test_tools_are_explained_by_score_with_unscored_ones_last(self, rag):
        explained = rag.explain([*turn("lamp", "turn_on_light"), user("weather city song")])
        scores = [tool.score for tool in explained if not math.isnan(tool.score)]
        assert len(scores) >= 2
        assert scores == sorted(scores, reverse=True)
        assert (explained[-1].name, explained[-1].source) == ("turn_on_light", "sticky")
        assert math.isnan(explained[-1].score)

    def test_explain_names_the_tools_that_select_binds(self, rag):
        names = {tool.name for tool in rag.explain(FOLLOW_UP)}
        assert names == set(rag.select(FOLLOW_UP).names)

    @pytest.mark.parametrize(
        ("window", "names"), [(None, {"a", "b", "c"}), (1, {"c"}), (2, {"b", "c"}), (0, set())]
    )
    def test_extract_sticky_names_what_was_called_known_or_not(self, rag, window, names):
        history = [*turn("0", "z"), *turn("1", "a"), *turn("2", "b"), *turn("3", "c"), user("4")]
        assert rag.extract_sticky(history, window) == names

    def test_extract_sticky_uses_the_window_of_the_options(self, tools):
        rag = ToolRAG(tools, options=SelectionOptions(sticky_window=1))
        assert rag.extract_sticky([*turn("1", "a"), *turn("2", "b"), user("3")]) == {"b"}


class TestConstruction:
    def test_it_begins_empty(self):
        rag = ToolRAG(embeddings=HashingEmbeddings())
        assert rag.tools == []
        assert rag.select("weather").tools == ()

    def test_a_share_that_is_none_is_refused_with_or_without_heads(self, tmp_path):
        for heads in (None, tmp_path):
            with pytest.raises(ValueError, match="candidate_share is 7; wanted 0 to 1"):
                ToolRAG(heads=heads, candidate_share=7)

    def test_nothing_is_embedded_before_a_search_needs_it(self, rag, embeddings):
        assert (rag.indexed, embeddings.texts) == (False, [])
        rag.search("weather")
        assert rag.indexed
        assert embeddings.texts

    @pytest.mark.parametrize(
        "extra",
        [
            {"embeddings": HashingEmbeddings()},
            {"index_options": IndexOptions()},
            {"cache_dir": "vectors"},
        ],
        ids=["embeddings", "options", "cache"],
    )
    def test_an_index_brings_its_own_embeddings_options_and_cache(self, tools, extra):
        message = "an index brings its own embeddings, options, cache and background: give it alone"
        with pytest.raises(ValueError, match=message):
            ToolRAG(tools, index=ToolIndex(HashingEmbeddings()), **extra)

    def test_an_index_can_be_brought(self, tools, embeddings):
        index = ToolIndex(embeddings)
        rag = ToolRAG(tools, index=index)
        assert rag.tool_index is index
        assert rag.select("current weather in a city").names[0] == "get_weather"

    def test_an_index_elsewhere_is_searched_and_embeds_when_it_is_told_to(self, tools, embeddings):
        class RemoteIndex:
            local = None

            def __init__(self):
                self.there = ToolIndex(embeddings)

            def __getattr__(self, name):
                return getattr(self.there, name)

        rag, told = ToolRAG(index=RemoteIndex()), []
        assert len(rag.index(tools, lambda *progress: told.append(progress)).added) == 12
        assert rag.indexed
        assert told == [(12, 12)]
        embeddings.texts.clear()
        assert rag.select("current weather in a city").names[0] == "get_weather"
        assert embeddings.texts == []

    @pytest.mark.parametrize("how", ["index", "index_options"])
    def test_classic_selection_needs_a_classic_index(self, tools, how):
        given = ToolIndex(HashingEmbeddings()) if how == "index" else IndexOptions()
        with pytest.raises(ValueError, match=r"needs IndexOptions\.classic\(\), found IndexOpt"):
            ToolRAG(tools, options=SelectionOptions.classic(), **{how: given})

    def test_classic_selection_makes_its_own_index(self, tools, embeddings):
        rag = ToolRAG(tools, embeddings=embeddings, options=SelectionOptions.classic())
        assert rag.tool_index.options == IndexOptions.classic()

    def test_embeddings_of_another_kind_are_refused(self, tools):
        with pytest.raises(TypeError, match="embeddings is a int"):
            ToolRAG(tools, embeddings=7)

    def test_always_included_tools_must_be_there(self, tools):
        with pytest.raises(UnknownToolError) as caught:
            ToolRAG(tools, options=SelectionOptions(always_include=("send_emial",)))
        assert caught.value.closest[0] == "send_email"


class TestThreads:
    def test_sixteen_threads_select_what_one_does(self, rag):
        conversations = [*([user(query)] for query in QUERIES), FOLLOW_UP] * 16
        fresh = ToolRAG(make_catalogue(), embeddings=HashingEmbeddings())
        with ThreadPoolExecutor(16) as pool:
            together = pool.map(fresh.select, conversations)
        alone = map(rag.select, conversations)
        assert [outline(one) for one in together] == [outline(one) for one in alone]

    def test_a_thread_embeds_the_tools_and_the_others_wait_for_it(self, tools, embeddings):
        rag = ToolRAG(tools, embeddings=embeddings)
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(rag.search, ["weather"] * 16))
        assert len(embeddings.texts) == len(set(embeddings.texts))

    def test_selections_during_refreshes_see_the_old_or_the_new_tools(self):
        old = [make_tool(f"old_{number}", "weather in a city") for number in range(8)]
        new = [make_tool(f"new_{number}", "weather in a city") for number in range(8)]
        rag = ToolRAG(old, embeddings=HashingEmbeddings(), options=SelectionOptions(k=5))

        def refreshing():
            for round_ in range(40):
                rag.refresh(old if round_ % 2 else new)

        with ThreadPoolExecutor(5) as pool:
            writer = pool.submit(refreshing)
            selections = [
                selection
                for _ in range(10)
                for selection in pool.map(rag.select, ["weather in a city"] * 8)
            ]
            writer.result()
        kinds = {frozenset(name[:4] for name in one.names) for one in selections}
        assert kinds <= {frozenset({"old_"}), frozenset({"new_"}), frozenset()}

    @pytest.mark.parametrize("k", [None, 2])
    def test_a_refresh_in_the_middle_of_a_selection_mixes_nothing(self, k):
        old = [make_tool(f"old_{number}", "weather in a city") for number in range(8)]
        new = [make_tool(f"new_{number}", "weather in a city") for number in range(8)]

        class RefreshingEmbeddings(HashingEmbeddings):
            def embed_query(self, text):
                rag.refresh(new)
                return super().embed_query(text)

        rag = ToolRAG(old, embeddings=RefreshingEmbeddings(), options=SelectionOptions(k=k))
        during = rag.select("weather in a city")
        after = rag.select("weather in a city", previous=during.state)
        assert len({name[:4] for name in during.names}) <= 1
        assert {name[:4] for name in after.names} == {"new_"}
