import dataclasses

import pytest
from classic_oracle import classic_select, classic_test_select
from conversations import calling, results, said, turn, user
from fakes import BrokenEmbeddings, HashingEmbeddings, make_catalogue
from langchain_core.messages import ToolMessage

from langchain_toolrag import SelectionOptions, ToolRAG
from langchain_toolrag.index.probes import PROBES

CLASSIC = SelectionOptions.classic()


@pytest.fixture
def classic(tools, embeddings):
    return ToolRAG(tools, embeddings=embeddings, options=CLASSIC)


LOOP = [
    message
    for step, name in enumerate(["play_song", *["get_exchange_rate"] * 3])
    for call in [calling(name, start=step)]
    for message in [call, *results(call)]
]
CONVERSATIONS = {
    "one request": [user("what is the current weather in the city")],
    "one word": [user("weather")],
    "a tool's name": [user("get_weather")],
    "nothing in common": [user("xyzzy")],
    "long and clear": [user("opens a new issue in a repository: create_issue repo title")],
    "vague follow-up": [*turn("weather forecast for the next days"), user("do it for kolkata too")],
    "vague by score": [*turn("play a song"), user("and after that I would quite like some tea")],
    "changed subject": [*turn("play a song", "play_song"), user("sends an email to somebody")],
    "follow-up after a call": [*turn("current weather", "get_weather"), user("again")],
    "four turns of calls": [
        *turn("a song", "play_song"),
        *turn("switches a lamp on", "turn_on_light"),
        *turn("exchange rate", "get_exchange_rate"),
        *turn("lists the issues", "list_issues"),
        user("thanks"),
    ],
    "parallel calls": [*turn("both", "send_email", "get_weather", "play_song"), user("ok")],
    "inside the loop": turn("finds mails by words", "search_email", "create_issue")[:-1],
    "calls of strangers": [*turn("hand over", "transfer_to_x", "list_issues"), user("go on")],
    "result cut off from its call": [
        ToolMessage("ok", tool_call_id="c", name="turn_on_light"),
        said(),
        user("and the next song"),
    ],
    "long loop": [user("rates"), *LOOP],
}


@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS.keys())
def test_classic_selects_what_toolrag_selects_in_its_order(classic, messages):
    assert classic.select(messages).names == classic_select(classic, messages)


@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS.keys())
def test_classic_explains_as_toolrags_test_select_does(classic, messages):
    explained = [(tool.name, tool.source) for tool in classic.explain(messages)]
    assert explained == classic_test_select(classic, messages)


def test_the_conversations_try_every_source(classic):
    sources = {
        tool.source for messages in CONVERSATIONS.values() for tool in classic.explain(messages)
    }
    assert sources == {"semantic", "text", "both", "sticky"}


def test_classic_keeps_nothing_that_was_only_bound_before(classic):
    first = classic.select([user("play a song on the speakers")])
    second = classic.select([user("current weather in a city")], previous=first.state)
    assert "play_song" in first.names
    assert "play_song" not in second.names


def test_classic_binds_all_tools_in_order_while_embedding_fails(tools):
    rag = ToolRAG(tools, embeddings=BrokenEmbeddings(), options=CLASSIC)
    selection = rag.select("weather")
    assert list(selection.tools) == tools
    assert "the model server is down" in selection.degraded


def test_classic_binds_all_tools_at_every_step_while_embedding_fails(tools):
    rag = ToolRAG(tools, embeddings=BrokenEmbeddings(), options=CLASSIC)
    first = rag.select("weather")
    assert rag.select("weather", previous=first.state).names == first.names


def test_a_small_catalogue_stays_bound_whole_at_every_step_of_a_classic_turn():
    options = dataclasses.replace(CLASSIC, min_catalogue=12)
    rag = ToolRAG(make_catalogue(), embeddings=HashingEmbeddings(), options=options)
    first = rag.select("weather")
    assert rag.select("weather", previous=first.state).names == first.names


def test_classic_embeds_one_text_a_tool_with_no_server_in_it(classic, embeddings):
    classic.index()
    assert len([text for text in embeddings.texts if text not in PROBES]) == 12
    assert (
        "get_weather. get. weather: Current weather in a city: warm or cold, rain or sun.. "
        "Parameters: city" in embeddings.texts
    )
