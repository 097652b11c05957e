import pytest
from cases_loading import (
    about,
    answer_of,
    make_tool,
    named,
    ranks_first,
    run,
    searched,
    settle,
    shown,
    unmet,
)

from langchain_toolrag.errors import DuplicateToolError
from langchain_toolrag.selection.bindable import tool_name

FILE = "04_duplicates"


def _ranks(hits):
    return {hit.id: hit.rank for hit in hits}


@about(FILE, "same-name-two-servers", "squatter")
def test_one_name_on_two_servers_is_refused_by_default(rag_with, case):
    with pytest.raises(DuplicateToolError) as refused:
        rag_with(*map(make_tool, case["tools"]))
    for definition in case["tools"]:
        assert definition["server"] in str(refused.value)


@about(FILE, "same-name-two-servers")
def test_one_name_on_two_servers_is_bound_with_their_names_in_front(rag_with, case):
    rag = rag_with(*map(make_tool, case["tools"]), on_duplicate="prefix")
    wanted = {"work_mail_send_email": "work_mail", "home_mail_send_email": "home_mail"}
    for query in ("send email", "send_email"):
        assert wanted.keys() <= set(rag.select(query).names)
        assert {f"{server}/send_email" for server in wanted.values()} <= {
            hit.id for hit in rag.search(query, 3)
        }
    runnable = {tool.name: tool for tool in rag.tools}
    for name, server in wanted.items():
        assert run(runnable[name]).startswith(answer_of("send_email", server))


@about(FILE, "same-object-twice")
def test_a_tool_given_again_is_bound_once(rag_with, case):
    tool = make_tool(case["tools"][0])
    rag = rag_with(tool, tool)
    rag.add([tool])
    rag.add([make_tool(case["tools"][1])])
    bound = rag.select("send_email").names
    assert bound.count("send_email") == 1
    assert len(bound) == len(set(bound))
    assert [entry.document.name for entry in rag.catalogue].count("send_email") == 1


@about(FILE, "same-description-different-names")
def test_tools_of_one_description_are_told_apart_by_name(rag_with, case):
    expect, tools = case["expect"], [make_tool(definition) for definition in case["tools"]]
    rag, reverse = rag_with(*tools), rag_with(*reversed(tools))
    ranking = named(rag, rag.search(expect["query"], 10))
    assert ranks_first(ranking, expect["first"]), shown(ranking)
    report = rag.search(expect["query2"], 10)
    assert {f"a/{tool.name}" for tool in tools} <= {hit.id for hit in report[:3]}
    assert rag.search(expect["query2"], 10) == report
    assert _ranks(reverse.search(expect["query2"], 10)) == _ranks(report)


@about(FILE, "builtin-vs-mcp")
def test_a_providers_tool_and_another_of_its_name_are_not_both_bound_under_it(rag_with, case):
    given = [make_tool(case["tools"][0]), *case["provider_tools"]]
    with pytest.raises(DuplicateToolError) as refused:
        rag_with(*given)
    assert "mcp_search" in str(refused.value)
    rag = rag_with(*given, on_duplicate="prefix")
    for query in ("search the web", "weather in Pune"):
        bound = rag.select(query).tools
        names = [tool_name(tool) for tool in bound]
        assert case["provider_tools"][0] in bound
        assert len(names) == len(set(names))


@about(FILE, "eleven-searches")
def test_the_right_one_of_many_searches_is_found(rag_with, case):
    rag = rag_with(*map(make_tool, case["tools"]))
    lacking = []
    for check in case["expect"]["checks"]:
        expect = {key: wanted for key, wanted in check.items() if key != "query"}
        found = unmet(expect, searched(rag, check["query"]))
        lacking += [f"{check['query']!r}: {problem}" for problem in found]
    settle(lacking)


@about(FILE, "squatter")
def test_repeated_words_lift_a_tool_by_one_place_at_most(rag_with, case):
    rag = rag_with(*map(make_tool, case["tools"]), on_duplicate="prefix")
    for query in ("send mail", "send an email to Asha", "send_email", "email"):
        ranks = _ranks(rag.search(query, 10))
        assert ranks["trusted/send_email"] - ranks.get("unknown/send_email", 99) <= 1, query
