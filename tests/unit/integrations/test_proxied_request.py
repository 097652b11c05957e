import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proxied_bodies import MAIL, SHAPES, WEATHER, Anthropic, Chat, Responses, catalogue_in

from langchain_toolrag.integrations.proxied_request import read_request
from langchain_toolrag.selection.conversation import read_conversation

KEYS = st.sampled_from(
    ["role", "type", "content", "text", "name", "tool_calls", "function", "call_id", "id"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(params=SHAPES, ids=lambda shape: shape.__name__)
def shape(request):
    return request.param


def read(shape, items, **more):
    return read_request({**shape.body(items, catalogue_in(shape)), **more})


def test_every_shape_says_the_same_of_a_tool(shape):
    assert read(shape, shape.user(WEATHER)).definitions["get_weather"] == {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Current weather in a city: warm or cold, rain or sun.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        }
        | ({"strict": False} if shape is Responses else {}),
    }


def test_every_shape_tells_the_same_conversation(shape):
    items = [*shape.user(WEATHER), *shape.call("get_weather"), *shape.user(MAIL)]
    conversation = read_conversation(read(shape, items).messages)
    assert (conversation.query, conversation.earlier) == (MAIL, (WEATHER,))
    assert conversation.assistant == "Done."
    assert [(call.name, call.turn, call.answered) for call in conversation.calls] == [
        ("get_weather", 1, True)
    ]


def test_a_call_without_a_result_is_one_that_waits_for_it(shape):
    items = [*shape.user(WEATHER), *shape.call("get_weather")]
    without = [item for item in items if "done" not in str(item)][:-1]
    assert read_conversation(read(shape, without).messages).unanswered == ("get_weather",)


def test_a_result_of_a_tool_does_not_begin_a_turn(shape):
    items = [*shape.user(WEATHER), *shape.call("get_weather")]
    before = read_conversation(read(shape, items[:1]).messages)
    after = read_conversation(read(shape, items).messages)
    assert after.turn_id == before.turn_id


def test_the_system_prompt_is_not_the_users_words(shape):
    conversation = read_conversation(read(shape, shape.user(WEATHER)).messages)
    assert (conversation.query, conversation.earlier, conversation.assistant) == (WEATHER, (), "")


def test_what_was_called_long_ago_stays(shape):
    items = shape.call("play_song") + 5 * shape.user(WEATHER)
    assert read(shape, items).staying == {"play_song"}


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ({"role": "assistant", "function_call": {"name": "play_song"}}, "play_song"),
        ({"role": "function", "name": "play_song", "content": "done"}, "play_song"),
        ({"role": "tool", "name": "play_song", "content": "done"}, "play_song"),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "name": "play_song"}]},
            "play_song",
        ),
    ],
)
def test_calls_in_older_and_foreign_forms_are_seen(call, name):
    assert read(Chat, [*Chat.user(WEATHER), call]).staying == {name}


def test_a_free_form_call_of_the_responses_api_is_seen():
    call = {"type": "custom_tool_call", "call_id": "c1", "name": "play_song", "input": "x"}
    assert read(Responses, [*Responses.user(WEATHER), call]).staying == {"play_song"}


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (None, set()),
        ("auto", set()),
        ("required", set()),
        ({"type": "any"}, set()),
        ({"type": "web_search_preview"}, set()),
        ({"type": "function", "function": {"name": "play_song"}}, {"play_song"}),
        ({"type": "function", "name": "play_song"}, {"play_song"}),
        ({"type": "tool", "name": "play_song", "disable_parallel_tool_use": True}, {"play_song"}),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [
                    {"type": "function", "name": "play_song"},
                    {"type": "function", "name": "send_email"},
                ],
            },
            {"play_song", "send_email"},
        ),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "play_song"}}],
                },
            },
            {"play_song"},
        ),
    ],
)
def test_what_tool_choice_names_stays(choice, names):
    assert read(Chat, Chat.user(WEATHER), tool_choice=choice).staying == names


def test_a_tool_that_marks_a_place_in_the_prompt_cache_stays(shape):
    tools = catalogue_in(shape)
    tools[-1] = {**tools[-1], "cache_control": {"type": "ephemeral"}}
    request = read(shape, shape.user(WEATHER), tools=tools)
    assert request.remaining(tools, frozenset({"get_weather"})) == [tools[0], tools[-1]]


def test_a_mark_inside_of_openais_function_counts_too():
    tools = catalogue_in(Chat)
    marked = {**tools[-1]["function"], "cache_control": {"type": "ephemeral"}}
    tools[-1] = {"type": "function", "function": marked}
    assert read(Chat, Chat.user(WEATHER), tools=tools).staying == {"get_exchange_rate"}


def test_provider_tools_stay_in_their_place(shape):
    tools = [dict(shape.own), *catalogue_in(shape), {"type": "code_interpreter"}]
    request = read(shape, shape.user(WEATHER), tools=tools)
    assert request.remaining(tools, frozenset({"play_song"})) == [tools[0], tools[9], tools[-1]]


def test_what_the_provider_loads_itself_stays_and_is_not_ranked():
    deferred = {**Anthropic.tool("book_flight", "Books a flight."), "defer_loading": True}
    tools = [*catalogue_in(Anthropic), deferred]
    request = read(Anthropic, Anthropic.user(WEATHER), tools=tools)
    assert "book_flight" not in request.definitions
    assert request.remaining(tools, frozenset()) == [deferred]


def test_what_stays_is_the_very_objects_in_their_order(shape):
    tools = catalogue_in(shape)
    request = read(shape, shape.user(WEATHER), tools=tools)
    remaining = request.remaining(tools, frozenset({"send_email", "get_weather", "play_song"}))
    assert [id(tool) for tool in remaining] == [id(tools[place]) for place in (0, 4, 8)]


def test_one_tool_stays_where_nothing_is_wanted_as_an_empty_list_is_refused():
    tools = catalogue_in(Chat)
    request = read(Chat, Chat.user(WEATHER), tools=tools)
    assert request.remaining(tools, frozenset()) == tools[:1]


def test_two_definitions_of_one_name_stay_or_go_together():
    tools = [*catalogue_in(Chat), Chat.tool("play_song", "Plays another song.")]
    request = read(Chat, Chat.user(WEATHER), tools=tools)
    assert len(request.remaining(tools, frozenset({"play_song"}))) == 2
    assert len(request.remaining(tools, frozenset({"get_weather"}))) == 1


def test_malformed_tools_are_left_for_the_provider_to_refuse():
    broken = [None, "play_song", 7, {}, {"type": "function"}, {"function": {"name": ["x"]}}]
    tools = [*broken, *catalogue_in(Chat), {"type": "function", "function": {"name": " "}}]
    request = read(Chat, Chat.user(WEATHER), tools=tools)
    assert request.remaining(tools, frozenset()) == [*broken, tools[-1]]


def test_input_may_be_a_string():
    request = read(Responses, WEATHER)
    assert read_conversation(request.messages).query == WEATHER


@pytest.mark.parametrize(
    "more",
    [
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"input": [{"type": "item_reference", "id": "msg_1"}, *Responses.user(WEATHER)]},
        {"input": None},
        {"input": []},
        {"input": 3},
        {"tools": None},
        {"tools": {"name": "play_song"}},
        {"tools": "play_song"},
    ],
)
def test_there_is_nothing_to_select_by_in(more):
    assert read(Responses, Responses.user(WEATHER), **more) is None


@pytest.mark.parametrize(
    "items",
    [
        [],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "system", "content": WEATHER}],
        ["what", None, 3],
        Chat.call("play_song"),
    ],
)
def test_without_words_of_the_user_there_is_nothing_to_select_by(items):
    assert read(Chat, items) is None


def test_a_notice_of_the_agent_in_the_users_message_is_not_the_users_words():
    notice = {"type": "text", "text": "<system-reminder>\nAlways play songs.\n</system-reminder>"}
    first = {"role": "user", "content": [notice, {"type": "text", "text": WEATHER}]}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "done"}
    call, _, _ = Anthropic.call("get_weather")
    conversation = read_conversation(
        read(Anthropic, [first, call, {"role": "user", "content": [result, notice]}]).messages
    )
    assert (conversation.query, conversation.earlier) == (WEATHER, ())


def test_images_and_results_are_not_copied():
    image = {"type": "image", "source": {"type": "base64", "data": "A" * 1000}}
    items = [{"role": "user", "content": [image, {"type": "text", "text": WEATHER}]}]
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "B" * 1000}
    items.append({"role": "user", "content": [result]})
    messages = str(read(Anthropic, items).messages)
    assert "AAA" not in messages
    assert "BBB" not in messages


@given(items=st.lists(JSON, max_size=4), tools=st.lists(JSON, max_size=4), choice=JSON)
def test_a_body_is_never_changed_and_reading_any_json_raises_type_errors_alone(
    items, tools, choice
):
    for key in ("messages", "input"):
        body = {key: items, "tools": tools, "tool_choice": choice}
        before = copy.deepcopy(body)
        try:
            request = read_request(body)
        except TypeError:  # The filter takes any error for "pass it on".
            request = None
        if request is not None:
            request.remaining(tools, frozenset())
        assert body == before
