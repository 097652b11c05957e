import dataclasses
import json
import logging

import pytest

from langchain_toolrag.selection.state import SelectionState, read_state

STATE = SelectionState(
    query="weather in Pune",
    turn_id="0123456789abcdef",
    search_id="5e",
    offer="0a1b2c3d4e5f6071",
    turn=2,
    confidence=0.75,
    bound=("weather/get_weather", "send_email"),
    found={"send_email": "text", "weather/get_weather": "both"},
    loaded=("send_email",),
    answered="call_7",
    used={"weather/get_weather": 2, "send_email": 1},
)


def test_a_state_survives_json():
    assert read_state(json.loads(json.dumps(STATE.as_json()))) == STATE


def test_the_rank_order_of_the_found_tools_survives_json():
    again = read_state(json.loads(json.dumps(STATE.as_json())))
    assert list(again.found) == ["send_email", "weather/get_weather"]


def test_a_state_is_only_json_values():
    def kinds(value):
        yield type(value)
        inner = value.values() if isinstance(value, dict) else value
        for part in inner if isinstance(value, (dict, list)) else ():
            yield from kinds(part)

    assert set(kinds(STATE.as_json())) <= {dict, list, str, int, float, bool}


@pytest.mark.parametrize("confidence", [None, 0.0, 0.25, 1.0])
def test_the_confidence_survives_json_and_so_does_its_absence(confidence):
    state = dataclasses.replace(STATE, confidence=confidence)
    again = read_state(json.loads(json.dumps(state.as_json())))
    assert again.confidence == confidence
    assert again == state


@pytest.mark.parametrize("nothing", [None, {}])
def test_a_conversation_without_a_state_begins(nothing, caplog):
    assert read_state(nothing) == SelectionState()
    assert caplog.records == []


@pytest.mark.parametrize("version", [0, 1, "2", None])
def test_a_state_of_another_version_is_ignored_with_a_warning(version, caplog):
    assert read_state({**STATE.as_json(), "version": version}) == SelectionState()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"version {version!r}, wanted 2" in record.getMessage()


BROKEN = [
    {"version": 2},
    {"bound": ["get_weather"]},
    {**STATE.as_json(), "bound": None},
    {**STATE.as_json(), "turn": "two"},
    {**STATE.as_json(), "found": 7},
    {**STATE.as_json(), "confidence": "high"},
    {**STATE.as_json(), "used": {"get_weather": None}},
]


@pytest.mark.parametrize("previous", BROKEN, ids=str)
def test_a_state_that_cannot_be_read_is_ignored_with_a_warning(previous, caplog):
    assert read_state(previous) == SelectionState()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_reading_a_state_shares_nothing_with_it():
    written = STATE.as_json()
    read = read_state(written)
    written["bound"].append("x")
    written["found"].append(["x", "text"])
    written["used"]["x"] = 9
    assert read == STATE
