import copy
import logging
import subprocess
import sys
import textwrap

import numpy as np
import onnx
import onnxruntime
import pytest

from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.index import onnx_export
from langchain_toolrag.index.encoder import load_network
from langchain_toolrag.index.onnx_encoder import OnnxEncoder
from langchain_toolrag.index.onnx_export import NotExportableError, export_onnx
from langchain_toolrag.index.weights import DEFAULT_MODEL

TEXTS = ["current weather in a city", "", "is it going to rain tomorrow? " * 60, "東京", "x"]


@pytest.fixture(scope="module")
def small():
    """The default model, cut to its first layer to be exported sooner."""
    model = copy.deepcopy(load_network(DEFAULT_MODEL, None))
    network = model[0].auto_model
    network.encoder.layer = network.encoder.layer[:1]
    return model


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "model"


def made_of(*modules):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(modules=list(modules), device="cpu")


def pooling_of(small, mode):
    return type(small[1])(384, pooling_mode=mode)


def least_cosine(model, folder):
    wanted = model.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    found = OnnxEncoder(folder).encode(TEXTS)
    return np.sum(wanted.astype(np.float64) * found, axis=1).min()


@pytest.mark.parametrize("mode", ["mean", "cls"])
def test_a_model_that_does_not_normalise_is_exported_whichever_way_it_pools(small, folder, mode):
    model = made_of(small[0], pooling_of(small, mode))
    lengths = np.linalg.norm(model.encode(TEXTS, show_progress_bar=False), axis=1)
    assert abs(lengths - 1).max() > 0.1
    export_onnx(model, folder)
    assert least_cosine(model, folder) >= 0.9999


def test_a_normalising_model_that_pools_its_first_token_is_exported(small, folder):
    model = made_of(small[0], pooling_of(small, "cls"), small[2])
    export_onnx(model, folder)
    assert least_cosine(model, folder) >= 0.9999


def test_a_model_that_reads_less_is_cut_where_it_cuts(small, folder):
    model = copy.deepcopy(small)
    model.max_seq_length = 12
    export_onnx(model, folder)
    assert least_cosine(model, folder) >= 0.9999
    rain = "is it going to rain tomorrow in the city of Paris in France "
    vectors = OnnxEncoder(folder).encode([rain + "?", rain + "and what of London"])
    assert vectors[0] == pytest.approx(vectors[1], abs=1e-6)


def test_the_model_stays_as_it_is(small, folder):
    before = small.encode(TEXTS, show_progress_bar=False)
    attention = small[0].auto_model.config._attn_implementation
    export_onnx(small, folder)
    assert small[0].auto_model.config._attn_implementation == attention
    assert np.array_equal(small.encode(TEXTS, show_progress_bar=False), before)


@pytest.mark.skipif(
    tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 32),
    reason="older optimizers do not know the network's pattern: it runs unfused, about as fast",
)
def test_attention_is_one_operator_a_layer(small, folder):
    export_onnx(small, folder)
    operators = [node.op_type for node in onnx.load(folder / "model.onnx").graph.node]
    assert operators.count("MultiHeadAttention") == 1
    assert "Softmax" not in operators


def test_a_new_export_replaces_the_old_folder_and_what_a_killed_one_left(small, folder):
    for left in (folder, folder.with_name(".model.part"), folder.with_name(".model.old")):
        left.mkdir(parents=True)
        (left / "rubbish").touch()
    export_onnx(small, folder)
    files = {file.name for file in folder.iterdir()}
    assert files == {"encoder.json", "model.onnx", "tokenizer.json"}
    assert {file.name for file in folder.parent.iterdir()} == {"model", ".model.lock"}


def test_what_another_process_made_meanwhile_is_left_alone(small, folder, monkeypatch):
    class SlowLock(onnx_export.FileLock):
        def __enter__(self):
            folder.mkdir()
            (folder / "encoder.json").write_text("another's")
            return super().__enter__()

    monkeypatch.setattr(onnx_export, "FileLock", SlowLock)
    export_onnx(small, folder)
    assert (folder / "encoder.json").read_text() == "another's"


def test_a_process_that_never_gets_done_is_not_waited_for_for_ever(small, folder, monkeypatch):
    monkeypatch.setattr(onnx_export, "_PATIENCE", 0.0)
    folder.parent.mkdir()
    with (
        onnx_export.FileLock(folder.with_name(".model.lock")),
        pytest.raises(NotExportableError, match=r"another process holds .*\.model\.lock"),
    ):
        export_onnx(small, folder)


SCRIPT = """
    import copy, logging, sys
    from pathlib import Path
    from langchain_toolrag.index.encoder import load_network
    from langchain_toolrag.index.weights import DEFAULT_MODEL
    from langchain_toolrag.index.onnx_encoder import OnnxEncoder
    from langchain_toolrag.index.onnx_export import export_onnx

    model = load_network(DEFAULT_MODEL, None)
    network = model[0].auto_model
    network.encoder.layer = network.encoder.layer[:1]
    path = list(sys.path)
    export_onnx(model, Path(sys.argv[1]), precision="int8")
    print(OnnxEncoder(Path(sys.argv[1])).encode(["weather"]).shape)
    print(sys.path == path, logging.getLogger().handlers, logging.getLogger().level)
    """


def test_two_processes_at_once_end_with_one_good_folder_and_a_clean_log(folder):
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(2)]
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert out.splitlines() == ["(1, 384)", f"True [] {logging.WARNING}"], err
        assert "INFO" not in err
        assert "Warning" not in err
    assert OnnxEncoder(folder).precision == "int8"
    assert {file.name for file in folder.parent.iterdir()} == {"model", ".model.lock"}


def without_pad_token(model):
    model.tokenizer.pad_token = None


def with_another_input(model):
    model.tokenizer.model_input_names = ["input_ids", "bbox"]


def with_prompts(model):
    model.prompts = {"query": "query: "}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_prompts, "prompts.*query: "),
        (with_another_input, "reads bbox"),
        (without_pad_token, "no token to fill up"),
    ],
)
def test_a_model_with_something_an_export_cannot_have_is_refused(small, folder, change, reason):
    model = copy.deepcopy(small)
    change(model)
    with pytest.raises(NotExportableError, match=f"{reason}.*Use it through sentence-transf"):
        export_onnx(model, folder)
    assert not folder.exists()


def test_a_model_that_pools_another_way_is_refused(small, folder):
    with pytest.raises(NotExportableError, match="pooling is max, wanted mean or cls") as caught:
        export_onnx(made_of(small[0], pooling_of(small, "max")), folder)
    assert isinstance(caught.value, EmbeddingError)
    assert caught.value.reason == "its pooling is max, wanted mean or cls"


def test_a_model_of_more_parts_is_refused(small, folder):
    with pytest.raises(NotExportableError, match="Pooling, Normalize, Normalize"):
        export_onnx(made_of(small[0], small[1], small[2], small[2]), folder)


def test_a_network_that_cannot_be_traced_is_refused(small, folder, monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("no such operator\nand a long explanation")

    monkeypatch.setattr("torch.onnx.export", refuse)
    with pytest.raises(NotExportableError, match="RuntimeError: no such operator") as caught:
        export_onnx(small, folder)
    assert "explanation" not in str(caught.value)
    assert {file.name for file in folder.parent.iterdir()} == {".model.lock"}


def test_vectors_too_far_from_the_model_s_are_refused_and_an_old_folder_stays(
    small, folder, monkeypatch
):
    export_onnx(small, folder)
    monkeypatch.setitem(onnx_export._LEAST_COSINE, "fp32", 1.1)
    with pytest.raises(NotExportableError, match=r"has cosine (1\.0|0\.99).*, wanted 1\.1"):
        export_onnx(small, folder)
    assert OnnxEncoder(folder).dim == 384
