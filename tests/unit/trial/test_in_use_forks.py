"""Forks of a process that follows a folder of heads.

Each test is one script, which forks its processes itself: importing once is what takes long.
"""

import functools
import os

import pytest
from forking_scripts import run_script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

BEGIN = """
import os, signal, sys, threading, time
import numpy as np
from langchain_toolrag.index.adapter import Adapter
from langchain_toolrag.trial import in_use as in_use_module
from langchain_toolrag.trial.directory import HeadsDirectory
from langchain_toolrag.trial.in_use import HeadsInUse

heads = HeadsDirectory(sys.argv[1])
CHILD_SECONDS = 30
in_use_module._LOOK_SECONDS = 0.0

def promote(seed):
    dice = np.random.default_rng(seed)
    shapes = {"first.weight": (2, 4), "first.bias": 2, "second.weight": (4, 2), "second.bias": 4}
    tensors = {
        f"{side}.{name}": dice.normal(size=shape)
        for side in ("request", "tool") for name, shape in shapes.items()
    }
    digest = heads.put_on_trial(Adapter("heads", "some-model", 1.0, tensors, {}))
    heads.promote()
    return digest

def follows(in_use, digest):
    "Whether it takes the heads into use."
    deadline = time.monotonic() + 10
    while in_use.digest != digest and time.monotonic() < deadline:
        in_use.chosen("")
        time.sleep(0.001)
    return in_use.digest == digest
"""

run = functools.partial(run_script, BEGIN, seconds=60)


def test_a_child_follows_the_folder_by_a_thread_of_its_own(tmp_path):
    lines = run(
        """
        in_use = HeadsInUse(heads.path, "some-model")
        print("parent:", follows(in_use, promote(1)))

        def use():
            print("child:", follows(in_use, promote(2)))
            in_use.close()

        print("status", os.waitpid(in_child(use), 0)[1])
        print("parent:", follows(in_use, promote(3)))
        """,
        tmp_path / "heads",
    )
    assert lines == ["parent: True", "child: True", "status 0", "parent: True"]


def test_a_child_of_a_parent_that_is_taking_heads_into_use_does_so_itself(tmp_path):
    lines = run(
        """
        entered, go_on = threading.Event(), threading.Event()

        def prepare(new):
            entered.set()
            go_on.wait()

        in_use = HeadsInUse(heads.path, "some-model", prepare=prepare)
        digest = promote(1)
        in_use.chosen("")
        entered.wait()

        def use():
            in_use._prepare = None
            print("child:", follows(in_use, digest))

        with in_use._lock:
            child = in_child(use)
        print("status", os.waitpid(child, 0)[1])
        print("parent still:", in_use.digest == "")
        go_on.set()
        print("parent:", follows(in_use, digest))
        """,
        tmp_path / "heads",
    )
    assert lines == ["child: True", "status 0", "parent still: True", "parent: True"]


def test_a_process_ends_although_heads_are_being_prepared_for(tmp_path):
    lines = run(
        """
        entered = threading.Event()

        def prepare(new):
            entered.set()
            threading.Event().wait()

        in_use = HeadsInUse(heads.path, "some-model", prepare=prepare)
        promote(1)
        in_use.chosen("")
        print("prepares:", entered.wait(10))
        """,
        tmp_path / "heads",
    )
    assert lines == ["prepares: True"]
