"""Tools in -> tool documents out."""
