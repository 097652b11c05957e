"""Where an agent's selections are in its tree of runs, whatever it was built with."""

import sys

import pytest
from fake_model import ScriptedModel, call, says
from langchain.agents import create_agent
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler
from langgraph.checkpoint.memory import InMemorySaver

from langchain_toolrag import SelectionOptions, ToolRAG, ToolRAGMiddleware
from langchain_toolrag.tracing.tracing import Tracing

WEATHER = "current weather in a city"
TWO_STEPS = (says("", call("get_weather", city="delhi")), says("Warm."))
THREE = SelectionOptions(k=3)
PARENTS = {
    "node in a graph": "tool_selector",
    "react agent v1": "tool_selector",
    "react agent v2": "tool_selector",
    "middleware over the agent's tools": "model",
    "middleware with tools": "model",
    "middleware with a ToolRAG": "model",
}


@pytest.fixture
def run_with_middleware(run):
    """Both ways; before Python 3.11 a coroutine that LangGraph calls has lost its run's config."""
    if run.asynchronous and sys.version_info < (3, 11):
        pytest.skip("LangGraph hands an asynchronous middleware no config")
    return run


@pytest.fixture
def collector():
    return RunCollectorCallbackHandler()


def paths(run, above=()):
    """Yield every run of a tree with the names of those above it."""
    yield above, run
    for child in run.child_runs:
        yield from paths(child, (*above, run.name))


def named(collector, name):
    """The runs of a name, in the order they began, each with the names above it."""
    return [
        (above, run)
        for root in collector.traced_runs
        for above, run in paths(root)
        if run.name == name
    ]


def metadata(run, name):
    return run.extra["metadata"][f"toolrag.{name}"]


async def test_each_step_has_its_selection_in_the_node_that_made_it(
    front_end, request, tools, run, collector, thread
):
    parent = PARENTS[request.node.callspec.params["front_end"]]
    if parent == "model":
        request.getfixturevalue("run_with_middleware")
    model = ScriptedModel(script=TWO_STEPS)
    agent = front_end(model, tools, options=THREE, checkpointer=InMemorySaver())
    await run.ask(agent, WEATHER, {**thread, "callbacks": [collector]})
    found = named(collector, "toolrag.select")
    assert [above[-1] for above, _ in found] == [parent, parent]
    assert len(collector.traced_runs) == 1
    first, second = (each for _, each in found)
    assert first.inputs == {"query": WEATHER}
    assert [document.metadata["tool_name"] for document in first.outputs["documents"]] == (
        model.bound[0]
    )
    assert (metadata(first, "fresh"), metadata(second, "fresh")) == (True, False)
    assert metadata(first, "search_id") == metadata(second, "search_id")


async def test_the_models_own_search_is_under_its_tools_run(agent_of, run, collector):
    searched = says("", call("search_tools", query="cancel a lease"))
    agent = agent_of(ScriptedModel(script=[searched, says("Done.")]), search_tool=True)
    await run.ask(agent, "hello", {"callbacks": [collector]})
    ((above, search),) = named(collector, "toolrag.search")
    assert above[-1] == "search_tools"
    assert search.inputs == {"query": "cancel a lease"}
    assert metadata(search, "found") == len(search.outputs["documents"]) > 0


@pytest.mark.skipif(sys.version_info < (3, 11), reason="LangGraph hands it no config")
@pytest.mark.parametrize("payloads", [True, False])
async def test_an_agents_stream_of_events_has_its_selections_and_searches(
    tools, embeddings, payloads
):
    rag = ToolRAG(tools, embeddings=embeddings, tracing=Tracing(payloads=payloads))
    searched = says("", call("search_tools", query="cancel a lease"))
    agent = create_agent(
        ScriptedModel(script=[searched, says("Done.")]),
        tools,
        middleware=[ToolRAGMiddleware(rag=rag, search_tool=True)],
    )
    asked = {"messages": [("user", WEATHER)]}
    events = [
        event
        async for event in agent.astream_events(asked, version="v2")
        if event["name"].startswith("toolrag.")
    ]
    assert [(event["event"], event["name"]) for event in events] == [
        (f"on_retriever_{what}", f"toolrag.{of}")
        for of in ("select", "search", "select")
        for what in ("start", "end")
    ]
    assert {event["data"]["input"]["query"] for event in events} == (
        {WEATHER, "cancel a lease"} if payloads else {""}
    )
    told = {"bound", "found"}
    assert all(
        any(f"toolrag.{name}" in event["metadata"] for name in told) and event["data"]["output"]
        for event in events[1::2]
    )
    assert (WEATHER in repr(events)) == payloads


async def test_payloads_are_left_out_of_an_agents_selections(
    tools, embeddings, run_with_middleware, collector
):
    rag = ToolRAG(tools, embeddings=embeddings, tracing=Tracing(payloads=False))
    agent = create_agent(ScriptedModel(), tools, middleware=[ToolRAGMiddleware(rag=rag)])
    await run_with_middleware.ask(agent, WEATHER, {"callbacks": [collector]})
    ((_, selected),) = named(collector, "toolrag.select")
    assert selected.inputs == {"query": ""}
    assert {document.page_content for document in selected.outputs["documents"]} == {""}


async def test_the_conversation_is_on_the_span(tools, embeddings, run_with_middleware, thread):
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    rag = ToolRAG(tools, embeddings=embeddings, tracing=Tracing(tracer_provider=provider))
    model = ScriptedModel(script=TWO_STEPS)
    agent = create_agent(model, tools, middleware=[ToolRAGMiddleware(rag=rag)])
    with provider.get_tracer("a service").start_as_current_span("request"):
        await run_with_middleware.ask(agent, WEATHER, thread)
    *selections, request = exporter.get_finished_spans()
    assert [span.name for span in selections] == ["retrieval", "retrieval"]
    assert {span.attributes["gen_ai.conversation.id"] for span in selections} == {"1"}
    assert {span.parent.span_id for span in selections} == {request.context.span_id}
    provider.shutdown()
