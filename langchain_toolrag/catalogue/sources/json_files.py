"""A file of JSON, or of JSON lines, in -> values, or objects that know their place, out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from langchain_toolrag.errors import SourceError


@dataclass(frozen=True, slots=True)
class Line:
    """One object of a file.

    Attributes:
        source: The file.
        number: Its line, from 1.
        value: The object.
    """

    source: str
    number: int
    value: dict[str, Any]

    def fault(self, problem: str) -> SourceError:
        """Return an error that names the file and line."""
        return SourceError(self.source, problem, line=self.number)


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Args:
        path: The file, in UTF-8, with or without a byte order mark.

    Returns:
        Its value.

    Raises:
        SourceError: If it cannot be read or is not JSON; names the line at fault.
    """
    return _parsed(_text(path), str(path), None)


def read_lines(path: Path) -> list[Line]:
    """Read a file with a JSON object on every line; empty lines are passed over.

    Args:
        path: The file, in UTF-8, with or without a byte order mark.

    Returns:
        The objects, in order.

    Raises:
        SourceError: If it cannot be read or a line holds something else; names the line.
    """
    # Not `splitlines`: a string in JSON may hold U+2028, at which that would cut.
    lines = enumerate(_text(path).split("\n"), 1)
    return [_line(str(path), number, line) for number, line in lines if line.strip()]


def first_fault(error: ValidationError) -> str:
    """Return what pydantic holds against a value first: where, what was wanted, what was found."""
    fault = error.errors(include_url=False)[0]
    raised = fault.get("ctx", {}).get("error")
    if isinstance(raised, Exception):
        return str(raised)
    found = "" if fault["type"] == "missing" else f"; found {fault['input']!r:.80}"
    place = ".".join(str(part) for part in fault["loc"])
    return f"{place!r}: {fault['msg'][:1].lower()}{fault['msg'][1:]}{found}"


def _line(source: str, number: int, text: str) -> Line:
    value = _parsed(text, source, number)
    if not isinstance(value, dict):
        raise SourceError(source, f"wanted a JSON object, found {value!r:.80}", line=number)
    return Line(source, number, value)


def _parsed(text: str, source: str, line: int | None) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = error.lineno if line is None else line
        raise SourceError(source, f"not JSON: {error.msg}", line=at) from error
    # Too many digits, or too deeply nested.
    except (ValueError, RecursionError) as error:
        raise SourceError(source, f"cannot be read as JSON: {error}", line=line) from error


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise SourceError(str(path), f"not UTF-8: {error.reason}", line=line) from error
    except OSError as error:
        raise SourceError(str(path), f"cannot be read: {error.strerror}") from error
