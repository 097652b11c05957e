"""The catalogue as a LangChain retriever; run it with `python examples/retriever.py`."""

from tools import TOOLS

from langchain_toolrag import ToolRAG, ToolRetriever


def main() -> None:
    """Print the three best tools for a request."""
    retriever = ToolRetriever(rag=ToolRAG(TOOLS), k=3)
    for document in retriever.invoke("is it going to rain in Delhi tomorrow?"):
        print(f"{document.metadata['rank']}. {document.id}  {document.metadata['score']:.3f}")
        print(f"   {document.page_content}")


if __name__ == "__main__":
    main()
