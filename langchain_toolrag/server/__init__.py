"""Ingested tools in -> searches, rankings and calls of its tools over REST and MCP out."""
