from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_toolrag.search.cutoff import Cutoff
from langchain_toolrag.search.fusion import EXACT_LEAD, blend, fuse, with_parts
from langchain_toolrag.search.rankings import by_meaning, by_words
from langchain_toolrag.search.request import parts_of, request_in
from langchain_toolrag.types import Evidence, Hit, ScoreStatistics, ToolEvidence

laws = settings(derandomize=True, deadline=None, max_examples=300)
laws_of_ties = settings(derandomize=True, deadline=None, max_examples=2000)

cosines = st.floats(-1, 1, allow_subnormal=False, width=32)
scores = st.floats(0, 30, allow_subnormal=False, width=32)
few = st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.7])  # Sums of these tie in the last bit, or nearly.
ids = st.from_regex(r"[a-c]{1,2}(/[a-c])?", fullmatch=True)


def tools(dense, lexical, *, named=True):
    def build(identity, dense, lexical, exact):
        return ToolEvidence(identity, dense, lexical, 10.0 * exact, exact)

    one = st.builds(build, ids, dense, lexical, st.booleans() if named else st.just(value=False))
    return st.lists(one, max_size=8, unique_by=lambda tool: tool.id)


def statistics(dense, lexical):
    """A deviation is none, or no smaller than scores of single precision can have."""
    deviations = lexical.map(lambda spread: spread if spread > 2**-20 else 0.0)
    return st.builds(ScoreStatistics, dense, dense.map(abs), lexical, deviations)


def evidence(dense, lexical, **named):
    return st.builds(
        lambda found, spread: Evidence(tuple(found), spread, 1, dense_ready=True),
        tools(dense, lexical, **named),
        statistics(cosines, scores),
    )


anything = evidence(st.none() | cosines, scores)
ties = evidence(few, few.map(lambda share: share * 10))
margins = st.floats(0, 3)
shares = st.floats(0, 1)
adaptive = margins.map(lambda margin: {"margin": margin}) | shares.map(
    lambda share: {"completeness": share}
)
steps = st.lists(st.integers(-16, 16), min_size=1, max_size=20)


def ranking(found, named=0):
    return [
        Hit(str(rank), score, rank, ToolEvidence(str(rank), score, 0.0, 0.0, exact=rank <= named))
        for rank, score in enumerate(sorted(found, reverse=True), start=1)
    ]


rankings = st.lists(cosines, max_size=30).map(ranking)


@laws
@given(anything)
def test_hits_are_sorted_ranked_from_one_and_each_tool_is_there_once(found):
    hits = fuse(found)
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    assert [(-hit.score, hit.id) for hit in hits] == sorted((-hit.score, hit.id) for hit in hits)
    assert len({hit.id for hit in hits}) == len(hits)
    assert all(hit.evidence in found.tools for hit in hits)


@laws_of_ties
@given(ties, st.randoms(use_true_random=False))
def test_the_order_of_the_evidence_does_not_change_the_ranking(found, random):
    shuffled = list(found.tools)
    random.shuffle(shuffled)
    for rank in (fuse, by_words, lambda given: by_meaning(given, 0.1)):
        other = Evidence(tuple(shuffled), found.statistics, 1, dense_ready=True)
        assert rank(other) == rank(found)


@laws_of_ties
@given(ties)
def test_tools_with_the_same_evidence_have_the_same_score_and_stand_in_order_of_id(found):
    by_evidence = {}
    for hit in fuse(found):
        evidence = hit.evidence
        key = (evidence.dense, evidence.lexical, evidence.exact)
        by_evidence.setdefault(key, []).append(hit)
    for hits in by_evidence.values():
        assert len({hit.score for hit in hits}) == 1
        assert [hit.id for hit in hits] == sorted(hit.id for hit in hits)


@laws
@given(anything)
def test_tools_that_the_query_names_come_before_all_others(found):
    exact = [hit.evidence.exact for hit in fuse(found)]
    assert exact == sorted(exact, reverse=True)


@laws
@given(evidence(cosines, scores))
def test_every_tool_with_a_dense_score_is_a_hit(found):
    assert {hit.id for hit in fuse(found)} == {tool.id for tool in found.tools}


@laws
@given(evidence(cosines, scores, named=False), scores, cosines)
def test_more_evidence_never_lowers_a_score(found, lexical, dense):
    if not found.tools:
        return
    first, *others = found.tools
    more = ToolEvidence(
        first.id, max(first.dense, dense), max(first.lexical, lexical), 0.0, exact=False
    )
    richer = Evidence((more, *others), found.statistics, 1, dense_ready=True)
    before, after = ({hit.id: hit.score for hit in fuse(one)} for one in (found, richer))
    assert after[first.id] >= before[first.id]
    assert all(after[tool.id] == before[tool.id] for tool in others)


@laws
@given(evidence(st.none(), scores))
def test_without_vectors_scores_are_shares_of_the_best_and_zero_is_no_hit(found):
    hits = fuse(found)
    named = [hit.score for hit in hits if hit.evidence.exact]
    others = [hit.score for hit in hits if not hit.evidence.exact]
    assert all(0 < score <= 1 for score in others)
    assert all(score >= max(others, default=0) + EXACT_LEAD - 1e-9 for score in named)
    expected = {tool.id for tool in found.tools if tool.lexical or tool.exact}
    assert {hit.id for hit in hits} == expected


@laws
@given(anything, cosines)
def test_rankings_of_one_source_are_sorted_and_hold_what_counts(found, threshold):
    meant, worded = by_meaning(found, threshold), by_words(found)
    assert all(hit.score == hit.evidence.dense >= threshold for hit in meant)
    assert all(hit.score == hit.evidence.lexical > 0 for hit in worded)
    for hits in (meant, worded):
        assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.id))


@laws
@given(rankings, st.integers(1, 40))
def test_a_fixed_cut_returns_exactly_so_many(hits, k):
    assert Cutoff(k=k).apply(hits) == hits[:k]


@laws
@given(rankings, adaptive, cosines, st.integers(0, 40), st.integers(0, 40))
def test_an_adaptive_cut_keeps_its_bounds_and_returns_a_beginning(hits, rule, mean, one, other):
    cutoff = Cutoff(**rule, min_k=min(one, other), max_k=max(one, other))
    kept = cutoff.apply(hits, mean)
    assert kept == hits[: len(kept)]
    assert min(cutoff.min_k, len(hits)) <= len(kept) <= cutoff.max_k == cutoff.limit


@laws
@given(rankings, margins, margins)
def test_a_wider_margin_never_returns_fewer(hits, one, other):
    narrow, wide = sorted((one, other))
    assert len(Cutoff(margin=narrow).apply(hits)) <= len(Cutoff(margin=wide).apply(hits))


@laws
@given(rankings, cosines, shares, shares)
def test_a_higher_completeness_never_returns_fewer(hits, mean, one, other):
    low, high = sorted((one, other))
    fewer, more = (Cutoff(completeness=share).apply(hits, mean) for share in (low, high))
    assert fewer == more[: len(fewer)]


@laws
@given(
    steps,
    st.integers(-16, 16),
    st.sampled_from([0.0, 0.3, 0.5, 0.75, 0.9]),
    st.floats(0.1, 10),
    st.floats(-3, 3),
)
def test_completeness_does_not_depend_on_the_scale_of_the_scores(found, mean, share, factor, shift):
    cutoff = Cutoff(completeness=share)
    scaled = [factor * score + shift for score in found]
    kept = cutoff.apply(ranking(scaled), factor * mean + shift)
    assert len(kept) == len(cutoff.apply(ranking(found), mean))


@laws
@given(rankings, cosines, shares)
def test_beyond_the_least_only_what_beats_the_average_or_equals_the_best_is_kept(hits, mean, share):
    for hit in Cutoff(completeness=share).apply(hits, mean)[1:]:
        assert hit.score >= mean - 1e-9 or hit.score == hits[0].score


@laws
@given(st.lists(cosines, max_size=30), adaptive, cosines, st.integers(0, 30), st.integers(1, 30))
def test_every_named_tool_is_kept_and_the_most_holds_for_all_others(found, rule, mean, named, most):
    hits = ranking(found, named)
    kept = Cutoff(**rule, max_k=most).apply(hits, mean)
    assert min(named, len(hits)) <= len(kept) <= max(named, most)


@laws
@given(rankings, cosines, margins, shares, shares)
def test_with_a_margin_neither_completeness_nor_the_average_counts(hits, mean, margin, one, other):
    kept = Cutoff(margin=margin, completeness=one).apply(hits, mean)
    assert kept == Cutoff(margin=margin, completeness=other).apply(hits)


@laws
@given(rankings, adaptive, cosines, st.integers(1, 40), st.integers(1, 40))
def test_a_higher_most_never_returns_fewer(hits, rule, mean, one, other):
    low, high = sorted((one, other))
    kept = Cutoff(**rule, max_k=low).apply(hits, mean)
    assert kept == Cutoff(**rule, max_k=high).apply(hits, mean)[: len(kept)]


@laws
@given(rankings, margins)
def test_what_a_margin_leaves_out_is_below_it_or_beyond_the_most(hits, margin):
    kept = Cutoff(margin=margin).apply(hits)
    if len(kept) < len(hits) and len(kept) < Cutoff().max_k:
        assert hits[len(kept)].score < hits[0].score - margin


@laws
@given(ties, ties, st.sampled_from([0.0, 0.2, 0.5, 0.7, 1.0]), st.randoms(use_true_random=False))
def test_the_order_of_two_rankings_does_not_change_their_blend(one, other, share, random):
    plain, contextual = fuse(one), fuse(other)
    blended = blend(plain, contextual, share)
    shuffled = [random.sample(hits, len(hits)) for hits in (plain, contextual)]
    assert blend(*shuffled, share) == blended
    assert [(-hit.score, hit.id) for hit in blended] == sorted(
        (-hit.score, hit.id) for hit in blended
    )
    assert [hit.rank for hit in blended] == list(range(1, len(blended) + 1))
    assert {hit.id for hit in blended} == {hit.id for hit in (*plain, *contextual)}


@laws
@given(ties, ties, st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]))
def test_which_of_two_rankings_comes_first_does_not_change_their_scores(one, other, share):
    plain, contextual = fuse(one), fuse(other)
    there, back = blend(plain, contextual, share), blend(contextual, plain, 1 - share)
    assert [(hit.id, hit.score) for hit in there] == [(hit.id, hit.score) for hit in back]


@laws
@given(anything, st.lists(anything, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_the_parts_does_not_change_the_ranking(whole, parts, random):
    shuffled = random.sample(parts, len(parts))
    scored, again = (
        [(hit.id, hit.score) for hit in with_parts(fuse(whole), whole, given)]
        for given in (parts, shuffled)
    )
    assert scored == again


pieces = st.sampled_from(
    [
        *("play a song", "send the mail", " and ", " then ", ". ", "; ", "\n", " ", "```", "> "),
        *("'", '"', "<data>", "</data>", "<file", "{", "]", "x" * 120, "Subject: rain", "ERROR "),
        *("https://a.b/c", "2026-01-05 10:00", "with the text: ", "word " * 70, "“", "”", "。"),
    ]
)
any_text = st.text(max_size=200) | st.lists(pieces, max_size=25).map("".join)


@laws
@given(any_text)
def test_any_text_but_space_has_a_request_and_that_request_has_one_no_longer(text):
    request = request_in(text)
    assert request == request.strip()
    assert bool(request) is bool(text.strip())
    again = request_in(request)
    assert bool(again) is bool(request)
    assert len(again) <= len(request)


@laws
@given(any_text)
def test_any_request_has_no_part_or_two_to_four_of_its_own_in_their_order(text):
    parts = parts_of(text)
    assert len(parts) in (0, 2, 3, 4)
    position = 0
    for part in parts:
        assert len(part.split()) >= 3
        position = text.index(part, position) + len(part)
