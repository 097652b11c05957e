"""Several `toolrag serve --database`, as processes of their own: one catalogue, any of them."""

import contextlib
import os
import re
import subprocess
import sys
import time

import httpx
import pytest
from embeddings_server import MODEL, EmbeddingsServer
from waiting import until

from langchain_toolrag.usage.reading import read_usage

RUN = "import sys; from langchain_toolrag.cli import main; sys.exit(main())"
LIMIT_SECONDS = 60
FOUND_SECONDS = 2.0
OWN = ("search_id", "took_ms")  # What two answers cannot have in common.
MODULE = """
from langchain_core.tools import tool

@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

@tool
def get_weather(city: str) -> str:
    "Current weather in a city: rain or sun."
    return f"rain in {city}"

@tool
def brew_coffee(cups: int) -> str:
    "Brews fresh coffee."
    return "coffee"

ALL = [add, get_weather]
MORE = [add, get_weather, brew_coffee]
"""


class Machine:
    """Runs the command over one database, and ends what it started."""

    def __init__(self, folder, dsn, embeddings):
        self.folder = folder
        self.servers = []
        (folder / "home.py").write_text(MODULE)
        at = {"TOOLRAG_DATABASE": dsn, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        by = {"TOOLRAG_EMB_URL": embeddings.url, "TOOLRAG_EMB_MODEL": MODEL}
        self.environment = {**os.environ, **at, **by, "NO_PROXY": "*"}

    def run(self, *arguments):
        command = [sys.executable, "-c", RUN, *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.environment, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ingest(self, attribute):
        return self.run("ingest", "python", f"{self.folder / 'home.py'}:{attribute}")

    def serve(self, *given):
        server = Server(self.folder / f"{len(self.servers)}.log", self.environment, given)
        self.servers.append(server)
        return server

    def close(self):
        for server in self.servers:
            server.kill()


class Server:
    def __init__(self, log, environment, given):
        self.log = log
        command = [sys.executable, "-c", RUN, "serve", "--port", "0", *map(str, given)]
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=errors
            )
        self.url = until(self._address, LIMIT_SECONDS)
        self.client = httpx.Client(base_url=self.url, timeout=LIMIT_SECONDS, trust_env=False)

    def _address(self):
        told = self.log.read_text()
        assert self.process.poll() is None, told
        return "".join(re.findall(r"running on (http://[\d.:]+) ", told))

    def is_ready(self):
        return self.client.get("/healthz").status_code == 200

    def search(self, query):
        answer = self.client.post("/v1/search", json={"query": query}).raise_for_status().json()
        return {name: value for name, value in answer.items() if name not in OWN}

    def ids(self, query):
        return [tool["id"] for tool in self.search(query)["tools"]]

    def call(self, name, **arguments):
        asked = {"name": name, "arguments": arguments}
        return self.client.post("/v1/call", json=asked).raise_for_status().json()

    def kill(self):
        self.process.kill()
        self.process.wait(LIMIT_SECONDS)
        self.client.close()


@pytest.fixture
def embeddings():
    server = EmbeddingsServer()
    yield server
    server.close()


@pytest.fixture
def machine(tmp_path, dsn, embeddings):
    with contextlib.closing(Machine(tmp_path, dsn, embeddings)) as machine:
        yield machine


def tools_of(embeddings):
    """The texts of tools that were embedded; behind an endpoint tools are JSON."""
    return [text for text in embeddings.texts if text.startswith("{")]


def finds_coffee(server):
    return "home/brew_coffee" in server.ids("fresh coffee")


def test_servers_give_the_same_answers_and_what_is_ingested_is_found_through_all(
    machine, embeddings
):
    machine.ingest("ALL")
    made = tools_of(embeddings)
    one, other = machine.serve(), machine.serve()
    until(lambda: one.is_ready() and other.is_ready(), LIMIT_SECONDS)
    assert tools_of(embeddings) == made, "a tool was embedded by a server, too"

    for query in ("weather in a city", "select:home__add", "+numbers add", "nothing of the kind"):
        assert one.search(query) == other.search(query)
    assert one.search("weather in a city")["mode"] == "semantic"
    for server in (one, other):
        assert server.call("home__add", a=1, b=2)["content"] == "3"

    assert not finds_coffee(one)
    machine.ingest("MORE")
    until(lambda: finds_coffee(one) and finds_coffee(other), FOUND_SECONDS)
    assert one.search("fresh coffee") == other.search("fresh coffee")
    assert other.call("home__brew_coffee", cups=1)["content"] == "coffee"

    one.kill()
    assert finds_coffee(other)
    machine.ingest("ALL")
    until(lambda: not finds_coffee(other), FOUND_SECONDS)


def test_a_server_answers_from_what_it_has_while_the_database_is_down(
    machine,
    postgres_server,
):
    machine.ingest("ALL")
    server = machine.serve()
    until(server.is_ready, LIMIT_SECONDS)
    before = server.search("weather in a city")
    postgres_server.stop()
    try:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            assert server.search("weather in a city") == before
            assert server.call("home__add", a=1, b=2)["content"] == "3"
            assert server.is_ready()
    finally:
        postgres_server.start()
    machine.ingest("MORE")
    until(lambda: finds_coffee(server), FOUND_SECONDS)
    log = server.log.read_text()
    assert log.count("what is known of the tools is gone on with") == 1
    assert "Traceback" not in log


def test_a_server_that_starts_before_anything_is_ingested_finds_what_comes(machine):
    server = machine.serve()
    until(server.is_ready, LIMIT_SECONDS)
    assert server.ids("weather") == []

    machine.ingest("ALL")
    until(lambda: "home/get_weather" in server.ids("weather in a city"), FOUND_SECONDS)


def test_a_server_logs_where_it_is_told_and_nowhere_else(machine, tmp_path):
    machine.ingest("ALL")
    logging, silent = machine.serve("--usage-dir", tmp_path / "usage"), machine.serve()
    for server in (logging, silent):
        until(server.is_ready, LIMIT_SECONDS)
        server.search("weather in a city")

    until(lambda: list(read_usage(tmp_path / "usage")), LIMIT_SECONDS)
    assert logging.client.get("/v1/recent").json()["recording"] is True
    assert silent.client.get("/v1/recent").json() == {"recording": False, "records": []}


def test_a_server_without_its_database_does_not_start_and_says_why(machine):
    machine.environment["TOOLRAG_DATABASE"] = "postgresql://me:sesame@127.0.0.1:9/shop"
    with pytest.raises(AssertionError, match="cannot be reached") as caught:
        machine.serve()
    assert "sesame" not in str(caught.value)
