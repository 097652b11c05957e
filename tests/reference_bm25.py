"""rank-bm25 itself, which lexical scores must equal."""

from rank_bm25 import BM25Okapi

from langchain_toolrag.index.lexical import inverse_document_frequency


class PositiveBM25(BM25Okapi):
    """rank-bm25 with an inverse document frequency that is never negative.

    Okapi's own goes below zero for a term in more than half of the texts, so that a match
    could score worse than none.
    """

    def __init__(self, corpus):
        super().__init__(corpus, k1=1.5, b=0.75)

    def _calc_idf(self, nd):
        size = self.corpus_size
        self.idf = {term: inverse_document_frequency(size, count) for term, count in nd.items()}
