import json
from dataclasses import replace

import numpy as np
import pytest
from documents import make_document

from langchain_toolrag import ToolRAG
from langchain_toolrag.errors import EmbeddingError, SourceError
from langchain_toolrag.evaluation.labelled import LabelledQuery, LabelledSet
from langchain_toolrag.index.embedding import NoEmbeddings
from langchain_toolrag.learning.keeping import own_pairs
from langchain_toolrag.learning.learn import LearnOptions, learn

FAST = LearnOptions(steps=80, rate=5e-3, hidden=64, batch=64)


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def labelled(name, world, *, misleading):
    """Requests that ask for the tool they lie near to, or for the one that the log says."""
    meant = range(0, 24, 2)
    tools = tuple({"name": f"tool_{number}", "description": ""} for number in range(24))
    return LabelledSet(
        name,
        "made up",
        tools,
        world.rag.tool_index.documents,
        tuple(
            LabelledQuery(
                str(number),
                f"topic {chr(ord('a') + number)} wording 160",
                (f"tool_{number if misleading else (number + 1) % 24}",),
                {},
            )
            for number in meant
        ),
    )


class TestLearning:
    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_what_users_call_is_found_for_words_that_nobody_used(self, make_world, seed):
        world = make_world(seed)
        world.log(300)
        learned = learn(world.rag, world.usage, options=replace(FAST, seed=seed))
        report = learned.report
        assert report.refusal == ""
        assert report.candidate > report.base + 0.2
        assert report.candidate > report.control + 0.1
        assert world.recall(learned.adapter) > world.recall() + 0.3

    def test_tools_may_come_and_go_in_a_shared_index_meanwhile(self, make_world, monkeypatch):
        world = make_world(0)
        world.log(60)
        index, embed = world.rag.tool_index, world.rag.tool_index.embed

        def embed_while_others_change_it(progress=None):
            embed(progress)
            index.remove(["tool_23"])
            index.add([make_document("late", "Not embedded yet.")])

        monkeypatch.setattr(index, "embed", embed_while_others_change_it)
        assert learn(world.rag, world.usage, options=replace(FAST, steps=2)).report.tools == 23

    @pytest.mark.parametrize("seed", [0, 1, 2, 3, 4])
    def test_calls_of_any_tools_shown_teach_nothing(self, make_world, seed):
        world = make_world(seed)
        world.log(300, world.at_random)
        learned = learn(world.rag, world.usage, options=replace(FAST, seed=seed))
        assert learned.adapter is None
        assert learned.report.refusal

    @pytest.mark.parametrize("seed", [0, 1, 2, 3, 4])
    def test_what_is_called_often_whatever_was_asked_teaches_nothing(self, make_world, seed):
        world = make_world(seed)
        popular = [1 / (1 + place) for place in range(24)]
        world.dice.shuffle(popular)
        chances = world.dice.choices
        world.log(300, lambda _, shown: chances(shown, [popular[tool] for tool in shown])[0])
        learned = learn(world.rag, world.usage, options=replace(FAST, seed=seed))
        assert learned.adapter is None

    def test_where_few_tools_are_ever_called_popularity_is_no_reason_to_refuse(self, world):
        draw = world.dice.randrange
        world.dice.randrange = lambda end: 5 if end == 24 else draw(end)
        world.log(100)
        report = learn(world.rag, world.usage, options=FAST).report
        assert report.popularity_course is report.over_popularity is None
        assert report.refusal == ""
        assert report.as_json()["popularity_course"] is None

    def test_the_same_seed_learns_the_same(self, world):
        world.log(60)
        first, second = (learn(world.rag, world.usage, options=FAST) for _ in range(2))
        assert first.report == second.report
        for name, tensor in first.adapter.tensors.items():
            assert (tensor == second.adapter.tensors[name]).all()

    def test_nothing_is_written(self, world):
        world.log(40)
        before = files(world.usage)
        learn(world.rag, world.usage, options=FAST)
        assert files(world.usage) == before

    def test_the_heads_are_for_the_model_that_was_searched_with(self, world):
        world.log(100)
        adapter = learn(world.rag, world.usage, options=FAST).adapter
        assert (adapter.kind, adapter.base) == ("heads", world.rag.tool_index.model)
        assert adapter.card["learned from"] == {"searches": 100, "held out": 20, "tools": 24}

    def test_progress_is_told_of_every_training(self, world):
        world.log(40)
        told = []
        learn(world.rag, world.usage, options=FAST, progress=lambda *how: told.append(how))
        assert ("learning", 80, 80) in told
        assert ("learning from guesses", 80, 80) in told
        assert ("learning what is popular", 80, 80) in told

    def test_where_the_base_model_does_best_it_wins(self, world):
        world.log(100, lambda meant, shown: shown[0])
        learned = learn(world.rag, world.usage, options=FAST)
        assert (learned.adapter, learned.report.scale) == (None, 0.0)
        assert learned.report.base == learned.report.candidate == 1.0
        assert learned.report.refusal == "the base model does best on the newest 20 searches"

    def test_the_report_can_be_written_as_json(self, world):
        world.log(100)
        written = json.loads(
            json.dumps(learn(world.rag, world.usage, options=FAST).report.as_json())
        )
        assert written["base"] < written["candidate"]
        assert written["candidate_course"]["scales"].keys() == {"0", "0.25", "0.5", "0.75", "1"}
        assert len(written["candidate_course"]["losses"]) == 80
        assert written["options"]["steps"] == 80


class TestGuard:
    def test_a_set_that_loses_too_much_is_named_with_how_much(self, world):
        world.log(300)
        easy = labelled("easy", world, misleading=False)
        learned = learn(world.rag, world.usage, options=FAST, guard=[easy])
        (guarded,) = learned.report.guard
        assert guarded.drop > 0.01
        assert learned.adapter is None
        assert learned.report.refusal == (
            f"easy loses {guarded.drop:.4f} of its NDCG@10 ({guarded.before:.4f} to "
            f"{guarded.after:.4f}); allowed is 0.01"
        )

    def test_a_set_that_gains_or_loses_no_more_than_allowed_is_no_obstacle(self, world):
        world.log(300)
        sets = [labelled(name, world, misleading=name == "hard") for name in ("hard", "easy")]
        learned = learn(world.rag, world.usage, options=FAST, guard=sets, max_drop=1.0)
        assert learned.report.guard[0].drop < 0
        assert learned.adapter is not None

    def test_a_set_that_is_learned_too_is_forgotten_less(self, world):
        world.log(300)
        easy = labelled("easy", world, misleading=False)
        drops = [
            learn(world.rag, world.usage, options=FAST, guard=[easy], max_drop=1.0, general=general)
            .report.guard[0]
            .drop
            for general in ((), [easy])
        ]
        assert drops[1] < drops[0]

    @pytest.mark.parametrize("max_drop", [-0.1, 1.1, float("nan")])
    def test_an_allowance_that_is_none_is_an_error(self, world, max_drop):
        with pytest.raises(ValueError, match="wanted 0 to 1"):
            learn(world.rag, world.usage, max_drop=max_drop)


class TestWhatCannotBeLearnedFrom:
    def test_too_few_searches_are_an_error_that_says_how_many_and_what_was_skipped(self, world):
        world.log(19)
        world.log(3, outcome="timeout")
        world.log(2, vectors=False)
        with pytest.raises(SourceError) as raised:
            learn(world.rag, world.usage)
        assert str(raised.value).startswith(
            f"{world.usage}: 19 searches with a called tool are too few to learn from; wanted 20. "
        )
        assert "3 searches whose calls were all refused or timed out" in str(raised.value)
        assert "2 searches whose request has no vector of this model" in str(raised.value)

    def test_twenty_are_enough_to_try(self, world):
        world.log(20)
        report = learn(world.rag, world.usage, options=FAST).report
        assert (report.examples, report.held_out) == (20, 4)

    def test_a_log_that_is_not_there_has_none_and_is_not_made(self, world):
        with pytest.raises(SourceError, match="0 searches with a called tool"):
            learn(world.rag, world.usage)
        assert not world.usage.exists()

    def test_a_key_that_is_missing_is_named(self, world):
        world.log(40)
        (world.usage / ".key").unlink()
        with pytest.raises(SourceError, match=r"\.key: the key .* is missing"):
            learn(world.rag, world.usage)
        assert not (world.usage / ".key").exists()

    def test_torn_foreign_and_newer_lines_are_read_past_and_counted(self, world):
        world.log(40)
        (day,) = world.usage.glob("usage-*.jsonl")
        with day.open("a") as file:
            file.write('{"v": 1, "type": "sea\n{"type": "cake"}\n{"v": 9, "type": "call"}\n')
        skipped = learn(world.rag, world.usage, options=FAST).report.skipped
        assert skipped == {"torn lines": 1, "foreign lines": 1, "unknown-version lines": 1}

    def test_vectors_of_another_model_teach_nothing(self, world):
        world.log(40)
        world.model.model = "world-2"
        with pytest.raises(SourceError, match="40 searches whose request has no vector of this"):
            learn(world.rag, world.usage)

    def test_tools_that_are_gone_are_left_out(self, world):
        world.log(100)
        world.rag.remove(["tool_3"])
        report = learn(world.rag, world.usage, options=FAST).report
        assert report.tools == 23
        gone = report.skipped["searches whose called tools are gone"]
        assert report.examples == 100 - gone < 100

    def test_one_request_asked_again_and_again_tells_nothing(self, world):
        world.dice.randrange = lambda end: 5
        world.log(60)
        learned = learn(world.rag, world.usage, options=FAST)
        assert learned.adapter is None
        assert "ask the same: nothing can be told" in learned.report.refusal

    def test_words_alone_have_no_vectors_to_move(self, world):
        rag = ToolRAG(world.rag.catalogue.originals, embeddings=NoEmbeddings())
        with pytest.raises(EmbeddingError, match="heads move the vectors of an embedding model"):
            learn(rag, world.usage)


def test_a_tools_own_texts_find_its_row_unless_they_do_not_now(world):
    index = world.rag.tool_index
    index.embed()
    documents = [*index.documents, make_document("odd_one", "Nothing like its name. At all.")]
    rows = world.model.tools.astype("float32")
    far = -rows[:1]
    pairs = own_pairs(documents, np.concatenate([rows, far]), index.embedder, seed=0)
    assert {place for each in pairs.examples for place in each.wanted} >= set(range(24))
    assert all(place not in each.unknown for each in pairs.examples for place in each.wanted)
