"""Heads that were learned in -> those a session is answered with out."""
