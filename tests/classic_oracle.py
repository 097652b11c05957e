"""ToolRAG's select() and testSelect(), written down once more from its guide.

Only the two rankings are taken from the index under test; everything else is the guide's
JavaScript, line by line, over LangChain messages.
"""

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

SEMANTIC_LIMIT, TEXT_LIMIT, STICKY_WINDOW = 5, 3, 3
VAGUE_WORDS, VAGUE_SCORE = 6, 0.4


def classic_select(rag, messages):
    """Names in the order in which the guide's `selected` set receives them."""
    return list(_sources(rag, messages))


def classic_test_select(rag, messages):
    """(name, source) by score, best first, then the sticky ones."""
    scored = _sources(rag, messages)
    found = [name for name, (score, _) in scored.items() if score is not None]
    found.sort(key=lambda name: -scored[name][0])
    rest = [name for name, (score, _) in scored.items() if score is None]
    return [(name, scored[name][1]) for name in [*found, *rest]]


def _sources(rag, messages):
    name_of = {entry.document.id: entry.document.bound_name for entry in rag.catalogue}
    query = _user_texts(messages)[0]
    hits = rag.semantic_search(query, SEMANTIC_LIMIT)
    top = hits[0].score if hits else 0
    previous = _previous_user_text(messages)
    if (len(query.split()) <= VAGUE_WORDS or top < VAGUE_SCORE) and previous:
        enriched = rag.semantic_search(f"{query}. Context: {previous}", SEMANTIC_LIMIT)
        seen = {hit.id for hit in enriched}
        hits = enriched + [hit for hit in hits if hit.id not in seen]
    selected = {name_of[hit.id]: (hit.score, "semantic") for hit in hits}
    for hit in rag.text_search(query, TEXT_LIMIT):
        name = name_of[hit.id]
        known = name in selected
        selected[name] = (selected[name][0], "both") if known else (hit.score, "text")
    for name in _sticky(messages):
        if name in set(name_of.values()):
            selected.setdefault(name, (None, "sticky"))
    return selected


def _user_texts(messages):
    return [message.content for message in reversed(messages) if isinstance(message, HumanMessage)]


def _previous_user_text(messages):
    texts = [text.strip() for text in _user_texts(messages)[1:] if text.strip()]
    return texts[0] if texts else None


def _sticky(messages):
    names, turns = {}, 0
    for message in reversed(messages):
        if turns >= STICKY_WINDOW:
            break
        if isinstance(message, AIMessage):
            turns += 1
            names.update(dict.fromkeys(call["name"] for call in message.tool_calls))
        elif isinstance(message, ToolMessage) and message.name:
            names[message.name] = None
    return names
