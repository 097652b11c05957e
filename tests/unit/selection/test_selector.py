import copy
import dataclasses
import itertools
import json
import logging
from types import SimpleNamespace

import pytest
from conversations import calling, results, said, turn, user
from fakes import BrokenEmbeddings, HashingEmbeddings, make_catalogue, make_tool
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

from langchain_toolrag import SelectionOptions, ToolRAG
from langchain_toolrag.errors import EmbeddingError, UnknownToolError
from langchain_toolrag.types import ToolFilter

WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
CODE = {"type": "code_interpreter"}
TODOS = make_tool("write_todos", "Writes a list of things to do.")


def toolrag(tools=None, embeddings=None, **options):
    return ToolRAG(
        make_catalogue() if tools is None else tools,
        embeddings=embeddings or HashingEmbeddings(),
        options=SelectionOptions(**options),
    )


def many(count, prefix="tool"):
    return [make_tool(f"{prefix}_{number:03d}") for number in range(count)]


def names_of(tools):
    return [tool.name for tool in tools]


def in_turns(rag, *requests):
    """Select for one request after the other; each forgets the messages before it."""
    selections, state = [], None
    for request in requests:
        selections.append(rag.select(request, previous=state))
        state = selections[-1].state
    return selections


class TestStickiness:
    def test_a_tool_used_last_turn_stays_selected(self, rag):
        selection = rag.select([*turn("lamp", "turn_on_light"), user("weather in a city")])
        assert selection.reasons["turn_on_light"] == "sticky"
        assert selection.reasons["get_weather"] == "both"

    @pytest.mark.parametrize(("turns_since", "bound"), [(2, True), (3, False)])
    def test_a_tool_leaves_the_sticky_window_after_three_turns(self, turns_since, bound):
        rag = toolrag(max_tools=2, k=2)
        since = [message for n in range(turns_since) for message in turn(f"{n}")]
        history = [*turn("lamp", "turn_on_light"), *since, user("weather city")]
        assert ("turn_on_light" in rag.select(history).names) is bound

    def test_a_tool_called_anywhere_in_the_history_is_bound_while_there_is_room(self):
        rag = toolrag(sticky_window=1)
        history = [*turn("lamp", "turn_on_light"), *turn("2"), *turn("3"), user("weather in city")]
        assert "turn_on_light" in rag.select(history).names

    @pytest.mark.parametrize(("window", "bound"), [(0, False), (1, False), (2, True)])
    def test_the_window_is_an_option(self, window, bound):
        rag = toolrag(sticky_window=window, max_tools=2, k=2)
        history = [*turn("lamp", "turn_on_light"), *turn("2"), user("weather city")]
        assert ("turn_on_light" in rag.select(history).names) is bound

    def test_a_call_under_a_name_that_two_servers_share_binds_both(self):
        servers = ("deezer", "tidal")
        shared = [make_tool("rate_album", "Rates an album.", server=server) for server in servers]
        rag = ToolRAG(
            [*make_catalogue(), *shared], embeddings=HashingEmbeddings(), on_duplicate="prefix"
        )
        selection = rag.select([*turn("album", "rate_album"), user("weather in a city")])
        assert selection.reasons["deezer_rate_album"] == "sticky"
        assert selection.reasons["tidal_rate_album"] == "sticky"

    def test_a_call_under_a_name_the_catalogue_lost_is_no_tool(self, rag):
        history = [*turn("old thing", "legacy_crm_lookup"), user("current weather in a city")]
        selection = rag.select(history)
        assert "legacy_crm_lookup" not in selection.names
        assert selection.names[0] == "get_weather"

    def test_names_in_a_system_prompt_bind_nothing(self, rag):
        prompt = SystemMessage("You can play_song, create_issue and turn_on_light when asked.")
        assert set(rag.select([prompt, user("weather in a city")]).names) <= {
            "get_weather",
            "get_forecast",
        }


class TestTurns:
    def test_a_loop_of_three_calls_searches_once(self, rag, embeddings):
        history, state, selections = [user("weather in a city")], None, []
        for step in range(3):
            selections.append(rag.select(history, previous=state))
            state = selections[-1].state
            call = calling("get_weather", start=step)
            history += [call, *results(call)]
        assert embeddings.queries == ["weather in a city"]
        assert [selection.fresh for selection in selections] == [True, False, False]
        assert len({selection.search_id for selection in selections}) == 1
        assert len({tuple(selection.names) for selection in selections}) == 1

    def test_refresh_by_step_searches_at_every_step(self, embeddings):
        rag = toolrag(embeddings=embeddings, refresh="step")
        history = [user("weather in a city")]
        first = rag.select(history)
        call = calling("get_weather")
        second = rag.select([*history, call, *results(call)], previous=first.state)
        assert embeddings.queries == ["weather in a city"]  # Searched for twice, embedded once.
        assert (second.fresh, second.turn_id) == (True, first.turn_id)
        assert second.search_id != first.search_id

    def test_the_next_turn_searches_again(self, rag, embeddings):
        first = rag.select([user("weather")])
        second = rag.select([user("weather"), said(), user("weather")], previous=first.state)
        assert second.fresh
        assert second.turn_id != first.turn_id
        assert second.search_id != first.search_id
        assert embeddings.queries == ["weather", "weather. Context: weather Done."]

    def test_a_tool_called_inside_the_loop_is_appended(self, rag):
        first = rag.select([user("weather in a city")])
        call = calling("turn_on_light")
        history = [user("weather in a city"), call, *results(call)]
        second = rag.select(history, previous=first.state)
        assert second.names == [*first.names, "turn_on_light"]
        assert not second.prefix_changed

    def test_a_catalogue_changed_inside_a_turn_is_searched_again(self, rag):
        first = rag.select("pollen weather")
        rag.add([make_tool("get_pollen", "Pollen in the weather of a city.")])
        second = rag.select("pollen weather", previous=first.state)
        assert second.fresh
        assert second.index_version > first.index_version
        assert second.names == [*first.names, *(set(second.names) - set(first.names))]
        assert "get_pollen" in second.names

    def test_another_process_with_equal_tools_goes_on_without_a_search(self, rag):
        first = rag.select("weather in a city")
        embeddings = HashingEmbeddings()
        second = toolrag(embeddings=embeddings).select("weather in a city", previous=first.state)
        assert (second.names, second.search_id) == (first.names, first.search_id)
        assert embeddings.queries == []

    def test_what_may_be_seen_changed_inside_a_turn_is_searched_again(self, rag):
        only_mail = ToolFilter(servers=frozenset({"mail"}))
        first = rag.select("weather email", filter=only_mail)
        second = rag.select("weather email", previous=first.state)
        assert second.fresh
        assert "get_weather" in second.names

    def test_a_tool_removed_inside_a_turn_is_neither_found_nor_sticky_nor_kept(self, rag):
        history = [user("weather in a city"), calling("get_weather")]
        first = rag.select(history[:1])
        rag.remove(["get_weather"])
        second = rag.select(history, previous=first.state)
        assert "get_weather" in first.names
        assert "get_weather" not in second.names
        assert second.prefix_changed

    def test_a_summary_inside_a_turn_keeps_query_turn_and_tools(self, rag, embeddings):
        first = rag.select([user("weather in a city", id="1")])
        summary = HumanMessage("Weather was asked.", additional_kwargs={"lc_source": "summary"})
        call = calling("get_weather")
        second = rag.select([summary, call, *results(call)], previous=first.state)
        assert (second.query, second.turn_id) == ("weather in a city", first.turn_id)
        assert second.names == first.names
        assert len(embeddings.queries) == 1

    def test_a_summarised_turn_is_searched_for_by_its_remembered_query(self, rag, embeddings):
        first = rag.select([user("weather in a city")])
        rag.add([make_tool("another_tool")])
        second = rag.select([calling("get_weather")], previous=first.state)
        assert (second.fresh, second.query) == (True, "weather in a city")
        assert embeddings.queries == ["weather in a city"]

    def test_the_searched_text_is_told_at_every_step_of_a_turn(self, rag):
        history = [*turn("weather in Pune"), user("do it for kolkata too")]
        first = rag.select(history)
        second = rag.select(history, previous=first.state)
        assert first.query == "do it for kolkata too. Context: weather in Pune Done."
        assert second.query == first.query


class TestOrder:
    def test_new_tools_are_appended_over_five_turns(self, rag):
        selections = in_turns(
            rag, "weather in a city", "sends an email", "plays a song", "issues", "switches a lamp"
        )
        for before, after in itertools.pairwise(selections):
            assert after.names[: len(before.names)] == before.names
            assert not after.prefix_changed
        assert len(selections[-1].names) > len(selections[0].names)

    def test_tools_bound_before_say_so(self):
        rag = toolrag(k=1)
        _, second = in_turns(rag, "weather in a city", "sends an email")
        assert second.reasons["get_weather"] == "kept"

    def test_the_same_request_gives_the_same_order(self, rag):
        assert rag.select("song or weather").names == rag.select("song or weather").names

    def test_the_least_recently_used_tool_goes_first(self):
        rag = toolrag(k=1, max_tools=3, vague_words=0, vague_score=0)
        selections = in_turns(
            rag,
            "current weather",
            "sends an email",
            "plays a song",
            "current weather",
            "exchange rate",
        )
        assert [selection.names for selection in selections] == [
            ["get_weather"],
            ["get_weather", "send_email"],
            ["get_weather", "send_email", "play_song"],
            ["get_weather", "send_email", "play_song"],
            ["get_weather", "play_song", "get_exchange_rate"],
        ]
        assert [selection.prefix_changed for selection in selections] == [False] * 4 + [True]

    def test_a_call_counts_as_use(self):
        rag = toolrag(k=1, max_tools=2, sticky_window=0)
        first, second = in_turns(rag, "current weather", "sends an email")
        called = [user("sends an email"), calling("get_weather")]
        loop = rag.select([*called, *results(called[1])], previous=second.state)
        third = rag.select("plays a song", previous=loop.state)
        assert first.names == ["get_weather"]
        assert third.names == ["get_weather", "play_song"]

    def test_another_tool_in_front_changes_the_prefix(self, rag, tools):
        first = rag.select("weather", tools=[TODOS, *tools])
        second = rag.select("weather", tools=[CODE, TODOS, *tools], previous=first.state)
        assert second.prefix_changed

    def test_the_first_selection_changes_no_prefix(self, rag):
        assert not rag.select("weather").prefix_changed

    def test_the_state_remembers_ids_in_binding_order(self, rag):
        selection = rag.select("weather city")
        assert selection.ids == ["weather/get_weather", "weather/get_forecast"]
        assert selection.state["bound"] == selection.ids


class TestState:
    def test_a_conversation_goes_on_after_a_round_trip_through_json(self, rag, embeddings):
        first = rag.select("weather in a city")
        state = json.loads(json.dumps(first.state))
        second = rag.select("weather in a city", previous=state)
        assert second.names == first.names
        assert second.state == first.state
        assert len(embeddings.queries) == 1

    def test_a_foreign_state_is_ignored_with_a_warning(self, rag, caplog):
        selection = rag.select("weather", previous={"version": 99, "bound": ["mail/send_email"]})
        assert selection.fresh
        assert "send_email" not in selection.names
        assert [record.levelno for record in caplog.records] == [logging.WARNING]

    def test_a_state_of_another_catalogue_binds_no_strangers(self, rag):
        other = toolrag([make_tool("get_weather", "weather", server="elsewhere")])
        state = other.select("weather").state
        assert rag.select("song", previous=state).prefix_changed
        assert "elsewhere/get_weather" not in rag.select("song", previous=state).ids

    def test_selecting_changes_neither_messages_nor_state(self, rag):
        history = [*turn("weather", "get_weather"), user("again")]
        state = dict(rag.select(history[:1]).state)
        before = copy.deepcopy((history, state))
        rag.select(history, previous=state)
        assert (history, state) == before


class TestPlaces:
    def test_no_more_than_max_tools_are_bound(self):
        rag = toolrag(max_tools=4)
        called = names_of(make_catalogue())
        assert len(rag.select([*turn("all", *called), user("weather")]).tools) == 4

    def test_the_best_hit_is_bound_although_sticky_tools_fill_every_place(self):
        rag = toolrag(max_tools=3)
        history = turn("x", "play_song", "turn_on_light", "send_email", "list_issues")
        selection = rag.select([*history, user("current weather in a city: warm or cold")])
        assert selection.names[0] == "get_weather"
        assert len(selection.names) == 3

    def test_tools_that_pass_through_count_against_max_tools(self, tools):
        rag = toolrag(tools, max_tools=4)
        selection = rag.select("weather", tools=[TODOS, WEB_SEARCH, CODE, *tools])
        assert selection.tools == (TODOS, WEB_SEARCH, CODE, tools[0])

    def test_tools_that_pass_through_are_served_before_sticky_ones(self, tools):
        rag = toolrag(tools, max_tools=2)
        history = [*turn("x", "play_song"), user(" ")]
        assert rag.select(history, tools=[TODOS, CODE, *tools]).tools == (TODOS, CODE)

    def test_what_is_required_is_bound_although_what_passes_through_fills_the_cap(self, tools):
        rag = toolrag(tools, max_tools=1)
        selection = rag.select("weather", tools=[TODOS, *tools], required=["play_song"])
        assert selection.tools == (TODOS, tools[8])

    def test_required_tools_above_the_cap_are_all_bound_with_a_warning(self, caplog):
        rag = toolrag(max_tools=2)
        required = ["play_song", "send_email", "turn_on_light"]
        assert set(rag.select("weather", required=required).names) == set(required)
        assert "3 tools may not be left out" in caplog.text

    def test_a_call_that_waits_for_its_result_is_bound_however_old_it_is(self):
        rag = toolrag(max_tools=1, sticky_window=1)
        history = [user("lamp"), calling("turn_on_light"), *turn("2"), *turn("3"), user("weather")]
        assert rag.select(history).names == ["turn_on_light"]

    def test_a_required_tool_comes_before_an_older_claim(self):
        rag = toolrag(max_tools=1)
        history = [*turn("x", "play_song"), user("weather")]
        selection = rag.select(history, required=["list_issues"])
        assert selection.names == ["list_issues"]
        assert selection.reasons == {"list_issues": "always"}

    def test_an_unknown_required_name_is_somebody_elses_tool(self, rag):
        selection = rag.select("weather city", required=["StructuredAnswer"])
        assert selection.names == rag.select("weather city").names

    @pytest.mark.parametrize("required", [(), ("StructuredAnswer",)])
    def test_where_the_history_has_calls_the_list_is_never_empty(self, rag, required):
        history = [ToolMessage("ok", tool_call_id="c1", name="ghost")]
        assert len(rag.select(history, required=required).tools) == 1

    def test_a_tool_choice_is_never_sent_without_tools(self, rag):
        assert len(rag.select([], required=["StructuredAnswer"]).tools) == 1

    def test_a_tool_that_passes_through_is_enough_not_to_be_empty(self, rag, tools):
        history = [ToolMessage("ok", tool_call_id="c1", name="ghost")]
        assert rag.select(history, tools=[TODOS, *tools]).tools == (TODOS,)

    @pytest.mark.parametrize("messages", [[], [SystemMessage("You bill.")], "", " ", [said()]])
    def test_where_nothing_is_asked_nothing_is_bound_or_embedded(self, rag, embeddings, messages):
        assert rag.select(messages).tools == ()
        assert (embeddings.texts, embeddings.queries) == ([], [])

    def test_as_many_hits_as_asked_for_are_bound_in_a_large_catalogue(self):
        rag = toolrag(many(80), k=60, max_tools=100)
        assert (
            len(rag.select("the first, the second and all the other tools there are").names) == 60
        )


class TestAlwaysInclude:
    def test_it_is_bound_first_at_every_step_in_the_given_order(self):
        rag = toolrag(always_include=("turn_on_light", "mail/send_email"))
        first, second = in_turns(rag, "weather in a city", "plays a song")
        assert first.names[:2] == second.names[:2] == ["turn_on_light", "send_email"]
        assert first.reasons["send_email"] == "always"

    def test_it_takes_none_of_the_k_places_and_is_bound_once(self):
        rag = toolrag(always_include=("send_email", "get_weather"), k=3)
        names = rag.select("current weather in a city").names
        assert names.count("get_weather") == 1
        assert len(names) == 4

    def test_it_is_served_before_sticky_tools_and_hits(self):
        rag = toolrag(always_include=("turn_on_light",), max_tools=1)
        history = [*turn("x", "play_song"), user("weather in a city")]
        assert rag.select(history).names == ["turn_on_light"]

    def test_an_unknown_name_is_an_error_at_construction_that_names_the_closest(self):
        with pytest.raises(UnknownToolError, match="always_include names 'get_wether'") as caught:
            toolrag(always_include=("send_email", "get_wether"))
        assert caught.value.names == ("get_wether",)
        assert caught.value.closest[0] == "get_weather"


class TestWholeCatalogue:
    @pytest.mark.parametrize("options", [{"min_catalogue": 12}, {"k": 12}, {"k": 20}])
    def test_a_small_catalogue_is_bound_whole_in_order_without_embedding(self, options):
        tools, embeddings = make_catalogue(), HashingEmbeddings()
        selection = toolrag(tools, embeddings, **options).select("weather")
        assert list(selection.tools) == tools
        assert (embeddings.texts, embeddings.queries) == ([], [])

    @pytest.mark.parametrize("options", [{"min_catalogue": 11}, {"k": 11}])
    def test_a_catalogue_one_larger_is_searched(self, options):
        embeddings = HashingEmbeddings()
        assert len(toolrag(embeddings=embeddings, **options).select("weather").names) < 12
        assert embeddings.queries == ["weather"]

    def test_a_call_with_few_tools_binds_them_whole(self, tools, embeddings):
        selection = toolrag(tools, embeddings, k=3).select("weather", tools=tools[4:7])
        assert list(selection.tools) == tools[4:7]
        assert embeddings.queries == []

    @pytest.mark.parametrize("count", [24, 30])
    def test_it_stays_the_same_inside_a_turn(self, count):
        rag = toolrag(many(count), min_catalogue=count, max_tools=count)
        first = rag.select("weather")
        second = rag.select("weather", previous=first.state)
        assert second.names == first.names
        assert not second.prefix_changed

    def test_a_k_above_max_tools_does_not_lift_the_cap(self):
        assert len(toolrag(many(30), k=50).select("weather").tools) <= 24

    def test_tools_that_pass_through_still_count_against_max_tools(self, tools):
        rag = toolrag(tools, k=12, max_tools=12)
        assert len(rag.select("weather", tools=[TODOS, CODE, *tools]).tools) <= 12

    def test_a_selection_that_searched_for_nothing_has_no_query(self):
        assert toolrag(k=12).select("weather").query == ""


class TestTools:
    def test_unknown_and_provider_tools_stand_in_front_in_their_order(self, rag, tools):
        given = [WEB_SEARCH, *tools[:6], TODOS, *tools[6:], CODE]
        assert rag.select("plays a song", tools=given).tools[:3] == (WEB_SEARCH, TODOS, CODE)

    def test_the_same_objects_come_back(self, rag, tools):
        twins = [tool.model_copy() for tool in tools]
        given = [TODOS, *twins]
        selection = rag.select("current weather in a city", tools=given)
        assert selection.tools[0] is TODOS
        assert selection.tools[1] is twins[0]

    def test_without_tools_of_a_call_the_catalogues_own_objects_come_back(self, rag, tools):
        assert rag.select("current weather in a city").tools[0] is tools[0]

    def test_a_tool_the_call_does_not_have_is_not_bound_for_any_reason(self):
        rag = toolrag(always_include=("play_song",))
        history = [*turn("lamp", "turn_on_light"), user("weather in a city")]
        previous = rag.select("sends an email").state
        left = make_catalogue()[6:8]
        selection = rag.select(history, tools=left, previous=previous, required=["get_weather"])
        assert set(selection.names) <= {"create_issue", "list_issues"}

    def test_a_provider_tool_with_a_catalogue_tools_name_is_never_dropped(self, tools):
        twin = make_tool("web_search", "Searches the web.", server="mcp_search")
        rag = toolrag([*tools, twin])
        selection = rag.select("weather in a city", tools=[*tools, twin, WEB_SEARCH])
        assert selection.tools[0] is WEB_SEARCH

    def test_a_provider_tool_and_a_tool_of_its_name_are_not_bound_together(self, tools):
        twin = make_tool("web_search", "Searches the web.", server="mcp_search")
        bound = (
            toolrag([*tools, twin])
            .select("searches the web", tools=[*tools, twin, WEB_SEARCH])
            .tools
        )
        names = [tool["name"] if isinstance(tool, dict) else tool.name for tool in bound]
        assert names.count("web_search") == 1


NO_WEATHER = {
    "function": lambda document: document.server != "weather",
    "servers": ToolFilter(servers=frozenset({"mail", "music", "home"})),
    "tags": ToolFilter(tags=frozenset({"safe"})),
    "predicate": ToolFilter(predicate=lambda document: "weather" not in document.id),
}


@pytest.mark.parametrize("filter", NO_WEATHER.values(), ids=NO_WEATHER.keys())
class TestFilter:
    @pytest.fixture
    def rag(self):
        tools = make_catalogue()
        for tool in tools[2:]:
            tool.tags = ["safe"]
        return toolrag(tools, always_include=("get_weather",))

    def test_it_holds_for_hits(self, rag, filter):
        weather = {"get_weather", "get_forecast"}
        assert not weather & set(rag.select("weather forecast", filter=filter).names)

    def test_it_holds_for_sticky_always_required_and_kept_tools(self, rag, filter):
        before = rag.select("weather forecast").state
        history = [*turn("weather", "get_weather"), user("lamp"), calling("get_forecast")]
        selection = rag.select(
            history, filter=filter, previous=before, required=["get_weather", "get_forecast"]
        )
        assert not {"get_weather", "get_forecast"} & set(selection.names)

    def test_it_holds_where_the_call_brings_its_tools(self, rag, filter):
        bound = rag.select("weather", tools=[TODOS, *rag.tools], filter=filter).tools
        assert not {"get_weather", "get_forecast"} & set(names_of(bound))
        assert bound[0] is TODOS

    def test_it_holds_where_the_whole_catalogue_is_bound(self, filter):
        tools = make_catalogue()
        for tool in tools[2:]:
            tool.tags = ["safe"]
        bound = toolrag(tools, k=12).select("weather", filter=filter).names
        assert not {"get_weather", "get_forecast"} & set(bound)


def test_k_places_are_filled_after_the_filter_not_before():
    rag = toolrag(k=2)
    selection = rag.select("weather forecast", filter=ToolFilter(servers=frozenset({"github"})))
    assert set(selection.names) == {"create_issue", "list_issues"}


class TestFollowUps:
    def test_a_follow_up_is_searched_for_with_what_was_said_before(self, rag, embeddings):
        selection = rag.select([*turn("current weather in Pune"), user("do it for kolkata too")])
        enriched = "do it for kolkata too. Context: current weather in Pune Done."
        assert embeddings.queries == ["do it for kolkata too", enriched]
        assert selection.query == enriched
        assert selection.names[0] == "get_weather"

    def test_an_exact_name_is_searched_for_alone(self, rag, embeddings):
        selection = rag.select([*turn("current weather in Pune"), user("play_song")])
        assert embeddings.queries == ["play_song"]
        assert (selection.names[0], selection.reasons["play_song"]) == ("play_song", "keyword")

    def test_an_image_is_searched_for_by_the_words_before_it(self, rag, embeddings):
        image = HumanMessage([{"type": "image", "source_type": "base64", "data": "AAAA"}])
        selection = rag.select([user("opens a new issue"), said("Show me."), image])
        assert embeddings.queries[0] == "opens a new issue"
        assert selection.names[0] == "create_issue"


class TestFailure:
    @pytest.fixture
    def clock(self, monkeypatch):
        clock = SimpleNamespace(now=0.0)
        stand_in = SimpleNamespace(monotonic=lambda: clock.now)
        monkeypatch.setattr("langchain_toolrag.index.embedder.time", stand_in)
        return clock

    @pytest.fixture
    def model(self):
        return BrokenEmbeddings()

    def test_words_answer_when_embedding_fails(self, model):
        selection = toolrag(embeddings=model).select("plays a song")
        assert selection.names[0] == "play_song"
        assert selection.reasons["play_song"] == "text"
        assert selection.degraded.startswith("lexical instead: embedding failed: ")
        assert "ConnectionError: the model server is down" in selection.degraded

    def test_a_name_answers_when_embedding_fails(self, model):
        assert toolrag(embeddings=model).select("play_song").names == ["play_song"]

    def test_every_step_of_a_degraded_turn_says_so(self, model):
        rag = toolrag(embeddings=model)
        first = rag.select("plays a song")
        second = rag.select("plays a song", previous=first.state)
        assert not second.fresh
        assert second.degraded == first.degraded

    def test_previous_binds_what_was_bound_before(self, model):
        model.broken = False
        rag = toolrag(embeddings=model, on_error="previous")
        first = rag.select("weather in a city")
        model.broken = True
        second = rag.select("plays a song", previous=first.state)
        assert second.names == first.names
        assert "previous instead" in second.degraded

    def test_previous_answers_by_words_at_the_start_of_a_conversation(self, model):
        selection = toolrag(embeddings=model, on_error="previous").select("plays a song")
        assert selection.names[0] == "play_song"

    def test_the_fallback_that_was_used_is_the_one_that_is_named(self, model):
        selection = toolrag(embeddings=model, on_error="previous").select("plays a song")
        assert "lexical instead" in selection.degraded

    def test_all_binds_everything_in_order(self, model, tools):
        selection = toolrag(tools, model, on_error="all").select("plays a song")
        assert list(selection.tools) == tools
        assert "all instead" in selection.degraded

    def test_raise_raises(self, model):
        with pytest.raises(EmbeddingError, match="the model server is down"):
            toolrag(embeddings=model, on_error="raise").select("plays a song")

    @pytest.mark.parametrize("on_error", ["lexical", "previous", "all"])
    async def test_async_falls_back_alike(self, model, on_error):
        rag = toolrag(embeddings=model, on_error=on_error)
        selection = await rag.aselect("plays a song")
        assert selection.names == rag.select("plays a song").names
        assert selection.degraded == rag.select("plays a song").degraded

    async def test_async_raises_alike(self, model):
        with pytest.raises(EmbeddingError, match="the model server is down"):
            await toolrag(embeddings=model, on_error="raise").aselect("plays a song")

    def test_a_good_answer_is_not_degraded(self, rag):
        assert rag.select("plays a song").degraded == ""

    def test_a_model_that_just_failed_is_left_alone(self, model, clock):
        rag = toolrag(embeddings=model)
        rag.select("plays a song")
        model.broken = False
        assert rag.select("current weather").degraded
        assert model.queries == []

    def test_meaning_answers_again_once_the_model_has_recovered(self, model, clock):
        rag = toolrag(embeddings=model)
        failed = rag.select("plays a song")
        model.broken = False
        clock.now += 1.5
        recovered = rag.select("current weather", previous=failed.state)
        assert recovered.degraded == ""
        assert recovered.reasons["get_weather"] == "both"
        assert rag.status.failure == ""

    def test_no_request_text_is_logged_above_debug(self, model, caplog):
        rag = toolrag(embeddings=model, max_tools=1)
        with caplog.at_level(logging.INFO):
            rag.select("my secret wish", required=["play_song", "send_email"])
        assert "secret" not in caplog.text


SCHEMA = {
    "type": "object",
    "properties": {"zone": {"type": "string", "description": "A long description. " * 20}},
}
KINDS = {
    "LangChain tool": make_tool("get_time", "Tells the time.", ("zone", "format")),
    "OpenAI definition": {
        "type": "function",
        "function": {"name": "get_time", "description": "Tells the time.", "parameters": SCHEMA},
    },
    "MCP definition": {"name": "get_time", "description": "Time.", "inputSchema": SCHEMA},
    "plain definition": {"name": "get_time", "description": "Time.", "parameters": SCHEMA},
    "provider tool": WEB_SEARCH,
}


@pytest.mark.parametrize("tool", KINDS.values(), ids=KINDS.keys())
def test_the_tokens_of_a_tool_are_those_langchain_counts(tool):
    selection = toolrag([tool]).select("tells the time")
    assert len(selection.tools) == 1
    assert selection.tokens == count_tokens_approximately([], tools=list(selection.tools))


def test_tokens_are_the_sum_over_the_bound_tools(rag, tools):
    selection = rag.select("weather in a city", tools=[TODOS, *tools, CODE])
    counted = [count_tokens_approximately([], tools=[tool]) for tool in selection.tools]
    assert selection.tokens == sum(counted)
    every = [count_tokens_approximately([], tools=[tool]) for tool in [TODOS, CODE, *tools]]
    assert selection.catalogue_tokens == sum(every)
    assert 0 < selection.tokens < selection.catalogue_tokens


def test_a_selection_says_how_each_tool_was_found(rag):
    (hit, *_) = rag.search("current weather in a city")
    tool = rag.select("current weather in a city").selected[0]
    assert (tool.id, tool.name, tool.source) == ("weather/get_weather", "get_weather", "both")
    assert tool.description.startswith("Current weather")
    assert (tool.score, tool.dense) == (hit.score, hit.evidence.dense)
    assert (tool.lexical, tool.keyword) == (hit.evidence.lexical, hit.evidence.keyword)


def test_only_hits_have_scores(rag):
    selection = rag.select([*turn("lamp", "turn_on_light"), user("current weather in a city")])
    assert "turn_on_light" in selection.names
    assert "get_weather" in selection.scores
    assert "turn_on_light" not in selection.scores


def test_every_tool_that_the_request_names_is_bound(rag):
    named = {"play_song", "get_exchange_rate", "skip_to_next_track", "list_calendar_events"}
    assert named <= set(rag.select(f"run {', '.join(sorted(named))} please").names)


@pytest.mark.parametrize("step", [calling("get_weather"), AIMessage("Which day?")])
def test_a_history_that_ends_with_the_assistant_is_searched_for_its_user(rag, step):
    assert rag.select([user("current weather in a city"), step]).names[0] == "get_weather"


def test_an_empty_catalogue_binds_what_passes_through_and_no_more():
    rag = toolrag([])
    assert rag.select([*turn("x", "ghost"), user("weather")], tools=[CODE]).tools == (CODE,)
    assert rag.select([*turn("x", "ghost"), user("weather")]).tools == ()


def test_every_selection_of_its_own_has_its_own_search_id(rag):
    assert rag.select("weather").search_id != rag.select("weather").search_id


def test_equal_selections_differ_in_nothing_else(rag):
    first, second = rag.select("weather"), rag.select("weather")
    assert dataclasses.replace(first, search_id="", state={}) == dataclasses.replace(
        second, search_id="", state={}
    )
