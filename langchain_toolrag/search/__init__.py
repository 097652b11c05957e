"""Query in -> ranked hits out."""
