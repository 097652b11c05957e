"""Tool document in -> the texts that are indexed of it."""

from __future__ import annotations

import json
from typing import Any

from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.types import ToolDocument, View


def lexical_text(document: ToolDocument, *, with_server: bool = True) -> str:
    """Return what lexical search reads of a tool: everything it could be found by.

    The raw name stands in front of its words, as in ToolRAG; the stemming analyser splits it,
    so that words of the name count twice.
    """
    server = document.server or "" if with_server else ""
    own = (server, document.name, *document.words, document.description, *document.parameters)
    parts = (*own, *_beyond_toolrag(document)) if with_server else own
    return " ".join(part for part in parts if part)


def _beyond_toolrag(document: ToolDocument) -> tuple[str, ...]:
    """What ToolRAG's own text does not have.

    What is said of parameters counts a word once: five hundred described alike would drown the
    tool's own words, and bring it up for theirs.
    """
    said = " ".join(document.parameter_descriptions).split()
    return (document.title, document.hint, *document.values, *dict.fromkeys(said))


def view_texts(document: ToolDocument, options: IndexOptions) -> list[tuple[str, float]]:
    """Return the texts a tool is embedded by, with weights that add up to 1."""
    if options.tool_text == "json":
        return [(json_text(document, with_server=options.server_in_text), 1.0)]
    views: tuple[tuple[View, float], ...] = (
        ("full", options.full),
        ("name", options.name),
        ("description", options.description),
    )
    weighted = [
        (document.text(view, with_server=options.server_in_text), weight) for view, weight in views
    ]
    present = [(text, weight) for text, weight in weighted if weight and text.strip()]
    total = sum(weight for _, weight in present)
    return [(text, weight / total) for text, weight in present] or [(document.name, 1.0)]


def json_text(document: ToolDocument, *, with_server: bool = True) -> str:
    """Return a tool as JSON: what tells most of it first, since long texts are cut at the end.

    Of the tool's own schema only what a document keeps is there: names, descriptions and enum
    values of its arguments, without their types, nesting and which are required. A description
    stands with its argument where every argument has one of its own, else with the whole.
    """
    server = {"server": document.server} if document.server and with_server else {}
    tool = {"name": document.name, "description": document.description}
    return json.dumps({**server, **tool, "inputSchema": _schema(document)}, ensure_ascii=False)


def _schema(document: ToolDocument) -> dict[str, Any]:
    names, said = document.parameters, document.parameter_descriptions
    is_paired = len(names) == len(said)
    properties: dict[str, Any] = {name: {} for name in names}
    if is_paired:
        properties = {name: {"description": text} for name, text in zip(names, said, strict=True)}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if said and not is_paired:
        schema["description"] = " ".join(said)
    return {**schema, "enum": list(document.values)} if document.values else schema
