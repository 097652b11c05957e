"""Calls of tools -> what came of them, each with a line in the usage log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from langchain_toolrag.catalogue.sources.stored import CallResult, StoredTool
from langchain_toolrag.errors import UnknownToolError
from langchain_toolrag.server.answers import Stopwatch, unforeseen
from langchain_toolrag.server.bodies import CallAnswer
from langchain_toolrag.server.services import Services


async def call(
    services: Services,
    name: str,
    arguments: Mapping[str, Any],
    *,
    search_id: str = "",
    timeout: float | None = None,
    tenant: str = "",
) -> CallAnswer:
    """Call a tool, once: it is never tried again by itself.

    Args:
        services: What answers; its options say how much of a result is passed on.
        name: The tool's API name or id.
        arguments: What it is called with.
        search_id: The search that found it; empty for unknown.
        timeout: How long it may take, in seconds; None for the options' time.
        tenant: Names the tenant, as for the search; empty for none.

    Returns:
        How it went. With an error comes the schema of the arguments, so that a model can do better.

    Raises:
        UnknownToolError: If there is no such tool.
    """
    watch, options, recorder = Stopwatch(), services.options, services.recorder
    served = services.serving.current
    try:
        tool = await services.serving.tool(served, name)
    except UnknownToolError:
        took_ms = watch.milliseconds()
        recorder.call("", "refused", search_id=search_id, took_ms=took_ms, tenant=tenant)
        raise
    result = CallResult("timeout", "")  # If the server ends meanwhile, the call has a line too.
    try:
        result = await _result(services, tool, arguments, timeout or options.call_timeout)
    finally:
        took_ms = watch.milliseconds()
        call_id = recorder.call(
            tool.id,
            result.outcome,
            search_id=search_id,
            arguments=dict(arguments),
            took_ms=took_ms,
            tenant=tenant,
        )
    return _with_details(
        CallAnswer(
            name=served.names[tool.id],
            call_id=call_id,
            outcome=result.outcome,
            took_ms=took_ms,
            content=_within(result.content, options.most_result_characters),
        ),
        tool,
        result,
        options.most_result_characters,
    )


async def _result(
    services: Services, tool: StoredTool, arguments: Mapping[str, Any], timeout: float
) -> CallResult:
    try:
        calls = await services.calls()
        return await asyncio.wait_for(calls.call(tool, arguments), timeout)
    except asyncio.TimeoutError:
        return CallResult("timeout", f"no answer within {timeout:g} seconds")
    except Exception as error:
        unforeseen(error, f"a call of {tool.id}")
        return CallResult("tool_error", f"the call failed ({type(error).__name__})")


def _with_details(
    answer: CallAnswer, tool: StoredTool, result: CallResult, most: int
) -> CallAnswer:
    if result.structured is not None and _is_small(result.structured, most):
        answer["structured"] = result.structured
    if result.status is not None:
        answer["http_status"] = result.status
    if result.outcome == "tool_error":
        answer["inputSchema"] = dict(tool.parameters)
    return answer


def _within(content: str, most: int) -> str:
    if len(content) <= most:
        return content
    return f"{content[:most]}\n[{len(content) - most:,} further characters are left out]"


def _is_small(structured: Any, most: int) -> bool:
    """Whether a result can be passed on: what is no JSON cannot."""
    try:
        return len(json.dumps(structured, allow_nan=False)) <= most
    except (TypeError, ValueError, RecursionError):
        return False
