"""A made-up catalogue, requests for it, vectors of its tools, and others that select from it.

The catalogue is services, each with verbs and objects, so that every tool has siblings that share
words with it.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
import re
import zlib
from pathlib import Path

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.messages import HumanMessage
from langchain_core.tools import StructuredTool

from langchain_toolrag.index.embedding import MiniLMEmbeddings
from langchain_toolrag.index.probes import PROBES

STEMS = "acme north blue river cloud star data work health market travel school bank energy media"
VERBS = [
    "create",
    "list",
    "get",
    "update",
    "delete",
    "search",
    "export",
    "archive",
    "share",
    "assign",
    "approve",
    "cancel",
]
OBJECTS = [
    "invoice",
    "customer",
    "order",
    "ticket",
    "calendar",
    "event",
    "message",
    "channel",
    "file",
    "folder",
    "report",
    "dashboard",
    "contact",
    "payment",
    "refund",
    "shipment",
    "product",
    "review",
    "employee",
    "contract",
    "campaign",
    "lead",
    "deployment",
    "server",
    "database",
    "backup",
    "branch",
    "issue",
    "comment",
    "playlist",
    "recipe",
    "booking",
    "flight",
    "patient",
    "lesson",
]
DETAILS = (
    "by its id",
    "for the current user",
    "with optional filters and paging",
    "between two dates",
    "and notify everybody concerned",
    "in the given workspace",
)
FIELDS = ("id", "name", "status", "start", "end", "owner", "limit", "workspace", "tags", "note")
REQUESTS = (
    "{verb} the {object} of {service}",
    "please {verb} a {object} for our customer and tell me when it is done",
    "can you {verb} every {object} between Monday and Friday?",
    "I need to {verb} the {object} that Anna sent yesterday",
    "{service}: {verb} {object}",
    "which {object} is late, and who owns it",
)
ONE_PART = (
    "{verb} the {object} of {service}",
    "{verb} a {object} for Anna today",
    "{verb} the {object} that {name} sent us yesterday",
    "could you please {verb} the {object} of our customer {name} in Lisbon",
    "I would like to {verb} a {object} for {name}",
    "{verb} every {object} older than three weeks in {service}",
    "where can I see the {object} {name} made last Friday",
    "how many {object} entries does {service} hold for this month",
    "please {verb} my {object} before the meeting with {name} at nine",
    "who changed the status of {object} number {number} this morning",
    "we need to {verb} the {object} with the label {number}",
    "show me whether the {object} from {name} is still open",
)
"""Requests of 5 to 12 words that ask for one thing."""
SEVERAL_PARTS = (
    "{verb} the {object} of our newest customer and then {other} the {second} for {name}",
    "please {verb} my {object}. After that {other} every {second} in {service}.",
    "find the {object} {name} made last Friday, then {other} the {second} and tell me the result",
    "{verb} {object} {number} for the sales team; also {other} the {second} from Monday",
)
NAMES = "Maria Otto Priya Ahmed Chen Olga Diego Fatima Lars Yuki Amara Noah Ines Tom Zoe Ravi"
CLASSIC = "classic path"
MOST_PARTS = 4  # Of a request; so few tools are never embedded together here.


class MadeUpToolVectors(MiniLMEmbeddings):
    """Embeds requests as MiniLM does, and a tool by the sum of its words, each embedded once.

    Vectors by chance would be no stand-in: no request would look like one that a tool serves, and
    short ones would bind nothing. These must not get into a cache that is kept: it would take them
    for MiniLM's.
    """

    def __init__(self):
        super().__init__()
        self.words, self.vectors = {}, np.zeros((0, 384), np.float32)

    def embed_documents(self, texts):
        if set(texts) <= set(PROBES) or len(texts) <= MOST_PARTS:  # They are requests.
            return self._encode(texts)
        split = [set(re.split(r"[\W_]+", text.lower())) for text in texts]
        new = set(itertools.chain.from_iterable(split)) - self.words.keys()
        if new:
            self.words.update(zip(sorted(new), itertools.count(len(self.words)), strict=False))
            self.vectors = np.concatenate((self.vectors, self._encode(sorted(new))))
        sums = [self.vectors[[self.words[word] for word in words]].sum(axis=0) for words in split]
        return np.array(sums) / np.linalg.norm(sums, axis=1, keepdims=True)


class TorchQueries(Embeddings):
    """Requests by sentence-transformers, tools by chance: what the rivals embed with."""

    dimension = 384

    def __init__(self, network, made_up):
        self.network, self.made_up, self.indexing = network, made_up, True

    def embed_documents(self, texts):
        return self.made_up.embed_documents(texts).tolist()

    def embed_query(self, text):
        return self.network.encode(
            text, normalize_embeddings=True, show_progress_bar=False
        ).tolist()

    def embed(self, text):
        """Embed for dynamic-tools, which does not tell tools from requests."""
        return self.embed_documents([text])[0] if self.indexing else self.embed_query(text)


class HashedWords:
    """Stands for dynamic-tools' SPLADE, a second model, at no cost."""

    def embed_query(self, text):
        return {zlib.crc32(word.encode()) % 30_000: 1.0 for word in text.lower().split()}

    embed_document = embed_query


def made_up_tools(count: int) -> list[dict]:
    chooser = random.Random(0)
    stems = STEMS.split()
    services = (f"{a}{b}" for n in itertools.count() for a in stems for b in (*stems, f"{n}"))
    kinds = ((s, v, o) for s in services for o in OBJECTS[: chooser.randint(4, 35)] for v in VERBS)
    return [_tool(chooser, *kind) for kind in itertools.islice(_distinct(kinds), count)]


def _distinct(kinds):
    seen = set()
    for kind in kinds:
        if kind not in seen:
            seen.add(kind)
            yield kind


def _tool(chooser, service: str, verb: str, object_: str) -> dict:
    fields = chooser.sample(FIELDS, chooser.randint(1, 6))
    properties = {
        field: {"type": "string", "description": f"The {field} of the {object_}."}
        for field in fields
    }
    return {
        "name": f"{service}_{verb}_{object_}",
        "description": f"{verb.capitalize()} a {object_} in {service} {chooser.choice(DETAILS)}.",
        "parameters": {"type": "object", "properties": properties},
    }


def made_up_requests(count: int) -> list[str]:
    chooser = random.Random(1)
    stems = STEMS.split()
    return [
        chooser.choice(REQUESTS).format(
            verb=chooser.choice(VERBS),
            object=chooser.choice(OBJECTS),
            service=chooser.choice(stems) + chooser.choice(stems),
        )
        for _ in range(count)
    ]


def requests_like(templates, count: int) -> list[str]:
    """Return distinct requests made of templates, each in its turn: a repeat is not embedded."""
    chooser, stems, names = random.Random(2), STEMS.split(), NAMES.split()
    requests: dict[str, None] = {}
    for template in itertools.cycle(templates):
        (verb, other), (first, second) = chooser.sample(VERBS, 2), chooser.sample(OBJECTS, 2)
        words = {"verb": verb, "other": other, "object": first, "second": second}
        words |= {"name": chooser.choice(names), "number": chooser.randint(1000, 9999)}
        service = chooser.choice(stems) + chooser.choice(stems)
        requests[template.format(service=service, **words)] = None
        if len(requests) == count:
            return list(requests)


def tools_of(directories: list[Path]) -> list[dict]:
    """Return the tools of folders with a tools.jsonl, each id once."""
    paths = [directory / "tools.jsonl" for directory in directories]
    tools = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return list({tool["id"]: tool for tool in tools}.values())


def classic(documents, torch):
    """ToolRAG's two searches by the usual libraries: the five best by meaning, three by words."""
    import faiss
    from rank_bm25 import BM25Okapi

    index = faiss.IndexFlatIP(torch.dimension)
    texts = [document.text(with_server=False) for document in documents]
    index.add(np.asarray(torch.made_up.embed_documents(texts), np.float32))
    bm25 = BM25Okapi([text.lower().split() for text in texts])

    def by_words(request):
        return bm25.get_scores(request.lower().split())

    def select(request):
        _, rows = index.search(np.array([torch.embed_query(request)], np.float32), 5)
        return {*rows[0], *np.argsort(by_words(request))[-3:]}

    return {CLASSIC: select, "rank_bm25": by_words}


def bigtool(documents, torch):
    """LangGraph's store, filled and asked as langgraph-bigtool does."""
    from langgraph.store.base import PutOp
    from langgraph.store.memory import InMemoryStore

    fields = {"fields": ["description"], "dims": torch.dimension}
    store = InMemoryStore(index={"embed": torch, **fields})
    texts = {each.id: f"{each.name}: {each.description}" for each in documents}
    store.batch([PutOp(("tools",), key, {"description": text}) for key, text in texts.items()])
    return {"InMemoryStore": lambda request: store.search(("tools",), query=request, limit=2)}


def dynamic_tools(documents, torch, folder):
    """langchain-dynamic-tools-middleware, without its second model; nothing if not installed."""
    installed = importlib.util.find_spec("langchain_dynamic_tools") is not None
    if not installed or len(documents) > 1024:  # Its store refuses more at a time.
        return {}
    from langchain.agents.middleware import ModelRequest
    from langchain_dynamic_tools import DynamicToolSelectorMiddleware

    tools = [
        StructuredTool.from_function(print, name=each.bound_name, description=each.text())
        for each in documents
    ]
    middleware = DynamicToolSelectorMiddleware(
        tools, path=f"{folder}/zvec", dense_embedder=torch, sparse_embedder=HashedWords()
    )
    torch.indexing = False

    def select(request):
        asked = ModelRequest(model=None, messages=[HumanMessage(request)], tools=tools)
        return middleware.wrap_model_call(asked, lambda narrowed: narrowed)

    return {"dynamic-tools": select}
