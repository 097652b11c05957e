"""Stand-ins for tests that are about something else than the thing they stand in for."""

import hashlib
import threading

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.tools import BaseTool, StructuredTool

DIM = 256


class HashingEmbeddings(Embeddings):
    """The same text gives the same vector, and shared words give near ones.

    `texts` and `queries` record what was embedded.
    """

    def __init__(self):
        self.texts = []
        self.queries = []
        self._lock = threading.Lock()

    def embed_documents(self, texts):
        with self._lock:
            self.texts += texts
        return [_vector(text) for text in texts]

    def embed_query(self, text):
        with self._lock:
            self.queries.append(text)
        return _vector(text)


class NamedEmbeddings(HashingEmbeddings):
    """Says which model it is, so that its vectors can be told from another's."""

    model = "hashing-1"


class AsymmetricEmbeddings(HashingEmbeddings):
    """A request and a tool's text of the same words have other vectors."""

    model = "asymmetric-1"

    def embed_query(self, text):
        return super().embed_query(f"{text} asked")


class BrokenEmbeddings(HashingEmbeddings):
    """Fails while `broken` is true."""

    def __init__(self, *, broken=True):
        super().__init__()
        self.broken = broken

    def embed_documents(self, texts):
        self._fail()
        return super().embed_documents(texts)

    def embed_query(self, text):
        self._fail()
        return super().embed_query(text)

    def _fail(self):
        if self.broken:
            raise ConnectionError("the model server is down")


def _vector(text):
    vector = np.zeros(DIM)
    for word in text.lower().replace(".", " ").replace("_", " ").replace(",", " ").split():
        slot = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % DIM
        vector[slot] += 1
    vector[0] += 1e-3
    return (vector / np.linalg.norm(vector)).tolist()


def make_tool(name, description="", parameters=("query",), server=None, **metadata):
    """A real, callable tool that answers with its own name and arguments."""
    schema = {
        "type": "object",
        "properties": {parameter: {"type": "string"} for parameter in parameters},
    }

    def call(**arguments):
        return f"{name} {sorted(arguments.items())}"

    async def acall(**arguments):
        return call(**arguments)

    given = {**({"server": server} if server else {}), **metadata}
    return StructuredTool(
        name=name,
        description=description,
        args_schema=schema,
        func=call,
        coroutine=acall,
        metadata=given or None,
    )


CATALOGUE = (
    ("get_weather", "Current weather in a city: warm or cold, rain or sun.", ("city",), "weather"),
    ("get_forecast", "Weather forecast for the next days.", ("city", "days"), "weather"),
    ("list_calendar_events", "Lists upcoming meetings and appointments.", ("day",), "calendar"),
    ("create_calendar_event", "Adds a meeting to the calendar.", ("title", "start"), "calendar"),
    ("send_email", "Sends an email to somebody.", ("to", "subject", "body"), "mail"),
    ("search_email", "Finds mails by sender or words.", ("query",), "mail"),
    ("create_issue", "Opens a new issue in a repository.", ("repo", "title"), "github"),
    ("list_issues", "Lists the issues of a repository.", ("repo", "state"), "github"),
    ("play_song", "Plays a song on the speakers.", ("title",), "music"),
    ("skip_to_next_track", "Skips to the next song.", (), "music"),
    ("turn_on_light", "Switches a lamp on.", ("room",), "home"),
    ("get_exchange_rate", "Rate between two currencies.", ("base", "quote"), "bank"),
)


def make_catalogue() -> list[BaseTool]:
    """Twelve tools on seven servers."""
    return [
        make_tool(name, description, parameters, server)
        for name, description, parameters, server in CATALOGUE
    ]
