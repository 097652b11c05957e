from dataclasses import replace

import pytest
from fakes import AsymmetricEmbeddings, HashingEmbeddings, NamedEmbeddings

from langchain_toolrag.errors import SourceError
from langchain_toolrag.index.adapter import read_adapter
from langchain_toolrag.index.heads import read_heads
from langchain_toolrag.learning.finetune import finetune
from langchain_toolrag.learning.pairs import hold_out


def quiet(step, loss):
    """Tell nobody."""


class TestHeads:
    def test_requests_in_words_that_no_tool_has_are_learned(self, sets, watched):
        trained = finetune(
            sets, [watched], model=NamedEmbeddings(), heads=True, steps=60, progress=quiet
        ).trained
        assert trained.before < 0.5
        assert trained.scales[trained.scale] == max(trained.scales.values()) > 0.9
        assert trained.step == 60

    def test_the_model_is_asked_for_a_text_once(self, sets, watched):
        model = NamedEmbeddings()
        finetune(sets, [watched], model=model, heads=True, steps=4, progress=quiet)
        assert len(model.texts) == len(set(model.texts))
        assert len(model.queries) == len(set(model.queries))

    def test_requests_are_embedded_by_the_models_own_way_for_requests(self, sets, watched):
        model = AsymmetricEmbeddings()
        finetune(sets, [watched], model=model, heads=True, steps=2, progress=quiet)
        assert {f"{request.text} asked" for each in sets for request in each.requests} <= set(
            model.queries
        )

    def test_the_same_seed_trains_the_same_and_another_does_not(self, sets, watched):
        one, two, other = (
            finetune(
                sets,
                [watched],
                model=NamedEmbeddings(),
                heads=True,
                steps=12,
                seed=seed,
                progress=quiet,
            ).adapter.tensors["tool.second.weight"]
            for seed in (5, 5, 6)
        )
        assert (one == two).all()
        assert not (one == other).all()

    def test_without_watched_sets_the_last_fifth_of_the_pairs_decides(self, sets):
        tuned = finetune(sets, model=NamedEmbeddings(), heads=True, steps=40, progress=quiet)
        assert tuned.adapter.card["pairs"] == {"office": 14, "home": 14}
        assert tuned.adapter.card["watched"] == ["office", "home"]
        assert tuned.trained.scales[tuned.trained.scale] > tuned.trained.before

    def test_what_is_written_is_read_as_heads_of_the_model(self, sets, watched, tmp_path):
        tuned = finetune(
            sets, [watched], model=NamedEmbeddings(), heads=True, steps=40, progress=quiet
        )
        tuned.write(tmp_path / "heads.safetensors")
        heads = read_heads(tmp_path / "heads.safetensors", "NamedEmbeddings(hashing-1)")
        assert heads.scale == tuned.trained.scale


class TestHoldingOut:
    def test_the_last_fifth_of_each_set_is_watched_and_not_learned(self, sets):
        learned, watched = hold_out(sets, "pairs.jsonl")
        for before, left, held in zip(sets, learned, watched, strict=True):
            assert [*left.requests] == [*before.requests[: len(left.requests)]]
            texts = [query.text for query in held.queries]
            assert texts == [each.text for each in before.requests[len(left.requests) :]]
            assert len(texts) == round(len(before.requests) / 5)
            places = before.requests[-1].wanted
            wanted = {before.documents[place].id for place in places}
            assert set(held.queries[-1].relevant) == wanted

    def test_sets_of_one_request_cannot_be_held_out(self, sets):
        lonely = [replace(each, requests=each.requests[:1]) for each in sets]
        with pytest.raises(SourceError, match="no set has two pairs"):
            hold_out(lonely, "pairs.jsonl")


class TestFinetune:
    def test_a_low_rank_change_needs_a_model_that_is_loaded_here(self, sets, watched):
        with pytest.raises(TypeError, match="pass heads=True"):
            finetune(sets, [watched], model=HashingEmbeddings(), progress=quiet)

    def test_the_card_says_what_it_was_trained_on_and_how_that_went(self, sets, watched, tmp_path):
        tuned = finetune(
            sets, [watched], model=NamedEmbeddings(), heads=True, steps=40, seed=1, progress=quiet
        )
        tuned.write(tmp_path / "heads.safetensors")
        read = read_adapter(tmp_path / "heads.safetensors")
        assert (read.kind, read.base) == ("heads", "NamedEmbeddings(hashing-1)")
        assert read.scale == tuned.trained.scale > 0
        assert read.card["pairs"] == {"office": 18, "home": 18}
        assert read.card["watched"] == ["watched"]
        assert (read.card["options"]["steps"], read.card["options"]["seed"]) == (40, 1)
        assert (
            read.card["mean reciprocal rank of the watched sets"]["before"] == tuned.trained.before
        )

    def test_where_the_untrained_model_does_best_there_is_no_adapter_to_write(
        self, sets, watched, tmp_path
    ):
        named = [
            replace(query, text=query.relevant[0].replace("_", " ")) for query in watched.queries
        ]
        easy = replace(watched, queries=tuple(named))
        tuned = finetune(sets, [easy], model=NamedEmbeddings(), heads=True, steps=4, progress=quiet)
        assert (tuned.trained.before, tuned.trained.scale, tuned.adapter) == (1.0, 0.0, None)
        with pytest.raises(ValueError, match="the untrained model did best"):
            tuned.write(tmp_path / "heads.safetensors")
        assert list(tmp_path.iterdir()) == []
