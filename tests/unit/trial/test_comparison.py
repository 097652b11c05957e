import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_toolrag.trial.comparison import (
    FEWEST_SESSIONS,
    Estimate,
    compare,
    compare_trial,
)
from langchain_toolrag.trial.sessions import SessionUse

ACME, OTHER, SMALL = "ac" * 32, "07" * 32, "5a" * 32


def sessions(side, ranks, *, searches=2, calls=1, tenant=""):
    """One session a rank, None for one without calls."""
    return [
        SessionUse(side, tenant, searches, 0 if rank is None else calls, rank) for rank in ranks
    ]


def trial(on_trial, in_use, **others):
    return [*sessions("on trial", on_trial, **others), *sessions("in use", in_use, **others)]


def ranks(mean, number, spread=0.2):
    """As many ranks, alike to both sides of a mean."""
    return [mean + (spread if n % 2 else -spread) for n in range(number)]


uses = st.builds(
    SessionUse,
    side=st.sampled_from(["on trial", "in use"]),
    tenant=st.sampled_from(["", ACME, OTHER]),
    searches=st.integers(1, 20),
    calls=st.integers(0, 30),
    reciprocal_rank=st.none() | st.floats(0, 1),
)


def test_nothing_is_known_of_no_sessions():
    comparison = compare([])
    assert comparison.verdict == "undecided"
    assert comparison.missing == (FEWEST_SESSIONS, FEWEST_SESSIONS)
    assert comparison.more is None
    assert comparison.reciprocal_rank == comparison.calls == Estimate(None, None)


def test_means_and_errors_are_over_sessions():
    comparison = compare(trial([1.0, 0.5, 0.25, None], [0.5, 0.0]))
    on_trial = comparison.on_trial
    assert (on_trial.sessions, on_trial.with_calls, on_trial.searches) == (4, 3, 8)
    # By hand: the mean is 7/12, deviations 5/12, -1/12 and -4/12, s² = 42/144/2.
    assert on_trial.reciprocal_rank.value == pytest.approx(7 / 12)
    assert on_trial.reciprocal_rank.error == pytest.approx(math.sqrt(42 / 144 / 2 / 3))
    assert comparison.in_use.reciprocal_rank.error == pytest.approx(0.25)
    assert comparison.reciprocal_rank.value == pytest.approx(1 / 3)
    assert comparison.reciprocal_rank.error == pytest.approx(
        math.hypot(math.sqrt(42 / 144 / 2 / 3), 0.25)
    )


def test_calls_per_search_are_a_ratio_with_the_error_of_the_delta_method():
    calls, searches = np.array([0, 3, 2, 8, 1]), np.array([1, 4, 2, 9, 3])
    figures = compare(
        SessionUse("in use", "", int(n), int(c), None) for c, n in zip(calls, searches, strict=True)
    ).in_use
    ratio = calls.sum() / searches.sum()
    # Deng, Knoblich and Lu 2018, equation 3, as it stands there.
    (variance_calls, covariance), (_, variance_searches) = np.cov(calls, searches)
    mean = searches.mean()
    variance = (
        variance_calls / mean**2
        - 2 * calls.mean() / mean**3 * covariance
        + calls.mean() ** 2 / mean**4 * variance_searches
    ) / len(calls)
    assert figures.calls.value == pytest.approx(ratio)
    assert figures.calls.error == pytest.approx(math.sqrt(variance))


def test_many_searches_of_one_session_are_no_more_sure_than_the_session():
    """One lively session does not make an error small, as an error over searches would."""
    lively = [SessionUse("in use", "", 1000, 1000, 1.0), SessionUse("in use", "", 1000, 0, 0.0)]
    figures = compare(lively).in_use
    assert figures.reciprocal_rank.error == pytest.approx(0.5)
    assert figures.calls.error == pytest.approx(0.5)


def test_the_errors_are_those_that_are_seen_over_many_trials():
    dice = np.random.default_rng(0)

    def session():
        likes = dice.beta(2, 2)  # Sessions differ, their searches are alike.
        searches = int(dice.integers(1, 8))
        calls = int(dice.binomial(searches, likes))
        return SessionUse("in use", "", searches, calls, likes if calls else None)

    figures = [compare([session() for _ in range(80)]).in_use for _ in range(400)]
    for name in ("reciprocal_rank", "calls"):
        estimates = [getattr(each, name) for each in figures]
        seen = np.std([each.value for each in estimates])
        assert np.mean([each.error for each in estimates]) == pytest.approx(seen, rel=0.1)


def test_sides_that_are_the_same_decide_nothing():
    same = ranks(0.6, 50)
    comparison = compare(trial(same, same))
    assert comparison.verdict == "undecided"
    assert comparison.missing == (0, 0)
    assert comparison.more is None


def test_equal_ranks_on_both_sides_decide_nothing_although_their_error_is_zero():
    comparison = compare(trial([1 / 3] * 37, [1 / 3] * 1000))
    assert comparison.verdict == "undecided"
    assert comparison.more is None


def test_clearly_higher_ranks_are_promoted():
    assert compare(trial(ranks(0.7, 40), ranks(0.5, 40))).verdict == "promote"


def test_clearly_lower_ranks_are_rolled_back():
    assert compare(trial(ranks(0.5, 40), ranks(0.7, 40))).verdict == "roll back"


def test_higher_ranks_are_not_promoted_where_fewer_tools_are_called():
    better = [*ranks(0.9, 40), *[None] * 60]
    comparison = compare(trial(better, ranks(0.5, 100)))
    assert comparison.reciprocal_rank.beyond_chance == 1
    assert comparison.calls.beyond_chance == -1
    assert comparison.verdict == "roll back"


def test_heads_that_hide_every_tool_are_rolled_back_although_no_session_has_calls():
    comparison = compare(trial([None] * 40, ranks(0.5, 40)))
    assert comparison.missing == (FEWEST_SESSIONS, 0)
    assert comparison.verdict == "roll back"


def test_more_calls_alone_promote_nothing():
    same = ranks(0.6, 50)
    comparison = compare([*sessions("on trial", same, calls=2), *sessions("in use", same, calls=1)])
    assert comparison.calls.beyond_chance == 1
    assert comparison.verdict == "undecided"


@pytest.mark.parametrize(
    ("on_trial", "in_use", "missing"), [(29, 100, (1, 0)), (12, 7, (18, 23)), (30, 0, (0, 30))]
)
def test_with_few_sessions_nothing_is_decided_and_those_missing_are_counted(
    on_trial, in_use, missing
):
    comparison = compare(trial(ranks(0.9, on_trial, 0.01), ranks(0.1, in_use, 0.01)))
    assert comparison.verdict == "undecided"
    assert comparison.missing == missing
    assert comparison.more is None


def test_an_undecided_trial_says_how_many_more_sessions_would_decide():
    comparison = compare(trial(ranks(0.62, 40), ranks(0.6, 60)))
    assert comparison.verdict == "undecided"
    times = (100 + comparison.more) / 100
    error = comparison.reciprocal_rank.error / math.sqrt(times)
    assert comparison.reciprocal_rank.value == pytest.approx(2 * error, rel=0.01)


def test_as_many_sessions_more_do_decide():
    comparison = compare(trial(ranks(0.66, 40), ranks(0.6, 40)))
    more = comparison.more // 2 + 2
    assert compare(trial(ranks(0.66, 40 + more), ranks(0.6, 40 + more))).verdict == "promote"


@given(st.lists(uses, max_size=80), st.randoms())
def test_the_order_of_sessions_makes_no_difference(dealt, dice):
    shuffled = dealt[:]
    dice.shuffle(shuffled)
    assert compare(shuffled) == compare(dealt)


@given(st.lists(uses, max_size=80))
def test_with_the_sides_exchanged_differences_are_the_opposite(dealt):
    other = {"on trial": "in use", "in use": "on trial"}
    exchanged = [
        SessionUse(other[s.side], s.tenant, s.searches, s.calls, s.reciprocal_rank) for s in dealt
    ]
    one, two = compare(dealt), compare(exchanged)
    for first, second in ((one.reciprocal_rank, two.reciprocal_rank), (one.calls, two.calls)):
        assert first.error == second.error
        assert first.value == (None if second.value is None else -second.value)
    assert "promote" not in (one.verdict, two.verdict) or one.verdict != two.verdict


@given(st.lists(st.floats(0, 1), min_size=30, max_size=60), st.data())
def test_a_promotion_is_never_of_lower_ranks(on_trial, data):
    in_use = data.draw(st.lists(st.floats(0, 1), min_size=30, max_size=60))
    comparison = compare(trial(on_trial, in_use))
    if comparison.verdict == "promote":
        assert comparison.reciprocal_rank.value > 2 * comparison.reciprocal_rank.error
        assert np.mean(on_trial) > np.mean(in_use)


def test_equal_heads_are_seldom_promoted_or_rolled_back():
    """Each verdict comes by chance in about one trial of forty; calls may end one as well."""
    dice = random.Random(0)
    verdicts = []
    for _ in range(400):
        dealt = [
            SessionUse(side, "", 3, calls, dice.choice([1.0, 0.5, 0.2, 0.0]) if calls else None)
            for side, number in (("on trial", 50), ("in use", 150))
            for calls in (dice.choice([0, 1, 2, 3]) for _ in range(number))
        ]
        verdicts.append(compare(dealt).verdict)
    assert verdicts.count("promote") / 400 < 0.05
    assert verdicts.count("roll back") / 400 < 0.09


def test_a_trial_is_compared_for_each_tenant_and_over_all():
    dealt = [
        *trial(ranks(0.8, 60), ranks(0.5, 60), tenant=ACME),
        *trial(ranks(0.3, 40), ranks(0.6, 40), tenant=OTHER),
        *trial(ranks(0.6, 5), ranks(0.6, 5), tenant=SMALL),
        *trial(ranks(0.6, 30), ranks(0.6, 30)),
    ]
    comparison = compare_trial(dealt)
    assert {tenant: own.verdict for tenant, own in comparison.tenants.items()} == {
        ACME: "promote",
        OTHER: "roll back",
        SMALL: "undecided",
    }
    assert list(comparison.tenants) == [ACME, OTHER, SMALL]
    assert comparison.everybody.on_trial.sessions == 135
    assert comparison.others.on_trial.sessions == 35
    assert comparison.others.verdict == "undecided"


def test_where_no_tenant_decides_the_others_are_everybody():
    comparison = compare_trial(trial(ranks(0.7, 40), ranks(0.5, 40)))
    assert comparison.tenants == {}
    assert comparison.others == comparison.everybody
    assert comparison.everybody.verdict == "promote"
