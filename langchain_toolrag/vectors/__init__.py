"""Vectors in -> the same vectors out, in the next process too."""
