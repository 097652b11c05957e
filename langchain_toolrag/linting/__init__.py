"""Tools in -> findings out: what a search will not find, and what to do about it."""
