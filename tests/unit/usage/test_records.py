import contextlib
import json
import math
from dataclasses import fields, replace
from datetime import datetime, timezone
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_toolrag.usage.records import (
    CallRecord,
    Outcome,
    Retrieved,
    SearchKind,
    SearchMode,
    SearchRecord,
)

texts = st.text(max_size=20)
numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
times = st.datetimes(timezones=st.just(timezone.utc))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
searches = st.builds(
    SearchRecord,
    time=times,
    search_id=texts,
    kind=st.sampled_from(get_args(SearchKind)),
    mode=st.sampled_from(get_args(SearchMode)),
    request=texts,
    retrieved=st.lists(
        st.builds(Retrieved, texts, st.integers(min_value=1), numbers), max_size=4
    ).map(tuple),
    bound=st.lists(texts, max_size=4).map(tuple),
    confidence=numbers,
    options=st.dictionaries(texts, json_values, max_size=3),
    index=texts,
    heads=texts,
    trial=texts,
    session=texts,
    tenant=texts,
    took_ms=numbers,
    text=st.text(),
)
calls = st.builds(
    CallRecord,
    time=times,
    call_id=texts,
    tool=texts,
    outcome=st.sampled_from(get_args(Outcome)),
    search_id=texts,
    latency_ms=numbers,
    arguments=texts,
    tenant=texts,
    text=st.text(),
)

A_SEARCH = SearchRecord(
    time=datetime(2026, 11, 3, 12, tzinfo=timezone.utc),
    search_id="s-1",
    kind="search",
    mode="lexical",
    request="ab" * 32,
    retrieved=(Retrieved("github/issues/create", 1, 0.83), Retrieved("jira/search", 2, None)),
    took_ms=1.5,
)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(searches | calls)
def test_a_record_is_read_as_it_was_written(record):
    line = json.dumps(record.as_json(), allow_nan=False)
    assert "\n" not in line
    assert type(record).read(json.loads(line)) == record


def test_a_line_tells_only_what_there_is_to_tell():
    assert json.loads(json.dumps(A_SEARCH.as_json())) == {
        "v": 1,
        "type": "search",
        "time": "2026-11-03T12:00:00.000000+00:00",
        "search_id": "s-1",
        "kind": "search",
        "mode": "lexical",
        "request": "ab" * 32,
        "retrieved": [["github/issues/create", 1, 0.83], ["jira/search", 2, None]],
        "took_ms": 1.5,
    }


def test_heads_are_told_where_there_are_any():
    assert "heads" not in A_SEARCH.as_json()
    with_heads = replace(A_SEARCH, heads="ab" * 8)
    assert with_heads.as_json()["heads"] == "ab" * 8
    assert SearchRecord.read(with_heads.as_json()) == with_heads


def test_a_key_of_a_later_revision_is_no_matter():
    assert SearchRecord.read({**A_SEARCH.as_json(), "colour": "blue"}) == A_SEARCH


def test_a_time_of_another_zone_is_read_in_utc():
    read = SearchRecord.read({**A_SEARCH.as_json(), "time": "2026-11-03T13:00:00+01:00"})
    assert read == A_SEARCH
    assert read.time.tzinfo is timezone.utc


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"v": 2}, "found version 2 of 'search'; wanted version 1 of 'search'"),
        ({"type": "call"}, "found version 1 of 'call'; wanted version 1 of 'search'"),
        ({"kind": "guess"}, "kind is 'guess'; wanted one of search, select, rank"),
        ({"mode": ["semantic"]}, "mode is .*; wanted one of semantic, lexical"),
        ({"request": 7}, "request is 7; wanted a str"),
        ({"retrieved": [["a", 1]]}, r"\['a', 1\] is no retrieved tool"),
        ({"retrieved": [["a", 1, "high"]]}, "found 'high'; wanted a number"),
        ({"heads": 3}, "heads is 3; wanted a str"),
        ({"bound": [3]}, "3 is no tool id"),
        ({"took_ms": True}, "found True; wanted a number"),
        ({"options": []}, "options is .*; wanted a dict"),
        ({"time": "yesterday"}, "yesterday"),
        ({"time": "2026-11-03T12:00:00"}, "has no time zone; wanted UTC"),
        ({"time": "0001-01-01T00:00:00+14:00"}, "is none in UTC"),
        ({"retrieved": [["a", 0, 0.5]]}, "is no retrieved tool; wanted .id, rank from 1, score"),
        ({"retrieved": [["a", 1, 10**400]]}, "too large for a number"),
        ({"confidence": math.nan}, "found nan; wanted a finite number"),
        ({"took_ms": -math.inf}, "found -inf; wanted a finite number"),
    ],
)
def test_what_is_no_search_is_refused_with_what_is_wrong(change, complaint):
    with pytest.raises(ValueError, match=complaint):
        SearchRecord.read({**A_SEARCH.as_json(), **change})


_odd = st.sampled_from(
    [10**400, math.nan, math.inf, True, "", [[]], [["a", 0, 1]], "9999-12-31T23:59:59-14:00"]
)


@settings(derandomize=True, deadline=None, max_examples=500)
@given(
    record=searches | calls,
    change=st.dictionaries(
        st.sampled_from([each.name for each in fields(SearchRecord)] + ["v", "type"]),
        json_values | _odd | st.lists(json_values | _odd, max_size=2),
        min_size=1,
        max_size=3,
    ),
)
def test_whatever_a_line_holds_it_is_a_record_or_refused(record, change):
    with contextlib.suppress(ValueError):
        read = type(record).read({**record.as_json(), **change})
        assert read == type(record).read(json.loads(json.dumps(read.as_json(), allow_nan=False)))


def test_a_search_knows_the_rank_of_what_it_retrieved_and_what_it_bound(search):
    record = search("s", ["a", "b"], bound=("c",))
    assert [record.rank_of(tool) for tool in "abc"] == [1, 2, None]
    assert [record.shows(tool) for tool in "abcd"] == [True, True, True, False]
