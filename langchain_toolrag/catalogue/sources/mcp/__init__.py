"""MCP servers in -> their tools, and calls of these, out."""
