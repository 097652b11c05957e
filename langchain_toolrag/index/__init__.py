"""Tool documents in -> searchable index out."""
