"""A catalogue that changes while it is served."""

import logging
import threading
import time

import pytest
from fakes import BrokenEmbeddings, NamedEmbeddings
from waiting import until

from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool
from langchain_toolrag.errors import DatabaseError, SourceError
from langchain_toolrag.server.options import ServerOptions
from langchain_toolrag.server.services import Services

KEPT = ("get_weather", "send_email")


class SlowEmbeddings(NamedEmbeddings):
    """Embeds tools only once it may."""

    def __init__(self):
        super().__init__()
        self.may = threading.Event()

    def embed_documents(self, texts):
        self.may.wait(10)
        return super().embed_documents(texts)


def ingest(directory, *names):
    """Have the source `home` list other tools."""
    described = ToolDirectory(directory).sources()["home"]
    source = StoredSource("home", "python", described.origin)
    tools = [StoredTool(f"home/{name}", "home", "python", name) for name in names]
    return ToolDirectory(directory).replace([Listing(source, tools)])["home"]


def listed(client):
    return {tool["id"] for tool in client.get("/v1/tools?server=home").json()["tools"]}


def found(client, query):
    return client.post("/v1/search", json={"query": query}).json()


def test_new_tools_are_found_without_a_restart_and_old_ones_are_gone(client, directory):
    ingest(directory, *KEPT, "book_flight")
    until(lambda: "home/book_flight" in listed(client))
    answer = found(client, "book a flight")

    assert answer["mode"] == "semantic"
    assert answer["tools"][0]["id"] == "home/book_flight"
    assert "home/play_song" not in listed(client)
    assert client.post("/v1/call", json={"name": "home/play_song"}).status_code == 404
    assert 'toolrag_reloads_total{outcome="ok"} 1.0' in client.get("/metrics").text


def test_only_new_tools_are_embedded(client, directory, embeddings):
    ingest(directory, "book_flight")
    until(lambda: "home/book_flight" in listed(client))
    before = len(embeddings.texts)
    ingest(directory, "book_flight", "cancel_flight")
    until(lambda: "home/cancel_flight" in listed(client))

    assert all("cancel" in text for text in embeddings.texts[before:])
    assert len(embeddings.texts) > before


def test_until_new_tools_are_embedded_the_old_ones_are_found_by_meaning(open_client, directory):
    embeddings = SlowEmbeddings()
    embeddings.may.set()
    client = open_client(embeddings=embeddings)
    until(lambda: client.get("/healthz").status_code == 200)
    embeddings.may.clear()
    ingest(directory, *KEPT, "book_flight")
    time.sleep(0.2)

    assert found(client, "weather in the city")["mode"] == "semantic"
    assert "home/book_flight" not in listed(client)
    embeddings.may.set()
    until(lambda: "home/book_flight" in listed(client))


def test_a_broken_file_keeps_the_old_tools_with_one_warning(client, directory, caplog):
    with caplog.at_level(logging.WARNING):
        (directory / "tools.jsonl").write_text("{no json\n")
        until(lambda: caplog.records)
        time.sleep(0.2)

    assert "home/get_weather" in listed(client)
    assert found(client, "weather")["tools"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "tools.jsonl, line 1" in caplog.text
    assert 'toolrag_reloads_total{outcome="failed"} 1.0' in client.get("/metrics").text


def test_a_disk_that_fails_for_a_moment_ends_no_watch(client, directory, monkeypatch, caplog):
    served, fingerprint = client.services.serving.store, ToolDirectory.fingerprint

    def broken():
        raise PermissionError("s3cret")

    with monkeypatch.context() as breaking:
        breaking.setattr(served, "fingerprint", broken)
        until(lambda: caplog.records)
        time.sleep(0.1)
    ingest(directory, "book_flight")
    until(lambda: "home/book_flight" in listed(client))

    assert served.fingerprint() == fingerprint(served)
    assert caplog.text.count("PermissionError at a look for new tools") == 1


def test_a_database_that_fails_between_two_looks_is_read_again(
    client, directory, monkeypatch, caplog
):
    def gone():
        raise DatabaseError("shop", "cannot be reached")

    with monkeypatch.context() as breaking:
        breaking.setattr(client.services.serving.store, "tools", gone)
        ingest(directory, "book_flight")
        until(lambda: "cannot be reached" in caplog.text)
    until(lambda: "home/book_flight" in listed(client))


def test_searches_are_answered_while_catalogues_come_and_go(client, directory):
    statuses, ended = [], threading.Event()

    def search():
        while not ended.is_set():
            answer = client.post("/v1/search", json={"query": f"weather {len(statuses)}"})
            statuses.append(answer.status_code)

    searching = [threading.Thread(target=search) for _ in range(4)]
    for thread in searching:
        thread.start()
    for n in range(8):
        ingest(directory, *KEPT, f"book_flight_{n}")
        until(lambda: f"home/book_flight_{n}" in listed(client))  # noqa: B023
    ended.set()
    for thread in searching:
        thread.join()

    assert set(statuses) == {200}


def test_a_file_that_is_gone_keeps_the_old_tools(client, directory):
    (directory / "tools.jsonl").unlink()
    time.sleep(0.2)
    assert "home/get_weather" in listed(client)


def test_a_file_that_is_mended_is_served(client, directory, caplog):
    old = (directory / "tools.jsonl").read_text()
    (directory / "tools.jsonl").write_text("{no json\n")
    until(lambda: caplog.records)
    (directory / "tools.jsonl").write_text(old.replace("get_weather", "get_rain"))
    until(lambda: "home/get_rain" in listed(client))


def test_a_catalogue_that_is_emptied_is_served_as_that(client, directory):
    ingest(directory)
    until(lambda: not listed(client))
    assert found(client, "weather in a city")["tools"] != []  # Those of the other source.


def test_a_model_that_recovers_makes_a_server_ready(open_client, monkeypatch):
    broken = BrokenEmbeddings()
    client = open_client(embeddings=broken)
    assert client.get("/healthz").status_code == 503
    broken.broken = False
    until(lambda: client.get("/healthz").status_code == 200)


def test_vectors_of_an_earlier_process_are_not_made_again(open_client, embeddings):
    first = open_client()
    until(lambda: first.get("/healthz").status_code == 200)
    again = NamedEmbeddings()
    second = open_client(embeddings=again)
    until(lambda: second.get("/healthz").status_code == 200)

    assert embeddings.texts
    assert again.texts == []


def test_a_directory_without_tools_is_not_served(tmp_path):
    with pytest.raises(SourceError, match="toolrag ingest"):
        Services(tmp_path, ServerOptions())


def test_an_id_that_is_too_long_for_a_model_has_a_name_that_leads_back_to_it(client, directory):
    name = "list_" + "very_" * 20 + "long_names"
    ingest(directory, name, "naïve name")
    until(lambda: f"home/{name}" in listed(client))
    tools = client.get("/v1/tools?server=home").json()["tools"]

    for tool in tools:
        assert len(tool["name"]) <= 64
        assert client.get(f"/v1/tools/{tool['name']}").json()["id"] == tool["id"]


def test_tools_whose_schemas_are_broken_have_names_of_their_own(client, directory):
    broken = {"type": "object", "properties": {"x": {"$ref": "#/nowhere"}}}
    names = ["b__c", "b/c", "b__c "]
    tools = [
        StoredTool(f"a/{name}", "a", "python", name, "", {} if place == 0 else broken)
        for place, name in enumerate(names)
    ]
    ToolDirectory(directory).replace([Listing(StoredSource("a", "python", "x:Y"), tools)])
    until(lambda: client.get("/v1/tools?server=a").json()["total"])
    listed = client.get("/v1/tools?server=a").json()["tools"]

    assert len({tool["name"] for tool in listed}) == 3
    for tool in listed:
        for name in (tool["name"], tool["id"]):
            assert client.get(f"/v1/tools/{name}").json()["id"] == tool["id"]


def test_two_ids_that_would_have_one_name_have_two(client, directory):
    one, two = StoredSource("a__b", "python", "x:Y"), StoredSource("a", "python", "x:Y")
    ToolDirectory(directory).replace(
        [
            Listing(one, [StoredTool("a__b/c", "a__b", "python", "c")]),
            Listing(two, [StoredTool("a/b__c", "a", "python", "b__c")]),
        ]
    )
    until(lambda: client.get("/v1/tools?server=a").json()["total"])
    listed = [client.get(f"/v1/tools?server={name}").json() for name in ("a__b", "a")]
    names = [tool["name"] for answer in listed for tool in answer["tools"]]

    assert len(set(names)) == 2
    assert [client.get(f"/v1/tools/{name}").json()["id"] for name in names] == ["a__b/c", "a/b__c"]
