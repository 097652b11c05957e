"""The body of a request to a model in -> its tools and conversation, as selection reads them, out.

Three shapes are read: OpenAI's chat completions (`messages`, `tools[].function`), OpenAI's
responses (`input`, `tools[].name`) and Anthropic's messages (`messages`, `tools[].input_schema`).
Nothing of a body is changed, and what the providers do not agree on is not touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_toolrag.catalogue.document import is_definition, openai_definition
from langchain_toolrag.selection.bindable import tool_name
from langchain_toolrag.selection.conversation import read_conversation

_CALL_ITEMS = frozenset({"function_call", "custom_tool_call"})
_RESULT_ITEMS = frozenset({"function_call_output", "custom_tool_call_output"})
_TEXT_BLOCKS = frozenset({"text", "input_text", "output_text"})
# Agents such as Claude Code write notices into the user's messages: they are not the user's words.
_NOTICE = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)
# The provider keeps the conversation, or a part of it: what was called there is not in the body.
_KEPT_ELSEWHERE = ("previous_response_id", "conversation")


@dataclass(frozen=True, slots=True)
class ProxiedRequest:
    """What selection needs of a request's body.

    Attributes:
        definitions: The tools that may be left out, by name, in OpenAI's function form.
        messages: The conversation, without results of tools and without images.
        staying: Names of tools that stay whatever is found: called in the history, chosen by
            `tool_choice`, or marked by `cache_control`.
    """

    definitions: Mapping[str, dict[str, Any]]
    messages: tuple[BaseMessage, ...]
    staying: frozenset[str]

    def remaining(self, tools: Sequence[Any], needed: frozenset[str]) -> list[Any]:
        """Return the tools that are sent on.

        Args:
            tools: The request's own list.
            needed: Names of the tools that selection wants.

        Returns:
            The same objects in the same order, without the definitions that nobody wants; never
            empty, which providers refuse.
        """
        unwanted = self.definitions.keys() - needed - self.staying
        return [tool for tool in tools if _filtered_name(tool) not in unwanted] or list(tools[:1])


def read_request(body: Mapping[str, Any]) -> ProxiedRequest | None:
    """Read a request's body.

    Args:
        body: A body in one of the three shapes.

    Returns:
        What selection needs; None where there is nothing to select by: no tools, no words of the
        user, or a conversation that is not all in the body.
    """
    tools, items = body.get("tools"), _items(body)
    if not isinstance(tools, list) or items is None:
        return None
    messages = tuple(message for item in items if (message := _message(item)) is not None)
    conversation = read_conversation(messages)
    if not conversation.query:
        return None
    staying = {call.name for call in conversation.calls}
    staying.update(_names_in(body.get("tool_choice")))
    staying.update(_filtered_name(tool) for tool in tools if _says(tool, "cache_control"))
    return ProxiedRequest(_definitions(tools), messages, frozenset(staying))


def _definitions(tools: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Return the definitions by name; of several of one name the first."""
    found: dict[str, dict[str, Any]] = {}
    for tool in tools:
        name = _filtered_name(tool)
        if name and name not in found:
            found[name] = openai_definition(tool, name)
    return found


def _filtered_name(tool: Any) -> str:
    """Return the name of a tool that may be left out; empty for any other.

    Provider tools stay, and so do definitions that the provider loads when its own search finds
    them: they cost nothing until then.
    """
    if not is_definition(tool) or _says(tool, "defer_loading"):
        return ""
    return tool_name(tool).strip() and tool_name(tool)


def _says(tool: Any, key: str) -> bool:
    """Whether a key is set beside OpenAI's `function` or in it."""
    if not isinstance(tool, Mapping):
        return False
    inner = tool.get("function")
    return bool(tool.get(key)) or (isinstance(inner, Mapping) and bool(inner.get(key)))


def _names_in(choice: Any) -> Iterator[str]:
    """Yield the names in a `tool_choice`: one tool's, or those of `allowed_tools`."""
    if isinstance(choice, Mapping):
        name = choice.get("name")
        if isinstance(name, str):
            yield name
        for part in choice.values():
            yield from _names_in(part)
    elif isinstance(choice, list):
        for part in choice:
            yield from _names_in(part)


def _items(body: Mapping[str, Any]) -> Sequence[Any] | None:
    """Return the conversation's items, oldest first; None where they are not all there."""
    messages = body.get("messages")
    if isinstance(messages, list):
        return messages
    if any(body.get(key) for key in _KEPT_ELSEWHERE):
        return None
    given = body.get("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or any(_is_reference(item) for item in given):
        return None
    return given


def _is_reference(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("type") == "item_reference"


def _message(item: Any) -> BaseMessage | None:
    """Return what selection reads of an item; None where it reads nothing."""
    if not isinstance(item, Mapping):
        return None
    kind, role = item.get("type"), item.get("role")
    if kind in _CALL_ITEMS:
        return AIMessage([_call(item, item.get("call_id"))])
    if kind in _RESULT_ITEMS or role in ("tool", "function"):
        answered, name = item.get("call_id") or item.get("tool_call_id"), item.get("name")
        return ToolMessage(
            "", tool_call_id=str(answered or ""), name=name if isinstance(name, str) else None
        )
    if role == "user":
        said: list[str | dict[Any, Any]] = list(_blocks(item.get("content")))
        return HumanMessage(said) if said else None
    if role == "assistant":
        return AIMessage([*_blocks(item.get("content")), *_calls_beside(item)])
    return None


def _blocks(content: Any) -> Iterator[dict[str, Any]]:
    """Yield the blocks of a message's content, with no more in them than selection reads."""
    for block in [content] if isinstance(content, str) else content or ():
        if isinstance(block, str):
            yield from _text(block)
        elif isinstance(block, Mapping):
            yield from _block(block)


def _block(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    kind = block.get("type")
    if kind in _TEXT_BLOCKS:
        yield from _text(block.get("text"))
    elif kind == "tool_use":
        yield _call(block, block.get("id"))
    else:
        yield {"type": str(kind), "tool_use_id": block.get("tool_use_id")}


def _text(text: Any) -> Iterator[dict[str, Any]]:
    """Yield a block of text, or nothing where there is none, or notices alone."""
    words = _NOTICE.sub("", text).strip() if isinstance(text, str) else ""
    if words:
        yield {"type": "text", "text": words}


def _calls_beside(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the calls that chat completions write beside the content."""
    for call in message.get("tool_calls") or ():
        if isinstance(call, Mapping):
            yield _call(call, call.get("id"))
    legacy = message.get("function_call")
    if isinstance(legacy, Mapping):
        yield _call(legacy, None)


def _call(call: Mapping[str, Any], identity: Any) -> dict[str, Any]:
    return {"type": "tool_call", "name": tool_name(dict(call)), "id": identity}
