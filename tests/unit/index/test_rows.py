import numpy as np
import pytest
from documents import make_document
from fakes import HashingEmbeddings

from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.rows import tool_rows
from langchain_toolrag.index.texts import view_texts

DOCUMENTS = [
    make_document("send_email", "Sends an email to somebody.", "mail"),
    make_document("get_time"),
    make_document("play_song", "Plays a song on the speakers.", "music"),
    make_document("x"),
]


def summed(document, options, vectors):
    """The row of one tool, as it is defined: the first view, and the others added in turn."""
    (text, weight), *others = view_texts(document, options)
    row = np.float32(weight) * vectors[text]
    for text, weight in others:
        row += np.float32(weight) * vectors[text]
    return row


@pytest.mark.parametrize("weights", [(0.5, 0.25, 0.25), (1, 0, 0), (0, 0, 1), (0.3, 0.6, 0.2)])
def test_a_row_is_the_weighted_sum_of_a_tools_views_to_the_last_bit(weights):
    full, name, description = weights
    options = IndexOptions(full=full, name=name, description=description)
    embedder = Embedder(HashingEmbeddings())
    rows = tool_rows(DOCUMENTS, embedder, options)
    texts = [text for document in DOCUMENTS for text, _ in view_texts(document, options)]
    vectors = embedder.documents(texts)
    expected = [summed(document, options, vectors) for document in DOCUMENTS]
    assert rows.dtype == np.float32
    assert np.array_equal(rows, np.array(expected))
