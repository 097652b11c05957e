from cases_loading import (
    about,
    entry_of,
    found_by_words,
    make_tool,
    missed,
    named,
    ranks_first,
    searched,
    settle,
    shown,
    unbindable,
    unmet,
)

FILE = "05_descriptions"


@about(FILE)
def test_a_tool_is_found_by_what_its_odd_description_says(rag_with, case):
    name, expect = case["tool"]["name"], dict(case["expect"])
    rag = rag_with(make_tool(case["tool"]))
    for key in ("no_error", "note", "bind", "with_catalogue"):  # Tested below, for every case.
        expect.pop(key, None)
    queries, lexical = expect.pop("find", []), "lexical" in expect.pop("needs", "")
    lacking = missed(rag, name, queries, by_words=False)
    lacking += missed(rag, name, queries if lexical else [], by_words=True)
    lacking += missed(rag, name, expect.pop("find_lexical", []), by_words=True)
    lacking += found_by_words(rag, name, expect.pop("not_findable_by", []))
    for query in expect.pop("not_first_for", []):
        ranking = named(rag, rag.search(query, 10))
        if ranks_first(ranking, name):
            lacking.append(f"{query!r} should not bring it first; came {shown(ranking)}")
    for number in ("", "2"):
        wanted = {
            key: expect.pop(key + number)
            for key in ("first", "before", "not_first")
            if key + number in expect
        }
        if wanted:
            lacking += unmet(wanted, searched(rag, expect.pop("query" + number)))
    assert not expect, "an expectation that nothing checks"
    settle(lacking)


@about(FILE)
def test_a_tool_of_an_odd_description_is_embedded_and_bound_as_it_is(rag_with, minilm, case):
    tool = make_tool(case["tool"])
    rag = rag_with(tool)
    rag.index()
    assert rag.indexed
    assert all(text.strip() for text in minilm.texts)
    assert entry_of(rag, tool.name).bound is tool
    assert tool.description == case["tool"]["description"]
    settle(unbindable(rag, tool.name))
