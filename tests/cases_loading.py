"""The case files in -> parameters, tools, messages and what a case's `expect` lacks out.

Used by `tests/cases`. A check returns what is not as wanted, one sentence each; no sentence is
a pass. A key of `expect` that no check knows is a KeyError, so that nothing passes unseen.
"""

import asyncio
import json
import math
import re
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.messages import (
    AIMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool

DATA = Path(__file__).parent / "cases" / "data"
DEPTH = 10  # How far "first" and "before" look.
NEAR = 3  # How high a tool must stand to count as found.
CONFIDENT = 0.5  # From here on a selection is sure that some tool fits.
PATIENCE = 5  # Times the time a case gives: machines differ.
VALID_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
FRESH = {"semantic", "text", "both", "keyword"}
SHOWN = 5

OTHER_LANGUAGE = "MiniLM knows English: this needs a multilingual model"
KNOWN_TO_FAIL = {
    "20k-not-favoured": "the description does say 'paging', and no other tool's does",
    "markdown": "the words of an address in a description are indexed",
    "eleven-searches": "'rollout' is in the name of another tool, 'say' and 'week' in none",
    "code-then-need": "'save it as a file' and write_file share no word",
    "mr": "no model of this size knows that an MR is a merge request",
    **dict.fromkeys(
        ["zh-1", "hi-5", "bn-6", "bn-7", "bn-8", "es-9", "es-10", "ar-14", "sw-18", "ta-19"],
        OTHER_LANGUAGE,
    ),
}

_MESSAGES = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
    "function": FunctionMessage,
}


class Scored(NamedTuple):
    """A name in a ranking."""

    name: str
    score: float

    def __str__(self):
        return self.name if math.isnan(self.score) else f"{self.name} {self.score:.3f}"


class CachingEmbeddings(Embeddings):
    """Asks a model for every text once; `texts` are those that were asked for."""

    def __init__(self, model):
        self.model = model
        self._vectors = {}

    @property
    def texts(self):
        return list(self._vectors)

    def embed_documents(self, texts):
        unknown = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if unknown:
            vectors = self.model.embed_documents(unknown)
            self._vectors.update(zip(unknown, vectors, strict=True))
        return [self._vectors[text] for text in texts]

    def embed_query(self, text):
        return self.embed_documents([text])[0]


@cache
def read(file):
    """A data file, with generated texts written out."""
    return json.loads((DATA / f"{file}.json").read_text(encoding="utf-8"), object_hook=_written_out)


def _written_out(value):
    if set(value) != {"generate"}:
        return value
    parts = value["generate"]
    return parts.get("prefix", "") + parts["repeat"] * parts["times"] + parts.get("suffix", "")


def parameters(file, *ids):
    """The cases of a file (all, or those of the ids) as parameters called `must-kolkata`.

    A case that is debatable may fail.
    """
    cases = {case["id"]: case for case in read(file)["cases"]}
    chosen = [cases[key] for key in ids] if ids else cases.values()
    return [
        pytest.param(case, id=f"{case['strength']}-{case['id']}", marks=_may_fail(case))
        for case in chosen
    ]


def _may_fail(case):
    if case["strength"] == "debatable":
        return [pytest.mark.xfail(strict=False, reason=f"debatable: {case['why']}")]
    reason = KNOWN_TO_FAIL.get(case["id"])
    return [pytest.mark.xfail(strict=False, reason=reason)] if reason else []


def about(file, *ids):
    """Parametrise a test with the cases of a file."""
    return pytest.mark.parametrize("case", parameters(file, *ids))


def make_tool(definition, server=None):
    """A tool as langchain-mcp-adapters makes one: a dict of a schema, asynchronous only."""
    name, owner = definition["name"], definition.get("server", server)
    schema = dict(definition.get("inputSchema") or {})
    if fields := definition.get("numbered_fields"):
        schema["properties"] = {
            f"field_{number:03}": {
                "type": "string",
                "description": f"free text field number {number}",
            }
            for number in range(fields)
        }

    async def call(**arguments):
        return f"{owner}/{name} was called with {sorted(arguments)}"

    metadata = dict(definition.get("annotations") or {})
    if "_meta" in definition:
        metadata["_meta"] = definition["_meta"]
    if owner:
        metadata["server"] = owner
    return StructuredTool(
        name=name,
        description=definition.get("description") or "",
        args_schema=schema,
        coroutine=call,
        metadata=metadata or None,
    )


@cache
def ordinary_tools():
    """The 76 tools of catalogue 01."""
    return tuple(make_tool(definition) for definition in read("01_catalogue")["tools"])


def answer_of(name, owner=None):
    """How the answer of a tool of `make_tool` begins."""
    return f"{owner}/{name} was called"


def run(tool, arguments=None):
    """Run an asynchronous tool."""
    return asyncio.run(tool.ainvoke(arguments or {}))


def history(case):
    """The messages of a case of 06; those in a foreign format as they are."""
    if case.get("format") == "string":
        return case["messages"]
    if case.get("format") == "tuples":
        return [tuple(message) for message in case["messages"]]
    return [_message(message) for message in case["messages"]]


def _message(message):
    if "type" not in message:
        return message
    fields = {key: value for key, value in message.items() if key != "type"}
    if message["type"] == "remove":
        return RemoveMessage(id=fields["id"])
    return _MESSAGES[message["type"]](**fields)


def conversation(case):
    """The messages of a case of 07, each call with its result."""
    messages = []
    for number, turn in enumerate(case["turns"]):
        messages.append(HumanMessage(turn["user"]))
        calls = [
            {"name": name, "args": {}, "id": f"{number}-{name}"} for name in turn.get("called", [])
        ]
        if calls:
            messages.append(AIMessage("", tool_calls=calls))
        for call in calls:
            messages.append(ToolMessage("ok", tool_call_id=call["id"], name=call["name"]))
        if "answer" in turn:
            messages.append(AIMessage(turn["answer"]))
    return messages


def named(rag, hits):
    """Hits by the tools' own names."""
    entries = rag.catalogue.entries
    return [Scored(entries[hit.id].document.name, hit.score) for hit in hits]


def searched(rag, query):
    """What a search finds, as a function of `k`."""
    return cache(lambda k: named(rag, rag.search(query, k)))


def freshly_selected(rag, messages):
    """What a selection found for the last turn, best first, as a function of `k`."""
    ranking = [
        Scored(tool.name, tool.score) for tool in rag.explain(messages) if tool.source in FRESH
    ]
    return lambda k: ranking if k is None else ranking[:k]


def unmet(expect, ranking):
    """What a ranking lacks of the `expect` of a request."""
    return [
        f"wanted {key} {wanted}; came {shown(ranking(DEPTH))}"
        for key, wanted in expect.items()
        if not _RANKED[key](wanted, ranking)
    ]


def unmet_names(expect, selection):
    """What the names of a selection lack of the `expect` of a conversation."""
    names = set(selection.names)
    return [
        f"wanted {key} {wanted}; came {', '.join(selection.names)}"
        for key, wanted in expect.items()
        if not _NAMED[key](set(wanted), names)
    ]


def unmet_request(rag, case):
    """What a request to a ToolRAG lacks of its case's `expect`; a `note` has its own test."""
    query = case["query"]
    expect = {key: wanted for key, wanted in case["expect"].items() if key != "note"}
    selection = rag.select(query)  # Whatever is expected, it is no error.
    expect.pop("no_error", None)
    sure = selection.confidence is None or selection.confidence >= CONFIDENT
    lacking = []
    if expect.pop("no_confident_match", False) and selection.selected and sure:
        lacking.append(
            f"wanted no confident match; came {shown(selected(selection))}, "
            f"confidence {selection.confidence}"
        )
    if "finishes_within_ms" in expect:
        lacking += slow(expect.pop("finishes_within_ms") / 1000, lambda: rag.search(query))
    return lacking + unmet(expect, searched(rag, query))


def selected(selection):
    """A selection's tools, in binding order."""
    return [Scored(tool.name, tool.score) for tool in selection.selected]


def slow(seconds, work):
    """Say whether work takes much more time than a case gives it."""
    started = time.monotonic()
    work()
    taken = time.monotonic() - started
    return [] if taken < PATIENCE * seconds else [f"wanted {seconds} s; took {taken:.1f} s"]


def settle(lacking):
    """Fail with everything that is lacking; pass if nothing is."""
    if lacking:
        pytest.fail("\n".join(lacking), pytrace=False)


def shown(ranking):
    return ", ".join(map(str, ranking[:SHOWN])) or "nothing"


def ranks_first(ranking, name):
    return [tool.name for tool in ranking[:1]] == [name]


def stands_before(ranking, first, second):
    names = [tool.name for tool in ranking]
    return first in names and second not in names[: names.index(first)]


def _names(ranking, k):
    return {tool.name for tool in ranking(k)}


_RANKED = {
    "first": lambda name, ranking: ranks_first(ranking(DEPTH), name),
    "first_or_second": lambda name, ranking: name in _names(ranking, 2),
    "not_first": lambda name, ranking: not ranks_first(ranking(DEPTH), name),
    "include_any_top": lambda top, ranking: set(top["names"]) & _names(ranking, top["k"]),
    "include_all_top": lambda top, ranking: set(top["names"]) <= _names(ranking, top["k"]),
    "before": lambda pairs, ranking: all(stands_before(ranking(DEPTH), *pair) for pair in pairs),
    "exactly": lambda names, ranking: sorted(names) == sorted(tool.name for tool in ranking(None)),
}


_NAMED = {
    "bound": lambda wanted, names: wanted <= names,
    "sticky_all": lambda wanted, names: wanted <= names,
    "sticky_none": lambda unwanted, names: not unwanted & names,
    "not_flooded_by": lambda unwanted, names: not unwanted & names,
}


def parted(expect, *others):
    """An `expect` in two: about the names that are bound, and about a ranking.

    `others` are keys that have tests of their own.
    """
    about_names = {key: wanted for key, wanted in expect.items() if key in _NAMED}
    rest = {key: wanted for key, wanted in expect.items() if key not in {*_NAMED, *others}}
    return about_names, rest


def missed(rag, name, queries, *, by_words=None):
    """Say which queries do not bring a tool among the first three.

    Args:
        rag: The tools.
        name: The tool's own name.
        queries: Requests.
        by_words: False for what `search` finds, True for `text_search`, None for either.
    """
    missing = []
    for query in queries:
        rankings = []
        if by_words is not True:
            rankings.append(named(rag, rag.search(query, NEAR)))
        if by_words is not False:
            rankings.append(named(rag, rag.text_search(query, NEAR)))
        if not any(name in (tool.name for tool in ranking) for ranking in rankings):
            came = " | ".join(map(shown, rankings))
            missing.append(f"{query!r} should find {name}; came {came}")
    return missing


def found_by_words(rag, name, queries):
    """Say which queries bring a tool by words though they should not."""
    rankings = {query: named(rag, rag.text_search(query, NEAR)) for query in queries}
    return [
        f"{query!r} should not find {name}; came {shown(ranking)}"
        for query, ranking in rankings.items()
        if name in (tool.name for tool in ranking)
    ]


def entry_of(rag, name):
    """The catalogue's entry of the only tool of a name."""
    [entry] = [entry for entry in rag.catalogue if entry.document.name == name]
    return entry


def unbindable(rag, name, owner=None):
    """Say what is wrong with how a tool is bound: its definition, its name, or what it runs."""
    entry = entry_of(rag, name)
    bound = convert_to_openai_tool(entry.bound)["function"]["name"]
    wrong = []
    if not VALID_NAME.fullmatch(bound):
        wrong.append(f"{name!r} is bound as {bound!r}, which providers refuse")
    if bound != entry.document.bound_name:
        wrong.append(f"{name!r} is bound as {bound!r}, not as {entry.document.bound_name!r}")
    [runnable] = [tool for tool in rag.tools if tool.name == bound]
    answer = run(runnable)
    if not answer.startswith(answer_of(name, owner)):
        wrong.append(f"a call of {bound!r} does not reach {name!r}: {answer}")
    return wrong
