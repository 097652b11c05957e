from typing import Annotated, Any

from cases_loading import (
    about,
    entry_of,
    found_by_words,
    make_tool,
    missed,
    ordinary_tools,
    read,
    searched,
    settle,
    slow,
    unbindable,
    unmet,
)
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt import InjectedState, InjectedStore

FILE = "02_odd_schemas"
UNBOUND = {"dangling-ref", "array-root", "injected-args"}  # `expect` does not ask to bind them.
LONGEST_TEXT = 2_000  # Characters: several times what the model reads of a text.


@tool
def parcel_injected_args(
    code: str,
    state: Annotated[dict[str, Any], InjectedState],
    store: Annotated[Any, InjectedStore()],
) -> str:
    """Look up a parcel by its tracking code."""
    return code


def _tool(case):
    return parcel_injected_args if case["id"] == "injected-args" else make_tool(_definition(case))


def _definition(case):
    return {**case["tool"], **case.get("tool_extra", {})}


def _bindable():
    return [case["id"] for case in read(FILE)["cases"] if case["id"] not in UNBOUND]


@about(FILE)
def test_a_tool_of_an_odd_schema_is_indexed_and_found(rag_with, case):
    name, expect = case["tool"]["name"], dict(case["expect"])
    for key in ("no_error", "bind", "note", "with_catalogue"):  # Tested below.
        expect.pop(key, None)
    rag = rag_with(_tool(case))
    lacking = []
    if "finishes_within_s" in expect:
        lacking += slow(expect.pop("finishes_within_s"), lambda: rag_with(_tool(case)).index())
    rag.search(case["tool"]["description"])
    if "findable_by" in expect:
        lacking += missed(rag, name, [expect.pop("findable_by")], by_words=False)
    lacking += missed(rag, name, expect.pop("also_findable_by", []))
    lacking += found_by_words(rag, name, expect.pop("not_findable_by", []))
    if "query" in expect:
        lacking += unmet({"first": expect.pop("first")}, searched(rag, expect.pop("query")))
    assert not expect, "an expectation that nothing checks"
    settle(lacking)


@about(FILE, *_bindable())
def test_a_tool_of_an_odd_schema_is_bound_unchanged(rag_with, case):
    odd = make_tool(_definition(case))
    rag = rag_with(odd)
    entry = entry_of(rag, odd.name)
    assert entry.bound is odd
    assert entry.bound.args_schema == make_tool(_definition(case)).args_schema
    assert entry.bound.metadata == make_tool(_definition(case)).metadata
    settle(unbindable(rag, odd.name))


@about(FILE, *sorted(UNBOUND))
def test_a_tool_that_may_not_be_bound_does_not_take_others_with_it(rag_with, case):
    odd = _tool(case)
    rag = rag_with(odd)
    bound = {entry.document.name for entry in rag.catalogue}
    assert {other.name for other in ordinary_tools()} <= bound
    assert odd.name in bound or odd.name in rag.status.rejected
    for selected in rag.select("track a parcel by its tracking code").tools:
        assert convert_to_openai_tool(selected)["type"] == "function"


@about(FILE, "injected-args")
def test_injected_arguments_are_not_shown_to_the_model(rag_with, case):
    entry = entry_of(rag_with(_tool(case)), "parcel_injected_args")
    definition = convert_to_openai_tool(entry.bound)["function"]
    assert list(definition["parameters"]["properties"]) == ["code"]


@about(FILE, "500-params")
def test_many_parameters_do_not_swamp_a_tool(rag_with, case):
    name = case["tool"]["name"]
    rag = rag_with(_tool(case))
    settle(unmet({"not_first": name}, searched(rag, "free text field")))
    settle(unmet({"first": name}, searched(rag, name)))


@about(FILE, "500-params")
def test_many_parameters_do_not_make_a_long_text(rag_with, minilm, case):
    name = case["tool"]["name"]
    rag_with(_tool(case)).index()
    longest = max(len(text) for text in minilm.texts if name in text)
    settle([f"a text of {longest} characters is embedded"] if longest > LONGEST_TEXT else [])


@about(FILE, "extra-mcp-fields")
def test_title_and_search_hint_are_searched(rag_with, case):
    rag = rag_with(_tool(case))
    queries = ["Track a parcel", "shipment delivery"]
    settle(missed(rag, case["tool"]["name"], queries, by_words=True))
