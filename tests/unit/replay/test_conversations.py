import pytest
from fake_model import ScriptedModel, says
from fakes import NamedEmbeddings
from langchain.agents import create_agent
from langgraph.graph import START, MessagesState, StateGraph
from langsmith.utils import tracing_is_enabled
from search_agents import AGENTS, searches, toolrag, uses

from langchain_toolrag import SelectionOptions
from langchain_toolrag.evaluation.contender import BUILT_IN, Contender
from langchain_toolrag.replay.conversations import replay_threads
from langchain_toolrag.replay.moments import THEN, A, B


def names_of(replay, side):
    return [[tool.partition("/")[2] for tool in each.bound[side].tools] for each in replay.moments]


@pytest.mark.parametrize("kind", AGENTS)
def test_the_agents_own_options_bind_what_the_agent_bound(kind, saver, talk, options, two):
    model = talk(kind, saver)
    replay = replay_threads(saver, options(two))
    assert replay.compared == (THEN, A)
    assert len(replay.comparable) == 4
    assert replay.changed == []
    assert names_of(replay, A) == model.bound


@pytest.mark.parametrize("refresh", ["turn", "step"])
def test_so_they_do_whenever_they_search(refresh, saver, talk, options, tools):
    selecting = SelectionOptions(refresh=refresh)
    model = talk("node", saver, rag=toolrag(selecting, tools))
    replay = replay_threads(saver, options(Contender("same", options=selecting)))
    assert names_of(replay, A) == model.bound


def test_so_does_toolrags_algorithm(saver, talk, options, tools):
    classic = BUILT_IN["classic"]
    model = talk("node", saver, rag=toolrag(classic.options, tools))
    replay = replay_threads(saver, options(classic))
    assert names_of(replay, A) == model.bound


def test_what_the_model_searched_for_itself_is_bound_again(saver, talk, options, two):
    requests = {"please archive the badge": searches("merge a fleet")}
    model = talk("middleware", saver, requests=requests, search_tool=True)
    replay = replay_threads(saver, options(two))
    assert replay.changed == []
    assert [["search_tools", *names] for names in names_of(replay, A)] == model.bound
    assert replay.tally.unknown_calls == {"search_tools": 1}


def test_two_options_are_compared_with_each_other(saver, talk, options, two, six):
    talk("middleware", saver)
    replay = replay_threads(saver, options(two, six))
    assert (replay.compared, replay.options) == ((A, B), {A: "two", B: "six"})
    first = replay.moments[0]
    assert (len(first.bound[A].tools), len(first.bound[B].tools)) == (2, 6)
    assert len(first.gained(A, B)) == 4
    assert first.lost(A, B) == ()
    assert first.bound[B].tokens > first.bound[A].tokens == first.bound[THEN].tokens
    assert replay.summary(B).tools > replay.summary(A).tools == replay.summary(THEN).tools


def test_what_was_called_is_bound_or_not(saver, talk, options):
    talk("node", saver, requests={"please archive the badge": uses("merge_fleet")})
    replay = replay_threads(saver, options(Contender("one", options=SelectionOptions(k=1))))
    called, after = replay.moments
    assert [each.tools for each in called.called] == [("fleets_server/merge_fleet",)]
    assert replay.summary(A).recall == 0
    assert "fleets_server/merge_fleet" in after.bound[A].tools  # It stays, for it was called.


def test_each_option_goes_on_with_what_it_bound_itself(saver, talk, options, two, six):
    talk("node", saver)
    replay = replay_threads(saver, options(two, six))
    third = replay.moments[2]
    assert len(third.bound[B].tools) > 6
    assert set(replay.moments[0].bound[B].tools) < set(third.bound[B].tools)


def test_each_thread_begins_anew(saver, talk, options, two):
    talk("node", saver, "1")
    talk("node", saver, "2")
    replay = replay_threads(saver, options(two))
    assert (replay.threads, len(replay.moments)) == (2, 8)
    first, second = dict.fromkeys(each.place["thread"] for each in replay.moments)
    assert {first, second} == {"1", "2"}
    assert replay.moments[0].bound[A] == replay.moments[4].bound[A]


def test_the_runs_of_a_subgraph_begin_anew_as_they_did(saver, options, two, tools):
    script = [uses("archive_badge"), says("ok"), uses("close_fleet", start=9), says("ok")]
    model = ScriptedModel(script=script)
    graph = StateGraph(MessagesState)
    graph.add_node("agent", AGENTS["node"](model, toolrag(tools=tools)))
    graph.add_edge(START, "agent")
    outer = graph.compile(checkpointer=saver)
    for words in ("please archive the badge", "now close the fleet"):
        outer.invoke({"messages": [("user", words)]}, {"configurable": {"thread_id": "1"}})
    replay = replay_threads(saver, options(two))
    assert names_of(replay, A) == model.bound
    assert (len(replay.comparable), replay.changed) == (4, [])
    assert all(str(each.place["namespace"]).startswith("agent:") for each in replay.moments)


def test_only_threads_that_are_asked_for_are_replayed(saver, talk, options, two):
    talk("node", saver, "1")
    talk("node", saver, "2")
    told = []
    replay = replay_threads(saver, options(two), threads=["2"], progress=told.append)
    assert ({each.place["thread"] for each in replay.moments}, told) == ({"2"}, ["2"])


def test_without_a_selector_then_is_not_known_and_options_are_compared_all_the_same(
    saver, options, two, six
):
    agent = create_agent(ScriptedModel(script=[says("ok")]), [], checkpointer=saver)
    agent.invoke(
        {"messages": [("user", "please archive the badge")]}, {"configurable": {"thread_id": "1"}}
    )
    replay = replay_threads(saver, options(two, six))
    assert replay.summary(THEN).moments == 0
    assert len(replay.changed) == 1
    alone = replay_threads(saver, options(two))
    assert (alone.comparable, len(alone.moments)) == ([], 1)


def test_threads_without_an_answer_are_counted(saver, options, two):
    graph = StateGraph(MessagesState)
    graph.add_node("agent", lambda state: {})
    graph.add_edge(START, "agent")
    graph.compile(checkpointer=saver).invoke(
        {"messages": [("user", "hello")]}, {"configurable": {"thread_id": "1"}}
    )
    replay = replay_threads(saver, options(two))
    assert replay.tally.left_out == {"threads without an answer of a model": 1}
    assert (replay.moments, replay.changed) == ((), [])


def test_a_thread_that_cannot_be_read_does_not_stop_the_others(
    saver, talk, options, two, monkeypatch
):
    talk("node", saver, "bad")
    talk("node", saver, "good")
    whole = saver.list

    def torn(config, **given):
        if config["configurable"]["thread_id"] == "bad":
            raise KeyError("lost")
        return whole(config, **given)

    monkeypatch.setattr(saver, "list", torn)
    replay = replay_threads(saver, options(two), threads=["bad", "good"])
    assert replay.tally.unreadable == {"bad": "KeyError: 'lost'"}
    assert len(replay.moments) == 4


def test_tools_that_are_gone_since_are_counted(saver, talk, options, two, tools):
    talk("node", saver)
    left = [tool for tool in tools if tool.name != "archive_badge"]
    replay = replay_threads(saver, options(two, tools=left))
    assert replay.tally.gone["badges_server/archive_badge"] == 4
    assert replay.tally.unknown_calls == {"archive_badge": 1}


@pytest.mark.parametrize("name", ["semantic", "text"])
def test_rankings_by_meaning_or_words_alone_are_asked_for_the_last_turn(name, saver, talk, options):
    talk("node", saver)
    replay = replay_threads(saver, options(BUILT_IN[name]))
    bound = names_of(replay, A)
    assert bound[0][0] == "archive_badge"
    assert bound[2][0] == "close_fleet"


def test_options_that_index_the_same_embed_tools_and_requests_once(saver, talk, options, two, six):
    talk("node", saver)
    model = NamedEmbeddings()
    made = options(two, six, model=model)
    assert made[A].rag.tool_index is made[B].rag.tool_index
    tools = list(model.texts)
    replay_threads(saver, made)
    assert model.texts == tools
    assert len(model.queries) == len(set(model.queries))


def test_nothing_is_traced_a_second_time(saver, talk, options, two, monkeypatch):
    talk("node", saver)
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    made, seen = options(two), []
    select = made[A].rag.select

    def watched(*given, **named):
        seen.append(tracing_is_enabled())
        return select(*given, **named)

    monkeypatch.setattr(made[A].rag, "select", watched)
    replay_threads(saver, made)
    assert seen == [False] * 4
