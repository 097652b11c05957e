import contextlib
import json

import pytest
from fakes import NamedEmbeddings
from starlette.testclient import TestClient
from waiting import until

from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool
from langchain_toolrag.server import serving
from langchain_toolrag.server.app import create_app
from langchain_toolrag.server.options import ServerOptions
from langchain_toolrag.server.services import Services

MODULE = '''
import threading
from langchain_core.tools import tool

@tool
def get_weather(city: str) -> str:
    """Current weather in a city: warm or cold, rain or sun."""
    return f"rain in {city}"

@tool
def send_email(to: str, body: str = "") -> str:
    """Sends an email to somebody."""
    raise RuntimeError(f"no mail server for {to}")

@tool
def play_song(title: str) -> str:
    """Plays a song on the speakers."""
    return "la " * 200_000

@tool
def wait_for_ever(minutes: int = 1) -> str:
    """Waits for something that does not come."""
    threading.Event().wait(2)
    return "at last"

TOOLS = [get_weather, send_email, play_song, wait_for_ever]
'''


def stored(name, description="", source="home", kind="python", **more):
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    return StoredTool(f"{source}/{name}", source, kind, name, description, schema, **more)


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "home_tools.py"
    path.write_text(MODULE)
    return path


@pytest.fixture
def directory(tmp_path, module):
    """A directory of a Python source with four tools, and an MCP tool that is destructive."""
    tools = [
        stored("get_weather", "Current weather in a city: warm or cold, rain or sun."),
        stored("send_email", "Sends an email to somebody."),
        stored("play_song", "Plays a song on the speakers."),
        stored("wait_for_ever", "Waits for something that does not come."),
    ]
    deleting = stored(
        "delete_file",
        "Deletes a file.",
        source="disk",
        kind="mcp",
        annotations={"destructiveHint": True, "title": "Delete"},
    )
    path = tmp_path / "data"
    ToolDirectory(path).replace(
        [
            Listing(StoredSource("home", "python", f"{module}:TOOLS"), tools),
            Listing(
                StoredSource("disk", "mcp", "disk", {"command": "there-is-no-such-command"}),
                [deleting],
            ),
        ]
    )
    return path


@pytest.fixture
def embeddings():
    return NamedEmbeddings()


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch):
    monkeypatch.setattr(serving, "_POLL_SECONDS", 0.02)


@pytest.fixture
def open_client(directory, embeddings):
    """Opens clients of servers with options of their own; all are closed at the end."""
    with contextlib.ExitStack() as closing:

        def open_one(*, embeddings=embeddings, environment=None, **options):
            services = Services(
                directory,
                ServerOptions(**options),
                embeddings=embeddings,
                environment=environment or {},
            )
            client = TestClient(
                create_app(services), base_url="http://127.0.0.1:8765", follow_redirects=False
            )
            client.services = services
            return closing.enter_context(client)

        yield open_one


@pytest.fixture
def client(open_client):
    """A client of a server that searches by meaning already."""
    client = open_client()
    until(lambda: client.get("/healthz").status_code == 200)
    return client


@pytest.fixture
def usage(directory):
    """Reads the usage log, once all lines that are to come are there."""

    def read(client):
        client.services.recorder.usage.flush()
        lines = [path.read_text() for path in sorted((directory / "usage").glob("*.jsonl"))]
        return [json.loads(line) for line in "".join(lines).splitlines() if line]

    return read
