"""`toolrag search` speaks the language of the model's own search."""

import json

import pytest

from langchain_toolrag import cli

DEFINITIONS = [
    {"name": "list_issues", "description": "Lists issues.", "server": "github"},
    {"name": "create_issue", "description": "Creates an issue.", "server": "github"},
    {"name": "send_email", "description": "Sends an email."},
]


@pytest.fixture
def search(tmp_path, capsys):
    """Search by words and names, without a model; return what is printed."""
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(DEFINITIONS))

    def run(query, *flags):
        assert cli.main(["search", query, "--tools", str(path), "--lexical", *flags]) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("List Issues", ["list_issues"]),
        ("mcp__github__list_issues", ["list_issues"]),
        ("list_issues send_email", ["list_issues", "send_email"]),
        ("select:send_email,createIssue", ["create_issue", "send_email"]),
        ("github", ["create_issue", "list_issues"]),
        ("mcp__github", ["create_issue", "list_issues"]),
        ("+issues", ["list_issues"]),
    ],
)
def test_names_servers_and_operators_are_understood(search, query, names):
    found = json.loads(search(query, "--json"))
    assert sorted(tool["name"] for tool in found["tools"]) == names


def test_names_that_are_missing_are_listed_with_the_closest(search):
    printed = search("select:send_email,LIST_ISSUE,create_issues,zebra").splitlines()
    assert printed[1].startswith("send_email")
    assert "no tool is named LIST_ISSUE, create_issues, zebra" in printed
    assert "closest: list_issues, create_issue" in printed


def test_json_holds_what_is_missing_and_the_closest(search):
    found = json.loads(search("select:LIST_ISSUE", "--json"))
    assert (found["tools"], found["missing"]) == ([], ["LIST_ISSUE"])
    assert found["closest"] == ["list_issues", "create_issue"]


def test_names_that_are_like_none_have_no_closest(search):
    printed = search("select:zebra")
    assert "no tool is named zebra" in printed
    assert "closest" not in printed


def test_where_nothing_is_found_it_says_so(search):
    assert search("zebra").startswith("no tool was found")
