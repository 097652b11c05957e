import copy

import pytest
from conversations import calling, results, said, turn, user
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.prompt_values import ChatPromptValue

from langchain_toolrag.selection.conversation import message_text, read_conversation

NAME = "get_weather"
CALL = {"name": NAME, "args": {"city": "Delhi"}, "id": "c1"}
ANTHROPIC_BLOCK = {"type": "tool_use", "id": "c1", "name": NAME, "input": {"city": "Delhi"}}
RESPONSES_BLOCK = {
    "type": "function_call",
    "id": "fc_9",
    "call_id": "c1",
    "name": NAME,
    "arguments": "{}",
}
INVALID = {"name": NAME, "args": '{"to": [', "id": "c1", "error": "Unterminated JSON"}
OPENAI_CALL = {"id": "c1", "type": "function", "function": {"name": NAME, "arguments": "{}"}}
CHUNK = {"name": NAME, "args": "{}", "id": "c1", "index": 0, "type": "tool_call_chunk"}

CALLS_WITH_ID = {
    "tool_calls": AIMessage("", tool_calls=[CALL]),
    "invalid_tool_calls": AIMessage("", invalid_tool_calls=[INVALID]),
    "anthropic tool_use": AIMessage([{"type": "text", "text": "Let me look."}, ANTHROPIC_BLOCK]),
    "words and a block": AIMessage(["Let me look.", ANTHROPIC_BLOCK]),
    "anthropic block and tool_calls": AIMessage([ANTHROPIC_BLOCK], tool_calls=[CALL]),
    "responses function_call": AIMessage([{"type": "reasoning", "summary": []}, RESPONSES_BLOCK]),
    "responses block and tool_calls": AIMessage([RESPONSES_BLOCK], tool_calls=[CALL]),
    "tool_call block as content": AIMessage([{"type": "tool_call", **CALL}]),
    "content_blocks": AIMessage(content_blocks=[{"type": "tool_call", **CALL}]),
    "additional_kwargs tool_calls": AIMessage("", additional_kwargs={"tool_calls": [OPENAI_CALL]}),
    "message chunk": AIMessageChunk("", tool_call_chunks=[CHUNK]),
    "openai dict": {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]},
    "gemini part with id": AIMessage([{"functionCall": {"name": NAME, "args": {}, "id": "c1"}}]),
}
CALLS_WITHOUT_ID = {
    "call without id": AIMessage("", tool_calls=[{"name": NAME, "args": {}, "id": None}]),
    "gemini part": AIMessage([{"functionCall": {"name": NAME, "args": {}}}]),
    "gemini part in snake case": AIMessage([{"function_call": {"name": NAME, "args": {}}}]),
    "legacy function_call": AIMessage(
        "", additional_kwargs={"function_call": {"name": NAME, "arguments": "{}"}}
    ),
    "FunctionMessage": FunctionMessage("31C", name=NAME),
    "orphan ToolMessage": ToolMessage("31C", tool_call_id="c1", name=NAME),
}
EVERY_CALL = {**CALLS_WITH_ID, **CALLS_WITHOUT_ID}


def by_name(cases):
    return pytest.mark.parametrize("message", cases.values(), ids=cases.keys())


@by_name(EVERY_CALL)
def test_a_call_is_read_wherever_it_is_written(message):
    conversation = read_conversation([user("forecast Delhi"), message, user("and tomorrow?")])
    assert conversation.sticky(1) == (NAME,)
    assert conversation.classic_sticky(1) == (NAME,)


@by_name(CALLS_WITH_ID)
def test_a_call_written_in_two_places_of_a_message_is_one_call(message):
    assert len(read_conversation([message]).calls) == 1


@by_name(CALLS_WITH_ID)
def test_a_call_without_a_result_is_unanswered(message):
    assert read_conversation([user("forecast"), message]).unanswered == (NAME,)


RESULTS = {
    "ToolMessage": ToolMessage("31C", tool_call_id="c1"),
    "anthropic tool_result": HumanMessage(
        [{"type": "tool_result", "tool_use_id": "c1", "content": "31C"}]
    ),
    "responses output": HumanMessage(
        [{"type": "function_call_output", "call_id": "c1", "output": "31C"}]
    ),
    "failed call": ToolMessage("Error: timeout", tool_call_id="c1", status="error"),
    "openai dict": {"role": "tool", "content": "31C", "tool_call_id": "c1"},
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS.keys())
@by_name(CALLS_WITH_ID)
def test_a_call_with_its_result_is_answered_and_sticky(message, result):
    conversation = read_conversation([user("forecast"), message, result])
    assert conversation.unanswered == ()
    assert conversation.sticky(1) == (NAME,)


@by_name(CALLS_WITHOUT_ID)
def test_a_call_without_an_id_waits_for_nothing(message):
    assert read_conversation([user("forecast"), message]).unanswered == ()


NO_CALLS = {
    "null name": AIMessage(
        "", invalid_tool_calls=[{"name": None, "args": None, "id": None, "error": None}]
    ),
    "empty name": AIMessage("", tool_calls=[{"name": "", "args": {}, "id": "c1"}]),
    "anthropic server tool": AIMessage([{**ANTHROPIC_BLOCK, "type": "server_tool_use"}]),
    "server_tool_call": AIMessage([{"type": "server_tool_call", **CALL}]),
    "openai web search": AIMessage([{"type": "web_search_call", "id": "ws", "name": NAME}]),
    "tool search result": AIMessage(
        [{"type": "tool_search_tool_result", "tool_use_id": "s", "name": NAME, "content": []}]
    ),
    "text that names it": AIMessage(f"I could call {NAME}."),
    "system prompt that names it": SystemMessage(f"You can {NAME} when asked."),
    "result without a name": ToolMessage("31C", tool_call_id="c1"),
    "agent's own name": AIMessage("hello", name=NAME),
    "user's name": HumanMessage("hello", name=NAME),
}


@by_name(NO_CALLS)
def test_what_is_not_a_call_of_ours_is_not_sticky(message):
    assert read_conversation([user("hi"), message, user("again")]).calls == ()


def test_one_of_two_parallel_calls_without_a_result_is_unanswered():
    call = calling("get_weather", "list_issues")
    conversation = read_conversation([user("x"), call, results(call)[0], user("again")])
    assert conversation.unanswered == ("list_issues",)
    assert set(conversation.sticky(1)) == {"get_weather", "list_issues"}


def test_two_parallel_calls_of_one_tool_are_both_waited_for():
    call = calling("get_weather", "get_weather")
    conversation = read_conversation([user("x"), call, results(call)[0]])
    assert conversation.unanswered == ("get_weather",)


def test_a_result_under_another_name_than_the_call_makes_both_sticky():
    edited = ToolMessage("done", tool_call_id="create_item-0", name="list_item")
    conversation = read_conversation([user("x"), calling("create_item"), edited, user("again")])
    assert set(conversation.sticky(1)) == {"create_item", "list_item"}
    assert conversation.unanswered == ()


def test_handoffs_and_calls_of_other_agents_are_read_too():
    first, second = calling("transfer_to_weather_agent"), calling("get_weather")
    history = [user("x"), first, *results(first), second, *results(second), user("and Kolkata")]
    assert read_conversation(history).sticky(1) == ("get_weather", "transfer_to_weather_agent")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("  plain words ", "plain words"),
        (["send an email", "to Asha"], "send an email to Asha"),
        ([{"type": "text", "text": "look"}, "raw str"], "look raw str"),
        ([{"type": "input_text", "text": "look"}], "look"),
        ([{"text": "a block without a type"}], "a block without a type"),
        ([{"type": "image", "data": "AAAA"}, {"type": "text", "text": "this"}], "this"),
        ([{"type": "image", "data": "AAAA"}], ""),
        ([{"type": "text"}], ""),
        ([{"type": "text", "text": None}], ""),
        ([], ""),
        (" \n\t ", ""),
        (" 👍 ", "👍"),
    ],
)
def test_the_text_of_a_message_is_its_text_blocks_joined_by_spaces(content, text):
    assert message_text(HumanMessage(content)) == text


IMAGE = HumanMessage([{"type": "image", "source_type": "base64", "data": "AAAA"}])
TOOL_RESULT = HumanMessage([{"type": "tool_result", "tool_use_id": "c1", "content": "31C"}])
MARKED_SUMMARY = HumanMessage("The user likes rain.", additional_kwargs={"lc_source": "summary"})
SUMMARY = HumanMessage("Here is a summary of the conversation to date:\n\nWeather of Delhi.")

QUERIES = {
    "last of two": ([user("first"), said(), user("second")], "second", "first"),
    "ends with AI": ([user("weather in Pune"), said("Which day?")], "weather in Pune", ""),
    "ends with a tool result": (turn("one") + turn("two", NAME)[:-1], "two", "one"),
    "image alone": ([user("make an invoice"), said(), IMAGE], "make an invoice", ""),
    "image after two turns": ([user("a"), user("b"), IMAGE], "b", "a"),
    "white space": ([user("weather"), said(), user(" \n ")], "weather", ""),
    "none as content": ([user("weather"), {"role": "user", "content": None}], "weather", ""),
    "only an emoji": ([user(" 👍 ")], "👍", ""),
    "tool result as a user message": ([user("forecast"), TOOL_RESULT], "forecast", ""),
    "tool result with words": (
        [user("forecast"), HumanMessage([*TOOL_RESULT.content, {"type": "text", "text": "go on"}])],
        "go on",
        "forecast",
    ),
    "marked summary": ([MARKED_SUMMARY, user("and the day after?")], "and the day after?", ""),
    "summary by its first words": ([SUMMARY, user("and then?")], "and then?", ""),
    "summary last": ([user("weather"), said(), MARKED_SUMMARY], "weather", ""),
    "summary alone": ([SUMMARY], "", ""),
    "system alone": ([SystemMessage("You bill.")], "", ""),
    "system among the rest": ([SystemMessage("You bill."), user("send it")], "send it", ""),
    "AI alone": ([said("Hello!")], "", ""),
    "result first": ([ToolMessage("x", tool_call_id="c", name=NAME), user("hi")], "hi", ""),
    "nothing": ([], "", ""),
    "list of strings": (["send an email"], "send an email", ""),
    "string": ("weather in Pune", "weather in Pune", ""),
    "empty string": ("", "", ""),
    "tuples": ([("user", "weather"), ("ai", "?"), ("human", "Pune")], "Pune", "weather"),
    "dicts": ([{"role": "user", "content": "weather in Pune"}], "weather in Pune", ""),
    "one message": (user("weather"), "weather", ""),
    "prompt value": (ChatPromptValue(messages=[user("weather")]), "weather", ""),
    "chat message of the user": ([ChatMessage("weather", role="user")], "weather", ""),
    "chat message of somebody": (
        [user("weather"), ChatMessage("no", role="critic")],
        "weather",
        "",
    ),
    "several users": (
        [user("weather", name="ann"), user("and mail", name="bo")],
        "and mail",
        "weather",
    ),
}


@pytest.mark.parametrize(("messages", "query", "before"), QUERIES.values(), ids=QUERIES.keys())
def test_the_query_is_the_last_real_words_of_the_user(messages, query, before):
    conversation = read_conversation(messages)
    assert conversation.query == query
    assert conversation.previous_query == before


@pytest.mark.parametrize("messages", [[], [SUMMARY], [SystemMessage("x")], [said()]])
def test_without_a_user_turn_there_is_no_turn_id(messages):
    assert read_conversation(messages).turn_id == ""


def test_a_tool_result_never_becomes_the_query():
    huge = ToolMessage("invoice stock hotel " * 2_000, tool_call_id="get_weather-0", name=NAME)
    conversation = read_conversation([user("email me the errors"), calling(NAME), huge])
    assert conversation.query == "email me the errors"
    assert conversation.sticky(3) == (NAME,)


def test_a_removed_message_is_not_read():
    history = [
        user("forecast Delhi", id="1"),
        AIMessage("", tool_calls=[CALL], id="2"),
        RemoveMessage(id="2"),
        user("and tomorrow?", id="4"),
    ]
    conversation = read_conversation(history)
    assert conversation.calls == ()
    assert conversation.query == "and tomorrow?"


def test_remove_all_forgets_what_came_before_it_and_nothing_after():
    remove_all = RemoveMessage(id="__remove_all__")
    conversation = read_conversation([*turn("old", NAME), remove_all, user("book a hotel")])
    assert (conversation.query, conversation.previous_query) == ("book a hotel", "")
    assert conversation.calls == ()


def test_removing_an_unknown_message_changes_nothing():
    conversation = read_conversation([user("weather", id="1"), RemoveMessage(id="7")])
    assert conversation.query == "weather"


def test_every_step_of_a_turn_has_the_turns_id():
    history = turn("forecast", NAME, "list_issues")
    ids = {read_conversation(history[:length]).turn_id for length in range(1, len(history) + 1)}
    assert len(ids) == 1


def test_two_equal_requests_without_message_ids_are_two_turns():
    history = [user("yes"), said(), user("yes")]
    assert read_conversation(history[:1]).turn_id != read_conversation(history).turn_id


def test_a_turn_keeps_its_id_when_history_before_it_is_trimmed():
    history = [user("old", id="1"), said(), user("yes", id="2")]
    assert read_conversation(history).turn_id == read_conversation(history[2:]).turn_id


def test_an_image_turn_is_a_turn_of_its_own():
    history = [user("make an invoice"), said(), IMAGE]
    assert read_conversation(history).turn_id != read_conversation(history[:1]).turn_id


FOUR_TURNS = [*turn("1", "a"), *turn("2", "b"), *turn("3"), *turn("4", "c", "d"), user("5")]


@pytest.mark.parametrize(
    ("window", "names"),
    [(0, ()), (1, ("d", "c")), (2, ("d", "c")), (3, ("d", "c", "b")), (9, ("d", "c", "b", "a"))],
)
def test_the_window_counts_assistant_turns_latest_first(window, names):
    assert read_conversation(FOUR_TURNS).sticky(window) == names


def test_the_calls_of_the_running_turn_are_in_the_first_window():
    call = calling("now")
    history = [*turn("before", "earlier"), user("go"), call, *results(call)]
    assert read_conversation(history).sticky(1) == ("now",)
    assert read_conversation(history).sticky(2) == ("now", "earlier")


def test_a_turn_with_forty_tool_messages_is_one_turn():
    loop = []
    for step in range(40):
        call = calling("get_weather", start=step)
        loop += [call, *results(call)]
    history = [*turn("first", "list_issues"), user("forecast of forty cities"), *loop, said()]
    conversation = read_conversation([*history, user("thanks")])
    assert conversation.sticky(1) == ("get_weather",)
    assert conversation.sticky(2) == ("get_weather", "list_issues")


def test_a_tool_called_in_many_turns_is_named_once_at_its_latest_place():
    history = [*turn("1", "a"), *turn("2", "b"), *turn("3", "a", start=1)]
    assert read_conversation(history).sticky(3) == ("a", "b")


def test_a_user_message_that_holds_a_tool_result_does_not_end_the_turn():
    history = [user("x"), AIMessage([ANTHROPIC_BLOCK]), TOOL_RESULT, said()]
    assert read_conversation([*turn("0", "a"), *history]).sticky(1) == (NAME,)


@pytest.mark.parametrize(
    ("window", "names"), [(0, ()), (1, ()), (2, ("b",)), (3, ("b",)), (4, ("b", "a"))]
)
def test_the_classic_window_counts_assistant_messages(window, names):
    history = [*turn("1", "a"), *turn("2", "b"), user("3")]
    assert read_conversation(history).classic_sticky(window) == names


HISTORIES = {**{name: messages for name, (messages, _, _) in QUERIES.items()}, "turns": FOUR_TURNS}


@pytest.mark.parametrize("messages", HISTORIES.values(), ids=HISTORIES.keys())
def test_reading_changes_no_message(messages):
    before = copy.deepcopy(messages)
    read_conversation(messages)
    assert messages == before
