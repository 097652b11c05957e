import json
import os
from datetime import timedelta

import numpy as np
import pytest

from langchain_toolrag import cli
from langchain_toolrag.index.adapter import Adapter
from langchain_toolrag.trial.directory import HeadsDirectory
from langchain_toolrag.usage.records import CallRecord, Retrieved, SearchRecord

ACME, ACNE, OTHER = "ac" * 32, "acae" * 16, "07" * 32
TOOLS = ("github/a", "github/b", "github/c", "github/d")


@pytest.fixture
def heads(tmp_path):
    return HeadsDirectory(tmp_path / "heads")


@pytest.fixture
def put_on_trial(heads):
    """Puts small heads on trial, other ones for each seed."""

    def put_on_trial(seed=1):
        dice = np.random.default_rng(seed)
        tensors = {}
        for side in ("request", "tool"):
            tensors[f"{side}.first.weight"] = dice.normal(size=(2, 4))
            tensors[f"{side}.first.bias"] = dice.normal(size=2)
            tensors[f"{side}.second.weight"] = dice.normal(size=(4, 2))
            tensors[f"{side}.second.bias"] = dice.normal(size=4)
        return heads.put_on_trial(Adapter("heads", "some-model", 1.0, tensors, {}))

    return put_on_trial


@pytest.fixture
def log(tmp_path, heads):
    """Logs sessions of a side, each of two searches and a call at each rank in turn, 0 for none."""

    def log(on_trial, sessions, ranks, *, tenant=""):
        candidate = heads.state().candidate
        answered = candidate.heads if on_trial else heads.state().of_tenant(tenant)
        folder = tmp_path / "usage"
        folder.mkdir(exist_ok=True)
        path = folder / f"usage-{candidate.since.date()}.jsonl"
        lines = []
        for number in range(sessions):
            name = f"{on_trial}-{tenant[:8]}-{number}"
            session = f"{name:0>64}"
            for turn in range(2):
                record = SearchRecord(
                    time=candidate.since + timedelta(seconds=number + turn / 2),
                    search_id=f"{name}-{turn}",
                    kind="select",
                    mode="semantic",
                    request="0" * 64,
                    retrieved=tuple(Retrieved(tool, n, None) for n, tool in enumerate(TOOLS, 1)),
                    session=session,
                    tenant=tenant,
                    heads=answered[:16],
                    trial=candidate.heads[:16],
                )
                lines.append(record.as_json())
            rank = ranks[number % len(ranks)]
            if rank:
                called = CallRecord(
                    record.time, name, TOOLS[rank - 1], "ok", f"{name}-1", tenant=tenant
                )
                lines.append(called.as_json())
        with path.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    return log


@pytest.fixture
def better(put_on_trial, log):
    """A trial whose heads are clearly better."""
    digest = put_on_trial()
    log(True, 40, [1, 1, 2])
    log(False, 200, [2, 3, 1, 4])
    return digest


def ab(tmp_path, *arguments):
    return cli.main(["ab", "--data", str(tmp_path), *arguments])


def test_a_trial_is_shown_with_its_figures_and_the_verdict(tmp_path, heads, better, capsys):
    assert ab(tmp_path) == 0
    since = heads.state().candidate.since
    assert capsys.readouterr().out.splitlines() == [
        f"on trial: heads {better[:12]}, since {since:%Y-%m-%d %H:%M} UTC",
        "in use:   the base model",
        f"log:      {tmp_path / 'usage'}",
        "",
        "              sessions  with calls  reciprocal rank calls per search",
        "on trial            40          40    0.838 ± 0.037    0.500 ± 0.000",
        "in use             200         200    0.521 ± 0.021    0.500 ± 0.000",
        "difference                           +0.317 ± 0.043   +0.000 ± 0.000",
        "(± is the standard error over sessions)",
        "",
        "promote: called tools stand higher by more than two standard errors, and as many",
        "are called",
    ]
    assert heads.state().in_use == ""


def test_a_verdict_is_carried_out_and_can_be_undone(tmp_path, heads, better, capsys):
    assert ab(tmp_path, "--decide") == 0
    assert capsys.readouterr().out.endswith(
        f"are called\n\npromoted: everybody has heads {better[:12]} now\n"
    )
    assert (heads.state().in_use, heads.state().candidate) == (better, None)
    assert ab(tmp_path) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{heads.path}: nothing is on trial; `toolrag learn` puts heads on trial",
        f"in use: heads {better[:12]}",
        "before: the base model; --roll-back takes it into use again",
    ]
    assert ab(tmp_path, "--roll-back") == 0
    assert capsys.readouterr().out == "rolled back: everybody has the base model now\n"
    assert heads.state().in_use == ""


def test_heads_that_are_worse_are_rolled_back(tmp_path, heads, put_on_trial, log, capsys):
    put_on_trial()
    log(True, 40, [2, 3, 4])
    log(False, 100, [1, 1, 2])
    assert ab(tmp_path, "--decide") == 0
    printed = capsys.readouterr().out
    assert "roll back: called tools stand lower by more than two standard errors\n" in printed
    assert printed.endswith("\nrolled back: everybody has the base model now\n")
    assert heads.state().candidate is None


def test_too_few_sessions_decide_nothing_and_it_says_how_many_are_missing(
    tmp_path, heads, put_on_trial, log, capsys
):
    digest = put_on_trial()
    log(True, 18, [1])
    log(False, 100, [2])
    assert ab(tmp_path, "--decide") == 0
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "undecided: at least 30 sessions with calls are needed on each side; 12 more on",
        "trial and 0 more in use",
        "",
        "nothing was changed: the figures decide nothing yet",
    ]
    assert heads.state().candidate.heads == digest


def test_a_difference_within_chance_says_how_many_sessions_would_decide(
    tmp_path, put_on_trial, log, capsys
):
    put_on_trial()
    log(True, 40, [1, 2, 1, 4])
    log(False, 120, [1, 2, 2, 3])
    assert ab(tmp_path) == 0
    verdict = " ".join(capsys.readouterr().out.splitlines()[-2:])
    assert verdict.startswith("undecided: called tools stand higher or lower by less than two")
    assert verdict.endswith("more sessions with calls if the difference stayed")


def test_sides_without_a_difference_say_so(tmp_path, put_on_trial, log, capsys):
    put_on_trial()
    log(True, 40, [1, 2])
    log(False, 80, [1, 2])
    assert ab(tmp_path) == 0
    assert capsys.readouterr().out.endswith("\nundecided: there is no difference\n")


def test_heads_after_which_fewer_tools_are_called_are_rolled_back(
    tmp_path, put_on_trial, log, capsys
):
    put_on_trial()
    log(True, 80, [1, 0])
    log(False, 80, [2])
    assert ab(tmp_path) == 0
    told = "roll back: fewer tools are called per search, by more than two standard errors"
    assert told in capsys.readouterr().out


def test_of_many_tenants_those_with_most_sessions_are_shown(tmp_path, put_on_trial, log, capsys):
    put_on_trial()
    for number in range(23):
        log(False, 2 + number, [1, 2], tenant=f"{number:02}" * 32)
    log(True, 1, [1], tenant="22" * 32)
    assert ab(tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "and 3 more: --json has them all"
    assert lines[-21].startswith("222222222222         1          24       +0.250 ± ?")
    assert lines[-2].startswith("030303030303         0           5                -")


def test_a_log_that_says_nothing_of_the_trial_is_no_error(tmp_path, put_on_trial, log, capsys):
    put_on_trial()
    assert ab(tmp_path, "--decide") == 0
    printed = capsys.readouterr().out
    assert "on trial             0           0                -                -" in printed
    assert "the log has no session that was dealt out since the trial began" in printed
    assert "30 more on trial and 30 more in use" in " ".join(printed.split())


def test_json_has_everything(tmp_path, heads, better, capsys):
    with (tmp_path / "usage" / "usage-2030-01-01.jsonl").open("w") as file:
        file.write('{"v":1,"ty\n')
    assert ab(tmp_path, "--json", "--decide") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["in_use"] == ""  # What was compared with.
    trial = printed["trial"]
    assert trial["heads"] == better
    assert trial["everybody"]["verdict"] == "promote"
    assert trial["everybody"]["on_trial"]["sessions"] == 40
    assert trial["everybody"]["reciprocal_rank"]["value"] == pytest.approx(0.317, abs=1e-3)
    assert trial["by_tenant"] == {}
    assert trial["skipped"] == {"torn": 1, "foreign": 0, "unknown_version": 0}
    assert printed["done"] == [{"what": "promote", "tenant": "", "heads": better}]
    assert ab(tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "in_use": better,
        "previous": "",
        "tenants": {},
        "trial": None,
    }


@pytest.fixture
def tenants(put_on_trial, log):
    """One tenant for whom the heads are better, one for whom they are worse, and the others."""
    digest = put_on_trial()
    log(True, 40, [1, 1, 2], tenant=ACME)
    log(False, 80, [2, 3, 4], tenant=ACME)
    log(True, 40, [2, 3, 4], tenant=OTHER)
    log(False, 60, [1, 1, 2], tenant=OTHER)
    log(True, 12, [1, 2], tenant=ACNE)
    log(False, 12, [1, 2], tenant=ACNE)
    return digest


def test_tenants_are_decided_for_one_by_one(tmp_path, heads, tenants, capsys):
    assert ab(tmp_path, "--decide") == 0
    lines = capsys.readouterr().out.splitlines()
    table = lines.index("tenant        on trial      in use  reciprocal rank calls per search")
    rows = [(line[:12].strip(), line[68:].strip()) for line in lines[table + 1 : table + 5]]
    assert rows == [
        (ACME[:12], "promote"),
        (OTHER[:12], "roll back"),
        (ACNE[:12], "undecided"),
        ("all others", "undecided"),
    ]
    assert lines[-2:] == [
        f"promoted: tenant {ACME[:12]} has heads {tenants[:12]} now",
        f"rolled back: tenant {OTHER[:12]} has the base model now",
    ]
    assert max(map(len, lines)) <= 80
    state = heads.state()
    assert state.tenants == {ACME: tenants, OTHER: ""}
    assert (state.in_use, state.candidate.heads) == ("", tenants)
    assert ab(tmp_path, "--decide") == 0
    again = capsys.readouterr().out
    assert "tenants left out that have decided: 2" in again
    assert again.endswith("nothing was changed: the figures decide nothing yet\n")


def test_everybody_else_is_decided_for_without_those_that_decided_for_themselves(
    tmp_path, heads, tenants, log, capsys
):
    log(True, 40, [1, 1, 2])
    log(False, 40, [3, 4])
    assert ab(tmp_path, "--decide") == 0
    assert capsys.readouterr().out.endswith(
        f"\npromoted: everybody else has heads {tenants[:12]} now\n"
    )
    assert heads.state().in_use == tenants
    assert heads.state().tenants == {ACME: tenants, OTHER: ""}
    assert heads.state().candidate is None


def test_one_tenant_is_shown_and_decided_for_alone(tmp_path, heads, tenants, capsys):
    assert ab(tmp_path, "--tenant", "07", "--decide") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[5].split()[:4] == ["on", "trial", "40", "40"]
    assert lines[-1] == f"rolled back: tenant {OTHER[:12]} has the base model now"
    assert heads.state().tenants == {OTHER: ""}
    assert ab(tmp_path, "--tenant", "07") == 0
    assert "the trial has ended for tenant 070707070707" in capsys.readouterr().out
    assert ab(tmp_path, "--tenant", "07", "--json") == 0
    assert json.loads(capsys.readouterr().out)["trial"]["by_tenant"] == {OTHER: None}


def test_a_tenant_is_promoted_and_rolled_back_by_hand(tmp_path, heads, tenants, capsys):
    assert ab(tmp_path, "--tenant", ACNE[:5], "--promote") == 0
    assert heads.state().tenants == {ACNE: tenants}
    assert ab(tmp_path, "--tenant", ACNE, "--roll-back", "--json") == 0
    out = capsys.readouterr().out
    assert json.loads(out[out.index("{") :]) == {
        "done": [{"what": "roll back", "tenant": ACNE, "heads": ""}]
    }
    assert heads.state().tenants == {ACNE: ""}


@pytest.mark.parametrize("act", ["--decide", "--promote", "--roll-back", "--json"])
def test_a_tenant_that_is_not_clear_is_an_error_and_changes_nothing(
    tmp_path, heads, tenants, capsys, act
):
    before = heads.state()
    assert ab(tmp_path, act, "--tenant", "ac") == 1
    assert capsys.readouterr().err == (
        "toolrag: ac: 2 tenants begin so: give more digits of acacacacacac, acaeacaeacae\n"
    )
    assert ab(tmp_path, act, "--tenant", "ff") == 1
    assert capsys.readouterr().err == (
        "toolrag: ff: no tenant of the trial begins so; there are 070707070707, acacacacacac, "
        "acaeacaeacae\n"
    )
    assert heads.state() == before


def test_a_tenant_where_no_session_has_one_is_an_error(tmp_path, better, capsys):
    assert ab(tmp_path, "--tenant", "ac") == 1
    assert capsys.readouterr().err == "toolrag: ac: no session of the trial has a tenant\n"


def test_a_tenant_that_is_no_digest_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        ab(tmp_path, "--tenant", "acme")
    assert ended.value.code == 2
    assert "'acme' is not 1 to 64 hexadecimal digits" in capsys.readouterr().err


def test_without_a_trial_there_is_nothing_to_compare_or_promote(tmp_path, heads, capsys):
    for arguments in ([], ["--decide"]):
        assert ab(tmp_path, *arguments) == 0
        assert capsys.readouterr().out.splitlines() == [
            f"{heads.path}: nothing is on trial; `toolrag learn` puts heads on trial",
            "in use: the base model",
        ]
    for act in ("--promote", "--roll-back"):
        assert ab(tmp_path, act) == 1
        assert "nothing is on trial" in capsys.readouterr().err
    assert not heads.path.exists()


def test_two_acts_at_once_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        ab(tmp_path, "--promote", "--roll-back")
    assert "not allowed with" in capsys.readouterr().err


def test_a_directory_that_is_not_there_is_an_error(tmp_path, capsys):
    assert ab(tmp_path / "nowhere") == 1
    assert capsys.readouterr().err == (
        f"toolrag: {tmp_path / 'nowhere'}: is no directory; wanted the one `toolrag learn` "
        "learned from\n"
    )


def test_a_torn_state_is_an_error_that_says_what_to_do(tmp_path, heads, better, capsys):
    heads.state_file.write_text('{"v": 1, "in_')
    assert ab(tmp_path) == 1
    assert "heads.json: it is no JSON" in (printed := capsys.readouterr().err)
    assert "Put back what was there, or remove the file" in printed


def test_a_log_that_may_not_be_read_stops_figures_but_no_roll_back(
    tmp_path, heads, better, monkeypatch, capsys
):
    monkeypatch.setattr(os, "access", lambda *_: False)  # For root all can be read.
    assert ab(tmp_path) == 1
    assert capsys.readouterr().err == (
        f"toolrag: {tmp_path / 'usage'}: cannot be read: Permission denied\n"
    )
    assert ab(tmp_path, "--roll-back") == 0
    assert heads.state().candidate is None


def test_a_candidate_that_comes_while_the_log_is_read_is_not_decided_about(
    tmp_path, heads, better, put_on_trial, monkeypatch, capsys
):
    compare_trial = cli.ab.compare_trial
    monkeypatch.setattr(
        cli.ab, "compare_trial", lambda sessions: (compare_trial(sessions), put_on_trial(2))[0]
    )
    assert ab(tmp_path, "--decide") == 1
    assert f"is on trial by now; wanted {better}" in capsys.readouterr().err
    assert heads.state().in_use == ""


def test_a_directory_that_cannot_be_looked_at_is_an_error(tmp_path, monkeypatch, capsys):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "is_dir", refuse)
    assert ab(tmp_path) == 1
    assert capsys.readouterr().err == f"toolrag: {tmp_path}: cannot be read: Permission denied\n"


class TestFoldersThatAreNamed:
    """A database has none, and those of a directory may be elsewhere."""

    def test_are_enough_without_a_directory(self, tmp_path, heads, better, capsys):
        assert ab(tmp_path) == 0
        expected = capsys.readouterr().out
        folders = ["--usage-dir", str(tmp_path / "usage"), "--heads", str(heads.path)]

        assert cli.main(["ab", *folders]) == 0
        assert capsys.readouterr().out == expected
        assert cli.main(["ab", *folders, "--decide"]) == 0
        assert heads.state().in_use == better

    def test_come_before_those_of_the_directory(self, tmp_path, better, capsys):
        assert ab(tmp_path, "--usage-dir", str(tmp_path / "other")) == 0
        assert f"log:      {tmp_path / 'other'}\n" in capsys.readouterr().out
        assert ab(tmp_path, "--heads", str(tmp_path / "other")) == 0
        assert f"{tmp_path / 'other'}: nothing is on trial" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("given", "wanted", "what"),
        [
            ([], "--usage-dir", "is the usage log"),
            (["--usage-dir", "usage"], "--heads", "are the learned heads"),
            (["--heads", "heads"], "--usage-dir", "is the usage log"),
        ],
    )
    def test_are_both_needed_without_a_directory(self, given, wanted, what, capsys, monkeypatch):
        monkeypatch.setenv("TOOLRAG_DATABASE", "host=/nowhere")
        assert cli.main(["ab", *given]) == 1
        assert capsys.readouterr().err == (
            f"toolrag: {wanted}: where {what}? give {wanted} DIR, or --data DIR, which has that "
            "folder in it; a database has no folders\n"
        )
