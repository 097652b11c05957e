"""Several ToolRAGs, each with tools of its own, over one index in the database."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_model import ScriptedModel
from fakes import NamedEmbeddings, make_tool
from langchain.agents import create_agent

from langchain_toolrag import ToolRAG, ToolRAGMiddleware, ToolRAGNode, ToolRetriever
from langchain_toolrag.errors import UnknownToolError
from langchain_toolrag.postgres.connection import Database
from langchain_toolrag.postgres.index import PostgresIndex
from langchain_toolrag.postgres.tool_store import Stand, ToolTable

TESTS = Path(__file__).parents[1]

PROCESS = """
import json, sys
from fakes import NamedEmbeddings, make_tool
from langchain_toolrag import ToolRAG
from langchain_toolrag.postgres.index import PostgresIndex

_, dsn, tenant, mode, color = sys.argv
index = PostgresIndex(dsn, tenant=tenant, embeddings=NamedEmbeddings(), mode=mode)
rag, seen = ToolRAG(index=index), set()
print("ready", flush=True)
sys.stdin.readline()
for n in range(12):
    rag.add([make_tool(f"{color}_{n}", f"Says whether it rains, {n}.")])
    seen.update(rag.select("does it rain").names)
    seen.update(hit.id for hit in rag.search("does it rain", 12))
print(json.dumps(sorted(seen)), flush=True)
sys.stdin.readline()
rag.remove([f"{color}_{n}" for n in range(6)])
print(json.dumps(sorted(hit.id for hit in rag.search("does it rain", 99))), flush=True)
"""


@pytest.fixture(params=["replica", "remote"])
def mode(request):
    return request.param


@pytest.fixture
def opened(shared_dsn, tenant, mode):
    """Opens a ToolRAG over the test's catalogue, as another process would."""
    indexes = []

    def make(*names):
        indexes.append(
            PostgresIndex(shared_dsn, tenant=tenant, embeddings=NamedEmbeddings(), mode=mode)
        )
        rag = ToolRAG(index=indexes[-1])
        rag.add([raining(name) for name in names])
        return rag

    yield make
    for index in indexes:
        index.close()


def raining(name):
    return make_tool(name, f"Says whether it rains, of {name}.")


def held(dsn, tenant):
    """Ids of everything in the catalogue, as often as it is there."""
    database = Database(dsn, tenant)
    found = ToolTable(database).since(Stand()).written.values()
    database.close()
    return sorted(placed.document.id for placed in found)


def seen_alike(*rags):
    """Wait until all have seen the last change of any."""
    until = time.monotonic() + 5
    while len({rag.tool_index.evidence("", dense=False).version for rag in rags}) > 1:
        assert time.monotonic() < until
        time.sleep(0.01)


def found_by(rag):
    """Everything that any of the ways to search finds of what all tools have to do with."""
    ways = (rag.search, rag.semantic_search, rag.text_search, rag.keyword_search)
    hits = [hit for way in ways for hit in way("does it say whether it rains", 30)]
    hits += rag.find("does it say whether it rains", 30).hits
    return {hit.id for hit in hits}


class TestTwo:
    def test_neither_loses_what_the_other_adds(self, opened, shared_dsn, tenant):
        red, blue = opened("red_1", "red_2"), opened("blue_1")
        red.add([raining("red_3")])
        blue.add([raining("blue_2")])
        assert held(shared_dsn, tenant) == ["blue_1", "blue_2", "red_1", "red_2", "red_3"]

    def test_each_finds_and_selects_its_own(self, opened):
        red, blue = opened("red_1", "red_2"), opened("blue_1")
        seen_alike(red, blue)
        assert found_by(red) == {"red_1", "red_2"}
        assert found_by(blue) == {"blue_1"}
        assert set(red.select("whether it rains").names) == {"red_1", "red_2"}
        assert blue.select("red_1 red_2 whether it rains").names == ["blue_1"]

    def test_what_another_has_just_added_is_not_found_either(self, opened):
        red = opened("red_1")
        assert found_by(red) == {"red_1"}
        opened("blue_1")
        for _ in range(20):
            assert [hit.id for hit in red.search("whether it rains of blue_1", 5)] == ["red_1"]

    def test_as_many_as_are_asked_for_are_found_among_better_ones_of_another(self, opened):
        red = opened(*(f"red_{n}" for n in range(5)))
        others = opened(*(f"rain_{n}" for n in range(60)))
        seen_alike(red, others)
        assert {hit.id for hit in red.search("rain_1 rain_2 rain", 5)} == {
            f"red_{n}" for n in range(5)
        }
        assert len(ToolRetriever(rag=red, k=4).get_tools("rain_1 rain_2 rain")) == 4

    def test_removing_ones_own_leaves_the_others(self, opened, shared_dsn, tenant):
        red, blue = opened("red_1", "red_2"), opened("blue_1")
        assert red.remove(["red_1"]).removed == ("red_1",)
        assert held(shared_dsn, tenant) == ["blue_1", "red_2"]
        seen_alike(red, blue)
        assert found_by(red) == {"red_2"}
        assert found_by(blue) == {"blue_1"}

    def test_anothers_cannot_be_removed(self, opened, shared_dsn, tenant):
        red, _ = opened("red_1"), opened("blue_1")
        with pytest.raises(UnknownToolError):
            red.remove(["blue_1"])
        assert held(shared_dsn, tenant) == ["blue_1", "red_1"]

    def test_whoever_has_none_of_its_own_finds_all(self, opened):
        red, nobody = opened("red_1"), opened()
        blue = opened("blue_1")
        seen_alike(red, nobody, blue)
        assert found_by(nobody) == {"red_1", "blue_1"}
        assert nobody.select("whether it rains").names == []

    async def test_waiting_each_selects_its_own_too(self, opened):
        red, blue = opened("red_1"), opened("blue_1")
        seen_alike(red, blue)
        assert (await red.aselect("whether it rains")).names == ["red_1"]
        for way in (blue.asearch, blue.asemantic_search, blue.atext_search, blue.akeyword_search):
            assert [hit.id for hit in await way("whether it rains", 5)] == ["blue_1"]

    def test_an_agents_tools_are_taken_in_beside_the_others(self, opened, shared_dsn, tenant):
        opened("blue_1")
        middleware = ToolRAGMiddleware(rag=opened())
        agent = create_agent(ScriptedModel(), [raining("red_1")], middleware=[middleware])
        agent.invoke({"messages": [("user", "does it rain")]})
        assert held(shared_dsn, tenant) == ["blue_1", "red_1"]
        assert middleware.rag.select("does it rain").names == ["red_1"]

    def test_a_nodes_tools_replace_its_own_alone(self, opened, shared_dsn, tenant):
        opened("blue_1")
        node = ToolRAGNode(rag=opened("red_1"))
        node.bind_tools([raining("red_2")])
        assert held(shared_dsn, tenant) == ["blue_1", "red_2"]

    def test_a_refresh_is_of_the_whole_index(self, opened, shared_dsn, tenant):
        opened("blue_1")
        opened("red_1").refresh([raining("red_2")])
        assert held(shared_dsn, tenant) == ["red_2"]


def test_processes_that_add_and_remove_at_once_keep_to_their_own(shared_dsn, tenant, mode):
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    colors = ("red", "blue")
    processes = {
        color: subprocess.Popen(
            [sys.executable, "-c", PROCESS, shared_dsn, tenant, mode, color],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        for color in colors
    }

    def told_by_all():
        return {color: each.stdout.readline() for color, each in processes.items()}

    def go():
        for each in processes.values():
            each.stdin.write("go\n")
            each.stdin.flush()

    try:
        assert set(told_by_all().values()) == {"ready\n"}
        go()
        for color, line in told_by_all().items():
            assert set(json.loads(line)) == {f"{color}_{n}" for n in range(12)}
        assert held(shared_dsn, tenant) == sorted(f"{c}_{n}" for c in colors for n in range(12))
        go()
        for color, line in told_by_all().items():
            assert set(json.loads(line)) == {f"{color}_{n}" for n in range(6, 12)}
        assert held(shared_dsn, tenant) == sorted(f"{c}_{n}" for c in colors for n in range(6, 12))
    finally:
        for each in processes.values():
            each.kill()
            each.communicate()
