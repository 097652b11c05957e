"""Labelled queries in -> measures out."""
