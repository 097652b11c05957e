import logging
import shutil

import numpy as np
import pytest

from langchain_toolrag.index import encoder
from langchain_toolrag.index.embedding import MiniLMEmbeddings
from langchain_toolrag.index.onnx_encoder import MODEL_FILE, OnnxEncoder
from langchain_toolrag.index.onnx_export import NotExportableError

TEXT = "is it raining in Oslo?"


@pytest.fixture
def exported():
    """The default model, as the tests of this session have exported it."""
    model = MiniLMEmbeddings()
    model.load()
    return model


def test_a_damaged_export_is_made_anew(exported, tmp_path):
    shutil.copytree(exported.exports, tmp_path / "copy")
    for file in (tmp_path / "copy").glob(f"*/{MODEL_FILE}"):
        file.write_bytes(file.read_bytes()[:1000])
    mended = MiniLMEmbeddings(exports=tmp_path / "copy")
    assert mended.embed_query(TEXT) == pytest.approx(exported.embed_query(TEXT), abs=1e-5)
    again = OnnxEncoder(encoder._export_of(mended.model, mended.adapter, "fp32", mended.exports))
    assert np.allclose(again.encode([TEXT])[0], mended.embed_query(TEXT), atol=1e-6)


@pytest.mark.parametrize("error", [NotExportableError("it is no BERT"), PermissionError(13, "no")])
def test_a_model_that_cannot_be_exported_stays_with_torch(
    exported, error, tmp_path, monkeypatch, caplog
):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr("langchain_toolrag.index.onnx_export.export_onnx", refuse)
    model = MiniLMEmbeddings(exports=tmp_path)
    with caplog.at_level(logging.WARNING, "langchain_toolrag"):
        vector = model.embed_query(TEXT)
    assert vector == pytest.approx(exported.embed_query(TEXT), abs=1e-3)
    assert "stays with torch" in caplog.text
    assert isinstance(model._loaded, encoder.TorchEncoder)


def test_models_of_other_adapters_and_precisions_have_exports_of_their_own(exported, tmp_path):
    adapter = exported.adapter
    names = {
        encoder._export_of(exported.model, given, precision, tmp_path).name
        for given in (adapter, None)
        for precision in ("fp32", "int8")
    }
    assert len(names) == 4
