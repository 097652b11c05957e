import hashlib
import random
import re
import uuid
from pathlib import Path

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings

from langchain_toolrag import ToolRAG
from langchain_toolrag.evaluation.labelled import read_labelled
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.learning.pairs import read_pairs
from langchain_toolrag.usage.log import UsageLog
from langchain_toolrag.usage.request_vectors import RequestVector

DATA = Path(__file__).parents[2] / "data" / "finetune"


@pytest.fixture(scope="session")
def sets():
    """German requests for tools in English, so that no word of the one is in the other."""
    return read_pairs(DATA / "pairs.jsonl", DATA / "tools.jsonl")


@pytest.fixture(scope="session")
def watched():
    """Requests in the same words for tools that no training request needs."""
    return read_labelled(DATA / "watched")


TOOLS = 24
SHOWN = 8
DIM = 32


class WorldEmbeddings(Embeddings):
    """Requests lie near a tool that is not the one they mean, and not far from that one."""

    model = "world-1"

    def __init__(self, seed=0):
        dice = np.random.default_rng(seed)
        self.tools = unit(dice.standard_normal((TOOLS, DIM)))
        self._noise = dice.standard_normal((TOOLS, 200, DIM)) / DIM**0.5

    def embed_documents(self, texts):
        return [self._vector(text).tolist() for text in texts]

    def embed_query(self, text):
        return self._vector(text).tolist()

    def _vector(self, text):
        if found := re.search(r"topic ([a-x]) wording (\d+)", text):
            meant, wording = ord(found[1]) - ord("a"), int(found[2])
            misled = self.tools[(meant + 1) % TOOLS]
            return unit(0.7 * misled + 0.5 * self.tools[meant] + 0.4 * self._noise[meant, wording])
        if found := re.search(r"tool[ _.]+(\d+)", text):
            return self.tools[int(found[1])]
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        return unit(np.random.default_rng(number).standard_normal(DIM))


def request(meant, wording):
    """A request in words that no tool has."""
    return f"topic {chr(ord('a') + meant)} wording {wording}"


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


class World:
    """Tools, a model, and a log of what was asked of them and called."""

    def __init__(self, folder, seed=0):
        self.usage = folder / "usage"
        self.model = WorldEmbeddings(seed)
        self.dice = random.Random(seed)
        tools = [{"name": f"tool_{number}", "description": ""} for number in range(TOOLS)]
        self.rag = ToolRAG(tools, embeddings=self.model)

    def log(self, count, called=lambda meant, shown: meant, *, outcome="ok", vectors=True):
        """Log so many searches of random wordings that show the tool they mean, and a call each."""
        with UsageLog(self.usage) as log:
            logged = 0
            while logged < count:
                meant, wording = self.dice.randrange(TOOLS), self.dice.randrange(100)
                text = request(meant, wording)
                vector = np.array(self.model.embed_query(text), np.float32)
                best = np.argsort(-(self.model.tools @ vector))[:SHOWN].tolist()
                if meant not in best:
                    continue
                name, logged = f"s-{uuid.uuid4().hex}", logged + 1
                log.search(
                    search_id=name,
                    kind="select",
                    mode="semantic",
                    query=text,
                    retrieved=[(f"tool_{tool}", rank, 0.5) for rank, tool in enumerate(best, 1)],
                    vector=RequestVector(self.rag.tool_index.model, vector) if vectors else None,
                )
                tool = called(meant, best)
                log.call(call_id="", tool=f"tool_{tool}", outcome=outcome, search_id=name)

    def at_random(self, meant, shown):
        """Call any of the tools shown."""
        return self.dice.choice(shown)

    def recall(self, adapter=None):
        """Return how many requests in words that nobody used find the tool they mean first."""
        asked = [(meant, request(meant, w)) for meant in range(TOOLS) for w in (150, 151)]
        vectors = np.array(self.model.embed_documents([text for _, text in asked]), np.float32)
        rows = self.model.tools.astype(np.float32)
        if adapter is not None:
            vectors, rows = Heads(adapter).requests(vectors), Heads(adapter).rows(rows)
        best = (vectors @ rows.T).argmax(axis=1)
        return float(np.mean(best == [meant for meant, _ in asked]))


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def make_world(tmp_path):
    def make(seed):
        return World(tmp_path / str(seed), seed)

    return make
