import dataclasses
from pathlib import Path

import numpy as np
import pytest
from fakes import DIM, BrokenEmbeddings, HashingEmbeddings

from langchain_toolrag import SelectionOptions, ToolRAG
from langchain_toolrag.errors import AdapterError, EmbeddingError, SourceError, UnknownToolError
from langchain_toolrag.evaluation.contender import Contender, read_contender
from langchain_toolrag.evaluation.evaluate import Model, evaluate, models_for
from langchain_toolrag.index.adapter import Adapter, write_adapter
from langchain_toolrag.index.embedding import MiniLMEmbeddings, NoEmbeddings
from langchain_toolrag.index.heads import Heads, read_heads

NAMES = ["default", "classic", "semantic", "text"]


def answers(labelled, name, embeddings=None):
    contender = name if isinstance(name, Contender) else read_contender(name)
    result = evaluate(labelled, contender, Model(embeddings or HashingEmbeddings()))
    return [each.answer for each in result.queries]


@pytest.mark.parametrize("name", NAMES)
def test_every_contender_answers_every_query_in_ids(support, name):
    result = evaluate(support, read_contender(name), Model(HashingEmbeddings()))
    ids = {document.id for document in support.documents}
    assert (result.name, result.contender, result.tools) == ("support", name, 8)
    assert [each.query.id for each in result.queries] == ["s1", "s2", "s3", "s4"]
    for each in result.queries:
        assert each.answer.milliseconds > 0
        assert {*each.answer.ranking, *each.answer.bound} <= ids
        assert len(set(each.answer.ranking)) == len(each.answer.ranking) <= 10
    assert 0 < result.measures["recall@10"] <= 1


def test_a_single_request_is_ranked_by_search_and_bound_by_select(support):
    rag = ToolRAG(support.tools, embeddings=HashingEmbeddings(), on_duplicate="prefix")
    for query, answer in zip(support.queries, answers(support, "default"), strict=True):
        assert answer.ranking == tuple(hit.id for hit in rag.search(query.text, k=10))
        assert answer.bound == tuple(rag.select(query.text).ids)


def test_a_conversation_is_ranked_and_bound_by_select(travel):
    rag = ToolRAG(travel.tools, embeddings=HashingEmbeddings())
    follow_up = travel.queries[1]
    answer = answers(travel, "default")[1]
    assert "hotels/FindHotel" in answer.bound  # Its call stands in the history.
    assert answer.bound == tuple(rag.select(follow_up.messages).ids)
    assert len(answer.ranking) == 4


def test_a_small_catalogue_is_ranked_in_a_conversation_and_not_taken_as_it_comes(travel):
    turned = dataclasses.replace(travel, tools=travel.tools[::-1])
    rankings = [answer.ranking for answer in answers(travel, "default")]
    assert rankings == [answer.ranking for answer in answers(turned, "default")]
    assert "rail/FindTrains" in rankings[2][:2]


def test_max_tools_caps_what_is_bound_and_not_the_ranking(travel):
    contender = Contender("few", options=SelectionOptions(k=2, max_tools=2))
    answer = answers(travel, contender)[2]
    assert (len(answer.ranking), len(answer.bound)) == (4, 2)


def test_toolrags_algorithm_is_ranked_in_the_order_it_binds(support, travel):
    for labelled in (support, travel):
        for answer in answers(labelled, "classic"):
            assert answer.ranking == answer.bound[:10]


def test_meaning_and_words_alone_look_at_the_last_turn_alone(travel):
    bare = dataclasses.replace(
        travel, queries=tuple(dataclasses.replace(each, history=()) for each in travel.queries)
    )
    for name in ("semantic", "text"):
        seen = [(answer.ranking, answer.bound) for answer in answers(travel, name)]
        assert seen == [(answer.ranking, answer.bound) for answer in answers(bare, name)]


def test_words_alone_need_no_model(support):
    assert answers(support, "text", BrokenEmbeddings())[0].ranking


@pytest.mark.parametrize("name", ["default", "text"])
def test_without_a_model_requests_and_conversations_are_ranked_by_words(support, travel, name):
    assert answers(support, name, NoEmbeddings())[0].ranking[0] == "tracker/create_issue"
    assert "rail/FindTrains" in answers(travel, name, NoEmbeddings())[2].ranking[:2]


@pytest.mark.parametrize("name", ["default", "classic", "semantic"])
def test_a_model_that_fails_is_an_error_and_no_figures(support, name):
    with pytest.raises(EmbeddingError, match="the model server is down"):
        evaluate(support, read_contender(name), Model(BrokenEmbeddings()))


def test_a_model_that_fails_on_the_way_is_an_error_and_no_figures(support):
    embeddings = BrokenEmbeddings(broken=False)

    def fail(doing, done, total):
        embeddings.broken = "embedding" in doing

    with pytest.raises(EmbeddingError, match="the model server is down"):
        evaluate(support, read_contender("default"), Model(embeddings), fail)


def test_progress_is_told_for_tools_and_queries(support):
    told = []
    evaluate(
        support,
        read_contender("default"),
        Model(HashingEmbeddings()),
        lambda *step: told.append(step),
    )
    assert told == [
        ("support: embedding", 8, 8),
        *(("support: default", done, 4) for done in (1, 2, 3, 4)),
    ]


def test_always_include_must_name_a_tool_of_the_set(support):
    contender = Contender("mine", options=SelectionOptions(always_include=("fly",)))
    with pytest.raises(UnknownToolError, match="always_include names 'fly'"):
        evaluate(support, contender, Model(HashingEmbeddings()))


def test_a_needed_tool_that_cannot_be_bound_is_an_error(support):
    broken = {**support.tools[0], "parameters": {"$ref": "#/nowhere"}}
    labelled = dataclasses.replace(support, tools=(broken, *support.tools[1:]))
    with pytest.raises(SourceError, match="the tool 'tracker/create_issue', which a query needs"):
        evaluate(labelled, read_contender("text"), Model(NoEmbeddings()))


def test_the_means_are_over_all_queries_and_the_time_is_the_median(support):
    result = evaluate(support, read_contender("default"), Model(HashingEmbeddings()))
    values = [each.measures["recall@5"] for each in result.queries]
    times = sorted(each.answer.milliseconds for each in result.queries)
    assert result.measures["recall@5"] == pytest.approx(sum(values) / 4)
    assert result.measures["milliseconds_p50"] == pytest.approx((times[1] + times[2]) / 2)


def test_a_set_without_siblings_has_no_rate_of_wrong_ones(travel, support):
    of_travel = evaluate(travel, read_contender("text"), Model(NoEmbeddings()))
    of_support = evaluate(support, read_contender("text"), Model(NoEmbeddings()))
    assert of_travel.measures["wrong_sibling"] is None
    assert of_support.measures["wrong_sibling"] is not None


def test_queries_are_embedded_in_one_batch_and_a_text_once_in_two_runs(
    support, tmp_path, monkeypatch
):
    encoded, batches = [], []

    def encode(self, texts):
        encoded.extend(texts)
        batches.append(set(texts))
        return np.array(HashingEmbeddings().embed_documents(texts))

    monkeypatch.setattr(MiniLMEmbeddings, "_encode", encode)
    contenders = [read_contender("default")]
    evaluate(support, contenders[0], models_for(contenders, tmp_path)["default"])
    assert any({query.text for query in support.queries} <= batch for batch in batches)
    first = list(encoded)
    assert len(first) == len(set(first)) > len(support.queries)
    evaluate(support, contenders[0], models_for(contenders, tmp_path)["default"])
    assert encoded == first


def test_toolrags_algorithm_goes_without_the_adapter_and_the_others_share_a_model(tmp_path):
    models = models_for([read_contender(name) for name in NAMES], tmp_path)
    assert models["default"] is models["semantic"]
    assert models["classic"].embeddings.adapter is None
    assert models["default"].embeddings.adapter is not None


def adapter_of(base="HashingEmbeddings", *, spread=1.0, dim=DIM):
    """Heads that move vectors so far that a ranking by meaning is another."""
    dice = np.random.default_rng(0)
    shapes = {"first.weight": (4, dim), "first.bias": (4,), "second.weight": (dim, 4)}
    shapes["second.bias"] = (dim,)
    tensors = {
        f"{side}.{name}": dice.normal(size=shape) * (spread if "second" in name else 1)
        for side in ("request", "tool")
        for name, shape in shapes.items()
    }
    return Adapter("heads", base, 1.0, tensors, {})


@pytest.fixture
def headed(tmp_path):
    """A contender that names a file of heads."""
    write_adapter(adapter_of(), tmp_path / "heads.safetensors")
    return Contender("headed", heads=str(tmp_path / "heads.safetensors"))


class TestHeads:
    @pytest.mark.parametrize("name", ["default", "classic", "semantic"])
    def test_heads_that_learned_nothing_change_no_answer(self, support, travel, name):
        contender = read_contender(name)
        model = Model(HashingEmbeddings(), heads=Heads(adapter_of(spread=0)))
        for labelled in (support, travel):
            result = evaluate(labelled, contender, model)
            plain = answers(labelled, name)
            assert [each.answer.ranking for each in result.queries] == [a.ranking for a in plain]
            assert [each.answer.bound for each in result.queries] == [a.bound for a in plain]

    def test_heads_that_have_no_file_yet_rank_and_bind(self, support, travel):
        heads = Heads(adapter_of())
        for labelled in (support, travel):
            result = evaluate(
                labelled, read_contender("default"), Model(HashingEmbeddings(), heads=heads)
            )
            rag = ToolRAG(
                labelled.tools,
                embeddings=HashingEmbeddings(),
                heads=heads,
                on_duplicate="prefix",
            )
            for query, each in zip(labelled.queries, result.queries, strict=True):
                assert each.answer.bound == tuple(rag.select(query.messages).ids)
            assert [each.answer.ranking for each in result.queries] != [
                answer.ranking for answer in answers(labelled, "default")
            ]

    def test_a_contenders_own_heads_are_read_wherever_it_is_evaluated(self, support, headed):
        heads = read_heads(Path(headed.heads))
        wanted = evaluate(
            support, read_contender("default"), Model(HashingEmbeddings(), heads=heads)
        )
        found = answers(support, headed)
        assert [a.ranking for a in found] == [each.answer.ranking for each in wanted.queries]

    def test_words_alone_are_not_moved(self, support):
        model = Model(HashingEmbeddings(), heads=Heads(adapter_of(base="another model")))
        result = evaluate(support, read_contender("text"), model)
        wanted = [answer.ranking for answer in answers(support, "text")]
        assert [each.answer.ranking for each in result.queries] == wanted

    def test_a_model_and_what_it_embedded_are_shared_with_and_without_heads(self, headed):
        model = Model(HashingEmbeddings())
        assert model.for_contender(read_contender("default")) is model
        moved = model.for_contender(headed)
        assert (moved.embeddings, moved.known) == (model.embeddings, model.known)
        assert moved.heads.digest == read_heads(Path(headed.heads)).digest

    def test_contenders_with_heads_share_the_default_model(self, tmp_path):
        default = models_for([read_contender("default")], tmp_path)["default"]
        adapter = adapter_of(f"MiniLMEmbeddings({default.embeddings.model} + 0)", dim=384)
        write_adapter(adapter, tmp_path / "heads.safetensors")
        contenders = [
            read_contender("default"),
            Contender("headed", heads=str(tmp_path / "heads.safetensors")),
        ]
        with pytest.raises(AdapterError, match=r"wanted heads of MiniLMEmbeddings\("):
            models_for(contenders, tmp_path)
        name = ToolRAG(embeddings=default.embeddings).tool_index.model
        write_adapter(adapter_of(name, dim=384), tmp_path / "heads.safetensors")
        models = models_for(contenders, tmp_path)
        assert models["headed"].embeddings is models["default"].embeddings
        assert models["default"].heads is None

    @pytest.mark.parametrize(
        "use",
        [
            lambda contender, model, labelled: evaluate(labelled, contender, model),
            lambda contender, model, labelled: model.for_contender(contender),
        ],
        ids=["evaluated", "read"],
    )
    def test_heads_of_another_model_are_an_error_and_no_figures(self, support, tmp_path, use):
        write_adapter(adapter_of("another model"), tmp_path / "a.safetensors")
        contender = Contender("x", heads=f"{tmp_path}/a.safetensors")
        with pytest.raises(AdapterError, match="heads of another model; wanted heads of Hashing"):
            use(contender, Model(HashingEmbeddings()), support)

    def test_heads_of_another_model_that_have_no_file_are_an_error_too(self, support):
        model = Model(HashingEmbeddings(), heads=Heads(adapter_of("another model")))
        with pytest.raises(AdapterError, match="another model"):
            evaluate(support, read_contender("default"), model)
