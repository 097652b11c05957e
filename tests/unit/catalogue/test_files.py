import json
import sys

import pytest

from langchain_toolrag.catalogue.sources.files import read_tools
from langchain_toolrag.errors import SourceError

WEATHER = {"name": "get_weather", "description": "Weather", "inputSchema": {"type": "object"}}
EMAIL = {"type": "function", "function": {"name": "send_email", "description": "Mail"}}


@pytest.fixture
def write(tmp_path):
    def written(name, text):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return written


def test_a_json_list_is_read_in_order(write):
    assert read_tools(write("t.json", json.dumps([WEATHER, EMAIL]))) == [WEATHER, EMAIL]


def test_an_mcp_listing_is_read_from_its_tools(write):
    assert read_tools(write("t.json", json.dumps({"tools": [WEATHER]}))) == [WEATHER]


def test_a_jsonl_file_is_a_tool_a_line_and_blank_lines_are_no_matter(write):
    text = f"{json.dumps(WEATHER)}\n\n{json.dumps(EMAIL)}\n"
    assert read_tools(write("t.jsonl", text)) == [WEATHER, EMAIL]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("t.json", '[\n{"name": "a"},\n{"name": }\n]', 3),
        ("t.jsonl", '{"name": "a"}\n\n{"name": }\n', 3),
        ("t.jsonl", '{"name": "a"}\n[1]\n', 2),
        ("t.jsonl", '{"name": "a"}\n{"description": "no name"}\n', 2),
        ("t.py", "TOOLS = [\n    (\n]\n", 3),
    ],
    ids=["json", "jsonl", "not an object", "no name", "python"],
)
def test_a_fault_names_file_and_line(write, name, text, line):
    source = write(name, text)
    with pytest.raises(SourceError, match=rf"{name}.*, line {line}: ") as caught:
        read_tools(f"{source}:TOOLS" if name.endswith(".py") else source)
    assert caught.value.line == line


@pytest.mark.parametrize("text", ["{}", '"tools"', "3", '{"tools": {}}'])
def test_json_that_is_not_a_list_of_tools_is_an_error(write, text):
    with pytest.raises(SourceError, match="wanted a list of tools"):
        read_tools(write("t.json", text))


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("TOOLS = [print, len]", 2),
        ("TOOLS = {'a': print}", 1),
        ("TOOLS = (t for t in [print, len, max])", 3),
    ],
    ids=["list", "mapping", "generator"],
)
def test_a_python_attribute_may_be_a_list_a_mapping_or_any_iterable(write, code, count):
    assert len(read_tools(f"{write('some_tools.py', code)}:TOOLS")) == count


def test_a_python_file_may_import_its_neighbour(write):
    write("a_neighbour_of_tools.py", "TOOLS = [print]")
    source = write("importing_tools.py", "from a_neighbour_of_tools import TOOLS")
    assert read_tools(f"{source}:TOOLS") == [print]


def test_a_dotted_module_is_imported():
    assert read_tools("fakes:CATALOGUE")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("no_such_module:TOOLS", "cannot be imported: ModuleNotFoundError"),
        ("no_such_file.py:TOOLS", "cannot be imported: FileNotFoundError"),
        ("fakes:NOTHING", "has no attribute 'NOTHING'"),
        ("fakes:DIM", "wanted a list of tools, found a int"),
        ("just_a_word", "wanted a .json or .jsonl file"),
    ],
)
def test_what_is_not_there_is_an_error_that_says_so(source, problem):
    with pytest.raises(SourceError, match=problem):
        read_tools(source)


def test_a_module_that_fails_at_import_is_an_error_with_its_reason(write):
    with pytest.raises(SourceError, match="ZeroDivisionError"):
        read_tools(f"{write('failing_tools.py', '1 / 0')}:TOOLS")


def test_a_file_does_not_take_the_place_of_a_module_of_its_name(write):
    source = write("json.py", "import json\nTOOLS = [print]")
    assert read_tools(f"{source}:TOOLS") == [print]
    assert sys.modules["json"] is json


def test_two_files_of_one_name_are_two_modules(write, tmp_path):
    (tmp_path / "other").mkdir()
    code = "from dataclasses import dataclass\n@dataclass\nclass {0}: x: 'int'\nTOOLS = [{0}]"
    sources = [write("own.py", code.format("A")), write("other/own.py", code.format("B"))]
    first, second = (read_tools(f"{source}:TOOLS")[0] for source in sources)
    assert [sys.modules[each.__module__].TOOLS for each in (first, second)] == [[first], [second]]


def test_a_module_that_fails_at_import_is_not_left_half_made(write):
    before = set(sys.modules)
    with pytest.raises(SourceError):
        read_tools(f"{write('half_made_tools.py', 'TOOLS = []; 1 / 0')}:TOOLS")
    assert not [name for name in set(sys.modules) - before if "half_made" in name]
