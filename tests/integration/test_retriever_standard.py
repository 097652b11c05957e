"""LangChain's own tests of retrievers."""

from fakes import HashingEmbeddings, make_catalogue
from langchain_tests.integration_tests import RetrieversIntegrationTests

from langchain_toolrag import ToolRAG, ToolRetriever


class TestToolRetriever(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self):
        return ToolRetriever

    @property
    def retriever_constructor_params(self):
        return {"rag": ToolRAG(make_catalogue(), embeddings=HashingEmbeddings())}

    @property
    def retriever_query_example(self):
        return "current weather in a city"
