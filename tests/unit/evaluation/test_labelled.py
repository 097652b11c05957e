import json

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_toolrag.errors import SourceError
from langchain_toolrag.evaluation.labelled import (
    read_all_labelled,
    read_labelled,
    read_labelled_files,
)

OPEN = {"id": "a/open", "server": "a", "name": "open", "description": "Opens a door"}
SHUT = {"id": "a/shut", "server": "a", "name": "shut", "description": "Shuts a door"}
QUERY = {"id": "1", "query": "open the door", "relevant": ["a/open"]}


@pytest.fixture
def folder(tmp_path):
    def make(queries, tools=(OPEN, SHUT), name="doors"):
        directory = tmp_path / name
        directory.mkdir(parents=True)
        for file, lines in (("tools.jsonl", tools), ("queries.jsonl", queries)):
            written = (line if isinstance(line, str) else json.dumps(line) for line in lines)
            (directory / file).write_text("\n".join(written), encoding="utf-8")
        return directory

    return make


def test_a_folder_is_a_set_of_its_name_with_tools_and_queries_in_order(folder):
    read = read_labelled(folder([QUERY, {**QUERY, "id": "2", "relevant": ["a/shut", "a/open"]}]))
    assert read.name == "doors"
    assert [document.id for document in read.documents] == ["a/open", "a/shut"]
    assert [query.id for query in read.queries] == ["1", "2"]
    assert read.queries[1].relevant == ("a/shut", "a/open")
    assert read.queries[0].history == ()


def test_a_conversation_ends_with_the_request_and_keeps_the_calls_of_its_history(folder):
    called = {"type": "tool_call", "id": "c", "name": "open", "args": {}}
    history = [
        {"role": "user", "content": "the door"},
        {"role": "assistant", "content": "", "tool_calls": [called]},
    ]
    (query,) = read_labelled(folder([{**QUERY, "history": history}])).queries
    first, second, last = query.messages
    assert isinstance(second, AIMessage)
    assert second.tool_calls[0]["name"] == "open"
    assert (first.content, last) == ("the door", HumanMessage("open the door"))


def test_unknown_keys_and_null_for_what_may_be_left_out_are_no_matter(folder):
    line = {**QUERY, "split": "dev", "turn": 3, "history": None, "alternatives": None}
    (query,) = read_labelled(folder([line])).queries
    assert (query.history, query.alternatives) == ((), {})


def test_a_gold_tool_named_twice_counts_once(folder):
    (query,) = read_labelled(folder([{**QUERY, "relevant": ["a/open", "a/open"]}])).queries
    assert query.relevant == ("a/open",)


def test_byte_order_marks_windows_line_ends_and_empty_lines_are_no_matter(folder):
    directory = folder([])
    line = json.dumps(QUERY).encode()
    (directory / "queries.jsonl").write_bytes(b"\xef\xbb\xbf\r\n" + line + b"\r\n  \r\n\r\n")
    assert len(read_labelled(directory).queries) == 1


def test_a_line_separator_inside_a_string_ends_no_line(folder):
    line = json.dumps({**QUERY, "query": "open\u2028the door"}, ensure_ascii=False)
    (query,) = read_labelled(folder([line])).queries
    assert query.text == "open\u2028the door"


def test_tools_may_be_of_any_form_and_need_no_id(folder):
    openai = {"type": "function", "function": {"name": "ring", "parameters": {}}}
    mcp = {"name": "knock", "inputSchema": {"type": "object"}, "server": "b"}
    query = {**QUERY, "relevant": ["ring", "b/knock"]}
    read = read_labelled(folder([query], tools=[openai, mcp]))
    assert [document.id for document in read.documents] == ["ring", "b/knock"]


def test_names_need_not_be_unique(folder):
    twin = {**OPEN, "id": "b/open", "server": "b"}
    read = read_labelled(folder([QUERY], tools=[OPEN, twin]))
    assert [document.name for document in read.documents] == ["open", "open"]


def test_a_providers_own_tool_is_bound_but_is_nothing_to_be_found(folder):
    own = {"type": "web_search_20250305", "name": "web_search"}
    read = read_labelled(folder([QUERY], tools=[own, OPEN]))
    assert len(read.tools) == 2
    assert [document.id for document in read.documents] == ["a/open"]


def test_tools_may_come_from_python(folder, request):
    directory = folder([{**QUERY, "relevant": ["weather/get_weather"]}])
    source = f"{request.config.rootpath / 'examples' / 'tools.py'}:TOOLS"
    read = read_labelled_files(source, directory / "queries.jsonl", name="mine")
    assert (read.name, len(read.tools)) == ("mine", 161)


def test_an_id_that_tools_from_python_lack_is_an_error_that_names_the_closest(folder, request):
    directory = folder([{**QUERY, "relevant": ["get_weather"]}])
    source = f"{request.config.rootpath / 'examples' / 'tools.py'}:TOOLS"
    with pytest.raises(SourceError, match=r"TOOLS has\. Closest: weather/get_weather"):
        read_labelled_files(source, directory / "queries.jsonl", name="mine")


FAULTS = [
    ("{", "not JSON: Expecting property name"),
    ("[1]", r"wanted a JSON object, found \[1\]"),
    ("9" * 5000, "cannot be read as JSON"),
    ("[" * 100_000, "cannot be read as JSON"),
    ({"query": "x", "relevant": ["a/open"]}, "'id': field required"),
    ({**QUERY, "id": 7}, "'id': input should be a valid string; found 7"),
    ({**QUERY, "id": ""}, "'id': string should have at least 1 character; found ''"),
    ({**QUERY, "query": " \n"}, "'query' is blank"),
    ({**QUERY, "query": None}, "'query': input should be a valid string; found None"),
    ({**QUERY, "relevant": []}, r"'relevant': list should have at least 1 item"),
    ({**QUERY, "relevant": "a/open"}, "'relevant': input should be a valid list"),
    ({**QUERY, "relevant": ["a/opn"]}, "'relevant' names 'a/opn', an id .* Closest: a/open"),
    ({**QUERY, "alternatives": ["a/shut"]}, "'alternatives': input should be a valid dict"),
    ({**QUERY, "alternatives": {"a/shut": []}}, "'alternatives' has the key 'a/shut'; wanted"),
    ({**QUERY, "alternatives": {"a/open": ["b"]}}, "'alternatives' names 'b', an id that no"),
    ({**QUERY, "alternatives": {"a/open": "b"}}, "'alternatives.a/open': input should be"),
    ({**QUERY, "history": "hello"}, "'history': input should be a valid list"),
    ({**QUERY, "history": [5]}, "'history' is not a list of messages: NotImpl.* <class 'int'>$"),
    ({**QUERY, "history": [{"role": "robot", "content": "x"}]}, "message type: 'robot'"),
]


@pytest.mark.parametrize(("line", "message"), FAULTS, ids=[str(f[0])[:60] for f in FAULTS])
def test_a_malformed_query_is_an_error_that_names_file_line_and_fault(folder, line, message):
    directory = folder([{**QUERY, "id": "0"}, "", line])
    with pytest.raises(SourceError, match=message) as caught:
        read_labelled(directory)
    assert caught.value.line == 3
    assert str(caught.value).startswith(f"{directory / 'queries.jsonl'}, line 3: ")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nothing", "not JSON"),
        ({"description": "no name"}, "a tool needs a name"),
        (OPEN, r"two tools have the id 'a/open' \(the other is on line 1\)"),
    ],
)
def test_a_malformed_tool_is_an_error_that_names_file_line_and_fault(folder, line, message):
    directory = folder([QUERY], tools=[OPEN, line])
    with pytest.raises(SourceError, match=message) as caught:
        read_labelled(directory)
    assert (caught.value.source, caught.value.line) == (str(directory / "tools.jsonl"), 2)


def test_two_queries_of_one_id_are_an_error_that_names_both_lines(folder):
    with pytest.raises(SourceError, match=r"line 3: two queries .* '1' \(the other is on line 1\)"):
        read_labelled(folder([QUERY, "", QUERY]))


@pytest.mark.parametrize(
    ("queries", "tools", "message"),
    [
        ([], [OPEN], "queries.jsonl: no queries in it; wanted one a line"),
        ([QUERY], [], "tools.jsonl: no tools in it; wanted at least one"),
        ([QUERY], [{"type": "web_search"}], "tools.jsonl: no tools in it"),
    ],
)
def test_an_empty_set_is_an_error_that_names_the_file(folder, queries, tools, message):
    with pytest.raises(SourceError, match=message):
        read_labelled(folder(queries, tools=tools))


def test_a_missing_folder_or_file_is_an_error_that_says_what_is_wanted(tmp_path):
    with pytest.raises(SourceError, match="nowhere: no such folder"):
        read_labelled(tmp_path / "nowhere")
    with pytest.raises(SourceError, match=r"no tools.jsonl there; wanted a folder with"):
        read_labelled(tmp_path)


def test_text_that_is_not_utf8_is_an_error_that_names_the_line(folder):
    directory = folder([QUERY])
    path = directory / "queries.jsonl"
    path.write_bytes(path.read_bytes() + b'\n{"id": "caf\xe9"}')
    with pytest.raises(SourceError, match="line 2: not UTF-8"):
        read_labelled(directory)


def test_an_unreadable_queries_file_is_an_error(tmp_path, folder):
    tools = str(folder([QUERY]) / "tools.jsonl")
    with pytest.raises(SourceError, match="cannot be read: Is a directory"):
        read_labelled_files(tools, tmp_path, name="x")


def test_folders_of_one_name_are_told_apart_by_their_paths(folder):
    first, second = folder([QUERY], name="x/dev"), folder([QUERY], name="y/dev")
    third = folder([QUERY], name="other")
    names = [labelled.name for labelled in read_all_labelled([first, second, third])]
    assert names == [str(first), str(second), "other"]


def test_a_folder_given_twice_is_an_error(folder):
    directory = folder([QUERY])
    with pytest.raises(SourceError, match="given twice"):
        read_all_labelled([directory, directory / ".." / "doors"])
