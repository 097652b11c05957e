from datetime import datetime, timedelta, timezone

import pytest

from langchain_toolrag.trial.sessions import SessionUse, dealt_sessions
from langchain_toolrag.trial.state import Candidate, HeadsState
from langchain_toolrag.usage.records import CallRecord, Retrieved, SearchRecord

NOON = datetime(2026, 11, 3, 12, tzinfo=timezone.utc)
TRIED, USED, OWN = "c" * 64, "b" * 64, "d" * 64
ACME, OTHER = "ac" * 32, "07" * 32


@pytest.fixture
def log():
    """Makes a log: searches with their heads and tools, calls after them, a second apart."""
    return Log()


class Log:
    def __init__(self):
        self.records = []

    def search(self, session, heads="", tools=("a", "b", "c"), **others):
        """Log a search that shows tools, best first; return its name."""
        search_id = others.pop("search_id", f"search-{len(self.records)}")
        self.records.append(
            SearchRecord(
                time=others.pop("time", self._now()),
                search_id=search_id,
                session=session,
                heads=heads[:16],
                trial=others.pop("trial", TRIED)[:16],
                retrieved=tuple(Retrieved(tool, rank, None) for rank, tool in enumerate(tools, 1)),
                **{"kind": "select", "mode": "semantic", "request": "0" * 64, **others},
            )
        )
        return search_id

    def call(self, search_id, tool, outcome="ok", tenant=""):
        self.records.append(
            CallRecord(
                self._now(), f"call-{len(self.records)}", tool, outcome, search_id, tenant=tenant
            )
        )

    def used(self, session, heads="", *called, **others):
        """Log a search and calls of what it showed."""
        search_id = self.search(session, heads, **others)
        for tool in called:
            self.call(search_id, tool, tenant=others.get("tenant", ""))

    def dealt(self, in_use="", decided=(), tenants=None):
        candidate = Candidate(TRIED, NOON, tuple(decided))
        state = HeadsState(in_use, "", candidate, tenants or {})
        return dealt_sessions(self.records, state, candidate)

    def sessions(self, **others):
        return list(self.dealt(**others).sessions)

    def _now(self):
        return NOON + timedelta(seconds=len(self.records))


def on_trial(searches, calls, reciprocal_rank, tenant=""):
    return SessionUse("on trial", tenant, searches, calls, reciprocal_rank)


def in_use(searches, calls, reciprocal_rank, tenant=""):
    return SessionUse("in use", tenant, searches, calls, reciprocal_rank)


def test_a_log_without_searches_has_no_sessions(log):
    assert log.sessions() == []


def test_a_session_is_on_the_side_of_the_heads_that_answered_it(log):
    log.used("1", TRIED, "a")
    log.used("2", "", "b")
    assert log.sessions() == [on_trial(1, 1, 1.0), in_use(1, 1, 0.5)]


def test_heads_that_are_neither_on_trial_nor_in_use_do_not_count(log):
    log.used("1", OWN, "a")
    log.used("2", "", "a")
    log.used("3", USED, "a")
    assert log.sessions(in_use=USED) == [in_use(1, 1, 1.0)]


def test_a_session_has_the_mean_of_its_searches_with_calls(log):
    log.used("1", TRIED, "a")
    log.used("1", TRIED, "c")
    log.used("1", TRIED)
    assert log.sessions() == [on_trial(3, 2, pytest.approx((1 + 1 / 3) / 2))]


def test_a_search_has_the_mean_of_the_tools_called_after_it(log):
    log.used("1", TRIED, "a", "b")
    log.used("1", TRIED, "c")
    assert log.sessions() == [on_trial(2, 3, pytest.approx((0.75 + 1 / 3) / 2))]


def test_a_tool_counts_once_a_search_however_often_it_is_called(log):
    log.used("1", TRIED, "a", "b", "b", "b")
    assert log.sessions() == [on_trial(1, 2, 0.75)]


def test_a_tool_that_was_bound_but_not_retrieved_stands_nowhere(log):
    log.used("1", TRIED, "sticky", bound=("sticky", "a"))
    assert log.sessions() == [on_trial(1, 1, 0.0)]


def test_a_call_that_failed_counts_and_one_that_did_not_run_says_nothing(log):
    name = log.search("1", TRIED)
    log.call(name, "b", "tool_error")
    log.call(name, "a", "refused")
    log.call(name, "a", "timeout")
    assert log.sessions() == [on_trial(1, 1, 0.5)]


def test_a_session_without_calls_has_no_rank(log):
    log.used("1", TRIED)
    assert log.sessions() == [on_trial(1, 0, None)]


def test_calls_that_no_search_showed_do_not_count(log):
    name = log.search("1", TRIED)
    log.call(name, "never shown")
    log.call("", "a")
    assert log.sessions() == [on_trial(1, 0, None)]


def test_a_search_name_that_is_used_again_is_another_search(log):
    log.used("1", TRIED, "a", search_id="same")
    log.used("1", TRIED, "a", search_id="same")
    assert log.sessions() == [on_trial(2, 2, 1.0)]


def test_what_was_before_the_trial_does_not_count(log):
    early = log.search("1", time=NOON - timedelta(seconds=1))
    log.call(early, "a")
    log.used("2", "", "a", time=NOON)
    assert log.sessions() == [in_use(1, 1, 1.0)]


def test_searches_without_a_session_or_by_words_are_left_out_and_counted(log):
    log.used("", "", "a")
    log.used("1", "", "a", mode="lexical")
    log.used("1", "", "b")
    dealt = log.dealt()
    assert list(dealt.sessions) == [in_use(1, 1, 0.5)]
    assert dealt.searches_left_out == 2


@pytest.mark.parametrize("trial", ["", OWN])
def test_searches_of_whoever_could_not_have_had_the_heads_are_left_out_and_counted(log, trial):
    log.used("1", "", "c", trial=trial)
    log.used("2", TRIED, "c", trial=trial)
    log.used("3", "", "a")
    dealt = log.dealt()
    assert list(dealt.sessions) == [in_use(1, 1, 1.0)]
    assert dealt.searches_left_out == 2


def test_a_session_of_both_sides_counts_for_what_the_heads_on_trial_answered(log):
    log.used("1", "", "c")
    log.used("1", TRIED, "a")
    assert log.sessions() == [on_trial(1, 1, 1.0)]


def test_sessions_of_two_tenants_are_two_whatever_they_are_called(log):
    log.used("1", TRIED, "a", tenant=ACME)
    log.used("1", "", "b", tenant=OTHER)
    assert log.sessions() == [on_trial(1, 1, 1.0, ACME), in_use(1, 1, 0.5, OTHER)]


def test_tenants_that_have_decided_are_left_out(log):
    log.used("1", TRIED, "a", tenant=ACME)
    log.used("2", TRIED, "b", tenant=OTHER)
    dealt = log.dealt(decided=[ACME], tenants={ACME: TRIED})
    assert list(dealt.sessions) == [on_trial(1, 1, 0.5, OTHER)]
    assert dealt.searches_left_out == 0


def test_a_tenant_with_heads_of_its_own_is_compared_with_those(log):
    log.used("1", OWN, "a", tenant=ACME)
    log.used("2", USED, "a", tenant=ACME)
    log.used("3", USED, "b", tenant=OTHER)
    sessions = log.sessions(in_use=USED, tenants={ACME: OWN})
    assert sessions == [in_use(1, 1, 1.0, ACME), in_use(1, 1, 0.5, OTHER)]
