import json

from langchain_toolrag.replay.moments import THEN, A, B, Binding, Called, Moment, Replay, Tally
from langchain_toolrag.replay.report import as_json


def replayed():
    moment = Moment(
        {"thread": "1", "step": 1, "time": "2026-11-03T12:00:00+00:00"},
        "what the user said",
        {A: Binding(("a", "b"), 20), B: Binding(("b", "c"), 25)},
        (Called(("a",)),),
    )
    tally = Tally()
    tally.left_out["threads"] = 2
    tally.unknown_calls["search_tools"] = 3
    return Replay("model steps", {A: "old", B: "new"}, (A, B), (moment,), tally, 1)


def test_everything_is_in_the_json_but_the_users_words():
    values = as_json(replayed())
    assert json.loads(json.dumps(values)) == values
    assert values["options"] == {"A": "old", "B": "new"}
    assert values["compared"] == ["A", "B"]
    assert (values["changed"], values["gained"], values["lost"]) == (1, 1, 1)
    assert values["left_out"] == {"threads": 2}
    assert values["unknown_calls"] == {"search_tools": 3}
    assert values["summary"][THEN]["known"] == 0
    assert values["summary"]["A"] == {
        "known": 1,
        "tools": 2,
        "tokens": 20,
        "called": 1,
        "called_bound": 1,
        "recall": 1.0,
    }
    (step,) = values["model_steps"]
    assert (step["gained"], step["lost"]) == (["c"], ["a"])
    assert step["called"] == [{"tool": "a", "outcome": None, "bound": {"A": True, "B": False}}]
    assert "text" not in step


def test_the_users_words_are_there_if_asked_for():
    (step,) = as_json(replayed(), with_text=True)["model_steps"]
    assert step["text"] == "what the user said"


def test_where_a_compared_side_is_not_known_nothing_is_gained_or_lost():
    known = replayed()
    alone = Replay(known.what, {A: "old"}, (THEN, A), known.moments)
    (step,) = as_json(alone)["model_steps"]
    assert "gained" not in step
