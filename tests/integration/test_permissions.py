"""Which kinds of filter there are, and how they are told apart."""

import functools

import pytest
from fake_model import ScriptedModel, call, says
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage

from langchain_toolrag import SelectionOptions, ToolDocument, ToolRAG, ToolRAGMiddleware
from langchain_toolrag.integrations.permissions import filter_of
from langchain_toolrag.types import ToolFilter

MAIL = ToolFilter(servers=frozenset(["mail"]))


def of_mail(document):
    return document.server == "mail"


class Predicate:
    def __call__(self, document):
        return document.server == "mail"


class FromRuntime:
    def __init__(self, made):
        self.made = made

    def __call__(self, runtime):
        self.runtime = runtime
        return self.made

    def method(self, runtime):
        return self(runtime)


def test_no_filter_is_no_filter():
    assert filter_of(None, object()) is None


def test_a_tool_filter_is_used_as_it_is():
    assert filter_of(MAIL, object()) is MAIL


@pytest.mark.parametrize(
    "predicate",
    [of_mail, lambda tool: tool.server == "mail", Predicate(), functools.partial(of_mail), bool],
    ids=["function", "lambda", "object", "partial", "builtin"],
)
def test_a_function_of_documents_is_used_as_it_is(predicate):
    assert filter_of(predicate, object()) is predicate


@pytest.mark.parametrize("made", [MAIL, of_mail, None], ids=["filter", "function", "nothing"])
def test_a_function_of_the_runtime_is_called_with_it(made):
    runtime, filter = object(), FromRuntime(made)

    assert filter_of(filter, runtime) is made
    assert filter.runtime is runtime


@pytest.mark.parametrize(
    "wrap",
    [
        lambda filter: filter.method,
        lambda filter: lambda runtime: filter(runtime),
        lambda filter: functools.partial(filter),
    ],
    ids=["method", "lambda", "partial"],
)
def test_a_function_of_the_runtime_may_be_of_any_kind(wrap):
    assert filter_of(wrap(FromRuntime(MAIL)), None) is MAIL


class TestInAnAgent:
    @pytest.fixture
    def agent_with(self, tools, embeddings):
        def build(model, filter):
            options = SelectionOptions(k=1)
            rag = ToolRAG(tools, embeddings=embeddings, options=options)
            return create_agent(model, middleware=[ToolRAGMiddleware(rag=rag, filter=filter)])

        return build

    @pytest.mark.parametrize(
        "filter",
        [MAIL, of_mail, Predicate(), lambda runtime: MAIL, lambda runtime: of_mail],
        ids=["filter", "function", "object", "runtime to filter", "runtime to function"],
    )
    async def test_it_holds_for_selection_and_execution(self, agent_with, run, filter):
        forbidden = says("", call("play_song", title="Blue"), call("send_email", "c2", to="bob"))
        model = ScriptedModel(script=[forbidden, says("Sorry.")])
        result = await run.ask(agent_with(model, filter), "play a song")
        answers = [m for m in result["messages"] if isinstance(m, ToolMessage)]

        assert [answer.status for answer in answers] == ["error", "success"]
        assert all(set(bound) <= {"send_email", "search_email"} for bound in model.bound)

    async def test_none_from_the_runtime_admits_all(self, agent_with, run, model):
        await run.ask(agent_with(model, lambda runtime: None), "play a song")

        assert model.bound == [["play_song"]]

    @pytest.mark.parametrize("wrong", ["mail", 7, ["mail"]], ids=["a string", "a number", "a list"])
    async def test_what_is_no_filter_is_refused(self, agent_with, run, model, wrong):
        with pytest.raises(TypeError, match="wanted a ToolFilter or a function"):
            await run.ask(agent_with(model, lambda runtime: wrong), "play a song")
        assert model.bound == []

    @pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
    async def test_an_async_predicate_is_refused_rather_than_admitting_all(
        self, agent_with, run, model
    ):
        async def nobody(document: ToolDocument) -> bool:
            return False

        with pytest.raises(TypeError, match=r"async|coroutine"):
            await run.ask(agent_with(model, nobody), "play a song")
        assert model.bound == []

    async def test_an_error_in_a_filter_is_not_taken_for_permission(self, agent_with, run, model):
        def broken(document):
            raise KeyError("no such user")

        with pytest.raises(KeyError, match="no such user"):
            await run.ask(agent_with(model, broken), "play a song")
        assert model.bound == []
