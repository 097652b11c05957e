import os

import pytest
from fakes import HashingEmbeddings, make_catalogue

from langchain_toolrag import ToolRAG

# No test may need the network; huggingface_hub reads this when it is first imported.
os.environ["HF_HUB_OFFLINE"] = "1"


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
