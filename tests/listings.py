"""What sources list, as an ingest takes it in."""

from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def tool(identity, description="", **given):
    source, _, name = identity.partition("/")
    return StoredTool(identity, source, "mcp", name, description, SCHEMA, **given)


def source(name, **given):
    return StoredSource(name, "mcp", f"{name}-server", **given)


def listing(name, *tools, failure="", **given):
    return Listing(source(name, **given), tools, failure)
