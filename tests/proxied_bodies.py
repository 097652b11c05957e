"""Bodies of requests as clients send them, in the three shapes that the LiteLLM proxy takes."""

from types import MappingProxyType

from fakes import CATALOGUE

WEATHER = "whats the weather in durgapur?"
MAIL = "send an email to bob"


def schema(parameters):
    return {"type": "object", "properties": {name: {"type": "string"} for name in parameters}}


class Chat:
    """OpenAI's chat completions."""

    own = MappingProxyType(
        {"type": "mcp", "server_label": "docs", "server_url": "https://docs.example"}
    )

    @staticmethod
    def tool(name, description, parameters=()):
        function = {"name": name, "description": description, "parameters": schema(parameters)}
        return {"type": "function", "function": function}

    @staticmethod
    def user(text):
        return [{"role": "user", "content": text}]

    @staticmethod
    def call(name, identity="c1"):
        function = {"name": name, "arguments": "{}"}
        calls = [{"id": identity, "type": "function", "function": function}]
        return [
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": identity, "content": "done"},
            {"role": "assistant", "content": "Done."},
        ]

    @staticmethod
    def body(items, tools):
        system = {"role": "system", "content": "You send emails and play songs."}
        return {"model": "gpt", "messages": [system, *items], "tools": tools, "stream": True}


class Responses(Chat):
    """OpenAI's responses."""

    own = MappingProxyType({"type": "web_search"})

    @staticmethod
    def tool(name, description, parameters=()):
        return {
            "type": "function",
            "name": name,
            "description": description,
            "parameters": schema(parameters),
            "strict": False,
        }

    @staticmethod
    def user(text):
        return [{"role": "user", "content": [{"type": "input_text", "text": text}]}]

    @staticmethod
    def call(name, identity="c1"):
        return [
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "function_call", "call_id": identity, "name": name, "arguments": "{}"},
            {"type": "function_call_output", "call_id": identity, "output": "done"},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Done."}],
            },
        ]

    @staticmethod
    def body(items, tools):
        instructions = "You send emails and play songs."
        return {
            "model": "gpt",
            "instructions": instructions,
            "input": items,
            "tools": tools,
            "stream": True,
        }


class Anthropic(Chat):
    """Anthropic's messages."""

    own = MappingProxyType({"type": "web_search_20250305", "name": "web_search", "max_uses": 5})

    @staticmethod
    def tool(name, description, parameters=()):
        return {"name": name, "description": description, "input_schema": schema(parameters)}

    @staticmethod
    def user(text):
        return [{"role": "user", "content": [{"type": "text", "text": text}]}]

    @staticmethod
    def call(name, identity="c1"):
        use = {"type": "tool_use", "id": identity, "name": name, "input": {}}
        result = {"type": "tool_result", "tool_use_id": identity, "content": "done"}
        return [
            {"role": "assistant", "content": [{"type": "text", "text": "Well."}, use]},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
        ]

    @staticmethod
    def body(items, tools):
        return {
            "model": "claude",
            "system": [{"type": "text", "text": "You send emails and play songs."}],
            "messages": items,
            "tools": tools,
            "max_tokens": 1000,
            "stream": True,
        }


SHAPES = (Chat, Responses, Anthropic)


def catalogue_in(shape):
    """The twelve tools of `fakes.CATALOGUE`."""
    return [
        shape.tool(name, description, parameters) for name, description, parameters, _ in CATALOGUE
    ]


def names_of(tools):
    """The tools' names; a provider tool's type where it has none."""
    named = [tool.get("function", tool) for tool in tools]
    return [tool.get("name") or tool["type"] for tool in named]
