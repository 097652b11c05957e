import json
from datetime import datetime, timedelta, timezone

import pytest

from langchain_toolrag.usage.log import UsageLog
from langchain_toolrag.usage.records import CallRecord, Retrieved, SearchRecord

NOON = datetime(2026, 11, 3, 12, tzinfo=timezone.utc)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "usage"


@pytest.fixture
def log(directory):
    with UsageLog(directory) as log:
        yield log


@pytest.fixture
def search():
    """Makes records of searches: which one, what it showed, and how long after noon."""

    def make(search_id, tools=(), seconds=0.0, **others):
        return SearchRecord(
            time=NOON + timedelta(seconds=seconds),
            search_id=search_id,
            retrieved=tuple(
                Retrieved(tool, rank, 1 / rank) for rank, tool in enumerate(tools, start=1)
            ),
            **{"kind": "search", "mode": "semantic", "request": "0" * 64, **others},
        )

    return make


@pytest.fixture
def call():
    """Makes records of calls: what was called, after which search, how long after noon."""

    def make(tool, search_id="", seconds=0.0, **others):
        return CallRecord(
            time=NOON + timedelta(seconds=seconds),
            call_id=f"call-{seconds}",
            tool=tool,
            search_id=search_id,
            **{"outcome": "ok", **others},
        )

    return make


@pytest.fixture
def write(directory):
    """Writes records, or lines as they are, into the file of a day."""

    def write(*lines, day="2026-11-03", end="\n"):
        directory.mkdir(exist_ok=True)
        texts = [line if isinstance(line, str) else json.dumps(line.as_json()) for line in lines]
        with (directory / f"usage-{day}.jsonl").open("a") as file:
            file.write("\n".join(texts) + end)

    return write
