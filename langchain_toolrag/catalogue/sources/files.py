"""A file of definitions, or a Python attribute, in -> tools out."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

from langchain_toolrag.catalogue.sources.json_files import read_json, read_lines
from langchain_toolrag.errors import SourceError
from langchain_toolrag.types import Tool

_KEY = "tools"  # What MCP's tools/list and most dumps call their list.


def read_tools(source: str, *, folder: Path | None = None) -> list[Tool]:
    """Read tools from where a user points.

    Args:
        source: A `.json` file (a list of definitions, or an object with `tools`), a `.jsonl` file
            (a definition a line), `file.py:ATTRIBUTE` or `module:attribute` (a list of tools, or a
            mapping of names to tools). Definitions are OpenAI's, MCP's, or this project's own.
        folder: Where a module may be that is not installed; None for the current folder.

    Returns:
        The tools, in order.

    Raises:
        SourceError: If there is nothing to read, or it is not tools; names the line at fault.
    """
    path = Path(source)
    if path.suffix in (".json", ".jsonl"):
        return _from_file(path)
    location, _, attribute = source.rpartition(":")
    if not location or not attribute:
        raise SourceError(
            source, "wanted a .json or .jsonl file, file.py:ATTRIBUTE or module:attribute"
        )
    return _from_attribute(source, _module(location, folder or Path.cwd()), attribute)


def _from_file(path: Path) -> list[Tool]:
    if path.suffix == ".jsonl":
        return [_definition(line.value, str(path), line.number) for line in read_lines(path)]
    parsed = read_json(path)
    listed = parsed.get(_KEY) if isinstance(parsed, dict) else parsed
    if not isinstance(listed, list):
        raise SourceError(str(path), f"wanted a list of tools, or an object with '{_KEY}'")
    return [_definition(value, str(path), None) for value in listed]


def _definition(value: object, source: str, line: int | None) -> Tool:
    if not isinstance(value, dict):
        raise SourceError(source, f"wanted a tool as an object, found {value!r:.80}", line=line)
    inner = value.get("function")
    named = inner if isinstance(inner, dict) else value
    if not isinstance(named.get("name"), str) and "type" not in value:
        raise SourceError(source, f"a tool without a name: {value!r:.80}", line=line)
    return value


def _module(location: str, folder: Path) -> ModuleType:
    """Import a file or a dotted module; a file may import its neighbours."""
    path = Path(location)
    if path.suffix == ".py":
        folder = path.resolve().parent
    sys.path.insert(0, str(folder))
    try:
        if path.suffix != ".py":
            return importlib.import_module(location)
        return _module_of_file(path)
    except SyntaxError as error:
        raise SourceError(location, f"syntax error: {error.msg}", line=error.lineno) from error
    # The user's module may raise anything while it is imported, or want to end the process.
    except (Exception, SystemExit) as error:
        problem = f"cannot be imported: {type(error).__name__}: {error}"
        raise SourceError(location, problem) from error
    finally:
        sys.path.remove(str(folder))


def _module_of_file(path: Path) -> ModuleType:
    # Under its own name it could take the place of a module that others import.
    digest = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    name = f"{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Dataclasses and pydantic look their module up.
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _from_attribute(source: str, module: ModuleType, attribute: str) -> list[Tool]:
    if not hasattr(module, attribute):
        raise SourceError(source, f"has no attribute {attribute!r}")
    value = getattr(module, attribute)
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, Iterable) and not isinstance(value, str):
        return list(value)
    raise SourceError(source, f"wanted a list of tools, found a {type(value).__name__}")
