"""Processes that die while they change which heads answer, or change it at once.

Each test is one script, which forks its processes itself: importing once is what takes long.
"""

import functools
import os

import pytest
from forking_scripts import run_script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

BEGIN = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np
from langchain_toolrag.errors import AdapterError
from langchain_toolrag.index.adapter import Adapter
from langchain_toolrag.trial.directory import HeadsDirectory

heads = HeadsDirectory(sys.argv[1])
CHILD_SECONDS = 60
TENANTS = ["ac" * 32, "07" * 32]

def adapter(seed):
    dice = np.random.default_rng(seed)
    shapes = {"first.weight": (2, 4), "first.bias": 2, "second.weight": (4, 2), "second.bias": 4}
    tensors = {
        f"{side}.{name}": dice.normal(size=shape)
        for side in ("request", "tool") for name, shape in shapes.items()
    }
    return Adapter("heads", "some-model", 1.0, tensors, {})

def change(dice):
    "Change something; what there is nothing to do for is no matter."
    tenant = dice.choice(["", *TENANTS])
    what = dice.choice([heads.put_on_trial, heads.promote, heads.roll_back])
    try:
        what(adapter(dice.randrange(6))) if what == heads.put_on_trial else what(tenant)
    except AdapterError as error:
        if "nothing" not in str(error) and "none of its own" not in str(error):
            print("unexpected:", error)

def unreadable():
    "Return what the state names and cannot be read; a torn state raises."
    found = []
    for digest in heads.state().named():
        try:
            heads.read(digest, "some-model")
        except AdapterError as error:
            found.append(str(error))
    return found
"""

run = functools.partial(run_script, BEGIN, seconds=100)


def test_a_process_that_is_killed_at_any_moment_leaves_a_state_whose_heads_can_be_read(tmp_path):
    lines = run(
        """
        def change_on(report, seed):
            dice = random.Random(seed)
            while True:
                os.write(report, b".")
                change(dice)

        states = set()
        for round in range(40):
            read, report = os.pipe()
            child = in_child(lambda: change_on(report, round))
            os.close(report)
            for _ in range(random.randint(1, 4)):
                os.read(read, 1)  # It begins with the next change.
            time.sleep(random.uniform(0, 0.01))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(read)
            for problem in unreadable():
                print("round", round, problem)
            states.add(heads.state_file.read_bytes() if heads.state_file.exists() else b"")
        print("changed often:", len(states) > 10)
        heads.put_on_trial(adapter(99))
        left = {path.name for path in heads.path.iterdir()} - {".lock", "heads.json"}
        print(left == {f"{digest}.safetensors" for digest in heads.state().named()})
        """,
        tmp_path / "heads",
    )
    assert lines == ["changed often: True", "True"]


def test_a_change_that_dies_between_any_two_steps_leaves_the_old_state_or_the_new(tmp_path):
    lines = run(
        """
        import sys

        def die_at(step, change):
            "Kill the process as it enters its step-th function of the module or of atomic."
            passed = 0
            def trace(frame, event, _):
                nonlocal passed
                if event == "call" and Path(frame.f_code.co_filename).name in (
                    "directory.py", "atomic.py", "adapter.py"
                ):
                    passed += 1
                    if passed == step:
                        os.kill(os.getpid(), signal.SIGKILL)
            sys.setprofile(trace)
            change()

        heads.put_on_trial(adapter(1)); heads.promote(); heads.put_on_trial(adapter(2))
        killed = 0
        for name, change in {
            "promote": heads.promote,
            "trial": lambda: heads.put_on_trial(adapter(3)),
            "tenant": lambda: heads.promote(TENANTS[0]),
            "roll back": heads.roll_back,
        }.items():
            for step in range(1, 200):
                before = heads.state()
                status = os.waitpid(in_child(lambda: die_at(step, change)), 0)[1]
                after = heads.state()
                if unreadable():
                    print(name, step, unreadable())
                if status == 0:
                    break
                killed += 1
                if after != before:  # It was done all the same: once more from where it began.
                    break
            print(name, before != after)
            if name == "promote":
                heads.put_on_trial(adapter(4))
        print("killed often:", killed > 20)
        """,
        tmp_path / "heads",
    )
    assert lines == [
        "promote True",
        "trial True",
        "tenant True",
        "roll back True",
        "killed often: True",
    ]


def test_of_processes_that_change_at_once_each_changes_what_another_left(tmp_path):
    lines = run(
        """
        def decide(process):
            for n in range(20):
                heads.promote(f"{process:02}{n:02}" + "0" * 60)

        digest = heads.put_on_trial(adapter(1))
        for child in [in_child(lambda: decide(process)) for process in range(3)]:
            print("status", os.waitpid(child, 0)[1])
        state = heads.state()
        print(len(state.tenants), len(state.candidate.decided))
        print(set(state.tenants.values()) == {digest})
        """,
        tmp_path / "heads",
    )
    assert lines == [*["status 0"] * 3, "60 60", "True"]


def test_of_two_processes_that_promote_at_once_one_has_nothing_to_promote(tmp_path):
    lines = run(
        """
        def promote():
            try:
                heads.promote()
            except AdapterError:
                os._exit(1)

        heads.put_on_trial(adapter(1)); heads.promote()
        for n in range(2, 12):
            digest = heads.put_on_trial(adapter(n))
            children = [in_child(promote), in_child(promote)]
            statuses = sorted(os.waitpid(child, 0)[1] >> 8 for child in children)
            state = heads.state()
            if statuses != [0, 1] or state.in_use != digest or state.previous == digest:
                print(n, statuses, state)
        """,
        tmp_path / "heads",
    )
    assert lines == []


def test_processes_that_read_beside_one_that_changes_see_whole_states(tmp_path):
    lines = run(
        """
        def change_often():
            dice = random.Random(0)
            for _ in range(150):
                change(dice)

        child = in_child(change_often)
        reads = 0
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            before = heads.state()
            gone = unreadable()
            # Heads may be deleted once the state does not name them any more.
            if gone and heads.state() == before:
                print(gone)
            reads += 1
        print("read often:", reads > 20)
        """,
        tmp_path / "heads",
    )
    assert lines == ["read often: True"]
