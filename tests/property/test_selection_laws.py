"""Laws that hold for every conversation, checked on conversations made up by Hypothesis."""

import copy
import dataclasses
import functools
import json

from classic_oracle import classic_select, classic_test_select
from conversations import calling, results, said, user
from fakes import CATALOGUE, HashingEmbeddings, make_catalogue, make_tool
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_toolrag import SelectionOptions, ToolRAG

KNOWN = [name for name, *_ in CATALOGUE]
UNKNOWN = ["transfer_to_x", "get_wether", "Send_Email", "weather/get_weather", ""]
PHRASES = [
    "current weather in a city",
    "weather forecast",
    "do it for kolkata too",
    "again",
    "send an email to somebody about the meeting of tomorrow",
    "play_song",
    "select:create_issue,list_issues",
    "lists +issue",
    "exchange rate",
    "xyzzy",
    "東京の天気",
    "👍",
    " ",
]

names = st.sampled_from(KNOWN)
any_name = st.sampled_from(KNOWN + UNKNOWN)
texts = st.sampled_from(PHRASES) | st.text(max_size=20)
laws = settings(derandomize=True, deadline=None, max_examples=50)


@functools.cache
def toolrag(**options):
    return ToolRAG(
        make_catalogue(), embeddings=HashingEmbeddings(), options=SelectionOptions(**options)
    )


@functools.cache
def classic():
    return ToolRAG(
        make_catalogue(), embeddings=HashingEmbeddings(), options=SelectionOptions.classic()
    )


@st.composite
def turns(draw, called=names, max_turns=6):
    """What the user said and the names called for it, turn after turn; the last is being asked."""
    asked = st.tuples(
        st.sampled_from([phrase for phrase in PHRASES if phrase.strip()]),
        st.lists(st.lists(called, min_size=1, max_size=3), max_size=3),
    )
    return draw(st.lists(asked, min_size=1, max_size=max_turns))


def as_history(asked):
    """Messages of turns; every call is answered, and the last turn is not."""
    history, number = [], 0
    for text, steps in asked:
        history.append(user(text))
        for step in steps:
            message = calling(*step, start=number)
            number += len(step)
            history += [message, *results(message)]
        history.append(said())
    last = asked[-1][1]
    return history if last else history[:-1]


def called_in_window(asked, window):
    """Names called in the last assistant turns, latest first; a turn not yet begun is none."""
    begun = asked if asked[-1][1] else asked[:-1]
    turns_back = reversed(begun[-window:] if window else [])
    calls = [name for _, steps in turns_back for step in reversed(steps) for name in reversed(step)]
    return list(dict.fromkeys(calls))


@laws
@given(turns(), st.integers(0, 4))
def test_a_tool_called_in_the_sticky_window_is_bound(asked, window):
    selection = toolrag(sticky_window=window).select(as_history(asked))
    assert set(called_in_window(asked, window)) <= set(selection.names)


@laws
@given(turns(), st.integers(1, 8))
def test_the_latest_sticky_tools_are_bound_first_and_one_place_is_the_best_hits(asked, max_tools):
    selection = toolrag(max_tools=max_tools).select(as_history(asked))
    sticky = called_in_window(asked, 3)
    assert set(sticky[: max_tools - 1]) <= set(selection.names)
    assert len(selection.tools) <= max_tools


@laws
@given(turns(any_name), st.integers(1, 6), st.lists(any_name, max_size=6), st.booleans())
def test_max_tools_is_exceeded_by_nothing_but_what_is_required(asked, max_tools, required, waiting):
    history = as_history(asked)
    if waiting:
        history.append(calling("get_weather", "list_issues", "play_song", start=900))
    must = {name.removeprefix("weather/") for name in required} & set(KNOWN)
    must |= {"get_weather", "list_issues", "play_song"} if waiting else set()
    selection = toolrag(max_tools=max_tools).select(history, required=required)
    assert must <= set(selection.names)
    assert len(selection.tools) <= max(max_tools, len(must))


@laws
@given(st.lists(texts, min_size=1, max_size=8))
def test_below_the_cap_the_bound_list_only_grows_at_its_end(requests):
    rag, state, order = toolrag(), None, []
    for number, request in enumerate(requests):
        selection = rag.select([user(request, id=str(number))], previous=state)
        assert selection.names[: len(order)] == order
        assert not selection.prefix_changed
        state, order = selection.state, selection.names


@laws
@given(st.lists(texts, min_size=1, max_size=8), st.integers(1, 4))
def test_at_the_cap_what_stays_keeps_its_order(requests, max_tools):
    rag, state, order = toolrag(max_tools=max_tools), None, []
    for number, request in enumerate(requests):
        selection = rag.select([user(request, id=str(number))], previous=state)
        stayed = [name for name in order if name in selection.names]
        assert selection.names[: len(stayed)] == stayed
        assert selection.prefix_changed is (len(stayed) < len(order))
        state, order = selection.state, selection.names


@laws
@given(turns(), st.integers(1, 12))
def test_every_step_of_a_turn_binds_what_its_first_step_found(asked, max_tools):
    rag, history, state = toolrag(max_tools=max_tools), as_history(asked), None
    start = max(place for place, message in enumerate(history) if isinstance(message, HumanMessage))
    found = []
    for end in range(start + 1, len(history) + 1):
        selection = rag.select(history[:end], previous=state)
        found.append((selection.search_id, selection.turn_id, list(selection.state["found"])))
        state = selection.state
    assert all(one == found[0] for one in found)


@st.composite
def calls(draw):
    """An assistant message that calls a tool in one of the ways in which a call is written."""
    name, identity = draw(any_name), draw(st.sampled_from(["c1", "c2", "c3"]))
    call = {"name": name, "args": {}, "id": identity}
    arguments = draw(
        st.sampled_from(
            [
                {"content": "", "tool_calls": [call]},
                {"content": "", "tool_calls": [{**call, "id": None}]},
                {"content": "", "invalid_tool_calls": [{**call, "args": "{", "error": "cut"}]},
                {"content": "", "invalid_tool_calls": [dict.fromkeys([*call, "error"])]},
                {"content": [{"type": "tool_use", "input": {}, **call}]},
                {"content": [{"type": "tool_use"}]},
                {"content": [{"type": "function_call", "call_id": identity, "name": name}]},
                {"content": [{"functionCall": {"name": name, "args": {}}}]},
                {"content": [{"functionCall": None}, {"type": "server_tool_use", **call}]},
                {"content": "", "additional_kwargs": {"function_call": {"name": name}}},
                {"content": "", "additional_kwargs": {"function_call": "odd"}},
            ]
        )
    )
    return AIMessage(**arguments)


def blocks(text):
    return st.sampled_from(
        [
            text,
            [text, text],
            [{"type": "text", "text": text}],
            [{"type": "text"}, {"type": "image", "data": "AAAA"}],
            [{"type": "tool_result", "tool_use_id": "c1", "content": text}],
            [{"type": "function_call_output", "call_id": "c2", "output": text}],
            [],
        ]
    )


any_message = st.one_of(
    texts.flatmap(blocks).map(HumanMessage),
    texts.map(lambda text: HumanMessage(text, additional_kwargs={"lc_source": "summary"})),
    texts.map(lambda text: HumanMessage(f"Here is a summary of the conversation to date: {text}")),
    texts.map(SystemMessage),
    texts.map(AIMessage),
    calls(),
    st.builds(
        ToolMessage,
        content=texts,
        tool_call_id=st.sampled_from(["c1", "c2", "c3", ""]),
        name=any_name | st.none(),
        status=st.sampled_from(["success", "error"]),
    ),
    any_name.map(lambda name: FunctionMessage("ok", name=name)),
    st.sampled_from(["1", "__remove_all__"]).map(lambda identity: RemoveMessage(id=identity)),
    texts.map(lambda text: ("user", text)),
    texts.map(lambda text: {"role": "assistant", "content": text}),
    texts.map(lambda text: {"role": "user", "content": text}),
)
histories = st.lists(any_message, max_size=12)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(histories)
def test_no_history_is_too_odd(history):
    selection = toolrag().select(history)
    assert set(selection.names) <= set(KNOWN)
    assert len(set(selection.names)) == len(selection.names) == len(selection.tools)
    assert json.loads(json.dumps(selection.state)) == selection.state


@laws
@given(histories, histories)
def test_the_same_conversation_gives_the_same_selection(before, history):
    def outcome():
        previous = toolrag().select(before).state
        selection = toolrag().select(history, previous={**previous, "search_id": "same"})
        state = {**selection.state, "search_id": ""}
        return repr(dataclasses.replace(selection, search_id="", state=state))

    assert outcome() == outcome()


@laws
@given(histories, st.lists(any_name, max_size=3))
def test_nothing_that_is_passed_in_is_changed(history, required):
    rag = toolrag()
    tools = rag.tools[:7]
    previous = rag.select("weather forecast").state
    given_values = (history, required, previous)
    before = copy.deepcopy(given_values)
    described = [(tool.name, tool.description, str(tool.args_schema)) for tool in tools]
    rag.select(history, tools=tools, previous=previous, required=required)
    assert given_values == before
    assert [(tool.name, tool.description, str(tool.args_schema)) for tool in tools] == described


@laws
@given(histories)
def test_where_tools_were_called_something_is_bound(history):
    rag = toolrag(k=1)
    if rag.extract_sticky(history, window=99):
        assert rag.select(history).tools


@laws
@given(turns(names | st.just("transfer_to_x")))
def test_classic_selects_as_toolrag_does(asked):
    history = as_history(asked)
    expected = classic_select(classic(), history)
    if not expected:  # A history with calls is never sent without tools.
        expected = KNOWN[: len(classic().extract_sticky(history, window=99))][:1]
    assert classic().select(history).names == expected


@laws
@given(turns())
def test_classic_explains_as_toolrags_test_select_does(asked):
    history = as_history(asked)
    explained = [(tool.name, tool.source) for tool in classic().explain(history)]
    expected = classic_test_select(classic(), history)
    assert explained == expected or not expected


SMALL_TALK = ["hi", "Hello there!", "thanks a lot", "ok cool", "👍", "Good evening", "?!", "merci"]
catalogues = st.lists(
    st.tuples(
        st.sampled_from(["hello", "say_thanks", "good_evening_light", "weather", "merci"]),
        st.sampled_from(["", "Says hello and thanks.", "Good evening, ok?", "👍", "Cool."]),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda tool: tool[0],
)


@laws
@given(catalogues, st.sampled_from(SMALL_TALK), st.booleans())
def test_small_talk_adds_no_tool_whatever_the_catalogue(catalogue, talk, answered):
    tools = [make_tool(name, description) for name, description in catalogue]
    rag = ToolRAG(tools, embeddings=HashingEmbeddings())
    before = rag.select([user(catalogue[0][0], id="0")])
    history = [user(catalogue[0][0], id="0"), *([said()] if answered else []), user(talk, id="1")]
    selection = rag.select(history, previous=before.state)
    assert selection.names == before.names
    assert selection.state["found"] == []
    assert rag.select(talk).tools == ()
