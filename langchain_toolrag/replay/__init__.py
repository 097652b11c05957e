"""Logged searches or whole conversations in -> what other options would have bound out."""
