"""A usage log or labelled requests in -> an adapter of the embedding model out. Needs torch."""
