import string
import tempfile
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
from documents import make_document
from fakes import HashingEmbeddings
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi
from reference_bm25 import PositiveBM25

from langchain_toolrag.catalogue.names import comparable
from langchain_toolrag.index.analysis import STOP_WORDS, terms
from langchain_toolrag.index.dense import DenseIndex, Peaks
from langchain_toolrag.index.keyword import KeywordIndex, parse_query
from langchain_toolrag.index.lexical import LexicalIndex
from langchain_toolrag.index.storage import load_index, save_index
from langchain_toolrag.index.texts import lexical_text
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.types import ToolFilter

laws = settings(derandomize=True, deadline=None, max_examples=200)
slow_laws = settings(derandomize=True, deadline=None, max_examples=40)

terms_of_a_tool = st.lists(st.sampled_from("abcdefgh"), max_size=12)
corpora = st.lists(terms_of_a_tool, min_size=1, max_size=12).filter(any)
queries = st.lists(st.sampled_from("abcdefghxyz"), max_size=8)

words = ("rain", "sun", "mail", "send", "list", "song", "play", "get", "水泵", "état")
texts = st.lists(st.sampled_from(words), max_size=6).map(" ".join)
names = st.sampled_from([f"{verb}_{noun}" for verb in ("get", "list") for noun in words[:6]])
documents = st.builds(
    make_document,
    names,
    texts,
    st.sampled_from([None, "weather", "mail"]),
    hint=texts,
    tags=st.frozensets(st.sampled_from(["read", "write"])),
)
sets_of_documents = st.lists(documents, max_size=8, unique_by=lambda document: document.id)
any_text = st.text(max_size=20)
documents_of_any_text = st.builds(
    lambda document, **fields: replace(document, **fields),
    documents,
    description=any_text,
    title=any_text,
    hint=any_text,
    parameters=st.lists(any_text, max_size=3).map(tuple),
    values=st.lists(any_text, max_size=3).map(tuple),
    tags=st.frozensets(any_text, max_size=3),
    origin=any_text,
)


def rows_of(size, dim, seed):
    rows = np.random.default_rng(seed).normal(size=(size, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def make_index(documents):
    index = ToolIndex(HashingEmbeddings())
    index.refresh(documents)
    return index


@laws
@given(corpora, queries)
def test_lexical_scores_are_rank_bm25s_own(corpus, query):
    reference = PositiveBM25(corpus).get_scores(query)
    assert np.allclose(
        LexicalIndex().with_tools(corpus).scores(query), reference, rtol=0, atol=1e-5
    )


@laws
@given(corpora, queries)
def test_the_formula_is_okapis_where_its_own_frequencies_are_used(corpus, query):
    positive, okapi = PositiveBM25(corpus), BM25Okapi(corpus, k1=1.5, b=0.75)
    okapi.idf = positive.idf
    assert np.allclose(positive.get_scores(query), okapi.get_scores(query))


@laws
@given(corpora, queries)
def test_a_lexical_score_is_positive_exactly_where_a_term_is_shared(corpus, query):
    scores = LexicalIndex().with_tools(corpus).scores(query)
    assert (scores >= 0).all()
    assert (scores > 0).tolist() == [bool(set(tool) & set(query)) for tool in corpus]


@laws
@given(corpora, queries, st.randoms(use_true_random=False))
def test_lexical_scores_go_with_their_tools_whatever_the_order(corpus, query, random):
    order = list(range(len(corpus)))
    random.shuffle(order)
    shuffled = LexicalIndex().with_tools([corpus[row] for row in order]).scores(query)
    assert np.allclose(shuffled, LexicalIndex().with_tools(corpus).scores(query)[order], atol=1e-6)


@laws
@given(st.integers(1, 30), st.integers(2, 12), st.integers(0, 99), st.data())
def test_dense_scores_are_the_inner_products_whatever_the_slots(size, dim, seed, data):
    rows, query = rows_of(size, dim, seed), rows_of(1, dim, seed + 1)[0]
    slots = data.draw(st.permutations(range(size + 5)))[:size]
    index = DenseIndex(dim).with_rows(slots, rows)
    assert np.flatnonzero(index.present).tolist() == sorted(slots)
    assert np.allclose(index.scores(query)[slots], rows @ query, atol=1e-6)


@laws
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=12), st.integers(0, 9))
def test_a_dense_index_is_what_its_changes_add_up_to(changes, seed):
    rows, query = rows_of(10, 6, seed), rows_of(1, 6, seed + 100)[0]
    index, there, requests = DenseIndex(6), [], rows_of(3, 6, seed + 200)
    peaks, past = Peaks.of(requests, index), []
    for adding, slot in changes:
        if adding and slot not in there:
            index, there = index.with_rows([slot], rows[[slot]]), [*there, slot]
            peaks = peaks.with_rows([slot], index)
        elif not adding and slot in there:
            index, there = index.without([slot]), [s for s in there if s != slot]
            peaks = peaks.without([slot], index)
        past.append((index, list(there)))
    for index, there in past:
        assert index.size == len(there)
        assert np.array_equal(index.rows(there), rows[there].reshape(-1, 6))
        assert np.allclose(index.scores(query)[there], rows[there] @ query, atol=1e-6)
    assert peaks.scores.tolist() == Peaks.of(requests, index).scores.tolist()


@laws
@given(st.text())
def test_any_text_has_terms_that_are_words(text):
    for term in terms(text):
        assert term.split() == [term]
        assert term not in STOP_WORDS or not term.isascii()
    assert terms(text, "raw") == text.lower().split()


@laws
@given(st.text(string.ascii_letters + " _-.,", max_size=40))
def test_terms_do_not_depend_on_white_space_around_them(text):
    assert terms(f"  {text}\n") == terms(text)


@laws
@given(st.text(max_size=30), st.text(max_size=30), st.sampled_from(" \n\u00a0\u3000"))
def test_terms_do_not_depend_on_what_white_space_parts_them_from(one, other, space):
    assert terms(one + space + other) == terms(one) + terms(other)


@laws
@given(sets_of_documents, st.data())
def test_a_selection_finds_the_tools_of_the_names_in_it_and_no_others(known, data):
    all_names = sorted({document.name for document in known} | {"unknown_tool"})
    asked = data.draw(st.lists(st.sampled_from(all_names), unique=True))
    separator = data.draw(st.sampled_from([",", ", ", " ,\n"]))
    spell = data.draw(st.sampled_from([str, str.upper, lambda name: name.replace("_", "-")]))
    query = parse_query("select:" + separator.join(map(spell, asked)))
    assert query.selected == tuple(map(spell, asked))
    rows = KeywordIndex().with_tools(known).exact(query)
    assert {known[row].name for row in rows} == set(asked) & {doc.name for doc in known}


@laws
@given(st.text())
def test_any_text_can_be_taken_apart_as_a_query(text):
    query = parse_query(text)
    index = KeywordIndex().with_tools([make_document("get_rain", "Says rain.", "weather")])
    assert (index.points(query) >= 0).all()
    assert index.exact(query) <= {0}
    if query.selected is None and not query.required:
        assert query.text == text


@laws
@given(sets_of_documents, texts, st.integers(1, 4), st.booleans())
def test_evidence_keeps_to_the_filter_and_fills_the_count_after_it(known, query, k, dense):
    restriction = ToolFilter(servers=frozenset({"weather"}), tags=frozenset({"read"}))
    admitted = {document.id for document in known if restriction.admits(document)}
    evidence = make_index(known).evidence(query, k, restriction, dense=dense)
    found = {tool.id for tool in evidence.tools}
    assert found <= admitted
    if dense:
        assert len(found) >= min(k, len(admitted))


@laws
@given(sets_of_documents, texts)
def test_a_tool_is_in_the_evidence_once_and_with_every_score(known, query):
    index = make_index(known)
    tools = index.evidence(query, 100).tools
    assert sorted(tool.id for tool in tools) == sorted(document.id for document in known)
    by_words = {tool.id: tool for tool in index.evidence(query, 100, dense=False).tools}
    for tool in tools:
        words_only = by_words.get(tool.id)
        lexical, keyword = (words_only.lexical, words_only.keyword) if words_only else (0, 0)
        assert (tool.lexical, tool.keyword) == (lexical, keyword)
        assert -1.001 <= tool.dense <= 1.001


def change(index, kind, known):
    """Add documents, remove them, or hold exactly them."""
    if kind == "remove":
        index.remove([document.id for document in known])
    else:
        getattr(index, kind)(known)


changes_of_an_index = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "remove", "refresh"]), sets_of_documents, st.booleans()
    ),
    min_size=1,
    max_size=6,
)


@laws
@given(changes_of_an_index, texts, st.integers(1, 4))
def test_an_index_that_was_changed_answers_like_one_made_anew(history, query, k):
    index = ToolIndex(HashingEmbeddings())
    for kind, known, embedding in history:
        change(index, kind, known)
        if embedding:
            index.embed()
    for count in (k, 100):
        old = index.evidence(query, count)
        new = make_index(index.documents).evidence(query, count)
        assert [tool.id for tool in old.tools] == [tool.id for tool in new.tools]
        for one, other in zip(old.tools, new.tools, strict=True):
            assert np.allclose(one.dense, other.dense, rtol=0, atol=1e-6)
            assert np.allclose(one.lexical, other.lexical, rtol=0, atol=1e-6)
            assert np.allclose(one.coverage, other.coverage, rtol=0, atol=1e-6)
            assert (one.keyword, one.exact) == (other.keyword, other.exact)
        spreads = (astuple(old.statistics), astuple(new.statistics))
        assert np.allclose(*spreads, rtol=0, atol=1e-6)


@laws
@given(changes_of_an_index, queries)
def test_lexical_scores_are_rank_bm25s_own_whatever_came_and_went(history, query):
    index = ToolIndex(HashingEmbeddings())
    for kind, known, _ in history:
        change(index, kind, known)
    snapshot = index.snapshot
    corpus = [terms(lexical_text(document)) for document in index.documents]
    words = [word for text in corpus[:2] for word in text[:2]] + query
    scores = snapshot.lexical.scores(words)[snapshot.order]
    reference = PositiveBM25(corpus).get_scores(words) if corpus else []
    assert np.allclose(scores, reference, rtol=0, atol=1e-5)


@laws
@given(changes_of_an_index)
def test_a_snapshot_stays_as_it_was_whatever_comes_after_it(history):
    index, past = ToolIndex(HashingEmbeddings()), []
    query = parse_query("get_rain rain mail list")
    vector = index.embedder.query("rain mail")
    for kind, known, embedding in history:
        change(index, kind, known)
        if embedding:
            index.embed()
        past.append((index.snapshot, index.snapshot.evidence(query, vector, 3, None)))
    for snapshot, answer in past:
        assert snapshot.evidence(query, vector, 3, None) == answer


@slow_laws
@given(st.lists(sets_of_documents, min_size=1, max_size=4))
def test_changes_add_up_to_what_the_index_holds(history):
    index, there = ToolIndex(HashingEmbeddings()), {}
    for known in history:
        changes = index.refresh(known)
        assert set(changes.removed) == there.keys() - {document.id for document in known}
        there = {document.id: document for document in known}
        parts = (changes.added, changes.changed, changes.kept)
        assert sorted(sum(parts, ())) == sorted(there)
        assert {document.id: document for document in index.documents} == there


@slow_laws
@given(
    st.lists(documents_of_any_text, max_size=5, unique_by=lambda document: document.id),
    texts,
    st.booleans(),
)
def test_a_saved_index_comes_back_as_it_was_and_embeds_nothing(known, query, embedded):
    index = make_index(known)
    if embedded:
        index.embed()
    with tempfile.TemporaryDirectory() as directory:
        save_index(index, Path(directory))
        model = HashingEmbeddings()
        loaded = load_index(Path(directory), model)
    assert loaded.documents == index.documents
    assert [document.origin for document in loaded.documents] == [doc.origin for doc in known]
    if embedded:
        assert loaded.evidence(query).tools == index.evidence(query).tools
        assert model.texts == []


@laws
@given(names, st.sampled_from([str.upper, str.title, lambda name: name.replace("_", "")]))
def test_a_name_is_exact_in_any_spelling_that_compares_equal(name, spell):
    document = make_document(name)
    assert comparable(spell(name)) == comparable(name)
    assert KeywordIndex().with_tools([document]).exact(parse_query(spell(name))) == {0}
