"""Where a server keeps what is its own, if that is not an ingest directory."""

import time

import pytest
from fakes import NamedEmbeddings
from starlette.testclient import TestClient

from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.server.app import create_app
from langchain_toolrag.server.options import ServerOptions
from langchain_toolrag.server.place import Place
from langchain_toolrag.server.services import Services
from langchain_toolrag.trial.directory import HeadsDirectory
from langchain_toolrag.usage.reading import read_usage


@pytest.fixture
def ask(directory):
    """Has a server with folders of its own search once; gives what asks it more."""

    def ask(look_at, **folders):
        place = Place(ToolDirectory(directory), **folders)
        services = Services(place, ServerOptions(), embeddings=NamedEmbeddings(), environment={})
        with TestClient(create_app(services), base_url="http://127.0.0.1:8765") as client:
            deadline = time.monotonic() + 10
            while client.get("/healthz").status_code != 200 and time.monotonic() < deadline:
                time.sleep(0.01)
            client.post("/v1/search", json={"query": "weather"}).raise_for_status()
            return client.get(look_at).json()

    return ask


def test_a_directory_has_all_that_a_server_keeps(directory):
    place, own = Place.of_directory(directory), ToolDirectory(directory)
    assert (place.cache, place.usage, place.heads) == (own.cache, own.usage, own.heads)
    assert place.store.tools() == own.tools()


def test_without_a_folder_nothing_is_logged(ask, directory):
    assert ask("/v1/recent") == {"recording": False, "records": []}
    assert not (directory / "usage").exists()


def test_searches_are_logged_in_the_folder_that_is_given(ask, directory, tmp_path):
    assert ask("/v1/recent", usage=tmp_path / "log")["recording"] is True
    assert len(list(read_usage(tmp_path / "log"))) == 1
    assert not (directory / "usage").exists()


def test_heads_are_followed_in_the_folder_that_is_given(ask, directory, tmp_path):
    for folder in (tmp_path / "heads", directory / "heads"):
        folder.mkdir()
        HeadsDirectory(folder).state_file.write_text("{")

    assert ask("/healthz")["heads_problem"] is False
    assert ask("/healthz", heads=tmp_path / "heads")["heads_problem"] is True
