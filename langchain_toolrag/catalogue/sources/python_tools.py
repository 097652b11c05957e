"""A `module:attribute` in -> the tools it holds, to store and to call, out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_toolrag.catalogue.catalogue import Entry, build_catalogue
from langchain_toolrag.catalogue.sources.directory import now
from langchain_toolrag.catalogue.sources.files import read_tools
from langchain_toolrag.catalogue.sources.merging import repeated
from langchain_toolrag.catalogue.sources.stored import (
    Listing,
    StoredSource,
    StoredTool,
    checked_name,
)
from langchain_toolrag.errors import SourceError

_HINT = "anthropic/searchHint"  # Where MCP tools have it, too.


def read_python(location: str, *, name: str | None = None) -> Listing:
    """List the tools of a Python module; it is imported.

    Args:
        location: `module:attribute` or `file.py:ATTRIBUTE`: a list of tools, or a mapping.
        name: The source's name; None for the module's own, without its packages.

    Returns:
        Its tools, those that have a definition and no code left out.

    Raises:
        SourceError: If there are none, or two have one name.
        InvalidToolError: If something is no tool.
    """
    if not all(location.rpartition(":")):
        raise SourceError(location, "wanted MODULE:ATTRIBUTE or FILE.py:ATTRIBUTE")
    source = checked_name(_own_name(location) if name is None else name, location)
    entries = [entry for entry in _entries(location, None) if entry.runnable is not None]
    if not entries:
        raise SourceError(location, "holds no tool that can be run")
    twice = repeated([entry.document.name for entry in entries])
    if twice is not None:
        raise SourceError(location, f"has two tools named {twice!r}: rename one")
    tools = [_stored(entry, source) for entry in entries]
    described = StoredSource(
        source,
        "python",
        _anywhere(location),
        connection={"folder": str(Path.cwd())},
        listed_at=now(),
        tools=len(tools),
    )
    return Listing(described, tools)


def own_tools(source: StoredSource) -> dict[str, BaseTool]:
    """Import the tools of a source, from the folder it was listed in if it is not installed.

    Args:
        source: The source.

    Returns:
        The module's own tools by name; functions are made tools.

    Raises:
        SourceError: If they cannot be imported.
        InvalidToolError: If something is no tool any more.
    """
    return {
        entry.document.name: entry.runnable.model_copy(update={"name": entry.document.name})
        for entry in _entries(source.origin, source.connection.get("folder"))
        if entry.runnable is not None
    }


def _entries(location: str, folder: str | None) -> list[Entry]:
    tools = read_tools(location, folder=Path(folder) if folder else None)
    return list(build_catalogue(tools, on_duplicate="prefix"))


def _anywhere(location: str) -> str:
    """Return the location as it can be read from another folder, too: a file by its whole path."""
    module, _, attribute = location.rpartition(":")
    return f"{Path(module).resolve()}:{attribute}" if module.endswith(".py") else location


def _own_name(location: str) -> str:
    """Return a module's last name: `tools` of `shop.tools:ALL` and of `shop/tools.py:ALL`."""
    module = location.rpartition(":")[0].replace("\\", "/").removesuffix(".py")
    return module.rpartition("/")[2].rpartition(".")[2]


def _stored(entry: Entry, source: str) -> StoredTool:
    document = entry.document
    annotations: dict[str, Any] = {"title": document.title} if document.title else {}
    if document.hint:
        annotations["_meta"] = {_HINT: document.hint}
    return StoredTool(
        id=f"{source}/{document.name}",
        source=source,
        kind="python",
        name=document.name,
        description=document.description,
        parameters=convert_to_openai_tool(entry.bound)["function"]["parameters"],
        annotations=annotations,
        tags=tuple(sorted(document.tags)),
    )
