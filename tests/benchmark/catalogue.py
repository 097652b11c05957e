"""A made-up catalogue with requests for it, and tools' vectors that take no time to make.

The catalogue is services, each with verbs and objects, so that every tool has siblings that share
words with it.
"""

from __future__ import annotations

import itertools
import json
import random
import zlib
from pathlib import Path

import numpy as np

from langchain_toolrag.index.embedding import MiniLMEmbeddings

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
    "{verb} the {object} that Anna sent us yesterday",
    "could you {verb} the {object} of our newest customer in Lisbon",
    "I would like to {verb} a {object} for the sales team",
    "{verb} every {object} older than three weeks in {service}",
    "where can I see the {object} we made last Friday",
    "how many {object} entries does {service} hold for this month",
    "please {verb} my {object} before the meeting starts at nine",
    "who changed the status of {object} number 4711 this morning",
    "we need to {verb} the {object} with the red label",
    "show me whether the {object} from Monday is still open",
)
SEVERAL_PARTS = (
    "{verb} the {object} of our newest customer and then {other} the {second} for Anna",
    "please {verb} my {object}. After that {other} every {second} in {service}.",
    "find the {object} we made last Friday, then {other} the {second} and tell me the result",
    "{verb} a {object} for the sales team; also {other} the {second} from Monday",
)


class MadeUpToolVectors(MiniLMEmbeddings):
    """Embeds requests as MiniLM does, and tools by chance: the same text, the same vector.

    The vectors are spread about their mean as those of real tools are. They must not get into a
    cache that is kept: it would take them for MiniLM's.

    Args:
        sample: Texts of tools to learn the spread from.
    """

    def __init__(self, sample):
        super().__init__()
        real = self._encode(sample)
        self._mean, self._deviation = real.mean(axis=0), real.std(axis=0)

    def embed_documents(self, texts):
        vectors = np.array([self._noise(text) for text in texts]) * self._deviation + self._mean
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def _noise(self, text):
        seed = zlib.crc32(text.encode("utf-8", "replace"))
        return np.random.default_rng(seed).standard_normal(len(self._mean), np.float32)


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
    """Return requests made of templates, such as `ONE_PART`, each in its turn."""
    chooser = random.Random(2)
    stems = STEMS.split()
    requests = []
    for template in itertools.islice(itertools.cycle(templates), count):
        verb, other = chooser.sample(VERBS, 2)
        first, second = chooser.sample(OBJECTS, 2)
        service = chooser.choice(stems) + chooser.choice(stems)
        requests.append(
            template.format(verb=verb, other=other, object=first, second=second, service=service)
        )
    return requests


def tools_of(directories: list[Path]) -> list[dict]:
    """Return the tools of folders with a tools.jsonl, each id once."""
    paths = [directory / "tools.jsonl" for directory in directories]
    tools = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return list({tool["id"]: tool for tool in tools}.values())
