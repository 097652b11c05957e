from postgres_server import dsn, empty_database, postgres_server

__all__ = ["dsn", "empty_database", "postgres_server"]
