import json
from dataclasses import replace

import numpy as np
import pytest
from documents import make_document
from fakes import HashingEmbeddings, make_catalogue

from langchain_toolrag.catalogue.document import document_of
from langchain_toolrag.errors import SourceError, StaleIndexError
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.storage import load_index, save_index
from langchain_toolrag.index.tool_index import ToolIndex

QUERIES = ("rain in Oslo", "send_email", "select:play_song,list_issues", "+calendar", "zzz")


class OtherEmbeddings(HashingEmbeddings):
    pass


@pytest.fixture
def index(embeddings):
    index = ToolIndex(embeddings)
    index.refresh([document_of(tool) for tool in make_catalogue()])
    index.embed()
    return index


@pytest.fixture
def saved(index, tmp_path):
    directory = tmp_path / "made" / "index"
    save_index(index, directory)
    return directory


def load(directory):
    return load_index(directory, HashingEmbeddings())


def vectors_of(directory):
    (file,) = directory.glob("vectors-*.safetensors")
    return file


def edit(directory, **fields):
    path = directory / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_loaded_index_gives_the_same_evidence_and_embeds_nothing(index, saved):
    model = HashingEmbeddings()
    loaded = load_index(saved, model)
    assert loaded.documents == index.documents
    assert loaded.indexed
    for query in QUERIES:
        assert loaded.evidence(query) == index.evidence(query)
    assert model.texts == []


def test_the_version_is_kept(index, saved):
    assert load(saved).version == index.version


@pytest.mark.parametrize("documents", [[], [make_document("a")]])
def test_the_version_of_an_index_that_was_emptied_is_kept(tmp_path, documents):
    index = ToolIndex(HashingEmbeddings())
    index.refresh(documents)
    index.refresh([])
    save_index(index, tmp_path)
    loaded = load(tmp_path)
    assert (loaded.version, loaded.documents) == (index.version, ())


@pytest.mark.parametrize(
    "options", [IndexOptions.classic(), IndexOptions(full=3, server_in_text=False)]
)
def test_options_are_kept(tmp_path, options):
    index = ToolIndex(HashingEmbeddings(), options=options)
    index.refresh([make_document("get_weather", "Rain or sun.", "meteo")])
    save_index(index, tmp_path)
    loaded = load(tmp_path)
    assert loaded.options == options
    assert loaded.evidence("sun.", dense=False) == index.evidence("sun.", dense=False)


def test_every_field_of_a_document_survives(tmp_path):
    document = make_document(
        "水泵_état🌱",
        'Says "मौसम"\n\u2028 and more.',
        "büro/1",
        parameters=("城市", "नाम"),
        values=("a b", ""),
        title="مضخة",
        hint="\u200bhint",
        tags=frozenset({"read-only", "größe", "a,b"}),
        origin="server büro",
    )
    index = ToolIndex(HashingEmbeddings())
    index.refresh([document])
    save_index(index, tmp_path)
    (loaded,) = load(tmp_path).documents
    assert loaded == document
    assert loaded.origin == document.origin


def test_half_of_a_surrogate_pair_does_not_keep_an_index_from_being_saved(tmp_path):
    index = ToolIndex(HashingEmbeddings())
    index.refresh([make_document("a", "cut in the middle of an emoji \ud83d")])
    save_index(index, tmp_path)
    assert load(tmp_path).documents[0].name == "a"


def test_documents_without_vectors_are_saved_without(index, tmp_path):
    index.add([make_document("ping", "Says pong.")])
    save_index(index, tmp_path)
    model = HashingEmbeddings()
    loaded = load_index(tmp_path, model)
    assert not loaded.indexed
    loaded.embed()
    assert set(model.texts) == {"ping. ping: Says pong.", "ping", "Says pong."}
    assert loaded.evidence("pong") == index.evidence("pong")


def test_an_index_without_vectors_can_be_saved(tmp_path):
    index = ToolIndex(HashingEmbeddings())
    index.refresh([make_document("ping", "Says pong.")])
    save_index(index, tmp_path)
    loaded = load(tmp_path)
    assert not loaded.indexed
    assert loaded.evidence("pong") == index.evidence("pong")


def test_a_loaded_index_can_be_changed(saved, index):
    loaded = load(saved)
    for changed in (index, loaded):
        changed.remove(["weather/get_weather"])
        changed.add([make_document("ping", "Says rain.")])
    assert loaded.evidence("rain") == index.evidence("rain")


def test_saving_again_replaces_the_index(index, saved):
    index.refresh([document_of(tool) for tool in make_catalogue()[:3]])
    save_index(index, saved)
    assert load(saved).documents == index.documents
    names = {path.name for path in saved.iterdir()}
    assert names == {"manifest.json", vectors_of(saved).name}


def test_saving_an_unchanged_index_keeps_its_vectors(index, saved):
    before = vectors_of(saved)
    save_index(index, saved)
    assert vectors_of(saved) == before
    assert load(saved).indexed


def test_another_model_is_stale(saved):
    with pytest.raises(StaleIndexError, match="index the tools again") as caught:
        load_index(saved, OtherEmbeddings())
    assert caught.value.found == "HashingEmbeddings"
    assert caught.value.wanted == "OtherEmbeddings"


def test_another_model_of_the_same_class_is_stale(saved):
    model = HashingEmbeddings()
    model.model = "large"
    with pytest.raises(StaleIndexError, match="large"):
        load_index(saved, model)


@pytest.mark.parametrize("version", [1, 3, None, "2"])
def test_another_format_is_stale(saved, version):
    edit(saved, format=version)
    with pytest.raises(StaleIndexError, match="format"):
        load(saved)


def test_a_folder_without_an_index_is_an_error_that_names_it(tmp_path):
    with pytest.raises(SourceError, match="not a saved index") as caught:
        load(tmp_path)
    assert caught.value.source == str(tmp_path)


def test_a_folder_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(SourceError, match="not a saved index"):
        load(tmp_path / "nowhere")


def test_a_file_in_place_of_the_folder_is_an_error(saved):
    with pytest.raises(SourceError):
        load(saved / "manifest.json")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"null", b'"text"'])
def test_a_damaged_manifest_is_an_error(saved, content):
    (saved / "manifest.json").write_bytes(content)
    with pytest.raises(SourceError, match="save the index again"):
        load(saved)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_manifest_cut_short_is_an_error(saved, share):
    path = saved / "manifest.json"
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(SourceError):
        load(saved)


@pytest.mark.parametrize(
    "field", ["model", "version", "options", "vectors", "embedded", "documents"]
)
def test_a_manifest_without_one_of_its_fields_is_an_error(saved, field):
    path = saved / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest[field]
    path.write_text(json.dumps(manifest))
    with pytest.raises((SourceError, StaleIndexError)):
        load(saved)


@pytest.mark.parametrize(
    "fields",
    [
        {"embedded": ["weather/get_weather"]},
        {"documents": []},
        {"documents": [{"id": "a"}]},
        {"options": {"unheard": 1}},
        {"options": {"full": -1}},
        {"version": "one"},
        {"vectors": ""},
        {"vectors": "../manifest.json"},
        {"vectors": None},
    ],
    ids=str,
)
def test_a_manifest_that_contradicts_itself_is_an_error(saved, fields):
    edit(saved, **fields)
    with pytest.raises((SourceError, StaleIndexError)):
        load(saved)


def test_missing_vectors_are_an_error(saved):
    vectors_of(saved).unlink()
    with pytest.raises(SourceError, match="the saved index is damaged"):
        load(saved)


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:-1], lambda b: b[:-1] + b"\0\1"])
def test_damaged_vectors_are_an_error(saved, damage):
    path = vectors_of(saved)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SourceError, match="the saved index is damaged"):
        load(saved)


def test_files_that_were_never_finished_are_ignored(index, saved):
    (saved / ".manifest.json.123").write_bytes(b'{"format"')
    (saved / f".{vectors_of(saved).name}.123").write_bytes(b"half")
    assert load(saved).evidence("rain") == index.evidence("rain")


def test_a_save_that_dies_leaves_the_old_index(index, saved, monkeypatch):
    def die(descriptor):
        raise OSError("no space left on device")

    old = load(saved).evidence("rain")
    index.refresh([make_document("ping")])
    monkeypatch.setattr("os.fsync", die)
    with pytest.raises(OSError, match="no space left"):
        save_index(index, saved)
    assert load(saved).evidence("rain") == old


def test_a_save_that_dies_between_its_files_leaves_the_old_index(index, saved, monkeypatch):
    calls = []

    def die_at_the_second(descriptor):
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError("no space left on device")

    old = load(saved).evidence("rain")
    index.refresh([make_document("ping")])
    index.embed()
    monkeypatch.setattr("os.fsync", die_at_the_second)
    with pytest.raises(OSError, match="no space left"):
        save_index(index, saved)
    assert load(saved).evidence("rain") == old


def test_an_index_that_was_searched_is_saved_bit_for_bit(index, saved):
    loaded = load(saved).snapshot
    for identity, key in index.snapshot.keys.items():
        row = loaded.dense.rows([loaded.keys[identity]])
        assert np.array_equal(row, index.snapshot.dense.rows([key]))


def test_a_document_from_elsewhere_keeps_its_own_id(tmp_path):
    index = ToolIndex(HashingEmbeddings())
    index.refresh([replace(make_document("a"), id="17")])
    save_index(index, tmp_path)
    assert [document.id for document in load(tmp_path).documents] == ["17"]
