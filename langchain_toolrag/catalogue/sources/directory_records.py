"""Records of an ingest directory in -> JSON objects out, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError

from langchain_toolrag.catalogue.sources.json_files import first_fault
from langchain_toolrag.catalogue.sources.stored import StoredSource, StoredTool

Record: TypeAlias = StoredTool | StoredSource
RecordT = TypeVar("RecordT")

_TOOLS = TypeAdapter(StoredTool)
_SOURCES = TypeAdapter(StoredSource)


def as_json(record: Record) -> dict[str, Any]:
    """Return a record as a JSON object, `id` or `name` first; what is at its default is left out.

    Args:
        record: A tool or a source.

    Returns:
        The object; it shares the record's mappings.
    """
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    empty = {field.name: _default(field) for field in fields(record)}
    return {name: value for name, value in values.items() if value != empty[name]}


def read_tool(value: Mapping[str, Any]) -> StoredTool:
    """Return the tool that a JSON object describes; keys that are unknown are passed over.

    Args:
        value: The object.

    Returns:
        The tool.

    Raises:
        ValueError: If it is no tool; says what was wanted.
    """
    return _read(_TOOLS, value)


def read_source(value: Mapping[str, Any]) -> StoredSource:
    """Return the source that a JSON object describes; keys that are unknown are passed over.

    Args:
        value: The object.

    Returns:
        The source.

    Raises:
        ValueError: If it is no source; says what was wanted.
    """
    return _read(_SOURCES, value)


def _read(kind: TypeAdapter[RecordT], value: Mapping[str, Any]) -> RecordT:
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        raise ValueError(first_fault(error)) from error


def _default(field: Any) -> Any:
    """Return what a field is where nothing is given; MISSING where something must be."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default
