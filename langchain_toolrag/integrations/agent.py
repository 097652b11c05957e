"""Selection in LangGraph's prebuilt ReAct agent.

LangGraph's own `create_react_agent` has no `tool_selector`; it has a hook before the model
and a model that may depend on the state. The selector is run in the first and its choice is
bound in the second.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, chat_agent_executor
from langgraph.runtime import get_runtime
from langgraph.warnings import LangGraphDeprecatedSinceV10
from pydantic import BaseModel, create_model
from typing_extensions import TypedDict, get_type_hints

from langchain_toolrag.catalogue.catalogue import build_catalogue
from langchain_toolrag.catalogue.document import is_providers_own
from langchain_toolrag.errors import InvalidToolError
from langchain_toolrag.integrations.binding import bind_tools
from langchain_toolrag.integrations.memory import NODE_KEY, latest, merge_memories
from langchain_toolrag.integrations.node import QUERY_KEY, ToolRAGNode
from langchain_toolrag.selection.bindable import tool_name
from langchain_toolrag.types import Tool

# What a hook may ask for besides the state, as LangGraph's own nodes may.
_HOOK_ARGUMENTS = ("config", "runtime", "store", "writer")


def create_react_agent(
    model: str | Runnable[Any, Any] | Callable[..., Any],
    tools: Sequence[Tool] | ToolNode,
    *,
    tool_selector: ToolRAGNode | None = None,
    prompt: Any = None,
    response_format: Any = None,
    pre_model_hook: Any = None,
    post_model_hook: Any = None,
    state_schema: type[Any] | None = None,
    context_schema: type[Any] | None = None,
    checkpointer: Any = None,
    store: Any = None,
    interrupt_before: list[str] | None = None,
    interrupt_after: list[str] | None = None,
    debug: bool = False,
    version: Literal["v1", "v2"] = "v2",
    name: str | None = None,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Create LangGraph's ReAct agent with tools selected before each model step.

    Everything but `tool_selector` means what it means in `langgraph.prebuilt`. A user's own
    `pre_model_hook` runs first; the selection reads the whole history, as that hook leaves it.
    The hook adds no step, so that `recursion_limit` counts as it does with any hook.

    Args:
        model: A chat model, `provider:name`, or a function of state and runtime that returns a
            model; the selected tools are bound to it.
        tools: All tools, or a `ToolNode` of them.
        tool_selector: Selects the tools; one without tools of its own takes in `tools`. None for
            a new one.
        prompt: As in LangGraph.
        response_format: As in LangGraph.
        pre_model_hook: As in LangGraph.
        post_model_hook: As in LangGraph.
        state_schema: As in LangGraph; the selector's keys are added to it.
        context_schema: As in LangGraph.
        checkpointer: As in LangGraph.
        store: As in LangGraph.
        interrupt_before: As in LangGraph.
        interrupt_after: As in LangGraph.
        debug: As in LangGraph.
        version: As in LangGraph.
        name: As in LangGraph.

    Returns:
        The compiled graph; its state holds `selected_tools` and `toolrag_query`.

    Raises:
        InvalidToolError: If a `ToolNode` holds a tool whose name no provider takes.
    """
    selector = tool_selector or ToolRAGNode()
    executed = _executed_tools(selector, tools)
    passing = _passed_through(selector, tools)
    with warnings.catch_warnings():
        # Ours is the supported way to have a selector in this agent; the user did nothing wrong.
        warnings.simplefilter("ignore", LangGraphDeprecatedSinceV10)
        agent: CompiledStateGraph[Any, Any, Any, Any] = chat_agent_executor.create_react_agent(
            _dynamic_model(model, selector, passing),
            executed,
            prompt=prompt,
            response_format=response_format,
            pre_model_hook=_hook(pre_model_hook, selector),
            post_model_hook=post_model_hook,
            state_schema=_extended_schema(state_schema, selector, bool(response_format)),
            context_schema=context_schema,
            checkpointer=checkpointer,
            store=store,
            interrupt_before=interrupt_before,
            interrupt_after=interrupt_after,
            debug=debug,
            version=version,
            name=name,
        )
    return agent


def _executed_tools(selector: ToolRAGNode, tools: Sequence[Tool] | ToolNode) -> ToolNode:
    """Give the selector its tools; return the node that runs everything the agent has."""
    given = list(tools.tools_by_name.values()) if isinstance(tools, ToolNode) else list(tools)
    if not selector.has_tools:
        selector.bind_tools(given)
    if isinstance(tools, ToolNode):
        _refuse_unfit(selector, tools)
        return tools
    known = {entry.document.name for entry in selector.rag.catalogue}
    others = build_catalogue([tool for tool in given if tool_name(tool) not in known])
    return selector.tool_node([entry.runnable for entry in others if entry.runnable])


def _passed_through(selector: ToolRAGNode, tools: Sequence[Tool] | ToolNode) -> list[Tool]:
    """Return the dicts that the selector neither selects nor passes through itself."""
    if isinstance(tools, ToolNode):
        return []
    catalogue = selector.rag.catalogue
    selected = {entry.document.name for entry in catalogue}
    return [
        tool
        for tool in tools
        if isinstance(tool, dict)
        and tool not in catalogue.passed_through
        and (is_providers_own(tool) or tool_name(tool) not in selected)
    ]


def _refuse_unfit(selector: ToolRAGNode, tools: ToolNode) -> None:
    """Refuse a ToolNode that cannot run everything that will be bound."""
    searching = selector.search_tool
    if searching is not None and searching.name not in tools.tools_by_name:
        raise InvalidToolError(
            f"the ToolNode cannot run {searching.name!r}, the selector's search tool: give the "
            "tools as a list",
            searching,
        )
    for entry in selector.rag.catalogue:
        if entry.document.bound_name not in tools.tools_by_name:
            raise InvalidToolError(
                f"the ToolNode cannot run {entry.document.bound_name!r}, the name that "
                f"{entry.document.name!r} is bound under: give the tools as a list",
                entry.tool,
            )


def _dynamic_model(
    model: Any, selector: ToolRAGNode, passing: Sequence[Tool]
) -> Callable[[Any, Any], Any]:
    """Return a function of state and runtime that binds the selected tools."""

    def bound(chosen: Any, state: Any) -> Runnable[Any, Any]:
        return bind_tools(chosen, [*passing, *selector.tools_for(state)])

    if isinstance(model, str):
        from langchain.chat_models import init_chat_model  # A second's import, seldom needed.

        model = init_chat_model(model)
    if isinstance(model, Runnable):
        return lambda state, runtime: bound(model, state)
    if not inspect.iscoroutinefunction(model):
        return lambda state, runtime: bound(model(state, runtime), state)

    async def adynamic(state: Any, runtime: Any) -> Any:
        return bound(await model(state, runtime), state)

    return adynamic


def _extended_schema(
    schema: type[Any] | None, selector: ToolRAGNode, structured: bool
) -> type[Any]:
    """Add the selector's keys to the agent's state."""
    if schema is None:
        schema = (
            chat_agent_executor.AgentStateWithStructuredResponse
            if structured
            else chat_agent_executor.AgentState
        )
    fields: dict[str, Any] = {
        selector.output_key: list[str],
        QUERY_KEY: Annotated[str, latest],
        NODE_KEY: Annotated[dict[str, Any], merge_memories],
    }
    if issubclass(schema, BaseModel):
        blank: dict[str, Any] = {selector.output_key: [], QUERY_KEY: "", NODE_KEY: {}}
        defaults: dict[str, Any] = {key: (kind, blank[key]) for key, kind in fields.items()}
        model: type[Any] = create_model(schema.__name__, __base__=schema, **defaults)
        return model
    known = get_type_hints(schema, include_extras=True)
    return TypedDict(schema.__name__, {**known, **fields})  # type: ignore[operator,no-any-return]


def _hook(user_hook: Any, selector: ToolRAGNode) -> Runnable[Any, Any]:
    """Return a hook that runs the user's hook, then the selector on what it leaves."""
    first = _as_runnable(user_hook) if user_hook is not None else None

    def select(state: Any, config: RunnableConfig) -> dict[str, Any]:
        update = (first.invoke(state, config) if first else None) or {}
        after = _after(state, update, selector)
        return _complete(state, after, {**update, **selector.invoke(after, config)}, selector)

    async def aselect(state: Any, config: RunnableConfig) -> dict[str, Any]:
        update = (await first.ainvoke(state, config) if first else None) or {}
        after = _after(state, update, selector)
        chosen = await selector.ainvoke(after, config)
        return _complete(state, after, {**update, **chosen}, selector)

    return RunnableLambda(select, afunc=aselect, name=selector.name)


def _complete(
    state: Any, after: dict[str, Any], update: dict[str, Any], selector: ToolRAGNode
) -> dict[str, Any]:
    """Add what LangGraph demands of a hook where the state is a pydantic model."""
    if isinstance(state, BaseModel):
        update.setdefault("llm_input_messages", after[selector.messages_key])
    return update


def _after(state: Any, update: dict[str, Any], selector: ToolRAGNode) -> dict[str, Any]:
    """Return the state as it will be once the hook's update is in."""
    names = (selector.messages_key, NODE_KEY)
    is_mapping = isinstance(state, dict)
    seen = {key: state.get(key) if is_mapping else getattr(state, key, None) for key in names}
    if selector.messages_key in update:
        old = seen[selector.messages_key] or []
        seen[selector.messages_key] = add_messages(old, update[selector.messages_key])
    return seen


def _as_runnable(hook: Any) -> Runnable[Any, Any]:
    """Return a user's hook as a runnable; a function gets what LangGraph would give it."""
    if isinstance(hook, Runnable):
        return hook
    wanted = [key for key in _HOOK_ARGUMENTS if key in inspect.signature(hook).parameters]

    def call(state: Any, config: RunnableConfig) -> Any:
        return hook(state, **_hook_arguments(wanted, config))

    async def acall(state: Any, config: RunnableConfig) -> Any:
        result = call(state, config)
        return await result if inspect.isawaitable(result) else result

    return RunnableLambda(acall if inspect.iscoroutinefunction(hook) else call)


def _hook_arguments(wanted: Sequence[str], config: RunnableConfig) -> dict[str, Any]:
    runtime = get_runtime() if set(wanted) - {"config"} else None
    given = {
        "config": config,
        "runtime": runtime,
        "store": getattr(runtime, "store", None),
        "writer": getattr(runtime, "stream_writer", None),
    }
    return {key: given[key] for key in wanted}
