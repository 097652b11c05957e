"""A stored operation and a call's arguments in -> what is sent out.

What a model writes is data: a path argument stays one segment of the path, a header one line.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from langchain_toolrag.catalogue.sources.openapi.media import FORM, MULTIPART, is_json
from langchain_toolrag.catalogue.sources.stored import StoredTool

READING_METHODS = ("GET", "HEAD")
"""Methods that change nothing, by HTTP's own rules."""

_TEMPLATE = re.compile(r"\{([^{}]+)\}")
_SEPARATORS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}

File = tuple[str, tuple[str | None, bytes]]
"""A part of a multipart body: its name, its file name (None for a field), its bytes."""


@dataclass(slots=True)
class Outgoing:
    """What an operation is sent, besides credentials.

    Attributes:
        path: Its path, percent-encoded, with a slash in front.
        query: Its query, percent-encoded; may be empty.
        headers: Its headers, content type included where there is a body.
        cookies: Its cookies, as `name=value`.
        content: Its body; None for none, or where there are parts.
        parts: The parts of a multipart body; None for another.
    """

    path: str
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    cookies: list[str] = field(default_factory=list)
    content: bytes | None = None
    parts: list[File] | None = None


def outgoing(tool: StoredTool, arguments: Mapping[str, Any]) -> Outgoing:
    """Put arguments where they go.

    Args:
        tool: The operation.
        arguments: The arguments, by name. None is as good as none for what is not in the body.

    Returns:
        What is sent.

    Raises:
        ValueError: If one is missing, unknown, or not to be written where it goes; says which.
    """
    places: Mapping[str, Mapping[str, Any]] = tool.call.get("arguments", {})
    _check_names(tool, arguments, places)
    by_place: dict[str, list[tuple[str, Any, Mapping[str, Any]]]] = {}
    for name, value in arguments.items():
        place = places[name]
        if value is not None or place["in"] == "body":
            entry = (str(place.get("name", name)), value, place)
            by_place.setdefault(place["in"], []).append(entry)
    values = {name: _segment(name, value, place) for name, value, place in by_place.get("path", ())}
    sent = Outgoing(_TEMPLATE.sub(lambda match: values[match[1]], tool.call["path"]))
    sent.query = "&".join(_pairs(by_place.get("query", ())))
    for name, value, place in by_place.get("header", ()):
        sent.headers[name] = _line(name, _joined(value, place, quoted=False))
    sent.cookies = _pairs(by_place.get("cookie", ()))
    if "body" in tool.call:
        _add_body(sent, tool.call["body"], by_place.get("body", []))
    return sent


def _check_names(
    tool: StoredTool, arguments: Mapping[str, Any], places: Mapping[str, Mapping[str, Any]]
) -> None:
    unknown = [name for name in arguments if name not in places]
    if unknown:
        raise ValueError(f"there is no argument {', '.join(map(repr, unknown))}")
    missing = [
        name
        for name in tool.parameters.get("required", ())
        if name not in arguments
        or (arguments[name] is None and places.get(name, {}).get("in") != "body")
    ]
    if missing:
        raise ValueError(f"it needs {', '.join(map(repr, missing))}")


def _segment(name: str, value: Any, place: Mapping[str, Any]) -> str:
    """Write a path argument, which may not leave its segment of the path."""
    if value in ("", [], {}):
        raise ValueError(f"{name!r} goes into the path and may not be empty")
    text = unquote(unquote(_text(value)))
    if any(part in (".", "..") for part in re.split(r"[/\\]", text)):
        raise ValueError(f"{name!r} goes into the path and may not hold '.' or '..' as a part")
    return _joined(value, place, quoted=True)


def _line(name: str, text: str) -> str:
    if not text.isascii() or not text.isprintable():
        raise ValueError(f"{name!r} goes into a header: wanted one line of ASCII")
    return text


def _joined(value: Any, place: Mapping[str, Any], *, quoted: bool) -> str:
    """Write a value in OpenAPI's style `simple`: lists and objects with commas."""
    written = _quoted if quoted else _text
    if place.get("json"):
        return written(json.dumps(value))
    if isinstance(value, Mapping):
        between = "=" if place.get("explode") else ","
        return ",".join(f"{written(key)}{between}{written(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ",".join(map(written, value))
    return written(value)


def _pairs(entries: Any) -> list[str]:
    return [pair for name, value, place in entries for pair in _query_pairs(name, value, place)]


def _query_pairs(name: str, value: Any, place: Mapping[str, Any]) -> list[str]:
    """Write a value as `name=value`, once or several times, by its style and explode."""
    style = place.get("style", "form")
    explode = place.get("explode", style == "form")
    if place.get("json"):
        return [f"{_quoted(name)}={_quoted(json.dumps(value))}"]
    if style == "deepObject":
        return _deep_pairs(_quoted(name), value)
    if explode and isinstance(value, Mapping):
        return [f"{_quoted(key)}={_quoted(one)}" for key, one in value.items()]
    if explode and isinstance(value, list):
        return [f"{_quoted(name)}={_quoted(one)}" for one in value]
    listed = (
        [part for pair in value.items() for part in pair] if isinstance(value, Mapping) else value
    )
    if isinstance(listed, list):
        return [f"{_quoted(name)}={_SEPARATORS[style].join(map(_quoted, listed))}"]
    return [f"{_quoted(name)}={_quoted(value)}"]


def _deep_pairs(name: str, value: Any) -> list[str]:
    """Write `name[key]=value`, to any depth; a list has positions for keys."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, Mapping):
        return [f"{name}={_quoted(value)}"]
    return [
        pair for key, one in value.items() for pair in _deep_pairs(f"{name}[{_quoted(key)}]", one)
    ]


def _add_body(sent: Outgoing, body: Mapping[str, Any], entries: list[Any]) -> None:
    whole = next((entry for entry in entries if entry[2].get("whole")), None)
    if not entries and not body.get("required"):
        return
    media_type = str(body["type"])
    if is_json(media_type):
        value = whole[1] if whole else {name: value for name, value, _ in entries}
        sent.content = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        media_type = "application/json" if media_type == "*/*" else media_type
    elif media_type in (FORM, MULTIPART):
        _add_form(sent, media_type, _fields(whole) if whole else entries)
    elif whole:
        sent.content = _bytes(*whole)
        media_type += "; charset=utf-8" if media_type.startswith("text/") else ""
    if sent.parts is None:  # A multipart body's type has a boundary, which httpx adds.
        sent.headers["Content-Type"] = media_type


def _fields(whole: Any) -> list[tuple[str, Any, Mapping[str, Any]]]:
    name, value, _ = whole
    if not isinstance(value, Mapping):
        raise ValueError(f"{name!r} is a form: wanted an object")
    return [(str(key), one, {}) for key, one in value.items()]


def _add_form(sent: Outgoing, media_type: str, entries: list[Any]) -> None:
    if media_type == FORM:
        sent.content = "&".join(_pairs(entries)).encode()
        return
    sent.parts = [
        (name, (name if place.get("binary") else None, _bytes(name, one, place)))
        for name, value, place in entries
        for one in (value if isinstance(value, list) else [value])
    ]


def _bytes(name: str, value: Any, place: Mapping[str, Any]) -> bytes:
    if not place.get("binary"):
        return _text(value).encode()
    try:
        return base64.b64decode(_text(value), validate=True)
    except ValueError as error:
        raise ValueError(f"{name!r} is a file: wanted its bytes in base64") from error


def _quoted(value: Any) -> str:
    return quote(_text(value), safe="")


def _text(value: Any) -> str:
    """Write a value as text: strings as they are, the rest as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
