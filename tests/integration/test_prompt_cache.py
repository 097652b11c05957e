"""How often a provider's cached prefix of tools is lost in a conversation of 20 turns.

A provider caches a request from its beginning, tools first: what was bound before has to come again
byte by byte, and what is new behind it.
"""

import functools
import itertools
import json

import pytest
from cases_loading import ordinary_tools
from fake_model import ScriptedModel, call, says
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver

from langchain_toolrag import SelectionOptions, ToolRAG, ToolRAGMiddleware

# What the user says and what the model calls for it, one call a step.
TURNS = (
    ("What is the weather forecast for Delhi this week?", "get_weather_forecast"),
    ("and right now in Pune?", "get_current_weather"),
    ("do it for kolkata too", "get_current_weather"),
    ("Is there a meeting with Asha tomorrow?", "list_calendar_events"),
    ("Move it to 4 pm", "update_calendar_event"),
    ("and write her an email about it", "create_email_draft", "send_email"),
    ("thanks!",),
    ("Which issues are open in the backend repository?", "github_list_issues"),
    ("close the second one with a comment", "github_close_issue"),
    ("show me the diff of pull request 12", "github_get_pull_request_diff"),
    ("merge it", "github_merge_pull_request"),
    ("how are the pods of the shop doing?", "kubectl_get_pods", "kubectl_logs"),
    ("restart them one by one", "kubectl_rollout_restart"),
    ("tell the ops channel on slack", "slack_list_channels", "slack_post_message"),
    ("What does the customer Acme still owe us?", "list_customers", "list_invoices"),
    ("refund the last payment", "refund_payment"),
    ("great",),
    ("Find a flight to Oslo on Friday", "search_flights"),
    ("and a hotel near the station", "book_hotel"),
    ("remind me of it on Thursday evening", "set_reminder"),
)
SEARCHED = {0, 8, 13}  # Turns that begin with a search of the model's own, beside a selection.


class KeepingSelections(ToolRAG):
    """Keeps every selection it makes."""

    selections = ()

    def select(self, messages, **given):
        self.selections += (super().select(messages, **given),)
        return self.selections[-1]


def script(mode):
    """What the model says: its calls, one a step, and an answer at the end of each turn."""
    numbers = itertools.count()
    for turn, (text, *names) in enumerate(TURNS):
        if mode == "deferred" or (mode == "auto" and turn in SEARCHED):
            yield says("", call("search_tools", f"c{next(numbers)}", query=text))
        for name in names:
            yield says("", call(name, f"c{next(numbers)}"))
        yield says("Done.")


@functools.cache
def tools():
    """The tools of the cases, which are asynchronous, with something to run."""
    return [tool.model_copy(update={"func": lambda **given: "ok"}) for tool in ordinary_tools()]


@functools.cache
def minilm():
    """Everything searched by MiniLM; embedded once for all conversations."""
    rag = ToolRAG(tools())
    rag.index()
    return rag


@functools.cache
def conversation(mode="off", **options):
    """The definitions of every model call, turn by turn, and all selections."""
    index = minilm().tool_index
    rag = KeepingSelections(tools(), index=index, options=SelectionOptions(**options))
    model = ScriptedModel(script=list(script(mode)))
    ours = ToolRAGMiddleware(rag=rag, search_tool=mode)
    agent = create_agent(model, middleware=[ours], checkpointer=InMemorySaver())
    turns, seen = [], 0
    for text, *_ in TURNS:
        agent.invoke({"messages": [("user", text)]}, {"configurable": {"thread_id": "1"}})
        turns.append([tuple(map(json.dumps, bound)) for bound in model.bound_tools[seen:]])
        seen = len(model.bound_tools)
    return turns, rag.selections


def calls_of(turns):
    return [step for steps in turns for step in steps]


def was_lost(lists):
    """Whether each list but the first does not begin with the one before."""
    return [new[: len(old)] != old for old, new in itertools.pairwise(lists)]


MODES = ["off", "auto", "deferred"]
ROOM = 48  # More than the conversation ever needs.


@pytest.mark.parametrize("mode", MODES)
def test_inside_a_turn_the_tools_stay_byte_for_byte_and_grow_at_their_end(mode):
    turns, _ = conversation(mode, max_tools=ROOM)
    assert not any(any(was_lost(steps)) for steps in turns)


def test_inside_a_turn_they_stay_though_there_is_no_room_left():
    turns, selections = conversation()
    assert any(selection.prefix_changed for selection in selections)
    assert not any(any(was_lost(steps)) for steps in turns)


@pytest.mark.parametrize("mode", MODES)
def test_across_turns_they_only_grow_at_their_end_while_there_is_room(mode):
    turns, selections = conversation(mode, max_tools=ROOM)
    calls = calls_of(turns)
    assert not any(was_lost(calls))
    assert len(calls[-1]) == len(set(calls[-1])) < ROOM
    assert not any(selection.prefix_changed for selection in selections)


@pytest.mark.parametrize("mode", MODES)
def test_a_selection_says_when_the_prefix_is_lost(mode):
    turns, selections = conversation(mode)
    told = [selection.prefix_changed for selection in selections]
    assert told == [False, *was_lost(calls_of(turns))]
    assert any(told)


@pytest.mark.parametrize("mode", MODES)
def test_no_more_than_max_tools_are_ever_bound(mode):
    turns, _ = conversation(mode)
    assert max(map(len, calls_of(turns))) == SelectionOptions().max_tools


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_lost_before_max_tools_is_reached(mode):
    _, selections = conversation(mode)
    lost = [selection.prefix_changed for selection in selections].index(True)
    assert lost >= 15
    before = len(selections[lost - 1].tools)
    assert before > 0.75 * SelectionOptions().max_tools > len(selections[lost].tools) - 6


@pytest.mark.parametrize(("mode", "most"), [("off", 4), ("auto", 5), ("deferred", 4)])
def test_the_prefix_is_lost_much_less_often_than_with_tools_in_rank_order(mode, most):
    _, selections = conversation(mode)
    ranked = [[hit.id for hit in minilm().search(text)] for text, *_ in TURNS]
    assert sum(was_lost(ranked)) >= 18
    assert sum(selection.prefix_changed for selection in selections) <= most
