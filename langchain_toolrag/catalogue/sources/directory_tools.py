"""Stored tools in -> definitions to search, and LangChain tools to call, out."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.tools import BaseTool, ToolException
from pydantic import Field

from langchain_toolrag.catalogue.sources.python_tools import own_tools
from langchain_toolrag.catalogue.sources.store import ToolStore
from langchain_toolrag.catalogue.sources.stored import CallResult, StoredSource, StoredTool
from langchain_toolrag.errors import ToolRAGError
from langchain_toolrag.usage.outcomes import tell_outcome

if TYPE_CHECKING:
    from langchain_toolrag.catalogue.sources.calls import SourceCalls

logger = logging.getLogger(__name__)


class DirectoryTool(BaseTool):
    """A tool that was ingested: called where its source is.

    What fails raises a ToolException, which becomes a tool message of status `"error"`; which
    kind of failure it was is told to the usage log beside it (`usage.outcomes`).

    Attributes:
        stored: What is stored of it.
        calls: What calls it: a SourceCalls.
        response_format: A text, and the structured result as artifact.
        handle_tool_error: Whether a failure is told to the model.
    """

    stored: StoredTool = Field(exclude=True, repr=False)
    calls: Any = Field(exclude=True, repr=False)
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = True

    # No parameter has a name that a tool's own argument could have.
    def _run(self, /, **arguments: Any) -> tuple[str, Any]:
        return self._told(self.calls.call_now(self.stored, arguments))

    async def _arun(self, /, **arguments: Any) -> tuple[str, Any]:
        return self._told(await self.calls.call(self.stored, arguments))

    def _told(self, result: CallResult, /) -> tuple[str, Any]:
        tell_outcome(self.stored.id, result.outcome)
        if result.outcome != "ok":
            raise ToolException(result.content)
        return result.content, result.structured


@dataclass(frozen=True, slots=True)
class OpenTools:
    """Tools that were ingested, ready to be called.

    Attributes:
        tools: LangChain tools, in the order of the sources.
        missing: Why the tools of sources are left out, by source.
        calls: What calls them; to be closed.
    """

    tools: list[BaseTool]
    missing: Mapping[str, str]
    calls: SourceCalls


def open_tools(
    store: ToolStore, *, environment: Mapping[str, str], allow_write: bool, timeout: float
) -> OpenTools:
    """Read what was ingested and make it callable; nothing is connected yet.

    Args:
        store: Where it was ingested into.
        environment: The variables that its sources name.
        allow_write: As for `SourceCalls`.
        timeout: As for `SourceCalls`.

    Returns:
        Its tools.

    Raises:
        DatabaseError: If it is a database that cannot be read.
        SourceError: If it is a directory that cannot be read.
    """
    # The MCP SDK, which whoever only searches need not wait for.
    from langchain_toolrag.catalogue.sources.calls import SourceCalls

    calls = SourceCalls(store, environment=environment, allow_write=allow_write, timeout=timeout)
    tools, missing = callable_tools(store.tools(), store.sources(), calls)
    return OpenTools(tools, missing, calls)


def definitions(tools: Sequence[StoredTool]) -> list[dict[str, Any]]:
    """Return what is to be searched of tools; nothing is imported or connected.

    Args:
        tools: The tools.

    Returns:
        A definition each. It is indexed as the tool of `callable_tools` is.
    """
    return [
        {
            "id": tool.id,
            "name": tool.name,
            "description": tool.description,
            "parameters": _schema(tool),
            "server": tool.source,
            "tags": list(tool.tags),
            "title": tool.annotations.get("title"),
            "_meta": tool.annotations.get("_meta"),
        }
        for tool in tools
    ]


def callable_tools(
    tools: Sequence[StoredTool], sources: Mapping[str, StoredSource], calls: SourceCalls
) -> tuple[list[BaseTool], dict[str, str]]:
    """Make LangChain tools of stored ones; those of Python modules are the modules' own.

    Args:
        tools: The tools.
        sources: Their sources.
        calls: What calls them.

    Returns:
        The tools, each with its source as server; and why modules cannot be imported, whose tools
        are left out, by source.
    """
    modules, missing = _modules(sources)
    made: list[BaseTool] = []
    for tool in tools:
        if tool.kind != "python":
            made.append(_callable(tool, calls))
        elif tool.name in modules.get(tool.source, {}):
            made.append(_as_stored(modules[tool.source][tool.name], tool))
        elif tool.source not in missing:
            logger.warning("%s is not in its module any more: ingest it again", tool.id)
    return made, missing


def _modules(
    sources: Mapping[str, StoredSource],
) -> tuple[dict[str, dict[str, BaseTool]], dict[str, str]]:
    modules, missing = {}, {}
    for name, source in sources.items():
        if source.kind != "python":
            continue
        try:
            modules[name] = own_tools(source)
        except ToolRAGError as error:
            missing[name] = str(error)
            logger.warning("the tools of %r are left out: %s", name, error)
    return modules, missing


def _callable(tool: StoredTool, calls: SourceCalls) -> DirectoryTool:
    return DirectoryTool(
        name=tool.name,
        description=tool.description,
        args_schema=_schema(tool),
        metadata={**tool.annotations, "server": tool.source},
        tags=list(tool.tags),
        stored=tool,
        calls=calls,
    )


def _as_stored(own: BaseTool, tool: StoredTool) -> BaseTool:
    """Return a module's tool as one of its source."""
    return own.model_copy(update={"metadata": {**(own.metadata or {}), "server": tool.source}})


def _schema(tool: StoredTool) -> dict[str, Any]:
    """Return the schema of the arguments; the providers want `properties` even of none."""
    return {"type": "object", "properties": {}, **tool.parameters}
