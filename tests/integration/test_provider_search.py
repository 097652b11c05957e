"""Requests of which the provider searches what was not selected, as its integration sends them."""

import importlib.metadata
import json

import langchain.agents.middleware as middleware_module
import pytest
from fake_model import ScriptedModel, call, says
from fakes import HashingEmbeddings, make_catalogue, make_tool
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.chat_models import init_chat_model
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from langchain_toolrag import SelectionOptions, ToolRAG, ToolRAGMiddleware
from langchain_toolrag.integrations import provider_search
from langchain_toolrag.integrations.provider_search import (
    DeferredTools,
    NativeSearch,
    claimed_by_provider_search,
    is_deferred,
    native_search,
)
from langchain_toolrag.selection.bindable import tool_name

CLAUDE = "claude-opus-4-5"
GPT = "gpt-5.4"
BM25 = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
ANTHROPIC = NativeSearch("anthropic", BM25)
OPENAI = NativeSearch("openai", {"type": "tool_search"})
RESPONDS = {"use_responses_api": True}


def anthropic_model(model=CLAUDE, **given):
    package = pytest.importorskip("langchain_anthropic")
    return package.ChatAnthropic(model=model, api_key="x", **given)


def openai_model(model=GPT, **given):
    package = pytest.importorskip("langchain_openai")
    return package.ChatOpenAI(model=model, api_key="x", **given)


def two_hundred():
    """Ten servers of twenty tools."""
    return [
        make_tool(f"server{s}_tool{t}", f"Does thing {t} of {s}.", ("what",), f"server{s}")
        for s in range(10)
        for t in range(20)
    ]


def deferring(bound, rest, native, **given):
    return DeferredTools().with_deferred(bound, rest, native, **given)


def sent(model, tools):
    """What the integration would send, as JSON has it."""
    binding = model.bind_tools(tools)
    payload = binding.bound._get_request_payload("hello", **binding.kwargs)
    return json.loads(json.dumps(payload["tools"]))


def names(tools):
    return [tool_name(tool) for tool in tools]


def in_namespaces(tools):
    """Names of deferred tools by the namespace they are in."""
    return {
        tool["name"]: names(tool["tools"])
        for tool in tools
        if isinstance(tool, dict) and tool.get("type") == "namespace"
    }


def found_by_anthropic(name):
    reference = {"type": "tool_reference", "tool_name": name}
    content = {"type": "tool_search_tool_search_result", "tool_references": [reference]}
    result = {"type": "tool_search_tool_result", "tool_use_id": "s1", "content": content}
    use = {"type": "server_tool_use", "id": "s1", "name": BM25["name"], "input": {"query": "x"}}
    tool_use = {"type": "tool_use", "id": "c1", "name": name, "input": {}}
    return AIMessage([use, result, tool_use], tool_calls=[call(name)])


def found_by_openai(name, namespace, *, calls=True):
    function = {"type": "function", "name": name, "parameters": {"type": "object"}}
    loaded = [{"type": "namespace", "name": namespace, "tools": [function]}]
    output = {"type": "tool_search_output", "id": "o1", "status": "completed", "tools": loaded}
    use = {"type": "function_call", "name": name, "call_id": "c1", "arguments": "{}"}
    called = [{**use, "namespace": namespace}] if calls else []
    return AIMessage([output, *called], tool_calls=[call(name)] if calls else [])


def in_v1(message, provider):
    """The same message as LangChain's `output_version="v1"` has it."""
    told = message.model_copy(update={"response_metadata": {"model_provider": provider}})
    return AIMessage(told.content_blocks, tool_calls=told.tool_calls)


class TestWhichModelsSearch:
    @pytest.mark.parametrize(
        "model", [CLAUDE, "claude-sonnet-4-20250514", "claude-opus-4-1", "claude-fable-5-1"]
    )
    def test_later_claudes_do(self, model):
        assert native_search(anthropic_model(model)) == ANTHROPIC

    @pytest.mark.parametrize(
        "model",
        ["claude-haiku-4-5", "claude-3-7-sonnet-latest", "claude-3-opus-20240229", "glm-4.6"],
    )
    def test_other_models_of_anthropics_api_do_not(self, model):
        assert native_search(anthropic_model(model)) is None

    @pytest.mark.parametrize("model", [GPT, "gpt-5.4-mini", "gpt-5.4-2026-03-05", "gpt-6-astra"])
    def test_later_gpts_do_over_the_responses_api(self, model):
        assert native_search(openai_model(model, **RESPONDS)) == OPENAI

    @pytest.mark.parametrize(
        "model", ["gpt-5.4-nano", "gpt-5", "gpt-5-2025-08-07", "gpt-5.1", "gpt-4.1", "o4-mini"]
    )
    def test_other_models_of_openai_do_not(self, model):
        assert native_search(openai_model(model, **RESPONDS)) is None

    def test_the_api_of_a_model_is_not_changed_for_the_search(self):
        assert native_search(openai_model()) is None
        assert native_search(openai_model(use_responses_api=False)) is None
        assert native_search(openai_model(output_version="responses/v1")) == OPENAI

    def test_an_endpoint_of_somebody_else_does_not(self):
        gateway = "http://gateway.local/v1"
        assert native_search(anthropic_model(base_url=gateway)) is None
        assert native_search(openai_model(base_url=gateway, **RESPONDS)) is None
        assert native_search(openai_model(base_url="https://eu.api.openai.com/v1", **RESPONDS))

    def test_azure_does_not(self):
        openai = pytest.importorskip("langchain_openai")
        endpoint = {"azure_endpoint": "https://a.openai.azure.com", "api_version": "2026-03-01"}
        model = openai.AzureChatOpenAI(model=GPT, api_key="x", **endpoint, **RESPONDS)

        assert native_search(model) is None

    def test_wrappers_are_looked_through(self):
        model = anthropic_model()
        assert native_search(model.bind(stop=["."]).with_config(tags=["a"])) == ANTHROPIC
        assert native_search(model.bind_tools(make_catalogue())) == ANTHROPIC

    def test_the_model_that_a_binding_asks_for_counts(self):
        bound = anthropic_model().bind(model="claude-haiku-4-5").bind(stop=["."])
        assert native_search(bound) is None

    def test_models_chosen_while_the_agent_runs_do_not(self, monkeypatch):
        pytest.importorskip("langchain_anthropic")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
        chosen = init_chat_model(f"anthropic:{CLAUDE}", configurable_fields="any")

        assert native_search(chosen) is None
        assert native_search(anthropic_model().with_fallbacks([ScriptedModel()])) is None

    def test_anything_else_does_not_and_nothing_raises(self):
        class Failing(ScriptedModel):
            def _get_ls_params(self, **given):
                raise RuntimeError("no parameters")

        class Claiming(ScriptedModel):
            def _get_ls_params(self, **given):
                return {"ls_provider": "anthropic", "ls_model_name": CLAUDE}

        for model in (ScriptedModel(), Failing(), Claiming(), None, "anthropic:claude-opus-4-5"):
            assert native_search(model) is None

    @pytest.mark.parametrize(("version", "does"), [("1.2.9", False), ("1.10.0rc1", True)])
    def test_an_integration_that_does_not_know_the_search_does_not(
        self, monkeypatch, version, does
    ):
        model = anthropic_model()
        monkeypatch.setattr(importlib.metadata, "version", lambda package: version)
        provider_search._is_passed_on.cache_clear()
        try:
            assert (native_search(model) is not None) is does
        finally:
            provider_search._is_passed_on.cache_clear()


class TestWhatIsDeferred:
    def test_without_a_search_the_request_is_the_selection(self):
        tools = make_catalogue()
        assert deferring(tools[:2], tools, None) == tools[:2]

    def test_the_users_objects_are_left_as_they_are(self):
        tools = make_catalogue()
        tools[1].extras = {
            "cache_control": {"type": "ephemeral"},
            "input_examples": [{"city": "x"}],
        }
        request = deferring(tools[:1], tools, ANTHROPIC)
        copy = request[names(request).index(tools[1].name)]

        assert request[-1] is tools[0]
        assert copy.extras == {"input_examples": [{"city": "x"}], "defer_loading": True}
        assert set(tools[1].extras) == {"cache_control", "input_examples"}
        assert tools[2].extras is None

    def test_the_same_tool_is_deferred_as_the_same_copy(self):
        tools, deferred = make_catalogue(), DeferredTools()
        first = deferred.with_deferred(tools[:1], tools, ANTHROPIC)
        second = deferred.with_deferred(tools[:2], tools, ANTHROPIC)
        copies = {tool_name(tool): tool for tool in first}

        assert len(second) == len(tools) + 1
        assert all(tool is copies[tool.name] for tool in second if is_deferred(tool))

    def test_copies_of_tools_that_are_gone_are_let_go(self):
        deferred = DeferredTools()
        for _ in range(100):
            deferred.with_deferred([], make_catalogue(), ANTHROPIC)

        assert len(deferred._forms) < 200

    def test_a_tool_the_user_marked_passes_and_brings_the_search(self):
        tools = make_catalogue()
        marked = tools[3].model_copy(update={"extras": {"defer_loading": True}})
        assert deferring([marked, tools[0]], [], ANTHROPIC) == [marked, BM25, tools[0]]

    @pytest.mark.parametrize(
        "there",
        [
            {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
            make_tool("search").model_copy(update={"extras": {"provider_tool_definition": BM25}}),
        ],
        ids=["a dict", "a tool that stands for it"],
    )
    def test_a_search_tool_that_is_there_already_is_the_only_one(self, there):
        tools = make_catalogue()
        request = deferring([there, tools[0]], tools, ANTHROPIC)

        assert request[-2:] == [there, tools[0]]
        assert BM25 not in request

    def test_nothing_to_defer_needs_no_search(self):
        tools = make_catalogue()
        assert deferring(tools, tools, ANTHROPIC) == tools
        assert deferring([], [], OPENAI) == []

    def test_a_tool_that_providers_refuse_is_left_out(self):
        either = make_tool("either", "Takes one or the other.")
        either.args_schema = {"type": "object", "anyOf": [{"required": ["a"]}], "properties": {}}
        own = make_tool("bash")
        own.extras = {"provider_tool_definition": {"type": "bash_20250124", "name": "bash"}}
        rest = [make_tool("plain"), either, own]

        assert names(deferring([], rest, ANTHROPIC)) == ["plain", BM25["name"]]
        assert in_namespaces(deferring([], rest, OPENAI)) == {"tools_1": ["plain"]}

    @pytest.mark.parametrize(
        ("tool", "marked"),
        [
            (make_tool("a"), False),
            (make_tool("a").model_copy(update={"extras": {"defer_loading": True}}), True),
            (make_tool("a").model_copy(update={"extras": {"defer_loading": False}}), False),
            ({"name": "a", "input_schema": {}, "defer_loading": True}, True),
            ({"type": "function", "function": {"name": "a"}, "defer_loading": True}, True),
            ({"type": "function", "function": {"name": "a", "defer_loading": True}}, True),
            ({"type": "function", "function": {"name": "a"}}, False),
            (len, False),
        ],
    )
    def test_marks_of_all_forms_are_known(self, tool, marked):
        assert is_deferred(tool) is marked

    @given(st.lists(st.integers(0, 199), unique=True, max_size=24), st.booleans())
    @settings(max_examples=50, deadline=None)
    def test_every_tool_is_in_a_request_once_and_what_is_bound_ends_it(self, chosen, is_openai):
        bound = [MANY[position] for position in chosen]
        request = DEFERRED.with_deferred(bound, MANY, OPENAI if is_openai else ANTHROPIC)
        flat = [name for part in in_namespaces(request).values() for name in part]
        flat += [name for name in names(request) if name.startswith("server") and "tool" in name]

        assert request[len(request) - len(bound) :] == bound
        assert sorted(flat) == sorted(names(MANY))
        assert sum(provider_search._is_search_tool(tool) for tool in request) == 1


MANY = two_hundred()
DEFERRED = DeferredTools()


def weather(city: str) -> str:
    """Tells the weather."""
    return city


DEFINITION = {
    "type": "function",
    "function": {
        "name": "defined",
        "description": "Is only defined.",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
    },
}


class TestAnthropicsRequest:
    def test_of_200_tools_the_unselected_are_deferred(self):
        bound = [MANY[150], MANY[3]]
        tools = sent(anthropic_model(), deferring(bound, MANY, ANTHROPIC))
        deferred = [tool for tool in tools if tool.get("defer_loading")]
        loaded = [tool for tool in tools if not tool.get("defer_loading")]

        assert [tool["name"] for tool in deferred] == [
            tool.name for tool in MANY if tool not in bound
        ]
        assert loaded[0] == BM25
        assert [tool["name"] for tool in loaded[1:]] == ["server7_tool10", "server0_tool3"]
        assert tools[-3:] == loaded

    def test_the_header_that_the_search_needs_is_sent(self):
        binding = anthropic_model().bind_tools(deferring([], MANY, ANTHROPIC))
        payload = binding.bound._get_request_payload("hello", **binding.kwargs)

        assert "advanced-tool-use-2025-11-20" in payload["betas"]

    def test_functions_and_definitions_bear_the_mark_and_their_schema(self):
        model = anthropic_model()
        bound = {tool["name"]: tool for tool in sent(model, [weather, DEFINITION])}
        tools = sent(model, deferring([], [weather, DEFINITION], ANTHROPIC))

        assert tools[-1] == BM25
        assert tools[:-1] == [{**bound[name], "defer_loading": True} for name in bound]

    def test_the_prefix_grows_at_its_end_when_a_tool_is_selected(self):
        def prefix(bound):
            tools = sent(anthropic_model(), deferring(bound, MANY, ANTHROPIC))
            return [tool for tool in tools if not tool.get("defer_loading")]

        before, after = prefix([MANY[7], MANY[9]]), prefix([MANY[7], MANY[9], MANY[0]])
        assert after[:-1] == before

    @pytest.mark.parametrize("provider", ["auto", "off"])
    def test_a_caching_middleware_marks_the_last_selected_tool(self, provider):
        caching = pytest.importorskip("langchain_anthropic.middleware")
        model, tools = recording_claude([says("Done.")]), make_catalogue()
        agent = create_agent(
            model,
            middleware=[
                deferring_middleware(tools, provider),
                caching.AnthropicPromptCachingMiddleware(),
            ],
        )
        agent.invoke({"messages": [("user", "current weather in a city")]})
        cached = [tool for tool in model.requests[0]["tools"] if "cache_control" in tool]

        assert [tool["name"] for tool in cached] == ["get_weather"]
        assert "defer_loading" not in cached[0]


class TestOpenAIsRequest:
    def test_of_200_tools_the_unselected_are_deferred_in_namespaces(self):
        bound = [MANY[150], MANY[3]]
        tools = sent(openai_model(**RESPONDS), deferring(bound, MANY, OPENAI))
        namespaces = [tool for tool in tools if tool["type"] == "namespace"]
        deferred = [tool for each in namespaces for tool in each["tools"]]

        assert [tool["name"] for tool in deferred] == [
            tool.name for tool in MANY if tool not in bound
        ]
        assert all(tool["defer_loading"] for tool in deferred)
        assert max(len(each["tools"]) for each in namespaces) == 9
        assert [each["name"] for each in namespaces][:3] == ["server0_1", "server0_2", "server0_3"]
        assert tools[30:][0] == {"type": "tool_search"}
        assert [tool["name"] for tool in tools[31:]] == ["server7_tool10", "server0_tool3"]
        assert not any("defer_loading" in tool for tool in tools[31:])

    def test_functions_and_definitions_have_their_schema(self):
        model = openai_model(**RESPONDS)
        bound = sent(model, [weather, DEFINITION])
        tools = sent(model, deferring([], [weather, DEFINITION], OPENAI))

        assert tools == [
            {
                "type": "namespace",
                "name": "tools_1",
                "description": "tools: weather, defined.",
                "tools": [{**tool, "defer_loading": True} for tool in bound],
            },
            {"type": "tool_search"},
        ]

    def test_what_the_model_sees_of_namespaces_does_not_depend_on_the_selection(self):
        def seen(bound):
            request = deferring(bound, MANY, OPENAI)
            return [
                (tool["name"], tool["description"])
                for tool in request
                if isinstance(tool, dict) and tool["type"] == "namespace"
            ]

        assert seen([]) == seen([MANY[7]]) == seen(MANY[60:65])
        assert seen([])[0][1].startswith("server0: server0_tool0, server0_tool1, ")

    def test_a_tool_called_while_it_was_bound_is_left_out_once_it_is_not(self):
        history = [
            HumanMessage("go"),
            says("", call("server0_tool3")),
            ToolMessage("x", tool_call_id="c1"),
        ]
        request = deferring([MANY[0]], MANY, OPENAI, messages=history)

        assert "server0_tool3" not in in_namespaces(request)["server0_1"]
        assert deferring([MANY[3]], MANY, OPENAI, messages=history)[-1] is MANY[3]


class TestToolsTheSearchFound:
    FOUND = pytest.mark.parametrize(
        ("native", "message"),
        [
            (ANTHROPIC, found_by_anthropic("server0_tool3")),
            (ANTHROPIC, in_v1(found_by_anthropic("server0_tool3"), "anthropic")),
            (OPENAI, found_by_openai("server0_tool3", "server0_1")),
            (OPENAI, found_by_openai("server0_tool3", "server0_1", calls=False)),
            (OPENAI, in_v1(found_by_openai("server0_tool3", "server0_1"), "openai")),
        ],
        ids=["Anthropic", "Anthropic v1", "OpenAI", "OpenAI not called", "OpenAI v1"],
    )

    @FOUND
    def test_stay_deferred_when_they_are_selected(self, native, message):
        bound = [MANY[0], MANY[3]]
        request = deferring(bound, MANY, native, messages=[HumanMessage("go"), message])

        assert request == deferring([MANY[0]], MANY, native)

    @FOUND
    def test_are_bound_where_they_must_be(self, native, message):
        given = {"messages": [message], "required": ["server0_tool3"]}
        assert deferring([MANY[0], MANY[3]], MANY, native, **given)[-1] is MANY[3]

    @FOUND
    def test_are_bound_where_they_cannot_be_deferred(self, native, message):
        elsewhere = [MANY[0], MANY[3]]
        assert deferring(elsewhere, MANY[10:], native, messages=[message])[-2:] == elsewhere

    def test_by_another_provider_are_bound(self):
        history = [found_by_anthropic("server0_tool3")]
        assert deferring([MANY[3]], MANY, OPENAI, messages=history)[-1] is MANY[3]

        history = [found_by_openai("server0_tool3", "server0_1")]
        assert deferring([MANY[3]], MANY, ANTHROPIC, messages=history)[-1] is MANY[3]


def deferring_middleware(tools, provider="auto", **given):
    options = SelectionOptions(k=1)
    rag = ToolRAG(tools, embeddings=HashingEmbeddings(), options=options)
    return ToolRAGMiddleware(rag=rag, provider=provider, **given)


def recording(chat_model, script, **given):
    """The integration's own model, but for the sending: it records requests and plays a script."""

    class Recording(chat_model):
        script: list = Field(default_factory=list)
        requests: list = Field(default_factory=list)

        def _generate(self, messages, stop=None, run_manager=None, **options):
            payload = self._get_request_payload(messages, stop=stop, **options)
            self.requests.append(json.loads(json.dumps(payload, default=str)))
            answer = self.script[len(self.requests) - 1].model_copy(update={"id": None})
            return ChatResult(generations=[ChatGeneration(message=answer)])

    return Recording(api_key="x", script=script, **given)


def recording_claude(script):
    package = pytest.importorskip("langchain_anthropic")
    return recording(package.ChatAnthropic, script, model=CLAUDE)


def recording_gpt(script):
    package = pytest.importorskip("langchain_openai")
    return recording(package.ChatOpenAI, script, model=GPT, **RESPONDS)


class TestAnAgent:
    def test_calls_what_claude_found_and_keeps_the_prefix(self):
        model = recording_claude([found_by_anthropic("play_song"), says("Playing.")])
        agent = create_agent(model, middleware=[deferring_middleware(make_catalogue())])
        result = agent.invoke({"messages": [("user", "current weather in a city")]})
        first, second = ([*request["tools"]] for request in model.requests)

        assert result["messages"][-2].content == "play_song []"
        assert result["messages"][-1].text == "Playing."
        assert [tool["name"] for tool in first[-2:]] == [BM25["name"], "get_weather"]
        assert sum(tool.get("defer_loading", False) for tool in first) == 11
        assert second == first

    def test_calls_what_gpt_found_and_keeps_the_prefix(self):
        model = recording_gpt([found_by_openai("play_song", "music_1"), says("Playing.")])
        agent = create_agent(model, middleware=[deferring_middleware(make_catalogue())])
        result = agent.invoke({"messages": [("user", "current weather in a city")]})
        first, second = model.requests

        assert result["messages"][-2].content == "play_song []"
        assert first["tools"][-2:][0] == {"type": "tool_search"}
        assert in_namespaces(first["tools"])["music_1"] == ["play_song", "skip_to_next_track"]
        assert second["tools"] == first["tools"]
        replayed = [item for item in second["input"] if item["type"] == "function_call"]
        assert [item["namespace"] for item in replayed] == ["music_1"]

    def test_of_another_provider_gets_the_selection_alone(self):
        model = ScriptedModel()
        agent = create_agent(model, middleware=[deferring_middleware(make_catalogue())])
        agent.invoke({"messages": [("user", "current weather in a city")]})

        assert model.bound == [["get_weather"]]

    @pytest.mark.parametrize("mode", [True, "deferred"])
    def test_has_one_search_that_of_its_provider_where_there_is_one(self, mode):
        claude, other = recording_claude([says("Done.")]), ScriptedModel()
        for model in (claude, other):
            ours = deferring_middleware(make_catalogue(), search_tool=mode, search_prompt=True)
            agent = create_agent(model, middleware=[ours])
            agent.invoke({"messages": [("user", "current weather in a city")]})

        sent_names = [tool["name"] for tool in claude.requests[0]["tools"]]
        assert "search_tools" not in sent_names
        assert BM25["name"] in sent_names
        assert "system" not in claude.requests[0]
        assert other.bound[0][0] == "search_tools"
        assert "search_tools" in other.messages[0][0].text

    def test_never_defers_what_the_user_may_not_see(self):
        model = recording_claude([says("Done.")])
        ours = deferring_middleware(make_catalogue(), filter=lambda doc: doc.server != "music")
        agent = create_agent(model, middleware=[ours])
        agent.invoke({"messages": [("user", "current weather in a city")]})

        assert "play_song" not in str(model.requests[0])


def test_a_refusal_of_unselected_tools_does_not_go_with_a_providers_search():
    with pytest.raises(ValueError, match="unknown_tool='suggest'"):
        deferring_middleware(make_catalogue(), unknown_tool="suggest")
    with pytest.raises(ValueError, match="provider is 'anthropic'; wanted 'auto' or 'off'"):
        ToolRAGMiddleware(provider="anthropic")


@pytest.mark.skipif(
    not hasattr(middleware_module, "ProviderToolSearchMiddleware"),
    reason="this LangChain has no ProviderToolSearchMiddleware",
)
class TestBesideProviderToolSearchMiddleware:
    @pytest.mark.parametrize("place", ["before", "after"])
    def test_it_alone_defers_and_has_its_tools(self, place):
        other = middleware_module.ProviderToolSearchMiddleware(
            searchable_tools=["play_song", "send_email"]
        )
        model = recording_claude([says("Done.")])
        ours = deferring_middleware(make_catalogue())
        order = [other, ours] if place == "before" else [ours, other]
        agent = create_agent(model, middleware=order)
        agent.invoke({"messages": [("user", "current weather in a city")]})
        tools = model.requests[0]["tools"]

        assert {tool["name"]: tool.get("defer_loading", False) for tool in tools} == {
            "send_email": True,
            "play_song": True,
            "get_weather": False,
            BM25["name"]: False,
        }
        assert len(tools) == 4

    def test_its_claims_are_known(self):
        kind = middleware_module.ProviderToolSearchMiddleware
        claims = [kind(searchable_tools=["a"]), AgentMiddleware(), kind(searchable_tools=["b"])]

        assert claimed_by_provider_search(claims) == {"a", "b"}
        assert claimed_by_provider_search([kind()]) == frozenset()


def test_an_agent_without_that_middleware_has_no_claims(monkeypatch):
    assert claimed_by_provider_search([AgentMiddleware()]) is None
    monkeypatch.delattr(middleware_module, "ProviderToolSearchMiddleware", raising=False)
    assert claimed_by_provider_search([AgentMiddleware()]) is None
