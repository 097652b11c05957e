"""Run this folder's tests and print how many cases pass, by file and strength.

`python tests/cases/report.py`; further arguments go to pytest. A case passes if all its tests do.
"""

import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

HERE = Path(__file__).parent
STRENGTHS = ("must", "should", "debatable")


class Outcome(NamedTuple):
    """A test's file, its case's strength and id, and what went wrong."""

    file: str
    strength: str
    case: str
    failure: str


def main(arguments):
    with tempfile.TemporaryDirectory() as directory:
        results = Path(directory) / "results.xml"
        command = [sys.executable, "-m", "pytest", str(HERE), "-q", "--tb=short"]
        done = subprocess.run(
            [*command, f"--junitxml={results}", *arguments],
            cwd=HERE.parents[1],
            capture_output=True,
            text=True,
        )
        if not results.exists():
            sys.stderr.write(done.stdout + done.stderr)
            return done.returncode
        outcomes = list(_outcomes(ElementTree.parse(results)))
    sys.stdout.write("\n".join([*_table(outcomes), "", *_failures(outcomes), ""]))
    return done.returncode


def _outcomes(tree):
    for test in tree.iter("testcase"):
        strength, _, case = test.get("name").partition("[")[2].rstrip("]").partition("-")
        file = test.get("classname").split(".test_")[-1]
        failure = next((part.get("message") for part in test if part.tag in _FAILED), "")
        yield Outcome(file, strength, case, failure or "")


_FAILED = ("failure", "error", "skipped")  # An expected failure is written as skipped.


def _table(outcomes):
    failed = defaultdict(bool)
    for outcome in outcomes:
        failed[outcome[:3]] |= bool(outcome.failure)
    files = sorted({outcome.file for outcome in outcomes})
    yield f"{'file':<14}" + "".join(f"{strength:>11}" for strength in STRENGTHS)
    for file in (*files, "all"):
        cells = []
        for strength in STRENGTHS:
            of_it = [
                bad
                for (its_file, its_strength, _), bad in failed.items()
                if its_strength == strength and file in (its_file, "all")
            ]
            cells.append(f"{of_it.count(False)}/{len(of_it)}" if of_it else "-")
        yield f"{file:<14}" + "".join(f"{cell:>11}" for cell in cells)


def _failures(outcomes):
    for file, strength, case, failure in outcomes:
        if failure:
            yield f"{file} {strength}-{case}: {failure.removeprefix('Failed: ')}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
