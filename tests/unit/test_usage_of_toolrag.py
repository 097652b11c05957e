"""What a ToolRAG itself writes into its usage log."""

import shutil
import time

import pytest
from conversations import turn, user
from fakes import BrokenEmbeddings, HashingEmbeddings

from langchain_toolrag import SelectionOptions, ToolRAG
from langchain_toolrag.errors import SourceError
from langchain_toolrag.usage.digests import open_digests
from langchain_toolrag.usage.log import UsageLog
from langchain_toolrag.usage.reading import read_usage

REQUEST = "current weather in a city"
TWO = SelectionOptions(k=2)
CLASSIC = SelectionOptions.classic()


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "usage"


@pytest.fixture
def log(directory):
    with UsageLog(directory, log_text=True) as log:
        yield log


@pytest.fixture
def noted(directory, log):
    def read():
        assert log.flush()
        return list(read_usage(directory))

    return read


@pytest.fixture
def rag_with(tools, log):
    def make(options=TWO, embeddings=None, given=tools):
        return ToolRAG(
            given, embeddings=embeddings or HashingEmbeddings(), options=options, usage_log=log
        )

    return make


@pytest.fixture(params=["sync", "async"])
def select(request):
    async def select(rag, *messages, **given):
        if request.param == "async":
            return await rag.aselect(*messages, **given)
        return rag.select(*messages, **given)

    return select


@pytest.fixture(params=["sync", "async"])
def find(request):
    async def find(rag, *query):
        return await rag.afind(*query) if request.param == "async" else rag.find(*query)

    return find


class TestSelections:
    async def test_a_selection_is_a_search_with_what_it_found_and_bound(
        self, rag_with, select, noted
    ):
        rag = rag_with()
        selection = await select(rag, REQUEST)

        (record,) = noted()
        assert (record.kind, record.mode, record.text) == ("select", "semantic", REQUEST)
        assert record.search_id == selection.search_id
        assert list(record.bound) == selection.ids
        assert record.confidence == pytest.approx(selection.confidence, abs=1e-6)
        assert (record.index, record.options) == (str(selection.index_version), {"k": 2})
        assert 0 < record.took_ms < 10_000
        hits = rag.search(REQUEST, 2)
        assert [(hit.tool, hit.rank) for hit in record.retrieved] == [
            (hit.id, hit.rank) for hit in hits
        ]
        assert [hit.score for hit in record.retrieved] == pytest.approx(
            [hit.score for hit in hits], abs=1e-6
        )

    async def test_a_step_that_reuses_the_turns_search_adds_none(self, rag_with, select, noted):
        rag = rag_with()
        first = await select(rag, [user(REQUEST)])
        again = await select(rag, turn(REQUEST, "get_weather"), previous=first.state)

        assert not again.fresh
        assert len(noted()) == 1

    async def test_tools_bound_for_another_reason_are_bound_and_not_retrieved(
        self, rag_with, select, noted
    ):
        rag = rag_with(SelectionOptions(k=1, always_include=("play_song",)))
        await select(rag, [*turn("lamp", "turn_on_light"), user(REQUEST)])

        (record,) = noted()
        assert [hit.tool for hit in record.retrieved] == ["weather/get_weather"]
        assert set(record.bound) == {"weather/get_weather", "music/play_song", "home/turn_on_light"}
        assert record.options == {"k": 1, "always_include": ["play_song"]}

    async def test_classic_ranks_are_in_the_order_of_its_union(self, rag_with, select, noted):
        rag = rag_with(CLASSIC)
        selection = await select(rag, "weather in a city, and a song")

        (record,) = noted()
        assert [hit.tool for hit in record.retrieved] == selection.ids
        assert [hit.rank for hit in record.retrieved] == [*range(1, len(selection.ids) + 1)]

    async def test_words_alone_are_another_mode(self, rag_with, select, noted):
        await select(rag_with(embeddings=BrokenEmbeddings()), REQUEST)

        (record,) = noted()
        assert (record.mode, record.text) == ("lexical", REQUEST)
        assert record.retrieved

    async def test_what_stays_from_a_turn_before_while_embedding_fails_is_not_retrieved(
        self, rag_with, select, noted
    ):
        embeddings = BrokenEmbeddings(broken=False)
        rag = rag_with(SelectionOptions(k=1, on_error="previous"), embeddings)
        first = await select(rag, [user(REQUEST)])
        embeddings.broken = True
        await select(rag, [*turn(REQUEST), user("play a song")], previous=first.state)

        _, record = noted()
        assert (record.mode, record.text) == ("lexical", "play a song")
        assert (record.retrieved, record.bound) == ((), ("weather/get_weather",))

    async def test_a_catalogue_bound_whole_has_the_users_words_and_no_ranks(
        self, rag_with, select, noted
    ):
        await select(rag_with(SelectionOptions(min_catalogue=12)), REQUEST)

        (record,) = noted()
        assert (record.text, record.retrieved, len(record.bound)) == (REQUEST, (), 12)

    async def test_where_nothing_is_searched_for_nor_bound_there_is_nothing_to_note(
        self, rag_with, select, noted
    ):
        rag = rag_with()
        await select(rag, "thanks!")
        await select(rag, REQUEST, deferred=True)

        assert noted() == []

    async def test_explaining_and_searching_are_no_use(self, rag_with, noted):
        rag = rag_with()
        assert rag.explain(REQUEST)
        assert await rag.aexplain(REQUEST)
        assert rag.search(REQUEST)
        assert await rag.asearch(REQUEST)
        assert rag.keyword_search("get_weather")

        assert noted() == []


class TestTheModelsOwnSearches:
    async def test_a_search_says_which_one_it_was(self, rag_with, find, noted):
        finding = await find(rag_with(), REQUEST)

        (record,) = noted()
        assert (record.kind, record.mode, record.text) == ("search", "semantic", REQUEST)
        assert record.search_id == finding.search_id != ""
        assert [hit.tool for hit in record.retrieved] == [hit.id for hit in finding.hits]
        assert record.index == "1"

    async def test_words_alone_are_another_mode(self, rag_with, find, noted):
        await find(rag_with(embeddings=BrokenEmbeddings()), REQUEST)

        assert [record.mode for record in noted()] == ["lexical"]

    async def test_a_search_that_finds_nothing_is_one_too(self, rag_with, find, noted):
        await find(rag_with(), "select:no_such_tool")

        (record,) = noted()
        assert (record.retrieved, record.confidence) == ((), 0)


class TestWhoseLogItIs:
    async def test_by_default_there_is_none(self, rag, select, find, tmp_path):
        await select(rag, REQUEST)

        assert rag.usage_log is None
        assert (await find(rag, REQUEST)).search_id == ""
        assert [*tmp_path.rglob("usage*")] == []

    @pytest.mark.parametrize("kind", [str, lambda path: path])
    def test_the_log_of_a_folder_is_closed_with_the_toolrag(
        self, tools, embeddings, directory, kind
    ):
        with ToolRAG(tools, embeddings=embeddings, usage_log=kind(directory)) as rag:
            rag.select(REQUEST)
        assert len([*read_usage(directory)]) == 1

        rag.select("play a song")
        assert rag.usage_log.dropped == 1

    def test_a_log_that_is_given_stays_open(self, rag_with, noted):
        with rag_with() as rag:
            pass
        rag.select(REQUEST)

        assert len(noted()) == 1

    def test_a_saved_one_has_its_log_when_it_is_loaded(self, rag_with, tools, tmp_path, noted, log):
        embeddings = HashingEmbeddings()
        rag = rag_with(embeddings=embeddings)
        rag.index()
        rag.save(tmp_path / "index")
        loaded = ToolRAG.load(tmp_path / "index", tools, embeddings=embeddings, usage_log=log)
        loaded.select(REQUEST)

        assert len(noted()) == 1

    @pytest.mark.parametrize("given", [True, 3, b"usage"])
    def test_something_else_is_refused(self, given):
        with pytest.raises(TypeError, match="wanted a folder, a UsageLog or None"):
            ToolRAG(usage_log=given)

    def test_a_log_without_its_key_is_refused_at_once(self, tools, embeddings, directory):
        with ToolRAG(tools, embeddings=embeddings, usage_log=directory) as rag:
            rag.select(REQUEST)
        (directory / ".key").unlink()

        with pytest.raises(SourceError, match="is missing"):
            ToolRAG(tools, usage_log=directory)

    def test_a_folder_that_cannot_be_written_any_more_costs_one_warning(
        self, tools, embeddings, directory, caplog
    ):
        with ToolRAG(tools, embeddings=embeddings, usage_log=directory) as rag:
            shutil.rmtree(directory)
            directory.touch()
            assert rag.select(REQUEST).names
            assert rag.find(REQUEST).hits
        assert rag.usage_log.dropped == 2
        assert [record.levelname for record in caplog.records] == ["WARNING"]

    def test_a_folder_that_cannot_be_one_is_refused_at_once(self, tools, tmp_path):
        (tmp_path / "file").touch()

        with pytest.raises(SourceError, match="Not a directory"):
            ToolRAG(tools, usage_log=tmp_path / "file" / "usage")

    def test_texts_are_digests_by_the_key_of_the_folder(self, tools, embeddings, directory):
        with ToolRAG(tools, embeddings=embeddings, usage_log=directory) as rag:
            rag.select(REQUEST)

        (record,) = read_usage(directory)
        assert record.request == open_digests(directory).of("request", REQUEST)
        assert record.text == ""


def test_a_line_costs_a_selection_a_tenth_of_a_millisecond_at_most(rag_with, rag):
    logged = rag_with(rag.options)

    def seconds(rag):
        started = time.perf_counter()
        rag.select(REQUEST)
        return time.perf_counter() - started

    pairs = [(seconds(logged), seconds(rag)) for _ in range(60)]
    with_log, without = (min(times) for times in zip(*pairs, strict=True))
    assert with_log - without < 0.0002  # Twice that, for a busy machine.
