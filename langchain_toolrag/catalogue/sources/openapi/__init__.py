"""OpenAPI documents in -> stored tools, and calls of their operations, out."""
