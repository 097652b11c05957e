"""Tool documents and evidence for tests that need no tool behind them."""

from langchain_toolrag.catalogue.names import bound_name, split_words
from langchain_toolrag.types import ToolDocument, ToolEvidence


def make_document(name, description="", server=None, **fields):
    return ToolDocument(
        id=f"{server}/{name}" if server else name,
        name=name,
        bound_name=bound_name(name),
        description=description,
        words=split_words(name),
        server=server,
        **fields,
    )


def make_evidence(identity, dense=None, lexical=0.0, keyword=0.0, *, exact=False):
    return ToolEvidence(identity, dense, lexical, keyword, exact)
