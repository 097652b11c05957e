import pytest
from fakes import BrokenEmbeddings, HashingEmbeddings, make_catalogue, make_tool

from langchain_toolrag import ToolRAG
from langchain_toolrag.errors import DuplicateToolError, EmbeddingError
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.linting.finding import CODES, Finding, listed
from langchain_toolrag.linting.lint import lint

BROKEN = {
    "name": "broken",
    "description": "Prints a receipt",
    "parameters": {"type": "object", "properties": {"a": {"$ref": "#/$defs/No"}}},
}
PROVIDERS = {"type": "web_search_20250305", "name": "web_search"}


def pairs(findings):
    return [(finding.tool, finding.code) for finding in findings]


def test_a_good_catalogue_has_no_findings(rag):
    assert lint(rag) == []


def test_no_tools_have_no_findings():
    assert lint([], lexical=True) == []


def test_findings_come_in_the_order_of_the_tools_and_then_of_the_codes():
    tools = [
        PROVIDERS,
        make_tool("run", ""),
        BROKEN,
        make_tool("play.song", "TODO", ("q",)),
        make_tool("get_weather", "Weather in a city", ("city",)),
        make_tool("fetch_weather", "Weather in a city", ("city",)),
    ]
    assert pairs(lint(tools, lexical=True)) == [
        ("run", "vague-name"),
        ("run", "no-description"),
        ("broken", "rejected"),
        ("play.song", "renamed"),
        ("play.song", "placeholder-description"),
        ("play.song", "schema-vague-parameter"),
        ("get_weather", "near-twin"),
    ]


def test_tools_that_cannot_be_told_apart_by_their_first_sentence_are_found():
    many = [make_tool(f"play_{genre}", "Plays it.") for genre in ("jazz", "rock", "folk")]
    crowded = make_tool("start_radio", "Plays it. Streams a station by its frequency.")
    with ToolRAG([*many, crowded], embeddings=HashingEmbeddings()) as rag:
        found = [finding for finding in lint(rag) if finding.code == "not-self-retrieving"]
    (finding,) = found
    assert finding.tool == "start_radio"
    assert finding.others == ("play_folk", "play_jazz", "play_rock")


def test_one_name_on_two_servers_is_a_finding_and_no_error():
    tools = [
        make_tool("create_issue", "Opens a ticket in a repository", ("repo",), "github"),
        make_tool("create_issue", "Adds work to a sprint board", ("board",), "jira"),
    ]
    (finding,) = lint(tools, lexical=True)
    assert finding.code == "duplicate-name"
    assert finding.others == ("jira/create_issue",)


def test_a_name_that_a_providers_tool_has_is_found():
    tools = [PROVIDERS, make_tool("web_search", "Looks pages up", ("words",))]
    (finding,) = lint(tools, lexical=True)
    assert finding.code == "renamed"
    assert "a provider's own tool" in finding.message


def test_one_name_twice_on_one_server_is_an_error():
    with pytest.raises(DuplicateToolError):
        lint([make_tool("play", "Plays"), make_tool("play", "Plays")], lexical=True)


def test_lexical_linting_embeds_nothing(tools):
    embeddings = HashingEmbeddings()
    with ToolRAG(tools, embeddings=embeddings) as rag:
        lint(rag, lexical=True)
    assert embeddings.texts == embeddings.queries == []


def test_a_model_that_fails_is_an_error(tools):
    with ToolRAG(tools, embeddings=BrokenEmbeddings()) as rag, pytest.raises(EmbeddingError):
        lint(rag)


def test_an_index_that_does_not_show_its_vectors_is_searched_all_the_same(embeddings):
    class Remote:
        local = None

        def __init__(self):
            self._there = ToolIndex(embeddings)

        def __getattr__(self, name):
            return getattr(self._there, name)

    tools = [
        make_tool("get_weather", "Weather of today"),
        make_tool("fetch_weather", "Weather of today"),
    ]
    with ToolRAG(tools, index=Remote()) as rag:
        assert pairs(lint(rag)) == [("get_weather", "near-twin")]


def test_an_index_that_lost_a_tool_to_another_process_is_searched_all_the_same(embeddings):
    tools = [
        make_tool("get_weather", "Weather of today"),
        make_tool("fetch_weather", "Weather of today"),
        make_tool("send_email", "Sends an email to somebody."),
    ]
    with ToolRAG(tools, embeddings=embeddings) as rag:
        rag.tool_index.remove(["send_email"])
        assert ("get_weather", "near-twin") in pairs(lint(rag))


def test_progress_ends_with_every_tool(rag):
    seen = []
    lint(rag, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (12, 12)


def test_every_finding_has_a_suggestion_in_one_line_and_a_known_code():
    tools = [make_tool("run"), BROKEN, make_tool("a.b", "TODO", ("q",)), *make_catalogue()]
    for finding in lint(tools, lexical=True):
        assert isinstance(finding, Finding)
        assert finding.code in CODES
        assert finding.suggestion
        assert "\n" not in finding.message + finding.suggestion


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), ""),
        (("a",), "a"),
        (("a", "b"), "a and b"),
        (("a", "b", "c"), "a, b and c"),
        (("a", "b", "c", "d", "e"), "a, b, c and 2 more"),
    ],
)
def test_names_are_listed_as_in_a_sentence(names, text):
    assert listed(names) == text
