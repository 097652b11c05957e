from operator import add
from typing import Annotated, Any

import pytest
from fake_model import ScriptedModel, says
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph import channels
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, MessagesState, StateGraph
from search_agents import AGENTS, toolrag, uses
from typing_extensions import TypedDict

from langchain_toolrag.replay.checkpoints import read_thread, thread_ids

THREAD = {"configurable": {"thread_id": "1"}}


def kinds(step):
    return [message.type for message in step.read]


def graph_of(node, state=MessagesState, **compiled):
    graph = StateGraph(state)
    graph.add_node("agent", node)
    graph.add_edge(START, "agent")
    return graph.compile(**compiled)


def test_each_answer_of_the_model_is_a_step_over_what_it_had_read(saver, talk):
    talk("node", saver)
    first, second, third, fourth = read_thread(saver, "1").steps
    assert kinds(first) == ["human"]
    assert kinds(second) == ["human", "ai", "tool"]
    assert kinds(third) == ["human", "ai", "tool", "ai", "human"]
    assert len(fourth.read) == 7
    assert [each.called for each in (first, second, third, fourth)] == [
        ("archive_badge",),
        (),
        ("close_fleet",),
        (),
    ]
    assert [each.number for each in (first, second, third, fourth)] == [1, 2, 3, 4]
    assert first.time < fourth.time


@pytest.mark.parametrize("kind", AGENTS)
def test_each_step_says_what_the_selector_had_bound(kind, saver, talk):
    model = talk(kind, saver)
    steps = read_thread(saver, "1").steps
    bound = [{identity.partition("/")[2] for identity in step.bound} for step in steps]
    assert bound == [set(names) for names in model.bound]


def test_without_a_selector_it_is_not_known_what_was_bound(saver):
    agent = create_agent(ScriptedModel(script=[says("ok")]), [], checkpointer=saver)
    agent.invoke({"messages": [("user", "hello")]}, THREAD)
    (step,) = read_thread(saver, "1").steps
    assert (step.called, step.bound) == ((), None)


def test_every_thread_is_named_once(saver, talk):
    talk("node", saver, "old")
    talk("node", saver, "new")
    talk("node", saver, "old", requests={"hello": says("hello")})
    assert sorted(thread_ids(saver)) == ["new", "old"]


def test_what_a_summary_took_out_is_still_there_for_the_steps_before(saver, talk):
    requests = {
        f"please {verb} the fleet": uses(f"{verb}_fleet") for verb in ("sort", "tag", "copy")
    }
    summary = SummarizationMiddleware(
        FakeListChatModel(responses=["much was done"] * 3),
        trigger=("messages", 6),
        keep=("messages", 2),
    )
    talk("middleware", saver, requests=requests, middleware=[summary])
    thread = read_thread(saver, "1")
    assert [step.called for step in thread.steps if step.called] == [
        ("sort_fleet",),
        ("tag_fleet",),
        ("copy_fleet",),
    ]
    last = saver.get_tuple(THREAD).checkpoint["channel_values"]["messages"]
    assert len(last) < len(thread.steps[1].read) + len(thread.steps)
    assert thread.steps[-1].read[0].content.startswith("Here is a summary")
    assert kinds(thread.steps[0]) == ["human"]


def test_an_answer_that_came_with_the_input_is_no_step(saver):
    agent = create_agent(ScriptedModel(script=[says("ok")]), [], checkpointer=saver)
    told = [("user", "hello"), AIMessage("hi"), ("user", "go on")]
    agent.invoke({"messages": told}, THREAD)
    (step,) = read_thread(saver, "1").steps
    assert kinds(step) == ["human", "ai", "human"]


def test_an_answer_that_was_put_there_by_hand_is_no_step(saver, talk):
    talk("node", saver)
    agent = AGENTS["node"](ScriptedModel(), toolrag(), checkpointer=saver)
    agent.update_state(THREAD, {"messages": [AIMessage("I was never said")]}, as_node="agent")
    assert len(read_thread(saver, "1").steps) == 4


def test_of_a_thread_that_was_taken_up_earlier_again_the_last_branch_is_read(saver):
    model = ScriptedModel(script=[says("one"), says("two"), says("other")])
    agent = create_agent(model, [], checkpointer=saver)
    agent.invoke({"messages": [("user", "first")]}, THREAD)
    earlier = agent.get_state(THREAD).config
    agent.invoke({"messages": [("user", "second")]}, THREAD)
    agent.invoke({"messages": [("user", "instead")]}, earlier)
    first, last = read_thread(saver, "1").steps
    assert [message.content for message in last.read] == ["first", "one", "instead"]
    assert kinds(first) == ["human"]


def test_a_subgraphs_steps_are_its_own_and_counted_once(saver):
    script = [uses("archive_badge"), says("ok"), uses("close_fleet", start=9), says("ok")]
    inner = AGENTS["node"](ScriptedModel(script=script), toolrag())
    outer = graph_of(inner, checkpointer=saver)
    outer.invoke({"messages": [("user", "please archive the badge")]}, THREAD)
    outer.invoke({"messages": [("user", "now close the fleet")]}, THREAD)
    steps = read_thread(saver, "1").steps
    assert [step.called for step in steps] == [("archive_badge",), (), ("close_fleet",), ()]
    first, second = dict.fromkeys(step.namespace for step in steps)
    assert first.startswith("agent:")
    assert second.startswith("agent:")
    assert [step.number for step in steps] == [1, 2, 1, 2]
    assert all(step.bound for step in steps)
    assert len(steps[2].read) == 5


def test_answers_that_come_together_are_steps_and_the_last_ones_tools_are_known(saver):
    answers = [uses("archive_badge"), ToolMessage("done", tool_call_id="u0"), says("ok")]
    agent = graph_of(lambda state: {"messages": answers}, checkpointer=saver)
    agent.invoke({"messages": [("user", "please archive the badge")]}, THREAD)
    first, second = read_thread(saver, "1").steps
    assert (kinds(first), kinds(second)) == (["human"], ["human", "ai", "tool"])


def test_a_thread_without_messages_has_no_steps(saver):
    class Count(TypedDict):
        number: Annotated[int, add]

    counting = graph_of(lambda state: {"number": 1}, Count, checkpointer=saver)
    counting.invoke({"number": 1}, THREAD)
    thread = read_thread(saver, "1")
    assert (thread.steps, thread.problem) == ((), "")
    assert read_thread(saver, "nobody").steps == ()


@pytest.mark.parametrize("messages", [None, "words", {"role": "ai"}, 7, ["words"], []])
def test_a_thread_with_other_things_under_the_key_of_messages_has_no_steps(saver, messages):
    class Other(TypedDict):
        messages: Any

    graph_of(lambda state: {"messages": messages}, Other, checkpointer=saver).invoke(
        {"messages": []}, THREAD
    )
    thread = read_thread(saver, "1")
    assert (thread.steps, thread.problem) == ((), "")


def test_messages_may_be_under_another_key(saver):
    class Chat(TypedDict):
        chat: Annotated[list[Any], add]

    answering = graph_of(lambda state: {"chat": [AIMessage("ok")]}, Chat, checkpointer=saver)
    answering.invoke({"chat": [HumanMessage("hello")]}, THREAD)
    answering.invoke({"chat": [HumanMessage("hello")]}, THREAD)
    assert read_thread(saver, "1").steps == ()
    first, second = read_thread(saver, "1", "chat").steps  # Without ids, and twice the same.
    assert (kinds(first), kinds(second)) == (["human"], ["human", "ai", "human"])


def test_where_older_checkpoints_are_gone_the_steps_are_read_from_the_messages(saver, talk):
    talk("node", saver)
    latest = saver.get_tuple(THREAD)
    saver.delete_thread("1")
    kept = {**latest.checkpoint, "channel_versions": {}}
    values = latest.checkpoint["channel_values"]
    versions = {key: "1" for key in values}
    config = {"configurable": {**THREAD["configurable"], "checkpoint_ns": "", "checkpoint_id": "0"}}
    saver.put(config, {**kept, "channel_versions": versions}, latest.metadata, versions)
    steps = read_thread(saver, "1").steps
    assert [step.called for step in steps] == [("archive_badge",), (), ("close_fleet",), ()]
    assert [step.bound is not None for step in steps] == [False, False, False, True]


@pytest.mark.skipif(not hasattr(channels, "DeltaChannel"), reason="an older LangGraph")
def test_messages_that_are_stored_as_changes_are_a_problem_that_is_said(saver):
    def extended(old, writes):
        return [*old, *(message for write in writes for message in write)]

    class Chat(TypedDict):
        messages: Annotated[list[Any], channels.DeltaChannel(extended)]

    answering = graph_of(lambda state: {"messages": [AIMessage("ok")]}, Chat, checkpointer=saver)
    answering.invoke({"messages": [HumanMessage("hello")]}, THREAD)
    thread = read_thread(saver, "1")
    assert thread.steps == ()
    assert "stored as changes (DeltaChannel)" in thread.problem


def test_what_cannot_be_read_is_said_and_what_was_read_before_is_kept(saver, talk, monkeypatch):
    talk("node", saver)
    whole = saver.list

    def torn(config, **given):
        for number, saved in enumerate(whole(config, **given)):
            if number == 3:
                raise ValueError("unpack failed")
            yield saved

    monkeypatch.setattr(saver, "list", torn)
    thread = read_thread(saver, "1")
    assert thread.problem == "ValueError: unpack failed"
    assert [step.called for step in thread.steps] == [("archive_badge",), (), ("close_fleet",), ()]
    assert thread.steps[-1].bound


def test_an_empty_checkpoint_is_no_matter(saver):
    config = {"configurable": {**THREAD["configurable"], "checkpoint_ns": ""}}
    saver.put(config, empty_checkpoint(), {}, {})
    assert read_thread(saver, "1").problem == ""
