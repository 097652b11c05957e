"""Short ways to write histories, for tests that read them."""

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage


def user(text, **fields):
    return HumanMessage(text, **fields)


def said(text="Done."):
    return AIMessage(text)


def calling(*names, start=0):
    """One assistant message that calls tools, with ids `<name>-<n>`."""
    calls = [
        {"name": name, "args": {}, "id": f"{name}-{start + n}"} for n, name in enumerate(names)
    ]
    return AIMessage("", tool_calls=calls)


def results(message):
    """The results of every call of an assistant message."""
    return [
        ToolMessage("ok", tool_call_id=call["id"], name=call["name"]) for call in message.tool_calls
    ]


def turn(text, *names, start=0):
    """A whole turn: the request, the calls with their results, the answer."""
    if not names:
        return [user(text), said()]
    message = calling(*names, start=start)
    return [user(text), message, *results(message), said()]
