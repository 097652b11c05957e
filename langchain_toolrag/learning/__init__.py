"""Labelled requests in -> an adapter of the embedding model out. Needs torch."""
