"""Scripts that fork processes of their own, run in a process of their own."""

import subprocess
import sys
import textwrap

# After a beginning that imports os, signal and sys and sets CHILD_SECONDS.
IN_CHILD = """
def in_child(work):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        signal.alarm(CHILD_SECONDS)
        work()
        sys.stdout.flush()
        os._exit(0)
    return child
"""


def run_script(begin, script, directory, *, seconds):
    """Return what a script prints, errors last."""
    done = subprocess.run(
        [sys.executable, "-c", begin + IN_CHILD + textwrap.dedent(script), str(directory)],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]
