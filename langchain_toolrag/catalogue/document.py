"""One tool in -> its tool document out.

A tool is a LangChain tool, a plain function, or a definition as a dict: OpenAI's function
form, MCP's `inputSchema` form, or this project's own with `server` and `parameters`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel
from typing_extensions import is_typeddict

from langchain_toolrag.catalogue.names import bound_name, split_words
from langchain_toolrag.catalogue.schema import argument_words
from langchain_toolrag.errors import InvalidToolError
from langchain_toolrag.types import Tool, ToolDocument, ToolId

_SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema")
_FUNCTION_TYPES = (None, "function", "custom")  # `custom` is Anthropic's word for it.
_MCP_HINT = "anthropic/searchHint"
_COLLECTIONS = (list, tuple, set, frozenset)
_NO_TAGS: frozenset[str] = frozenset()


def tool_id(name: str, server: str | None) -> ToolId:
    """Return the id of a tool: `<server>/<name>`, or the name where there is no server."""
    return f"{server}/{name}" if server else name


def identify(tool: Tool) -> ToolId:
    """Return the id of a tool without reading its schema."""
    if isinstance(tool, BaseTool):
        return tool_id(tool.name, server_of(tool.metadata))
    if isinstance(tool, dict):
        return _dict_id(tool)
    if isinstance(tool, type):
        return _dict_id(_class_definition(tool))
    return getattr(tool, "__name__", type(tool).__name__)


def is_definition(tool: object) -> bool:
    """Return whether a dict defines a function, rather than name a provider's own tool."""
    if not isinstance(tool, dict):
        return False
    definition = _definition(tool)
    return tool.get("type") in _FUNCTION_TYPES and isinstance(definition.get("name"), str)


def is_providers_own(tool: object) -> bool:
    """Return whether a tool is a provider's own (a dict such as a web search)."""
    return isinstance(tool, dict) and not is_definition(tool)


def server_of(metadata: Mapping[str, Any] | None) -> str | None:
    """Return the server a tool's metadata names.

    Read are `server` and `group` (a name), and `mcp.server.name` as `langchain.mcp` writes it.
    """
    if not metadata:
        return None
    named = metadata.get("server") or metadata.get("group")
    if isinstance(named, Mapping):
        named = named.get("name")
    if not named:
        named = _nested(metadata, "mcp", "server", "name")
    return str(named) if named else None


def openai_definition(tool: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a definition in OpenAI's function form, the one `bind_tools` takes, under a name.

    One that is in that form already, with nothing else in it, is returned as it is.
    """
    definition = _definition(tool)
    schema = next((definition[key] for key in _SCHEMA_KEYS if definition.get(key)), None)
    function = {
        "name": name,
        "description": definition.get("description") or "",
        "parameters": schema or {"type": "object", "properties": {}},
    }
    if "strict" in definition:
        function["strict"] = definition["strict"]
    clean = {"type": "function", "function": function}
    return tool if tool == clean else clean


def document_of(tool: Tool) -> ToolDocument:
    """Read a tool into a tool document.

    Args:
        tool: A LangChain tool, a function, or a definition as a dict.

    Returns:
        Its document. Injected arguments (state, store, runtime, config) are not in it.

    Raises:
        InvalidToolError: If it has no name or is none of these.
    """
    if isinstance(tool, BaseTool):
        return _from_tool(tool)
    if isinstance(tool, dict):
        return _from_dict(tool)
    if isinstance(tool, type):
        return _from_dict(_class_definition(tool))
    if callable(tool):
        return _from_function(tool)
    raise InvalidToolError(
        f"a {type(tool).__name__} is not a tool: give a LangChain tool, a function, or a dict "
        "with 'name', 'description' and 'parameters'",
        tool,
    )


def _from_tool(tool: BaseTool) -> ToolDocument:
    metadata = tool.metadata or {}
    extras = getattr(tool, "extras", None) or {}
    return _document(
        tool,
        name=tool.name,
        description=tool.description,
        schema=call_schema(tool),
        server=server_of(metadata),
        title=_title(metadata),
        hint=extras.get("search_hint")
        or metadata.get("search_hint")
        or _nested(metadata, "_meta", _MCP_HINT),
        tags=tool.tags,
        origin=origin_of(tool),
    )


def _class_definition(tool: type) -> dict[str, Any]:
    """Read a pydantic model or TypedDict that stands for a function; another class is invalid."""
    if is_typeddict(tool) or (issubclass(tool, BaseModel) and not issubclass(tool, BaseTool)):
        return convert_to_openai_tool(tool)
    raise InvalidToolError(
        f"the class {tool.__name__} is not a tool: give an instance, or a pydantic model or "
        "TypedDict of the arguments",
        tool,
    )


def _from_function(function: Callable[..., Any]) -> ToolDocument:
    name = getattr(function, "__name__", "")
    try:
        description = inspect.getdoc(function) or " ".join(split_words(name))
        tool = StructuredTool.from_function(function, name=name, description=description)
    # Whatever pydantic makes of a signature it cannot read.
    except Exception as error:
        raise InvalidToolError(
            f"{name or repr(function)} cannot be a tool: {error}; wrap it in a function with "
            "annotated arguments",
            function,
        ) from error
    return _from_tool(tool)


def _from_dict(tool: dict[str, Any]) -> ToolDocument:
    definition = _definition(tool)
    schema = next((definition[key] for key in _SCHEMA_KEYS if definition.get(key)), None)
    server = _dict_server(tool)
    return _document(
        tool,
        name=definition.get("name"),
        description=definition.get("description"),
        schema=schema,
        server=server,
        title=definition.get("title") or _nested(definition, "annotations", "title"),
        hint=_beside_or_inside(tool, "search_hint")
        or _nested(tool, "metadata", "search_hint")
        or _nested(tool, "_meta", _MCP_HINT),
        tags=_beside_or_inside(tool, "tags"),
        origin=f"a definition of {server}" if server else "a definition",
        identity=tool.get("id"),
    )


def _document(
    tool: Tool,
    *,
    name: object,
    description: object,
    schema: object,
    server: str | None,
    title: object,
    hint: object,
    tags: object,
    origin: str,
    identity: object = None,
) -> ToolDocument:
    if not isinstance(name, str) or not name.strip():
        raise InvalidToolError(f"a tool needs a name; found {name!r} in {tool!r:.200}", tool)
    arguments = argument_words(schema)
    return ToolDocument(
        id=identity if isinstance(identity, str) and identity else tool_id(name, server),
        name=name,
        bound_name=bound_name(name),
        description=description.strip() if isinstance(description, str) else "",
        words=split_words(name),
        parameters=arguments.names,
        values=arguments.values,
        parameter_descriptions=arguments.descriptions,
        server=server,
        title=title if isinstance(title, str) else "",
        hint=hint if isinstance(hint, str) else "",
        tags=frozenset(map(str, tags)) if tags and isinstance(tags, _COLLECTIONS) else _NO_TAGS,
        origin=origin,
    )


def call_schema(tool: BaseTool) -> object:
    """Return the schema the model sees: without injected arguments; None where it has none."""
    if isinstance(tool.args_schema, dict):
        return tool.args_schema
    try:
        schema: Any = tool.tool_call_schema
        if isinstance(schema, dict):
            return schema
        return (
            schema.model_json_schema() if hasattr(schema, "model_json_schema") else schema.schema()
        )
    # Pydantic raises errors of many kinds for types that JSON schema cannot express; such a
    # tool is still found by its name and description.
    except Exception:
        return None


def _definition(tool: dict[str, Any]) -> dict[str, Any]:
    """Return the dict that holds the name: OpenAI nests it under `function`."""
    inner = tool.get("function")
    return inner if isinstance(inner, dict) else tool


def _dict_id(tool: dict[str, Any]) -> ToolId:
    identity = tool.get("id")
    if isinstance(identity, str) and identity:
        return identity
    return tool_id(str(_definition(tool).get("name")), _dict_server(tool))


def _dict_server(tool: dict[str, Any]) -> str | None:
    metadata = tool.get("metadata")
    named = server_of({"server": _beside_or_inside(tool, "server")})
    return named or server_of(metadata if isinstance(metadata, Mapping) else None)


def _beside_or_inside(tool: dict[str, Any], key: str) -> Any:
    """Return a value that stands beside OpenAI's `function` or in it."""
    return tool.get(key) or _definition(tool).get(key)


def _title(metadata: Mapping[str, Any]) -> str:
    """Return a display name: MCP's `title`, flat or in its annotations."""
    flat = metadata.get("title") or _nested(metadata, "annotations", "title")
    found = flat or _nested(metadata, "mcp", "tool", "annotations", "title")
    return found if isinstance(found, str) else ""


def _nested(mapping: Mapping[str, Any], *keys: str) -> Any:
    value: Any = mapping
    for key in keys:
        if not value or not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def origin_of(tool: BaseTool) -> str:
    """Say where a tool was defined: its server, or the function it wraps."""
    server = server_of(tool.metadata)
    if server:
        return f"server {server}"
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    if function is None:
        return f"{type(tool).__module__}.{type(tool).__qualname__}"
    return f"{function.__module__}.{function.__qualname__}"
