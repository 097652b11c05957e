import pytest
import torch
from cases_loading import CachingEmbeddings, ordinary_tools

from langchain_toolrag import ToolRAG
from langchain_toolrag.index.embedding import MiniLMEmbeddings


@pytest.fixture(scope="session")
def minilm():
    """The default model; no text is embedded twice in a session.

    One thread: several wait for one another on a busy machine, half a second a text.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield CachingEmbeddings(MiniLMEmbeddings())
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def ordinary_rag(minilm):
    """The 76 tools of catalogue 01. Tests must not change it."""
    rag = ToolRAG(list(ordinary_tools()), embeddings=minilm)
    rag.index()
    return rag


@pytest.fixture
def rag_with(minilm):
    """Make a ToolRAG of catalogue 01 and further tools, which take the place of namesakes."""

    def make(*tools, **options):
        names = {tool["name"] if isinstance(tool, dict) else tool.name for tool in tools}
        others = [tool for tool in ordinary_tools() if tool.name not in names]
        return ToolRAG([*others, *tools], embeddings=minilm, **options)

    return make
