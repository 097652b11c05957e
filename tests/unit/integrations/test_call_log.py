"""Which search showed a tool, and which ends of a call are outcomes."""

import asyncio
import concurrent.futures

import pytest
from fake_model import call, says
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.errors import GraphInterrupt
from langgraph.types import Command

from langchain_toolrag.integrations.call_log import CallLog, search_of
from langchain_toolrag.integrations.search_answer import SEARCH_KEY
from langchain_toolrag.selection.conversation import LOADED_KEY
from langchain_toolrag.selection.state import SelectionState
from langchain_toolrag.usage.log import UsageLog
from langchain_toolrag.usage.reading import read_usage

USER = HumanMessage("weather?")
WEATHER = call("get_weather", "call_1", city="delhi")


def found(*tools, search_id="s1"):
    """The answer to a search of the model's own."""
    return ToolMessage(
        "Available from your next step: ...",
        tool_call_id="c0",
        artifact={LOADED_KEY: list(tools), **({SEARCH_KEY: search_id} if search_id else {})},
    )


def remembers(bound=("weather",), found=(), search_id="selection"):
    state = SelectionState(search_id=search_id, bound=bound, found=dict.fromkeys(found, "semantic"))
    return state.as_json()


class TestWhichSearchShowedATool:
    def test_the_models_own_search_that_loaded_it(self):
        history = [USER, found("weather", "forecast"), AIMessage("")]

        assert search_of("weather", history, remembers()) == "s1"

    def test_the_latest_of_several_that_loaded_it(self):
        history = [
            USER,
            found("weather"),
            found("weather", search_id="s2"),
            found("issues", search_id="s3"),
        ]

        assert search_of("weather", history, None) == "s2"

    def test_the_selection_that_bound_it_where_no_search_loaded_it(self):
        assert search_of("weather", [USER, found("issues")], remembers()) == "selection"

    def test_the_search_of_an_earlier_turn_where_the_selection_only_kept_it(self):
        history = [USER, found("weather"), AIMessage("Warm."), HumanMessage("and a song")]

        assert search_of("weather", history, remembers(("weather", "song"), ("song",))) == "s1"

    def test_the_selection_where_it_found_the_tool_anew_in_a_later_turn(self):
        history = [USER, found("weather"), AIMessage("Warm."), HumanMessage("and in Oslo?")]

        assert search_of("weather", history, remembers(found=("weather",))) == "selection"

    def test_the_models_own_search_where_it_came_after_the_selection_that_found_it_too(self):
        assert search_of("weather", [USER, found("weather")], remembers(found=("weather",))) == "s1"

    def test_none_where_nothing_showed_it(self):
        assert search_of("song", [USER, found("weather")], remembers()) == ""

    def test_none_where_it_was_found_and_there_was_no_place_for_it(self):
        assert search_of("song", [USER], remembers(bound=("weather",), found=("song",))) == ""

    @pytest.mark.parametrize(
        "artifact",
        [
            None,
            "weather",
            {LOADED_KEY: ["weather"]},
            {LOADED_KEY: 3, SEARCH_KEY: "s1"},
            {LOADED_KEY: ["weather"], SEARCH_KEY: 3},
            {SEARCH_KEY: "s1"},
        ],
    )
    def test_none_where_an_answer_does_not_say_so(self, artifact):
        odd = ToolMessage("found", tool_call_id="c0", artifact=artifact)

        assert search_of("weather", [USER, odd, {"role": "user"}, "text"], None) == ""

    def test_none_where_the_memory_cannot_be_read(self, caplog):
        assert search_of("weather", [USER], {"version": 0, "bound": ["weather"]}) == ""
        assert "a selection state is ignored" in caplog.text


class TestHowACallEnds:
    @pytest.fixture
    def log(self, tmp_path):
        with UsageLog(tmp_path, log_text=True) as log:
            yield log

    @pytest.fixture
    def noted(self, tmp_path, log):
        def read():
            assert log.flush()
            return list(read_usage(tmp_path))

        return read

    @pytest.fixture
    def calls(self, log):
        return CallLog(log, lambda tool, state: f"{tool}-{state}")

    @pytest.mark.parametrize(
        ("answer", "outcome"),
        [
            (ToolMessage("Warm.", tool_call_id="call_1"), "ok"),
            (ToolMessage("No.", tool_call_id="call_1", status="error"), "tool_error"),
            (Command(goto="next"), "ok"),
        ],
        ids=["answer", "error", "command"],
    )
    def test_an_answer_is_the_outcome(self, calls, noted, answer, outcome):
        with calls.open(WEATHER, "weather", "s1") as call:
            assert call.answered(answer) is answer

        (record,) = noted()
        assert (record.tool, record.outcome, record.call_id) == ("weather", outcome, "call_1")
        assert (record.search_id, record.text) == ("weather-s1", '{"city":"delhi"}')
        assert record.latency_ms >= 0

    @pytest.mark.parametrize(
        ("error", "outcome"),
        [
            (ValueError("broken"), "tool_error"),
            (TimeoutError(), "timeout"),
            (asyncio.TimeoutError(), "timeout"),
            (concurrent.futures.TimeoutError(), "timeout"),
        ],
    )
    def test_an_error_is_the_outcome_and_goes_on(self, calls, noted, error, outcome):
        with pytest.raises(type(error)), calls.open(WEATHER, "weather", ""):
            raise error

        assert [record.outcome for record in noted()] == [outcome]

    @pytest.mark.parametrize(
        "error", [GraphInterrupt(()), asyncio.CancelledError(), KeyboardInterrupt()]
    )
    def test_what_only_stops_the_run_is_no_outcome(self, calls, noted, error):
        with pytest.raises(type(error)), calls.open(WEATHER, "weather", ""):
            raise error

        assert noted() == []

    def test_a_refused_call_took_no_time(self, calls, noted):
        with calls.open(WEATHER, "weather", "s1") as call:
            call.refused("Error: ...")

        (record,) = noted()
        assert (record.tool, record.outcome, record.latency_ms) == ("weather", "refused", None)

    def test_of_tools_that_are_not_the_catalogues_refusals_alone_are_noted(self, calls, noted):
        with calls.open(WEATHER, None, "") as call:
            call.answered(ToolMessage("Warm.", tool_call_id="call_1"))
        with calls.open(WEATHER, None, "") as call:
            call.refused("Error: ...")

        (record,) = noted()
        assert (record.tool, record.outcome, record.search_id) == ("", "refused", "")

    @pytest.mark.parametrize("id", [None, "", "what is this", "x" * 65])
    def test_a_call_without_a_usable_id_gets_one(self, calls, noted, id):
        with calls.open({**WEATHER, "id": id}, "weather", "") as call:
            call.answered("Warm.")

        (record,) = noted()
        assert record.call_id.startswith("c-")

    def test_without_a_log_nothing_is_asked(self):
        with CallLog(None, pytest.fail).open(WEATHER, "weather", "") as call:
            assert call.answered("Warm.") == "Warm."

    def test_arguments_that_are_no_json_are_no_error(self, calls, noted):
        circular = {}
        circular["city"] = circular
        with calls.open(call("get_weather", **circular), "weather", "") as open_call:
            open_call.answered(says("Warm."))

        assert noted() == []
