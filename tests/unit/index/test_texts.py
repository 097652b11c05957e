import json

import pytest
from documents import make_document

from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.texts import json_text, lexical_text, view_texts

DOCUMENT = make_document(
    "get_weather",
    "Current weather.",
    "meteo",
    parameters=("city",),
    values=("celsius",),
    title="Weather now",
    hint="rain sun",
)
BARE = make_document("ping")
FULL = "meteo. get_weather. get. weather: Current weather.. Parameters: city"


def test_lexical_search_reads_all_that_a_tool_could_be_found_by():
    assert lexical_text(DOCUMENT) == (
        "meteo get_weather get weather Current weather. city Weather now rain sun celsius"
    )


def test_lexical_search_of_the_classic_index_reads_what_toolrag_read():
    text = lexical_text(DOCUMENT, with_server=False)
    assert text == "get_weather get weather Current weather. city"


def test_lexical_text_has_no_gaps_for_what_is_missing():
    assert lexical_text(BARE) == "ping ping"


def test_a_tool_is_embedded_by_three_views():
    assert view_texts(DOCUMENT, IndexOptions()) == [
        (FULL, 0.5),
        ("meteo. Weather now", 0.25),
        ("Current weather.", 0.25),
    ]


def test_the_name_view_without_a_title_is_the_words_of_the_name():
    document = make_document("getHTTPResponse", server="net")
    views = dict(view_texts(document, IndexOptions(full=0, name=1, description=0)))
    assert views == {"net. get. http. response": 1.0}


def test_a_view_without_a_text_gives_its_weight_to_the_others():
    views = view_texts(BARE, IndexOptions())
    assert [text for text, _ in views] == ["ping. ping: ", "ping"]
    assert [weight for _, weight in views] == pytest.approx([2 / 3, 1 / 3])


def test_a_view_without_weight_is_not_embedded():
    texts = [text for text, _ in view_texts(DOCUMENT, IndexOptions(name=0))]
    assert texts == [FULL, "Current weather."]


@pytest.mark.parametrize("document", [DOCUMENT, BARE])
@pytest.mark.parametrize("options", [IndexOptions(), IndexOptions(full=3, name=2, description=1)])
def test_weights_add_up_to_one(document, options):
    assert sum(weight for _, weight in view_texts(document, options)) == pytest.approx(1)


def test_a_tool_with_no_view_at_all_is_embedded_by_its_name():
    only_descriptions = IndexOptions(full=0, name=0, description=1)
    assert view_texts(BARE, only_descriptions) == [("ping", 1.0)]


def test_the_classic_index_embeds_one_text_without_the_server():
    views = view_texts(DOCUMENT, IndexOptions.classic())
    assert views == [(FULL.removeprefix("meteo. "), 1.0)]


@pytest.mark.parametrize("weights", [(0, 0, 0), (1, -1, 1), (float("nan"),) * 3])
def test_weights_that_mean_nothing_are_an_error(weights):
    full, name, description = weights
    with pytest.raises(ValueError, match="view weights"):
        IndexOptions(full=full, name=name, description=description)


@pytest.mark.parametrize("options", [IndexOptions(), IndexOptions.classic(), IndexOptions(full=2)])
def test_options_come_back_from_json(options):
    assert IndexOptions(**options.as_json()) == options


def test_what_is_said_of_parameters_is_read_by_words_and_not_embedded():
    document = make_document(
        "send", "Sends a parcel.", parameters=("code",), parameter_descriptions=("on the label",)
    )
    assert "on the label" in lexical_text(document)
    assert "label" not in lexical_text(document, with_server=False)
    assert not any("label" in text for text, _ in view_texts(document, IndexOptions()))


class TestJSON:
    OPTIONS = IndexOptions(tool_text="json")

    def test_a_tool_is_one_text_with_its_server_first(self):
        document = make_document(
            "get_weather",
            "Current weather.",
            "meteo",
            parameters=("city", "unit"),
            parameter_descriptions=("Where.", "Of temperature."),
            values=("celsius", "kelvin"),
        )
        assert view_texts(document, self.OPTIONS) == [
            (
                '{"server": "meteo", "name": "get_weather", "description": "Current weather.", '
                '"inputSchema": {"type": "object", "properties": {"city": {"description": '
                '"Where."}, "unit": {"description": "Of temperature."}}, "enum": ["celsius", '
                '"kelvin"]}}',
                1.0,
            )
        ]

    def test_descriptions_that_cannot_be_told_apart_stand_with_the_whole(self):
        document = make_document(
            "send", "Sends.", parameters=("code", "to"), parameter_descriptions=("On the label.",)
        )
        assert json.loads(json_text(document))["inputSchema"] == {
            "type": "object",
            "properties": {"code": {}, "to": {}},
            "description": "On the label.",
        }

    def test_a_tool_without_anything_is_still_an_object(self):
        assert json.loads(json_text(BARE)) == {
            "name": "ping",
            "description": "",
            "inputSchema": {"type": "object", "properties": {}},
        }

    def test_the_server_is_left_out_where_it_is_not_to_be_in_the_text(self):
        options = IndexOptions(tool_text="json", server_in_text=False)
        ((text, _),) = view_texts(DOCUMENT, options)
        assert list(json.loads(text)) == ["name", "description", "inputSchema"]

    def test_other_scripts_are_written_as_they_are(self):
        assert "天気" in json_text(make_document("weather", "天気"))

    def test_the_option_comes_back_from_json(self):
        assert IndexOptions() != self.OPTIONS
        assert self.OPTIONS.as_json()["tool_text"] == "json"
        assert IndexOptions(**self.OPTIONS.as_json()) == self.OPTIONS

    def test_another_way_to_write_tools_is_an_error(self):
        with pytest.raises(ValueError, match="tool_text is 'yaml'; wanted 'plain' or 'json'"):
            IndexOptions(tool_text="yaml")
