import json
import shutil
from datetime import datetime, timezone

import numpy as np
import pytest
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st

from langchain_toolrag.errors import AdapterError
from langchain_toolrag.trial import directory as directory_module
from langchain_toolrag.trial.directory import HeadsDirectory
from langchain_toolrag.trial.state import Candidate, HeadsState, read_state, state_as_json

ACME, OTHER = "ac" * 32, "07" * 32

digests = st.text("0123456789abcdef", min_size=64, max_size=64)
states = st.builds(
    HeadsState,
    in_use=digests | st.just(""),
    previous=digests | st.just(""),
    candidate=st.none()
    | st.builds(
        Candidate,
        heads=digests,
        since=st.datetimes(timezones=st.just(timezone.utc)),
        decided=st.lists(digests, max_size=3).map(tuple),
    ),
    tenants=st.dictionaries(digests, digests | st.just(""), max_size=3),
)


def files(heads):
    """Digests of the files of heads that are there, and whatever else is."""
    names = {path.name.removesuffix(".safetensors") for path in heads.path.iterdir()}
    return names - {".lock", "heads.json"}


@given(state=states)
def test_a_state_is_read_as_it_was_written(state):
    assert read_state(state_as_json(state)) == state


@given(state=states, data=st.data())
def test_a_state_that_is_cut_short_is_refused_whole(state, data):
    content = state_as_json(state)
    length = data.draw(st.integers(0, len(content.rstrip()) - 1))
    with pytest.raises(ValueError, match="it is no JSON"):
        read_state(content[:length])


def test_a_folder_that_is_not_there_has_no_heads(heads):
    assert heads.state() == HeadsState()
    assert not heads.path.exists()


def test_heads_that_are_put_on_trial_can_be_read_and_answer_nobody_yet(heads, adapter):
    before = datetime.now(timezone.utc)
    digest = heads.put_on_trial(adapter(1))
    state = heads.state()
    assert (state.in_use, state.previous, state.tenants) == ("", "", {})
    assert state.candidate.heads == digest
    assert before <= state.candidate.since <= datetime.now(timezone.utc)
    assert heads.read(digest, "some-model").digest == digest
    assert files(heads) == {digest}


def test_a_candidate_takes_the_place_of_one_that_is_there_whose_file_is_deleted(heads, adapter):
    first = heads.put_on_trial(adapter(1))
    second = heads.put_on_trial(adapter(2))
    assert first != second
    assert heads.state().candidate.heads == second
    assert files(heads) == {second}


def test_files_of_somebody_else_are_not_deleted(heads, adapter):
    heads.path.mkdir()
    for name in ("mine.safetensors", "notes.txt"):
        (heads.path / name).write_text("precious")
    heads.put_on_trial(adapter(1))
    digest = heads.put_on_trial(adapter(2))
    assert files(heads) == {digest, "mine", "notes.txt"}


def test_a_promotion_takes_the_candidate_into_use_and_remembers_what_was(heads, adapter):
    first = heads.put_on_trial(adapter(1))
    heads.promote()
    assert heads.state() == HeadsState(in_use=first)
    second = heads.put_on_trial(adapter(2))
    heads.promote()
    assert heads.state() == HeadsState(in_use=second, previous=first)
    assert files(heads) == {first, second}


def test_a_trial_is_rolled_back_without_changing_what_is_in_use(heads, adapter):
    first = heads.put_on_trial(adapter(1))
    heads.promote()
    heads.put_on_trial(adapter(2))
    heads.roll_back()
    assert heads.state() == HeadsState(in_use=first)


def test_without_a_trial_a_promotion_is_undone_once(heads, adapter):
    first = heads.put_on_trial(adapter(1))
    heads.promote()
    heads.put_on_trial(adapter(2))
    heads.promote()
    heads.roll_back()
    assert heads.state().in_use == first
    with pytest.raises(AdapterError, match="nothing is on trial, and there is nothing to undo"):
        heads.roll_back()
    assert heads.state().in_use == first


def test_with_nothing_on_trial_there_is_nothing_to_promote(heads):
    with pytest.raises(AdapterError, match="nothing is on trial; `toolrag learn` makes heads"):
        heads.promote()
    with pytest.raises(AdapterError, match="nothing is on trial"):
        heads.promote(ACME)


def test_a_tenant_ends_its_own_trial_and_no_others(heads, adapter):
    first = heads.put_on_trial(adapter(1))
    heads.promote()
    second = heads.put_on_trial(adapter(2))
    heads.promote(ACME)
    heads.roll_back(OTHER)
    state = heads.state()
    assert state.candidate.decided == (OTHER, ACME)
    assert state.tenants == {ACME: second, OTHER: first}
    assert state.in_use == first


def test_what_tenants_decided_outlives_the_trial_of_the_others(heads, adapter):
    digest = heads.put_on_trial(adapter(1))
    heads.promote(ACME)
    heads.roll_back(OTHER)
    heads.promote()
    assert heads.state() == HeadsState(in_use=digest, tenants={ACME: digest, OTHER: ""})


def test_tenants_that_did_not_decide_about_a_candidate_have_what_everybody_has(heads, adapter):
    heads.put_on_trial(adapter(1))
    heads.promote(ACME)
    heads.roll_back()
    second = heads.put_on_trial(adapter(2))
    assert ACME in heads.state().tenants
    heads.promote()
    assert heads.state() == HeadsState(in_use=second)


def test_a_tenant_that_has_the_candidate_already_has_nothing_to_try(heads, adapter):
    digest = heads.put_on_trial(adapter(1))
    heads.promote(ACME)
    heads.roll_back()
    assert heads.put_on_trial(adapter(1)) == digest
    assert heads.state().candidate.decided == (ACME,)


def test_a_tenant_can_change_its_mind(heads, adapter):
    digest = heads.put_on_trial(adapter(1))
    heads.promote(ACME)
    heads.roll_back(ACME)
    assert heads.state().tenants == {ACME: ""}
    heads.promote(ACME)
    assert heads.state().tenants == {ACME: digest}
    assert heads.state().candidate.decided == (ACME,)


def test_without_a_trial_a_tenant_is_rolled_back_to_what_everybody_has(heads, adapter):
    heads.put_on_trial(adapter(1))
    heads.promote(ACME)
    heads.roll_back()
    heads.roll_back(ACME)
    assert heads.state() == HeadsState()
    with pytest.raises(AdapterError, match="it has none of its own") as raised:
        heads.roll_back(ACME)
    assert ACME in str(raised.value)


def test_what_was_seen_of_one_candidate_decides_nothing_about_the_next(heads, adapter):
    first = heads.put_on_trial(adapter(1))
    second = heads.put_on_trial(adapter(2))
    for decide in (heads.promote, heads.roll_back):
        with pytest.raises(AdapterError, match=f"{second} is on trial by now; wanted {first}"):
            decide(candidate=first)
    heads.promote(candidate=second)
    with pytest.raises(AdapterError, match=f"nothing is on trial by now; wanted {second}"):
        heads.roll_back(candidate=second)
    assert heads.state().in_use == second


def test_files_that_a_tenant_or_an_undo_needs_are_kept(heads, adapter):
    first = heads.put_on_trial(adapter(1))
    heads.promote()
    second = heads.put_on_trial(adapter(2))
    heads.promote(ACME)
    heads.roll_back()
    third = heads.put_on_trial(adapter(3))
    heads.promote(OTHER)
    fourth = heads.put_on_trial(adapter(4))
    assert files(heads) == {first, second, third, fourth}
    heads.promote()
    fifth = heads.put_on_trial(adapter(5))
    assert files(heads) == {first, fourth, fifth}


def test_heads_that_are_in_use_are_not_put_on_trial(heads, adapter):
    digest = heads.put_on_trial(adapter(1))
    heads.promote()
    with pytest.raises(AdapterError, match=f"{digest}.*is in use already"):
        heads.put_on_trial(adapter(1))
    assert heads.read(digest).digest == digest


@pytest.mark.parametrize("bad", ["low-rank", "too large for their precision"])
def test_what_cannot_be_used_as_heads_is_refused_and_changes_nothing(heads, adapter, bad):
    digest = heads.put_on_trial(adapter(1))
    learned = adapter(2, kind="low-rank") if bad == "low-rank" else adapter(2)
    if bad != "low-rank":
        learned.tensors["tool.first.bias"][0] = 1e30
    with pytest.raises(AdapterError), np.errstate(over="ignore"):
        heads.put_on_trial(learned)
    assert heads.state().candidate.heads == digest
    assert files(heads) == {digest}


def test_heads_of_another_model_are_refused(heads, adapter):
    digest = heads.put_on_trial(adapter(1))
    with pytest.raises(AdapterError, match=f"{digest}.*some-model; wanted heads of other-model"):
        heads.read(digest, "other-model")


def test_heads_that_are_gone_are_an_error_that_names_their_file(heads, adapter):
    digest = heads.put_on_trial(adapter(1))
    (heads.path / f"{digest}.safetensors").unlink()
    with pytest.raises(AdapterError, match=rf"{digest}.safetensors: cannot be read: No such file"):
        heads.read(digest)


@pytest.mark.parametrize("place", [0, 3, 60, -1], ids=["length", "length 2", "header", "weights"])
def test_one_flipped_bit_is_refused_with_both_digests(heads, adapter, place):
    digest = heads.put_on_trial(adapter(1))
    path = heads.path / f"{digest}.safetensors"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(AdapterError, match=rf"has the digest [0-9a-f]{{64}}; wanted {digest}"):
        heads.read(digest)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "it is no JSON"),
        ('{"v": 1, "in_use": "', "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        ("[]", r"found \[\]; wanted version 1"),
        ({"v": 2}, "found version 2; wanted version 1"),
        ({"in_use": ""}, "found version None"),
        ({"in_use": "../../etc/passwd"}, "'in_use' are '../../etc/passwd'; wanted 64 hexadecimal"),
        ({"in_use": "AB" * 32}, "wanted 64 hexadecimal digits"),
        ({"in_use": None}, "'in_use' are None"),
        ({"previous": 7}, "'previous' are 7"),
        ({"tenants": []}, r"its tenants are \[\]; wanted an object"),
        ({"tenants": {ACME: "x"}}, f"'{ACME}' are 'x'"),
        ({"candidate": "ab" * 32}, "wanted an object or null"),
        ({"candidate": {}}, "has decided None; wanted a list"),
        ({"candidate": {"decided": [1], "heads": ACME}}, r"has decided \[1\]"),
        ({"candidate": {"decided": [], "heads": ""}}, "names no heads"),
        ({"candidate": {"decided": [], "heads": ACME}}, "since None; wanted an ISO time"),
        ({"candidate": {"decided": [], "heads": ACME, "since": "noon"}}, "since 'noon'"),
        (
            {"candidate": {"decided": [], "heads": ACME, "since": "2026-11-03T12:00:00"}},
            "wanted a time with its zone",
        ),
        (
            {"candidate": {"decided": [], "heads": ACME, "since": "0001-01-01T00:00:00+14:00"}},
            "no time in UTC",
        ),
    ],
)
def test_a_state_that_cannot_be_is_refused_and_says_what_to_do(heads, adapter, content, problem):
    if isinstance(content, dict):
        whole = {"in_use": "", "previous": "", "candidate": None, "tenants": {}}
        content = json.dumps(
            {**({} if content == {"in_use": ""} else {"v": 1}), **whole, **content}
        )
    heads.path.mkdir()
    heads.state_file.write_text(content)
    for use in (
        heads.state,
        heads.promote,
        heads.roll_back,
        lambda: heads.put_on_trial(adapter(1)),
    ):
        with pytest.raises(AdapterError, match=problem) as raised:
            use()
        assert str(raised.value).startswith(f"the adapter {heads.state_file}: ")
        assert "Put back what was there, or remove the file" in str(raised.value)
    assert heads.state_file.read_text() == content


def test_a_file_in_the_place_of_the_folder_is_not_taken_for_an_empty_one(heads):
    heads.path.write_text("")
    with pytest.raises(AdapterError, match="Not a directory"):
        heads.state()


def test_a_folder_that_is_deleted_begins_again(heads, adapter):
    heads.put_on_trial(adapter(1))
    heads.promote()
    shutil.rmtree(heads.path)
    assert heads.state() == HeadsState()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path, adapter):
    (tmp_path / "file").write_text("")
    heads = HeadsDirectory(tmp_path / "file" / "heads")
    with pytest.raises(AdapterError, match="cannot be written"):
        heads.put_on_trial(adapter(1))


def test_a_lock_that_is_held_for_long_is_an_error(heads, adapter, monkeypatch):
    monkeypatch.setattr(directory_module, "_PATIENCE", 0.01)
    heads.put_on_trial(adapter(1))
    with (
        FileLock(heads.path / ".lock"),
        pytest.raises(AdapterError, match="another process has held its lock"),
    ):
        heads.promote()


def test_what_a_process_left_half_written_is_cleared_away(heads, adapter):
    heads.path.mkdir()
    for name in (".heads.json.17", "new.part", ".new.part.17"):
        (heads.path / name).write_text("half")
    digest = heads.put_on_trial(adapter(1))
    assert files(heads) == {digest}


def test_names_of_new_heads_are_on_the_disk_before_the_state_names_them(
    heads, adapter, monkeypatch
):
    done = []
    write, sync = directory_module.write_whole, directory_module._sync_names
    monkeypatch.setattr(
        directory_module,
        "write_whole",
        lambda path, content: (done.append(path.name), write(path, content)),
    )
    monkeypatch.setattr(
        directory_module, "_sync_names", lambda path: (done.append("names"), sync(path))
    )
    heads.put_on_trial(adapter(1))
    assert done == ["names", "heads.json", "names"]
