"""A catalogue in -> a paragraph for the system prompt that says what can be searched for out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from langchain_toolrag.index.keyword import server_name
from langchain_toolrag.integrations.search_tool import SEARCH_TOOL
from langchain_toolrag.selection.bindable import Filter, as_filter
from langchain_toolrag.toolrag import ToolRAG

_CHARACTERS_A_TOKEN = 4  # langchain_core's own rule of thumb.


def search_prompt(
    rag: ToolRAG,
    *,
    filter: Filter | None = None,
    max_tokens: int = 200,
    tool_name: str = SEARCH_TOOL,
) -> str:
    """Say which servers' tools a model can search for, and of which kinds, with their numbers.

    Equal catalogues give equal text, so that it may stand in a cached prompt.

    Args:
        rag: Where the tools are.
        filter: Which tools the caller may see; the others are not counted.
        max_tokens: About how long the text may be: the largest servers are named, the rest counted.
        tool_name: The name of the tool that searches.

    Returns:
        A paragraph; empty where there are no tools.
    """
    admitted = as_filter(filter)
    documents = [
        entry.document
        for entry in rag.catalogue
        if admitted is None or admitted.admits(entry.document)
    ]
    if not documents:
        return ""
    servers = Counter(name for name in map(server_name, documents) if name)
    kinds = Counter(tag for document in documents for tag in document.tags)
    head = f"You see only some of your tools; {tool_name} finds the others"
    close = (
        f". Before you say that something cannot be done, search for a tool that does it with "
        f"{tool_name}."
    )
    number = "is 1 tool" if len(documents) == 1 else f"are {len(documents)} tools"
    text = f"{head}. There {number}"
    room = max_tokens * _CHARACTERS_A_TOKEN - len(text) - len(close)
    for title, counts in ((" of these servers: ", servers), ("; of these kinds: ", kinds)):
        names = list(_within(counts, room - len(title)))
        listed = title + ", ".join(names)
        if any(name.endswith(")") for name in names) and len(listed) <= room:
            text, room = text + listed, room - len(listed)
    return text + close


def _within(counts: Counter[str], room: int) -> Iterator[str]:
    """Yield names with their numbers, the largest first, as many as there is room for."""
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    for place, (name, number) in enumerate(ordered):
        shown = f"{name} ({number})"
        rest = len(ordered) - place - 1
        more = len(f", and {rest} more") if rest else 0
        room -= len(shown) + 2
        if room < more:
            yield f"and {rest + 1} more"
            return
        yield shown
