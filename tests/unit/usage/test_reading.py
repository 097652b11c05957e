import itertools
import json
import weakref

import pytest

from langchain_toolrag.errors import SourceError
from langchain_toolrag.usage import reading
from langchain_toolrag.usage.reading import Skipped, join_calls, read_usage


def names(records):
    return [record.search_id for record in records]


def test_a_directory_that_is_not_there_has_no_records(directory):
    assert list(read_usage(directory)) == []


def test_records_come_in_order_of_time_however_processes_wrote_them(directory, write, search):
    write(search("next day", seconds=86_400), day="2026-11-04")
    write(search("second", seconds=2), search("first", seconds=1), search("third", seconds=3))
    assert names(read_usage(directory)) == ["first", "second", "third", "next day"]


def test_the_newest_first_is_what_was_written_last(directory, write, search):
    write(search("a"), search("b"))
    write(search("c", seconds=86_400), search("d", seconds=86_401), day="2026-11-04")
    assert names(read_usage(directory, newest_first=True)) == ["d", "c", "b", "a"]


@pytest.mark.parametrize("block", [1, 7, 100, 100_000])
def test_reading_backwards_cuts_no_line_wherever_its_blocks_end(
    directory, write, search, monkeypatch, block
):
    monkeypatch.setattr(reading, "_BLOCK", block)
    write(*(search(f"s{n}", ["a"] * n) for n in range(12)))
    backwards = read_usage(directory, newest_first=True)
    assert names(backwards) == [f"s{n}" for n in reversed(range(12))]


def test_the_newest_few_are_read_without_the_rest(directory, write, search, monkeypatch):
    monkeypatch.setattr(reading, "_BLOCK", 1000)
    write("torn", *(search(f"s{n}") for n in range(100)))
    skipped = Skipped()
    newest = itertools.islice(read_usage(directory, newest_first=True, skipped=skipped), 2)
    assert names(newest) == ["s99", "s98"]
    assert skipped.torn == 0


@pytest.mark.parametrize("newest_first", [False, True])
def test_lines_that_are_no_records_are_read_past_and_counted(
    directory, write, search, call, newest_first
):
    later = {**search("s").as_json(), "v": 2}
    write(search("before"), '{"v":1,"type":"sea', '{"v":1,"type":"search"}')
    write(json.dumps(later), '{"v":1,"type":"promotion"}', "[1]", "", "7", "[" * 100_000)
    write(search("after"), '{"v":1,"type":"call","time":"2026', end="")
    skipped = Skipped()
    records = list(read_usage(directory, newest_first=newest_first, skipped=skipped))
    assert sorted(names(records)) == ["after", "before"]
    assert skipped == Skipped(torn=3, foreign=4, unknown_version=1)


@pytest.mark.parametrize(
    "odd",
    [
        {"type": ["search"]},
        {"type": {}},
        {"v": []},
        {"v": None},
        {"kind": []},
        {"took_ms": 10**400},
        {"retrieved": [["a", 0, None]]},
        {"time": "9999-12-31T23:59:59-14:00"},
    ],
    ids=str,
)
def test_values_that_cannot_be_end_no_reading(directory, write, search, odd):
    write(search("before"), json.dumps({**search("odd").as_json(), **odd}), search("after"))
    skipped = Skipped()
    assert names(read_usage(directory, skipped=skipped)) == ["before", "after"]
    assert skipped.foreign + skipped.unknown_version == 1


def test_searches_that_no_call_can_name_are_not_kept_for_one(search, call):
    kept = weakref.WeakSet()

    class Watched:
        """Can be referred to weakly, as a record cannot."""

    def watched():
        for number in range(100):
            kept.add(own := Watched())
            yield search("", ["a"], seconds=number, options={"own": own})
        yield call("a", "", seconds=100)

    joined = join_calls(watched())
    _, found = next(joined)
    assert found is None
    assert len(kept) <= 1  # The one that was made last.


def test_a_last_line_without_an_end_counts_if_it_is_whole(directory, write, search):
    write(search("a"), search("b"), end="")
    assert names(read_usage(directory)) == ["a", "b"]
    assert names(read_usage(directory, newest_first=True)) == ["b", "a"]


def test_bytes_that_are_no_text_are_a_torn_line(directory, write, search):
    write(search("a"))
    with (directory / "usage-2026-11-03.jsonl").open("ab") as file:
        file.write(b"\xff\xfe\x00\n")
    skipped = Skipped()
    assert names(read_usage(directory, skipped=skipped)) == ["a"]
    assert skipped == Skipped(torn=1)


def test_other_files_of_the_directory_are_left_alone(directory, write, search):
    write(search("a"))
    (directory / "usage-notes.jsonl").write_text("not ours")
    assert names(read_usage(directory)) == ["a"]


def test_a_file_that_cannot_be_opened_is_an_error_that_names_it(directory):
    (directory / "usage-2026-11-03.jsonl").mkdir(parents=True)
    with pytest.raises(SourceError, match=r"usage-2026-11-03\.jsonl: .* cannot be read"):
        list(read_usage(directory))


class TestJoiningCalls:
    def searches_of(self, *records):
        return [search for _, search in join_calls(records)]

    def test_a_call_belongs_to_the_search_it_names(self, search, call):
        one, two = search("one", ["a"]), search("two", ["a"])
        assert self.searches_of(one, two, call("a", "one")) == [one]

    def test_a_tool_that_was_bound_was_shown(self, search, call):
        one = search("one", bound=("a",))
        assert self.searches_of(one, call("a", "one")) == [one]

    @pytest.mark.parametrize("search_id", ["", "two"])
    def test_nothing_is_guessed_where_the_search_is_unknown(self, search, call, search_id):
        assert self.searches_of(search("one", ["a"]), call("a", search_id)) == [None]

    def test_searches_without_a_name_have_no_calls(self, search, call):
        assert self.searches_of(search("", ["a"]), call("a")) == [None]

    def test_a_search_that_did_not_show_the_tool_gets_no_call(self, search, call):
        assert self.searches_of(search("one", ["a"]), call("b", "one")) == [None]

    def test_a_tenant_cannot_claim_another_tenants_search(self, search, call):
        theirs = search("one", ["a"], tenant="acme")
        assert self.searches_of(theirs, call("a", "one", tenant="rival")) == [None]
        assert self.searches_of(theirs, call("a", "one")) == [None]
        assert self.searches_of(theirs, call("a", "one", tenant="acme")) == [theirs]

    def test_of_two_searches_of_one_name_the_latest_that_showed_the_tool_counts(self, search, call):
        first, again, other = search("one", ["a"]), search("one", ["a", "b"]), search("one", ["c"])
        assert self.searches_of(first, again, other, call("a", "one")) == [again]

    def test_after_a_day_a_search_is_forgotten(self, search, call):
        old = search("old", ["a"])
        used_again = search("again", ["a"])
        records = [
            old,
            used_again,
            search("again", ["a"], seconds=3600),
            search("new", ["a"], seconds=86_401),
            call("a", "old", seconds=86_402),
            call("a", "again", seconds=86_402),
        ]
        assert self.searches_of(*records) == [None, records[2]]
