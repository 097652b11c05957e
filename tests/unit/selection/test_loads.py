"""Tools that the model has searched for itself, from its search's answer to what is bound."""

import dataclasses
import itertools
import json
import logging

import pytest
from conversations import calling, results, said, turn, user
from fakes import HashingEmbeddings, make_catalogue, make_tool
from langchain_core.load import dumpd, load
from langchain_core.messages import (
    HumanMessage,
    RemoveMessage,
    ToolMessage,
    messages_from_dict,
    messages_to_dict,
)

from langchain_toolrag import SelectionOptions, ToolRAG
from langchain_toolrag.selection.claims import Claims, admitted, ordered
from langchain_toolrag.selection.conversation import LOADED_KEY, Load, read_conversation
from langchain_toolrag.types import ToolFilter

SONG, LAMP, MAIL = "music/play_song", "home/turn_on_light", "mail/send_email"
RATE, SKIP = "bank/get_exchange_rate", "music/skip_to_next_track"
WEATHER = "weather/get_weather"
SUMMARY = HumanMessage("Here it is in short.", additional_kwargs={"lc_source": "summarization"})


def searching(*ids, call="s1", name="search_tools"):
    """A search of the model's own and its answer, which brings tools."""
    message = calling(name)
    message.tool_calls[0]["id"] = call
    return [message, answer(*ids, call=call, name=name)]


def answer(*ids, call="s1", name="search_tools"):
    return ToolMessage("Found.", tool_call_id=call, name=name, artifact={LOADED_KEY: list(ids)})


def toolrag(tools=None, **options):
    return ToolRAG(
        make_catalogue() if tools is None else tools,
        embeddings=HashingEmbeddings(),
        options=SelectionOptions(**{"k": 1, **options}),
    )


def loads(*messages):
    return read_conversation(list(messages)).loads


def in_json(selection):
    """The state of a selection, as a checkpoint brings it back."""
    return json.loads(json.dumps(dict(selection.state)))


class TestReadingAnswers:
    def test_an_answer_brings_the_ids_of_its_artifact_best_first(self):
        assert loads(user("a song"), *searching(SONG, SKIP)) == (Load((SONG, SKIP), "s1", True, 1),)

    def test_any_tool_may_bring_tools_whatever_its_name(self):
        (load,) = loads(user("a song"), *searching(SONG, name="find_me_something"))
        assert load.ids == (SONG,)

    def test_an_answer_without_its_call_counts(self):
        assert loads(user("a song"), answer(SONG))[0].ids == (SONG,)

    def test_a_search_that_found_nothing_is_an_answer_too(self):
        assert loads(user("a song"), *searching()) == (Load((), "s1", True, 1),)

    def test_answers_come_latest_first_and_know_their_turn(self):
        first = [user("a"), *searching(SONG, call="s1"), said()]
        second = [user("b"), *searching(LAMP, call="s2"), *searching(MAIL, call="s3")]
        assert loads(*first, *second) == (
            Load((MAIL,), "s3", True, 1),
            Load((LAMP,), "s2", True, 2),
            Load((SONG,), "s1", False, 4),
        )

    @pytest.mark.parametrize(
        "again",
        [
            lambda messages: messages_from_dict(json.loads(json.dumps(messages_to_dict(messages)))),
            lambda messages: [
                load(json.loads(json.dumps(dumpd(m))), allowed_objects="core") for m in messages
            ],
            lambda messages: [message.model_copy(deep=True) for message in messages],
        ],
        ids=["dicts", "dumpd", "copies"],
    )
    @pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning")
    def test_an_answer_that_was_stored_and_read_again_still_brings_its_tools(self, again):
        history = [user("a song"), *searching(SONG, SKIP)]
        assert loads(*again(history)) == loads(*history) != ()

    def test_a_dict_message_brings_the_tools_of_its_artifact(self):
        message = {
            "role": "tool",
            "content": "Found.",
            "tool_call_id": "s1",
            "artifact": {LOADED_KEY: [SONG]},
        }
        call = {"name": "search_tools", "args": {}, "id": "s1"}
        asked = {"role": "assistant", "content": "", "tool_calls": [call]}
        assert loads({"role": "user", "content": "a song"}, asked, message)[0].ids == (SONG,)

    @pytest.mark.parametrize(
        "artifact",
        [
            None,
            SONG,
            [SONG],
            7,
            {},
            {"loaded": [SONG]},
            {LOADED_KEY: None},
            {LOADED_KEY: SONG},
            {LOADED_KEY: {SONG: 1}},
            {LOADED_KEY: 3},
        ],
        ids=repr,
    )
    def test_an_artifact_of_another_make_brings_nothing(self, artifact):
        message = ToolMessage("ok", tool_call_id="s1", name="search_tools", artifact=artifact)
        assert loads(user("a song"), message) == ()

    def test_what_is_no_id_in_a_list_of_ids_is_left_out(self):
        message = ToolMessage(
            "ok", tool_call_id="s1", artifact={LOADED_KEY: [SONG, None, 3, [LAMP], MAIL]}
        )
        assert loads(user("a song"), message)[0].ids == (SONG, MAIL)

    def test_a_removed_answer_brings_nothing(self):
        message = answer(SONG)
        message.id = "m1"
        assert loads(user("a song"), message, RemoveMessage(id="m1")) == ()


class TestBinding:
    def test_what_was_loaded_is_bound_from_the_next_step_on_and_stays(self):
        rag, history, state = toolrag(), [user("weather in a city")], None
        bound = []
        for step in ([], searching(SONG), turn("ok", "turn_on_light")[1:], [user("thanks a lot")]):
            history += step
            selection = rag.select(history, previous=state)
            state = in_json(selection)
            bound.append(selection.names)
        assert bound[0] == ["get_weather"]
        assert bound[1] == ["get_weather", "play_song"]
        assert all(names[:2] == bound[1] for names in bound[2:])

    def test_its_reason_is_that_it_was_loaded(self):
        rag = toolrag()
        selection = rag.select([user("weather in a city"), *searching(SONG)])
        assert selection.reasons == {"get_weather": "both", "play_song": "loaded"}
        later = rag.select([user("weather in a city")], previous=in_json(selection))
        assert later.reasons["play_song"] == "loaded"

    def test_a_loaded_tool_that_is_called_is_sticky(self):
        history = [user("weather in a city"), *searching(SONG), *turn("x", "play_song")[1:]]
        assert toolrag().select(history).reasons["play_song"] == "sticky"

    def test_searches_in_parallel_are_all_bound_in_their_order(self):
        message = calling("search_tools", "search_tools")
        answers = [
            answer(*ids, call=each["id"])
            for ids, each in zip(((SONG, SKIP), (MAIL, SONG)), message.tool_calls, strict=True)
        ]
        selection = toolrag().select([user("weather in a city"), message, *answers])
        assert set(selection.names) == {
            "get_weather",
            "play_song",
            "skip_to_next_track",
            "send_email",
        }
        assert not selection.prefix_changed

    def test_searches_in_parallel_share_the_places_the_best_of_each_first(self):
        message = calling("search_tools", "search_tools", "search_tools")
        found = ((SONG, SKIP), (MAIL, SONG), ())
        answers = [
            answer(*ids, call=each["id"])
            for ids, each in zip(found, message.tool_calls, strict=True)
        ]
        history = [user("weather in a city"), *searching(LAMP, call="s0"), message, *answers]
        bound = [set(toolrag(max_tools=places).select(history).names) for places in range(2, 6)]
        added = [min(more - fewer) for fewer, more in itertools.pairwise(bound)]
        assert bound[0] == {"get_weather", "play_song"}
        assert added == ["send_email", "skip_to_next_track", "turn_on_light"]

    def test_a_step_that_only_loads_does_not_search_again(self):
        rag = toolrag()
        first = rag.select([user("weather in a city")])
        second = rag.select([user("weather in a city"), *searching(SONG)], previous=first.state)
        assert (second.fresh, second.search_id) == (False, first.search_id)
        assert rag.tool_index.embedder.embeddings.queries == ["weather in a city"]

    def test_ids_that_are_gone_or_were_never_there_bind_nothing(self):
        selection = toolrag().select([user("weather in a city"), *searching("gone", SONG, "")])
        assert selection.names == ["get_weather", "play_song"]

    def test_a_tool_that_is_gone_now_is_not_bound_any_more(self):
        rag = toolrag()
        history = [user("weather in a city"), *searching(SONG)]
        first = rag.select(history)
        rag.remove(["play_song"])
        assert rag.select(history, previous=in_json(first)).names == ["get_weather"]

    @pytest.mark.parametrize("deferred", [False, True])
    def test_what_the_filter_forbids_is_not_bound_though_it_was_loaded(self, deferred):
        rag, history = toolrag(), [user("weather in a city"), *searching(SONG, LAMP)]
        first = rag.select(history, deferred=deferred)
        only = ToolFilter(servers={"home", "weather"})
        for previous in (None, in_json(first)):
            selection = rag.select(history, previous=previous, filter=only, deferred=deferred)
            assert "play_song" not in selection.names
            assert "turn_on_light" in selection.names
            assert SONG not in json.dumps(selection.state)

    def test_a_tool_that_this_call_does_not_offer_is_not_bound(self):
        rag = toolrag()
        offered = [tool for tool in rag.tools if tool.name != "play_song"]
        history = [user("weather in a city"), *searching(SONG)]
        assert rag.select(history, tools=offered).names == ["get_weather"]


class TestMemory:
    def test_a_load_of_an_earlier_turn_is_read_once(self):
        rag = toolrag(max_tools=2)
        history = [user("weather in a city"), *searching(SONG), said()]
        state = in_json(rag.select(history))
        assert state["bound"] == [WEATHER, SONG]
        history += turn("send an email to somebody", "send_email")
        for request in ("list issues", "get the exchange rate", "lamp on"):
            selection = rag.select([*history, user(request)], previous=state)
            state = in_json(selection)
            assert "play_song" not in selection.names
            assert "send_email" in selection.names

    def test_without_a_memory_every_load_of_the_history_counts(self):
        history = [*turn("hi"), user("a song"), *searching(SONG), said(), user("lamp on")]
        history += [*searching(LAMP, call="s2"), said(), user("weather in a city")]
        assert set(toolrag().select(history).names) == {"get_weather", "play_song", "turn_on_light"}

    def test_a_summary_in_between_takes_no_loaded_tool_away(self):
        rag = toolrag()
        history = [user("weather in a city"), *searching(SONG)]
        first = rag.select(history)
        kept = [SUMMARY, calling("play_song"), *results(calling("play_song"))]
        second = rag.select(kept, previous=in_json(first))
        third = rag.select([*kept, said(), user("exchange rate")], previous=in_json(second))
        assert second.names == ["get_weather", "play_song"]
        assert third.names[:2] == ["get_weather", "play_song"]

    def test_after_a_summary_a_load_that_was_read_does_not_come_back(self):
        rag = toolrag(max_tools=2)
        loaded = searching(SONG)
        first = rag.select([user("weather in a city"), *loaded])
        kept = [SUMMARY, *loaded, said(), *turn("email to somebody", "send_email")]
        second = rag.select([*kept, user("get the exchange rate")], previous=in_json(first))
        assert second.names == ["get_exchange_rate", "send_email"]

    def test_the_state_is_json_and_says_what_was_loaded_by_which_answer(self):
        selection = toolrag().select([user("weather in a city"), *searching(SONG, call="c7")])
        state = in_json(selection)
        assert state == dict(selection.state)
        assert (state["loaded"], state["answered"]) == ([SONG], "c7")

    def test_a_search_without_a_find_is_remembered_as_read(self):
        selection = toolrag().select([user("weather in a city"), *searching(call="c7")])
        assert selection.state["answered"] == "c7"
        assert selection.state["loaded"] == []

    @pytest.mark.parametrize("previous", [{"version": 1}, {"version": 2, "bound": 3}])
    def test_a_memory_that_cannot_be_read_starts_anew(self, previous, caplog):
        history = [user("weather in a city"), *searching(SONG), said(), user("weather in a city")]
        with caplog.at_level(logging.WARNING):
            selection = toolrag().select(history, previous=previous)
        assert selection.names == ["get_weather", "play_song"]


class TestPlaces:
    def test_loaded_tools_are_served_after_the_best_hit_and_before_the_others(self):
        claims = Claims(loaded="lm", sticky="st", fresh="fg", called="c", kept="k", always="a")
        served = [admitted(claims, places) for places in range(3, 10)]
        added = [next(iter(new - old)) for old, new in itertools.pairwise(served)]
        assert served[0] == {"a", "f", "l"}
        assert added == list("mstgck")

    def test_a_single_place_goes_to_what_was_loaded(self):
        claims = Claims(loaded="lm", fresh="fg", always="a")
        assert admitted(claims, 2) == {"a", "l"}

    def test_with_room_for_one_tool_the_one_that_was_searched_for_is_bound(self):
        rag, history = toolrag(max_tools=1), [user("weather in a city")]
        assert rag.select(history).names == ["get_weather"]
        assert rag.select([*history, *searching(SONG)]).names == ["play_song"]
        later = [*history, *searching(SONG), said(), user("exchange rate")]
        assert rag.select(later, previous=rag.select(later[:-2]).state).names == [
            "get_exchange_rate"
        ]

    def test_they_are_bound_behind_what_was_found(self):
        claims = Claims(always="a", loaded="lm", fresh="fg", sticky="s")
        assert ordered("smlgfa", claims, ()) == tuple("afglms")

    def test_more_loaded_than_there_is_room_for_keeps_the_first(self):
        history = [user("weather in a city"), *searching(SONG, LAMP, MAIL, RATE)]
        selection = toolrag(max_tools=3).select(history)
        assert selection.names == ["get_weather", "play_song", "turn_on_light"]

    def test_the_latest_search_goes_before_an_earlier_one_of_the_turn(self):
        history = [user("weather in a city"), *searching(SONG), *searching(LAMP, call="s2")]
        assert toolrag(max_tools=2).select(history).names == ["get_weather", "turn_on_light"]


class TestLastUsed:
    """Under `max_tools` those go that were used longest ago."""

    def conversation(self, rag):
        """Load three tools, one a turn; then call the first of them."""
        history, state = [], None
        for number, identity in enumerate((SONG, LAMP, MAIL)):
            history += [user("weather in a city"), *searching(identity, call=f"s{number}")]
            state = in_json(rag.select(history, previous=state))
            history.append(said())
        return history, state

    def test_what_was_loaded_longest_ago_goes_first(self):
        _, state = self.conversation(toolrag(max_tools=3, sticky_window=0))
        assert state["bound"] == [WEATHER, LAMP, MAIL]
        assert state["loaded"] == [LAMP, MAIL]

    def test_what_was_found_goes_before_what_was_loaded(self):
        rag = toolrag(max_tools=4, sticky_window=0)
        history, state = self.conversation(rag)
        assert "get_weather" in " ".join(state["bound"])
        selection = rag.select([*history, user("list issues")], previous=state)
        assert selection.names == ["turn_on_light", "send_email", "list_issues"]

    def test_a_loaded_tool_that_was_called_outlives_one_that_was_not(self):
        rag = toolrag(max_tools=5, sticky_window=0)
        history, state = self.conversation(rag)
        history += turn("weather in a city", "play_song")
        state = in_json(rag.select(history, previous=state))
        history += [user("list issues"), *searching(SKIP, call="s9")]
        selection = rag.select(history, previous=state)
        assert selection.names == ["play_song", "send_email", "list_issues", "skip_to_next_track"]

    def test_a_tool_that_had_to_go_stays_away_until_it_is_loaded_again(self):
        rag = toolrag(max_tools=3, sticky_window=0)
        history, state = self.conversation(rag)
        for request in ("list issues", "get the exchange rate"):
            history += [user(request)]
            state = in_json(rag.select(history, previous=state))
            assert SONG not in state["bound"]
        history += searching(SONG, call="s9")
        assert "play_song" in rag.select(history, previous=state).names


class TestDeferred:
    def test_nothing_is_bound_before_the_model_has_searched(self):
        rag = toolrag()
        selection = rag.select([user("weather in a city")], deferred=True)
        assert (selection.names, selection.query, selection.confidence) == ([], "", None)
        assert rag.tool_index.embedder.embeddings.queries == []

    def test_what_was_loaded_called_or_must_be_there_is_bound(self):
        rag = toolrag(always_include=("turn_on_light",))
        history = [*turn("mail", "send_email"), user("weather in a city"), *searching(SONG)]
        selection = rag.select(history, deferred=True, required=["get_exchange_rate"])
        assert selection.reasons == {
            "turn_on_light": "always",
            "play_song": "loaded",
            "get_exchange_rate": "always",
            "send_email": "sticky",
        }

    def test_loaded_tools_stay_over_the_turns(self):
        rag = toolrag()
        history = [user("weather in a city"), *searching(SONG, WEATHER)]
        state = in_json(rag.select(history, deferred=True))
        later = rag.select([*history, said(), user("hello")], previous=state, deferred=True)
        assert later.names == ["play_song", "get_weather"]
        assert not later.prefix_changed

    def test_a_catalogue_small_enough_is_bound_whole_where_the_options_say_so(self):
        small = [make_tool(name) for name in ("a", "b")]
        assert toolrag(small, min_catalogue=2).select("hi", deferred=True).names == ["a", "b"]
        assert toolrag(small, k=5).select("hi", deferred=True).names == []

    async def test_async_binds_the_same(self):
        rag = toolrag()
        history = [user("weather in a city"), *searching(SONG)]
        here = rag.select(history, deferred=True)
        there = await rag.aselect(history, deferred=True)
        assert dataclasses.replace(there, search_id="", state={}) == dataclasses.replace(
            here, search_id="", state={}
        )

    def test_what_comes_beside_is_bound_in_front_and_passes_through(self):
        search = make_tool("search_tools", "Finds tools.")
        selection = toolrag().select([user("weather in a city")], besides=[search], deferred=True)
        assert selection.tools == (search,)
        assert selection.names == []
