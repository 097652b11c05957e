import threading
import time

import pytest
from fakes import BrokenEmbeddings, HashingEmbeddings, make_catalogue, make_tool
from langchain_core.tools import StructuredTool

from langchain_toolrag import SelectionOptions, ToolRAG
from langchain_toolrag.errors import (
    DuplicateToolError,
    EmbeddingError,
    SourceError,
    StaleIndexError,
    UnknownToolError,
)
from langchain_toolrag.types import Changes

WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
PATIENCE_SECONDS = 20


def toolrag(tools=(), embeddings=None, **options):
    return ToolRAG(list(tools), embeddings=embeddings or HashingEmbeddings(), **options)


def names(rag):
    return [entry.document.name for entry in rag.catalogue]


def wait_until(happened):
    """Poll; a test that waits here fails by its own assertion when patience ends."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.005)


def timers():
    return [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


def broken_tool(name="broken"):
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/Missing"}}}
    return StructuredTool(name=name, description="Broken.", args_schema=schema, func=str)


class TestAdd:
    def test_a_new_tool_is_found_and_bound(self, rag):
        assert rag.add([make_tool("get_pollen", "Pollen today.")]).added == ("get_pollen",)
        assert rag.select("pollen today").names[0] == "get_pollen"

    def test_only_the_new_tool_is_embedded(self, rag, embeddings):
        rag.index()
        embeddings.texts.clear()
        rag.add([make_tool("get_pollen", "Pollen today.")])
        rag.index()
        assert embeddings.texts
        assert all("pollen" in text.lower() for text in embeddings.texts)

    def test_the_same_object_again_changes_nothing(self, rag, tools):
        before = rag.tool_index.version
        assert rag.add(tools).kept == tuple(rag.catalogue.entries)
        assert rag.tool_index.version == before
        assert rag.tools == tools

    def test_another_object_of_equal_content_is_harmless_and_the_first_stays(self, rag, tools):
        assert rag.add(make_catalogue()).added == ()
        assert all(one is other for one, other in zip(rag.tools, tools, strict=True))

    def test_a_tool_of_one_id_and_another_content_is_a_clash(self, rag, tools):
        with pytest.raises(DuplicateToolError, match="two tools are named 'weather/get_weather'"):
            rag.add([make_tool("new_one"), make_tool("get_weather", "Else.", server="weather")])
        assert rag.tools == tools

    def test_a_tool_of_one_name_on_another_server_is_a_clash(self, rag):
        with pytest.raises(DuplicateToolError, match="server weather, one from server other"):
            rag.add([make_tool("get_weather", server="other")])
        assert "other/get_weather" not in rag.catalogue.entries

    def test_with_prefixes_both_are_bound_under_their_servers(self, tools):
        rag = toolrag(tools, on_duplicate="prefix")
        rag.add([make_tool("get_weather", "Weather elsewhere.", server="other")])
        bound = {entry.document.id: entry.document.bound_name for entry in rag.catalogue}
        assert bound["weather/get_weather"] == "weather_get_weather"
        assert bound["other/get_weather"] == "other_get_weather"

    def test_a_provider_tool_is_added_once(self, rag):
        rag.add([WEB_SEARCH])
        rag.add([WEB_SEARCH])
        assert rag.catalogue.passed_through == (WEB_SEARCH,)
        assert rag.select("current weather").tools[0] is WEB_SEARCH

    def test_a_tool_that_was_left_out_stays_listed(self, tools):
        rag = toolrag([*tools, broken_tool()])
        rag.add([make_tool("get_pollen")])
        assert list(rag.status.rejected) == ["broken"]

    def test_the_users_object_is_never_renamed(self):
        dotted = make_tool("ns.dotted", "With a dot.")
        rag = toolrag([dotted])
        assert rag.tools[0].name == "ns__dotted"
        assert dotted.name == "ns.dotted"

    def test_a_tool_that_was_changed_in_place_is_indexed_anew(self, rag, tools):
        tools[0].description = "Moon phases."
        assert rag.add([tools[0]]).changed == ("weather/get_weather",)
        assert rag.text_search("moon")[0].id == "weather/get_weather"

    def test_other_tools_are_not_asked_whether_they_have_changed(self, rag, tools):
        tools[0].description = "Moon phases."
        assert rag.add([make_tool("get_pollen", "Pollen today.")]).changed == ()
        assert rag.refresh([*tools]).changed == ("weather/get_weather",)

    def test_an_index_that_fails_leaves_the_old_catalogue_as_it_was(self, rag, tools, monkeypatch):
        monkeypatch.setattr(rag.tool_index, "add", refuse)
        with pytest.raises(ConnectionError):
            rag.add([make_tool("get_pollen")])
        monkeypatch.undo()
        assert rag.tools == tools
        rag.refresh(tools[:2])
        assert rag.tools == tools[:2]

    def test_an_always_included_tool_that_goes_is_told_of(self, tools, caplog):
        options = SelectionOptions(always_include=("get_weather",))
        rag = toolrag(tools, options=options)
        rag.add([make_tool("get_pollen")])
        assert caplog.text == ""
        rag.remove(["get_weather"])
        assert "always_include names 'get_weather', which is not among the tools" in caplog.text


def refuse(documents):
    raise ConnectionError("the index is down")


class TestRemove:
    @pytest.mark.parametrize("name", ["get_weather", "weather/get_weather"])
    def test_a_tool_goes_by_name_or_id(self, rag, name):
        assert rag.remove([name]).removed == ("weather/get_weather",)
        assert "weather/get_weather" not in [hit.id for hit in rag.search("weather", k=12)]
        assert len(rag.tools) == 11

    def test_unknown_names_are_an_error_and_nothing_goes(self, rag):
        with pytest.raises(UnknownToolError, match=r"remove\(\) names 'get_wether', 'nope'") as no:
            rag.remove(["send_email", "get_wether", "nope"])
        assert no.value.names == ("get_wether", "nope")
        assert no.value.closest[0] == "get_weather"
        assert len(rag.tools) == 12

    def test_provider_tools_stay(self, tools):
        rag = toolrag([WEB_SEARCH, *tools])
        rag.remove(["get_weather"])
        assert rag.catalogue.passed_through == (WEB_SEARCH,)

    def test_a_removed_tool_can_be_added_again(self, rag, tools):
        rag.remove(["get_weather"])
        assert rag.add(tools[:1]).added == ("weather/get_weather",)
        assert rag.select("current weather in a city").names[0] == "get_weather"


class TestRefresh:
    def test_it_says_what_was_added_changed_removed_and_kept(self, rag, tools):
        changed = make_tool("get_forecast", "Else.", server="weather")
        changes = rag.refresh([tools[0], changed, make_tool("get_pollen")])
        assert changes == Changes(
            added=("get_pollen",),
            changed=("weather/get_forecast",),
            removed=tuple(f"{tool.metadata['server']}/{tool.name}" for tool in tools[2:]),
            kept=("weather/get_weather",),
        )
        assert str(changes) == "+1 ~1 -10 =1"

    def test_only_what_changed_is_embedded_again(self, rag, tools, embeddings):
        rag.index()
        embeddings.texts.clear()
        rag.refresh([*tools[1:], make_tool("get_weather", "Rewritten.", server="weather")])
        rag.index()
        assert "Rewritten." in embeddings.texts
        assert all("Rewritten." in t or t == "weather. get. weather" for t in embeddings.texts)

    def test_an_equal_tool_is_kept_but_the_new_object_is_bound(self, rag):
        twins = make_catalogue()
        assert len(rag.refresh(twins).kept) == 12
        assert all(one is other for one, other in zip(rag.tools, twins, strict=True))

    def test_a_duplicate_leaves_the_old_catalogue_as_it_was(self, rag, tools):
        with pytest.raises(DuplicateToolError):
            rag.refresh([make_tool("twin", "One."), make_tool("twin", "Two.")])
        assert rag.tools == tools

    def test_a_refresh_to_nothing_empties_it(self, rag):
        rag.refresh([])
        assert (rag.tools, rag.indexed, rag.status.tools) == ([], False, 0)
        assert rag.search("weather") == []

    def test_a_catalogue_that_was_handed_out_does_not_change(self, rag):
        before = rag.catalogue
        rag.refresh([])
        assert len(before) == 12


class TestIndex:
    def test_it_embeds_now_and_tells_how_far_it_is(self, rag):
        steps = []
        assert rag.index(progress=lambda done, total: steps.append((done, total))) == Changes()
        assert rag.indexed
        assert steps[-1] == (12, 12)

    def test_it_may_bring_the_tools(self, embeddings, tools):
        rag = toolrag(embeddings=embeddings)
        assert len(rag.index(tools).added) == 12
        assert rag.indexed

    async def test_async_does_the_same(self, embeddings, tools):
        rag = toolrag(embeddings=embeddings)
        assert len((await rag.aindex(tools)).added) == 12
        assert rag.indexed

    def test_a_second_time_costs_nothing(self, rag, embeddings):
        rag.index()
        embeddings.texts.clear()
        rag.index()
        assert embeddings.texts == []

    def test_a_failure_is_raised_and_told_by_the_status(self, tools):
        rag = toolrag(tools, BrokenEmbeddings())
        with pytest.raises(EmbeddingError, match="the model server is down"):
            rag.index()
        assert "the model server is down" in rag.status.failure
        assert not rag.indexed


class TestReindex:
    def test_a_burst_of_twenty_calls_is_one_rebuild_to_the_last_tools(self, tools):
        rag = toolrag(debounce_ms=300)
        before = rag.tool_index.version
        for last in range(20):
            rag.reindex([*tools[:3], make_tool(f"tool_{last}")])
        wait_until(lambda: rag.indexed)
        assert names(rag) == ["get_weather", "get_forecast", "list_calendar_events", "tool_19"]
        assert rag.tool_index.version == before + 1

    def test_a_later_call_is_another_rebuild(self, tools):
        rag = toolrag(debounce_ms=1)
        rag.reindex(tools[:1])
        wait_until(lambda: names(rag) == ["get_weather"])
        rag.reindex(tools[:2])
        wait_until(lambda: len(names(rag)) == 2)
        assert names(rag) == ["get_weather", "get_forecast"]

    def test_the_list_is_taken_as_it_is_now(self, tools):
        rag, given = toolrag(debounce_ms=50), tools[:2]
        rag.reindex(given)
        given.clear()
        wait_until(lambda: rag.indexed)
        assert len(names(rag)) == 2

    def test_nothing_happens_before_the_time_is_over(self, tools):
        with toolrag(tools, debounce_ms=60_000) as rag:
            rag.reindex([])
            assert len(names(rag)) == 12

    def test_a_failed_rebuild_keeps_the_old_tools_and_says_why(self, tools, caplog):
        rag = toolrag(tools, debounce_ms=1)
        rag.reindex([make_tool("twin", "One."), make_tool("twin", "Two.")])
        wait_until(lambda: rag.status.failure)
        assert "two tools are named 'twin'" in rag.status.failure
        assert rag.tools == tools
        assert "the old tools stay" in caplog.text

    def test_a_rebuild_that_works_clears_the_failure(self, tools):
        rag = toolrag(tools, debounce_ms=1)
        rag.reindex([42])
        wait_until(lambda: rag.status.failure)
        assert "a int is not a tool" in rag.status.failure
        rag.reindex(tools[:1])
        wait_until(lambda: not rag.status.failure)
        assert rag.status.failure == ""

    def test_a_rebuild_whose_embedding_fails_can_be_searched_by_words(self, tools):
        rag = toolrag(embeddings=BrokenEmbeddings(), debounce_ms=1)
        rag.reindex(tools)
        wait_until(lambda: rag.status.failure)
        assert rag.text_search("song")[0].id == "music/play_song"

    def test_close_cancels_what_has_not_begun(self, tools):
        rag = toolrag(tools, debounce_ms=60_000)
        rag.reindex([])
        assert timers()
        rag.close()
        wait_until(lambda: not timers())
        assert timers() == []
        assert rag.tools == tools

    def test_leaving_the_context_closes(self, tools):
        with toolrag(tools, debounce_ms=60_000) as rag:
            rag.reindex([])
        wait_until(lambda: not timers())
        assert timers() == []
        assert rag.select("current weather in a city").names[0] == "get_weather"

    def test_closing_twice_is_harmless(self, rag):
        rag.close()
        rag.close()


def get_time(zone: str) -> str:
    """Tells the time."""
    return zone


def test_the_tools_to_run_are_those_with_code_behind_them():
    definition = {"name": "defined_elsewhere", "description": "", "parameters": {}}
    rag = toolrag([WEB_SEARCH, definition, get_time, make_tool("ns.dotted")])
    assert [tool.name for tool in rag.tools] == ["get_time", "ns__dotted"]
    assert rag.tools[0].invoke({"zone": "UTC"}) == "UTC"


class TestStatus:
    def test_it_tells_how_things_stand(self, rag):
        before = rag.status
        assert (before.ready, before.indexed, before.tools) == (True, False, 12)
        assert (before.failure, dict(before.rejected)) == ("", {})
        rag.index()
        assert rag.status.indexed
        rag.remove(["get_weather"])
        assert rag.status.version == before.version + 1
        assert rag.status.tools == 11

    def test_minilm_is_not_ready_before_its_first_use(self, tools):
        assert not ToolRAG(tools).ready

    def test_a_tool_with_a_broken_schema_is_left_out_with_the_reason(self, tools, caplog):
        rag = toolrag([*tools, broken_tool()])
        assert len(rag.tools) == 12
        assert "Reference '#/$defs/Missing' not found" in rag.status.rejected["broken"]
        assert "tool 'broken' is left out" in caplog.text


class TestSaving:
    @pytest.fixture
    def saved(self, rag, tmp_path):
        rag.index()
        rag.save(tmp_path)
        return tmp_path

    def test_a_loaded_index_binds_the_tools_again_and_embeds_nothing(self, saved, rag, tools):
        model = HashingEmbeddings()
        loaded = ToolRAG.load(saved, tools, embeddings=model)
        assert loaded.indexed
        assert loaded.search("current weather", k=5) == rag.search("current weather", k=5)
        assert loaded.select("current weather in a city").tools[0] is tools[0]
        assert model.texts == []

    def test_tools_are_found_again_by_id_in_any_order(self, saved, tools):
        loaded = ToolRAG.load(saved, tools[::-1], embeddings=HashingEmbeddings())
        assert loaded.indexed
        assert loaded.tools == tools[::-1]

    def test_only_changed_and_new_tools_are_embedded(self, saved, tools):
        model = HashingEmbeddings()
        changed = make_tool("get_weather", "Rewritten.", server="weather")
        loaded = ToolRAG.load(saved, [changed, *tools[1:], make_tool("new_one")], embeddings=model)
        loaded.index()
        assert model.texts
        assert all("weather" in t or "Rewritten" in t or "new" in t for t in model.texts)

    def test_without_tools_it_can_be_searched_and_binds_nothing(self, saved):
        loaded = ToolRAG.load(saved, embeddings=HashingEmbeddings())
        assert loaded.search("current weather")[0].id == "weather/get_weather"
        assert loaded.select("current weather").tools == ()

    def test_a_model_of_another_name_is_stale(self, saved, tools):
        with pytest.raises(StaleIndexError, match="'HashingEmbeddings', wanted 'BrokenEmbedd"):
            ToolRAG.load(saved, tools, embeddings=BrokenEmbeddings())

    def test_a_folder_without_an_index_is_no_source(self, tmp_path):
        with pytest.raises(SourceError, match="this is not a saved index"):
            ToolRAG.load(tmp_path, embeddings=HashingEmbeddings())

    def test_a_remote_index_cannot_be_saved(self, rag, tmp_path):
        rag.tool_index = object()
        with pytest.raises(TypeError, match="a object keeps its tools itself"):
            rag.save(tmp_path)
