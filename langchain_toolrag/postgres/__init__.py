"""Tool documents in -> one catalogue for many processes, kept in PostgreSQL, out."""

try:
    import pgvector  # noqa: F401
    import psycopg  # noqa: F401
    import psycopg_pool  # noqa: F401
except ImportError as missing:  # psycopg without libpq is one, too.
    raise ModuleNotFoundError(
        f"a catalogue in PostgreSQL needs psycopg and pgvector ({missing}): "
        "pip install 'langchain-toolrag[postgres]'",
        name=missing.name,
    ) from missing
