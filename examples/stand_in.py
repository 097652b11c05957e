"""A stand-in for a chat model, so that the examples run without a key. It is no language model.

It picks the bound tool that shares most words with the user's message, fills its arguments in
with a few rules, and repeats the tool's answer. For a follow-up without a match ("do it for
kolkata too") it takes the tool that was called last.
"""

import re
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool

NOTICE = "(stand-in, not a language model)"

_FILLER = set(
    """a an and any are at can do for get give i in is it me my of or please the this to too
    use what whats when with you your""".split()  # noqa: SIM905
)
_PREPOSITION = r"\b(?:in|for|to|from|of|about|by|called)\s+(?:the\s+)?"
_NAMED = re.compile(rf"{_PREPOSITION}([^?.!,]+?)(?=\s+too\b|[?.!,]|\s+{_PREPOSITION}|$)")
_QUOTED = re.compile(r"['\"](.+?)['\"]")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class StandInModel(BaseChatModel):
    """Calls the best bound tool that it can fill in; see the module's docstring."""

    @property
    def _llm_type(self) -> str:
        return "stand-in"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, Any]:
        """Bind tools; definitions are kept as options of the call."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        tools: Sequence[dict[str, Any]] = (),
        **kwargs: Any,
    ) -> ChatResult:
        answer = _answer(messages, [tool["function"] for tool in tools])
        return ChatResult(generations=[ChatGeneration(message=answer)])


def _answer(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
    last = messages[-1]
    if isinstance(last, ToolMessage):
        return AIMessage(f"{NOTICE} {_text_of(last)}")
    said = next((m.text for m in reversed(messages) if isinstance(m, HumanMessage)), "")
    tool = _best(str(said), tools) or _last_called(messages, tools)
    if tool is None:
        return AIMessage(f"{NOTICE} No bound tool fits: {said}")
    arguments = _filled(str(said), tool)
    missing = set(tool["parameters"].get("required", ())) - set(arguments)
    if missing:
        wanted = ", ".join(sorted(missing))
        return AIMessage(f"{NOTICE} To call {tool['name']} I need: {wanted}")
    identity = f"call_{len(messages)}"
    return AIMessage("", tool_calls=[{"name": tool["name"], "args": arguments, "id": identity}])


def _best(said: str, tools: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the tool that shares most words with what was said; words of its name count twice."""
    words = _words(said)

    def shared(tool: dict[str, Any]) -> int:
        return 2 * len(words & _words(tool["name"])) + len(words & _words(tool["description"]))

    best = max(tools, key=shared, default=None)
    return best if best is not None and shared(best) > 0 else None


def _last_called(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> dict[str, Any] | None:
    called = [call["name"] for m in messages if isinstance(m, AIMessage) for call in m.tool_calls]
    by_name = {tool["name"]: tool for tool in tools}
    return by_name.get(called[-1]) if called else None


def _filled(said: str, tool: dict[str, Any]) -> dict[str, Any]:
    """Fill the required arguments: numbers where numbers are wanted, else what is named."""
    schema = tool["parameters"]
    names = [text.strip() for text in _QUOTED.findall(said) + _NAMED.findall(said)]
    numbers = _NUMBER.findall(said)
    arguments: dict[str, Any] = {}
    for name in schema.get("required", ()):
        kind = schema["properties"][name].get("type", "string")
        if kind in ("number", "integer") and numbers:
            arguments[name] = float(numbers.pop(0)) if kind == "number" else int(numbers.pop(0))
        elif kind == "string" and names:
            arguments[name] = names.pop(0)
    return arguments


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"[a-z]+", text.lower()) if word not in _FILLER}


def _text_of(message: ToolMessage) -> str:
    """Return a tool's answer; MCP's come as blocks."""
    if isinstance(message.content, str):
        return message.content
    blocks = [block for block in message.content if isinstance(block, dict)]
    return " ".join(str(block.get("text", "")) for block in blocks)
