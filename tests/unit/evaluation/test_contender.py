import json

import pytest

from langchain_toolrag import SelectionOptions
from langchain_toolrag.errors import SourceError
from langchain_toolrag.evaluation.contender import read_contender
from langchain_toolrag.index.options import IndexOptions


@pytest.fixture
def described(tmp_path):
    def write(value):
        path = tmp_path / "mine.json"
        path.write_text(json.dumps(value))
        return str(path)

    return write


def test_the_built_in_contenders_are_ours_toolrags_and_each_side_alone():
    assert read_contender("default").options == SelectionOptions()
    assert read_contender("classic").options == SelectionOptions.classic()
    assert [read_contender(name).way for name in ("default", "classic", "semantic", "text")] == [
        "product",
        "classic",
        "semantic",
        "text",
    ]


def test_a_file_describes_selection_and_index(described):
    path = described({"selection": {"k": 4, "always_include": ["a"]}, "index": {"full": 1}})
    contender = read_contender(path)
    assert contender.name == path
    assert contender.options == SelectionOptions(k=4, always_include=("a",))
    assert contender.index_options == IndexOptions(full=1.0)


def test_an_empty_description_is_the_defaults(described):
    contender = read_contender(described({}))
    assert (contender.options, contender.index_options) == (SelectionOptions(), None)


def test_a_file_may_describe_toolrags_algorithm(described):
    contender = read_contender(described({"selection": {"algorithm": "classic"}}))
    assert contender.way == "classic"
    assert contender.needs_vectors


@pytest.mark.parametrize("algorithm", ["hybrid", "classic"])
def test_a_file_may_name_learned_heads_which_are_nothing_without_a_model(described, algorithm):
    selection = {"algorithm": algorithm}
    headed = read_contender(described({"selection": selection, "heads": "a.safetensors"}))
    assert (headed.heads, headed.needs_vectors) == ("a.safetensors", True)
    assert read_contender(described({"selection": selection, "heads": None})).heads is None
    assert not read_contender(described({})).needs_vectors


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], r"wanted an object, found \[\]"),
        (
            {"select": {}},
            r"'select' is no key; known: selection, index, adapter, heads\. Did you mean 'selec",
        ),
        (
            {"selection": {"margn": 1}},
            r"'margn' is no field of 'selection'; known: k, completeness, .*",
        ),
        ({"index": {"ful": 1}}, r"'ful' is no field of 'index'; known: full, .* mean 'full'\?"),
        ({"selection": {"k": "5"}}, r"in 'selection', 'k': input should be a valid integer"),
        ({"selection": {"k": 0}}, r"in 'selection', k is 0; wanted at least 1"),
        ({"selection": {"algorithm": "best"}}, r"'algorithm': input should be 'hybrid' or 'clas"),
        ({"selection": 5}, r"in 'selection', .*nput should be an object; found 5"),
        ({"index": {"full": 0, "name": 0, "description": 0}}, r"in 'index', view weights are"),
        ({"selection": {"algorithm": "classic"}, "index": {}}, "leave 'index' out"),
        ({"adapter": 5}, "'adapter' is 5; wanted a file's name or null"),
        ({"heads": ["a"]}, r"'heads' is \['a'\]; wanted a file's name or null"),
        ({"heads": "data/heads"}, "'heads' is 'data/heads'; wanted a .safetensors file or null"),
    ],
)
def test_a_wrong_description_is_an_error_that_names_the_field_and_what_is_known(
    described, value, message
):
    with pytest.raises(SourceError, match=message):
        read_contender(described(value))


def test_a_misspelt_name_is_an_error_that_names_the_known_ones():
    with pytest.raises(SourceError, match="clasic: no such options; wanted default, classic, sem"):
        read_contender("clasic")


def test_a_missing_file_is_an_error():
    with pytest.raises(SourceError, match=r"nothing\.json: cannot be read"):
        read_contender("nothing.json")
