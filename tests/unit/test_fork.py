"""Each test forks in a process of its own, which a signal ends if it hangs."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from langchain_toolrag.fork import reset_after_fork

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

TESTS = Path(__file__).parents[1]
BEGIN = """
import os, signal, sys, threading
from fakes import HashingEmbeddings, make_catalogue, make_tool
from langchain_toolrag import ToolRAG

def in_child(work, seconds):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)
        print("child:", work(), flush=True)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    hung = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
    print("hung" if hung else f"status {status}", flush=True)
    os._exit(0)  # Threads that hold locks are not waited for.

def held(entered, work):
    threading.Thread(target=work, daemon=True).start()
    if not entered.wait(20):
        sys.exit("the thread never got there")
"""


def run(script, seconds=60):
    """Return what a script prints."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, "PYTHONPATH": str(TESTS), "TOKENIZERS_PARALLELISM": "false"},
        check=False,
    )
    return done.stdout.splitlines() or done.stderr.splitlines()


def test_a_child_selects_with_what_the_parent_built():
    lines = run("""
        rag = ToolRAG(make_catalogue(), embeddings=HashingEmbeddings())
        in_child(lambda: rag.select("current weather in a city").names[0], seconds=15)
    """)
    assert lines == ["child: get_weather", "status 0"]


def test_a_child_selects_after_the_parent_has_selected():
    lines = run("""
        rag = ToolRAG(make_catalogue(), embeddings=HashingEmbeddings())
        rag.select("plays a song")
        in_child(lambda: rag.select("current weather in a city").names[0], seconds=15)
    """)
    assert lines == ["child: get_weather", "status 0"]


def test_a_child_selects_while_a_thread_of_the_parent_embeds():
    lines = run("""
        parent, entered = os.getpid(), threading.Event()

        class SlowEmbeddings(HashingEmbeddings):
            def embed_documents(self, texts):
                if os.getpid() == parent:
                    entered.set()
                    threading.Event().wait()
                return super().embed_documents(texts)

        rag = ToolRAG(make_catalogue(), embeddings=SlowEmbeddings())
        held(entered, rag.index)
        in_child(lambda: rag.select("current weather in a city").names[0], seconds=15)
    """)
    assert lines == ["child: get_weather", "status 0"]


def test_a_child_changes_its_tools_while_a_thread_of_the_parent_changes_them():
    lines = run("""
        entered = threading.Event()

        def slow_tools():
            yield make_tool("first")
            entered.set()
            threading.Event().wait()

        rag = ToolRAG(make_catalogue(), embeddings=HashingEmbeddings())
        held(entered, lambda: rag.refresh(slow_tools()))

        def work():
            rag.add([make_tool("get_pollen", "Pollen today.")])
            return rag.select("pollen today").names[0], len(rag.tools)

        in_child(work, seconds=15)
    """)
    assert lines == ["child: ('get_pollen', 13)", "status 0"]


@pytest.mark.parametrize("lock", ["rag._timing", "rag._changing", "rag.tool_index._writing"])
def test_a_child_works_although_a_thread_of_the_parent_held_a_lock(lock):
    lines = run(f"""
        rag = ToolRAG(make_catalogue(), embeddings=HashingEmbeddings())
        entered = threading.Event()

        def hold():
            with {lock}:
                entered.set()
                threading.Event().wait()

        held(entered, hold)

        def work():
            rag.refresh(make_catalogue()[:3])
            rag.reindex([])
            rag.close()
            return rag.select("weather forecast for the next days").names[0]

        in_child(work, seconds=15)
    """)
    assert lines == ["child: get_forecast", "status 0"]


def test_a_child_forgets_the_parents_timer():
    lines = run("""
        rag = ToolRAG(make_catalogue(), embeddings=HashingEmbeddings(), debounce_ms=60_000)
        rag.reindex([])
        in_child(lambda: (rag.close(), len(rag.tools)), seconds=15)
    """)
    assert lines == ["child: (None, 12)", "status 0"]


def test_a_child_selects_by_the_real_model_after_the_parent_has():
    lines = run(
        """
        rag = ToolRAG(make_catalogue())
        print("parent:", rag.select("is it raining in Pune").degraded or "by meaning")
        in_child(lambda: rag.select("is it raining in Pune").degraded or "by meaning", seconds=60)
        """,
        seconds=150,
    )
    assert lines == ["parent: by meaning", "child: by meaning", "status 0"]


def test_what_is_no_longer_used_is_not_kept_alive():
    class Forkable:
        def after_fork(self):
            """Nothing to do."""

    import gc
    import weakref

    forkable = Forkable()
    gone = weakref.ref(forkable)
    reset_after_fork(forkable)
    del forkable
    gc.collect()
    assert gone() is None
