"""Scripts that fork processes of their own, run in a process of their own."""

import subprocess
import sys
import textwrap

# After a beginning that imports os, random, signal, sys and time, as far as it uses them, and sets
# CHILD_SECONDS.
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

def killed(write):
    # Return the numbers that a child reported, by `write(report)`, before it was killed.
    read, report = os.pipe()
    child = in_child(lambda: write(report))
    os.close(report)
    said = os.read(read, 3)  # It has begun.
    time.sleep(random.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while part := os.read(read, 65536):
        said += part
    os.close(read)
    return map(int, said.split()[: said.count(b" ")])
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
