import gc
import logging
import math
import shutil
import threading
import time
import timeit
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_toolrag.trial import in_use as in_use_module
from langchain_toolrag.trial.in_use import HeadsInUse

ACME, OTHER = "ac" * 32, "07" * 32
SESSIONS = [f"session {number}" for number in range(2000)]


@pytest.fixture
def follow(heads, monkeypatch):
    """Makes what follows the folder, and looks at it at every question."""
    monkeypatch.setattr(in_use_module, "_LOOK_SECONDS", 0.0)
    made = []

    def make(share=0.5, **others):
        made.append(HeadsInUse(heads.path, "some-model", candidate_share=share, **others))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def promote(heads, adapter):
    """Takes heads into use for everybody, other ones for each seed."""

    def promote(seed):
        digest = heads.put_on_trial(adapter(seed))
        heads.promote()
        return digest

    return promote


def looked(in_use):
    """Have it look, and wait until what it has seen is in use."""
    settled(in_use).chosen("")
    return settled(in_use)


def settled(in_use):
    """Wait until it is not reading: what it reads may be older than what there is now."""
    thread = in_use._thread
    if thread is not None:
        thread.join()
    return in_use


def chosen(in_use, session="", tenant=""):
    heads = looked(in_use).chosen(session, tenant)
    settled(in_use)
    return "" if heads is None else heads.digest


def edit(heads, digest):
    """Change one bit of a file of heads."""
    path = heads.path / f"{digest}.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    return path


def test_without_a_folder_the_base_model_answers(follow):
    in_use = follow()
    assert in_use.chosen("anybody") is None
    assert (in_use.digest, in_use.has_tenants, in_use.problem) == ("", False, "")


def test_heads_that_are_in_use_answer_everybody_from_the_first_search_on(follow, promote):
    digest = promote(1)
    in_use = follow()
    assert in_use.digest == digest
    assert in_use.chosen("").digest == in_use.chosen("a", ACME).digest == digest


def test_heads_that_are_promoted_later_are_used_without_a_restart(follow, promote):
    in_use = follow()
    for seed in range(3):
        assert chosen(in_use) != (digest := promote(seed))
        assert chosen(in_use) == in_use.digest == digest


def test_a_promotion_that_is_undone_is_undone_without_a_restart(follow, promote, heads):
    digest = promote(1)
    in_use = follow()
    assert chosen(in_use) == digest
    heads.roll_back()
    assert chosen(in_use) == ""


def test_a_folder_that_is_deleted_means_the_base_model(follow, promote, heads):
    promote(1)
    in_use = follow()
    shutil.rmtree(heads.path)
    assert chosen(in_use) == ""
    assert in_use.problem == ""


@settings(max_examples=20, deadline=None)
@given(smaller=st.floats(0, 1), larger=st.floats(0, 1))
def test_a_larger_share_has_the_sessions_of_a_smaller(smaller, larger):
    smaller, larger = sorted([smaller, larger])
    places = [in_use_module._place(session, ACME) for session in SESSIONS]
    assert all(0 <= place < 1 for place in places)
    assert {p for p in places if p < smaller} <= {p for p in places if p < larger}


@given(session=st.text(), candidate=st.sampled_from([ACME, OTHER]))
def test_a_session_has_the_same_place_whoever_asks(session, candidate):
    assert in_use_module._place(session, candidate) == in_use_module._place(session, candidate)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.9])
def test_about_the_share_of_sessions_is_on_trial_and_stays_so(follow, heads, adapter, share):
    candidate = heads.put_on_trial(adapter(1))
    in_use, again = follow(share), follow(share)
    on_trial = {session for session in SESSIONS if in_use.chosen(session) is not None}
    deviation = math.sqrt(len(SESSIONS) * share * (1 - share))
    assert abs(len(on_trial) - share * len(SESSIONS)) < 5 * deviation
    assert on_trial == {session for session in SESSIONS if again.chosen(session) is not None}
    assert {in_use.chosen(session).digest for session in on_trial} == {candidate}


def test_another_candidate_is_tried_on_other_sessions(follow, heads, adapter):
    in_use = follow(0.5)
    on_trial = []
    for seed in (1, 2):
        heads.put_on_trial(adapter(seed))
        looked(in_use)
        on_trial.append({session for session in SESSIONS if in_use.chosen(session) is not None})
    both = len(on_trial[0] & on_trial[1])
    assert abs(both - len(SESSIONS) / 4) < 5 * math.sqrt(len(SESSIONS) * 3 / 16)


def test_a_share_of_nothing_tries_nobody_and_one_of_everything_all(follow, heads, adapter):
    heads.put_on_trial(adapter(1))
    nobody, everybody = follow(0), follow(1)
    assert all(nobody.chosen(session) is None for session in SESSIONS)
    assert all(everybody.chosen(session) is not None for session in SESSIONS)


def test_who_is_not_known_is_never_on_trial(follow, promote, heads, adapter):
    digest = promote(1)
    heads.put_on_trial(adapter(2))
    in_use = follow(1.0)
    assert in_use.chosen("").digest == in_use.chosen("", ACME).digest == digest


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_a_share_that_is_none_is_refused(heads, share):
    with pytest.raises(ValueError, match=r"candidate_share is .*; wanted 0 to 1"):
        HeadsInUse(heads.path, "some-model", candidate_share=share)


def test_a_tenant_that_has_decided_has_its_own_heads_and_no_trial(follow, heads, adapter, promote):
    base = promote(1)
    candidate = heads.put_on_trial(adapter(2))
    in_use = follow(1.0)
    assert not in_use.has_tenants
    heads.promote(ACME)
    heads.roll_back(OTHER)
    assert chosen(in_use, "", ACME) == chosen(in_use, "anybody", ACME) == candidate
    assert chosen(in_use, "anybody", OTHER) == base
    assert chosen(in_use, "anybody") == chosen(in_use, "anybody", "be" * 32) == candidate
    assert in_use.has_tenants
    heads.roll_back()
    assert chosen(in_use, "anybody") == chosen(in_use, "anybody", "be" * 32) == base
    assert chosen(in_use, "anybody", ACME) == candidate


def test_it_says_for_whom_heads_are_on_trial_whichever_answer(follow, heads, adapter):
    nobody, some, foreign = follow(0), follow(0.5), HeadsInUse(heads.path, "other-model")
    candidate = heads.put_on_trial(adapter(1))
    heads.roll_back(OTHER)
    looked(some)
    for in_use in (nobody, some, foreign):
        wanted = candidate if in_use is some else ""
        assert {looked(in_use).trial_of(session, ACME) for session in SESSIONS[:20]} == {wanted}
        assert in_use.trial_of("") == in_use.trial_of("anybody", OTHER) == ""
    foreign.close()


def test_heads_that_stay_are_the_same_object(follow, heads, adapter, promote):
    promote(1)
    in_use = follow()
    before = in_use.chosen("")
    heads.put_on_trial(adapter(2))
    assert looked(in_use).chosen("") is before


def test_an_edited_file_leaves_the_old_heads_in_use_and_says_so_once(
    follow, promote, heads, caplog
):
    old = promote(1)
    in_use = follow()
    new = promote(2)
    path = edit(heads, new)
    for _ in range(5):
        assert chosen(in_use) == old
    (record,) = caplog.records
    assert str(path) in record.getMessage()
    assert f"wanted {new}" in record.getMessage()
    assert record.getMessage().endswith("Heads that were in use before stay so")
    assert in_use.problem in record.getMessage()
    assert in_use.problem != ""
    edit(heads, new)
    assert chosen(in_use) == new
    assert in_use.problem == ""


@pytest.mark.parametrize(
    ("content", "problem"),
    [('{"v": 1, "in_use"', "no JSON"), ('{"v": 2}', "found version 2"), ("", "no JSON")],
)
def test_a_state_that_cannot_be_read_changes_nothing_until_it_can(
    follow, promote, heads, caplog, content, problem
):
    old = promote(1)
    in_use = follow()
    good = heads.state_file.read_text()
    heads.state_file.write_text(content)
    for _ in range(3):
        assert chosen(in_use) == old
    assert problem in in_use.problem
    assert len(caplog.records) == 1
    heads.state_file.write_text(good)
    assert chosen(in_use) == old
    assert in_use.problem == ""
    assert len(caplog.records) == 1


def test_heads_of_another_model_are_not_used(follow, promote, heads, adapter, caplog):
    old = promote(1)
    in_use = follow()
    heads.put_on_trial(adapter(2, base="other-model"))
    heads.promote()
    assert chosen(in_use) == old
    assert "heads of other-model; wanted heads of some-model" in in_use.problem
    assert len(caplog.records) == 1


def test_what_is_wrong_at_the_first_read_means_the_base_model(follow, promote, heads, caplog):
    digest = promote(1)
    edit(heads, digest)
    in_use = follow()
    assert in_use.chosen("") is None
    assert digest in in_use.problem
    assert len(caplog.records) == 1
    edit(heads, digest)
    assert chosen(in_use) == digest


def test_a_bad_candidate_takes_nothing_from_what_is_in_use(follow, promote, heads, adapter, caplog):
    digest = promote(1)
    candidate = heads.put_on_trial(adapter(2))
    edit(heads, candidate)
    in_use = follow(1.0)
    assert chosen(in_use, "anybody") == digest
    assert candidate in in_use.problem
    assert len(caplog.records) == 1


def test_a_tenants_bad_heads_take_nothing_from_the_others(follow, promote, heads, adapter):
    digest = promote(1)
    own = heads.put_on_trial(adapter(2))
    heads.promote(ACME)
    edit(heads, own)
    in_use = follow(0.0)
    assert chosen(in_use, "", ACME) == chosen(in_use, "", OTHER) == digest
    assert own in in_use.problem


def test_heads_that_are_replaced_while_they_are_read_are_no_problem(
    follow, promote, heads, adapter, monkeypatch, caplog
):
    digest = promote(1)
    heads.put_on_trial(adapter(2))
    read, put_meanwhile = in_use_module.HeadsDirectory.read, iter([3])

    def slow_read(directory, wanted, model=""):
        for seed in put_meanwhile:
            heads.put_on_trial(adapter(seed))
        return read(directory, wanted, model)

    monkeypatch.setattr(in_use_module.HeadsDirectory, "read", slow_read)
    in_use = follow(1.0)
    assert in_use.problem == ""
    assert in_use.chosen("anybody").digest == heads.state().candidate.heads
    assert in_use.digest == digest
    assert caplog.records == []


def test_new_heads_are_prepared_for_in_a_thread_before_they_are_used(
    follow, promote, heads, adapter
):
    entered, go_on = threading.Event(), threading.Event()
    prepared = []

    def prepare(new):
        prepared.append((new.digest, threading.current_thread().name))
        entered.set()
        go_on.wait(10)

    old = promote(1)
    in_use = follow(1.0, prepare=prepare)
    assert prepared == []  # The first search makes what it needs.
    new = heads.put_on_trial(adapter(2))
    in_use.chosen("")
    assert entered.wait(10)
    assert in_use.chosen("anybody").digest == old
    go_on.set()
    assert chosen(in_use, "anybody") == new
    heads.promote()
    assert chosen(in_use) == new
    assert prepared == [(new, "toolrag-heads")]


def test_heads_that_cannot_be_prepared_for_are_used_all_the_same(follow, promote, caplog):
    def prepare(new):
        raise MemoryError("too many rows")

    in_use = follow(prepare=prepare)
    digest = promote(1)
    assert chosen(in_use) == digest
    (record,) = caplog.records
    assert "could not be prepared for: MemoryError: too many rows" in record.getMessage()
    assert in_use.problem == ""


def test_what_is_closed_looks_no_more_and_answers_on(follow, promote):
    digest = promote(1)
    in_use = follow()
    in_use.close()
    promote(2)
    for _ in range(3):
        assert chosen(in_use) == digest
    in_use.close()


def test_closing_ends_the_thread_and_takes_nothing_into_use(follow, promote):
    entered = threading.Event()

    def prepare(new):
        entered.set()
        while not in_use._closed:
            time.sleep(0.001)

    in_use = follow(prepare=prepare)
    promote(1)
    in_use.chosen("")
    assert entered.wait(10)
    thread = in_use._thread
    assert thread.daemon
    assert thread in threading.enumerate()
    in_use.close()
    assert not thread.is_alive()
    assert in_use.chosen("") is None


def test_many_threads_that_ask_at_once_all_have_the_new_heads_in_the_end(follow, promote):
    in_use = follow()
    wanted = [promote(seed) for seed in range(3)]
    seen, stop = set(), threading.Event()

    def ask():
        while not stop.is_set():
            heads = in_use.chosen("a")
            seen.add("" if heads is None else heads.digest)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    wanted.append(promote(9))
    deadline = time.monotonic() + 10
    while in_use.digest != wanted[-1] and time.monotonic() < deadline:
        time.sleep(0.001)
    stop.set()
    for thread in threads:
        thread.join()
    assert chosen(in_use) == wanted[-1]
    assert seen <= {"", *wanted}


def test_a_thread_that_cannot_be_started_is_started_later(follow, promote, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread at interpreter shutdown")

    in_use = follow()
    digest = promote(1)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert in_use.chosen("") is None
    assert chosen(in_use) == digest


def test_a_folder_that_may_not_be_looked_at_changes_nothing(follow, promote, heads, monkeypatch):
    digest = promote(1)
    in_use = follow()

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        for name in ("stat", "read_bytes"):
            patched.setattr(type(heads.path), name, refuse)
        assert chosen(in_use) == digest
        assert "cannot be read: Permission denied" in in_use.problem
    assert chosen(in_use) == digest
    assert in_use.problem == ""


def test_the_file_is_looked_at_once_a_second(heads, promote, monkeypatch):
    promote(1)
    now = [100.0]
    monkeypatch.setattr(in_use_module.time, "monotonic", lambda: now[0])
    in_use = HeadsInUse(heads.path, "some-model")
    looks = []
    signature = in_use._signature
    monkeypatch.setattr(in_use, "_signature", lambda: (looks.append(now[0]), signature())[1])
    for passed in (0.5, 0.4, 0.2, 0.9, 0.2):
        now[0] += passed
        for _ in range(10):
            in_use.chosen("a")
    assert looks == [pytest.approx(101.1), pytest.approx(102.2)]
    in_use.close()


def test_one_that_is_dropped_is_collected(heads):
    in_use = HeadsInUse(heads.path, "some-model")
    gone = weakref.ref(in_use)
    del in_use
    gc.collect()
    assert gone() is None


def test_a_choice_takes_microseconds(heads, promote, adapter):
    promote(1)
    heads.put_on_trial(adapter(2))
    in_use = HeadsInUse(heads.path, "some-model", candidate_share=0.1)
    seconds = min(timeit.repeat(lambda: in_use.chosen("thread-17", ACME), number=2000, repeat=5))
    logging.getLogger(__name__).info("%.2f µs", seconds / 2000 * 1e6)
    assert seconds / 2000 < 20e-6  # About 2 where nothing else runs.
