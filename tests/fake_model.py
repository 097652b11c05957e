"""A chat model that plays a script and records what it was given."""

import threading

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableBinding
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, PrivateAttr


def call(name, /, id="c1", **args):
    """One tool call as an AIMessage holds it."""
    return {"name": name, "args": args, "id": id, "type": "tool_call"}


def says(text="", *calls):
    """One answer of the model."""
    return AIMessage(text, tool_calls=list(calls))


class ScriptedModel(BaseChatModel):
    """Answers with the next message of its script; after its end with "done"."""

    script: list = Field(default_factory=list)
    _bound: list = PrivateAttr(default_factory=list)
    _options: list = PrivateAttr(default_factory=list)
    _messages: list = PrivateAttr(default_factory=list)
    _lock: object = PrivateAttr(default_factory=threading.Lock)
    _position: int = PrivateAttr(default=0)

    @property
    def _llm_type(self):
        return "scripted"

    @property
    def bound(self):
        """Names of the bound tools, one list a call."""
        return [[name_of(tool) for tool in tools] for tools in self._bound]

    @property
    def bound_tools(self):
        """The definitions as a provider would get them, one list a call."""
        return self._bound

    @property
    def options(self):
        """Other options of each call."""
        return self._options

    @property
    def messages(self):
        """The messages of each call."""
        return self._messages

    def bind_tools(self, tools, **kwargs):
        definitions = [
            tool
            if isinstance(tool, dict) and tool.get("type") not in (None, "function")
            else convert_to_openai_tool(tool)
            for tool in tools
        ]
        return RunnableBinding(bound=self, kwargs={"tools": definitions, **kwargs}, config={})

    def _generate(self, messages, stop=None, run_manager=None, tools=(), **kwargs):
        with self._lock:
            self._bound.append(list(tools))
            self._options.append({**kwargs, **({"stop": stop} if stop else {})})
            self._messages.append(list(messages))
            position, self._position = self._position, self._position + 1
        answer = self.script[position] if position < len(self.script) else AIMessage("done")
        answer = answer.model_copy(update={"id": None})
        return ChatResult(generations=[ChatGeneration(message=answer)])


def name_of(tool):
    if "function" in tool:
        return tool["function"]["name"]
    return tool.get("name") or tool["type"]
