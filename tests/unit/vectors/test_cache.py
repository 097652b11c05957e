import errno
import json
import logging
import os
import shutil
import tempfile
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from langchain_toolrag.vectors import cache as cache_module
from langchain_toolrag.vectors.cache import VectorCache, VectorMemory, text_key
from langchain_toolrag.vectors.cache_files import Table, pack
from langchain_toolrag.vectors.journal import JournalFile

DIM = 3
SPACE = "MiniLM 53aa51172d142c89, onnx"


def make(*texts):
    """Return one vector a text, the same for the same text."""
    return {text.encode(): vector_of(text) for text in texts}


def vector_of(text):
    seed = list(text.encode())
    return np.random.default_rng(seed).standard_normal(DIM).astype(np.float32)


def same(found, wanted):
    return list(found) == list(wanted) and all(
        np.array_equal(found[key], wanted[key]) for key in wanted
    )


def file_of(directory, suffix):
    (file,) = directory.glob(f"*{suffix}")
    return file


def warnings_in(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture
def cache(tmp_path):
    return VectorCache(tmp_path, SPACE)


@pytest.fixture
def folded(tmp_path):
    """A directory with `a` and `b` in the snapshot."""
    cache = VectorCache(tmp_path, SPACE)
    cache.put(make("a", "b"))
    cache.compact()
    return tmp_path


@pytest.fixture
def journaled(tmp_path):
    """A directory with `a`, `b` and `c` in three blocks of the journal."""
    cache = VectorCache(tmp_path, SPACE)
    for text in "abc":
        cache.put(make(text))
    return tmp_path


@pytest.fixture
def no_rest(monkeypatch):
    monkeypatch.setattr(cache_module, "_REST_SECONDS", 0.0)


def test_a_new_cache_knows_nothing_and_touches_no_disk(tmp_path):
    cache = VectorCache(tmp_path / "made" / "later", SPACE)
    assert cache.get([b"a"]) == {}
    assert len(cache) == 0
    assert list(tmp_path.iterdir()) == []


def test_opening_reads_nothing(folded, monkeypatch):
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read"))
    VectorCache(folded, SPACE)


def test_what_was_put_is_found_in_the_order_asked_for(cache):
    cache.put(make("a", "b", "c"))
    assert same(cache.get([b"c", b"x", b"a", b"c"]), make("c", "a"))


def test_the_next_process_finds_it_too(tmp_path, cache):
    cache.put(make("a", "b"))
    later = VectorCache(tmp_path, SPACE)
    assert same(later.get([b"a", b"b"]), make("a", "b"))
    assert len(later) == 2


def test_vectors_are_float32_and_read_only(cache, tmp_path):
    cache.put({b"a": np.array([0.1, 0.2, 0.3])})
    for found in (cache.get([b"a"])[b"a"], VectorCache(tmp_path, SPACE).get([b"a"])[b"a"]):
        assert found.dtype == np.float32
        assert found.tolist() == np.array([0.1, 0.2, 0.3], np.float32).tolist()
        with pytest.raises(ValueError, match="read-only"):
            found[0] = 1


def test_changing_the_array_that_was_put_changes_nothing(cache):
    vectors = make("a")
    cache.put(vectors)
    vectors[b"a"][:] = 7
    assert same(cache.get([b"a"]), make("a"))


def test_the_last_put_of_a_key_counts(tmp_path, cache):
    cache.put(make("a", "b"))
    cache.compact()
    cache.put({b"a": vector_of("other")})
    for each in (cache, VectorCache(tmp_path, SPACE)):
        assert same(each.get([b"a"]), {b"a": vector_of("other")})


def test_what_is_known_is_not_written_again(folded):
    before = sorted((path.name, path.stat().st_size) for path in folded.iterdir())
    VectorCache(folded, SPACE).put(make("b", "a"))
    assert sorted((path.name, path.stat().st_size) for path in folded.iterdir()) == before


def test_putting_nothing_does_nothing(tmp_path, cache):
    cache.put({})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("other", ["", "../up", "a/b\\c:d", "x" * 5000, "模型\ud83d", "m\0"])
def test_spaces_with_any_name_share_a_directory_and_no_vectors(tmp_path, cache, other):
    cache.put(make("a"))
    different = VectorCache(tmp_path, other)
    assert different.get([b"a"]) == {}
    different.put({b"a": np.ones(5, np.float32)})
    assert VectorCache(tmp_path, other).get([b"a"])[b"a"].tolist() == [1] * 5
    assert same(VectorCache(tmp_path, SPACE).get([b"a"]), make("a"))


def test_two_open_caches_see_what_the_other_puts(tmp_path, cache):
    other = VectorCache(tmp_path, SPACE)
    for text in "abcd":
        cache.put(make(text))
        assert same(other.get([text.encode()]), make(text))
        other.put(make(text * 2))
        assert same(cache.get([text.encode() * 2]), make(text * 2))
    assert len(cache) == len(other) == 8


def test_an_open_cache_sees_what_another_folded_and_put_since(tmp_path, cache):
    other = VectorCache(tmp_path, SPACE)
    cache.put(make("a", "b"))
    assert len(other) == 2
    cache.put(make("c"))
    cache.compact()
    assert len(other) == 3
    cache.put(make("a much longer text than before", "d"))
    assert same(other.get([b"a", b"c", b"d"]), make("a", "c", "d"))


def test_a_fold_between_reading_the_snapshot_and_the_journal_hides_nothing(tmp_path, monkeypatch):
    writer, reader = VectorCache(tmp_path, SPACE), VectorCache(tmp_path, SPACE)
    writer.put(make("a", "b"))
    read = JournalFile.read

    def fold_and_read(journal, dim):
        monkeypatch.setattr(JournalFile, "read", read)
        writer.compact()
        return read(journal, dim)

    monkeypatch.setattr(JournalFile, "read", fold_and_read)
    assert same(reader.get([b"a", b"b"]), make("a", "b"))


def test_a_long_journal_is_folded_into_the_snapshot(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(cache_module, "_FEWEST_TO_FOLD", 4)
    texts = [str(number) for number in range(20)]
    snapshots = []
    for text in texts:
        cache.put(make(text))
        snapshots += [len(load(path.read_bytes())["rows"]) for path in tmp_path.glob("*tensors")]
    # At 5, more than 4; at 10, again; at 16, more than half of 10.
    assert [snapshots.count(count) for count in (5, 10, 16)] == [5, 6, 5]
    assert same(VectorCache(tmp_path, SPACE).get([*make(*texts)]), make(*texts))


def test_folding_leaves_one_snapshot_and_no_journal(folded):
    assert [path.suffix for path in folded.iterdir() if path.suffix != ".lock"] == [".safetensors"]


def test_folding_nothing_writes_nothing(tmp_path, cache):
    cache.compact()
    assert [path for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ({b"a": [1.0, np.nan, 0.0]}, "not finite"),
        ({b"a": [1.0, 1e300, 0.0]}, "not finite"),
        ({b"a": [1.0], b"b": [1.0, 2.0]}, "not numbers of one dimension"),
        ({b"a": ["x"]}, "not numbers of one dimension"),
        ({b"a": []}, r"shape \(0,\), wanted \(dim,\)"),
        ({b"a": 1.0}, r"shape \(\), wanted \(dim,\)"),
        ({b"a": [[1.0]]}, r"shape \(1, 1\), wanted \(dim,\)"),
    ],
)
def test_vectors_that_are_none_are_refused_and_nothing_is_kept(tmp_path, cache, vectors, message):
    with pytest.raises(ValueError, match=message):
        cache.put(vectors)
    assert len(cache) == len(VectorCache(tmp_path, SPACE)) == 0


def test_vectors_of_another_dimension_than_the_spaces_are_refused(folded):
    with pytest.raises(ValueError, match="dimension 5, those of their space 3; give every model"):
        VectorCache(folded, SPACE).put({b"c": np.ones(5, np.float32)})
    assert len(VectorCache(folded, SPACE)) == 2


def test_the_key_of_a_text_is_short_and_stays_the_same():
    assert text_key("").hex() == "cae66941d9efbd404e4d88758ea67670"
    assert len({text_key(text) for text in ("a", "A", "a ", "é", "e\u0301")}) == 5


def test_half_of_a_surrogate_pair_has_a_key():
    assert text_key("\ud83d") != text_key("\ud83e")


VECTORS = st.dictionaries(
    st.binary(max_size=40),
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=2),
    max_size=6,
)


@given(steps=st.lists(st.tuples(VECTORS, st.integers(0, 1), st.booleans()), max_size=6))
@settings(max_examples=60, deadline=None)
def test_any_keys_and_vectors_come_back_bit_by_bit(steps):
    with tempfile.TemporaryDirectory() as name:
        caches = [VectorCache(Path(name), SPACE) for _ in range(2)]
        wanted = {}
        for vectors, writer, compact in steps:
            rows = {key: np.array(row, np.float32) for key, row in vectors.items()}
            caches[writer].put(rows)
            wanted |= rows
            if compact:
                caches[1 - writer].compact()
        for cache in (*caches, VectorCache(Path(name), SPACE)):
            assert same(cache.get([*wanted]), wanted)
            assert len(cache) == len(wanted)


def test_a_journal_cut_at_any_byte_gives_exactly_the_whole_blocks(journaled, tmp_path, caplog):
    journal = file_of(journaled, ".journal")
    content = journal.read_bytes()
    ends = _ends_of_blocks(content)
    assert len(ends) == 3
    for cut in range(len(content) + 1):
        journal.write_bytes(content[:cut])
        whole = "abc"[: sum(end <= cut for end in ends)]
        assert same(VectorCache(tmp_path, SPACE).get([b"a", b"b", b"c"]), make(*whole)), cut
    assert warnings_in(caplog) == []


def test_what_is_put_after_an_unfinished_block_is_found(journaled, tmp_path, caplog):
    journal = file_of(journaled, ".journal")
    content = journal.read_bytes()
    last = _ends_of_blocks(content)[-2]
    for cut in (0, 5, 31, 32, 33, last - 1, last, last + 5, last + 30, len(content) - 1):
        journal.write_bytes(content[:cut])
        reader = VectorCache(tmp_path, SPACE)
        before = len(reader)
        VectorCache(tmp_path, SPACE).put(make("new"))
        for cache in (reader, VectorCache(tmp_path, SPACE)):
            assert same(cache.get([b"new"]), make("new"))
            assert len(cache) == before + 1
    assert warnings_in(caplog) == []


@pytest.mark.parametrize("suffix", [".journal", ".safetensors"])
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_changed_byte_never_raises_and_never_gives_a_wrong_vector(suffix, data):
    wanted = make("a", "b", "c", "d")
    with tempfile.TemporaryDirectory() as name:
        cache = VectorCache(Path(name), SPACE)
        for key in (b"a", b"b"):
            cache.put({key: wanted[key]})
        if suffix == ".safetensors":
            cache.compact()
        cache.put({b"c": wanted[b"c"]})
        file = file_of(Path(name), suffix)
        content = bytearray(file.read_bytes())
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= data.draw(st.integers(1, 255))
        file.write_bytes(content)
        later = VectorCache(Path(name), SPACE)
        found = later.get([*wanted])
        assert same(found, {key: wanted[key] for key in found})
        later.put({b"d": wanted[b"d"]})
        assert same(later.get([b"d"]), {b"d": wanted[b"d"]})


@pytest.mark.parametrize("suffix", [".journal", ".safetensors"])
@given(content=st.binary(max_size=200))
@settings(max_examples=60, deadline=None)
def test_a_file_of_anything_never_raises_and_gives_nothing(suffix, content):
    with tempfile.TemporaryDirectory() as name:
        cache = VectorCache(Path(name), SPACE)
        cache.put(make("a"))
        if suffix == ".safetensors":
            cache.compact()
        file_of(Path(name), suffix).write_bytes(content)
        assert VectorCache(Path(name), SPACE).get([b"a"]) == {}


def _ends_of_blocks(content):
    """Read the journal's layout by hand: 32 bytes of header, then blocks."""
    ends, end = [], 32
    while end < len(content):
        end += 12 + int.from_bytes(content[end : end + 8], "little")
        ends.append(end)
    return ends


def _repack(path, *, metadata=None, **tensors):
    """Write a snapshot with other tensors or metadata; the checksum is left as it was."""
    packed = path.read_bytes()
    length = int.from_bytes(packed[:8], "little")
    known = json.loads(packed[8 : 8 + length])["__metadata__"]
    path.write_bytes(save({**load(packed), **tensors}, {**known, **(metadata or {})}))


def _put_rows(path, rows):
    """Write a snapshot of `a` and `b` with rows that the cache would not write."""
    path.write_bytes(pack(Table([b"a", b"b"], rows)))


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "no header": lambda path: path.write_bytes(b"\xff" * 300),
    "header of another kind": lambda path: path.write_bytes(save({"rows": np.ones(3)})),
    "deep header": lambda path: path.write_bytes((200_000).to_bytes(8, "little") + b"[" * 200_000),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "old format": lambda path: _repack(path, metadata={"format": "0"}),
    "format in words": lambda path: _repack(path, metadata={"format": "one"}),
    "other rows": lambda path: _repack(path, rows=np.ones((2, DIM), np.float32)),
    "wrong dtype": lambda path: _put_rows(path, np.ones((2, DIM))),
    "wrong shape": lambda path: _put_rows(path, np.ones(6, np.float32)),
    "too few rows": lambda path: _put_rows(path, np.ones((1, DIM), np.float32)),
    "no dimension": lambda path: _put_rows(path, np.ones((2, 0), np.float32)),
    "NaN": lambda path: _put_rows(path, np.full((2, DIM), np.nan, np.float32)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_snapshot_is_set_aside_with_one_warning(folded, damage, caplog):
    snapshot = file_of(folded, ".safetensors")
    damage(snapshot)
    content = snapshot.read_bytes()
    cache = VectorCache(folded, SPACE)
    assert cache.get([b"a"]) == {}
    cache.put(make("c"))
    cache.compact()
    assert file_of(folded, ".corrupt-1").read_bytes() == content
    (warning,) = warnings_in(caplog)
    assert str(snapshot) in warning
    assert f"{snapshot.name}.corrupt-1" in warning
    assert same(VectorCache(folded, SPACE).get([b"a", b"c"]), make("c"))


def test_a_snapshot_of_another_dimension_than_what_is_known_is_set_aside(folded, caplog):
    cache = VectorCache(folded, SPACE)
    cache.get([b"a"])
    _put_rows(file_of(folded, ".safetensors"), np.ones((2, 5), np.float32))
    assert same(cache.get([b"a"]), make("a"))
    (warning,) = warnings_in(caplog)
    assert "dimension 5, wanted 3" in warning


def test_each_damaged_file_is_kept_under_a_number_of_its_own(folded, caplog):
    for number in (1, 2, 3):
        snapshot = file_of(folded, ".safetensors")
        snapshot.write_bytes(b"no")
        cache = VectorCache(folded, SPACE)
        cache.put(make("a"))
        cache.compact()
        assert file_of(folded, f".corrupt-{number}").read_bytes() == b"no"
    assert len(warnings_in(caplog)) == 3


def test_blocks_before_the_damage_in_a_journal_are_kept(journaled, caplog):
    journal = file_of(journaled, ".journal")
    content = bytearray(journal.read_bytes())
    content[_ends_of_blocks(content)[1] - 1] ^= 1
    journal.write_bytes(content)
    assert same(VectorCache(journaled, SPACE).get([b"a", b"b", b"c"]), make("a"))
    assert file_of(journaled, ".corrupt-1").read_bytes() == content
    (warning,) = warnings_in(caplog)
    assert str(journal) in warning
    later = VectorCache(journaled, SPACE)
    later.put(make("d"))
    assert same(VectorCache(journaled, SPACE).get([b"a", b"d"]), make("a", "d"))
    assert len(warnings_in(caplog)) == 1


def test_a_journal_that_is_none_is_set_aside(journaled, caplog):
    file_of(journaled, ".journal").write_bytes(b"something else, and long enough to be a header")
    assert len(VectorCache(journaled, SPACE)) == 0
    (warning,) = warnings_in(caplog)
    assert "does not begin as a journal" in warning


def test_what_an_open_cache_knows_outlives_the_damage_of_its_files(folded, caplog):
    cache = VectorCache(folded, SPACE)
    assert len(cache) == 2
    file_of(folded, ".safetensors").write_bytes(b"no")
    assert same(cache.get([b"a", b"b"]), make("a", "b"))
    assert len(warnings_in(caplog)) == 1


def test_a_damaged_file_that_cannot_be_renamed_is_passed_over(folded, caplog, monkeypatch):
    def refuse(path, target):
        raise PermissionError(errno.EACCES, "not yours", str(path))

    file_of(folded, ".safetensors").write_bytes(b"no")
    monkeypatch.setattr(Path, "rename", refuse)
    cache = VectorCache(folded, SPACE)
    for _ in range(3):
        assert cache.get([b"a"]) == {}
    cache.put(make("c"))
    assert same(VectorCache(folded, SPACE).get([b"c"]), make("c"))
    assert "cannot be set aside" in warnings_in(caplog)[0]
    assert len(warnings_in(caplog)) == 2  # One for each cache.


def test_a_file_that_cannot_be_read_is_not_replaced(folded, caplog, monkeypatch, no_rest):
    def refuse(path):
        raise PermissionError(errno.EACCES, "not yours", str(path))

    cache = VectorCache(folded, SPACE)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse)
        for _ in range(3):
            assert cache.get([b"a"]) == {}
        cache.put(make("c"))
        cache.compact()
        assert len(warnings_in(caplog)) == 2  # It cannot be read, and so not be written.
    cache.put(make("d"))
    cache.compact()
    assert len(VectorCache(folded, SPACE)) == 4


def test_readers_do_not_wait_for_a_writer(folded):
    reader = VectorCache(folded, SPACE)
    with FileLock(file_of(folded, ".lock")):
        assert same(reader.get([b"a"]), make("a"))


def test_what_looks_damaged_while_somebody_writes_is_looked_at_again_later(folded, caplog):
    snapshot = file_of(folded, ".safetensors")
    content = snapshot.read_bytes()
    snapshot.write_bytes(content[:-1])
    cache = VectorCache(folded, SPACE)
    with FileLock(file_of(folded, ".lock")):
        assert cache.get([b"a"]) == {}
        snapshot.write_bytes(content)
    assert same(cache.get([b"a"]), make("a"))
    assert warnings_in(caplog) == []


def _newer_snapshot(directory):
    snapshot = file_of(directory, ".safetensors")
    _repack(snapshot, metadata={"format": "2"})
    return snapshot


def _newer_journal(directory):
    VectorCache(directory, SPACE).put(make("c"))
    journal = file_of(directory, ".journal")
    beginning = b"toolragv" + (2).to_bytes(4, "little")
    checksum = zlib.crc32(beginning).to_bytes(4, "little")
    journal.write_bytes(beginning + checksum + b"whatever version 2 puts here")
    return journal


@pytest.mark.parametrize("make_newer", [_newer_snapshot, _newer_journal])
def test_files_of_a_newer_version_are_left_alone(folded, make_newer, caplog):
    newer = make_newer(folded)
    before = {path: path.read_bytes() for path in folded.iterdir()}
    cache = VectorCache(folded, SPACE)
    for text in ("x", "y"):
        assert cache.get([text.encode()]) == {}
        cache.put(make(text))
        cache.compact()
        assert same(cache.get([text.encode()]), make(text))
    assert {path: path.read_bytes() for path in folded.iterdir()} == before
    (warning,) = warnings_in(caplog)
    assert f"{newer.name} has format 2, this version knows up to 1" in warning


def test_a_lock_that_stays_taken_costs_one_wait_and_one_warning(folded, caplog, monkeypatch):
    monkeypatch.setattr(cache_module, "_LOCK_SECONDS", 0.02)
    cache = VectorCache(folded, SPACE)
    with FileLock(file_of(folded, ".lock")):
        cache.put(make("c"))
        monkeypatch.setattr(cache, "_file_lock", lambda seconds: pytest.fail("waited again"))
        cache.put(make("d"))
    assert same(cache.get([b"c", b"d"]), make("c", "d"))
    (warning,) = warnings_in(caplog)
    assert "could not be acquired" in warning


def test_what_could_not_be_written_is_written_later(folded, caplog, monkeypatch, no_rest):
    monkeypatch.setattr(cache_module, "_LOCK_SECONDS", 0.02)
    cache = VectorCache(folded, SPACE)
    with FileLock(file_of(folded, ".lock")):
        cache.put(make("c"))
    cache.put(make("d"))
    assert same(VectorCache(folded, SPACE).get([b"c", b"d"]), make("c", "d"))
    assert len(warnings_in(caplog)) == 1


def test_what_is_still_to_be_written_counts_more_than_what_others_wrote(
    folded, monkeypatch, no_rest
):
    monkeypatch.setattr(cache_module, "_LOCK_SECONDS", 0.02)
    cache = VectorCache(folded, SPACE)
    with FileLock(file_of(folded, ".lock")):
        cache.put({b"a": vector_of("mine")})
    VectorCache(folded, SPACE).put({b"a": vector_of("yours")})
    assert same(cache.get([b"a"]), {b"a": vector_of("mine")})
    cache.put(make("c"))
    assert same(VectorCache(folded, SPACE).get([b"a"]), {b"a": vector_of("mine")})


@pytest.mark.parametrize("step", ["append", "fold"])
def test_a_full_disk_costs_one_warning_and_no_vector(folded, step, caplog, monkeypatch, no_rest):
    cache = VectorCache(folded, SPACE)
    cache.put(make("c"))
    journal = file_of(folded, ".journal").read_bytes()
    with monkeypatch.context() as patch:
        _fill_disk(patch)
        for text in "de":
            cache.put(make(text))
            if step == "fold":
                cache.compact()
    assert file_of(folded, ".journal").read_bytes() == journal
    assert list(folded.glob("*.part")) == []
    (warning,) = warnings_in(caplog)
    assert "No space left on device" in warning
    assert same(cache.get([b"a", b"c", b"d", b"e"]), make("a", "c", "d", "e"))
    cache.put(make("f"))
    assert len(VectorCache(folded, SPACE)) == 6


def _fill_disk(patch):
    """Let every write fail after seven bytes."""
    really_open = Path.open

    class Full:
        def __init__(self, file):
            self._file = file

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self._file.close()

        def __getattr__(self, name):
            return getattr(self._file, name)

        def write(self, content):
            self._file.write(content[:7])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def opened(path, mode="r", *args, **kwargs):
        file = really_open(path, mode, *args, **kwargs)
        return Full(file) if mode in {"ab", "wb"} else file

    patch.setattr(Path, "open", opened)


@pytest.fixture
def read_only():
    """A directory with `a` in its cache, that nobody may write, root included."""
    directory = Path(tempfile.mkdtemp())
    VectorCache(directory, SPACE).put(make("a"))
    directory.chmod(0o555)
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    yield directory
    if is_root:
        os.seteuid(0)
    directory.chmod(0o755)
    shutil.rmtree(directory)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="directories are not read-only there")
def test_a_read_only_directory_is_read_and_costs_one_warning(read_only, caplog, no_rest):
    cache = VectorCache(read_only, SPACE)
    assert same(cache.get([b"a"]), make("a"))
    for text in "bc":
        cache.put(make(text))
    assert same(cache.get([b"a", b"b", b"c"]), make("a", "b", "c"))
    (warning,) = warnings_in(caplog)
    assert str(read_only) in warning
    assert "Permission denied" in warning


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_file_in_place_of_the_directory_costs_one_warning(tmp_path, below, caplog, no_rest):
    (tmp_path / "file").write_text("mine")
    cache = VectorCache(tmp_path / "file" / below, SPACE)
    for text in "ab":
        assert cache.get([text.encode()]) == {}
        cache.put(make(text))
    assert same(cache.get([b"a", b"b"]), make("a", "b"))
    assert (tmp_path / "file").read_text() == "mine"
    assert len(warnings_in(caplog)) == 1


@pytest.mark.parametrize("compact", [False, True])
def test_a_directory_that_is_removed_in_use_is_made_again(tmp_path, compact, caplog):
    cache = VectorCache(tmp_path / "cache", SPACE)
    cache.put(make("a"))
    if compact:
        cache.compact()
    assert len(cache) == 1
    shutil.rmtree(tmp_path / "cache")
    assert same(cache.get([b"a"]), make("a"))
    cache.put(make("b"))
    assert same(cache.get([b"a", b"b"]), make("a", "b"))
    assert same(VectorCache(tmp_path / "cache", SPACE).get([b"b"]), make("b"))
    assert warnings_in(caplog) == []


def test_threads_may_share_a_cache(tmp_path, cache, caplog, monkeypatch):
    monkeypatch.setattr(cache_module, "_FEWEST_TO_FOLD", 16)
    wrong = []

    def work(name):
        for number in range(30):
            vectors = make(f"{name}{number}", f"shared{number}")
            cache.put(vectors)
            if not same(cache.get([*vectors]), vectors):
                wrong.append((name, number))

    threads = [threading.Thread(target=work, args=[name]) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = make(*(f"{name}{number}" for name in ("a", "d", "shared") for number in range(30)))
    assert wrong == warnings_in(caplog) == []
    assert same(cache.get([*wanted]), wanted)
    assert same(VectorCache(tmp_path, SPACE).get([*wanted]), wanted)
    assert len(VectorCache(tmp_path, SPACE)) == 150


class TestMemory:
    def vectors(self, *names):
        return {name.encode(): np.full(2, ord(name), np.float32) for name in names}

    def test_everything_is_kept_where_no_limit_is_given(self):
        memory = VectorMemory()
        memory.put(self.vectors(*"abc"))
        assert list(memory.get([b"c", b"x", b"a"])) == [b"c", b"a"]

    def test_what_was_used_longest_ago_goes_first(self):
        memory = VectorMemory(2)
        memory.put(self.vectors("a", "b"))
        memory.get([b"a"])
        memory.put(self.vectors("c"))
        assert list(memory.get([b"a", b"b", b"c"])) == [b"a", b"c"]

    def test_of_two_vectors_of_one_key_the_last_counts(self):
        memory = VectorMemory(2)
        memory.put({b"a": np.zeros(2, np.float32)})
        memory.put(self.vectors("a"))
        assert memory.get([b"a"])[b"a"][0] == ord("a")
