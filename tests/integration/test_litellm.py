"""The LiteLLM proxy's filter, called as the proxy calls it."""

import asyncio
import copy
import json
import logging
import os
import threading

import pytest
from fakes import BrokenEmbeddings, HashingEmbeddings, NamedEmbeddings
from proxied_bodies import MAIL, SHAPES, WEATHER, Chat, catalogue_in, names_of

from langchain_toolrag import SelectionOptions
from langchain_toolrag.integrations.litellm import ToolRAGFilter

TWO = SelectionOptions(k=2)
WEATHER_TOOLS = ["get_weather", "get_forecast"]


class HangingEmbeddings(HashingEmbeddings):
    """Answers once it is released."""

    def __init__(self):
        super().__init__()
        self.released = threading.Event()

    def embed_documents(self, texts):
        self.released.wait(30)
        return super().embed_documents(texts)


@pytest.fixture(params=SHAPES, ids=lambda shape: shape.__name__)
def shape(request):
    return request.param


@pytest.fixture
def make_filter():
    made = []

    def make(embeddings=None, *, options=TWO, min_tools=5, timeout=30.0, **others):
        chosen = embeddings or HashingEmbeddings()
        made.append(
            ToolRAGFilter(chosen, options=options, min_tools=min_tools, timeout=timeout, **others)
        )
        return made[-1]

    yield make
    for tool_filter in made:
        tool_filter.close()


async def filtered(tool_filter, body):
    return await tool_filter.async_pre_call_hook(
        user_api_key_dict=None, cache=None, data=body, call_type="acompletion"
    )


async def remaining(tool_filter, shape, items, tools=None, **more):
    body = {**shape.body(items, tools or catalogue_in(shape)), **more}
    return names_of((await filtered(tool_filter, body))["tools"])


async def test_a_request_keeps_the_tools_it_needs_in_its_own_order(make_filter, shape):
    assert await remaining(make_filter(), shape, shape.user(WEATHER)) == WEATHER_TOOLS


async def test_all_but_the_tools_goes_on_as_it_came(make_filter, shape):
    body = shape.body(shape.user(WEATHER), catalogue_in(shape))
    before = copy.deepcopy(body)
    sent = await filtered(make_filter(), body)
    assert body == before
    assert {**sent, "tools": None} == {**body, "tools": None}
    assert all(any(tool is own for own in body["tools"]) for tool in sent["tools"])
    assert sent["stream"] is True


async def test_a_follow_up_keeps_what_the_turns_before_needed_where_it_was(make_filter, shape):
    tool_filter = make_filter()
    first = shape.user(WEATHER)
    second = [*first, *shape.call("get_weather"), *shape.user(MAIL)]
    third = [*second, *shape.call("send_email"), *shape.user("do it for kolkata too")]
    for items in (second, third):
        names = await remaining(tool_filter, shape, items)
        assert names[:2] == WEATHER_TOOLS
        assert "send_email" in names


async def test_another_process_selects_the_same_from_the_conversation_alone(make_filter, shape):
    known = make_filter()
    items = []
    for text in (WEATHER, MAIL, "skip this song", "open an issue", "rate of euro and dollar"):
        items += shape.user(text)
        last = await remaining(known, shape, items)
        items += shape.call(last[-1])
    assert await remaining(known, shape, items) == await remaining(make_filter(), shape, items)


async def test_what_was_called_stays_beyond_the_most_that_are_selected(make_filter, shape):
    called = ["play_song", "create_issue", "get_exchange_rate", "turn_on_light"]
    items = [item for name in called for item in [*shape.user(MAIL), *shape.call(name)]]
    names = await remaining(
        make_filter(options=SelectionOptions(k=2, max_tools=2)), shape, [*items, *shape.user(MAIL)]
    )
    assert set(called) < set(names)
    assert "send_email" in names


async def test_tool_choice_and_provider_tools_stay(make_filter, shape):
    tools = [dict(shape.own), *catalogue_in(shape)]
    chosen = {"type": "tool", "name": "play_song"}
    names = await remaining(make_filter(), shape, shape.user(WEATHER), tools, tool_choice=chosen)
    assert names == [*names_of(tools[:1]), *WEATHER_TOOLS, "play_song"]


async def test_always_included_tools_stay_where_a_request_brings_them(make_filter, caplog):
    options = SelectionOptions(k=2, always_include=("play_song", "unheard_of"))
    names = await remaining(make_filter(options=options), Chat, Chat.user(WEATHER))
    assert names == [*WEATHER_TOOLS, "play_song"]
    assert caplog.records == []


async def test_a_tool_whose_schema_is_broken_stays(make_filter):
    broken = Chat.tool("book_flight", "Books a flight.")
    broken["function"]["parameters"] = {"type": "object", "$ref": "#/$defs/Missing"}
    tools = [*catalogue_in(Chat), broken]
    names = await remaining(make_filter(), Chat, Chat.user(WEATHER), tools)
    assert names == [*WEATHER_TOOLS, "book_flight"]


async def test_names_that_providers_do_not_take_are_told_apart(make_filter):
    tools = [Chat.tool(f"home.light{i}", f"Lamp {i}") for i in range(5)]
    tools += [Chat.tool("home__light1", "Weather."), Chat.tool("weather now!", "Weather.")]
    names = await remaining(make_filter(), Chat, Chat.user("weather"), tools)
    assert names == ["home__light1", "weather now!"]


@pytest.mark.parametrize(
    "change",
    [
        {"tools": []},
        {"tools": None},
        {"tools": 7},
        {"tools": "play_song"},
        {"tools": {str(n): n for n in range(20)}},
        {"tools": [None] * 20},
        {"tools": [{"type": "web_search"}] * 20},
        {"messages": []},
        {"messages": "what"},
        {"messages": [{"role": "user", "content": 3}]},
        {"messages": [{"role": "user", "tool_calls": 3}, {"role": "assistant", "tool_calls": 3}]},
        {"tool_choice": [[[]]], "messages": None},
    ],
    ids=str,
)
async def test_a_body_of_another_kind_is_passed_on_as_it_is(make_filter, change):
    body = {**Chat.body(Chat.user(WEATHER), catalogue_in(Chat)), **change}
    assert await filtered(make_filter(), body) is body


@pytest.mark.parametrize("body", [None, [], "text", {}])
async def test_what_is_no_body_is_passed_on(make_filter, body):
    assert await filtered(make_filter(), body) is body


async def test_few_tools_are_not_touched_nor_embedded(make_filter):
    embeddings = HashingEmbeddings()
    body = Chat.body(Chat.user(WEATHER), catalogue_in(Chat))
    assert await filtered(make_filter(embeddings, min_tools=13), body) is body
    assert embeddings.texts == []


async def test_provider_tools_do_not_count_as_many_tools(make_filter):
    body = Chat.body(Chat.user(WEATHER), [*catalogue_in(Chat), dict(Chat.own)])
    assert await filtered(make_filter(min_tools=13), body) is body


@pytest.mark.parametrize("on_error", ["lexical", "previous", "all", "raise"])
async def test_a_broken_model_passes_requests_on_until_it_is_back(make_filter, on_error):
    embeddings = BrokenEmbeddings()
    tool_filter = make_filter(embeddings, options=SelectionOptions(k=2, on_error=on_error))
    body = Chat.body(Chat.user(WEATHER), catalogue_in(Chat))
    assert await filtered(tool_filter, body) is body
    embeddings.broken = False
    assert names_of((await filtered(tool_filter, body))["tools"]) == WEATHER_TOOLS
    embeddings.broken = True
    other = Chat.body(Chat.user(MAIL), catalogue_in(Chat))
    assert await filtered(tool_filter, other) is other


async def test_a_cause_is_told_once(make_filter, caplog):
    tool_filter = make_filter(BrokenEmbeddings())
    caplog.set_level(logging.WARNING, "LiteLLM Proxy")
    for text in (WEATHER, MAIL, "play a song"):
        await filtered(tool_filter, Chat.body(Chat.user(text), catalogue_in(Chat)))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "a request keeps all its tools: EmbeddingError" in record.getMessage()
    assert "the model server is down" in record.getMessage()


async def test_a_warning_has_nothing_of_the_conversation_in_it(make_filter, caplog):
    tool_filter = make_filter(BrokenEmbeddings())
    caplog.set_level(logging.DEBUG, "LiteLLM Proxy")
    await filtered(tool_filter, Chat.body(Chat.user("my secret"), catalogue_in(Chat)))
    assert "secret" not in caplog.text


async def test_a_slow_model_delays_one_request_and_none_after_it(make_filter, caplog):
    caplog.set_level(logging.DEBUG, "LiteLLM Proxy")
    embeddings = HangingEmbeddings()
    tool_filter = make_filter(embeddings, timeout=0.05)
    body = Chat.body(Chat.user(WEATHER), catalogue_in(Chat))
    assert await filtered(tool_filter, body) is body
    assert "not done within 0.05 s" in caplog.text
    assert await filtered(tool_filter, body) is body
    assert "12 tools are still being indexed" in caplog.text
    embeddings.released.set()
    sent = body
    for _ in range(1000):
        if sent is not body:
            break
        await asyncio.sleep(0.01)
        sent = await filtered(tool_filter, body)
    assert names_of(sent["tools"]) == WEATHER_TOOLS
    assert len(embeddings.texts) == len(set(embeddings.texts))


async def test_many_requests_at_once_embed_their_tools_once(make_filter):
    embeddings = HashingEmbeddings()
    tool_filter = make_filter(embeddings)
    texts = [WEATHER, MAIL, "play a song", "open an issue in the repository"] * 10
    found = await asyncio.gather(*(remaining(tool_filter, Chat, Chat.user(text)) for text in texts))
    assert [len(names) for names in found] == [2] * 40
    assert found[:4] == found[-4:]
    assert found[0] == WEATHER_TOOLS
    assert len(embeddings.texts) == len(set(embeddings.texts))


async def test_a_request_that_is_given_up_does_not_stop_the_others(make_filter):
    embeddings = HangingEmbeddings()
    tool_filter = make_filter(embeddings)
    waiting = [
        asyncio.create_task(remaining(tool_filter, Chat, Chat.user(WEATHER))) for _ in range(3)
    ]
    await asyncio.sleep(0)
    waiting[0].cancel()
    embeddings.released.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    assert await waiting[1] == await waiting[2] == WEATHER_TOOLS


async def test_another_set_of_tools_embeds_only_what_is_new(make_filter):
    embeddings = HashingEmbeddings()
    tool_filter = make_filter(embeddings)
    await remaining(tool_filter, Chat, Chat.user(WEATHER))
    before = len(embeddings.texts)
    tools = [*catalogue_in(Chat), Chat.tool("book_flight", "Books a flight.")]
    names = await remaining(tool_filter, Chat, Chat.user("book a flight"), tools)
    assert "book_flight" in names
    assert all("flight" in text.lower() for text in embeddings.texts[before:])


async def test_a_conversation_goes_on_when_its_tools_change(make_filter):
    tool_filter = make_filter()
    items = [*Chat.user(WEATHER), *Chat.call("get_weather"), *Chat.user(MAIL)]
    await remaining(tool_filter, Chat, items)
    fewer = [tool for tool in catalogue_in(Chat) if names_of([tool]) != ["get_forecast"]]
    names = await remaining(tool_filter, Chat, items, fewer)
    assert "get_forecast" not in names
    assert {"get_weather", "send_email"} < set(names)


async def test_the_folder_keeps_vectors_for_the_next_process(make_filter, tmp_path):
    await remaining(make_filter(NamedEmbeddings(), cache_dir=tmp_path), Chat, Chat.user(WEATHER))
    embeddings = NamedEmbeddings()
    tool_filter = make_filter(embeddings, cache_dir=tmp_path)
    assert await remaining(tool_filter, Chat, Chat.user(WEATHER)) == WEATHER_TOOLS
    assert "get_weather" not in " ".join(embeddings.texts)


async def test_sets_of_tools_beyond_the_limit_are_indexed_again(make_filter):
    tool_filter = make_filter(max_catalogues=1)
    tools = catalogue_in(Chat)
    for few in (tools, tools[:8], tools):
        assert await remaining(tool_filter, Chat, Chat.user(WEATHER), few) == WEATHER_TOOLS


async def test_a_long_conversation_that_was_never_seen_embeds_its_last_turns_alone(make_filter):
    embeddings = HashingEmbeddings()
    items = [
        item
        for turn in range(40)
        for item in [*Chat.user(f"send email number {turn}"), *Chat.call("send_email")]
    ]
    names = await remaining(make_filter(embeddings), Chat, items)
    assert "send_email" in names
    assert len(embeddings.queries) < 20


async def test_toolrags_own_algorithm_can_filter_too(make_filter):
    tool_filter = make_filter(options=SelectionOptions.classic())
    assert "get_weather" in await remaining(tool_filter, Chat, Chat.user(WEATHER))


async def test_a_closed_filter_passes_requests_on(make_filter):
    tool_filter = make_filter()
    tool_filter.close()
    body = Chat.body(Chat.user(WEATHER), catalogue_in(Chat))
    assert await filtered(tool_filter, body) is body


@pytest.mark.parametrize("wrong", [{"min_tools": 0}, {"max_catalogues": 0}, {"timeout": 0.0}])
def test_numbers_out_of_range_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name} (is )?0"):
        ToolRAGFilter(HashingEmbeddings(), **wrong)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_worker_filters(make_filter):
    tool_filter = make_filter()
    assert asyncio.run(remaining(tool_filter, Chat, Chat.user(WEATHER))) == WEATHER_TOOLS
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        names = asyncio.run(remaining(tool_filter, Chat, Chat.user(WEATHER)))
        os.write(writing, json.dumps(names).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert json.loads(os.read(reading, 1000)) == WEATHER_TOOLS


@pytest.mark.filterwarnings("ignore")  # LiteLLM's own, at its import.
async def test_litellm_takes_the_filter_for_a_callback_of_its_own(make_filter, monkeypatch):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # Or it asks the network.
    litellm = pytest.importorskip("litellm")
    types = pytest.importorskip("litellm.proxy._types")
    proxy = pytest.importorskip("litellm.proxy.utils")
    tool_filter = make_filter()
    monkeypatch.setattr(litellm, "callbacks", [tool_filter])
    body = Chat.body(Chat.user(WEATHER), catalogue_in(Chat))
    sent = await proxy.ProxyLogging(user_api_key_cache=litellm.DualCache()).pre_call_hook(
        user_api_key_dict=types.UserAPIKeyAuth(), data=body, call_type="acompletion"
    )
    assert names_of(sent["tools"]) == WEATHER_TOOLS
    assert len(body["tools"]) == 12
