import math
from itertools import permutations

import pytest
from documents import make_document, make_evidence
from fakes import HashingEmbeddings

from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.search.fusion import (
    EXACT_LEAD,
    LEXICAL_WEIGHT,
    PARTS_WEIGHT,
    UNKNOWN_SCRIPT_WEIGHT,
    average_score,
    blend,
    fuse,
    ranked,
    with_parts,
)
from langchain_toolrag.types import Evidence, Hit, ScoreStatistics

STATISTICS = ScoreStatistics(
    dense_mean=0.2, dense_deviation=0.1, lexical_mean=1.0, lexical_deviation=2.0
)


def fused(*tools, statistics=STATISTICS):
    return fuse(Evidence(tools, statistics, version=1, dense_ready=True))


def ids(hits):
    return [hit.id for hit in hits]


def test_an_average_tool_scores_what_the_average_score_says():
    average = make_evidence("a", STATISTICS.dense_mean, STATISTICS.lexical_mean)
    evidence = Evidence((average, make_evidence("b", 0.9, 7.0)), STATISTICS, 1, True)
    assert fuse(evidence)[1].score == pytest.approx(average_score(evidence)) == 0.2


def test_without_vectors_the_average_is_a_share_of_the_best_lexical_score():
    tools = (make_evidence("a", lexical=1.0), make_evidence("b", lexical=8.0))
    evidence = Evidence(tools, STATISTICS, 1, False)
    assert fuse(evidence)[1].score == pytest.approx(average_score(evidence)) == 0.125


def test_without_any_evidence_the_average_is_no_number_to_divide_by():
    assert average_score(Evidence((), ScoreStatistics(), 1, False)) == 0.0


def test_no_evidence_gives_no_hits():
    assert fused() == []


def test_hits_come_best_first_with_ranks_from_one():
    hits = fused(make_evidence("a", 0.1), make_evidence("b", 0.9), make_evidence("c", 0.5))
    assert ids(hits) == ["b", "c", "a"]
    assert [hit.rank for hit in hits] == [1, 2, 3]


def test_a_hit_keeps_its_evidence():
    evidence = make_evidence("a", 0.4, 2.0, 10)
    assert fused(evidence)[0].evidence is evidence


def test_equal_scores_come_in_order_of_id():
    tools = [make_evidence(name, 0.5, 2.0) for name in ("server/b", "a", "B", "c")]
    for order in permutations(tools):
        assert ids(fused(*order)) == ["B", "a", "c", "server/b"]


def test_a_tool_with_average_lexical_score_scores_its_cosine():
    assert fused(make_evidence("a", 0.4, 1.0))[0].score == pytest.approx(0.4)


def test_lexical_scores_are_brought_to_the_deviation_of_the_dense_ones():
    score = fused(make_evidence("a", 0.4, 5.0))[0].score
    deviations = (5.0 - 1.0) / 2.0
    assert score == pytest.approx(0.4 + 0.3 / 0.7 * 0.1 * deviations)


def test_the_ranking_is_that_of_the_convex_combination_of_standard_scores():
    tools = [make_evidence(f"{n}", (n * 37 % 11) / 11, (n * 53 % 7) / 2) for n in range(20)]

    def combination(tool):
        dense, lexical = (tool.dense - 0.2) / 0.1, (tool.lexical - 1.0) / 2.0
        return (1 - LEXICAL_WEIGHT) * dense + LEXICAL_WEIGHT * lexical

    expected = sorted(tools, key=lambda tool: (-round(combination(tool), 9), tool.id))
    assert ids(fused(*tools)) == [tool.id for tool in expected]


def test_an_exactly_named_tool_comes_first():
    hits = fused(make_evidence("a", 0.95, 6.0, 40), make_evidence("b", 0.3, 0.0, 10, exact=True))
    assert ids(hits) == ["b", "a"]
    assert hits[0].score == pytest.approx(hits[1].score + EXACT_LEAD)


def test_exactly_named_tools_are_ordered_among_themselves():
    scores = {"a": 0.1, "b": 0.9, "c": 0.5}
    hits = fused(*(make_evidence(name, dense, exact=True) for name, dense in scores.items()))
    assert ids(hits) == ["b", "c", "a"]


def test_an_exactly_named_tool_comes_first_however_rare_the_other_words_are():
    statistics = ScoreStatistics(
        dense_mean=0.2, dense_deviation=0.15, lexical_mean=0.05, lexical_deviation=0.8
    )
    rare = make_evidence("rare", 0.4, 20.0)
    named = make_evidence("named", 0.4, 4.0, 10, exact=True)
    assert ids(fused(rare, named, statistics=statistics)) == ["named", "rare"]


def test_an_opposite_meaning_does_not_put_a_named_tool_behind():
    hits = fused(make_evidence("a", 0.95), make_evidence("b", -0.1, exact=True))
    assert ids(hits) == ["b", "a"]


@pytest.mark.parametrize("lexical", [0.0, 3.0])
def test_lexical_scores_without_variance_decide_nothing(lexical):
    flat = ScoreStatistics(0.2, 0.1, lexical_mean=lexical, lexical_deviation=0.0)
    hits = fused(
        make_evidence("a", 0.3, lexical), make_evidence("b", 0.4, lexical), statistics=flat
    )
    assert [hit.score for hit in hits] == [0.4, 0.3]


def test_dense_scores_without_variance_give_lexical_ones_no_scale():
    flat = ScoreStatistics(0.2, 0.0, lexical_mean=1.0, lexical_deviation=1.0)
    hits = fused(make_evidence("a", 0.2, 9.0), make_evidence("b", 0.2, 0.0), statistics=flat)
    assert [hit.score for hit in hits] == [0.2, 0.2]


def test_a_tool_without_a_vector_yet_counts_as_average_by_meaning():
    hits = fused(make_evidence("a", None, 1.0), make_evidence("b", 0.1, 1.0))
    assert [(hit.id, hit.score) for hit in hits] == [("a", pytest.approx(0.2)), ("b", 0.1)]


def test_without_vectors_the_scale_is_the_share_of_the_best_lexical_score():
    hits = fused(make_evidence("a", None, 2.0), make_evidence("b", None, 8.0))
    assert [(hit.id, hit.score) for hit in hits] == [("b", 1.0), ("a", 0.25)]


def test_without_vectors_a_named_tool_comes_first():
    hits = fused(make_evidence("a", None, 8.0), make_evidence("b", None, 2.0, 10, exact=True))
    assert [(hit.id, hit.score) for hit in hits] == [("b", 1.0 + EXACT_LEAD), ("a", 1.0)]


def test_without_vectors_a_named_tool_without_a_scored_word_comes_first():
    hits = fused(make_evidence("a", None, 8.0), make_evidence("b", None, 0.0, 10, exact=True))
    assert ids(hits) == ["b", "a"]


def test_without_vectors_a_tool_that_shares_no_word_is_no_hit():
    hits = fused(make_evidence("a", None, 8.0), make_evidence("b"), make_evidence("c", keyword=4))
    assert ids(hits) == ["a"]


def test_without_vectors_and_words_there_are_no_hits():
    assert fused(make_evidence("a"), make_evidence("b", keyword=2)) == []


def test_every_score_is_a_number():
    documents = [make_document(f"tool_{n}", "Says rain.") for n in range(3)]
    index = ToolIndex(HashingEmbeddings())
    index.refresh(documents)
    for query in ("rain", "tool_1", "zzz", "rain rain rain tool_1 tool_2"):
        assert all(math.isfinite(hit.score) for hit in fuse(index.evidence(query)))


def test_any_score_can_be_ranked_by():
    tools = [make_evidence("a", keyword=2), make_evidence("b", keyword=12)]
    hits = ranked(tools, lambda tool: tool.keyword)
    assert [(hit.id, hit.score, hit.rank) for hit in hits] == [("b", 12, 1), ("a", 2, 2)]


def test_in_a_script_that_the_model_does_not_know_words_count_most():
    tools = (make_evidence("meant", 0.5, 1.0), make_evidence("worded", 0.3, 3.0))
    known, unknown = (
        fuse(Evidence(tools, STATISTICS, version=1, dense_ready=True, script_known=knows))
        for knows in (True, False)
    )
    assert ids(known) == ["meant", "worded"]
    assert ids(unknown) == ["worded", "meant"]
    ratio = UNKNOWN_SCRIPT_WEIGHT / (1 - UNKNOWN_SCRIPT_WEIGHT)
    assert unknown[0].score == pytest.approx(0.3 + ratio * 0.1 * (3.0 - 1.0) / 2.0)


def test_without_vectors_the_script_does_not_matter():
    tools = (make_evidence("a", None, 2.0), make_evidence("b", None, 8.0))
    unknown = Evidence(tools, STATISTICS, version=1, dense_ready=False, script_known=False)
    assert fuse(unknown) == fused(*tools)


def test_named_tools_come_first_only_if_asked_for():
    for dense in (0.1, None):
        tools = (make_evidence("a", 0.9 if dense else None, 9.0),)
        named = make_evidence("b", dense, 1.0, 10, exact=True)
        evidence = Evidence((*tools, named), STATISTICS, version=1, dense_ready=True)
        assert ids(fuse(evidence)) == ["b", "a"]
        assert ids(fuse(evidence, named_first=False)) == ["a", "b"]


def hits_of(**scores):
    return [
        Hit(name, score, rank, make_evidence(name, score))
        for rank, (name, score) in enumerate(scores.items(), start=1)
    ]


def scores_of(hits):
    return {hit.id: hit.score for hit in hits}


def test_hits_and_their_evidence_are_equal_by_value_and_cannot_be_changed():
    (hit,), (again,) = hits_of(a=0.9), hits_of(a=0.9)
    assert (hit, hash(hit)) == (again, hash(again))
    for record, name in ((hit, "score"), (hit.evidence, "dense")):
        with pytest.raises(AttributeError):
            setattr(record, name, 1.0)
    assert hit == again != hits_of(a=0.8)[0]


class TestBlend:
    PLAIN, CONTEXTUAL = hits_of(a=0.9, b=0.6, c=0.1), hits_of(b=0.8, a=0.4, c=0.3)

    def test_a_share_of_none_is_the_plain_ranking(self):
        assert blend(self.PLAIN, self.CONTEXTUAL, 0.0) == self.PLAIN

    def test_a_share_of_all_is_the_other_ranking(self):
        blended = blend(self.PLAIN, self.CONTEXTUAL, 1.0)
        assert [(hit.id, hit.score) for hit in blended] == [("b", 0.8), ("a", 0.4), ("c", 0.3)]

    def test_a_score_is_the_two_in_their_shares_and_ranks_are_new(self):
        blended = blend(self.PLAIN, self.CONTEXTUAL, 0.6)
        assert scores_of(blended) == pytest.approx({"b": 0.72, "a": 0.6, "c": 0.22})
        assert [(hit.id, hit.rank) for hit in blended] == [("b", 1), ("a", 2), ("c", 3)]

    def test_a_tool_that_one_lacks_has_its_lowest_score_there(self):
        blended = blend(hits_of(a=0.9, b=0.6), hits_of(c=0.8, d=-0.2), 0.25)
        expected = {
            "a": 0.75 * 0.9 + 0.25 * -0.2,
            "b": 0.75 * 0.6 + 0.25 * -0.2,
            "c": 0.75 * 0.6 + 0.25 * 0.8,
            "d": 0.75 * 0.6 + 0.25 * -0.2,
        }
        assert scores_of(blended) == pytest.approx(expected)

    def test_equal_scores_come_in_order_of_id(self):
        assert ids(blend(hits_of(b=0.5, a=0.3), hits_of(a=0.5, b=0.3), 0.5)) == ["a", "b"]

    def test_where_one_finds_nothing_the_order_is_that_of_the_other(self):
        assert ids(blend(self.PLAIN, [], 0.5)) == ["a", "b", "c"]
        assert ids(blend([], self.CONTEXTUAL, 0.5)) == ["b", "a", "c"]
        assert blend([], [], 0.5) == []

    @pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
    def test_the_evidence_is_that_of_the_plain_ranking(self, share):
        evidence = {hit.id: hit.evidence for hit in blend(self.PLAIN, self.CONTEXTUAL, share)}
        assert evidence == {hit.id: hit.evidence for hit in self.PLAIN}


def part(mean=0.2, deviation=0.1, **scores):
    tools = tuple(make_evidence(name, score) for name, score in scores.items())
    return Evidence(tools, ScoreStatistics(mean, deviation), version=1, dense_ready=True)


class TestWithParts:
    WHOLE = part(a=0.5, b=0.4, c=0.3)
    HITS = fuse(WHOLE)

    def test_without_parts_the_ranking_stays(self):
        assert with_parts(self.HITS, self.WHOLE, []) == self.HITS

    def test_a_part_like_the_whole_changes_nothing(self):
        same = with_parts(self.HITS, self.WHOLE, [self.WHOLE])
        assert ids(same) == ids(self.HITS)
        assert scores_of(same) == pytest.approx(scores_of(self.HITS))

    def test_a_tool_has_the_score_of_its_best_part(self):
        parts = [part(a=0.9, b=0.1, c=0.1), part(a=0.1, b=0.1, c=0.8)]
        best, whole = {"a": 0.9, "b": 0.1, "c": 0.8}, scores_of(self.HITS)
        expected = {
            name: (1 - PARTS_WEIGHT) * whole[name] + PARTS_WEIGHT * best[name] for name in best
        }
        found = with_parts(self.HITS, self.WHOLE, parts)
        assert scores_of(found) == pytest.approx(expected)
        assert with_parts(self.HITS, self.WHOLE, parts[::-1]) == found

    def test_scores_of_a_part_are_brought_to_the_scale_of_the_whole(self):
        stretched = part(0.5, 0.2, a=0.5 + 2 * 0.3, b=0.5 + 2 * 0.2, c=0.5 + 2 * 0.1)
        found = with_parts(self.HITS, self.WHOLE, [stretched])
        assert scores_of(found) == pytest.approx(scores_of(self.HITS))

    def test_scores_without_variance_are_moved_and_not_stretched(self):
        flat = part(0.7, 0.0, a=0.7, b=0.7, c=0.7)
        found = scores_of(with_parts(self.HITS, self.WHOLE, [flat]))
        expected = {
            name: (1 - PARTS_WEIGHT) * score + PARTS_WEIGHT * 0.2
            for name, score in scores_of(self.HITS).items()
        }
        assert found == pytest.approx(expected)

    def test_a_tool_that_a_part_alone_finds_is_there_too(self):
        found = scores_of(with_parts(self.HITS, self.WHOLE, [part(d=0.9)]))
        assert found.keys() == set("abcd")
        assert found["d"] == pytest.approx((1 - PARTS_WEIGHT) * 0.3 + PARTS_WEIGHT * 0.9)

    def test_a_part_that_finds_nothing_does_not_change_the_order(self):
        assert ids(with_parts(self.HITS, self.WHOLE, [part()])) == ["a", "b", "c"]

    def test_a_tool_that_a_part_names_is_not_lifted(self):
        named = Evidence(
            (make_evidence("c", 0.3, exact=True),), self.WHOLE.statistics, 1, dense_ready=True
        )
        assert max(scores_of(with_parts(self.HITS, self.WHOLE, [named])).values()) <= 0.5

    def test_equal_scores_come_in_order_of_id(self):
        hits = fuse(part(b=0.5, a=0.5))
        assert ids(with_parts(hits, part(), [part(b=0.4, a=0.4)])) == ["a", "b"]
