"""Binding tools to a model that has something bound to it already."""

import pytest
from fake_model import ScriptedModel
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable

from langchain_toolrag.integrations.binding import bind_tools


class Starts(BaseCallbackHandler):
    """Notes under which tags and name a model is called."""

    def __init__(self):
        self.seen = []

    def on_chat_model_start(self, serialized, messages, **kwargs):
        self.seen.append((kwargs["tags"], kwargs["name"]))


def call(bound, **config):
    bound.invoke("hello", config or None)


def test_tools_are_bound_to_a_plain_model(model, tools):
    call(bind_tools(model, tools[:2]))

    assert model.bound == [["get_weather", "get_forecast"]]
    assert model.options == [{}]


def test_without_tools_a_plain_model_stays_as_it_is(model):
    assert bind_tools(model, []) is model


def test_options_stay(model, tools):
    call(bind_tools(model.bind(stop=["END"], temperature=0), tools[:1]))

    assert model.bound == [["get_weather"]]
    assert model.options == [{"stop": ["END"], "temperature": 0}]


def test_configuration_stays(model, tools):
    starts = Starts()
    configured = model.with_config(tags=["mine"], run_name="weatherman")
    call(bind_tools(configured, tools[:1]), callbacks=[starts])

    assert model.bound == [["get_weather"]]
    assert starts.seen == [(["mine"], "weatherman")]


def test_layers_of_options_and_configuration_all_stay(model, tools):
    starts = Starts()
    layered = model.bind(stop=["END"]).with_config(tags=["mine"]).bind(seed=1)
    named = layered.with_config(run_name="weatherman")
    call(bind_tools(named, tools[:1]), callbacks=[starts])

    assert model.options == [{"stop": ["END"], "seed": 1}]
    assert starts.seen == [(["mine"], "weatherman")]


def test_the_outer_of_two_values_wins(model, tools):
    call(bind_tools(model.bind(seed=1).bind(seed=2), tools[:1]))

    assert model.options == [{"seed": 2}]


def test_tools_that_were_bound_are_replaced_and_their_options_stay(model, tools):
    call(bind_tools(model.bind_tools(tools, strict=True), tools[8:9]))

    assert model.bound == [["play_song"]]
    assert model.options == [{"strict": True}]


def test_tools_that_were_bound_go_where_none_are_wanted(model, tools):
    call(bind_tools(model.bind_tools(tools).bind(stop=["END"]), []))

    assert model.bound == [[]]
    assert model.options == [{"stop": ["END"]}]


def test_listeners_stay(model, tools):
    heard = []
    listened = model.with_listeners(on_end=lambda run: heard.append(run.name))
    call(bind_tools(listened, tools[:1]))

    assert model.bound == [["get_weather"]]
    assert heard == ["ScriptedModel"]


def test_fallbacks_get_the_tools_too(tools):
    class Annotated(ScriptedModel):
        # LangChain hands a method on to the fallbacks if it says that it returns a Runnable.
        def bind_tools(self, tools, **kwargs) -> Runnable:
            return super().bind_tools(tools, **kwargs)

    class Down(Annotated):
        def _generate(self, *args, **kwargs):
            super()._generate(*args, **kwargs)
            raise ConnectionError("the provider is down")

    first, second = Down(), Annotated()
    call(bind_tools(first.with_fallbacks([second]), tools[:1]))

    assert first.bound == second.bound == [["get_weather"]]


def test_the_given_model_is_not_changed(model, tools):
    given = model.bind(stop=["END"])
    bind_tools(given, tools[:1])
    call(given)

    assert model.bound == [[]]


@pytest.mark.parametrize(
    ("wrap", "kind"),
    [
        (lambda model: model.with_retry(), "RunnableRetry"),
        (lambda model: model.with_retry().bind(stop=["END"]), "RunnableRetry"),
        (lambda model: ChatPromptTemplate.from_messages([]) | model, "RunnableSequence"),
    ],
    ids=["with_retry", "with_retry and bind", "a chain"],
)
def test_what_cannot_take_tools_is_named(model, tools, wrap, kind):
    with pytest.raises(TypeError, match=f"a {kind} cannot take tools: wanted a chat model; .*re"):
        bind_tools(wrap(model), tools)


async def test_a_retry_around_the_bound_model_works(model, tools):
    await bind_tools(model, tools[:1]).with_retry().ainvoke("hello")

    assert model.bound == [["get_weather"]]
