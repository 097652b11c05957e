import asyncio
import gc
import json
import os
import socket
import threading
import time

import numpy as np
import pytest
from embeddings_server import MODEL, EmbeddingsServer, answer_of, reply
from fakes import HashingEmbeddings, make_catalogue, make_tool
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_toolrag import ToolRAG
from langchain_toolrag.errors import EmbeddingError, StaleIndexError
from langchain_toolrag.index import endpoint
from langchain_toolrag.index.embedder import Embedder
from langchain_toolrag.index.embedding import as_embeddings, model_name
from langchain_toolrag.index.endpoint import EndpointEmbeddings, embeddings_url
from langchain_toolrag.index.endpoint_answer import EndpointError
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.probes import PROBES
from langchain_toolrag.index.vector_space import cache_in

KEY = "sk-very-secret-0123456789"
TASK = "Given an agent's request, retrieve the tool that fulfills it"
TEXTS = ["get the weather", "send a mail", "play a song"]


@pytest.fixture(autouse=True)
def _no_proxy_and_no_long_pauses(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(endpoint, "_TOOL_PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(endpoint, "_REQUEST_PAUSES", (0.0,))


@pytest.fixture
def server():
    server = EmbeddingsServer()
    yield server
    server.close()


@pytest.fixture
def model(server):
    return EndpointEmbeddings(server.url, model=MODEL)


def error_of(model, texts=("rain",)):
    with pytest.raises(EndpointError) as caught:
        model.embed_documents(list(texts))
    assert caught.value.url == model.url
    assert model.url in str(caught.value)
    return caught.value


class TestVectors:
    def test_they_are_the_servers_at_unit_length_in_the_order_of_the_texts(self, model):
        vectors = np.array(model.embed_documents(TEXTS))
        assert np.allclose(vectors, HashingEmbeddings().embed_documents(TEXTS), atol=1e-6)
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1)

    def test_without_texts_the_server_is_asked_nothing(self, model, server):
        assert model.embed_documents([]) == []
        assert server.bodies == []

    def test_texts_are_sent_in_batches(self, server):
        texts = [f"text {number}" for number in range(7)]
        model = EndpointEmbeddings(server.url, model=MODEL, batch_size=3)
        assert len(model.embed_documents(texts)) == 7
        assert [body["input"] for body in server.bodies] == [texts[:3], texts[3:6], texts[6:]]
        assert {body["model"] for body in server.bodies} == {MODEL}

    def test_the_index_of_an_answers_items_decides_their_order(self, model, server):
        answer = answer_of([[1.0, 0.0], [0.0, 2.0]])
        answer["data"].reverse()
        server.will(answer)
        assert model.embed_documents(["first", "second"]) == [[1.0, 0.0], [0.0, 1.0]]

    def test_a_server_that_numbers_nothing_is_taken_at_its_order(self, model, server):
        server.will({"data": [{"embedding": [2.0, 0.0]}, {"embedding": [0.0, 2.0]}]})
        assert model.embed_documents(["first", "second"]) == [[1.0, 0.0], [0.0, 1.0]]

    def test_long_texts_are_cut_at_their_end(self, server):
        model = EndpointEmbeddings(server.url, model=MODEL, instruction="Find", max_characters=40)
        model.embed_documents(["word " * 100])
        model.embed_query("rain " * 100)
        tool, request = server.texts
        assert tool == ("word " * 100)[:40]
        assert request == ("Instruct: Find\nQuery: " + "rain " * 100)[:40]

    @pytest.mark.parametrize("text", ["", "  \n", "\ud800", "half \udfff of a pair", "雨 ☂"])
    def test_any_text_can_be_sent(self, model, server, text):
        assert len(model.embed_query(text)) == 256
        assert server.texts[0].strip()
        server.texts[0].encode()

    async def test_waiting_for_them_gives_the_same(self, model):
        assert await model.aembed_documents(TEXTS) == model.embed_documents(TEXTS)
        assert await model.aembed_query("rain") == model.embed_query("rain")
        assert await model.aembed_documents([]) == []


class TestInstructions:
    def test_they_stand_in_front_of_requests_and_not_of_tools(self, server):
        model = EndpointEmbeddings(server.url, model=MODEL, instruction=TASK)
        model.embed_documents(["rain"])
        model.embed_query("rain")
        assert server.texts == ["rain", f"Instruct: {TASK}\nQuery: rain"]

    async def test_they_stand_there_when_the_request_is_awaited(self, server):
        model = EndpointEmbeddings(server.url, model=MODEL, instruction=TASK)
        await model.aembed_query("rain")
        assert server.texts == [f"Instruct: {TASK}\nQuery: rain"]

    def test_without_one_a_request_is_sent_as_it_is(self, model, server):
        model.embed_query("rain")
        assert server.texts == ["rain"]


class TestKeys:
    def test_one_is_sent_as_a_bearer_token(self, server):
        EndpointEmbeddings(server.url, model=MODEL, api_key=f"{KEY}\n").embed_query("rain")
        assert server.headers[0]["Authorization"] == f"Bearer {KEY}"

    @pytest.mark.parametrize("none", [None, "", " "])
    def test_without_one_no_header_is_sent(self, server, none):
        EndpointEmbeddings(server.url, model=MODEL, api_key=none).embed_query("rain")
        assert "Authorization" not in server.headers[0]

    @pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 422, 429, 500])
    def test_no_message_shows_it_even_if_the_server_does(self, server, status):
        model = EndpointEmbeddings(server.url, model=MODEL, api_key=KEY)
        server.will(*[lambda h: reply(h, status, {"error": {"message": f"model {KEY}"}})] * 9)
        error = error_of(model)
        assert KEY not in str(error)
        assert KEY not in repr([model, vars(model), error.__cause__, model_name(model)])

    def test_one_that_cannot_be_sent_is_refused_without_showing_it(self):
        with pytest.raises(ValueError, match="printable ASCII") as caught:
            EndpointEmbeddings("http://localhost", model=MODEL, api_key="sk-ge\nheim")
        assert "heim" not in str(caught.value)

    def test_one_goes_to_no_other_address(self, server):
        elsewhere = EmbeddingsServer()
        try:
            there = f"{elsewhere.url}/v1/embeddings"
            server.will(lambda handler: reply(handler, 307, {}, Location=there))
            error = error_of(EndpointEmbeddings(server.url, model=MODEL, api_key=KEY))
            assert there in str(error)
            assert "not followed" in str(error)
            assert elsewhere.bodies == []
        finally:
            elsewhere.close()


class TestFailures:
    def test_a_server_that_is_not_there_is_named(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            model = EndpointEmbeddings(f"http://127.0.0.1:{free.getsockname()[1]}", model=MODEL)
            error = error_of(model)
        assert "cannot be reached" in str(error)
        assert "is the server running" in str(error)
        assert error.status is None

    def test_silence_ends_with_the_timeout_and_is_not_waited_for_twice(self, server):
        server.will(lambda handler: time.sleep(0.5))
        model = EndpointEmbeddings(server.url, model=MODEL, timeout=0.1)
        assert "no answer within 0.1 s" in str(error_of(model))
        assert len(server.bodies) == 1

    @pytest.mark.parametrize("status", [401, 403])
    def test_a_missing_key_and_a_wrong_one_are_told_apart(self, server, status):
        server.will(status, status)
        missing = error_of(EndpointEmbeddings(server.url, model=MODEL))
        wrong = error_of(EndpointEmbeddings(server.url, model=MODEL, api_key=KEY))
        assert "was given none" in str(missing)
        assert "does not accept the API key" in str(wrong)
        assert missing.status == wrong.status == status

    def test_a_model_that_the_server_does_not_have_is_named(self, server):
        error = error_of(EndpointEmbeddings(server.url, model="hashing-70b"))
        assert "has no model 'hashing-70b'" in str(error)
        assert "The model `hashing-70b` does not exist." in str(error)

    def test_an_address_without_embeddings_is_told_from_an_unknown_model(self, server):
        error = error_of(EndpointEmbeddings(f"{server.url}/api/v1", model=MODEL))
        assert "is not there (status 404)" in str(error)

    @pytest.mark.parametrize("status", [400, 413, 422])
    def test_texts_that_are_refused_may_be_too_long(self, model, server, status):
        server.will(status)
        error = error_of(model)
        assert f'refuses the texts (status {status}), saying "no luck: {status}"' in str(error)
        assert "lower max_characters" in str(error)
        assert len(server.bodies) == 1

    @pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
    def test_what_may_pass_is_tried_again(self, model, server, status):
        server.will(status, status)
        assert len(model.embed_documents(TEXTS)) == 3
        assert len(server.bodies) == 3

    def test_a_broken_connection_is_tried_again(self, model, server):
        server.will(lambda handler: handler.connection.shutdown(socket.SHUT_RDWR))
        assert len(model.embed_documents(TEXTS)) == 3

    @pytest.mark.parametrize(("status", "said"), [(429, "is asked too much"), (503, "failed")])
    def test_it_is_not_tried_for_ever(self, model, server, status, said):
        server.will(*[status] * 9)
        error = error_of(model)
        assert f'{said} (status {status}), saying "no luck: {status}"' in str(error)
        assert len(server.bodies) == 4
        with pytest.raises(EndpointError):
            model.embed_query("somebody waits for this")
        assert len(server.bodies) == 6

    async def test_it_is_tried_as_often_when_awaited(self, model, server):
        server.will(*[503] * 9)
        with pytest.raises(EndpointError, match="failed"):
            await model.aembed_documents(TEXTS)
        with pytest.raises(EndpointError, match="failed"):
            await model.aembed_query("rain")
        assert len(server.bodies) == 6

    @pytest.mark.parametrize(
        ("asked", "waited"), [("3", 3.0), ("86400", 5.0), ("soon", 0.0), ("-1", 0.0)]
    )
    def test_a_server_that_asks_for_a_pause_gets_it_within_reason(
        self, model, server, monkeypatch, asked, waited
    ):
        pauses = []
        monkeypatch.setattr(endpoint.time, "sleep", pauses.append)
        server.will(lambda handler: reply(handler, 429, {}, Retry_After=asked))
        model.embed_documents(["rain"])
        assert waited in pauses

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            (b"<html>Welcome to nginx</html>", "not JSON"),
            (b"", "not JSON"),
            (b"\xff\xfe", "not JSON"),
            (b"[" * 100_000, "not JSON"),
            ([], "answered without vectors"),
            ({}, "answered without vectors"),
            ({"data": None}, "answered without vectors"),
            ({"data": [[1.0]]}, "answered without vectors"),
            ({"error": "out of memory"}, 'saying "out of memory"'),
            (answer_of([]), "0 vectors for 1 texts"),
            (answer_of([[1.0], [1.0]]), "2 vectors for 1 texts"),
            (answer_of([[]]), "shape (1, 0)"),
            (answer_of([1.0]), "shape (1,)"),
            (answer_of(["AACAPw=="]), "not lists of numbers"),
            (answer_of([{"a": 1}]), "not lists of numbers"),
            (answer_of([[1.0, float("nan")]]), "NaN or infinite"),
            (answer_of([[1.0, 1e300]]), "NaN or infinite"),
            (answer_of([[1.0, None]]), "NaN or infinite"),
        ],
    )
    def test_an_answer_without_usable_vectors_says_what_it_is(self, model, server, answer, said):
        server.will(answer)
        assert said in str(error_of(model))
        assert len(server.bodies) == 1

    def test_vectors_of_two_lengths_are_refused(self, model, server):
        server.will(answer_of([[1.0], [1.0, 2.0]]))
        assert "all of one length" in str(error_of(model, ["one", "two"]))

    @pytest.mark.parametrize("places", [[0, 0], [1, 2], [0, None], ["0", "1"], [[0], {}]])
    def test_items_that_are_numbered_badly_are_refused(self, model, server, places):
        data = [{"index": place, "embedding": [1.0]} for place in places]
        server.will({"data": data})
        assert "each `index` from 0 once" in str(error_of(model, ["one", "two"]))

    def test_another_dimension_than_before_is_refused(self, model, server):
        model.embed_query("rain")
        server.dim = 128
        error = error_of(model)
        assert "shape (1, 128), wanted dimension 256, as before" in str(error)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"model": " "},
            {"batch_size": 0},
            {"timeout": 0},
            {"timeout": float("nan")},
            {"max_characters": 0},
        ],
    )
    def test_arguments_that_mean_nothing_are_refused(self, wrong):
        with pytest.raises(ValueError, match="wanted"):
            EndpointEmbeddings("http://localhost:8000", **{"model": MODEL, **wrong})


class TestAddresses:
    @pytest.mark.parametrize(
        "url",
        [
            "http://localhost:8000",
            "http://localhost:8000/",
            "http://localhost:8000/v1",
            " http://LOCALHOST:8000/v1/ ",
            "HTTP://localhost:8000//v1//embeddings/",
        ],
    )
    def test_one_server_has_one_address_however_it_is_written(self, url):
        assert embeddings_url(url) == "http://localhost:8000/v1/embeddings"

    @pytest.mark.parametrize(
        ("url", "address"),
        [
            ("https://api.openai.com", "https://api.openai.com/v1/embeddings"),
            ("https://api.openai.com:443/v1", "https://api.openai.com/v1/embeddings"),
            ("http://h/llm/v2", "http://h/llm/v2/embeddings"),
            ("http://h/v1beta/openai/", "http://h/v1beta/openai/embeddings"),
            ("http://h/llm", "http://h/llm/v1/embeddings"),
            ("http://h/own/embeddings", "http://h/own/embeddings"),
            ("http://[::1]:11434", "http://[::1]:11434/v1/embeddings"),
        ],
    )
    def test_a_version_is_added_where_there_is_none(self, url, address):
        assert embeddings_url(url) == address

    @pytest.mark.parametrize(
        "url", ["", "localhost:8000", "ftp://h/v1", "http://", "http://h:port", "http://[::1", "v1"]
    )
    def test_what_is_no_http_address_is_refused(self, url):
        with pytest.raises(ValueError, match="http://localhost:8000/v1"):
            embeddings_url(url)

    @pytest.mark.parametrize("url", ["http://me:geheim@h/v1", "http://h/v1?key=geheim"])
    def test_one_with_a_secret_in_it_is_refused_without_showing_it(self, url):
        with pytest.raises(ValueError, match="api_key") as caught:
            embeddings_url(url)
        assert "geheim" not in str(caught.value)

    @given(st.text(max_size=30))
    @settings(derandomize=True, deadline=None, max_examples=200)
    def test_an_address_is_its_own_address(self, text):
        for url in (text, f"http://h/{text}"):
            try:
                address = embeddings_url(url)
            except ValueError:
                continue
            assert embeddings_url(address) == address


class TestConnections:
    def test_one_is_kept_open(self, model, server):
        for text in TEXTS:
            model.embed_query(text)
        assert len(server.ports) == 1

    async def test_one_is_kept_open_in_an_event_loop(self, model, server):
        for text in TEXTS:
            await model.aembed_query(text)
        assert len(server.ports) == 1

    def test_threads_get_each_their_own_vectors(self, model, server):
        server.seconds = 0.02
        wanted = dict(zip(TEXTS, model.embed_documents(TEXTS), strict=True))
        found = []

        def ask(text):
            found.extend((text, model.embed_query(text)) for _ in range(5))

        threads = [threading.Thread(target=ask, args=(text,)) for text in TEXTS * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 45
        assert all(np.allclose(vector, wanted[text]) for text, vector in found)

    async def test_requests_that_are_awaited_together_are_answered_together(self, model, server):
        all_there = threading.Barrier(5)

        def together(handler):
            all_there.wait(timeout=10)
            reply(handler, 200, answer_of([[1.0, 0.0]]))

        server.will(*[together] * 5)
        vectors = await asyncio.gather(*(model.aembed_query(f"text {n}") for n in range(5)))
        assert vectors == [[1.0, 0.0]] * 5

    def test_one_event_loop_after_another_can_be_used_and_leaves_nothing_open(self, model):
        first = asyncio.run(model.aembed_query("rain"))
        assert asyncio.run(model.aembed_query("rain")) == first
        del model
        gc.collect()  # What was left open would warn, and a warning fails the test.

    def test_event_loops_of_several_threads_do_not_share_one(self, model, server):
        server.seconds = 0.02
        found = []

        async def ask():
            found.append(await asyncio.gather(*map(model.aembed_query, TEXTS)))

        threads = [threading.Thread(target=asyncio.run, args=(ask(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        assert all(np.allclose(vectors, found[0]) for vectors in found)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_a_forked_child_opens_its_own(self, model, server):
        wanted = model.embed_query("rain")
        child = os.fork()
        if not child:
            status = 1
            try:
                status = 0 if model.embed_query("rain") == wanted else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert model.embed_query("rain") == wanted
        assert len(server.ports) == 2


class TestCaches:
    def rag(self, server, folder, **options):
        model = EndpointEmbeddings(server.url, **{"model": MODEL, **options})
        return ToolRAG(make_catalogue(), embeddings=model, cache_dir=folder)

    def test_tools_and_probes_are_embedded_once_for_all_processes(self, server, tmp_path):
        self.rag(server, tmp_path).search("send a mail")
        server.bodies.clear()
        self.rag(server, tmp_path).search("send a mail")
        assert server.texts == ["send a mail"]

    def test_another_instruction_needs_new_requests_but_no_new_tools(self, server, tmp_path):
        self.rag(server, tmp_path, instruction="Find").index()
        server.bodies.clear()
        self.rag(server, tmp_path, instruction=TASK).index()
        assert sorted(server.texts) == sorted(f"Instruct: {TASK}\nQuery: {p}" for p in PROBES)

    def test_kept_requests_are_those_of_their_instruction(self, server, tmp_path):
        for instruction in ("Find", TASK):
            for _ in range(2):
                model = EndpointEmbeddings(server.url, model=MODEL, instruction=instruction)
                embedder = Embedder(model, cache=cache_in(tmp_path, model), keep_requests=True)
                embedder.requests(["rain", "mail"])
                embedder.query("rain")
        assert sorted(server.texts) == sorted(
            f"Instruct: {task}\nQuery: {text}"
            for task in ("Find", TASK)
            for text in ("rain", "mail")
        )
        assert len(server.bodies) == 2

    def test_two_endpoints_two_models_and_two_lengths_never_share_vectors(self, server, tmp_path):
        other = EmbeddingsServer()
        try:
            self.rag(server, tmp_path).index()
            self.rag(other, tmp_path).index()
            assert sorted(other.texts) == sorted(server.texts)
            server.bodies.clear()
            self.rag(server, tmp_path, max_characters=500).index()
            assert sorted(other.texts) == sorted(server.texts)
        finally:
            other.close()
        models = [EndpointEmbeddings(server.url, model=name) for name in ("a", "b")]
        assert model_name(models[0]) != model_name(models[1])

    def test_one_endpoint_written_in_two_ways_shares_them(self, server, tmp_path):
        self.rag(server, tmp_path).index()
        server.bodies.clear()
        model = EndpointEmbeddings(f"{server.url}/v1/", model=MODEL, timeout=7, batch_size=5)
        ToolRAG(make_catalogue(), embeddings=model, cache_dir=tmp_path).index()
        assert server.bodies == []


class TestToolRAG:
    @pytest.fixture
    def rag(self, server):
        model = EndpointEmbeddings(server.url, model=MODEL, instruction="weather mail song")
        options = IndexOptions(tool_text="json")
        with ToolRAG(make_catalogue(), embeddings=model, index_options=options) as rag:
            yield rag

    def test_a_model_is_taken_as_it_is(self, model):
        assert as_embeddings(model) is model

    def test_tools_are_embedded_as_json_and_requests_and_probes_with_the_instruction(
        self, rag, server
    ):
        rag.search("Lists the issues of a repository")
        tools = [json.loads(text) for text in server.texts if text.startswith("{")]
        requests = [text for text in server.texts if not text.startswith("{")]
        assert sorted(tool["name"] for tool in tools) == sorted(t.name for t in make_catalogue())
        assert all(next(iter(tool)) == "server" for tool in tools)
        assert len(requests) == len(PROBES) + 1
        assert all(text.startswith("Instruct: weather mail song\nQuery: ") for text in requests)

    async def test_it_finds_selects_and_is_confident(self, rag):
        found = rag.find("Lists the issues of a repository")
        assert found.hits[0].id == "github/list_issues"
        assert found.degraded == ""
        assert 0 <= found.confidence <= 1
        assert (await rag.aselect("Lists the issues of a repository")).names[0] == "list_issues"

    def test_while_the_server_is_down_words_answer_and_say_so(self, rag, server):
        server.will(*[503] * 20)
        selection = rag.select("Sends an email to somebody")
        assert selection.names[0] == "send_email"
        assert "the embeddings endpoint" in selection.degraded
        assert "status 503" in selection.degraded

    def test_only_new_tools_are_embedded(self, rag, server):
        rag.index()
        server.bodies.clear()
        rag.add([make_tool("rename_file", "Gives a file another name.", server="files")])
        rag.index()
        assert [json.loads(text)["name"] for text in server.texts] == ["rename_file"]

    def test_a_saved_index_is_loaded_with_how_tools_are_written(self, rag, server, tmp_path):
        found = rag.search("send a mail")
        rag.save(tmp_path)
        server.bodies.clear()
        model = rag.tool_index.embedder.embeddings
        loaded = ToolRAG.load(tmp_path, make_catalogue(), embeddings=model)
        assert loaded.tool_index.options.tool_text == "json"
        assert loaded.search("send a mail") == found
        assert len(server.texts) == 1

    @pytest.mark.parametrize("other", [{"model": "hashing-70b"}, {"url": "http://127.0.0.2:1"}])
    def test_a_saved_index_of_another_endpoint_is_stale(self, rag, server, tmp_path, other):
        rag.index()
        rag.save(tmp_path)
        model = EndpointEmbeddings(**{"url": server.url, "model": MODEL, **other})
        with pytest.raises(StaleIndexError, match=f"{MODEL} at {server.url}"):
            ToolRAG.load(tmp_path, embeddings=model)

    def test_the_error_of_the_endpoint_reaches_who_asked_for_the_vectors(self, rag, server):
        server.will(401)
        with pytest.raises(EmbeddingError, match="wants an API key") as caught:
            rag.index()
        assert isinstance(caught.value.__cause__, EndpointError)
