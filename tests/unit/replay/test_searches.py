import numpy as np
import pytest
from fakes import NamedEmbeddings, make_tool

from langchain_toolrag import SelectionOptions, ToolRAG
from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.evaluation.contender import BUILT_IN, Contender
from langchain_toolrag.index.adapter import Adapter, write_adapter
from langchain_toolrag.replay.moments import THEN, A, B, Called
from langchain_toolrag.replay.searches import CALLERS_OWN, NO_REQUEST, UNREADABLE, replay_searches
from langchain_toolrag.usage.log import UsageLog

REQUESTS = (
    "please archive the badge",
    "the fleet is to be closed, so close it",
    "find me a badge that somebody lost in the old harbour last week",
)


@pytest.fixture
def usage(tmp_path):
    return tmp_path / "usage"


@pytest.fixture
def logged(usage, tools, two):
    """Ask a ToolRAG that logs: selections of requests, and searches of the model's own."""

    def ask(*, log_text=True, requests=REQUESTS, found=(), options=two.options, calls=()):
        with UsageLog(usage, log_text=log_text) as log:
            rag = ToolRAG(tools, embeddings=NamedEmbeddings(), options=options, usage_log=log)
            bound = [rag.select(request) for request in requests]
            shown = [rag.find(query, **given) for query, given in found]
            for number, (tool, outcome) in enumerate(calls):
                log.call(
                    call_id=f"c{number}",
                    tool=tool,
                    outcome=outcome,
                    search_id=bound[number].search_id,
                )
        return bound, shown

    return ask


def write_heads(path, seed):
    dice, tensors, dim = np.random.default_rng(seed), {}, 256
    for side in ("request", "tool"):
        tensors[f"{side}.first.weight"] = dice.normal(size=(4, dim))
        tensors[f"{side}.first.bias"] = dice.normal(size=4)
        tensors[f"{side}.second.weight"] = dice.normal(size=(dim, 4))
        tensors[f"{side}.second.bias"] = dice.normal(size=dim)
    write_adapter(Adapter("heads", "NamedEmbeddings(hashing-1)", 1.0, tensors, {}), path)


def tools_of(replay, side):
    return [list(each.bound[side].tools) for each in replay.moments]


def test_the_same_options_find_what_was_found_where_the_log_has_text(usage, logged, options, two):
    queries = [("badge", {}), ("select:close_fleet,copy_badge", {}), ("sort", {"max_results": 8})]
    bound, shown = logged(found=queries)
    replay = replay_searches(usage, options(two))
    then = [each.ids for each in bound] + [[hit.id for hit in each.hits] for each in shown]
    assert tools_of(replay, THEN) == tools_of(replay, A) == then
    assert (replay.compared, replay.changed) == ((THEN, A), [])
    assert [each.asked for each in replay.moments] == [*REQUESTS, *(query for query, _ in queries)]
    assert [each.bound[A].tokens for each in replay.moments[:3]] == [each.tokens for each in bound]
    assert replay.tally.by_meaning == 0


def test_other_options_find_more_or_less_at_another_cost(usage, logged, options, two, six):
    logged()
    replay = replay_searches(usage, options(two, six))
    assert (replay.compared, len(replay.changed)) == ((A, B), 3)
    assert [len(each.gained(A, B)) for each in replay.moments] == [4, 4, 4]
    assert all(each.lost(A, B) == () for each in replay.moments)
    assert replay.summary(B).tokens > replay.summary(A).tokens == replay.summary(THEN).tokens


def test_without_text_the_vectors_are_ranked_by_meaning_alone(usage, logged, options, tools, two):
    logged(log_text=False)
    replay = replay_searches(usage, options(two))
    assert (replay.tally.by_meaning, len(replay.moments)) == (3, 3)
    assert [each.asked for each in replay.moments] == ["", "", ""]
    everything = SelectionOptions(similarity_threshold=-1)
    rag = ToolRAG(tools, embeddings=NamedEmbeddings(), options=everything)
    wanted = [[hit.id for hit in rag.semantic_search(request, k=2)] for request in REQUESTS]
    assert tools_of(replay, A) == wanted


def test_a_request_without_text_is_never_taken_for_small_talk(usage, logged, options, two):
    logged(log_text=False, requests=["kthx zzz"], found=[("kthx zzz", {})])
    replay = replay_searches(usage, options(two))
    selected, found = tools_of(replay, A)
    assert len(selected) == 2
    assert found


def test_by_meaning_alone_all_that_rank_by_meaning_can_be_replayed(usage, logged, options):
    logged(log_text=False)
    semantic = replay_searches(usage, options(BUILT_IN["semantic"], BUILT_IN["classic"]))
    assert (semantic.tally.by_meaning, len(semantic.moments)) == (3, 3)
    assert all(each.bound[B].tools for each in semantic.moments)
    text = replay_searches(usage, options(BUILT_IN["text"]))
    assert text.tally.left_out == {NO_REQUEST: 3}
    assert text.moments == ()


def test_a_search_that_one_of_the_options_cannot_answer_is_left_out_of_both(usage, logged, options):
    logged(log_text=False)
    logged(log_text=True, requests=["copy the badge"])
    replay = replay_searches(usage, options(BUILT_IN["default"], BUILT_IN["text"]))
    assert [each.asked for each in replay.moments] == ["copy the badge"]
    assert (replay.tally.left_out, replay.tally.by_meaning) == ({NO_REQUEST: 3}, 0)


def test_vectors_of_another_model_are_no_use(usage, logged, options, two):
    logged(log_text=False)

    class Other(NamedEmbeddings):
        model = "hashing-2"

    replay = replay_searches(usage, options(two, model=Other()))
    assert replay.tally.left_out == {NO_REQUEST: 3}


def test_other_weights_of_the_texts_and_heads_rank_the_vectors_otherwise(
    usage, logged, options, tmp_path, two
):
    logged(log_text=False)
    path = tmp_path / "heads.safetensors"
    write_heads(path, seed=3)
    moved = Contender("moved", options=two.options, heads=str(path))
    replay = replay_searches(usage, options(two, moved))
    assert replay.tally.by_meaning == 3
    assert replay.changed
    assert {path for path in tmp_path.iterdir()} == {usage, path}


def test_heads_that_are_replaced_meanwhile_are_those_of_no_search(
    usage, logged, options, tmp_path, two
):
    """Searches with text and without go by the same heads."""
    logged(log_text=False)
    path = tmp_path / "heads.safetensors"
    write_heads(path, seed=3)
    moved = Contender("moved", options=two.options, heads=str(path))
    sides = options(moved)
    write_heads(path, seed=4)
    by_meaning = sides[A].by_meaning()
    assert by_meaning.binder.rag.heads_for() is sides[A].rag.heads_for()


def test_calls_are_tied_to_their_searches(usage, logged, options, two):
    called = [("badges_server/archive_badge", "ok"), ("fleets_server/close_fleet", "tool_error")]
    logged(calls=called)
    replay = replay_searches(usage, options(Contender("none", options=SelectionOptions(k=1)), two))
    first, second, third = replay.moments
    assert first.called == (Called(("badges_server/archive_badge",), "ok"),)
    assert second.called == (Called(("fleets_server/close_fleet",), "tool_error"),)
    assert third.called == ()
    assert replay.summary(THEN).called == 2
    assert replay.summary(THEN).recall == 1


def test_what_cannot_be_replayed_is_counted(usage, logged, options, two):
    logged()
    with UsageLog(usage, log_text=True) as log:
        log.search(search_id="r", kind="rank", mode="semantic", query="mine", retrieved=[])
        log.search(search_id="s", kind="search", mode="semantic", query="", retrieved=[])
    (file,) = usage.glob("usage-*.jsonl")
    with file.open("a") as lines:
        lines.write('{"v":1,"ty\n{"v":9,"type":"search"}\n[]\n')
    replay = replay_searches(usage, options(two))
    assert replay.tally.left_out == {CALLERS_OWN: 1, NO_REQUEST: 1, UNREADABLE: 3}
    assert len(replay.moments) == 3


def test_tools_that_are_gone_since_are_counted_and_not_lost(usage, logged, options, tools, two):
    logged(requests=REQUESTS[:1])
    left = [tool for tool in tools if tool.name != "archive_badge"]
    replay = replay_searches(usage, options(two, tools=left))
    assert replay.tally.gone == {"badges_server/archive_badge": 1}
    assert "badges_server/archive_badge" not in replay.moments[0].lost(THEN, A)


def test_nothing_is_written_to_the_log(usage, logged, options, two):
    logged()
    before = {path: path.read_bytes() for path in usage.rglob("*") if path.is_file()}
    replay_searches(usage, options(two))
    assert {path: path.read_bytes() for path in usage.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("asked", [{"found": [("copy", {})], "requests": ()}, {}])
def test_a_model_that_fails_is_an_error_and_not_a_search_by_words(
    asked, usage, logged, options, two, monkeypatch
):
    logged(**asked)
    made = options(two)

    def fail(text):
        raise ConnectionError("the model server is down")

    monkeypatch.setattr(made[A].rag.tool_index.embedder.embeddings, "embed_query", fail)
    with pytest.raises(EmbeddingError, match="the model server is down"):
        replay_searches(usage, made)


def test_a_log_that_is_not_there_has_no_searches(usage, options, two):
    assert replay_searches(usage, options(two)).moments == ()


def test_it_is_told_how_far_it_is(usage, logged, options, two):
    logged()
    told = []
    replay_searches(usage, options(two), lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_tools_bound_under_their_ids_are_replayed_so(usage, options, two):
    pair = [make_tool("find", "Find it.", server="a"), make_tool("find", "Find it.", server="b")]
    with UsageLog(usage) as log:
        rag = ToolRAG(pair, embeddings=NamedEmbeddings(), on_duplicate="id", usage_log=log)
        rag.select("find it")
    made = options(two, tools=pair, on_duplicate="id")
    replay = replay_searches(usage, made)
    names = {entry.document.bound_name for entry in made[A].catalogue}
    assert names == {"a__find", "b__find"}
    assert sorted(tools_of(replay, A)[0]) == ["a/find", "b/find"]
