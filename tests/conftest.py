import os

import numpy as np
import pytest
from fakes import HashingEmbeddings, make_catalogue

from langchain_toolrag import ToolRAG
from langchain_toolrag.index import embedding

# The fixtures of tests on a real PostgreSQL: one server for the whole session.
pytest_plugins = ["postgres_server"]

# No test may need the network; huggingface_hub reads this when it is first imported.
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(autouse=True)
def _a_cache_of_its_own(monkeypatch, tmp_path):
    """The command keeps vectors in the user's cache: a test's are its own."""
    monkeypatch.setenv("TOOLRAG_CACHE", str(tmp_path / "toolrag-cache"))


@pytest.fixture(scope="session", autouse=True)
def _exports_of_its_own(tmp_path_factory):
    """The model is exported once for all tests, and not into the user's cache."""
    folder = tmp_path_factory.mktemp("exports")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(embedding, "exports_in", lambda cache_dir: folder)
        yield


@pytest.fixture
def encoded(monkeypatch):
    """A stand-in for MiniLM, which embeds requests as it does tools; the texts it was given."""
    texts = []

    def encode(self, new):
        texts.extend(new)
        return np.array(HashingEmbeddings().embed_documents(new), np.float32)

    monkeypatch.setattr(embedding.MiniLMEmbeddings, "_encode", encode)
    return texts


@pytest.fixture
def embeddings():
    return HashingEmbeddings()


@pytest.fixture
def tools():
    return make_catalogue()


@pytest.fixture
def rag(tools, embeddings):
    with ToolRAG(tools, embeddings=embeddings) as rag:
        yield rag
