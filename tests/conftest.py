import pytest
from fakes import HashingEmbeddings, make_catalogue

from langchain_toolrag import ToolRAG


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
