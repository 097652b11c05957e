"""Whom a ToolRAG answers with which heads, and what its log says of it."""

import uuid
from pathlib import Path

import numpy as np
import pytest
from fakes import AsymmetricEmbeddings, HashingEmbeddings, NamedEmbeddings, make_catalogue
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler

from langchain_toolrag import SelectionOptions, ToolRAG
from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.python_tools import read_python
from langchain_toolrag.errors import AdapterError
from langchain_toolrag.index.adapter import Adapter, write_adapter
from langchain_toolrag.index.heads import Heads
from langchain_toolrag.trial.directory import HeadsDirectory
from langchain_toolrag.trial.sessions import dealt_sessions
from langchain_toolrag.usage.digests import open_digests
from langchain_toolrag.usage.reading import read_usage
from langchain_toolrag.usage.request_vectors import RequestVectors

MODEL = "NamedEmbeddings(hashing-1)"
REQUEST = "current weather in a city"
DIM = len(NamedEmbeddings().embed_query("a request"))


def adapter(seed=1, base=MODEL):
    """Heads that mix up everything."""
    dice = np.random.default_rng(seed)
    shapes = {"first.weight": (4, DIM), "first.bias": (4,), "second.weight": (DIM, 4)}
    shapes["second.bias"] = (DIM,)
    weights = {
        f"{side}.{name}": dice.normal(size=shape)
        for side in ("request", "tool")
        for name, shape in shapes.items()
    }
    return Adapter("heads", base, 1.0, weights, {})


def config(thread, tenant=None):
    tenanted = {} if tenant is None else {"tenant_id": tenant}
    return {"configurable": {"thread_id": thread, **tenanted}}


@pytest.fixture
def folder(tmp_path):
    return HeadsDirectory(tmp_path / "heads")


@pytest.fixture
def rag_with(tmp_path):
    made = []

    def make(heads, **given):
        given = {"usage_log": tmp_path / "usage", "options": SelectionOptions(k=2), **given}
        given = {"embeddings": NamedEmbeddings(), **given}
        rag = ToolRAG(make_catalogue(), heads=heads, **given)
        made.append(rag)
        return rag

    yield make
    for rag in made:
        rag.close()


@pytest.fixture(params=["sync", "async"])
def asked(request):
    async def asked(rag, config):
        """Return which heads answer a selection and a search."""
        if request.param == "async":
            selection = await rag.aselect(REQUEST, config=config)
            return selection.heads, (await rag.afind(REQUEST, config=config)).heads
        return rag.select(REQUEST, config=config).heads, rag.find(REQUEST, config=config).heads

    return asked


async def test_without_heads_none_answer(rag_with, asked):
    rag = rag_with(None)
    assert await asked(rag, config("1")) == ("", "")
    assert (rag.status.heads, rag.status.heads_problem) == ("", "")


async def test_a_file_of_heads_answers_everybody(rag_with, asked, tmp_path):
    write_adapter(adapter(), tmp_path / "mine.safetensors")
    rag, plain = rag_with(tmp_path / "mine.safetensors"), rag_with(None)
    digest = rag.status.heads
    assert len(digest) == 64
    assert await asked(rag, None) == await asked(rag, config("1")) == (digest, digest)
    assert rag.search(REQUEST, k=3) != plain.search(REQUEST, k=3)
    assert rag.explain(REQUEST) != plain.explain(REQUEST)


async def test_heads_of_another_model_are_refused_at_once(rag_with, tmp_path):
    other = adapter(base="NamedEmbeddings(other)")
    write_adapter(other, tmp_path / "other.safetensors")
    for heads in (tmp_path / "other.safetensors", Heads(other)):
        with pytest.raises(AdapterError, match=r"wanted heads of NamedEmbeddings\(hashing-1\)"):
            rag_with(heads)


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_that_is_none_is_refused(rag_with, folder, share):
    with pytest.raises(ValueError, match="candidate_share"):
        rag_with(folder.path, candidate_share=share)


async def test_a_candidate_answers_its_share_of_the_sessions_and_always_the_same(
    rag_with, folder, asked
):
    candidate = folder.put_on_trial(adapter())
    rag = rag_with(folder.path, candidate_share=0.5)
    first = [await asked(rag, config(f"thread {number}")) for number in range(40)]
    again = [await asked(rag, config(f"thread {number}")) for number in range(40)]
    assert first == again
    assert set(first) == {(candidate, candidate), ("", "")}
    assert await asked(rag, None) == await asked(rag, config("")) == ("", "")


async def test_promoted_heads_of_a_tenant_answer_that_tenant_alone(rag_with, folder, asked):
    candidate = folder.put_on_trial(adapter())
    rag = rag_with(folder.path, candidate_share=0)
    acme = rag.usage_log.digest("tenant", "acme")
    folder.promote(acme)
    rag = rag_with(folder.path, candidate_share=0)
    assert await asked(rag, config("1", "acme")) == (candidate, candidate)
    assert await asked(rag, config("1", "globex")) == await asked(rag, config("1")) == ("", "")


async def test_a_line_says_who_asked_and_which_heads_answered(rag_with, folder, asked, tmp_path):
    folder.put_on_trial(adapter())
    folder.promote()
    rag = rag_with(folder.path)
    await asked(rag, config("42", "acme"))
    rag.usage_log.flush()
    records = list(read_usage(tmp_path / "usage"))
    digests = open_digests(tmp_path / "usage")
    assert [record.kind for record in records] == ["select", "search"]
    for record in records:
        assert record.heads == rag.status.heads[:16]
        assert record.session == digests.of("session", "42")
        assert record.tenant == digests.of("tenant", "acme")


async def test_a_requests_vector_beside_the_log_is_the_models_not_the_heads(
    rag_with, folder, asked, tmp_path
):
    folder.put_on_trial(adapter())
    folder.promote()
    rag = rag_with(folder.path)
    await asked(rag, config("1"))
    rag.usage_log.flush()
    digest = open_digests(tmp_path / "usage").of("request", REQUEST)
    [vector] = RequestVectors(tmp_path / "usage").get(MODEL, [digest]).values()
    assert vector == pytest.approx(NamedEmbeddings().embed_query(REQUEST), abs=1e-6)


@pytest.mark.parametrize("thread", ["", " \t", None])
async def test_a_session_without_a_name_is_never_on_trial(
    rag_with, folder, asked, thread, tmp_path
):
    folder.put_on_trial(adapter())
    rag = rag_with(folder.path, candidate_share=1)
    assert await asked(rag, config(thread)) == ("", "")
    rag.usage_log.flush()
    assert {(each.session, each.trial) for each in read_usage(tmp_path / "usage")} == {("", "")}


ODD = [7, 1.5, True, b"x", ("a", 1), "\0", "\ud800", "x" * 100_000, "../..", "Zoë", uuid.uuid4()]


@pytest.mark.parametrize("name", ODD, ids=lambda name: repr(name)[:20])
async def test_odd_names_of_sessions_and_tenants_are_names(rag_with, folder, asked, name, tmp_path):
    candidate = folder.put_on_trial(adapter())
    rag = rag_with(folder.path, candidate_share=1)
    assert await asked(rag, config(name, name)) == (candidate, candidate)
    rag.usage_log.flush()
    of = open_digests(tmp_path / "usage").of
    found = {(each.session, each.tenant) for each in read_usage(tmp_path / "usage")}
    assert found == {(of("session", str(name)), of("tenant", str(name)))}


def test_names_that_read_the_same_are_one_session(rag_with, folder):
    folder.put_on_trial(adapter())
    rag = rag_with(folder.path, candidate_share=0.5)
    for number in range(40):
        same = [f"Zo\u00eb {number}", f"Zoe\u0308 {number}", f" Zo\u00eb {number}\n"]
        assert len({rag.heads_for(config(name)) for name in same}) == 1


async def test_a_line_says_what_was_on_trial_for_whom(rag_with, folder, asked, tmp_path):
    candidate = folder.put_on_trial(adapter())
    acme = rag_with(None).usage_log.digest("tenant", "acme")
    folder.roll_back(acme)
    rag = rag_with(folder.path, candidate_share=0.5)
    for number in range(20):
        await asked(rag, config(f"thread {number}"))
    await asked(rag, config("thread 1", "acme"))
    await asked(rag, None)
    rag.usage_log.flush()
    lines = {
        (bool(r.session), bool(r.tenant), r.trial, r.heads) for r in read_usage(tmp_path / "usage")
    }
    tried = candidate[:16]
    assert lines == {
        (True, False, tried, tried),
        (True, False, tried, ""),
        (True, True, "", ""),
        (False, False, "", ""),
    }


@pytest.mark.parametrize("other", ["model", "share", "heads"])
def test_a_log_may_be_shared_with_whoever_cannot_try_the_heads(rag_with, folder, tmp_path, other):
    folder.put_on_trial(adapter())
    others = {
        "model": {"embeddings": AsymmetricEmbeddings(), "heads": folder.path},
        "share": {"heads": folder.path, "candidate_share": 0},
        "heads": {"heads": None},
    }
    for agent, given in enumerate([{"heads": folder.path}, others[other]]):
        rag = rag_with(**given)
        for number in range(10):
            rag.select(REQUEST, config=config(f"{agent} {number}"))
        rag.usage_log.flush()
    state = folder.state()
    dealt = dealt_sessions(read_usage(tmp_path / "usage"), state, state.candidate)
    assert len(dealt.sessions) == dealt.searches_left_out == 10


def test_a_thread_that_is_a_number_is_a_session_too(rag_with, tmp_path):
    rag = rag_with(None)
    rag.select(REQUEST, config=config(42))
    rag.usage_log.flush()
    [record] = read_usage(tmp_path / "usage")
    assert record.session == open_digests(tmp_path / "usage").of("session", "42")


def test_heads_that_cannot_be_read_leave_the_model_as_it_is(rag_with, folder, caplog):
    folder.path.mkdir()
    folder.state_file.write_text("{torn")
    rag = rag_with(folder.path)
    assert rag.select(REQUEST).heads == ""
    assert str(folder.state_file) in rag.status.heads_problem
    assert len(caplog.records) == 1


def test_a_directory_brings_its_own_heads_unless_others_are_given(tmp_path, folder):
    python = Path(__file__).parents[2] / "examples" / "tools.py"
    directory = ToolDirectory(tmp_path)
    directory.replace([read_python(f"{python}:TOOLS", name="demo")])
    HeadsDirectory(directory.heads).put_on_trial(adapter())
    HeadsDirectory(directory.heads).promote()
    with ToolRAG.from_directory(tmp_path, embeddings=NamedEmbeddings()) as rag:
        assert rag.status.heads
    with ToolRAG.from_directory(tmp_path, embeddings=NamedEmbeddings(), heads=None) as rag:
        assert not rag.status.heads


def test_a_misspelt_option_is_an_error_of_every_constructor(tmp_path):
    with ToolRAG(make_catalogue(), embeddings=HashingEmbeddings()) as rag:
        rag.index()
        rag.save(tmp_path)
    with pytest.raises(TypeError, match="optoins"):
        ToolRAG.load(tmp_path, embeddings=HashingEmbeddings(), optoins=SelectionOptions())


@pytest.mark.parametrize("listening", [False, True])
def test_messages_that_can_be_read_once_are_read_once(listening):
    with ToolRAG(make_catalogue(), embeddings=HashingEmbeddings()) as rag:
        given = {"callbacks": [RunCollectorCallbackHandler()]} if listening else None
        once = rag.select(iter([("user", REQUEST)]), config=given)
        assert once.names == rag.select([("user", REQUEST)]).names
